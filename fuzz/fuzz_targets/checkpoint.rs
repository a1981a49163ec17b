//! See `picker_fuzz::checkpoint`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(checkpoint);
