//! The ledger: one line of JSON for every request that a BMC was sent, and the timeline of what the BMCs did to
//! their machines. The oracles read these files, so each line is flushed before the answer leaves, and secrets are
//! taken out before they come near the disk.
//!
//! It does not judge: `ledger.jsonl` holds refused and failed requests as well.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine::Power;
use crate::lab::writer::boottime_ns;

/// One request to a BMC.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Entry {
    /// When it had been read, `CLOCK_BOOTTIME` in ns.
    pub t: u64,
    /// The BMC that answered.
    pub bmc: String,
    /// The address that was asked; not the BMC's own after a swap.
    pub address: String,
    /// The true UUID of the machine that the path is about, else of the BMC's own machine.
    pub true_uuid: String,
    /// The session's id, `basic`, or nothing for a request without log-in.
    pub session: Option<String>,
    /// The method.
    pub method: String,
    /// The path and query as sent.
    pub path: String,
    /// The body as JSON without secrets; a text that says how long it was where it is no JSON.
    pub body: Option<Value>,
    /// The status that was sent; 0 where nothing was (hang, reset).
    pub status: u16,
    /// The `PowerState` that was shown, if one was.
    #[serde(default)]
    pub shown: Option<Value>,
    /// The true power of the machine when the request had been read; only for commands.
    #[serde(default)]
    pub true_power: Option<Power>,
}

/// One event on the way of a machine through On and Off, as its BMC drove it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PowerEvent {
    /// `CLOCK_BOOTTIME` in ns.
    pub t: u64,
    /// The BMC that did it.
    pub bmc: String,
    /// The machine's true UUID.
    pub true_uuid: String,
    /// What happened.
    pub event: PowerStep,
    /// The session whose command it was; `restore` for the restored power.
    pub by: String,
}

/// A step of a power change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerStep {
    /// The power is being cut.
    OffBegin,
    /// Nothing runs any more.
    OffDone,
    /// Power is being given.
    OnBegin,
    /// It has power.
    OnDone,
    /// The machine could not be turned.
    Failed,
    /// A newer command took its place.
    Superseded,
}

/// The two files, open for appending.
#[derive(Debug)]
pub struct Ledger {
    requests: Mutex<File>,
    power: Mutex<File>,
    folder: PathBuf,
}

// === impl Ledger ===

impl Ledger {
    /// Opens `ledger.jsonl` and `power.jsonl` in `folder`; what they hold already stays.
    ///
    /// # Errors
    /// If a file cannot be opened for appending.
    pub fn open(folder: &Path) -> io::Result<Self> {
        let open =
            |name: &str| OpenOptions::new().append(true).create(true).open(folder.join(name)).map(Mutex::new);
        Ok(Self { requests: open("ledger.jsonl")?, power: open("power.jsonl")?, folder: folder.to_owned() })
    }

    /// Notes a request.
    pub fn request(&self, entry: &Entry) {
        append(&self.requests, entry);
    }

    /// Notes a step of a power change, now.
    pub fn power(&self, bmc: &str, true_uuid: &str, event: PowerStep, by: &str) {
        let (bmc, true_uuid, by) = (bmc.to_owned(), true_uuid.to_owned(), by.to_owned());
        append(&self.power, &PowerEvent { t: boottime_ns(), bmc, true_uuid, event, by });
    }

    /// Every request so far.
    ///
    /// # Errors
    /// If the file cannot be read or a line is no entry.
    pub fn requests(&self) -> io::Result<Vec<Entry>> {
        read(&self.folder.join("ledger.jsonl"))
    }

    /// Every power event so far.
    ///
    /// # Errors
    /// If the file cannot be read or a line is no event.
    pub fn power_events(&self) -> io::Result<Vec<PowerEvent>> {
        read(&self.folder.join("power.jsonl"))
    }
}

// === helpers ===

/// Reads a file of JSON lines; a last line without its newline is a write under way and is left out.
///
/// # Errors
/// If the file cannot be read or a complete line does not fit.
pub fn read<T: DeserializeOwned>(path: &Path) -> io::Result<Vec<T>> {
    let text = std::fs::read_to_string(path)?;
    let complete = text.rfind('\n').map_or("", |end| &text[..end]);
    complete.lines().map(|line| serde_json::from_str(line).map_err(io::Error::from)).collect()
}

/// A ledger with a hole would let a wrong command pass unseen, so a failed write ends the process.
#[expect(clippy::panic, reason = "an oracle without its evidence must not go on")]
fn append(file: &Mutex<File>, line: &impl Serialize) {
    let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
    let written = serde_json::to_string(line)
        .map_err(io::Error::from)
        .and_then(|line| file.write_all(format!("{line}\n").as_bytes()).and_then(|()| file.flush()));
    if let Err(error) = written {
        panic!("write the ledger: {error}");
    }
}

/// The body without secrets: the value of every key that speaks of a password or a token becomes `***`.
#[must_use]
pub fn redacted(body: &[u8]) -> Option<Value> {
    if body.is_empty() {
        return None;
    }
    let Ok(mut value) = serde_json::from_slice(body) else {
        return Some(Value::String(format!("{} bytes that are no JSON", body.len())));
    };
    hide(&mut value);
    Some(value)
}

fn hide(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let name = name.to_ascii_lowercase();
                if name.contains("password") || name.contains("token") || name.contains("secret") {
                    *value = Value::String("***".to_owned());
                } else {
                    hide(value);
                }
            }
        }
        Value::Array(items) => items.iter_mut().for_each(hide),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn no_secret_gets_into_the_ledger() {
        let body = json!({"UserName": "u", "Password": "canary", "Oem": [{"X-Auth-Token": "canary"}]});
        let kept = redacted(body.to_string().as_bytes()).unwrap();
        assert_eq!(kept, json!({"UserName": "u", "Password": "***", "Oem": [{"X-Auth-Token": "***"}]}));
        assert_eq!(redacted(b"canary").unwrap(), json!("6 bytes that are no JSON"));
        assert_eq!(redacted(b""), None);
    }

    #[test]
    fn what_was_written_is_read_and_a_torn_last_line_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let ledger = Ledger::open(folder.path()).unwrap();
        ledger.power("n1", "u", PowerStep::OffBegin, "s1");
        ledger.power("n1", "u", PowerStep::OffDone, "s1");
        let path = folder.path().join("power.jsonl");
        OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"t\":1").unwrap();
        let steps: Vec<PowerStep> = ledger.power_events().unwrap().iter().map(|e| e.event).collect();
        assert_eq!(steps, [PowerStep::OffBegin, PowerStep::OffDone]);
    }
}
