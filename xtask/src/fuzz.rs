//! `cargo xtask fuzz`: libFuzzer on the targets of `fuzz/`.
//!
//! The stable compiler can do it: what libFuzzer needs is a pass of LLVM and a flag. What is
//! found lies below `target/fuzz`: the inputs that reach new code in `corpus/`, from which the
//! next run goes on, those that fail in `artifacts/`, and all that libFuzzer says in `logs/`.

use std::env;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use clap::Args;
use clap::builder::PossibleValuesParser;
use picker_fuzz::{TARGETS, Target};

use crate::workspace::{cargo, command_output, find_program, root, run, step, target};

/// The arguments of `cargo xtask fuzz`.
#[derive(Clone, Debug, Args)]
#[command(after_help = HELP)]
pub struct FuzzArguments {
    /// What to fuzz, one after the other; all when none is named
    #[arg(value_name = "TARGET", value_parser = PossibleValuesParser::new(names()), hide_possible_values = true)]
    targets: Vec<String>,
    /// How long, for each target
    #[arg(long, value_name = "N", default_value_t = 60)]
    seconds: u64,
    /// List the targets, and do nothing
    #[arg(long)]
    list: bool,
}

/// Fuzzes what the arguments name; the first input that fails ends it.
pub fn fuzz(arguments: &FuzzArguments) -> Result<()> {
    if arguments.list {
        for target in TARGETS {
            println!("{:<14} {}", target.name, target.about);
        }
        return Ok(());
    }
    let is_named = |target: &&Target| {
        arguments.targets.is_empty() || arguments.targets.iter().any(|name| name == target.name)
    };
    let targets = TARGETS.iter().filter(is_named);
    fuzz_each(targets, Duration::from_secs(arguments.seconds))
}

/// Fuzzes each of `targets` for `time`, and then says how far each has come.
pub fn fuzz_each<'a>(targets: impl IntoIterator<Item = &'a Target>, time: Duration) -> Result<()> {
    let binaries = build()?;
    let mut lines = Vec::new();
    for target in targets {
        let progress = fuzz_one(target, &binaries, time)?;
        lines.push(format!("  {:<14} {progress}", target.name));
    }
    println!("Nothing was found:\n{}", lines.join("\n"));
    Ok(())
}

/// Builds all targets; the directory with their binaries.
fn build() -> Result<PathBuf> {
    if env::var_os("CXX").is_none() && find_program("c++").is_none() {
        bail!("libFuzzer is C++ and there is no compiler for it; install one (Debian: g++)");
    }
    let version = command_output(Command::new("rustc").arg("-vV").current_dir(root()))?;
    let host = version
        .lines()
        .find_map(|line| line.strip_prefix("host: "))
        .context("rustc -vV names no host")?;
    step("build the fuzz targets", || {
        // With a target of its own the flags are not those of build scripts.
        let mut command = cargo(&["build", "--quiet", "--package", "picker-fuzz", "--bins"]);
        command.args(["--profile", "fuzz", "--target", host, "--target-dir"]);
        run(command.arg(directory()).env("RUSTFLAGS", FLAGS.join(" ")))
    })?;
    Ok(directory().join(host).join("fuzz"))
}

fn fuzz_one(target: &Target, binaries: &Path, time: Duration) -> Result<Progress> {
    let name = target.name;
    eprintln!("==> fuzz {name} for {} s: {}", time.as_secs(), target.about);
    let (seeds, corpus) = (place("seeds", name)?, place("corpus", name)?);
    for (number, seed) in (target.seeds)().context("no seeds")?.iter().enumerate() {
        fs::write(seeds.join(format!("{number:03}")), seed)?;
    }
    for regression in target.regressions()? {
        let file = regression.file_name().unwrap_or_default();
        fs::copy(&regression, seeds.join(file))?;
    }
    let artifacts = place("artifacts", name)?;
    let binary = binaries.join(name);
    let mut command = Command::new(&binary);
    command.args([&corpus, &seeds]);
    command.args([
        format!("-max_total_time={}", time.as_secs()),
        format!("-max_len={}", target.bytes_max),
        format!("-timeout={INPUT_SECONDS_MAX}"),
        format!("-rss_limit_mb={MEMORY_MB_MAX}"),
        format!("-artifact_prefix={}/", artifacts.display()),
    ]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let child = command.stderr(Stdio::piped()).spawn();
    let child = child.with_context(|| format!("cannot start {}", binary.display()))?;
    let log = place("logs", name)?.join("fuzzing.log");
    let told = follow(child, &log)?;
    if !told.is_success {
        bail!("{}", failure(name, &binary, &told, &log));
    }
    eprintln!("    {name}: {}", told.progress);
    Ok(told.progress)
}

/// How far a target has come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Progress {
    executions: u64,
    /// Branches of the code that some input has taken.
    edges: u64,
}

impl std::fmt::Display for Progress {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "{:>9} executions, {:>5} edges",
            self.executions, self.edges
        )
    }
}

impl Progress {
    /// The progress in a line of libFuzzer's, `#8192 pulse  cov: 927 ft: 3358 ...`.
    fn of_line(line: &str) -> Option<Self> {
        let mut words = line.strip_prefix('#')?.split_ascii_whitespace();
        let executions = words.next()?.parse().ok()?;
        let edges = words
            .skip_while(|word| *word != "cov:")
            .nth(1)?
            .parse()
            .ok()?;
        Some(Self { executions, edges })
    }
}

/// What libFuzzer has told until it ended.
#[derive(Default)]
struct Told {
    progress: Progress,
    is_success: bool,
    /// What did not hold, in lines.
    fault: Vec<String>,
    is_fault_known: bool,
    /// Where the input that failed is.
    input: Option<PathBuf>,
}

impl Told {
    /// Takes in a line that says what did not hold: from a panic, or what libFuzzer calls an error,
    /// to where it says how it came there.
    fn take_fault(&mut self, line: &str) {
        let begins = line.contains("panicked at") || line.contains("ERROR: libFuzzer");
        let ends = line.starts_with("stack backtrace") || line.starts_with("note:");
        if self.fault.is_empty() && !begins || ends {
            self.is_fault_known |= ends;
        } else if !self.is_fault_known && self.fault.len() < FAULT_LINES_MAX {
            let line = line.chars().take(FAULT_COLUMNS_MAX).collect();
            self.fault.push(line);
        }
    }
}

/// Follows what a fuzzer says to its end, keeps it in `log`, and shows how far it is now and then.
fn follow(mut child: Child, log: &Path) -> Result<Told> {
    let mut file = File::create(log)?;
    let mut told = Told::default();
    let mut shown = Instant::now();
    let said = child.stderr.take().context("libFuzzer has no output")?;
    for line in BufReader::new(said).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        writeln!(file, "{line}")?;
        if let Some(progress) = Progress::of_line(&line) {
            told.progress = progress;
            if shown.elapsed() > SHOWN_EVERY {
                eprintln!("    {}", told.progress);
                shown = Instant::now();
            }
        }
        told.take_fault(&line);
        if let Some((_, path)) = line.split_once("Test unit written to ") {
            told.input = Some(PathBuf::from(path));
        }
    }
    told.is_success = child.wait()?.success();
    Ok(told)
}

/// What failed, and what to do about it.
fn failure(name: &str, binary: &Path, told: &Told, log: &Path) -> String {
    let shown = |path: &Path| {
        path.strip_prefix(root())
            .unwrap_or(path)
            .display()
            .to_string()
    };
    let fault = told.fault.join("\n    ");
    let Some(input) = &told.input else {
        return format!("{name} ended early, see {}\n    {fault}", shown(log));
    };
    let artifacts = shown(input.parent().unwrap_or(input));
    let (input, binary) = (shown(input), shown(binary));
    format!(
        "{name} fails for {input}\n    {fault}\n\
         see all it said: {log}\n\
         reproduce:       cargo run --package picker-fuzz --bin {name} -- {input}\n\
         minimize:        {binary} -minimize_crash=1 -max_total_time=60 \
         -artifact_prefix={artifacts}/ {input}\n\
         once it is put right, keep the input in fuzz/regressions/{name}/ and a unit test beside \
         the code",
        log = shown(log)
    )
}

/// A directory of a target's, made when it is missing.
fn place(kind: &str, name: &str) -> Result<PathBuf> {
    let directory = directory().join(kind).join(name);
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

fn directory() -> PathBuf {
    target().join("fuzz")
}

fn names() -> Vec<&'static str> {
    TARGETS.iter().map(|target| target.name).collect()
}

/// What libFuzzer needs of the compiler: counters of edges, and the operands of comparisons, from
/// which it learns what the code looks for.
const FLAGS: [&str; 7] = [
    "--cfg=fuzzing",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    // Branches that are folded into one cannot be told apart.
    "-Cllvm-args=-simplifycfg-branch-fold-threshold=0",
];

/// An input that takes longer does not end; the slowest of the seeds takes some milliseconds.
const INPUT_SECONDS_MAX: u32 = 10;

/// Memory of a fuzzer; they use some 50 MB.
const MEMORY_MB_MAX: u32 = 1024;

const SHOWN_EVERY: Duration = Duration::from_secs(10);

/// Lines of a fault that are shown, and how much of each; a value that differs can be long.
const FAULT_LINES_MAX: usize = 6;
const FAULT_COLUMNS_MAX: usize = 500;

const HELP: &str = "\
An input that fails is kept below target/fuzz/artifacts, and the commands to
reproduce and to minimize it are shown. Inputs that reach new code are kept
below target/fuzz/corpus, so that the next run goes on from there.

It needs a C++ compiler besides Rust. `cargo fuzz run TARGET -s none` works too.";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_is_what_is_said_from_the_panic_to_the_backtrace() {
        for (said, fault) in [
            (
                "#8 NEW cov: 3\nthread panicked at a.rs:1:2:\nleft: 1\nright: 2\nstack backtrace:\n   0: a\n\
                 ==7== ERROR: libFuzzer: deadly signal\nMS: 1",
                "thread panicked at a.rs:1:2:\nleft: 1\nright: 2",
            ),
            (
                "#8 NEW cov: 3\nALARM: 11 seconds\n==7== ERROR: libFuzzer: timeout",
                "==7== ERROR: libFuzzer: timeout",
            ),
        ] {
            let mut told = Told::default();
            said.lines().for_each(|line| told.take_fault(line));
            assert_eq!(told.fault.join("\n"), fault);
        }
    }

    #[test]
    fn progress_is_read_from_what_libfuzzer_says() {
        let progress = |executions, edges| Some(Progress { executions, edges });
        for (line, expected) in [
            (
                "#284355\tDONE   cov: 1801 ft: 7507 corp: 3197/8303Kb",
                progress(284_355, 1801),
            ),
            ("#2\tINITED cov: 12 ft: 13", progress(2, 12)),
            ("#8 0x55a1 in rust_fuzzer_test_input", None),
            ("INFO: cov: 5", None),
        ] {
            assert_eq!(Progress::of_line(line), expected, "{line}");
        }
    }
}
