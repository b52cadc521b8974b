//! A store that can be closed and opened again, and things to write to it.

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use coroner_arbiter::store::{self, StoreKind};
use coroner_arbiter_replica::store::Base;
use coroner_arbiter_replica::{Batch, Loaded, LogStore, MemoryStore, PowerCut, StoreError};
use raft::prelude::{ConfState, Entry, HardState, Snapshot};
use tempfile::TempDir;

/// A store, and where it is.
pub(crate) struct Bench {
    place: Place,
    log: Option<Box<dyn LogStore>>,
}

enum Place {
    Memory(Shared),
    Folder(StoreKind, TempDir),
}

/// A memory store that outlives whoever uses it.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<MemoryStore>>);

impl LogStore for Shared {
    fn load(&mut self) -> Result<Option<Loaded>, StoreError> {
        self.0.lock().unwrap().load()
    }

    fn write(&mut self, batch: &Batch<'_>) -> Result<(), StoreError> {
        self.0.lock().unwrap().write(batch)
    }
}

// === impl Bench ===

impl Bench {
    pub(crate) fn memory() -> Self {
        let mut bench = Self { place: Place::Memory(Shared::default()), log: None };
        bench.reopen();
        bench
    }

    pub(crate) fn folder(kind: StoreKind) -> Self {
        let mut bench = Self { place: Place::Folder(kind, TempDir::new().unwrap()), log: None };
        bench.reopen();
        bench
    }

    /// The folder of the log; none for memory.
    pub(crate) fn path(&self) -> Option<PathBuf> {
        match &self.place {
            Place::Memory(_) => None,
            Place::Folder(_, folder) => Some(folder.path().join("log")),
        }
    }

    pub(crate) fn close(&mut self) {
        self.log = None;
    }

    pub(crate) fn try_reopen(&mut self) -> Result<(), StoreError> {
        self.close();
        self.log = Some(match &self.place {
            Place::Memory(shared) => {
                shared.0.lock().unwrap().power_cut(PowerCut::Lost);
                Box::new(shared.clone())
            }
            Place::Folder(kind, folder) => store::open(*kind, &folder.path().join("log"))?,
        });
        Ok(())
    }

    pub(crate) fn reopen(&mut self) {
        self.try_reopen().unwrap();
    }

    pub(crate) fn log(&mut self) -> &mut Box<dyn LogStore> {
        self.log.as_mut().unwrap()
    }

    /// Gives the store away; the place stays.
    pub(crate) fn take(&mut self) -> Box<dyn LogStore> {
        self.log.take().unwrap()
    }

    pub(crate) fn write(&mut self, batch: &Batch<'_>) {
        self.log().write(batch).unwrap();
    }

    pub(crate) fn load(&mut self) -> Option<Loaded> {
        self.log().load().unwrap()
    }
}

// === things to write ===

pub(crate) fn hard(term: u64, vote: u64, commit: u64) -> HardState {
    HardState { term, vote, commit, ..HardState::default() }
}

pub(crate) fn entry(index: u64, term: u64, bytes: usize) -> Entry {
    let mut entry = Entry { index, term, ..Entry::default() };
    let first = u8::try_from(index % 251).unwrap();
    entry.data =
        (0..bytes).map(|n| first.wrapping_add(u8::try_from(n % 7).unwrap())).collect::<Vec<_>>().into();
    entry
}

pub(crate) fn entries(from: u64, to: u64, term: u64) -> Vec<Entry> {
    (from..=to).map(|index| entry(index, term, 100)).collect()
}

/// A snapshot of the entry `index`, with so many bytes that no two look alike.
pub(crate) fn snapshot(index: u64, term: u64, bytes: usize) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let meta = snapshot.mut_metadata();
    (meta.index, meta.term) = (index, term);
    meta.set_conf_state(ConfState { voters: vec![1, 2, 3], ..ConfState::default() });
    let mut seed = index.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let data = (0..bytes).map(|_| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed.to_le_bytes()[0]
    });
    snapshot.data = data.collect::<Vec<_>>().into();
    snapshot
}

/// A log as a replica has it after a while: a snapshot, entries behind and after it, a vote.
pub(crate) fn a_life(bench: &mut Bench) -> Loaded {
    bench.write(&Batch {
        hard_state: Some(&hard(1, 0, 1)),
        received: Some(&snapshot(1, 1, 300)),
        ..Batch::default()
    });
    for index in 2..60 {
        let one = [entry(index, 1, 150)];
        bench.write(&Batch { hard_state: Some(&hard(1, 1, index - 1)), entries: &one, ..Batch::default() });
    }
    let made = snapshot(50, 1, 200_000);
    let base = Base { index: 40, term: 1 };
    bench.write(&Batch { hard_state: Some(&hard(1, 1, 58)), made: Some((&made, base)), ..Batch::default() });
    let more = entries(60, 70, 2);
    bench.write(&Batch { hard_state: Some(&hard(2, 3, 59)), entries: &more, ..Batch::default() });
    bench.load().unwrap()
}
