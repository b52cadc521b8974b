//! Everything that the oracles read of one lab, in memory.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::{
    audit::{self, Tainted},
    clock::Clock,
    lives::Lives,
    watched::Seen,
};
use crate::lab::{
    Plan,
    emulator::ledger::{self, Entry, PowerEvent},
    truth,
    writer::{self, Stamp},
};

/// A machine, as the oracles know it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Machine {
    /// Node name.
    pub name: String,
    /// What its firmware says.
    pub uuid: String,
    /// Failure domain.
    pub rack: String,
    /// Whether a replica runs there.
    pub arbiter: bool,
}

/// What the policy of the lab allows, as far as an oracle can see it from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Machines that we turned off and that have not come back, at once.
    pub floor: usize,
    /// Of them those whose taint is not written yet.
    pub in_flight: usize,
    /// Of the latter in one rack.
    pub per_domain: usize,
}

/// What a test declared beforehand: somebody ordered this machine off although it may be well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    /// When the order was given, `CLOCK_BOOTTIME` in ns.
    pub t: u64,
    /// The machine.
    pub machine: String,
}

/// Everything that the oracles read.
#[derive(Clone, Debug)]
pub struct Record {
    /// Who is there.
    pub machines: Vec<Machine>,
    /// What became of them.
    pub lives: Lives,
    /// What the BMCs were asked.
    pub ledger: Vec<Entry>,
    /// What the BMCs did to the machines.
    pub power: Vec<PowerEvent>,
    /// The stamps of each volume.
    pub writes: BTreeMap<String, Vec<Stamp>>,
    /// When the out-of-service taint came onto a Node.
    pub tainted: Vec<Tainted>,
    /// What our own watch saw.
    pub seen: Vec<Seen>,
    /// From wall time to ours.
    pub clock: Clock,
    /// What the policy allows.
    pub limits: Limits,
    /// What was ordered.
    pub orders: Vec<Order>,
}

/// Names of the files of a lab that its watch and its tests add to those of the lab itself.
pub mod files {
    /// What our own watch saw.
    pub const SEEN: &str = "api.jsonl";
    /// Looks at both clocks.
    pub const CLOCK: &str = "clock.jsonl";
    /// Orders that a test gave.
    pub const ORDERS: &str = "orders.jsonl";
}

// === impl Record ===

impl Record {
    /// Reads the files of the lab of that plan, as they are at this moment.
    ///
    /// # Errors
    /// When one of them cannot be read, or is not what it should be.
    pub fn read(plan: &Plan, limits: Limits) -> Result<Self> {
        let state = plan.names.state();
        let bmcs = state.join("bmcs");
        let clock = Clock::read(&state.join(files::CLOCK))?;
        Ok(Self {
            machines: plan
                .machines
                .iter()
                .map(|m| Machine {
                    name: m.name.clone(),
                    uuid: m.uuid.clone(),
                    rack: m.rack.clone(),
                    arbiter: m.bmc_link_address.is_some(),
                })
                .collect(),
            lives: Lives::new(&truth::read(&plan.names.truth())?),
            ledger: lines(&bmcs.join("ledger.jsonl"))?,
            power: lines(&bmcs.join("power.jsonl"))?,
            writes: writes(&plan.names.volumes())?,
            tainted: audit::read(&plan.names.audit(), &clock)?,
            seen: lines(&state.join(files::SEEN))?,
            clock,
            limits,
            orders: lines_if_there(&state.join(files::ORDERS))?,
        })
    }

    /// The machine of that UUID.
    #[must_use]
    pub fn machine_of(&self, uuid: &str) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.uuid.eq_ignore_ascii_case(uuid))
    }

    /// The machine of that name.
    #[must_use]
    pub fn machine(&self, name: &str) -> Option<&Machine> {
        self.machines.iter().find(|machine| machine.name == name)
    }

    /// Whether somebody had ordered that machine off by then.
    #[must_use]
    pub fn ordered(&self, machine: &str, t: u64) -> bool {
        self.orders.iter().any(|order| order.machine == machine && order.t <= t)
    }
}

// === helpers ===

fn lines<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    ledger::read(path).with_context(|| format!("read {}", path.display()))
}

fn lines_if_there<T: serde::de::DeserializeOwned>(path: &Path) -> Result<Vec<T>> {
    if path.exists() { lines(path) } else { Ok(Vec::new()) }
}

fn writes(volumes: &Path) -> Result<BTreeMap<String, Vec<Stamp>>> {
    let mut all = BTreeMap::new();
    let Ok(entries) = fs::read_dir(volumes) else { return Ok(all) };
    for volume in entries.flatten() {
        let path = volume.path().join(writer::FILE);
        if path.exists() {
            let stamps = writer::read_stamps(&path).with_context(|| format!("read {}", path.display()))?;
            all.insert(volume.file_name().to_string_lossy().into_owned(), stamps);
        }
    }
    Ok(all)
}
