//! The recorded pages and bodies that fuzzing starts from.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde_json::Value;

/// The content of a file below `tests/fixtures`.
pub(crate) fn fixture(path: &str) -> io::Result<Vec<u8>> {
    fs::read(directory().join(path))
}

/// A fixture that says what the others are.
pub(crate) fn index(path: &str) -> io::Result<Value> {
    Ok(serde_json::from_slice(&fixture(path)?)?)
}

/// The contents of the files of a directory below `tests/fixtures`, by name.
pub(crate) fn files(path: &str) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(directory().join(path))? {
        let entry = entry?;
        if entry.file_type()?.is_file() {
            let name = entry.file_name().to_string_lossy().into_owned();
            files.push((name, fs::read(entry.path())?));
        }
    }
    files.sort();
    Ok(files)
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures")
}
