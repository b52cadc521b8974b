//! A replica's log and nothing else, written and read on a disk whose power is about to go. The contract suite of
//! the stores starts it, stops it at a random moment, and reads the copy of its disk with it.
//!
//! What the n-th write holds follows from n alone, so that a log can be checked without knowing who wrote it. After
//! each write that has returned, its number goes to stdout.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::{Parser, ValueEnum};
use coroner_arbiter::store::{self, Change, DiskLog, Row, StoreKind, Table};
use coroner_arbiter_replica::store::Base;
use coroner_arbiter_replica::{Batch, Loaded, LogStore, StoreError};
use raft::prelude::{ConfState, Entry, HardState, Snapshot};

/// Writes between two snapshots.
const SNAPSHOT_EVERY: u64 = 64;
/// Entries kept behind a snapshot.
const TRAILING: u64 = 20;

#[derive(Parser)]
enum Args {
    /// Writes until it is killed.
    Write {
        #[command(flatten)]
        log: Where,
        /// Pause between writes; 0 is full speed.
        #[arg(long)]
        pause_ms: u64,
    },
    /// Reads the log and says how many writes it holds.
    Check {
        #[command(flatten)]
        log: Where,
    },
    /// Writes, fills the disk, goes on until a write fails, and makes room again.
    Fill {
        #[command(flatten)]
        log: Where,
    },
}

#[derive(clap::Args)]
struct Where {
    /// In what.
    #[arg(long, value_enum)]
    store: Kind,
    /// In which folder.
    #[arg(long)]
    folder: PathBuf,
}

#[derive(Clone, Copy, ValueEnum)]
enum Kind {
    Sled,
    Redb,
    /// A mutant: sled's flush without a sync of our own.
    SledUnsynced,
    /// A mutant: with a sync, and with values that make sled write files beside the one that is synced.
    SledBlobs,
}

fn main() -> Result<()> {
    match Args::parse() {
        Args::Write { log, pause_ms } => write(&log, Duration::from_millis(pause_ms)),
        Args::Check { log } => check(&log),
        Args::Fill { log } => fill(&log),
    }
}

// === what is asked ===

fn write(place: &Where, pause: Duration) -> Result<()> {
    let mut log = place.open()?;
    let mut done = 0;
    loop {
        done += 1;
        write_one(log.as_mut(), done)?;
        say(&done)?;
        if !pause.is_zero() {
            std::thread::sleep(pause);
        }
    }
}

fn check(place: &Where) -> Result<()> {
    let mut log = place.open()?;
    let done = held(log.load()?.as_ref())?;
    say(&done)?;
    // It can also be written again.
    let next = hard_state(done);
    log.write(&Batch { hard_state: Some(&next), ..Batch::default() })?;
    drop(log);
    let again = held(place.open()?.load()?.as_ref())?;
    ensure!(again == done, "after one more write of the same the log holds {again} writes");
    Ok(())
}

fn fill(place: &Where) -> Result<()> {
    let mut log = place.open()?;
    let mut done = 0;
    while done < 100 {
        done += 1;
        write_one(log.as_mut(), done)?;
    }
    let filler = place.folder.with_extension("filler");
    let mut file = fs::File::create(&filler)?;
    let full =
        (0..100_000).find_map(|_| file.write_all(&[7; 4096]).err()).context("the disk is never full")?;
    // It must be the disk that fails, and not this program.
    ensure!(full.kind() == std::io::ErrorKind::StorageFull, "{full}");
    let failed = loop {
        match write_one(log.as_mut(), done + 1) {
            Ok(()) => done += 1,
            Err(error) => break error,
        }
        ensure!(done < 100_000, "the disk is full, and writes go on");
    };
    drop(log);
    drop(file);
    fs::remove_file(&filler)?;
    say(&done)?;
    say(&format_args!("{failed:#}"))
}

/// stdout is a pipe, and nobody may be at its other end.
fn say(what: &dyn std::fmt::Display) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{what}")?;
    out.flush()?;
    Ok(())
}

// === what is written ===

fn term(n: u64) -> u64 {
    1 + n / 20
}

fn entry(n: u64) -> Entry {
    let mut entry = Entry { index: n, term: term(n), ..Entry::default() };
    entry.data = format!("{n} ").repeat(1 + usize::try_from(n % 60).unwrap_or(0)).into_bytes().into();
    entry
}

fn hard_state(n: u64) -> HardState {
    HardState { term: term(n), vote: 1 + n % 3, commit: n, ..HardState::default() }
}

fn snapshot(n: u64) -> Snapshot {
    let mut snapshot = Snapshot::default();
    let meta = snapshot.mut_metadata();
    (meta.index, meta.term) = (n, term(n));
    meta.set_conf_state(ConfState { voters: vec![1, 2, 3], ..ConfState::default() });
    snapshot.data = format!("state {n} ").repeat(20_000).into_bytes().into();
    snapshot
}

fn write_one(log: &mut dyn LogStore, n: u64) -> Result<(), StoreError> {
    let (entries, hard_state) = ([entry(n)], hard_state(n));
    log.write(&Batch { hard_state: Some(&hard_state), entries: &entries, ..Batch::default() })?;
    if n.is_multiple_of(SNAPSHOT_EVERY) {
        let made = snapshot(n);
        let base = Base { index: n - TRAILING, term: term(n - TRAILING) };
        log.write(&Batch { hard_state: Some(&hard_state), made: Some((&made, base)), ..Batch::default() })?;
    }
    Ok(())
}

/// How many writes this is the log of.
fn held(log: Option<&Loaded>) -> Result<u64> {
    let Some(log) = log else { return Ok(0) };
    let n = log.entries.last().map_or(log.base.index, |e| e.index);
    ensure!(log.hard_state == hard_state(n), "{n} writes, and {:?}", log.hard_state);
    for found in &log.entries {
        ensure!(*found == entry(found.index), "entry {} is another", found.index);
    }
    let at = log.snapshot.get_metadata().index;
    // The snapshot follows its entry in a write of its own.
    let expected = n - n % SNAPSHOT_EVERY;
    ensure!(
        at == expected || (at + SNAPSHOT_EVERY == expected && n == expected),
        "{n} writes, snapshot of {at}"
    );
    ensure!(at == 0 || log.snapshot == snapshot(at), "the snapshot of {at} is another");
    ensure!(log.base.index == at.saturating_sub(TRAILING), "base {}", log.base.index);
    Ok(n)
}

// === where ===

impl Where {
    fn open(&self) -> Result<Box<dyn LogStore>> {
        let folder = &self.folder;
        Ok(match self.store {
            Kind::Sled => store::open(StoreKind::Sled, folder)?,
            Kind::Redb => store::open(StoreKind::Redb, folder)?,
            Kind::SledUnsynced => Box::new(DiskLog::over(folder, || Believed::open(folder, false))?),
            Kind::SledBlobs => Box::new(DiskLog::over(folder, || Believed::open(folder, true))?),
        })
    }
}

/// sled, believed: in what `flush` says, or in that its one file is all there is.
struct Believed {
    db: sled::Db,
    synced: Option<fs::File>,
}

impl Believed {
    fn open(folder: &Path, sync: bool) -> Result<Self, StoreError> {
        // Two tries: a handle that was just dropped lets go of its lock a moment later.
        let config = sled::Config::new().path(folder).flush_every_ms(None);
        let opened = config.open().or_else(|_| {
            std::thread::sleep(Duration::from_secs(1));
            config.open()
        });
        let db = opened.map_err(|e| store::failed("open the log", folder, e))?;
        let file = fs::File::open(folder.join("db")).map_err(|e| store::failed("open the log", folder, e))?;
        Ok(Self { db, synced: sync.then_some(file) })
    }
}

fn read(error: sled::Error) -> StoreError {
    store::failed("read the log", Path::new("sled"), error)
}

impl Table for Believed {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        Ok(self.db.get(key).map_err(read)?.map(|v| v.to_vec()))
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Result<Vec<Row>, StoreError> {
        let found = self.db.range(from..to).map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())));
        found.collect::<Result<_, _>>().map_err(read)
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        let mut batch = sled::Batch::default();
        for change in changes {
            match change {
                Change::Put(key, value) => batch.insert(key.as_slice(), value.as_slice()),
                Change::Remove(key) => batch.remove(key.as_slice()),
            }
        }
        let written = self.db.apply_batch(batch).and_then(|()| self.db.flush());
        written.map_err(|e| store::failed("write the log", Path::new("sled"), e))?;
        let synced = self.synced.as_ref().map_or(Ok(()), fs::File::sync_all);
        synced.map_err(|e| store::failed("sync the log", Path::new("sled"), e))
    }
}
