//! `cargo xtask bench scan`: how fast bodies are read and hashed, native and in wasm.
//!
//! The scanner hashes what it reads, so its figure holds that of the hash. Each is the least time of
//! many, for what else the machine does only ever adds.

use std::fs;
use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use picker_core::{BLOCK_BYTES, HashSeed, RequestScanner, Shape};
use xxhash_rust::xxh3::xxh3_64;

use super::bodies;
use crate::wasm::add_target;
use crate::workspace::{cargo, command_output, find_program, root, run, step, target};

/// The arguments of `cargo xtask bench scan`.
#[derive(Clone, Copy, Debug, Args)]
pub struct ScanArguments {
    /// Leave out wasm, which needs node
    #[arg(long)]
    native: bool,
}

/// Measures and prints the table.
pub(super) fn scan(arguments: ScanArguments) -> Result<()> {
    let wasm = if arguments.native {
        None
    } else {
        find_program("node").context("no node to run wasm with; install it or pass --native")?;
        Some([Simd::Without, Simd::With].map(build))
    };
    let directory = target().join("bench/scan");
    fs::create_dir_all(&directory)?;
    println!(
        "{:>8} {:<8} {:<12} {:>9} {:>7} {:>7}",
        "bytes", "content", "where", "us", "MB/s", "hash us"
    );
    for kilobytes in SIZES_KB {
        for (content, body) in [
            ("prose", bodies::chat(kilobytes * 1024, 1, false)),
            ("base64", bodies::image(kilobytes * 1024, 1)),
        ] {
            let show = |place: &str, [scan_us, hash_us]: [f64; 2]| {
                let bytes = body.len();
                let rate = bytes as f64 / scan_us;
                println!(
                    "{bytes:>8} {content:<8} {place:<12} {scan_us:>9.1} {rate:>7.0} {hash_us:>7.1}"
                );
            };
            show("native", native(&body));
            let file = directory.join("body.json");
            fs::write(&file, &body)?;
            for module in wasm.iter().flatten() {
                let module = module
                    .as_ref()
                    .map_err(|error| anyhow::anyhow!("{error:#}"))?;
                show(module.simd.name(), in_node(module, &file)?);
            }
        }
    }
    Ok(())
}

/// Whether a module may use vectors of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Simd {
    Without,
    With,
}

struct Module {
    simd: Simd,
    path: std::path::PathBuf,
}

impl Simd {
    fn name(self) -> &'static str {
        match self {
            Self::Without => "wasm",
            Self::With => "wasm simd128",
        }
    }
}

fn build(simd: Simd) -> Result<Module> {
    add_target(TARGET)?;
    let directory = target().join("bench").join(simd.name().replace(' ', "-"));
    step(&format!("build the scanner as {}", simd.name()), || {
        let mut command = cargo(&["build", "--quiet", "--package", "picker-core"]);
        command.args(["--example", "scan", "--profile", "wasm", "--target", TARGET]);
        command.arg("--target-dir").arg(&directory);
        if simd == Simd::With {
            command.env("RUSTFLAGS", "-C target-feature=+simd128");
        }
        run(&mut command)
    })?;
    let path = directory.join(TARGET).join("wasm/examples/scan.wasm");
    Ok(Module { simd, path })
}

/// Microseconds to scan and to hash a body here.
fn native(body: &[u8]) -> [f64; 2] {
    let scanned = least(|| {
        let mut scanner = RequestScanner::new(Shape::ChatCompletions);
        for piece in body.chunks(PIECE_BYTES) {
            scanner.push(piece);
        }
        black_box(scanner.finish(HashSeed::new("bench")));
    });
    let hashed = least(|| {
        let (blocks, _) = body.as_chunks::<BLOCK_BYTES>();
        black_box(blocks.iter().fold(0, |sum, it| sum ^ xxh3_64(it)));
    });
    [scanned, hashed]
}

fn in_node(module: &Module, body: &Path) -> Result<[f64; 2]> {
    let mut node = Command::new("node");
    node.arg(root().join("xtask/src/bench/scan.mjs"));
    let piece = PIECE_BYTES.to_string();
    let said = command_output(node.arg(&module.path).arg(body).arg(piece))?;
    let mut times = said.split_whitespace().map(str::parse);
    match (times.next(), times.next()) {
        (Some(Ok(scanned)), Some(Ok(hashed))) => Ok([scanned, hashed]),
        _ => anyhow::bail!("node printed {said:?}"),
    }
}

/// The least time of many, in microseconds.
fn least(mut work: impl FnMut()) -> f64 {
    let begun = Instant::now();
    let mut least = f64::INFINITY;
    while begun.elapsed() < LONG_ENOUGH {
        let begun = Instant::now();
        work();
        least = least.min(begun.elapsed().as_secs_f64() * 1e6);
    }
    least
}

/// The sizes of bodies, in KB.
const SIZES_KB: [usize; 4] = [1, 10, 100, 400];

/// Envoy hands over about as much of a body at once.
const PIECE_BYTES: usize = 65_536;

const LONG_ENOUGH: Duration = Duration::from_millis(600);

/// A target without a host's interface: the module imports nothing.
const TARGET: &str = "wasm32-unknown-unknown";
