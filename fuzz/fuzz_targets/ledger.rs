//! See `picker_fuzz::ledger`.
#![cfg_attr(fuzzing, no_main)]

picker_fuzz::main!(ledger);
