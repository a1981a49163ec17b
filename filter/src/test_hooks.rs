//! Faults on demand, only in test builds: what happens when a virtual machine dies must be seen to
//! happen.

use picker_core::SharedData;

use crate::host::{self, Host};

/// Carries out what the request's `x-picker-test` header asks for.
pub(crate) fn on_request() {
    match host::request_header("x-picker-test").as_deref() {
        Some("panic") => die("a request asked for it"),
        Some("panic-collector") => Host.set(KEY, b"panic"),
        _ => {}
    }
}

/// Carries out what a request has asked of the collector.
pub(crate) fn on_collect() {
    let mut value = Vec::new();
    Host.get(KEY, &mut value);
    if !value.is_empty() {
        Host.set(KEY, b"");
        die("a request asked for it, of the collector");
    }
}

#[allow(clippy::panic, reason = "this is what the hook is for")]
fn die(why: &str) {
    panic!("planted panic: {why}");
}

const KEY: &str = "picker/test";
