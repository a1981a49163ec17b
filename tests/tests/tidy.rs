//! Rules about the source that no compiler checks.
//!
//! Each rule is a function from a file to complaints, tried below on a file that breaks it.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use picker_core::OWNED_HEADERS;
use picker_tests::DESTINATIONS;
use serde_json::Value;
use xtask::workspace::root;

/// What a rule says of a file: its path from the root, and its text.
type Rule = fn(&str, &str) -> Vec<String>;

#[test]
fn the_source_follows_the_rules() -> Result<()> {
    let mut complaints = Vec::new();
    for file in files(root())? {
        let text = fs::read_to_string(root().join(&file)).with_context(|| file.clone())?;
        for rule in RULES {
            complaints.extend(
                rule(&file, &text)
                    .into_iter()
                    .map(|fault| format!("{file}: {fault}")),
            );
        }
    }
    assert!(complaints.is_empty(), "\n{}", complaints.join("\n"));
    Ok(())
}

#[test]
fn every_rule_finds_what_breaks_it() {
    for (file, text, fault) in [
        (
            "filter/src/stream.rs",
            "//! A.\nuse proxy_wasm::hostcalls;\n",
            "host.rs",
        ),
        (
            "filter/src/root.rs",
            "//! A.\nself.get_property(path)\n",
            "trait helper",
        ),
        ("sim/src/lib.rs", "use std::fs;\n", "module doc"),
        ("sim/src/lib.rs", "//! A.\n// TODO: later\n", "TODO"),
        (
            "picker-core/src/score/prefix.rs",
            "//! A.\nuse crate::score::queue::x;\n",
            "scorer",
        ),
        (
            "picker-core/src/pool.rs",
            "//! A.\nuse std::time::Instant;\n",
            "std",
        ),
        ("sim/Cargo.toml", "[dependencies]\nbytes = \"1\"\n", "why"),
        (
            "ARCHITECTURE.md",
            "See `picker-core/src/nothing_here.rs`.\n",
            "nothing_here",
        ),
    ] {
        let complaints: Vec<String> = RULES.iter().flat_map(|rule| rule(file, text)).collect();
        assert_eq!(complaints.len(), 1, "{file}: {complaints:?}");
        assert!(complaints[0].contains(fault), "{complaints:?}");
    }
}

#[test]
fn envoy_strips_every_header_that_the_picker_owns() -> Result<()> {
    for destination in DESTINATIONS {
        let mut bootstrap = destination.shipped()?;
        let manager = bootstrap.manager_mut("traffic")?;
        let mutations = "/early_header_mutation_extensions/0/typed_config/mutations";
        let mutations = manager.pointer(mutations).and_then(Value::as_array);
        let mutations = mutations.context("no early mutations")?;
        let mut stripped: Vec<&str> = mutations
            .iter()
            .filter_map(|mutation| mutation["remove"].as_str())
            .collect();
        let mut owned = OWNED_HEADERS.to_vec();
        stripped.sort_unstable();
        owned.sort_unstable();
        assert_eq!(stripped, owned, "{destination:?}");
    }
    Ok(())
}

/// The SDK's wrappers panic on statuses they do not expect, and a panic ends a worker's streams.
fn host_is_called_in_one_file(file: &str, text: &str) -> Vec<String> {
    if !file.starts_with("filter/src/") || file == "filter/src/host.rs" {
        return Vec::new();
    }
    let mut faults = Vec::new();
    if text.contains("hostcalls") {
        faults.push("only host.rs calls the host".to_owned());
    }
    let helpers = [
        "self.get_",
        "self.set_",
        "self.send_http",
        "self.dispatch_",
        "self.resume_",
    ];
    if let Some(helper) = helpers.iter().find(|helper| text.contains(*helper)) {
        faults.push(format!(
            "{helper} is a trait helper of the SDK, which can panic"
        ));
    }
    faults
}

/// A file says first what it is for; tests kept beside their module are part of it.
fn begins_with_its_doc(file: &str, text: &str) -> Vec<String> {
    let is_module = file.ends_with(".rs") && !file.ends_with("/tests.rs");
    if is_module && !text.starts_with("//! ") {
        return vec!["no module doc".to_owned()];
    }
    Vec::new()
}

fn nothing_is_left_for_later(file: &str, text: &str) -> Vec<String> {
    // This file names the words.
    if !file.ends_with(".rs") || file.ends_with("tests/tidy.rs") {
        return Vec::new();
    }
    let words = ["TODO", "FIXME", "XXX", "dbg!("];
    let found = words.iter().filter(|word| text.contains(*word));
    found.map(|word| format!("{word} is left")).collect()
}

fn scorers_do_not_know_one_another(file: &str, text: &str) -> Vec<String> {
    let Some(own) = file.strip_prefix("picker-core/src/score/") else {
        return Vec::new();
    };
    let scorers = [
        "active_requests",
        "attribute",
        "kv_cache",
        "least_cost",
        "lora_affinity",
        "no_hit_lru",
        "prefix",
        "queue",
        "session",
    ];
    let others = scorers.iter().filter(|scorer| !own.starts_with(*scorer));
    others
        .filter(|other| text.contains(&format!("score::{other}")))
        .map(|other| format!("a scorer knows another: {other}"))
        .collect()
}

/// `no_std` lets a file ask for std by name where the crate links it for its tests.
fn core_knows_no_std(file: &str, text: &str) -> Vec<String> {
    if !file.starts_with("picker-core/src/") || file.contains("tests") {
        return Vec::new();
    }
    let code = text
        .split("#[cfg(test)]\nmod tests")
        .next()
        .unwrap_or_default();
    let asks = code
        .lines()
        .any(|line| line.trim_start().starts_with("use std::"));
    if asks {
        vec!["std in the core".to_owned()]
    } else {
        Vec::new()
    }
}

/// The line above a dependency says why it is there.
fn dependencies_have_reasons(file: &str, text: &str) -> Vec<String> {
    if !file.ends_with("/Cargo.toml") {
        return Vec::new();
    }
    let mut faults = Vec::new();
    let (mut in_dependencies, mut above) = (false, "");
    for line in text.lines() {
        if line.starts_with('[') {
            in_dependencies = line.contains("dependencies");
        } else if in_dependencies && is_dependency(line) && !above.starts_with('#') {
            faults.push(format!("why is it there: {line}"));
        }
        above = line;
    }
    faults
}

/// Whether a line of a manifest begins a dependency that is not of this workspace.
fn is_dependency(line: &str) -> bool {
    let ours = ["picker-core.", "sim.", "xtask."];
    line.contains('=')
        && line.starts_with(|first: char| first.is_ascii_lowercase())
        && !ours.iter().any(|name| line.starts_with(name))
}

/// What the architecture names in backquotes and with an ending is there.
fn named_files_are_there(file: &str, text: &str) -> Vec<String> {
    if file != "ARCHITECTURE.md" {
        return Vec::new();
    }
    let names = text.split('`').skip(1).step_by(2);
    let names = names.filter(|name| name.ends_with(".rs") || name.ends_with('/'));
    let places = [
        "",
        "picker-core/src",
        "filter/src",
        "sim/src",
        "tests/tests",
        "xtask/src",
    ];
    let is_there = |name: &str| {
        places
            .iter()
            .any(|place| root().join(place).join(name).exists())
    };
    names
        .filter(|name| !is_there(name))
        .map(|name| format!("{name} is not there"))
        .collect()
}

/// The files that rules are about, by their paths from the root.
fn files(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    let mut directories = vec![root.to_owned()];
    while let Some(directory) = directories.pop() {
        for entry in fs::read_dir(&directory)? {
            let path = entry?.path();
            let name = path
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            if path.is_dir() {
                if !name.starts_with('.') && !SKIPPED.contains(&name.as_str()) {
                    directories.push(path);
                }
            } else if [".rs", ".toml", ".md"]
                .iter()
                .any(|end| name.ends_with(end))
            {
                found.push(path.strip_prefix(root)?.display().to_string());
            }
        }
    }
    found.sort();
    Ok(found)
}

const RULES: [Rule; 7] = [
    begins_with_its_doc,
    core_knows_no_std,
    dependencies_have_reasons,
    host_is_called_in_one_file,
    named_files_are_there,
    nothing_is_left_for_later,
    scorers_do_not_know_one_another,
];

/// Directories without source of ours.
const SKIPPED: [&str; 2] = ["fixtures", "target"];
