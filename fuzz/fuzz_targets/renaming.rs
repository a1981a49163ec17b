//! See `picker_fuzz::renaming`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(renaming);
