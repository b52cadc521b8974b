//! Whose log a disk has begun, and in what: one line in a file beside the log's folder.
//!
//! `birth` finds out that a whole disk is lost, by the mark in the Secret. This finds out that only the log is gone,
//! or is another's: a replica that starts with an empty log under an old id may vote twice in one term.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};

use coroner_arbiter_replica::store::StoreError;
use coroner_shared::id::ReplicaId;

use crate::store::{StoreKind, failed};

/// Whether `log` may be opened as the log of this replica in this kind of store; says whether one was begun.
///
/// # Errors
/// Another replica has begun it, or in another kind of store; or the file cannot be read.
pub fn check(log: &Path, id: ReplicaId, kind: StoreKind) -> Result<bool, StoreError> {
    let text = match fs::read_to_string(file_of(log)) {
        Ok(text) => text,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(false),
        Err(source) => return Err(failed("read what is beside the log", log, source)),
    };
    if text == line(id, kind) {
        return Ok(true);
    }
    let (found, own) = (text.trim_end(), line(id, kind));
    let same_replica = found.starts_with(&format!("replica {id} in "));
    let way = if same_replica { "start it with that --store" } else { "give each replica its own disk" };
    Err(failed(
        "open the log",
        log,
        format!("it was begun as {found:?}, and this is {:?}; {way}", own.trim_end()),
    ))
}

/// Whether any log was begun there.
pub fn is_begun(log: &Path) -> bool {
    file_of(log).exists()
}

/// The log that was begun is empty now.
pub fn lost(log: &Path, id: ReplicaId) -> StoreError {
    let what = format!("replica {id} has used it before, and it is empty now; it may have voted");
    StoreError::Damaged { path: log.display().to_string(), what }
}

/// Notes that the log is begun; on the disk when it returns.
///
/// # Errors
/// The file cannot be written or synced.
pub fn note(log: &Path, id: ReplicaId, kind: StoreKind) -> Result<(), StoreError> {
    let path = file_of(log);
    let fresh = path.with_extension("begun.new");
    let written = File::create(&fresh).and_then(|mut file| {
        file.write_all(line(id, kind).as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        path.parent().map_or(Ok(()), |folder| File::open(folder)?.sync_all())
    });
    written.map_err(|source| failed("note that the log is begun", log, source))
}

fn file_of(log: &Path) -> PathBuf {
    log.with_extension("begun")
}

fn line(id: ReplicaId, kind: StoreKind) -> String {
    format!("replica {id} in {}\n", kind.as_str())
}
