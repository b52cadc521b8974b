//! The words of the lab's socket: one JSON object a line each way.
//!
//! An answer is `{"ok":true, ...}` or `{"ok":false,"error":"..."}`. Several requests may follow each other on one
//! connection; each is answered before the next is read.

use std::{net::Ipv4Addr, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::cuts::{Cut, Target};

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "kebab-case")]
pub enum Request {
    /// Switch a machine on. Answer: [`MachineState`].
    On {
        /// Which.
        machine: String,
    },
    /// Cut its power. Answered when nothing of it can run any more: [`MachineState`].
    Off {
        /// Which.
        machine: String,
    },
    /// Press its power button: it ends by itself, later. Answer: [`MachineState`].
    Shutdown {
        /// Which.
        machine: String,
    },
    /// Make it hang. Answer: [`MachineState`].
    Freeze {
        /// Which.
        machine: String,
    },
    /// End its hang. Answer: [`MachineState`].
    Thaw {
        /// Which.
        machine: String,
    },
    /// Answer: [`MachineState`].
    State {
        /// Which.
        machine: String,
    },
    /// Answer: [`Listing`].
    List,
    /// Let something pass no more. Answer: nothing.
    Cut(Cut),
    /// Let it pass again; without a target, everything. Answer: nothing.
    Heal {
        /// As it was cut.
        #[serde(default)]
        target: Option<Target>,
    },
    /// Run a command inside a machine. Answer: [`Output`].
    Exec {
        /// Which.
        machine: String,
        /// Program and arguments.
        argv: Vec<String>,
    },
    /// Give an OCI archive to a machine, now if it is On, and at each power-on. Answer: nothing.
    Import {
        /// None: every machine.
        #[serde(default)]
        machine: Option<String>,
        /// A path on the host.
        archive: PathBuf,
    },
    /// Take a BMC's address away, or give it back. Answer: nothing.
    BmcAddress {
        /// Whose BMC.
        machine: String,
        /// Whether it is there.
        present: bool,
    },
    /// Take the whole lab down. Answered before it begins.
    Down,
}

/// Power as a BMC would say it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    /// Something of the machine runs, or hangs.
    On,
    /// Nothing of it can run.
    Off,
}

/// What is true of a machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineState {
    /// Its name.
    pub machine: String,
    /// Read from its control group.
    pub power: Power,
    /// It hangs.
    pub frozen: bool,
    /// Of the present life.
    pub boot_id: Option<String>,
    /// The host's number of its process number 1.
    pub init: Option<i32>,
    /// Machine identity.
    pub uuid: String,
    /// Failure domain.
    pub rack: String,
    /// Of its data link.
    pub address: Ipv4Addr,
    /// Of its BMC.
    pub bmc_address: Ipv4Addr,
    /// Whether the request changed anything.
    #[serde(default)]
    pub changed: bool,
}

/// Answer to `list`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Listing {
    /// All of them, by number.
    pub machines: Vec<MachineState>,
    /// What does not pass.
    pub cuts: Vec<Cut>,
}

/// Answer to `exec`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Output {
    /// Exit code; 128 + n for signal n.
    pub code: i32,
    /// What it printed.
    pub stdout: String,
    /// What it complained about.
    pub stderr: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_read_as_they_are_documented() {
        let cases = [
            (r#"{"op":"off","machine":"n1"}"#, Request::Off { machine: "n1".into() }),
            (r#"{"op":"list"}"#, Request::List),
            (r#"{"op":"heal"}"#, Request::Heal { target: None }),
            (
                r#"{"op":"cut","target":{"kind":"rack","rack":"r1"}}"#,
                Request::Cut(Cut::new(Target::Rack { rack: "r1".into() })),
            ),
            (
                r#"{"op":"bmc-address","machine":"n1","present":false}"#,
                Request::BmcAddress { machine: "n1".into(), present: false },
            ),
        ];
        for (text, request) in cases {
            assert_eq!(serde_json::from_str::<Request>(text).unwrap(), request, "{text}");
            let again = serde_json::to_string(&request).unwrap();
            assert_eq!(serde_json::from_str::<Request>(&again).unwrap(), request, "{again}");
        }
    }
}
