//! `cargo xtask bench scan`: how fast bodies are read and hashed, native and in wasm.
//!
//! Each body goes through what the filter does with it: it is decoded where it is compressed, scanned
//! in pieces as Envoy hands them over, and its blocks are hashed and named. Each time is the least of
//! many, for what else the machine does only ever adds. MB/s are of the body as it is once decoded.

use std::fs;
use std::hint::black_box;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use clap::Args;
use codecs::{Coding, Decoder};
use picker_core::{BLOCK_BYTES, HashSeed, RequestScanner, Shape};
use xxhash_rust::xxh3::xxh3_64;

use super::scan_bodies::{self, Body};
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
    let mut modules = Vec::new();
    if !arguments.native {
        find_program("node").context("no node to run wasm with; install it or pass --native")?;
        modules = [Simd::Without, Simd::With]
            .map(build)
            .into_iter()
            .collect::<Result<_>>()?;
    }
    let directory = target().join("bench/scan");
    fs::create_dir_all(&directory)?;
    let file = directory.join("body");
    print!("{:<34} {:>8} {:>8}", "body", "sent", "read");
    for place in ["native", Simd::Without.name(), Simd::With.name()]
        .iter()
        .take(1 + modules.len())
    {
        print!(" {:>9} {:>6}", format!("{place} us"), "MB/s");
    }
    println!();
    for body in scan_bodies::all()? {
        fs::write(&file, &body.sent)?;
        let (native_us, prompt_bytes) = native(&body)?;
        let mut times = vec![native_us];
        for module in &modules {
            let (us, bytes) = in_node(module, &file, &body)?;
            ensure!(
                bytes == prompt_bytes,
                "{}: {bytes} bytes of prompt in wasm and {prompt_bytes} natively",
                body.name
            );
            times.push(us);
        }
        let (sent, read) = (body.sent.len(), body.read_bytes);
        print!("{:<34} {sent:>8} {read:>8}", body.name);
        for us in times {
            print!(" {us:>9.1} {:>6.0}", read as f64 / us);
        }
        println!();
    }
    Ok(())
}

/// Whether a module may use vectors of 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Simd {
    Without,
    With,
}

impl Simd {
    fn name(self) -> &'static str {
        match self {
            Self::Without => "wasm",
            Self::With => "simd",
        }
    }
}

fn build(simd: Simd) -> Result<PathBuf> {
    add_target(TARGET)?;
    let directory = target().join("bench").join(simd.name());
    step(&format!("build the scanner as {}", simd.name()), || {
        let mut command = cargo(&["build", "--quiet", "--package", "codecs"]);
        command.args(["--example", "scan", "--profile", "wasm", "--target", TARGET]);
        command.arg("--target-dir").arg(&directory);
        if simd == Simd::With {
            command.env("RUSTFLAGS", "-C target-feature=+simd128");
        }
        run(&mut command)
    })?;
    Ok(directory.join(TARGET).join("wasm/examples/scan.wasm"))
}

/// Microseconds to read a body here, and the bytes of prompt in it.
fn native(body: &Body) -> Result<(f64, u64)> {
    let Some(path) = body.path else {
        return Ok((least(|| hash(&body.sent)), 0));
    };
    let shape = Shape::of_path(path, &[]).with_context(|| format!("{path} is of no API"))?;
    let bytes = read(shape, body)?;
    Ok((least(|| drop(black_box(read(shape, body)))), bytes))
}

fn read(shape: Shape, body: &Body) -> Result<u64> {
    let mut scanner = RequestScanner::new(shape);
    let coding = Coding::named(body.coding);
    let mut decoder = coding.map(|coding| Decoder::new(coding, u64::MAX));
    for piece in body.sent.chunks(PIECE_BYTES) {
        match &mut decoder {
            Some(decoder) => decoder
                .push(piece, &mut |piece| scanner.push(piece))
                .map_err(|error| anyhow::anyhow!("{}: {error}", body.name))?,
            None => scanner.push(piece),
        }
    }
    if let Some(decoder) = decoder {
        let finished = decoder.finish(&mut |piece| scanner.push(piece));
        finished.map_err(|error| anyhow::anyhow!("{}: {error}", body.name))?;
    }
    let request = scanner.finish(HashSeed::new("bench"));
    if let Some(fault) = request.faults.first() {
        bail!("{}: {fault}", body.name);
    }
    Ok(request.prompts.iter().map(|it| it.bytes).sum())
}

fn hash(body: &[u8]) {
    let (blocks, _) = body.as_chunks::<BLOCK_BYTES>();
    black_box(blocks.iter().fold(0, |sum, it| sum ^ xxh3_64(it)));
}

fn in_node(module: &Path, file: &Path, body: &Body) -> Result<(f64, u64)> {
    let mut node = Command::new("node");
    node.arg(root().join("xtask/src/bench/scan.mjs"));
    node.arg(module).arg(file).arg(PIECE_BYTES.to_string());
    if let Some(path) = body.path {
        node.args([path, body.coding]);
    }
    let said = command_output(&mut node)?;
    let read = said.split_once(' ');
    read.and_then(|(us, bytes)| Some((us.parse().ok()?, bytes.trim().parse().ok()?)))
        .with_context(|| format!("node printed {said:?}"))
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

/// Envoy hands over about as much of a body at once.
const PIECE_BYTES: usize = 65_536;

const LONG_ENOUGH: Duration = Duration::from_millis(300);

/// A target without a host's interface: the module imports nothing.
const TARGET: &str = "wasm32-unknown-unknown";
