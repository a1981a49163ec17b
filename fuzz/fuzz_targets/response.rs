//! See `picker_fuzz::response`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(response);
