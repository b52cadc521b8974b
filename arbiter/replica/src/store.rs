//! What a disk must do for a replica. One contract suite runs on every implementation.

use protobuf::Message as _;
use raft::prelude::{Entry, HardState, Snapshot};
use thiserror::Error;

/// Largest value that a store keeps in one piece, as it is encoded: an entry with what raft adds to it. sled moves
/// values above a quarter segment (128 KiB) into files of their own, which our sync does not reach.
pub const VALUE_BYTES_MAX: usize = 100 * 1024;

/// What is written in one step. Either all of it is on the disk afterwards, or none.
#[derive(Clone, Debug, Default)]
pub struct Batch<'a> {
    /// Term, vote and commit index.
    pub hard_state: Option<&'a HardState>,
    /// New entries. They replace everything from the index of the first one on.
    pub entries: &'a [Entry],
    /// A snapshot received from the leader: it replaces all entries.
    pub received: Option<&'a Snapshot>,
    /// A snapshot of our own state; entries up to `base` are no longer needed.
    pub made: Option<(&'a Snapshot, Base)>,
}

/// The entry before the first one that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Base {
    /// Its index.
    pub index: u64,
    /// Its term.
    pub term: u64,
}

/// What a disk holds.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Loaded {
    /// Term, vote and commit index.
    pub hard_state: HardState,
    /// The newest snapshot; its metadata hold the members of the group.
    pub snapshot: Snapshot,
    /// The entry before the first of `entries`.
    pub base: Base,
    /// Entries without a gap, from `base.index + 1`.
    pub entries: Vec<Entry>,
}

/// A disk that failed. A replica that meets one stops: what it has said may not be on the disk.
#[derive(Debug, Error)]
pub enum StoreError {
    /// Reading or writing failed.
    #[error("cannot {what} at {path}")]
    Io {
        /// A verb: `write the log`, `sync the log`.
        what: &'static str,
        /// Where.
        path: String,
        /// What the system says.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// What was read cannot be.
    #[error(
        "the log at {path} is damaged: {what}; this replica stops, and the others go on without it. This version cannot make a new member; keep the disk for whoever looks into it"
    )]
    Damaged {
        /// Where.
        path: String,
        /// What is wrong with it.
        what: String,
    },
    /// An entry is larger than the store keeps in one piece.
    #[error("an entry of {bytes} bytes is larger than {max}")]
    TooLarge {
        /// Its size.
        bytes: usize,
        /// The limit.
        max: usize,
    },
}

/// A place for the log that survives a loss of power.
pub trait LogStore: Send {
    /// Everything written so far; `None` on a disk that was never written. What is returned passes [`Loaded::check`].
    ///
    /// # Errors
    /// Unreadable or damaged.
    fn load(&mut self) -> Result<Option<Loaded>, StoreError>;

    /// Writes a batch and returns once it is on the disk: after a loss of power in the next moment it is still there.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`]: nothing was written. Else the disk failed; nothing is known about what it holds now.
    fn write(&mut self, batch: &Batch<'_>) -> Result<(), StoreError>;
}

// === impl LogStore ===

impl LogStore for Box<dyn LogStore> {
    fn load(&mut self) -> Result<Option<Loaded>, StoreError> {
        (**self).load()
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        (**self).write(batch)
    }
}

// === impl Batch ===

impl Batch<'_> {
    /// Whether each entry fits in one piece.
    ///
    /// # Errors
    /// [`StoreError::TooLarge`].
    pub fn check_sizes(&self) -> Result<(), StoreError> {
        for entry in self.entries {
            let bytes = usize::try_from(entry.compute_size()).unwrap_or(usize::MAX);
            if bytes > VALUE_BYTES_MAX {
                return Err(StoreError::TooLarge { bytes, max: VALUE_BYTES_MAX });
            }
        }
        Ok(())
    }
}

// === impl Loaded ===

impl Loaded {
    /// What a disk holds once the batch is on it: what each store must do, in one place.
    pub fn take(&mut self, batch: &Batch<'_>) {
        let Batch { hard_state, entries, received, made } = batch;
        if let Some(snapshot) = received {
            let meta = snapshot.get_metadata();
            self.base = Base { index: meta.index, term: meta.term };
            self.entries.clear();
            self.snapshot = Snapshot::clone(snapshot);
        }
        if let Some(first) = entries.first() {
            self.entries.retain(|e| e.index < first.index);
            self.entries.extend_from_slice(entries);
        }
        if let Some((snapshot, base)) = made {
            self.entries.retain(|e| e.index > base.index);
            self.base = *base;
            self.snapshot = Snapshot::clone(snapshot);
        }
        if let Some(hard_state) = hard_state {
            self.hard_state = HardState::clone(hard_state);
        }
    }

    /// Whether raft can start from this; from anything else it would panic.
    ///
    /// # Errors
    /// What does not fit, for [`StoreError::Damaged`].
    pub fn check(&self) -> Result<(), String> {
        let Self { hard_state, snapshot, base, entries } = self;
        let at = snapshot.get_metadata();
        let mut before = *base;
        for entry in entries {
            if entry.index != before.index + 1 {
                return Err(format!("entry {} is missing, {} follows", before.index + 1, entry.index));
            }
            if entry.term < before.term {
                return Err(format!(
                    "entry {} is of term {}, older than the one before",
                    entry.index, entry.term
                ));
            }
            before = Base { index: entry.index, term: entry.term };
        }
        if at.index < base.index || at.index > before.index {
            let last = before.index;
            return Err(format!(
                "the snapshot of entry {} does not lie within {} to {last}",
                at.index, base.index
            ));
        }
        if hard_state.commit < at.index || hard_state.commit > before.index {
            let (commit, last) = (hard_state.commit, before.index);
            return Err(format!(
                "{commit} entries are committed, which is not within {} to {last}",
                at.index
            ));
        }
        if hard_state.term < before.term {
            return Err(format!("the term is {}, that of the last entry {}", hard_state.term, before.term));
        }
        Ok(())
    }
}
