//! The judges of a lab: seven questions that are answered from what truly happened and never from what Coroner says
//! of itself.
//!
//! ```text
//!   truth.jsonl   what became of the machines          --+
//!   ledger.jsonl  what the BMCs were asked             --+
//!   power.jsonl   what the BMCs did to the machines    --+--> Record --> Finding, Finding, ...
//!   writes/       who wrote to which volume, and when  --+
//!   audit.jsonl   what the API server was told, by whom--+
//!   api.jsonl     what a watch of our own saw          --+
//! ```
//!
//! Pure but for [`record`], which reads the files. All instants are `CLOCK_BOOTTIME` in ns; what the API server stamps
//! with its wall clock is brought there by [`clock`]. The decision that a power command must rest on is read from the
//! Incident resources: nobody else can say what was decided, and the oracle compares it with the machine's true UUID.

pub mod audit;
pub mod blast;
pub mod clock;
pub mod live_fenced;
pub mod lives;
pub mod lost;
pub mod record;
pub mod released;
pub mod rights;
pub mod second_off;
pub mod stages;
pub mod traces;
pub mod victims;
pub mod watched;
pub mod writers;

use serde::{Deserialize, Serialize};

pub use self::record::Record;

#[cfg(test)]
mod fixture;

/// Something that must never be.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The oracle's name.
    pub oracle: String,
    /// When, `CLOCK_BOOTTIME` in ns.
    pub t: u64,
    /// What happened, with names.
    pub what: String,
}

/// A judge.
pub struct Oracle {
    /// Its name, as in the results.
    pub name: &'static str,
    /// What it holds to be true, for people.
    pub holds: &'static str,
    judge: fn(&Record) -> Vec<(u64, String)>,
}

/// All judges of a [`Record`]. Whether a returned Node is as it was before is asked by [`traces::differences`], which
/// needs both Nodes in hand.
pub const ORACLES: [Oracle; 7] = [
    Oracle {
        name: "double_writers",
        holds: "no instant at which one workload writes from two machines",
        judge: writers::judge,
    },
    Oracle {
        name: "wrong_victims",
        holds: "no power command to a machine other than the one of a committed decision",
        judge: victims::judge,
    },
    Oracle {
        name: "released_while_running",
        holds: "when the taint is written nothing of that life can run any more",
        judge: released::judge,
    },
    Oracle {
        name: "live_fenced",
        holds: "no machine that lives and can be heard is turned off",
        judge: live_fenced::judge,
    },
    Oracle {
        name: "blast",
        holds: "never more machines down by our hand than the brakes allow",
        judge: blast::judge,
    },
    Oracle {
        name: "second_offs",
        holds: "at most one turn from On to Off for each life of a machine",
        judge: second_off::judge,
    },
    Oracle { name: "lost", holds: "every decision has ended, or visibly waits", judge: lost::judge },
];

// === impl Oracle ===

impl Oracle {
    /// What it finds.
    #[must_use]
    pub fn findings(&self, record: &Record) -> Vec<Finding> {
        let found = (self.judge)(record);
        found.into_iter().map(|(t, what)| Finding { oracle: self.name.to_owned(), t, what }).collect()
    }
}

/// What all of them find.
#[must_use]
pub fn findings(record: &Record) -> Vec<Finding> {
    ORACLES.iter().flat_map(|oracle| oracle.findings(record)).collect()
}
