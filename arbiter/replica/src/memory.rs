//! A disk of plain memory, for the simulator and tests: it does as it is told, and draws nothing by chance.
//!
//! ```text
//!   write --> [ cache: batches in order ] --> [ platter ]
//!                        |                         |
//!              lost, kept or torn           what load gives
//!              by power_cut                 after power_cut
//! ```
//!
//! Unless told otherwise a write is on the platter when it returns, as [`LogStore`] demands. [`MemoryStore::lie`]
//! makes a disk that says so and keeps the batch in its cache, which is how the loss of a sync is played.
//! [`MemoryStore::fail`], [`MemoryStore::fill`], [`MemoryStore::fail_reads`], [`MemoryStore::damage`] and
//! [`MemoryStore::stall`] play a dying, full, unreadable, rotten and slow one.
//!
//! Deliberately absent: time. A stall is only noted; whoever owns the clock takes it ([`MemoryStore::take_stall`])
//! and lets that much of it pass before anything that the turn made leaves.

use std::collections::VecDeque;

use coroner_shared::time::Span;
use raft::prelude::{Entry, HardState, Snapshot};

use crate::store::{Base, Batch, Loaded, LogStore, StoreError};

/// What a loss of power leaves of the cache, oldest batch first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PowerCut {
    /// Nothing.
    Lost,
    /// This many whole batches; all of them if there are fewer.
    Kept(usize),
    /// This many whole batches, and of the next one only so many entries, without its hard state: a disk that breaks
    /// the promise that a batch is all there or not at all.
    Torn {
        /// Whole batches.
        whole: usize,
        /// Entries of the next one.
        entries: usize,
    },
}

/// A disk of plain memory.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    platter: Option<Loaded>,
    cache: VecDeque<Cached>,
    writes: u64,
    faults: Faults,
    stalled: Span,
}

#[derive(Clone, Debug, Default)]
struct Faults {
    lies: bool,
    fails: bool,
    full: bool,
    unreadable: bool,
    damaged: Option<String>,
    stall: Span,
}

/// A batch of its own.
#[derive(Clone, Debug)]
struct Cached {
    hard_state: Option<HardState>,
    entries: Vec<Entry>,
    received: Option<Snapshot>,
    made: Option<(Snapshot, Base)>,
}

// === impl MemoryStore ===

impl MemoryStore {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on every write fails, as a dying disk's does; nothing of it is kept.
    pub fn fail(&mut self, fail: bool) {
        self.faults.fails = fail;
    }

    /// From now on every write finds the disk full.
    pub fn fill(&mut self, full: bool) {
        self.faults.full = full;
    }

    /// From now on the disk cannot be read.
    pub fn fail_reads(&mut self, fail: bool) {
        self.faults.unreadable = fail;
    }

    /// What is read is rotten from now on, in the way `what` says.
    pub fn damage(&mut self, what: impl Into<String>) {
        self.faults.damaged = Some(what.into());
    }

    /// From now on a write says that it is on the disk and is only in its cache, until [`Self::sync`] or, at the end
    /// of the lie, with the next write.
    pub fn lie(&mut self, lies: bool) {
        self.faults.lies = lies;
    }

    /// From now on every write takes this long.
    pub fn stall(&mut self, stall: Span) {
        self.faults.stall = stall;
    }

    /// How long the writes since the last question took; the owner of the clock lets that pass.
    pub fn take_stall(&mut self) -> Span {
        std::mem::take(&mut self.stalled)
    }

    /// Brings the cache to the platter.
    pub fn sync(&mut self) {
        self.keep(usize::MAX);
    }

    /// Batches that a loss of power would lose.
    pub fn unsynced(&self) -> usize {
        self.cache.len()
    }

    /// Writes so far that did not fail.
    pub fn writes(&self) -> u64 {
        self.writes
    }

    /// The power goes. What the disk was told to do wrong is over, too: it comes back as a good one.
    pub fn power_cut(&mut self, cut: PowerCut) {
        match cut {
            PowerCut::Lost => {}
            PowerCut::Kept(whole) => self.keep(whole),
            PowerCut::Torn { whole, entries } => {
                self.keep(whole);
                if let Some(mut torn) = self.cache.pop_front() {
                    torn.entries.truncate(entries);
                    torn.hard_state = None;
                    self.platter.get_or_insert_default().take(&torn.borrow());
                }
            }
        }
        self.cache.clear();
        self.faults = Faults::default();
        self.stalled = Span::ZERO;
    }

    /// What a loss of power would leave, for oracles.
    pub fn platter(&self) -> Option<&Loaded> {
        self.platter.as_ref()
    }

    fn keep(&mut self, whole: usize) {
        for _ in 0..whole.min(self.cache.len()) {
            if let Some(batch) = self.cache.pop_front() {
                self.platter.get_or_insert_default().take(&batch.borrow());
            }
        }
    }
}

impl LogStore for MemoryStore {
    fn load(&mut self) -> Result<Option<Loaded>, StoreError> {
        if self.faults.unreadable {
            return Err(failed("read the log", std::io::ErrorKind::Other));
        }
        let mut log = self.platter.clone();
        for batch in &self.cache {
            log.get_or_insert_default().take(&batch.borrow());
        }
        let wrong = log.as_ref().and_then(|log| log.check().err());
        match self.faults.damaged.clone().or(wrong) {
            Some(what) => Err(StoreError::Damaged { path: PATH.to_owned(), what }),
            None => Ok(log),
        }
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        batch.check_sizes()?;
        self.stalled += self.faults.stall;
        if self.faults.fails {
            return Err(failed("write the log", std::io::ErrorKind::Other));
        }
        if self.faults.full {
            return Err(failed("write the log", std::io::ErrorKind::StorageFull));
        }
        self.cache.push_back(Cached::of(batch));
        self.writes += 1;
        if !self.faults.lies {
            self.sync();
        }
        Ok(())
    }
}

// === impl Cached ===

impl Cached {
    fn of(batch: &Batch<'_>) -> Self {
        Self {
            hard_state: batch.hard_state.cloned(),
            entries: batch.entries.to_vec(),
            received: batch.received.cloned(),
            made: batch.made.map(|(snapshot, base)| (snapshot.clone(), base)),
        }
    }

    fn borrow(&self) -> Batch<'_> {
        Batch {
            hard_state: self.hard_state.as_ref(),
            entries: &self.entries,
            received: self.received.as_ref(),
            made: self.made.as_ref().map(|(snapshot, base)| (snapshot, *base)),
        }
    }
}

// === helpers ===

const PATH: &str = "memory";

fn failed(what: &'static str, kind: std::io::ErrorKind) -> StoreError {
    let source = std::io::Error::new(kind, "the memory store was told to");
    StoreError::Io { what, path: PATH.to_owned(), source: source.into() }
}
