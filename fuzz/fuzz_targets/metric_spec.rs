//! See `picker_fuzz::metric_spec`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(metric_spec);
