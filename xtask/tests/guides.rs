//! The documents of `examples/`, and what is in effect with them.
//!
//! After a change, write the expected ones anew with `UPDATE=1 cargo test -p xtask --test guides`,
//! and read what has changed.

#![expect(
    clippy::unwrap_used,
    reason = "clippy takes only functions with #[test] for tests"
)]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[test]
fn every_example_is_accepted_and_has_its_effect() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let expected = root.join("tests/fixtures/config/effective");
    let mut files: Vec<PathBuf> = fs::read_dir(root.join("examples/endpoint-picker-config"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 6, "{files:?}");
    for file in &files {
        let checked = xtask("check", file);
        assert!(
            checked.starts_with(&file.display().to_string()),
            "{checked}"
        );
        assert!(!checked.contains("error:"), "{checked}");
        let shown = xtask("show", file);
        let expected = expected.join(file.file_name().unwrap());
        if env::var_os("UPDATE").is_some() {
            fs::write(&expected, &shown).unwrap();
        }
        let expected = fs::read_to_string(&expected).unwrap();
        let mut pairs = shown.lines().zip(expected.lines());
        let differs = pairs.find(|(shown, expected)| shown != expected);
        assert_eq!(differs, None, "{}", file.display());
        assert_eq!(shown.lines().count(), expected.lines().count());
    }
}

/// What `config <command> <file>` says; it must succeed.
fn xtask(command: &str, file: &Path) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
        .args(["config", command])
        .arg(file)
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    said
}
