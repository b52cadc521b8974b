//! A table in sled 0.34, with what it takes to make it durable.
//!
//! sled's `flush` only starts the write-back (`sync_file_range`): a simulated power cut at ten commits a second lost
//! acknowledged writes in most runs. So after each flush sled's file itself is synced.
//!
//! That reaches one file only. sled writes what is longer than a quarter segment (128 KiB) to a file of its own in
//! `blobs`, which nobody syncs, and what it writes are whole leaves of its tree, of up to about twenty values. After a
//! power cut in which such a file was missing it dropped everything behind the place that points there. So values are
//! cut here into pieces of which twenty stay well below that; a test looks that `blobs` stays empty.
//!
//! Keys in sled: the key and two bytes, the piece. The first piece begins with two bytes, how many there are.

use std::collections::BTreeMap;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use coroner_arbiter_replica::store::StoreError;

use crate::store::{Change, DiskLog, Row, Table, failed};

/// Largest piece.
const PIECE_BYTES: usize = 4_000;
/// Cache of sled: the log is read once, at start.
const CACHE_BYTES: u64 = 4 * 1024 * 1024;

/// How long another handle may still hold the lock.
const LOCK_TRIES: u32 = 40;
const LOCK_PAUSE: Duration = Duration::from_millis(50);

/// A log in sled.
pub type SledStore = DiskLog<SledTable>;

/// sled with a real sync.
pub struct SledTable {
    path: PathBuf,
    db: sled::Db,
    file: File,
}

impl SledStore {
    /// Opens or makes the store in the folder `path`.
    ///
    /// # Errors
    /// See [`DiskLog::over`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        DiskLog::over(path, || SledTable::open(path))
    }
}

// === impl SledTable ===

impl SledTable {
    fn open(path: &Path) -> Result<Self, StoreError> {
        remove_half_made(path)?;
        let config = sled::Config::new()
            .path(path)
            .cache_capacity(CACHE_BYTES)
            // Every write is synced by us; the background flusher would only add stalls.
            .flush_every_ms(None);
        let db = open_unlocked(&config).map_err(|e| failed("open the log", path, e))?;
        let file = File::open(path.join("db")).map_err(|e| failed("open the log's file", path, e))?;
        file.sync_all().map_err(|e| failed("sync the log's file", path, e))?;
        Ok(Self { path: path.to_owned(), db, file })
    }

    fn piece(&self, key: &[u8], piece: u16) -> Result<Option<sled::IVec>, StoreError> {
        self.db.get(piece_key(key, piece)).map_err(|e| failed("read the log", &self.path, e))
    }

    /// How many pieces a key has now.
    fn pieces(&self, key: &[u8]) -> Result<u16, StoreError> {
        self.piece(key, 0)?.map_or(Ok(0), |first| self.count_of(&first))
    }

    fn count_of(&self, first: &[u8]) -> Result<u16, StoreError> {
        let count = first.first_chunk().map(|two| u16::from_be_bytes(*two));
        count
            .filter(|count| *count > 0)
            .ok_or_else(|| self.damaged("a value does not say how many pieces it has"))
    }

    /// Joins the pieces of one value, which are in order.
    fn joined(&self, pieces: &[(u16, sled::IVec)]) -> Result<Vec<u8>, StoreError> {
        let first = pieces.first().filter(|(number, _)| *number == 0);
        let (_, first) = first.ok_or_else(|| self.damaged("the first piece of a value is missing"))?;
        let count = self.count_of(first)?;
        if !pieces.iter().map(|(number, _)| *number).eq(0..count) {
            return Err(self.damaged(format!("{} of {count} pieces of a value are there", pieces.len())));
        }
        let mut value = first.get(2..).unwrap_or_default().to_vec();
        for (_, piece) in pieces.iter().skip(1) {
            value.extend_from_slice(piece);
        }
        Ok(value)
    }

    fn damaged(&self, what: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: self.path.display().to_string(), what: what.into() }
    }

    fn write(&self, batch: sled::Batch) -> Result<(), StoreError> {
        self.db.apply_batch(batch).map_err(|e| failed("write the log", &self.path, e))?;
        self.db.flush().map_err(|e| failed("flush the log", &self.path, e))?;
        self.file.sync_all().map_err(|e| failed("sync the log", &self.path, e))
    }
}

impl Table for SledTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let mut found = Vec::new();
        for number in 0..self.pieces(key)? {
            found.extend(self.piece(key, number)?.map(|piece| (number, piece)));
        }
        if found.is_empty() { Ok(None) } else { self.joined(&found).map(Some) }
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Result<Vec<Row>, StoreError> {
        let mut values: BTreeMap<Vec<u8>, Vec<(u16, sled::IVec)>> = BTreeMap::new();
        for item in self.db.range(from..to) {
            let (key, piece) = item.map_err(|e| failed("read the log", &self.path, e))?;
            let (key, number) = key.split_last_chunk().ok_or_else(|| self.damaged("a key is cut short"))?;
            values.entry(key.to_vec()).or_default().push((u16::from_be_bytes(*number), piece));
        }
        values.into_iter().map(|(key, pieces)| Ok((key, self.joined(&pieces)?))).collect()
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let mut batch = sled::Batch::default();
        for change in changes {
            let (key, value) = match change {
                Change::Put(key, value) => (key, Some(value)),
                Change::Remove(key) => (key, None),
            };
            let mut written = 0_u16;
            for piece in value.map(|v| v.chunks(PIECE_BYTES)).into_iter().flatten() {
                if written > 0 {
                    batch.insert(piece_key(key, written), piece);
                }
                written += 1;
            }
            if let Some(value) = value {
                let first = value.get(..PIECE_BYTES).unwrap_or(value);
                // An empty value has a piece, too.
                written = written.max(1);
                batch.insert(piece_key(key, 0), [&written.to_be_bytes()[..], first].concat());
            }
            for number in written..self.pieces(key)? {
                batch.remove(piece_key(key, number));
            }
        }
        let written = self.write(batch);
        if written.is_err() {
            // sled would flush once more when it is dropped, and wait for a disk that has failed for ever. The process
            // stops; until then its handle is left lying.
            std::mem::forget(self.db.clone());
        }
        written
    }
}

// === helpers ===

fn piece_key(key: &[u8], piece: u16) -> Vec<u8> {
    [key, &piece.to_be_bytes()].concat()
}

/// A handle that was dropped lets go of its lock a moment later, when sled's own threads have ended.
fn open_unlocked(config: &sled::Config) -> sled::Result<sled::Db> {
    for _ in 0..LOCK_TRIES {
        match config.open() {
            Err(sled::Error::Io(e)) if e.to_string().contains("could not acquire lock") => {
                std::thread::sleep(LOCK_PAUSE);
            }
            opened => return opened,
        }
    }
    config.open()
}

/// sled writes its index of the log to `snap.*.generating` and renames it; one that a loss of power left half made
/// keeps it from opening, and it makes another from the log.
fn remove_half_made(path: &Path) -> Result<(), StoreError> {
    let listed = std::fs::read_dir(path).map_err(|e| failed("read the folder", path, e))?;
    for item in listed {
        let item = item.map_err(|e| failed("read the folder", path, e))?;
        let name = item.file_name();
        let name = name.to_string_lossy();
        if name.starts_with("snap.") && name.ends_with(".generating") {
            std::fs::remove_file(item.path()).map_err(|e| failed("remove a half-made file", path, e))?;
        }
    }
    Ok(())
}
