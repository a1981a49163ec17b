//! The picker as a proxy-wasm module.
