//! See `picker_fuzz::config`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(config);
