//! See `picker_fuzz::sessions`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(sessions);
