//! What a loss of power leaves. Killing a process proves nothing about durability: the page cache survives it. So the
//! writer runs on an ext4 image behind a loop device; at some moment it is stopped, the file behind the device is
//! copied as it lies, the copy is mounted (the journal recovers it) and read. The disk is the kindest possible: no
//! cache of its own, and every write that reached it is kept.
//!
//! Every process mounts its image in a mount namespace of its own, so that nothing stays mounted whatever happens.
//! Needs root, loop devices and mkfs.ext4; without them it fails and says so: a disk that was not tried has not held.
//! hack/test finds out beforehand, and leaves these tests out by name.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;

/// Room for a log, its journal, and what redb sets aside.
const IMAGE_BYTES: u64 = 48 * 1024 * 1024;
/// Cuts that are made at once; most of their time is waiting.
const LANES: u64 = 4;

/// A series of cuts.
#[derive(Clone, Copy)]
struct Series {
    store: &'static str,
    pause_ms: u64,
    cuts: u64,
}

/// What one cut left.
#[derive(Debug)]
struct Cut {
    #[expect(dead_code, reason = "shown where a cut has lost something")]
    after_ms: u64,
    acknowledged: u64,
    /// Writes in the log, or why it cannot be read.
    found: Result<u64, String>,
}

impl Cut {
    fn lost(&self) -> bool {
        self.found.as_ref().map_or(true, |found| *found < self.acknowledged)
    }
}

#[test]
fn no_acknowledged_write_is_lost_at_the_rate_of_an_arbiter() {
    for store in ["sled", "redb"] {
        holds(Series { store, pause_ms: 90, cuts: 12 });
    }
}

#[test]
fn no_acknowledged_write_is_lost_at_full_speed() {
    for store in ["sled", "redb"] {
        holds(Series { store, pause_ms: 0, cuts: 8 });
    }
}

/// The mutants: without our own sync, and with a sync that reaches only one of sled's files, this very test must find
/// losses.
#[test]
fn sled_as_it_comes_loses_acknowledged_writes() {
    loses(Series { store: "sled-unsynced", pause_ms: 90, cuts: 8 });
    loses(Series { store: "sled-blobs", pause_ms: 0, cuts: 8 });
}

#[test]
#[ignore = "minutes: for a release"]
fn no_acknowledged_write_is_lost_in_many_cuts() {
    for store in ["sled", "redb"] {
        holds(Series { store, pause_ms: 90, cuts: 60 });
        holds(Series { store, pause_ms: 0, cuts: 60 });
    }
    loses(Series { store: "sled-unsynced", pause_ms: 90, cuts: 40 });
    loses(Series { store: "sled-blobs", pause_ms: 0, cuts: 40 });
}

#[test]
fn a_full_disk_is_an_error_and_what_was_acknowledged_stays() {
    let base = Base::new();
    for store in ["sled", "redb"] {
        let image = base.image(&format!("full-{store}"));
        let out = base.mounted(&image, &["fill", "--store", store]).output().unwrap();
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "{store}: {said}{}", String::from_utf8_lossy(&out.stderr));
        let (acknowledged, failed) = said.split_once('\n').unwrap();
        assert!(failed.starts_with("cannot "), "{store}: {failed}");
        let acknowledged: u64 = acknowledged.parse().unwrap();
        let found = base.read(&image, store).unwrap();
        assert!(found == acknowledged || found == acknowledged + 1, "{store}: {acknowledged}, then {found}");
    }
}

// === the cutting ===

fn holds(series: Series) {
    let cuts = cut_off(series);
    let lost: Vec<&Cut> = cuts.iter().filter(|cut| cut.lost()).collect();
    assert!(lost.is_empty(), "{}, pause {} ms: {lost:#?}", series.store, series.pause_ms);
    let acknowledged: u64 = cuts.iter().map(|cut| cut.acknowledged).sum();
    // A cut before the first write says little.
    assert!(acknowledged >= series.cuts, "{cuts:#?}");
    say(&format!(
        "{}, pause {} ms: {} cuts, {acknowledged} acknowledged writes, none lost",
        series.store,
        series.pause_ms,
        cuts.len()
    ));
}

fn loses(series: Series) {
    let cuts = cut_off(series);
    let lost = cuts.iter().filter(|cut| cut.lost()).count();
    assert!(lost > 0, "the test cannot see a loss: {cuts:#?}");
    let Series { store, pause_ms, .. } = series;
    say(&format!(
        "{store} (a mutant), pause {pause_ms} ms: {lost} of {} cuts lost acknowledged writes",
        cuts.len()
    ));
}

fn cut_off(series: Series) -> Vec<Cut> {
    let base = Base::new();
    let next = AtomicU64::new(0);
    let mut cuts = Vec::new();
    thread::scope(|scope| {
        let lane = || {
            let mut made = Vec::new();
            loop {
                let n = next.fetch_add(1, Ordering::Relaxed);
                if n >= series.cuts {
                    return made;
                }
                // Spread evenly; where in a write the cut falls is chance enough.
                let after_ms = 400 + n * 1_299 % 2_100;
                made.push(base.cut(series, n, after_ms));
            }
        };
        let lanes: Vec<_> = (0..LANES).map(|_| scope.spawn(lane)).collect();
        for lane in lanes {
            cuts.extend(lane.join().unwrap());
        }
    });
    cuts
}

/// A folder with an empty file system to copy.
struct Base {
    folder: TempDir,
}

impl Base {
    /// Fails where it cannot be done.
    fn new() -> Self {
        assert!(nix::unistd::geteuid().is_root(), "{}", untried("this is not root, who mounts file systems"));
        // Memory, where there is some: the host's own disk and its load are no part of this.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap();
        let base = Self { folder };
        let empty = base.path("empty");
        fs::File::create(&empty).unwrap().set_len(IMAGE_BYTES).unwrap();
        let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&empty).output();
        let made = made.unwrap_or_else(|e| panic!("{}", untried(&format!("mkfs.ext4 does not start: {e}"))));
        assert!(made.status.success(), "{}", untried(&String::from_utf8_lossy(&made.stderr)));
        let mounted = base.in_namespace(&base.image("probe"), &["true"]).output().unwrap();
        assert!(mounted.status.success(), "{}", untried(&String::from_utf8_lossy(&mounted.stderr)));
        base
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A fresh file system and a place to mount it.
    fn image(&self, name: &str) -> PathBuf {
        let image = self.path(name);
        fs::copy(self.path("empty"), &image).unwrap();
        fs::create_dir(mount_point(&image)).unwrap();
        image
    }

    /// A command that sees the image mounted, alone.
    fn in_namespace(&self, image: &Path, command: &[&str]) -> Command {
        let mut unshare = Command::new("unshare");
        let script = r#"mount -o loop "$1" "$2" && shift 2 && exec "$@""#;
        unshare.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]);
        unshare.arg(image).arg(mount_point(image)).args(command);
        unshare
    }

    fn mounted(&self, image: &Path, args: &[&str]) -> Command {
        let mut command = self.in_namespace(image, &[env!("CARGO_BIN_EXE_log-writer")]);
        command.args(args).arg("--folder").arg(mount_point(image).join("log"));
        command
    }

    /// Writes in the log on this disk, or why it cannot be read.
    fn read(&self, image: &Path, store: &str) -> Result<u64, String> {
        let read = self.mounted(image, &["check", "--store", store]).output().unwrap();
        match String::from_utf8_lossy(&read.stdout).trim().parse() {
            Ok(found) if read.status.success() => Ok(found),
            Ok(_) | Err(_) => Err(String::from_utf8_lossy(&read.stderr).into_owned()),
        }
    }

    fn cut(&self, series: Series, n: u64, after_ms: u64) -> Cut {
        let Series { store, pause_ms, .. } = series;
        let name = format!("{store}-{pause_ms}-{n}");
        let image = self.image(&name);
        let pause = pause_ms.to_string();
        let mut writer = self.mounted(&image, &["write", "--store", store, "--pause-ms", &pause]);
        let mut writer = writer.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let acknowledged = Arc::new(AtomicU64::new(0));
        let reader = {
            let (acknowledged, out) = (Arc::clone(&acknowledged), writer.stdout.take().unwrap());
            thread::spawn(move || {
                for line in BufReader::new(out).lines().map_while(Result::ok) {
                    acknowledged.store(line.parse().unwrap(), Ordering::SeqCst);
                }
            })
        };
        // From the first word on: opening takes its time on a busy machine.
        while acknowledged.load(Ordering::SeqCst) == 0 {
            assert!(writer.try_wait().unwrap().is_none(), "{}", wrong(&mut writer));
            thread::sleep(Duration::from_millis(5));
        }
        thread::sleep(Duration::from_millis(after_ms));
        stop(&writer);
        // What is in the pipe was acknowledged, too.
        thread::sleep(Duration::from_millis(30));
        let acknowledged = acknowledged.load(Ordering::SeqCst);
        let copy = self.image(&format!("{name}-copy"));
        copy_as_it_lies(&image, &copy);
        writer.kill().unwrap();
        writer.wait().unwrap();
        reader.join().unwrap();

        let found = self.read(&copy, store);
        for image in [image, copy] {
            fs::remove_file(image).unwrap();
        }
        Cut { after_ms, acknowledged, found }
    }
}

fn mount_point(image: &Path) -> PathBuf {
    image.with_extension("mnt")
}

/// Returns once no thread of it runs any more: each has finished the call into the kernel that it was in.
fn stop(writer: &Child) {
    let pid = Pid::from_raw(writer.id().try_into().unwrap());
    kill(pid, Signal::SIGSTOP).unwrap();
    let stopped =
        |stat: String| stat.rsplit(')').next().is_some_and(|rest| rest.trim_start().starts_with('T'));
    for _ in 0..2_000 {
        let mut tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
        if tasks.all(|task| fs::read_to_string(task.unwrap().path().join("stat")).is_ok_and(stopped)) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
    panic!("{pid} does not stop");
}

/// The kernel's own journal thread may write while the copy is made; a copy that no longer matches is no moment.
fn copy_as_it_lies(from: &Path, to: &Path) {
    for _ in 0..20 {
        fs::copy(from, to).unwrap();
        if fs::read(from).unwrap() == fs::read(to).unwrap() {
            return;
        }
    }
    panic!("{} never holds still", from.display());
}

fn wrong(writer: &mut Child) -> String {
    let mut text = String::new();
    let _ = std::io::Read::read_to_string(&mut writer.stderr.take().unwrap(), &mut text);
    text
}

fn untried(why: &str) -> String {
    format!(
        "the power cut of the log's disks could not be tried: {}; it needs root, mkfs.ext4 and loop devices. Where they \
         cannot be had, leave it out with -E 'not test(/^power_cut::/)', as hack/test does",
        why.trim_end()
    )
}

/// To the terminal, past the harness, which keeps what a test that passes has printed.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
