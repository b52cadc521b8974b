//! What the agent keeps on its host, below `var/lib/coroner`: its key, and the last slice with the cluster's id.
//!
//! Read once at the start, so that a restarted agent beacons at once, with every replica down if need be. Written by a
//! thread of its own: a hung disk must not hold up a beacon, nor the tasks that talk to the replicas.

use std::fs::{self, DirBuilder, File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use coroner_shared::hex::{self, Hex};
use coroner_shared::keys::SecretKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::slice::Slice;
use thiserror::Error;
use tokio::sync::oneshot;
use tracing::{info, warn};
use zeroize::Zeroizing;

const FOLDER: &str = "var/lib/coroner";
const KEY: &str = "agent.key";
const SLICE: &str = "agent-slice.json";
/// Written in the key file of a host that had no machine id then.
const NO_MACHINE: &str = "none";

/// Why the agent cannot keep what it must.
#[derive(Debug, Error)]
pub(crate) enum StoreError {
    /// The folder or the key cannot be made or read.
    #[error("{doing} {path}; the host's var/lib/coroner must be mounted writable below --host-root")]
    Io {
        /// What was tried.
        doing: &'static str,
        /// On what.
        path: PathBuf,
        /// What happened.
        source: io::Error,
    },
    /// The key file holds something else.
    #[error(
        "{path} is not a key file of this agent; the host's identity is at stake, so it is not replaced \
         silently: move it away to have a new key made and registered"
    )]
    KeyForm {
        /// Which file.
        path: PathBuf,
    },
    /// The system gives no randomness.
    #[error("draw a new key from the system's random source: {0}")]
    Random(getrandom::Error),
}

/// What was kept.
pub(crate) struct Kept {
    /// This host's key, made now if there was none.
    pub(crate) key: SecretKey,
    /// The last slice, with the cluster's id.
    pub(crate) slice: Option<Slice>,
}

/// The way to the writing thread.
#[derive(Clone)]
pub(crate) struct Keeper(mpsc::Sender<Slice>);

/// Reads what is kept below `host_root`; makes a key if there is none, or if it was drawn for another machine (a disk
/// that was cloned or moved): one key must never speak for two hosts.
///
/// # Errors
/// [`StoreError`]; the agent does not start without a key that it can keep.
pub(crate) fn open(host_root: &Path, machine: Option<MachineId>) -> Result<Kept, StoreError> {
    let folder = host_root.join(FOLDER);
    let made = DirBuilder::new().recursive(true).mode(0o700).create(&folder);
    made.map_err(|source| StoreError::Io { doing: "make", path: folder.clone(), source })?;
    let key = read_key(&folder, machine)?;
    Ok(Kept { key, slice: read_slice(&folder) })
}

/// Starts the writing thread. The receiver resolves when it ends.
///
/// # Errors
/// No thread could be started.
pub(crate) fn keeper(host_root: &Path) -> io::Result<(Keeper, oneshot::Receiver<()>)> {
    let (sender, slices) = mpsc::channel();
    let (ended, end) = oneshot::channel();
    let folder = host_root.join(FOLDER);
    let body = move || {
        keep(&folder, &slices);
        let _ = ended.send(());
    };
    std::thread::Builder::new().name("store".to_owned()).stack_size(256 * 1024).spawn(body)?;
    Ok((Keeper(sender), end))
}

impl Keeper {
    /// Has a slice written, some time. Only the newest matters.
    pub(crate) fn keep(&self, slice: Slice) {
        // The thread ends only when all keepers are gone; if it died, `run` notices and says so.
        let _ = self.0.send(slice);
    }
}

// === helpers ===

/// The thread's body: writes the newest of what has come, until every keeper is gone.
fn keep(folder: &Path, slices: &mpsc::Receiver<Slice>) {
    let mut failing = false;
    while let Ok(first) = slices.recv() {
        let newest = slices.try_iter().last().unwrap_or(first);
        let text = serde_json::to_vec(&newest).unwrap_or_default();
        let result = write(folder, SLICE, &text);
        match &result {
            Ok(()) if failing => info!(file = SLICE, "the slice can be written again"),
            Err(error) if !failing => warn!(
                %error,
                folder = %folder.display(),
                "cannot write the slice; the agent works on, but would start with an older one: check the disk"
            ),
            Ok(()) | Err(_) => {}
        }
        failing = result.is_err();
    }
}

/// Writes a file so that after a crash there is the old content or the new, never a part: a new file, synced, renamed
/// over the old one, and the folder synced.
fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let part = folder.join(format!(".{name}.part"));
    // A part that a crash left may have other permissions.
    match fs::remove_file(&part) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&part)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&part, folder.join(name))?;
    File::open(folder)?.sync_all()
}

fn read_key(folder: &Path, machine: Option<MachineId>) -> Result<SecretKey, StoreError> {
    let path = folder.join(KEY);
    let io = |doing| {
        let path = path.clone();
        move |source| StoreError::Io { doing, path, source }
    };
    let text = match fs::read_to_string(&path) {
        Ok(text) => Zeroizing::new(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            info!(file = %path.display(), "this host has no key yet: one is drawn");
            return new_key(folder, machine);
        }
        Err(error) => return Err(io("read")(error)),
    };
    let Some((seed, drawn_for)) = parse_key(&text) else { return Err(StoreError::KeyForm { path }) };
    if fs::metadata(&path).map_err(io("look at"))?.permissions().mode() & 0o077 != 0 {
        warn!(file = %path.display(), "others could read this host's key; its mode is set back to 0600");
        fs::set_permissions(&path, Permissions::from_mode(0o600)).map_err(io("protect"))?;
    }
    let key = SecretKey::from_seed(&seed);
    match (drawn_for, machine) {
        (Some(before), Some(now)) if before != now => {
            warn!(%before, %now, "the key was drawn for another machine (a cloned or moved disk?): a new one is drawn");
            new_key(folder, machine)
        }
        (None, Some(_)) => {
            write(folder, KEY, key_text(&key, machine).as_bytes()).map_err(io("write"))?;
            Ok(key)
        }
        (Some(_) | None, _) => Ok(key),
    }
}

fn new_key(folder: &Path, machine: Option<MachineId>) -> Result<SecretKey, StoreError> {
    let mut seed = Zeroizing::new([0_u8; 32]);
    getrandom::fill(&mut seed[..]).map_err(StoreError::Random)?;
    let key = SecretKey::from_seed(&seed);
    write(folder, KEY, key_text(&key, machine).as_bytes()).map_err(|source| StoreError::Io {
        doing: "write",
        path: folder.join(KEY),
        source,
    })?;
    Ok(key)
}

/// Two lines: the seed, and the machine for which it was drawn.
fn key_text(key: &SecretKey, machine: Option<MachineId>) -> Zeroizing<String> {
    let seed = Zeroizing::new(key.seed());
    let machine = machine.map_or(NO_MACHINE.to_owned(), |m| m.to_string());
    Zeroizing::new(format!("{}\n{machine}\n", Hex(&seed[..])))
}

fn parse_key(text: &str) -> Option<(Zeroizing<[u8; 32]>, Option<MachineId>)> {
    let mut lines = text.lines();
    let seed = Zeroizing::new(hex::parse(lines.next()?)?);
    let machine = match lines.next()? {
        NO_MACHINE => None,
        uuid => Some(uuid.parse().ok()?),
    };
    lines.next().is_none().then_some((seed, machine))
}

/// A slice that cannot be read is worth nothing: the agent registers and gets a new one.
fn read_slice(folder: &Path) -> Option<Slice> {
    let path = folder.join(SLICE);
    let bytes = match fs::read(&path) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
        Err(error) => {
            warn!(file = %path.display(), %error, "cannot read the last slice; the agent registers for a new one");
            return None;
        }
    };
    match serde_json::from_slice(&bytes) {
        Ok(slice) => Some(slice),
        Err(error) => {
            warn!(file = %path.display(), %error, "the last slice is not readable; the agent registers for a new one");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coroner_shared::id::{ClusterId, NodeUid};
    use coroner_shared::slice::Timings;
    use std::time::Duration;

    fn machine(n: u8) -> Option<MachineId> {
        let mut bytes = [7; 16];
        bytes[0] = n;
        MachineId::from_bytes(bytes).ok()
    }

    fn slice(version: u64) -> Slice {
        Slice {
            version,
            cluster: ClusterId::from_bytes([1; 16]),
            node: NodeUid::new("uid").unwrap(),
            subjects: Vec::new(),
            observers: Vec::new(),
            replicas: Vec::new(),
            timings: Timings::BALANCED,
        }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn the_key_is_made_once_and_belongs_to_root_alone() {
        let host = tempfile::tempdir().unwrap();
        let first = open(host.path(), machine(1)).unwrap();
        let second = open(host.path(), machine(1)).unwrap();
        assert_eq!(first.key.public(), second.key.public());
        assert_eq!(mode(&host.path().join(FOLDER)), 0o700);
        assert_eq!(mode(&host.path().join(FOLDER).join(KEY)), 0o600);
        let other = tempfile::tempdir().unwrap();
        assert_ne!(open(other.path(), machine(1)).unwrap().key.public(), first.key.public());
    }

    #[test]
    fn a_key_that_others_could_read_is_protected_again() {
        let host = tempfile::tempdir().unwrap();
        open(host.path(), machine(1)).unwrap();
        let path = host.path().join(FOLDER).join(KEY);
        fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
        open(host.path(), machine(1)).unwrap();
        assert_eq!(mode(&path), 0o600);
    }

    #[test]
    fn one_key_never_speaks_for_two_machines() {
        let host = tempfile::tempdir().unwrap();
        let key = |machine| open(host.path(), machine).unwrap().key.public();
        let unknown = key(None);
        assert_eq!(key(machine(1)), unknown, "it learns its machine later");
        assert_eq!(key(None), unknown, "a machine that cannot be read just now is no other machine");
        let moved = key(machine(2));
        assert_ne!(moved, unknown);
        assert_eq!(key(machine(2)), moved);
    }

    #[test]
    fn a_key_file_with_something_else_in_it_stops_the_agent_and_says_what_to_do() {
        let uuid = "00112233-4455-6677-8899-aabbccddeeff";
        for text in ["", "x", "00\nnone\n", &"0".repeat(64), &format!("{}\n{uuid}\nmore\n", "0".repeat(64))] {
            let host = tempfile::tempdir().unwrap();
            open(host.path(), None).unwrap();
            fs::write(host.path().join(FOLDER).join(KEY), text).unwrap();
            let Err(error) = open(host.path(), None) else { panic!("{text:?} was taken for a key") };
            assert!(error.to_string().contains("move it away"), "{error}");
        }
    }

    #[test]
    fn no_secret_shows_in_an_error() {
        let host = tempfile::tempdir().unwrap();
        open(host.path(), None).unwrap();
        let secret = "5eed".repeat(16);
        fs::write(host.path().join(FOLDER).join(KEY), format!("{secret}\nbad\n")).unwrap();
        let Err(error) = open(host.path(), None) else { panic!() };
        assert!(!format!("{error} {error:?}").contains("5eed"));
    }

    #[test]
    fn the_newest_slice_is_kept_over_a_restart() {
        let host = tempfile::tempdir().unwrap();
        assert_eq!(open(host.path(), None).unwrap().slice, None);
        let (keeper, mut end) = keeper(host.path()).unwrap();
        (1..=5).for_each(|version| keeper.keep(slice(version)));
        drop(keeper);
        while end.try_recv() == Err(oneshot::error::TryRecvError::Empty) {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(open(host.path(), None).unwrap().slice, Some(slice(5)));
        assert!(!host.path().join(FOLDER).join(".agent-slice.json.part").exists());
    }

    #[test]
    fn a_slice_that_cannot_be_read_is_no_slice() {
        let host = tempfile::tempdir().unwrap();
        open(host.path(), None).unwrap();
        for text in ["", "{", "{\"version\":1}"] {
            fs::write(host.path().join(FOLDER).join(SLICE), text).unwrap();
            assert_eq!(open(host.path(), None).unwrap().slice, None, "{text}");
        }
    }

    #[test]
    fn a_part_left_by_a_crash_is_no_obstacle() {
        let host = tempfile::tempdir().unwrap();
        let folder = host.path();
        fs::write(folder.join(".x.part"), "old").unwrap();
        write(folder, "x", b"new").unwrap();
        assert_eq!(fs::read(folder.join("x")).unwrap(), b"new");
    }

    #[test]
    fn where_nothing_can_be_kept_the_agent_does_not_start() {
        let host = tempfile::tempdir().unwrap();
        fs::write(host.path().join("var"), "a file").unwrap();
        let Err(error) = open(host.path(), None) else { panic!() };
        assert!(error.to_string().contains("must be mounted writable"), "{error}");
    }
}
