//! What a wasm module asks of its host.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use wasmparser::{Parser, Payload};

/// The imports of a module, each as `module.name`.
pub fn imports(wasm: &Path) -> Result<BTreeSet<String>> {
    let bytes = fs::read(wasm).with_context(|| format!("cannot read {}", wasm.display()))?;
    let mut found = BTreeSet::new();
    for payload in Parser::new(0).parse_all(&bytes) {
        if let Payload::ImportSection(section) = payload? {
            for import in section.into_imports() {
                let import = import?;
                found.insert(format!("{}.{}", import.module, import.name));
            }
        }
    }
    Ok(found)
}

/// Fails unless the filter imports only what it may, and is small enough.
pub fn check_filter(wasm: &Path) -> Result<()> {
    let imports = imports(wasm)?;
    let odd: Vec<&String> = imports
        .iter()
        .filter(|import| !is_allowed(import))
        .collect();
    ensure!(odd.is_empty(), "{} must not import {odd:?}", wasm.display());
    let size = fs::metadata(wasm)?.len();
    ensure!(
        size <= SIZE_MAX,
        "{} has {size} bytes, more than {SIZE_MAX}",
        wasm.display()
    );
    println!("    {} imports, {size} bytes", imports.len());
    Ok(())
}

fn is_allowed(import: &str) -> bool {
    import.starts_with("env.proxy_") || ALLOWED.contains(&import)
}

/// What the filter may use of WASI: what the standard library links for start-up and for its panic
/// message, and entropy for the generator's seed. No clock: time comes from the proxy.
const ALLOWED: [&str; 5] = [
    "wasi_snapshot_preview1.environ_get",
    "wasi_snapshot_preview1.environ_sizes_get",
    "wasi_snapshot_preview1.fd_write",
    "wasi_snapshot_preview1.proc_exit",
    "wasi_snapshot_preview1.random_get",
];

/// Loading blocks Envoy's main thread about 0.9 s per megabyte.
const SIZE_MAX: u64 = 1_400_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_of_wasi_is_not_allowed_and_the_proxys_is() {
        assert!(is_allowed("env.proxy_get_current_time_nanoseconds"));
        assert!(!is_allowed("wasi_snapshot_preview1.clock_time_get"));
        assert!(!is_allowed("wasi_snapshot_preview1.sched_yield"));
        assert!(!is_allowed("env.other"));
    }
}
