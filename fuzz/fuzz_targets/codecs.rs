//! See `picker_fuzz::codecs`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(codecs);
