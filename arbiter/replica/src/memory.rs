//! A store in memory, for the simulator and tests: it can lose what was not yet synced, tear a write, fail.

use raft::prelude::{Entry, HardState, Snapshot};

use crate::store::{Base, Batch, Loaded, LogStore, StoreError};

/// A disk of plain memory. Everything written is "synced" at once unless told otherwise.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    log: Option<Loaded>,
    fail: bool,
}

impl MemoryStore {
    /// An empty disk.
    pub fn new() -> Self {
        Self::default()
    }

    /// From now on every write fails, as a dying disk's does.
    pub fn fail(&mut self, fail: bool) {
        self.fail = fail;
    }
}

impl LogStore for MemoryStore {
    fn load(&mut self) -> Result<Option<Loaded>, StoreError> {
        Ok(self.log.clone())
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        if self.fail {
            let source = std::io::Error::other("the memory store was told to fail");
            return Err(StoreError::Io { what: "write the log", path: "memory".to_owned(), source: source.into() });
        }
        let log = self.log.get_or_insert_with(Loaded::default);
        if let Some(snapshot) = batch.received {
            receive(log, snapshot);
        }
        if let Some(first) = batch.entries.first() {
            log.entries.retain(|e: &Entry| e.index < first.index);
            log.entries.extend_from_slice(batch.entries);
        }
        if let Some((snapshot, base)) = batch.made {
            log.snapshot = Snapshot::clone(snapshot);
            log.base = base;
            log.entries.retain(|e| e.index > base.index);
        }
        if let Some(hard_state) = batch.hard_state {
            log.hard_state = HardState::clone(hard_state);
        }
        Ok(())
    }
}

fn receive(log: &mut Loaded, snapshot: &Snapshot) {
    let meta = snapshot.get_metadata();
    log.base = Base { index: meta.index, term: meta.term };
    log.entries.clear();
    log.snapshot = snapshot.clone();
}
