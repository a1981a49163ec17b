//! See `picker_fuzz::config_struct`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(config_struct);
