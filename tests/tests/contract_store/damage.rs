//! Rot: whatever happens to the bytes of a log, it is read as it was written or not at all. Never a panic, and never
//! less than was acknowledged, as if the rest had not been.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use coroner_arbiter::store::StoreKind;
use coroner_arbiter_replica::store::{Base, VALUE_BYTES_MAX};
use coroner_arbiter_replica::{Batch, Loaded, StoreError};
use redb::{ReadableDatabase, ReadableTable};

use crate::bench::{Bench, a_life, entry, hard, snapshot};

const KINDS: [StoreKind; 2] = [StoreKind::Sled, StoreKind::Redb];
const TABLE: redb::TableDefinition<'static, &[u8], &[u8]> = redb::TableDefinition::new("log");

/// All keys and values, read past the store.
fn rows(kind: StoreKind, path: &Path) -> Vec<(Vec<u8>, Vec<u8>)> {
    match kind {
        StoreKind::Sled => {
            let db = sled_at(path);
            db.iter().map(|row| row.map(|(k, v)| (k.to_vec(), v.to_vec())).unwrap()).collect()
        }
        StoreKind::Redb => {
            let db = redb::Database::open(path.join("log.redb")).unwrap();
            let table = db.begin_read().unwrap().open_table(TABLE).unwrap();
            let rows = table.iter().unwrap().map(Result::unwrap);
            rows.map(|(k, v)| (k.value().to_vec(), v.value().to_vec())).collect()
        }
    }
}

/// A handle that was just dropped lets go of its lock a moment later.
fn sled_at(path: &Path) -> sled::Db {
    let opened = (0..100).find_map(|_| {
        let opened = sled::open(path).ok();
        if opened.is_none() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        opened
    });
    opened.unwrap()
}

/// Sets or removes a value past the store.
fn set(kind: StoreKind, path: &Path, key: &[u8], value: Option<&[u8]>) {
    match kind {
        StoreKind::Sled => {
            let db = sled_at(path);
            match value {
                Some(value) => db.insert(key, value).unwrap(),
                None => db.remove(key).unwrap(),
            };
            db.flush().unwrap();
        }
        StoreKind::Redb => {
            let db = redb::Database::open(path.join("log.redb")).unwrap();
            let write = db.begin_write().unwrap();
            {
                let mut table = write.open_table(TABLE).unwrap();
                match value {
                    Some(value) => drop(table.insert(key, value).unwrap()),
                    None => drop(table.remove(key).unwrap()),
                }
            }
            write.commit().unwrap();
        }
    }
}

fn damaged(found: &Result<Option<Loaded>, StoreError>) -> bool {
    matches!(found, Err(StoreError::Damaged { .. }))
}

/// In a few words; a log as a whole fills pages.
fn said(found: &Result<Option<Loaded>, StoreError>) -> String {
    match found {
        Ok(None) => "read as empty".to_owned(),
        Ok(Some(log)) => format!("read as {:?} with {} entries", log.hard_state, log.entries.len()),
        Err(error) => format!("{error:?}"),
    }
}

fn read(bench: &mut Bench) -> Result<Option<Loaded>, StoreError> {
    bench.try_reopen()?;
    bench.log().load()
}

#[test]
fn a_changed_or_missing_value_is_an_error_whichever_it_is() {
    for kind in KINDS {
        let mut bench = Bench::folder(kind);
        let whole = a_life(&mut bench);
        bench.close();
        let path = bench.path().unwrap();
        let rows = rows(kind, &path);
        let keys: BTreeSet<&[u8]> = match kind {
            // Two bytes are the piece.
            StoreKind::Sled => rows.iter().filter_map(|(key, _)| key.get(..key.len() - 2)).collect(),
            StoreKind::Redb => rows.iter().map(|(key, _)| key.as_slice()).collect(),
        };
        // Hard state, base, snapshot, count, four pieces, thirty entries.
        assert_eq!(keys.len(), 4 + 4 + 30, "{kind:?}: nothing is left over");
        for (n, (key, value)) in rows.iter().enumerate() {
            let mut changed = value.clone();
            let at = n * 7 % value.len();
            changed[at] ^= 1 << (n % 8);
            for wrong in [Some(changed.as_slice()), Some(&value[..value.len() - 1]), Some(&[]), None] {
                set(kind, &path, key, wrong);
                let found = read(&mut bench);
                let name = String::from_utf8_lossy(key);
                assert!(
                    damaged(&found),
                    "{kind:?} {name} = {} bytes: {}",
                    wrong.map_or(0, <[u8]>::len),
                    said(&found)
                );
                bench.close();
            }
            set(kind, &path, key, Some(value));
        }
        assert!(read(&mut bench).unwrap() == Some(whole), "{kind:?}: put back, it is read again");
    }
}

/// Both the count and what says that there is one are gone: what is left must not look like a first start.
#[test]
fn a_log_without_its_count_and_tide_is_not_empty() {
    for kind in KINDS {
        let mut bench = Bench::folder(kind);
        a_life(&mut bench);
        bench.close();
        let path = bench.path().unwrap();
        for (key, _) in rows(kind, &path).iter().filter(|(key, _)| key[0] == b'q') {
            set(kind, &path, key, None);
        }
        fs::remove_file(path.join("tide")).unwrap();
        let found = read(&mut bench);
        assert!(damaged(&found), "{kind:?}: {}", said(&found));
    }
}

/// A value in another's place decodes, and is another vote.
#[test]
fn values_that_change_places_are_an_error() {
    for kind in KINDS {
        let mut bench = Bench::folder(kind);
        a_life(&mut bench);
        bench.close();
        let path = bench.path().unwrap();
        let rows = rows(kind, &path);
        let entries: Vec<_> = rows.iter().filter(|(key, _)| key[0] == b'e').collect();
        set(kind, &path, &entries[3].0, Some(&entries[4].1));
        let found = read(&mut bench);
        assert!(damaged(&found), "{kind:?}: {}", said(&found));
    }
}

/// sled would write them without a sync; see `store_sled.rs`.
#[test]
fn sled_makes_no_file_of_its_own_for_large_values() {
    let mut bench = Bench::folder(StoreKind::Sled);
    let mut index = 0;
    for round in 1..12_u64 {
        for _ in 0..40 {
            index += 1;
            let large = [entry(index, round, VALUE_BYTES_MAX - 30)];
            let hard_state = hard(round, 1, index);
            bench.write(&Batch { hard_state: Some(&hard_state), entries: &large, ..Batch::default() });
        }
        let made = snapshot(index, round, 700_000);
        let base = Base { index: index - 10, term: round };
        bench.write(&Batch { made: Some((&made, base)), ..Batch::default() });
        let blobs: Vec<_> = files(&bench.path().unwrap().join("blobs"));
        assert_eq!(blobs.len(), 0);
    }
    let before = bench.load();
    bench.reopen();
    assert!(bench.load() == before);
}

/// Bits of the files themselves.
#[test]
fn rot_in_the_files_is_an_error_or_does_no_harm() {
    for kind in KINDS {
        let mut bench = Bench::folder(kind);
        let whole = a_life(&mut bench);
        bench.close();
        let path = bench.path().unwrap();
        let kept = files(&path);
        let mut seed = 11_u64;
        let mut below = |n: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % n
        };
        let (mut noticed, mut harmless) = (0, 0);
        for _ in 0..80 {
            let (file, bytes) = &kept[below(kept.len())];
            let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
            if used.is_empty() {
                continue;
            }
            let mut rotten = bytes.clone();
            // A few bytes near each other, as a bad sector has them.
            let at = used[below(used.len())];
            let end = (at + 1 + below(64)).min(bytes.len());
            rotten[at..end].iter_mut().for_each(|byte| *byte ^= 0x10);
            fs::write(file, &rotten).unwrap();
            match read(&mut bench) {
                Ok(Some(found)) if found == whole => harmless += 1,
                Ok(found) => {
                    let (file, length) = (file.display(), bytes.len());
                    panic!("{kind:?}: {file} at {at} of {length}: {}", said(&Ok(found)))
                }
                Err(_) => noticed += 1,
            }
            bench.close();
            put_back(&path, &kept);
        }
        assert!(noticed > 20, "{kind:?}: {noticed} noticed, {harmless} harmless");
        assert!(read(&mut bench).unwrap() == Some(whole));
    }
}

/// As after a disk was restored from an older copy, or its controller lost what it had acknowledged.
#[test]
fn a_log_that_ends_before_what_was_acknowledged_is_an_error() {
    for kind in KINDS {
        let mut bench = Bench::folder(kind);
        a_life(&mut bench);
        bench.close();
        let path = bench.path().unwrap();
        let older = files(&path);
        bench.reopen();
        let hard_state = hard(7, 1, 59);
        bench.write(&Batch { hard_state: Some(&hard_state), ..Batch::default() });
        bench.close();
        let tide = fs::read(path.join("tide")).unwrap();
        put_back(&path, &older);
        fs::write(path.join("tide"), tide).unwrap();
        match read(&mut bench) {
            Err(StoreError::Damaged { what, .. }) => assert!(what.contains("was acknowledged"), "{what}"),
            other => panic!("{kind:?}: {}", said(&other)),
        }
        bench.close();
        // All of it gone, and the tide still there.
        for (file, _) in &older {
            if !file.ends_with("tide") {
                fs::remove_file(file).unwrap();
            }
        }
        assert!(read(&mut bench).is_err(), "{kind:?}");
    }
}

fn files(folder: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push((path.clone(), fs::read(&path).unwrap()));
        }
    }
    found.sort();
    found
}

/// Exactly these files, none besides.
fn put_back(folder: &Path, kept: &[(PathBuf, Vec<u8>)]) {
    for (path, _) in files(folder) {
        if !kept.iter().any(|(file, _)| *file == path) {
            fs::remove_file(path).unwrap();
        }
    }
    for (path, bytes) in kept {
        fs::write(path, bytes).unwrap();
    }
}
