//! Bounded blast: never more machines down by our hand at once than the brakes allow, never more of them in flight in
//! all and in one rack, and never the hosts of two replicas.
//!
//! A machine is down by our hand from the moment its BMC began to turn it off until it next has power; it is in flight
//! until its taint is written.

use std::collections::{BTreeMap, BTreeSet};

use super::{Record, record::Machine};
use crate::lab::emulator::ledger::PowerStep;

/// In this order at one instant: who is through is through before the next one begins.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Change {
    Tainted,
    On,
    OffByUs,
}

#[derive(Default)]
struct Down<'a> {
    down: BTreeSet<&'a str>,
    in_flight: BTreeSet<&'a str>,
}

pub(super) fn judge(record: &Record) -> Vec<(u64, String)> {
    let mut changes: Vec<(u64, Change, &str)> = Vec::new();
    for step in record.power.iter().filter(|step| step.event == PowerStep::OffBegin && step.by != "restore") {
        if let Some(machine) = record.machine_of(&step.true_uuid) {
            changes.push((step.t, Change::OffByUs, &machine.name));
        }
    }
    changes
        .extend(record.tainted.iter().map(|tainted| (tainted.done, Change::Tainted, tainted.node.as_str())));
    changes.extend(record.lives.lives.iter().map(|life| (life.on, Change::On, life.machine.as_str())));
    changes.sort_by_key(|(t, change, _)| (*t, *change));
    let (mut now, mut found) = (Down::default(), Vec::new());
    for (t, change, name) in changes {
        match change {
            Change::Tainted => {
                now.in_flight.remove(name);
            }
            Change::On => {
                now.down.remove(name);
                now.in_flight.remove(name);
            }
            Change::OffByUs => {
                now.down.insert(name);
                now.in_flight.insert(name);
                found.extend(now.too_many(record).into_iter().map(|what| (t, what)));
            }
        }
    }
    found
}

// === impl Down ===

impl Down<'_> {
    fn too_many(&self, record: &Record) -> Vec<String> {
        let machines = |names: &BTreeSet<&str>| -> Vec<&Machine> {
            names.iter().filter_map(|name| record.machine(name)).collect()
        };
        let (down, in_flight) = (machines(&self.down), machines(&self.in_flight));
        let mut racks: BTreeMap<&str, usize> = BTreeMap::new();
        for machine in &in_flight {
            *racks.entry(&machine.rack).or_default() += 1;
        }
        let limits = &record.limits;
        let names = |machines: &[&Machine]| {
            machines.iter().map(|machine| machine.name.as_str()).collect::<Vec<_>>().join(", ")
        };
        let mut found = Vec::new();
        if down.len() > limits.floor {
            found.push(format!("{} are down by our hand, at most {} may be", names(&down), limits.floor));
        }
        if in_flight.len() > limits.in_flight {
            found.push(format!("{} are in flight, at most {} may be", names(&in_flight), limits.in_flight));
        }
        for (rack, count) in racks {
            if count > limits.per_domain {
                let most = limits.per_domain;
                found.push(format!(
                    "{} are in flight, {count} of them in {rack}, at most {most} may be",
                    names(&in_flight)
                ));
            }
        }
        if down.iter().filter(|machine| machine.arbiter).count() > 1 {
            found.push(format!("hosts of two replicas are down by our hand: {}", names(&down)));
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::oracles::{
        audit::Tainted,
        fixture::{calm, line, s, step, with_truth},
        record::Limits,
    };

    #[test]
    fn more_than_allowed_at_once_is_found_in_all_in_a_rack_and_among_replicas() {
        let off = PowerStep::OffBegin;
        let mut record = calm();
        record.machines.iter_mut().for_each(|machine| machine.arbiter = false);
        record.power = vec![step(10, "n1", off), step(11, "n2", off)];
        assert!(judge(&record).is_empty(), "{:?}", judge(&record));
        record.limits = Limits { floor: 1, in_flight: 2, per_domain: 1 };
        assert!(judge(&record)[0].1.contains("down by our hand, at most 1"));
        record.limits = Limits { floor: 2, in_flight: 1, per_domain: 1 };
        assert!(judge(&record)[0].1.contains("in flight, at most 1"));
        record.limits = Limits { floor: 2, in_flight: 2, per_domain: 1 };
        record.power = vec![step(10, "n2", off), step(11, "n3", off)];
        assert!(judge(&record)[0].1.contains("in r2"));
        record = calm();
        record.power = vec![step(10, "n1", off), step(11, "n2", off)];
        assert!(judge(&record)[0].1.contains("two replicas"));
    }

    #[test]
    fn who_has_power_again_is_not_down_and_who_is_tainted_not_in_flight() {
        let off = PowerStep::OffBegin;
        let mut record = with_truth(calm(), &[line(15, "n1", "n1-b", "on", Value::Null)]);
        record.power = vec![step(10, "n1", off), step(16, "n2", off)];
        assert!(judge(&record).is_empty());
        record = calm();
        record.machines.iter_mut().for_each(|machine| machine.arbiter = false);
        record.power = vec![step(10, "n2", off), step(16, "n3", off)];
        record.tainted = vec![Tainted {
            node: "n2".into(),
            boot_id: "n2-a".into(),
            bound: true,
            user: "u".into(),
            received: s(15),
            done: s(15),
        }];
        assert!(judge(&record).is_empty(), "{:?}", judge(&record));
    }
}
