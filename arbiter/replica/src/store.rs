//! What a disk must do for a replica. One contract suite runs on every implementation.

use raft::prelude::{Entry, HardState, Snapshot};
use thiserror::Error;

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
#[derive(Clone, Debug, Default)]
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
    #[error("the log at {path} is damaged: {what}; this replica stops, and another disk or `coroner arbiter replace` is the way on")]
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
    /// Everything written so far; `None` on a disk that was never written.
    ///
    /// # Errors
    /// Unreadable or damaged.
    fn load(&mut self) -> Result<Option<Loaded>, StoreError>;

    /// Writes a batch and returns once it is on the disk: after a loss of power in the next moment it is still there.
    ///
    /// # Errors
    /// The disk failed; nothing is known about what it holds now.
    fn write(&mut self, batch: &Batch<'_>) -> Result<(), StoreError>;
}
