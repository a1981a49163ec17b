//! The picker as a proxy-wasm module: HTTP filter, collector and local pages.
//!
//! One module in three roles, told apart by its configuration: the filter has pools, the pages have
//! `serve: page`, and the bootstrap service, which only collects, has none. Nothing is decided
//! here: callbacks of the host become calls of `picker-core`, and what it answers becomes calls of
//! the host.

mod collecting;
mod heads;
mod host;
mod pages;
mod reading;
mod refusing;
mod renaming;
mod root;
mod sent;
mod stats;
mod stream;
#[cfg(feature = "test-build")]
mod test_hooks;
mod trust;
mod verdict;
mod waiting;
mod whose;
mod worker;

use proxy_wasm::traits::RootContext;

mod start {
    #![allow(
        missing_docs,
        reason = "the macro exports a function that only the host calls"
    )]
    use super::{RootContext, root};

    proxy_wasm::main! {{
        proxy_wasm::set_root_context(|_| -> Box<dyn RootContext> { Box::<root::Root>::default() });
    }}
}
