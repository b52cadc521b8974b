//! The log on disk: [`LogStore`] over a table of small values, which sled or redb keeps.
//!
//! ```text
//!   Batch --> keys and values, each with a seal --> Table::commit: all or nothing, and on the disk
//!                                                        |
//!                                                  tide: how many writes were acknowledged
//! ```
//!
//! Keys: `h` hard state; `b` base (index, term); `m` generation of the snapshot, its pieces and its hash; `s` +
//! generation + piece; `e` + index, big-endian, an entry; `q` how many writes there were, and the last entry. A value is followed by the
//! first eight bytes of SHA-256 over its key and itself: a table keeps its own checksums or not, and rot that still
//! decodes would be another vote. Values stay small (see [`VALUE_BYTES_MAX`]); a snapshot is cut into pieces.
//!
//! Rot near the end of a table's own log looks to it like a write that a loss of power has torn, and it drops what
//! follows without a word. So the number of acknowledged writes is also kept in a file of its own ([`Tide`]).

use std::fs::File;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use coroner_arbiter_replica::store::{Base, Batch, Loaded, LogStore, StoreError, VALUE_BYTES_MAX};
use protobuf::Message as _;
use raft::prelude::{Entry, HardState, Snapshot};
use sha2::{Digest, Sha256};

pub use crate::store_redb::RedbStore;
pub use crate::store_sled::SledStore;
use crate::store_tide::Tide;

/// A snapshot's piece.
const PIECE_BYTES: usize = 64 * 1024;
/// What follows each value.
const SEAL_BYTES: usize = 8;

const HARD_STATE: &[u8] = b"h";
const BASE: &[u8] = b"b";
const SNAPSHOT: &[u8] = b"m";
const COUNT: &[u8] = b"q";

/// What keeps the log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum StoreKind {
    /// sled 0.34 with a sync of our own.
    #[default]
    Sled,
    /// redb.
    Redb,
}

/// An ordered table of small values. One contract suite runs on every implementation.
pub trait Table: Send {
    /// The value of a key.
    ///
    /// # Errors
    /// Unreadable.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError>;

    /// All keys in `[from, to)` with their values, in order.
    ///
    /// # Errors
    /// Unreadable.
    fn range(&self, from: &[u8], to: &[u8]) -> Result<Vec<Row>, StoreError>;

    /// Makes these changes in order, all or none, and returns once they are on the disk.
    ///
    /// # Errors
    /// The disk failed; nothing is known about what it holds now.
    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError>;
}

/// A key and its value.
pub type Row = (Vec<u8>, Vec<u8>);

/// A change of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// This key has this value.
    Put(Vec<u8>, Vec<u8>),
    /// This key has none.
    Remove(Vec<u8>),
}

/// A log in a table.
pub struct DiskLog<T> {
    path: PathBuf,
    table: T,
    tide: Tide,
    generation: u64,
    count: u64,
    last: u64,
}

/// Opens or makes a log in the folder `path`.
///
/// # Errors
/// See [`DiskLog::over`].
pub fn open(kind: StoreKind, path: &Path) -> Result<Box<dyn LogStore>, StoreError> {
    Ok(match kind {
        StoreKind::Sled => Box::new(SledStore::open(path)?),
        StoreKind::Redb => Box::new(RedbStore::open(path)?),
    })
}

// === impl StoreKind ===

impl StoreKind {
    /// As `--store` spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Sled => "sled",
            Self::Redb => "redb",
        }
    }
}

// === impl DiskLog ===

impl<T: Table> DiskLog<T> {
    /// A log over the table that `open` opens in the folder `path`.
    ///
    /// # Errors
    /// The folder cannot be made or synced, the table cannot be opened, is damaged, or holds less than was acknowledged.
    pub fn over(path: &Path, open: impl FnOnce() -> Result<T, StoreError>) -> Result<Self, StoreError> {
        std::fs::create_dir_all(path).map_err(|e| failed("make the folder", path, e))?;
        let table = unpanicked(path, open)?;
        let tide = Tide::open(path)?;
        // The folder's own entry, and that of the folder around it, must outlive a power cut too.
        for folder in [Some(path), path.parent()].into_iter().flatten() {
            let synced = File::open(folder).and_then(|f| f.sync_all());
            synced.map_err(|e| failed("sync the folder", path, e))?;
        }
        let mut log = Self { path: path.to_owned(), table, tide, generation: 0, count: 0, last: 0 };
        let counted = log.get(COUNT)?.map_or(Some((0, 0)), |v| Some((number(&v, 0)?, number(&v, 8)?)));
        (log.count, log.last) = counted.ok_or_else(|| log.damaged("its count is cut short"))?;
        if log.count < log.tide.acknowledged() {
            let (found, said) = (log.count, log.tide.acknowledged());
            return Err(log.damaged(format!("it ends with write {found}, and write {said} was acknowledged")));
        }
        let about = log.get(SNAPSHOT)?;
        log.generation = about.and_then(|about| number(&about, 0)).unwrap_or(0);
        Ok(log)
    }

    fn damaged(&self, what: impl Into<String>) -> StoreError {
        StoreError::Damaged { path: self.path.display().to_string(), what: what.into() }
    }

    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let sealed = unpanicked(&self.path, || self.table.get(key))?;
        sealed.map(|value| self.unsealed(key, value)).transpose()
    }

    fn unsealed(&self, key: &[u8], mut value: Vec<u8>) -> Result<Vec<u8>, StoreError> {
        let end = value.len().saturating_sub(SEAL_BYTES);
        let seal = value.split_off(end);
        if seal != seal_of(key, &value) {
            return Err(self.damaged(format!("the value of {} does not match its seal", name_of(key))));
        }
        Ok(value)
    }

    fn read_snapshot(&self) -> Result<Snapshot, StoreError> {
        let Some(about) = self.get(SNAPSHOT)? else { return Ok(Snapshot::default()) };
        let (Some(generation), Some(count), Some(hash)) =
            (number(&about, 0), number(&about, 8), about.get(16..48))
        else {
            return Err(self.damaged("the snapshot's record is cut short"));
        };
        let mut bytes = Vec::new();
        for piece in 0..count {
            let part = self.get(&piece_key(generation, piece))?;
            let part =
                part.ok_or_else(|| self.damaged(format!("piece {piece} of the snapshot is missing")))?;
            bytes.extend_from_slice(&part);
        }
        if Sha256::digest(&bytes).as_slice() != hash {
            return Err(self.damaged("the snapshot's hash differs"));
        }
        Snapshot::parse_from_bytes(&bytes)
            .map_err(|e| self.damaged(format!("the snapshot cannot be decoded: {e}")))
    }

    fn read_entries(&self) -> Result<Vec<Entry>, StoreError> {
        let all = unpanicked(&self.path, || self.table.range(&entry_key(0), &entry_key(u64::MAX)))?;
        let mut entries = Vec::with_capacity(all.len());
        for (key, value) in all {
            let value = self.unsealed(&key, value)?;
            let entry = Entry::parse_from_bytes(&value);
            entries.push(entry.map_err(|e| self.damaged(format!("{}: {e}", name_of(&key))))?);
        }
        Ok(entries)
    }

    fn removals(&self, from: &[u8], to: &[u8]) -> Result<impl Iterator<Item = Change> + use<T>, StoreError> {
        Ok(self.table.range(from, to)?.into_iter().map(|(key, _)| Change::Remove(key)))
    }

    /// The pieces of a snapshot under a new generation, what points at them, and the end of older ones.
    fn put_snapshot(
        &mut self,
        changes: &mut Vec<Change>,
        of: &Snapshot,
        base: Base,
    ) -> Result<(), StoreError> {
        let bytes = of.write_to_bytes().map_err(|e| failed("encode a snapshot", &self.path, e))?;
        changes.extend(self.removals(&piece_key(0, 0), &piece_key(u64::MAX, u64::MAX))?);
        self.generation += 1;
        let mut pieces = 0_u64;
        for piece in bytes.chunks(PIECE_BYTES) {
            changes.push(put(piece_key(self.generation, pieces), piece.to_vec()));
            pieces += 1;
        }
        let hash = Sha256::digest(&bytes);
        let about = [&self.generation.to_be_bytes()[..], &pieces.to_be_bytes(), &hash].concat();
        changes.push(put(SNAPSHOT.to_vec(), about));
        changes.push(put(BASE.to_vec(), [base.index.to_be_bytes(), base.term.to_be_bytes()].concat()));
        Ok(())
    }

    /// What this batch changes, and the last entry then.
    fn changes(&mut self, batch: &Batch<'_>) -> Result<(Vec<Change>, u64), StoreError> {
        let mut changes = Vec::new();
        if let Some(snapshot) = batch.received {
            let meta = snapshot.get_metadata();
            changes.extend(self.removals(&entry_key(0), &entry_key(u64::MAX))?);
            self.put_snapshot(&mut changes, snapshot, Base { index: meta.index, term: meta.term })?;
        }
        if let Some(first) = batch.entries.first() {
            changes.extend(self.removals(&entry_key(first.index), &entry_key(u64::MAX))?);
            for entry in batch.entries {
                let value = entry.write_to_bytes().map_err(|e| failed("encode an entry", &self.path, e))?;
                changes.push(put(entry_key(entry.index), value));
            }
        }
        if let Some((snapshot, base)) = batch.made {
            let gone = entry_key(base.index + 1);
            changes.extend(self.removals(&entry_key(0), &gone)?);
            // Also what this batch itself has put there.
            changes.retain(|c| !matches!(c, Change::Put(key, _) if key.starts_with(b"e") && *key < gone));
            self.put_snapshot(&mut changes, snapshot, base)?;
        }
        if let Some(hard_state) = batch.hard_state {
            let value = hard_state.write_to_bytes();
            let value = value.map_err(|e| failed("encode the hard state", &self.path, e))?;
            changes.push(put(HARD_STATE.to_vec(), value));
        }
        let received = batch.received.map(|snapshot| snapshot.get_metadata().index);
        let last = batch.entries.last().map(|e| e.index).or(received).unwrap_or(self.last);
        changes.push(put(COUNT.to_vec(), [(self.count + 1).to_be_bytes(), last.to_be_bytes()].concat()));
        Ok((changes, last))
    }
}

impl<T: Table> LogStore for DiskLog<T> {
    fn load(&mut self) -> Result<Option<Loaded>, StoreError> {
        if self.count == 0 {
            // Read as empty it would be a replica that may vote twice.
            let none = unpanicked(&self.path, || self.table.range(&[], &[u8::MAX]))?.is_empty();
            return if none {
                Ok(None)
            } else {
                Err(self.damaged("it holds values, and no count of its writes"))
            };
        }
        let hard = self.get(HARD_STATE)?.unwrap_or_default();
        let hard_state = HardState::parse_from_bytes(&hard)
            .map_err(|e| self.damaged(format!("the hard state cannot be decoded: {e}")))?;
        let base = match self.get(BASE)? {
            None => Base::default(),
            Some(bytes) => match (number(&bytes, 0), number(&bytes, 8)) {
                (Some(index), Some(term)) => Base { index, term },
                _ => return Err(self.damaged("the base is cut short")),
            },
        };
        let snapshot = self.read_snapshot()?;
        let log = Loaded { hard_state, snapshot, base, entries: self.read_entries()? };
        let last = log.entries.last().map_or(log.base.index, |e| e.index);
        if last != self.last {
            return Err(
                self.damaged(format!("it ends with entry {last}, and entry {} was written", self.last))
            );
        }
        log.check().map_err(|what| self.damaged(what))?;
        Ok(Some(log))
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        batch.check_sizes()?;
        let (changes, last) = self.changes(batch)?;
        unpanicked(&self.path, || self.table.commit(&changes))?;
        self.count += 1;
        self.last = last;
        self.tide.acknowledge(self.count)
    }
}

// === helpers ===

/// A table that meets rot may panic instead of answering; for us that is an answer.
fn unpanicked<R>(path: &Path, work: impl FnOnce() -> Result<R, StoreError>) -> Result<R, StoreError> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let what = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text");
        Err(StoreError::Damaged {
            path: path.display().to_string(),
            what: format!("it cannot be read: {what}"),
        })
    })
}

/// An error of the disk.
pub fn failed(
    what: &'static str,
    path: &Path,
    source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
) -> StoreError {
    StoreError::Io { what, path: path.display().to_string(), source: source.into() }
}

fn put(key: Vec<u8>, mut value: Vec<u8>) -> Change {
    debug_assert!(value.len() <= VALUE_BYTES_MAX, "a value of {} bytes", value.len());
    let seal = seal_of(&key, &value);
    value.extend_from_slice(&seal);
    Change::Put(key, value)
}

fn seal_of(key: &[u8], value: &[u8]) -> [u8; SEAL_BYTES] {
    let mut seal = [0; SEAL_BYTES];
    let hash = Sha256::new().chain_update(key).chain_update(value).finalize();
    seal.iter_mut().zip(hash).for_each(|(to, from)| *to = from);
    seal
}

/// A key as a person would call it.
fn name_of(key: &[u8]) -> String {
    match (key.first(), number(key, 1)) {
        (Some(b'e'), Some(index)) => format!("entry {index}"),
        (Some(b's'), Some(_)) => "a piece of the snapshot".to_owned(),
        _ => format!("{:?}", String::from_utf8_lossy(key)),
    }
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
