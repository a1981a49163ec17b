//! See `picker_fuzz::rename`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(rename);
