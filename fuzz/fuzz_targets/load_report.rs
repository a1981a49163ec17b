//! See `picker_fuzz::load_report`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(load_report);
