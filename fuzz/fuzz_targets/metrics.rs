//! See `picker_fuzz::metrics`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(metrics);
