//! See `picker_fuzz::request`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(request);
