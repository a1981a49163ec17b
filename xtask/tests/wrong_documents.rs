//! Documents with mistakes that people make, and what `config check` says of each.
//!
//! `tests/fixtures/config/wrong.txt` has what is said, in the order of the files' names. After a
//! change of words, write it anew with `UPDATE=1 cargo test -p xtask --test wrong_documents`, and
//! read what has changed.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

#[test]
fn every_wrong_document_is_refused_with_the_right_words() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/config");
    let mut files: Vec<PathBuf> = fs::read_dir(root.join("wrong"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    assert!(files.len() >= 60, "{} files", files.len());
    let mut said = String::new();
    let mut accepted = Vec::new();
    for file in &files {
        let name = file.file_name().unwrap().to_str().unwrap();
        let output = Command::new(env!("CARGO_BIN_EXE_xtask"))
            .args(["config", "check"])
            .arg(name)
            .current_dir(root.join("wrong"))
            .output()
            .unwrap();
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).unwrap();
        match output.status.code() {
            Some(code @ 1..=2) => writeln!(said, "# {name}: exit code {code}\n{text}").unwrap(),
            code => accepted.push(format!("{name}: exit code {code:?}\n{text}")),
        }
    }
    assert!(accepted.is_empty(), "{}", accepted.concat());
    let expected = root.join("wrong.txt");
    if env::var_os("UPDATE").is_some() {
        fs::write(&expected, &said).unwrap();
    }
    let expected = fs::read_to_string(expected).unwrap();
    let mut pairs = said.lines().zip(expected.lines());
    if let Some((said, expected)) = pairs.find(|(said, expected)| said != expected) {
        panic!("said:     {said}\nexpected: {expected}");
    }
    assert_eq!(said.lines().count(), expected.lines().count());
}
