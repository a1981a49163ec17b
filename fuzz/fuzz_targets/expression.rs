//! See `picker_fuzz::expression`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(expression);
