//! See `picker_fuzz::models`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(models);
