//! See `picker_fuzz::public_name`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(public_name);
