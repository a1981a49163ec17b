//! See `picker_fuzz::registry`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(registry);
