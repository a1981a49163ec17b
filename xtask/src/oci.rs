//! `cargo xtask oci`: the module as an image that Istio and Envoy Gateway fetch.

mod fetchers;
mod image;
mod layout;
mod release;
mod sbom;

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, bail, ensure};
use clap::{Args, Subcommand};

use crate::wasm::{self, Variant};
use crate::workspace::{command_output, find_program, run, target};
pub use release::{Release, write};

/// What to do with an image.
#[derive(Clone, Debug, Subcommand)]
pub enum OciArguments {
    /// Build the module and lay it out as an image, with checksums and a bill of materials
    #[command(after_help = BUILD_HELP)]
    Build(BuildArguments),
    /// Tell whether Istio and Envoy Gateway would take an image
    #[command(after_help = CHECK_HELP)]
    Check(CheckArguments),
}

/// The arguments of `cargo xtask oci build`.
#[derive(Clone, Debug, Args)]
pub struct BuildArguments {
    /// Where the files go; target/oci if not given
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// A module that is built already
    #[arg(long, value_name = "FILE")]
    wasm: Option<PathBuf>,
}

/// The arguments of `cargo xtask oci check`.
#[derive(Clone, Debug, Args)]
pub struct CheckArguments {
    /// What `oci build` wrote, or any image in the OCI layout
    #[arg(value_name = "DIR")]
    directory: PathBuf,
}

/// Does what is asked.
pub fn oci(arguments: &OciArguments) -> Result<()> {
    match arguments {
        OciArguments::Build(arguments) => build(arguments),
        OciArguments::Check(arguments) => check(&arguments.directory),
    }
}

fn build(arguments: &BuildArguments) -> Result<()> {
    let wasm = match &arguments.wasm {
        Some(wasm) => wasm.clone(),
        None => wasm::build(Variant::Shipped)?,
    };
    let out = match &arguments.out {
        Some(out) => out.clone(),
        None => target().join("oci"),
    };
    let release = write(&wasm, &out)?;
    check(&out)?;
    print!("{}", next(&out, &release));
    Ok(())
}

/// Fails with everything that a fetcher would refuse, and tells what there is otherwise.
pub fn check(directory: &Path) -> Result<()> {
    let (summary, complaints) = release::examine(directory)?;
    if complaints.is_empty() {
        println!("{summary}");
        return Ok(());
    }
    for complaint in &complaints {
        println!("{}: {complaint}", directory.display());
    }
    bail!("to mend: {}", complaints.len())
}

/// Lays a module out twice, which has to give the same, checks it, and lets `skopeo` read it where
/// there is one; whether there is.
pub fn rehearse(wasm: &Path) -> Result<bool> {
    let out = target().join("oci");
    let digests = [(); 2].map(|()| write(wasm, &out).map(|release| release.digest));
    let [first, second] = digests;
    let (first, second) = (first?, second?);
    ensure!(first == second, "the digests are {first} and {second}");
    check(&out)?;
    let Some(skopeo) = find_program("skopeo") else {
        return Ok(false);
    };
    let image = format!("oci:{}", out.join(release::IMAGE).display());
    let told = command_output(Command::new(&skopeo).args(["inspect", &image]))?;
    ensure!(told.contains(&first), "skopeo sees another digest: {told}");
    // As a registry of Docker's kind would hold it.
    let copy = format!("dir:{}", target().join("oci-docker").display());
    let mut skopeo = Command::new(skopeo);
    skopeo.args(["--insecure-policy", "copy", "--quiet", "--format", "v2s2"]);
    run(skopeo.args([&image, &copy]))?;
    Ok(true)
}

/// What to do with a release.
fn next(out: &Path, release: &Release) -> String {
    let Release { version, digest } = release;
    let image = out.join(release::IMAGE);
    let image = image.display();
    let hex = digest.trim_start_matches("sha256:");
    format!(
        "\nTo publish it:\n  \
         skopeo copy oci:{image} docker://REGISTRY/picker:{version}\n\
         To use it:\n  \
         Istio          url: oci://REGISTRY/picker:{version}, sha256: {hex}\n  \
         Envoy Gateway  image: {{ url: REGISTRY/picker:{version}, sha256: {hex} }}\n"
    )
}

const BUILD_HELP: &str = "\
Written are:
  image/            an OCI layout with one manifest: one layer, a gzipped tar with plugin.wasm
  picker.wasm       the module by itself, for `file:` and `http:` URLs and for plain Envoy
  picker.cdx.json   what is compiled into it (CycloneDX)
  SHA256SUMS        of these, for `sha256sum -c`

The same commit and compiler give the same bytes, and so the same digest. There is a manifest and no
index, for Istio and Envoy Gateway compare a pinned digest with that of the manifest.

Examples:
  cargo xtask oci build
  cargo xtask oci build --out dist
  skopeo copy oci:target/oci/image docker://registry.example/picker:0.1.0
  cargo xtask oci check target/oci";

const CHECK_HELP: &str = "\
Applies the rules of both: an OCI manifest whose last layer is a gzipped tar with plugin.wasm in it,
or a Docker one, or an artifact of two layers with the module as it is. Every digest and length is
compared, and an index is refused where a digest could not be pinned.

Examples:
  cargo xtask oci check target/oci
  skopeo copy docker://registry.example/picker:0.1.0 oci:pulled && cargo xtask oci check pulled

Exit codes: 0 both take it, 1 they do not, or it could not be read.";
