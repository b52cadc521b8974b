//! How far the log had got, in a file of its own: a table that finds rot may drop what lies behind it, as if it had
//! never been written.
//!
//! The file is written after each write is on the disk, and not synced: it may lag behind the table, never run ahead.
//! So what it says was there, and a table that ends before it has lost something.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use coroner_arbiter_replica::store::StoreError;
use sha2::{Digest, Sha256};

use crate::store::failed;

/// Its file within the folder.
const FILE: &str = "tide";
/// The number and the first eight bytes of its SHA-256, within one sector, so that a loss of power leaves one or the
/// other.
const BYTES: usize = 16;

/// The number of acknowledged writes.
pub(crate) struct Tide {
    path: PathBuf,
    file: File,
    acknowledged: u64,
}

// === impl Tide ===

impl Tide {
    /// Opens or makes the file in `folder`.
    pub(crate) fn open(folder: &Path) -> Result<Self, StoreError> {
        let path = folder.join(FILE);
        let io = |what, source: std::io::Error| failed(what, &path, source);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path);
        let file = file.map_err(|e| io("open the tide", e))?;
        let length = file.metadata().map_err(|e| io("read the tide", e))?.len();
        if length == 0 {
            file.write_all_at(&encode(0), 0)
                .and_then(|()| file.sync_all())
                .map_err(|e| io("make the tide", e))?;
        }
        let mut bytes = [0; BYTES];
        file.read_exact_at(&mut bytes, 0).map_err(|e| io("read the tide", e))?;
        let acknowledged = u64::from_be_bytes(bytes[..8].try_into().unwrap_or_default());
        if bytes != encode(acknowledged) {
            let what = "the number of acknowledged writes beside it does not match its seal".to_owned();
            return Err(StoreError::Damaged { path: folder.display().to_string(), what });
        }
        Ok(Self { path, file, acknowledged })
    }

    /// What was acknowledged when it was opened, or since.
    pub(crate) fn acknowledged(&self) -> u64 {
        self.acknowledged
    }

    /// This write is on the disk.
    pub(crate) fn acknowledge(&mut self, count: u64) -> Result<(), StoreError> {
        self.file.write_all_at(&encode(count), 0).map_err(|e| failed("write the tide", &self.path, e))?;
        self.acknowledged = count;
        Ok(())
    }
}

fn encode(count: u64) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    let number = count.to_be_bytes();
    let hash = Sha256::digest(number);
    bytes.iter_mut().zip(number.into_iter().chain(hash)).for_each(|(to, from)| *to = from);
    bytes
}
