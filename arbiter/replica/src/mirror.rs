//! The log in memory, as raft-rs reads it. It is changed only after the disk has the change.

use raft::prelude::{ConfState, Entry, HardState, Snapshot};
use raft::storage::GetEntriesContext;
use raft::{Error, RaftState, Storage, StorageError};

use crate::store::{Base, Loaded};

/// The kept part of the log, the newest snapshot, and the hard state.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mirror {
    log: Loaded,
}

impl Mirror {
    pub(crate) fn new(log: Loaded) -> Self {
        Self { log }
    }

    pub(crate) fn hard_state(&self) -> &HardState {
        &self.log.hard_state
    }

    pub(crate) fn conf_state(&self) -> &ConfState {
        self.log.snapshot.get_metadata().get_conf_state()
    }

    pub(crate) fn set_hard_state(&mut self, hard_state: HardState) {
        self.log.hard_state = hard_state;
    }

    pub(crate) fn set_commit(&mut self, commit: u64) {
        self.log.hard_state.commit = commit;
    }

    /// Replaces everything from the first new entry's index on.
    pub(crate) fn append(&mut self, entries: Vec<Entry>) {
        if let Some(first) = entries.first() {
            let index = first.index;
            self.log.entries.retain(|e| e.index < index);
            self.log.entries.extend(entries);
        }
    }

    /// A snapshot from the leader replaces the log.
    pub(crate) fn receive(&mut self, snapshot: Snapshot) {
        let meta = snapshot.get_metadata();
        self.log.base = Base { index: meta.index, term: meta.term };
        self.log.hard_state.commit = self.log.hard_state.commit.max(meta.index);
        self.log.hard_state.term = self.log.hard_state.term.max(meta.term);
        self.log.entries.clear();
        self.log.snapshot = snapshot;
    }

    /// A snapshot of our own replaces the older one and the entries up to `base`.
    pub(crate) fn compact(&mut self, snapshot: Snapshot, base: Base) {
        self.log.entries.retain(|e| e.index > base.index);
        self.log.base = base;
        self.log.snapshot = snapshot;
    }

    pub(crate) fn base(&self) -> Base {
        self.log.base
    }

    pub(crate) fn snapshot_index(&self) -> u64 {
        self.log.snapshot.get_metadata().index
    }

    fn last(&self) -> u64 {
        self.log.entries.last().map_or(self.log.base.index, |e| e.index)
    }

    fn at(&self, index: u64) -> Option<usize> {
        let offset = index.checked_sub(self.log.base.index + 1)?;
        usize::try_from(offset).ok().filter(|at| *at < self.log.entries.len())
    }
}

impl Storage for Mirror {
    fn initial_state(&self) -> raft::Result<RaftState> {
        Ok(RaftState::new(self.log.hard_state.clone(), self.conf_state().clone()))
    }

    fn entries(
        &self,
        low: u64,
        high: u64,
        max_size: impl Into<Option<u64>>,
        _: GetEntriesContext,
    ) -> raft::Result<Vec<Entry>> {
        if low <= self.log.base.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        let (Some(from), true) = (self.at(low), high <= self.last() + 1 && high > low) else {
            return Err(Error::Store(StorageError::Unavailable));
        };
        let count = usize::try_from(high - low).unwrap_or(usize::MAX);
        let mut wanted: Vec<Entry> = self.log.entries.iter().skip(from).take(count).cloned().collect();
        raft::util::limit_size(&mut wanted, max_size.into());
        Ok(wanted)
    }

    fn term(&self, index: u64) -> raft::Result<u64> {
        let meta = self.log.snapshot.get_metadata();
        if index == self.log.base.index {
            return Ok(self.log.base.term);
        }
        if index == meta.index && index > 0 {
            return Ok(meta.term);
        }
        if index < self.log.base.index {
            return Err(Error::Store(StorageError::Compacted));
        }
        let entry = self.at(index).and_then(|at| self.log.entries.get(at));
        entry.map(|e| e.term).ok_or(Error::Store(StorageError::Unavailable))
    }

    fn first_index(&self) -> raft::Result<u64> {
        Ok(self.log.base.index + 1)
    }

    fn last_index(&self) -> raft::Result<u64> {
        Ok(self.last())
    }

    fn snapshot(&self, request_index: u64, _to: u64) -> raft::Result<Snapshot> {
        if self.snapshot_index() < request_index {
            // A newer one will be made soon; raft asks again.
            return Err(Error::Store(StorageError::SnapshotTemporarilyUnavailable));
        }
        Ok(self.log.snapshot.clone())
    }
}
