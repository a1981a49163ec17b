//! See `picker_fuzz::head`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(head);
