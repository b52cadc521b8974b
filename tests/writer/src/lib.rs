//! The writer stands for a workload: it stamps a file on its volume every few milliseconds with who wrote, where
//! and in which life of the machine, so that two writers at once cannot hide. Also the readers of that file and
//! the oracle over it.
//!
//! The loop uses std and nix only and so does `bin/lab-writer.rs`: the binary is the whole image of the test pods.
//! It does not sync to disk (power loss in the lab kills processes, not the kernel), and it never reads the file.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

/// The file below a volume that holds the stamps.
pub const FILE: &str = "writes";

/// Nanoseconds of `CLOCK_BOOTTIME`: the one clock of every file that an oracle reads, since all machines of the
/// lab share a kernel. Zero if the kernel had no such clock, which Linux has had since 2.6.39.
#[must_use]
pub fn boottime_ns() -> u64 {
    let Ok(now) = clock_gettime(ClockId::CLOCK_BOOTTIME) else { return 0 };
    let seconds = u64::try_from(now.tv_sec()).unwrap_or(0);
    let nanos = u64::try_from(now.tv_nsec()).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
}

/// Who writes, for the whole life of one writer process.
#[derive(Clone, Debug)]
pub struct Writer {
    /// The workload: the pod's name, which a StatefulSet gives to the replacement too.
    pub workload: String,
    /// The machine: the node's name.
    pub machine: String,
    /// The boot id of the machine at the start of this process.
    pub boot_id: String,
    /// `CLOCK_BOOTTIME` in ns at the start of this process; tells two runs in one boot apart.
    pub run: u64,
    /// The pause between two stamps.
    pub every: Duration,
}

impl Writer {
    /// Appends stamps to `volume`/writes until a write fails.
    ///
    /// # Errors
    /// The error of the open or of the write that ended it; it has no other end.
    pub fn run(&self, volume: &Path) -> io::Error {
        let mut file = match OpenOptions::new().append(true).create(true).open(volume.join(FILE)) {
            Ok(file) => file,
            Err(error) => return error,
        };
        loop {
            // One write per line with O_APPEND: a kill between two lines tears nothing.
            if let Err(error) = file.write_all(self.line(boottime_ns()).as_bytes()) {
                return error;
            }
            std::thread::sleep(self.every);
        }
    }

    fn line(&self, t: u64) -> String {
        let Self { workload, machine, boot_id, run, every: _ } = self;
        let (workload, machine, boot_id) = (Quoted(workload), Quoted(machine), Quoted(boot_id));
        format!(
            "{{\"t\":{t},\"workload\":{workload},\"machine\":{machine},\"boot_id\":{boot_id},\"run\":{run}}}\n"
        )
    }
}

/// A JSON string. Names and boot ids need no escapes, but a wrong argument must not make a wrong file.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("\"")?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                c if c.is_control() => write!(f, "\\u{:04x}", u32::from(c))?,
                c => write!(f, "{c}")?,
            }
        }
        f.write_str("\"")
    }
}

/// One line of a volume's file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stamp {
    /// `CLOCK_BOOTTIME` in ns.
    pub t: u64,
    /// The pod's name.
    pub workload: String,
    /// The node's name.
    pub machine: String,
    /// The machine's boot id.
    pub boot_id: String,
    /// When the writing process started, `CLOCK_BOOTTIME` in ns.
    #[serde(default)]
    pub run: u64,
}

/// Reads the stamps of one volume. A last line without its newline is a write under way and is left out.
///
/// # Errors
/// If the file cannot be read, or a complete line is not a stamp.
pub fn read_stamps(path: &Path) -> io::Result<Vec<Stamp>> {
    let text = std::fs::read_to_string(path)?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
}

/// Two writers of one workload at once, on two machines or in two lives of one machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Overlap {
    /// The workload.
    pub workload: String,
    /// The first instant at which both are known to run, ns.
    pub from: u64,
    /// The last such instant, ns.
    pub to: u64,
    /// Machine and boot id of the one that started first.
    pub first: (String, String),
    /// Machine and boot id of the other.
    pub second: (String, String),
    /// How many stamps fell into the overlap.
    pub stamps: usize,
}

/// The oracle "no double run": every pair of writer processes of one workload, in different lives of machines,
/// whose spans from first to last stamp meet.
///
/// A process that was frozen and goes on later is running all the time, so its span counts in full: that is the
/// writer a fence exists for.
#[must_use]
pub fn overlaps(stamps: &[Stamp]) -> Vec<Overlap> {
    let mut runs: Vec<Run<'_>> = Vec::new();
    for stamp in stamps {
        match runs.iter_mut().find(|run| run.holds(stamp)) {
            Some(run) => run.add(stamp),
            None => runs.push(Run::new(stamp)),
        }
    }
    runs.sort_by_key(|run| run.times[0]);
    let mut found = Vec::new();
    for (i, first) in runs.iter().enumerate() {
        for second in runs[i + 1..].iter().filter(|second| second.rivals(first)) {
            found.extend(first.overlap(second));
        }
    }
    found
}

/// The stamps of one writer process; `times` is sorted and never empty.
struct Run<'a> {
    who: &'a Stamp,
    times: Vec<u64>,
}

impl<'a> Run<'a> {
    fn new(stamp: &'a Stamp) -> Self {
        Self { who: stamp, times: vec![stamp.t] }
    }

    fn holds(&self, stamp: &Stamp) -> bool {
        let Stamp { t: _, workload, machine, boot_id, run } = self.who;
        (workload, machine, boot_id, *run) == (&stamp.workload, &stamp.machine, &stamp.boot_id, stamp.run)
    }

    fn add(&mut self, stamp: &Stamp) {
        let at = self.times.partition_point(|t| *t <= stamp.t);
        self.times.insert(at, stamp.t);
    }

    /// Another life of a machine with the same workload. Two runs in one boot are one machine's own business.
    fn rivals(&self, other: &Run<'_>) -> bool {
        self.who.workload == other.who.workload
            && (&self.who.machine, &self.who.boot_id) != (&other.who.machine, &other.who.boot_id)
    }

    fn overlap(&self, second: &Run<'_>) -> Option<Overlap> {
        let end = |run: &Run<'_>| *run.times.last().unwrap_or(&0);
        let (from, to) = (second.times[0], end(self).min(end(second)));
        let life = |run: &Run<'_>| (run.who.machine.clone(), run.who.boot_id.clone());
        let stamps =
            [self, second].into_iter().flat_map(|run| &run.times).filter(|t| (from..=to).contains(*t));
        (from <= to).then(|| Overlap {
            workload: self.who.workload.clone(),
            from,
            to,
            first: life(self),
            second: life(second),
            stamps: stamps.count(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each run as "machine/boot@run: instants".
    fn stamps(runs: &[(&str, u64, &[u64])]) -> Vec<Stamp> {
        let mut all = Vec::new();
        for (life, run, times) in runs {
            let (machine, boot_id) = life.split_once('/').unwrap();
            for t in *times {
                let (machine, boot_id) = (machine.to_owned(), boot_id.to_owned());
                all.push(Stamp { t: *t, workload: "w-0".to_owned(), machine, boot_id, run: *run });
            }
        }
        all
    }

    #[test]
    fn the_oracle_finds_every_double_run_and_no_handover() {
        type Case<'a> = (&'a str, &'a [(&'a str, u64, &'a [u64])], &'a [(u64, u64)]);
        let table: &[Case<'_>] = &[
            ("nothing written", &[], &[]),
            ("a move", &[("a/1", 1, &[10, 20, 30]), ("b/1", 35, &[40, 50])], &[]),
            (
                "a move there and back",
                &[("a/1", 1, &[10, 20]), ("b/1", 2, &[30, 40]), ("a/1", 3, &[50])],
                &[],
            ),
            ("interleaved", &[("a/1", 1, &[10, 30, 50]), ("b/1", 2, &[20, 40, 60])], &[(20, 50)]),
            ("frozen, replaced, thawed", &[("a/1", 1, &[10, 99]), ("b/1", 2, &[50, 60, 70])], &[(50, 70)]),
            ("one shared instant", &[("a/1", 1, &[10, 20]), ("b/1", 2, &[20, 30])], &[(20, 20)]),
            (
                "a new life of the same machine while the old one writes",
                &[("a/1", 1, &[10, 30]), ("a/2", 2, &[20])],
                &[(20, 20)],
            ),
            ("two runs in one boot", &[("a/1", 1, &[10, 30]), ("a/1", 2, &[20, 40])], &[]),
            (
                "three at once",
                &[("a/1", 1, &[1, 9]), ("b/1", 2, &[2, 8]), ("c/1", 3, &[3, 4])],
                &[(2, 8), (3, 4), (3, 4)],
            ),
        ];
        for (name, runs, want) in table {
            let found = overlaps(&stamps(runs));
            let spans: Vec<(u64, u64)> = found.iter().map(|o| (o.from, o.to)).collect();
            assert_eq!(&spans, want, "{name}: {found:?}");
        }
    }

    #[test]
    fn what_the_writer_writes_is_what_the_reader_reads() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer {
            workload: "w-0".to_owned(),
            machine: "odd \"name\"\\\n".to_owned(),
            boot_id: "b".to_owned(),
            run: 7,
            every: Duration::from_millis(1),
        };
        let path = folder.path().join(FILE);
        let text = format!("{}{}{{\"t\":3,\"work", writer.line(1), writer.line(2));
        std::fs::write(&path, text).unwrap();
        let read = read_stamps(&path).unwrap();
        assert_eq!(read.iter().map(|s| s.t).collect::<Vec<_>>(), [1, 2], "the torn last line is left out");
        assert_eq!((read[0].machine.as_str(), read[0].run), (writer.machine.as_str(), 7));
        std::fs::write(&path, "{\"t\":1}\n").unwrap();
        assert!(read_stamps(&path).is_err(), "a complete line that is no stamp is an error");
    }

    #[test]
    fn a_volume_that_goes_away_ends_the_writer() {
        let folder = tempfile::tempdir().unwrap();
        let writer = Writer {
            workload: "w".to_owned(),
            machine: "m".to_owned(),
            boot_id: "b".to_owned(),
            run: 1,
            every: Duration::from_millis(1),
        };
        let error = writer.run(&folder.path().join("gone"));
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
    }
}
