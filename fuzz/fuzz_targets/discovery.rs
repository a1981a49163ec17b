//! See `picker_fuzz::discovery`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(discovery);
