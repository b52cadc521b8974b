//! `truth.jsonl`: what really happened to the machines, written by the one who did it.
//!
//! The oracles judge by this file and never by our own logs. Each stamp lies on the careful side: `on` before the
//! first process of a life, `off_done` after the last one is gone, `frozen` after nothing runs any more, `thawed`
//! before anything runs again.

use std::{
    fs::{File, OpenOptions},
    io::Write,
    path::Path,
    sync::{Mutex, PoisonError},
};

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// A life begins; nothing of it has run yet.
    On,
    /// Power is being cut; things may still run.
    OffBegin,
    /// Nothing of that life can run any more.
    OffDone,
    /// Nothing runs, nothing answers, but the life is not over. `detail.begin_t` is when that began.
    Frozen,
    /// A frozen machine goes on from here.
    Thawed,
    /// Something no longer passes. `detail` is the cut; `detail.begin_t` is when it was ordered.
    Cut,
    /// What was cut passes again.
    Healed,
}

/// One line of the file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Line {
    /// `CLOCK_BOOTTIME` in ns; all machines share the host's clock.
    pub t: u64,
    /// Absent for what concerns no single machine.
    pub machine: Option<String>,
    /// The life it happened to.
    pub boot_id: Option<String>,
    /// What happened.
    pub event: Event,
    /// More about it; null when there is nothing to add.
    #[serde(default)]
    pub detail: Value,
}

/// The open file.
#[derive(Debug)]
pub struct Truth {
    file: Mutex<File>,
}

// === impl Truth ===

impl Truth {
    /// Opens `path` to append to it.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path);
        Ok(Self { file: Mutex::new(file.with_context(|| format!("open {}", path.display()))?) })
    }

    /// Writes one line, stamped with this instant, in one piece.
    ///
    /// # Errors
    /// When it cannot be written: a lab without its truth proves nothing.
    pub fn record(
        &self,
        machine: Option<&str>,
        boot_id: Option<&str>,
        event: Event,
        detail: Value,
    ) -> Result<()> {
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock, so that stamps rise from line to line.
        let line = Line {
            t: now_ns()?,
            machine: machine.map(Into::into),
            boot_id: boot_id.map(Into::into),
            event,
            detail,
        };
        let mut text = serde_json::to_string(&line).context("write a line of truth as JSON")?;
        text.push('\n');
        file.write_all(text.as_bytes()).context("append to truth.jsonl")
    }
}

/// `CLOCK_BOOTTIME` in ns, the clock of every file that the oracles read.
///
/// # Errors
/// When the kernel does not have that clock.
pub fn now_ns() -> Result<u64> {
    let now = clock_gettime(ClockId::CLOCK_BOOTTIME).context("read CLOCK_BOOTTIME")?;
    let seconds = u64::try_from(now.tv_sec()).context("read seconds")?;
    let nanos = u64::try_from(now.tv_nsec()).context("read nanoseconds")?;
    Ok(seconds * 1_000_000_000 + nanos)
}

/// Every line of a file of truth.
///
/// # Errors
/// When it cannot be read, or a line is not one.
pub fn read(path: &Path) -> Result<Vec<Line>> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("understand {line:?}"));
    text.lines().map(parse).collect()
}
