//! What must hold of every parser of the picker, whatever bytes it is given.
//!
//! A module is a target: `check` reads an input and asserts what holds, `seeds` are the inputs to
//! begin with. Each is run in two ways: by libFuzzer, which looks for an input that fails
//! (`cargo xtask fuzz`), and by the tests below, with the seeds and with every input that once
//! failed, which are kept in `regressions/`.

pub mod board;
pub mod checkpoint;
pub mod codecs;
pub mod config;
pub mod config_struct;
pub mod discovery;
pub mod expression;
mod fixtures;
pub mod gpus;
pub mod head;
mod input;
pub mod ledger;
pub mod load_report;
pub mod metric_spec;
pub mod metrics;
pub mod models;
pub mod public_name;
pub mod registry;
pub mod rename;
pub mod request;
pub mod response;
pub mod ring;
pub mod sessions;
pub mod snapshot;
mod workers;

use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[cfg(fuzzing)]
#[doc(hidden)]
pub use libfuzzer_sys;

/// A parser with what is claimed of it.
pub struct Target {
    /// Its name, also that of the binary and of the module.
    pub name: &'static str,
    /// What is read.
    pub about: &'static str,
    /// The longest input that is tried, in bytes; longer ones find no more and take their time.
    pub bytes_max: usize,
    /// Reads an input; panics when something does not hold.
    pub check: fn(&[u8]),
    /// Inputs to begin with.
    pub seeds: fn() -> io::Result<Vec<Vec<u8>>>,
}

impl Target {
    /// The inputs that once failed.
    pub fn regressions(&self) -> io::Result<Vec<PathBuf>> {
        let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("regressions");
        let mut paths = Vec::new();
        match fs::read_dir(directory.join(self.name)) {
            Ok(entries) => {
                for entry in entries {
                    paths.push(entry?.path());
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        paths.sort();
        Ok(paths)
    }
}

/// The `main` of a target: libFuzzer's, or in an ordinary build one that reads the files it is
/// given.
#[macro_export]
macro_rules! main {
    ($target:ident) => {
        #[cfg(fuzzing)]
        $crate::libfuzzer_sys::fuzz_target!(|bytes: &[u8]| $crate::$target::check(bytes));

        #[cfg(not(fuzzing))]
        fn main() -> std::process::ExitCode {
            $crate::replay($crate::$target::check)
        }
    };
}

/// Gives `check` every file that the command line names.
pub fn replay(check: fn(&[u8])) -> ExitCode {
    for path in env::args_os().skip(1) {
        match fs::read(&path) {
            Ok(input) => check(&input),
            Err(error) => {
                eprintln!("error: {}: {error}", path.display());
                return ExitCode::FAILURE;
            }
        }
        println!("{}: holds", path.display());
    }
    ExitCode::SUCCESS
}

macro_rules! targets {
    ($($name:ident $bytes_max:literal $about:literal)*) => {
        /// Every target.
        pub const TARGETS: &[Target] = &[$(Target {
            name: stringify!($name),
            about: $about,
            bytes_max: $bytes_max,
            check: $name::check,
            seeds: $name::seeds,
        }),*];
    };
}

targets! {
    board 2048 "boards of what waits, in shared data"
    checkpoint 8192 "copies of twins in shared data"
    codecs 8192 "compressed bodies, in every coding"
    config 4096 "configurations"
    config_struct 4096 "configurations as a serialized Struct"
    discovery 8192 "answers that tell endpoints, of HTTP servers and of Kubernetes"
    expression 512 "expressions over the counts of an answer"
    gpus 4096 "pages of GPUs, as DCGM Exporter writes them"
    head 512 "paths, hosts and other headers of requests"
    ledger 2048 "ledgers in shared data"
    load_report 512 "load reports in headers of responses"
    metric_spec 1100 "what a user selects samples of metrics by"
    metrics 8192 "metrics pages, of every engine"
    models 4096 "lists of the models that a server has"
    registry 2048 "registrations, the lease and discovery requests"
    rename 4096 "request bodies whose model gets another name, of every API"
    public_name 4096 "response bodies with another name of the model"
    request 4096 "request bodies, of every API"
    response 4096 "response bodies, of every kind"
    ring 4096 "ring entries in shared data"
    sessions 2048 "sessions in shared data"
    snapshot 2048 "snapshots in shared data"
}

#[cfg(test)]
mod tests;
