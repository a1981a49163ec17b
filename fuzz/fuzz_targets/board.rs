//! See `picker_fuzz::board`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(board);
