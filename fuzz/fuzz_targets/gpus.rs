//! See `picker_fuzz::gpus`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(gpus);
