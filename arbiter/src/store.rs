//! The log on disk: sled behind [`LogStore`], with a sync of our own.
//!
//! sled 0.34's `flush` only starts the write-back: a simulated power cut at ten commits a second lost acknowledged
//! writes in most runs. So every write is one atomic batch in one tree, flushed, and then sled's file itself is
//! synced. Values stay small, since sled keeps large ones in files beside it that this does not sync; a snapshot is
//! cut into pieces.
//!
//! Keys: `h` hard state; `b` base (index, term); `m` generation of the snapshot, its pieces and its hash; `s` +
//! generation + piece; `e` + index, big-endian, an entry.

use std::fs::File;
use std::path::{Path, PathBuf};

use coroner_arbiter_replica::store::{Base, Batch, Loaded, LogStore, StoreError};
use protobuf::Message as _;
use raft::prelude::{Entry, HardState, Snapshot};
use sha2::{Digest, Sha256};

/// Largest value; sled moves those above a quarter segment (128 KiB) elsewhere.
const VALUE_BYTES_MAX: usize = 100 * 1024;
/// A snapshot's piece.
const PIECE_BYTES: usize = 64 * 1024;
/// Cache of sled: the log is read once, at start.
const CACHE_BYTES: u64 = 4 * 1024 * 1024;

const HARD_STATE: &[u8] = b"h";
const BASE: &[u8] = b"b";
const SNAPSHOT: &[u8] = b"m";

/// sled with a real sync.
pub struct SledStore {
    path: PathBuf,
    db: sled::Db,
    file: File,
    generation: u64,
}

// === impl SledStore ===

impl SledStore {
    /// Opens or makes the store in the folder `path`.
    ///
    /// # Errors
    /// The folder cannot be made, opened or synced, or sled finds it damaged.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let io = |what, source: std::io::Error| failed(what, path, source);
        std::fs::create_dir_all(path).map_err(|e| io("make the folder", e))?;
        let db = sled::Config::new()
            .path(path)
            .cache_capacity(CACHE_BYTES)
            // Every write is synced by us; the background flusher would only add stalls.
            .flush_every_ms(None)
            .open()
            .map_err(|e| failed("open the log", path, e))?;
        let file = File::open(path.join("db")).map_err(|e| io("open the log's file", e))?;
        file.sync_all().map_err(|e| io("sync the log's file", e))?;
        // The folder's own entry, and that of the folder around it, must outlive a power cut too.
        for folder in [Some(path), path.parent()].into_iter().flatten() {
            File::open(folder).and_then(|f| f.sync_all()).map_err(|e| io("sync the folder", e))?;
        }
        Ok(Self { path: path.to_owned(), db, file, generation: 0 })
    }

    fn damaged(&self, what: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: self.path.display().to_string(), what: what.into() }
    }

    fn get(&self, key: &[u8]) -> Result<Option<sled::IVec>, StoreError> {
        self.db.get(key).map_err(|e| failed("read the log", &self.path, e))
    }

    fn commit(&self, batch: sled::Batch) -> Result<(), StoreError> {
        self.db.apply_batch(batch).map_err(|e| failed("write the log", &self.path, e))?;
        self.db.flush().map_err(|e| failed("flush the log", &self.path, e))?;
        self.file.sync_all().map_err(|e| failed("sync the log", &self.path, e))
    }

    /// Writes the pieces of a snapshot under a new generation; nothing refers to them yet.
    fn write_pieces(&mut self, snapshot: &Snapshot) -> Result<Vec<u8>, StoreError> {
        let bytes = snapshot.write_to_bytes().map_err(|e| failed("encode a snapshot", &self.path, e))?;
        self.generation += 1;
        let mut count = 0_u64;
        for piece in bytes.chunks(PIECE_BYTES) {
            let key = piece_key(self.generation, count);
            self.db.insert(key, piece).map_err(|e| failed("write a snapshot", &self.path, e))?;
            count += 1;
        }
        let mut about = Vec::with_capacity(48);
        about.extend_from_slice(&self.generation.to_be_bytes());
        about.extend_from_slice(&count.to_be_bytes());
        about.extend_from_slice(&Sha256::digest(&bytes));
        Ok(about)
    }

    fn read_snapshot(&mut self) -> Result<Snapshot, StoreError> {
        let Some(about) = self.get(SNAPSHOT)? else { return Ok(Snapshot::default()) };
        let (Some(generation), Some(count), Some(hash)) =
            (number(&about, 0), number(&about, 8), about.get(16..48))
        else {
            return Err(self.damaged("the snapshot's record is cut short"));
        };
        self.generation = generation;
        let mut bytes = Vec::new();
        for piece in 0..count {
            let part = self.get(&piece_key(generation, piece))?;
            bytes.extend_from_slice(
                &part.ok_or_else(|| self.damaged(format!("piece {piece} of the snapshot is missing")))?,
            );
        }
        if Sha256::digest(&bytes).as_slice() != hash {
            return Err(self.damaged("the snapshot's hash differs"));
        }
        Snapshot::parse_from_bytes(&bytes)
            .map_err(|e| self.damaged(format!("the snapshot cannot be decoded: {e}")))
    }

    fn read_entries(&self, base: Base) -> Result<Vec<Entry>, StoreError> {
        let mut entries = Vec::new();
        for (next, item) in
            (base.index + 1..).zip(self.db.range(entry_key(base.index + 1)..entry_key(u64::MAX)))
        {
            let (_, value) = item.map_err(|e| failed("read the log", &self.path, e))?;
            let entry =
                Entry::parse_from_bytes(&value).map_err(|e| self.damaged(format!("entry {next}: {e}")))?;
            if entry.index != next {
                return Err(self.damaged(format!("entry {next} is missing, {} follows", entry.index)));
            }
            entries.push(entry);
        }
        Ok(entries)
    }

    /// Removes entries with keys in `[from, to)` within the batch.
    fn remove_entries(&self, batch: &mut sled::Batch, from: u64, to: u64) -> Result<(), StoreError> {
        for key in self.db.range(entry_key(from)..entry_key(to)).keys() {
            batch.remove(key.map_err(|e| failed("read the log", &self.path, e))?);
        }
        Ok(())
    }

    /// Points at a new snapshot and drops the pieces of older ones.
    fn point_at(&self, batch: &mut sled::Batch, about: Vec<u8>, base: Base) -> Result<(), StoreError> {
        batch.insert(SNAPSHOT, about);
        batch.insert(BASE, [base.index.to_be_bytes(), base.term.to_be_bytes()].concat());
        for key in self.db.range(piece_key(0, 0)..piece_key(self.generation, 0)).keys() {
            batch.remove(key.map_err(|e| failed("read the log", &self.path, e))?);
        }
        Ok(())
    }
}

impl LogStore for SledStore {
    fn load(&mut self) -> Result<Option<Loaded>, StoreError> {
        let Some(hard) = self.get(HARD_STATE)? else { return Ok(None) };
        let hard_state =
            HardState::parse_from_bytes(&hard).map_err(|e| self.damaged(format!("the hard state: {e}")))?;
        let snapshot = self.read_snapshot()?;
        let base = match self.get(BASE)? {
            None => Base::default(),
            Some(bytes) => match (number(&bytes, 0), number(&bytes, 8)) {
                (Some(index), Some(term)) => Base { index, term },
                _ => return Err(self.damaged("the base is cut short")),
            },
        };
        let entries = self.read_entries(base)?;
        Ok(Some(Loaded { hard_state, snapshot, base, entries }))
    }

    fn write(&mut self, write: &Batch<'_>) -> Result<(), StoreError> {
        let mut batch = sled::Batch::default();
        if let Some(snapshot) = write.received {
            let about = self.write_pieces(snapshot)?;
            let meta = snapshot.get_metadata();
            self.remove_entries(&mut batch, 0, u64::MAX)?;
            self.point_at(&mut batch, about, Base { index: meta.index, term: meta.term })?;
        }
        if let Some(first) = write.entries.first() {
            if write.received.is_none() {
                self.remove_entries(&mut batch, first.index, u64::MAX)?;
            }
            for entry in write.entries {
                let value = entry.write_to_bytes().map_err(|e| failed("encode an entry", &self.path, e))?;
                if value.len() > VALUE_BYTES_MAX {
                    return Err(StoreError::TooLarge { bytes: value.len(), max: VALUE_BYTES_MAX });
                }
                batch.insert(entry_key(entry.index).as_slice(), value);
            }
        }
        if let Some((snapshot, base)) = write.made {
            let about = self.write_pieces(snapshot)?;
            self.remove_entries(&mut batch, 0, base.index + 1)?;
            self.point_at(&mut batch, about, base)?;
        }
        if let Some(hard_state) = write.hard_state {
            let value =
                hard_state.write_to_bytes().map_err(|e| failed("encode the hard state", &self.path, e))?;
            batch.insert(HARD_STATE, value);
        }
        self.commit(batch)
    }
}

// === helpers ===

fn failed(
    what: &'static str,
    path: &Path,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::Io { what, path: path.display().to_string(), source: source.into() }
}

fn entry_key(index: u64) -> Vec<u8> {
    [&b"e"[..], &index.to_be_bytes()].concat()
}

fn piece_key(generation: u64, piece: u64) -> Vec<u8> {
    [&b"s"[..], &generation.to_be_bytes(), &piece.to_be_bytes()].concat()
}

/// Eight big-endian bytes at `at`.
fn number(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_be_bytes)
}
