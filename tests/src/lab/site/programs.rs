//! The programs and images that a site is made of, and where they are found.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, Result, ensure};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::Command,
};

use super::tell::Tell;

/// Root of the checkout: manifests and scripts are read from there.
const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

/// Names the folder of the images, so that they need not be built by whoever tests.
pub const IMAGES_VARIABLE: &str = "CORONER_IMAGES";

/// Where everything is.
#[derive(Clone, Debug)]
pub struct Programs {
    /// The image of agent, replica and command.
    pub coroner_image: PathBuf,
    /// The image of the writers.
    pub writer_image: PathBuf,
    /// A static `lab-writer`, of which the pods' sandbox is made.
    pub pause: PathBuf,
    /// The emulator.
    pub lab_bmc: PathBuf,
    /// The operator's command.
    pub coroner: PathBuf,
}

/// A file or folder of the checkout.
#[must_use]
pub fn in_checkout(path: &str) -> PathBuf {
    Path::new(ROOT).join(path)
}

// === impl Programs ===

impl Programs {
    /// Finds them: images in `folder`, else in the folder that the environment names, else where `hack/images` puts
    /// them now; programs beside this one, or one folder above it, as cargo puts them.
    ///
    /// # Errors
    /// Says what is missing and how it is made.
    pub async fn find(folder: Option<&Path>, tell: &Tell) -> Result<Self> {
        let named = folder.map(Path::to_owned).or_else(images_variable);
        let images = match named {
            Some(folder) => folder,
            None => build_images(tell).await?,
        };
        let in_images = |name: &str| {
            let path = images.join(name);
            ensure!(
                path.exists(),
                "there is no {}: hack/images {} makes it",
                path.display(),
                images.display()
            );
            Ok(path)
        };
        Ok(Self {
            coroner_image: in_images("coroner.tar")?,
            writer_image: in_images("lab-writer.tar")?,
            pause: in_images("lab-writer")?,
            lab_bmc: beside("lab-bmc", "coroner-tests")?,
            // The one of the image, where it lies beside it: then the very program that ships is the one that is typed.
            coroner: in_images("coroner").or_else(|_| beside("coroner", "coroner-cli"))?,
        })
    }
}

// === helpers ===

#[expect(clippy::disallowed_methods, reason = "tests that cargo starts have no command line of their own")]
fn images_variable() -> Option<PathBuf> {
    std::env::var_os(IMAGES_VARIABLE).filter(|value| !value.is_empty()).map(PathBuf::from)
}

/// A program of this workspace.
fn beside(name: &str, package: &str) -> Result<PathBuf> {
    let me = std::env::current_exe().context("find this program")?;
    let found = me.ancestors().skip(1).take(2).map(|folder| folder.join(name)).find(|path| path.is_file());
    found.with_context(|| format!("no {name} near {}: cargo build -p {package}", me.display()))
}

/// Builds the images into a folder beside the programs; what is built already is only checked.
async fn build_images(tell: &Tell) -> Result<PathBuf> {
    let me = std::env::current_exe().context("find this program")?;
    let near = me.ancestors().find(|folder| folder.join("CACHEDIR.TAG").exists());
    let folder = near.unwrap_or(Path::new("/var/tmp")).join("lab-images");
    let script = in_checkout("hack/images");
    tell.note(&format!("building the images into {} ({IMAGES_VARIABLE} names others)", folder.display()));
    let mut child = Command::new(&script)
        .arg(&folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .with_context(|| format!("start {}", script.display()))?;
    let mut last = Vec::new();
    if let Some(stderr) = child.stderr.take() {
        let mut lines = BufReader::new(stderr).lines();
        while let Ok(Some(line)) = lines.next_line().await {
            last.push(line);
            last.drain(..last.len().saturating_sub(20));
        }
    }
    let status = child.wait().await.context("wait for hack/images")?;
    ensure!(status.success(), "hack/images {}: {status}:\n{}", folder.display(), last.join("\n"));
    Ok(folder)
}
