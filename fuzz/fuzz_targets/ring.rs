//! See `picker_fuzz::ring`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(ring);
