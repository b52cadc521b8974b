//! A table in redb: one file, copy on write, synced by each commit.

use std::path::{Path, PathBuf};

use coroner_arbiter_replica::store::StoreError;
use redb::{Database, Durability, ReadableDatabase, TableDefinition};

use crate::store::{Change, DiskLog, Row, Table, failed};

/// The one table.
const LOG: TableDefinition<'static, &[u8], &[u8]> = TableDefinition::new("log");
/// Its file within the folder.
const FILE: &str = "log.redb";
/// Cache of redb: the log is read once, at start.
const CACHE_BYTES: usize = 4 * 1024 * 1024;

/// A log in redb.
pub type RedbStore = DiskLog<RedbTable>;

/// redb.
pub struct RedbTable {
    path: PathBuf,
    db: Database,
}

impl RedbStore {
    /// Opens or makes the store in the folder `path`.
    ///
    /// # Errors
    /// See [`DiskLog::over`].
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        DiskLog::over(path, || RedbTable::open(path))
    }
}

// === impl RedbTable ===

impl RedbTable {
    fn open(path: &Path) -> Result<Self, StoreError> {
        let db = redb::Builder::new()
            .set_cache_size(CACHE_BYTES)
            // A plain open trusts the file and may panic on rot; the file is small.
            .set_check_integrity_on_open(true)
            .create(path.join(FILE))
            .map_err(|e| failed("open the log", path, e))?;
        let table = Self { path: path.to_owned(), db };
        // Reading a table that was never made is an error of redb's.
        table.change(&[])?;
        Ok(table)
    }

    fn change(&self, changes: &[Change]) -> Result<(), StoreError> {
        let made: Result<(), redb::Error> = (|| {
            let mut write = self.db.begin_write()?;
            write.set_durability(Durability::Immediate)?;
            {
                let mut table = write.open_table(LOG)?;
                for change in changes {
                    match change {
                        Change::Put(key, value) => {
                            table.insert(key.as_slice(), value.as_slice())?;
                        }
                        Change::Remove(key) => {
                            table.remove(key.as_slice())?;
                        }
                    }
                }
            }
            write.commit()?;
            Ok(())
        })();
        made.map_err(|e| failed("write the log", &self.path, e))
    }
}

impl Table for RedbTable {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
        let value: Result<_, redb::Error> = (|| {
            let table = self.db.begin_read()?.open_table(LOG)?;
            Ok(table.get(key)?.map(|v| v.value().to_vec()))
        })();
        value.map_err(|e| failed("read the log", &self.path, e))
    }

    fn range(&self, from: &[u8], to: &[u8]) -> Result<Vec<Row>, StoreError> {
        let found: Result<_, redb::Error> = (|| {
            let table = self.db.begin_read()?.open_table(LOG)?;
            let range = table.range(from..to)?;
            range
                .map(|item| item.map(|(k, v)| (k.value().to_vec(), v.value().to_vec())))
                .collect::<Result<_, _>>()
                .map_err(redb::Error::from)
        })();
        found.map_err(|e| failed("read the log", &self.path, e))
    }

    fn commit(&mut self, changes: &[Change]) -> Result<(), StoreError> {
        self.change(changes)
    }
}
