//! See `picker_fuzz::snapshot`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(snapshot);
