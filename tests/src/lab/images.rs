//! Container images without a registry: made FROM scratch, kept as OCI archives, imported by each machine.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, ensure};
use sha2::{Digest, Sha256};

use super::shell::run;

/// Builds the folder `context`, which holds a Containerfile, into the OCI archive `archive` under the name `tag`.
/// `work` is made for the build and removed after it.
///
/// # Errors
/// When buildah fails.
pub fn build(context: &Path, tag: &str, archive: &Path, work: &Path) -> Result<()> {
    let (store, state) = (work.join("store"), work.join("state"));
    let built = in_buildah(
        &store,
        &state,
        &["build", "--isolation", "chroot", "--tag", tag, &context.to_string_lossy()],
    )
    .and_then(|()| {
        // Uncompressed: it is read once per machine, on the disk where it was written.
        let target = format!("oci-archive:{}:{tag}", archive.display());
        in_buildah(&store, &state, &["push", "--disable-compression", tag, &target])
    });
    let removed = fs::remove_dir_all(work).with_context(|| format!("remove {}", work.display()));
    built.with_context(|| format!("build image {tag} from {}", context.display()))?;
    removed
}

/// Makes an image of one static program, which is started with `args`.
///
/// # Errors
/// When the program is not there, or as [`build`].
pub fn from_program(program: &Path, args: &[&str], tag: &str, archive: &Path, work: &Path) -> Result<()> {
    let context = work.join("context");
    fs::create_dir_all(&context).with_context(|| format!("make {}", context.display()))?;
    fs::copy(program, context.join("program")).with_context(|| format!("copy {}", program.display()))?;
    let entry: Vec<&str> = std::iter::once("/program").chain(args.iter().copied()).collect();
    let entry = serde_json::to_string(&entry).context("write the entry point as JSON")?;
    let text = format!("FROM scratch\nCOPY program /program\nUSER 65535:65535\nENTRYPOINT {entry}\n");
    fs::write(context.join("Containerfile"), text).context("write a Containerfile")?;
    build(&context, tag, archive, work)
}

/// Keeps a copy of an archive in `dir`, under the digest of its content; returns its file name.
///
/// # Errors
/// When it cannot be read or written.
pub fn keep(archive: &Path, dir: &Path) -> Result<PathBuf> {
    let mut file =
        fs::File::open(archive).with_context(|| format!("open image archive {}", archive.display()))?;
    let mut digest = Sha256::new();
    let mut piece = vec![0; 1 << 20];
    loop {
        let length = file.read(&mut piece).with_context(|| format!("read {}", archive.display()))?;
        if length == 0 {
            break;
        }
        digest.update(&piece[..length]);
    }
    let digest: String = digest.finalize().iter().take(10).map(|byte| format!("{byte:02x}")).collect();
    let name = PathBuf::from(format!("{digest}.tar"));
    fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    fs::copy(archive, dir.join(&name))
        .with_context(|| format!("copy {} to {}", archive.display(), dir.display()))?;
    Ok(name)
}

/// vfs needs no mounts; the mount namespace takes away those that buildah makes all the same.
fn in_buildah(store: &Path, state: &Path, args: &[&str]) -> Result<()> {
    let (store, state) = (store.to_string_lossy(), state.to_string_lossy());
    ensure!(!args.is_empty(), "buildah needs a command");
    let front = ["--mount", "buildah", "--storage-driver", "vfs", "--root", &store, "--runroot", &state];
    run("unshare", front.iter().chain(args)).map(drop)
}
