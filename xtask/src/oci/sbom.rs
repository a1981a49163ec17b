//! The bill of materials: the crates that are compiled into the module, in CycloneDX.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::wasm::TARGET;
use crate::workspace::{cargo, command_output, root};

/// The document for a module with this SHA-256.
pub(super) fn document(version: &str, module: &str) -> Result<Value> {
    let mut tree = cargo(&["tree", "--package", "picker-filter", "--target", TARGET]);
    tree.args(["--edges", "normal,no-proc-macro", "--no-dedupe", "--locked"]);
    let tree = command_output(tree.args(["--prefix", "depth", "--format", "|{p}|{l}"]))?;
    let lock = fs::read_to_string(root().join("Cargo.lock"))?;
    let materials = Materials::read(&tree)?;
    let purl = format!("pkg:generic/picker@{version}?checksum=sha256:{module}");
    let mut edges = vec![depends(&purl, &materials.roots)];
    edges.extend(materials.edges.iter().map(|(from, to)| depends(from, to)));
    let components = materials.crates.values();
    Ok(json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {
            "type": "library",
            "bom-ref": purl,
            "name": "picker.wasm",
            "version": version,
            "purl": purl,
            "licenses": [{"expression": "Apache-2.0"}],
            "hashes": [{"alg": "SHA-256", "content": module}],
        }},
        "components": components.map(|it| it.component(&lock)).collect::<Vec<_>>(),
        "dependencies": edges,
    }))
}

/// A crate that is compiled in.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Crate {
    name: String,
    version: String,
    license: String,
}

/// What a tree of cargo says.
#[derive(Default)]
struct Materials {
    /// Every crate, by its package URL.
    crates: BTreeMap<String, Crate>,
    /// Who needs whom.
    edges: BTreeMap<String, BTreeSet<String>>,
    /// What nobody here needs: the module's own crate.
    roots: BTreeSet<String>,
}

impl Materials {
    /// Reads lines of a depth, a package and its licence: `2|memchr v2.8.3|Unlicense/MIT`.
    fn read(tree: &str) -> Result<Self> {
        let mut materials = Self::default();
        let mut above: Vec<String> = Vec::new();
        for line in tree.lines().filter(|line| !line.is_empty()) {
            let (depth, it) = read_line(line).with_context(|| format!("cargo tree: {line:?}"))?;
            let purl = it.purl();
            above.truncate(depth);
            match above.last() {
                Some(parent) => materials.edges.entry(parent.clone()).or_default(),
                None => &mut materials.roots,
            }
            .insert(purl.clone());
            materials.edges.entry(purl.clone()).or_default();
            materials.crates.insert(purl.clone(), it);
            above.push(purl);
        }
        Ok(materials)
    }
}

impl Crate {
    fn purl(&self) -> String {
        format!("pkg:cargo/{}@{}", self.name, self.version)
    }

    fn component(&self, lock: &str) -> Value {
        let purl = self.purl();
        let mut component = json!({
            "type": "library",
            "bom-ref": purl,
            "name": self.name,
            "version": self.version,
            "purl": purl,
            // Crates used to write "or" as a slash.
            "licenses": [{"expression": self.license.replace('/', " OR ")}],
        });
        if let Some(checksum) = checksum(lock, self) {
            component["hashes"] = json!([{"alg": "SHA-256", "content": checksum}]);
        }
        component
    }
}

fn read_line(line: &str) -> Option<(usize, Crate)> {
    let mut fields = line.split('|');
    let depth = fields.next()?.parse().ok()?;
    let mut package = fields.next()?.split(' ');
    let name = package.next()?.to_owned();
    let version = package.next()?.strip_prefix('v')?.to_owned();
    let license = fields.next()?.to_owned();
    let it = Crate {
        name,
        version,
        license,
    };
    Some((depth, it))
}

/// What the lock file says of a crate's archive; nothing for those of this workspace.
fn checksum<'a>(lock: &'a str, it: &Crate) -> Option<&'a str> {
    let head = format!("name = \"{}\"\nversion = \"{}\"\n", it.name, it.version);
    let (_, rest) = lock.split_once(&head)?;
    let (entry, _) = rest.split_once("[[package]]").unwrap_or((rest, ""));
    let (_, rest) = entry.split_once("checksum = \"")?;
    rest.split('"').next()
}

fn depends(from: &str, to: &BTreeSet<String>) -> Value {
    json!({"ref": from, "dependsOn": to})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_gives_each_crate_once_and_who_needs_whom() {
        let tree = "0|a v1.0.0 (/here)|Apache-2.0\n1|b v2.0.0|MIT/Apache-2.0\n2|c v3.0.0|MIT\n\
                    1|c v3.0.0|MIT\n";
        let materials = Materials::read(tree).unwrap();
        assert_eq!(materials.crates.len(), 3);
        assert_eq!(
            materials.roots.iter().collect::<Vec<_>>(),
            ["pkg:cargo/a@1.0.0"]
        );
        let needs = |it: &str| materials.edges[it].iter().cloned().collect::<Vec<_>>();
        let (b, c) = ("pkg:cargo/b@2.0.0", "pkg:cargo/c@3.0.0");
        assert_eq!(needs("pkg:cargo/a@1.0.0"), [b, c]);
        assert_eq!(needs(b), [c]);
        assert!(needs(c).is_empty());
        let component = materials.crates[b].component("");
        assert_eq!(component["licenses"][0]["expression"], "MIT OR Apache-2.0");
        assert!(Materials::read("what\n").is_err());
    }

    #[test]
    fn the_checksum_is_that_of_the_version_and_of_no_neighbour() {
        let lock = "[[package]]\nname = \"a\"\nversion = \"1.0.0\"\n\n\
                    [[package]]\nname = \"b\"\nversion = \"1.0.0\"\nchecksum = \"b1\"\n\n\
                    [[package]]\nname = \"b\"\nversion = \"2.0.0\"\nchecksum = \"b2\"\n";
        let found = |name: &str, version: &str| {
            let it = Crate {
                name: name.to_owned(),
                version: version.to_owned(),
                license: String::new(),
            };
            checksum(lock, &it)
        };
        assert_eq!(found("a", "1.0.0"), None);
        assert_eq!(found("b", "1.0.0"), Some("b1"));
        assert_eq!(found("b", "2.0.0"), Some("b2"));
    }
}
