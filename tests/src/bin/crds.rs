//! `crds FOLDER`: writes the CRDs of the resources that Coroner owns, as their Rust types would have them, into a
//! folder; without one it prints them. `hack/fix` calls it, and `tests/manifests.rs` compares its result with what is
//! committed.

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, Result};
use clap::Parser;
use coroner_arbiter::k8s::types::{FencingPolicy, Incident, MachineBinding};
use kube::CustomResourceExt;

/// Makes the CRDs from the Rust types.
#[derive(Parser)]
struct Args {
    /// Where to write them; without it they are printed.
    folder: Option<PathBuf>,
}

fn main() -> ExitCode {
    match run(&Args::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("crds: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(args: &Args) -> Result<()> {
    for crd in [MachineBinding::crd(), FencingPolicy::crd(), Incident::crd()] {
        let plural = &crd.spec.names.plural;
        let yaml = serde_yaml::to_string(&crd).with_context(|| format!("write {plural} as YAML"))?;
        let head = "# Made by hack/fix from arbiter/src/k8s/types.rs: change it there.";
        let text = format!("{head}\n{}\n", yaml.trim_end());
        let Some(folder) = &args.folder else {
            print!("---\n{text}");
            continue;
        };
        let path = folder.join(format!("{plural}.yaml"));
        std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    }
    Ok(())
}
