//! No wrong victim: every power command reaches the machine that a committed decision names, while that decision
//! stands.
//!
//! The command's victim is the true machine behind the path, as the BMC knows it, whatever the binding, the address or
//! the answer said. The decision is that of an Incident: its node's machine, from its decision to its end.

use serde_json::Value;

use super::{
    Record,
    watched::{Kind, Seen},
};
use crate::lab::emulator::ledger::Entry;

/// The stamps of an Incident have milliseconds, and the wall clock is read a moment after the log's.
const TOLERANCE_NS: u64 = 50_000_000;

/// What a committed decision covers.
struct Decided {
    machine: String,
    from: u64,
    to: Option<u64>,
}

pub(super) fn judge(record: &Record) -> Vec<(u64, String)> {
    let decided = decisions(record);
    let mut found = Vec::new();
    for entry in record.ledger.iter().filter(|entry| is_power_command(entry)) {
        let kind = entry.body.as_ref().map_or("?", |body| body["ResetType"].as_str().unwrap_or("?"));
        let Some(victim) = record.machine_of(&entry.true_uuid) else {
            found.push((entry.t, format!("{kind} to a machine that nobody knows, {}", entry.true_uuid)));
            continue;
        };
        let covered = decided.iter().any(|decided| {
            decided.machine == victim.name
                && decided.from <= entry.t.saturating_add(TOLERANCE_NS)
                && decided.to.is_none_or(|end| entry.t <= end.saturating_add(TOLERANCE_NS))
        });
        if !covered {
            found.push((
                entry.t,
                format!(
                    "{kind} through the BMC {} to {}, of which nothing was decided then",
                    entry.bmc, victim.name
                ),
            ));
        }
    }
    found
}

/// A command to a machine's power, whatever became of it.
pub(super) fn is_power_command(entry: &Entry) -> bool {
    entry.method == "POST"
        && (entry.path.contains("ComputerSystem.Reset")
            || entry.body.as_ref().is_some_and(|body| body["ResetType"].is_string()))
}

fn decisions(record: &Record) -> Vec<Decided> {
    let mut all: Vec<(&str, Decided)> = Vec::new();
    for seen in record.seen.iter().filter(|seen| seen.kind == Kind::Incident) {
        let Some(decided) = decision(record, seen) else { continue };
        match all.iter_mut().find(|(name, _)| *name == seen.name) {
            // The first statement of when it was decided counts, the last of when it ended.
            Some((_, known)) => known.to = decided.to,
            None => all.push((&seen.name, decided)),
        }
    }
    all.into_iter().map(|(_, decided)| decided).collect()
}

fn decision(record: &Record, seen: &Seen) -> Option<Decided> {
    let (spec, status) = (&seen.object["spec"], &seen.object["status"]);
    let stamp = |value: &Value| value.as_str().and_then(|text| record.clock.of_stamp(text));
    // By the machine's identity, not by the node's name: that is what was decided about.
    let machine = record.machine_of(spec["machineID"].as_str()?)?;
    if spec["nodeName"].as_str() != Some(&machine.name) {
        return None;
    }
    Some(Decided {
        machine: machine.name.clone(),
        from: stamp(&status["decidedAt"])?,
        to: stamp(&status["closedAt"]),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::oracles::fixture::{calm, command, incident, uuid};

    #[test]
    fn a_command_needs_a_decision_about_that_very_machine() {
        let decided = json!({ "phase": "Fencing", "decidedAt": "1970-01-01T00:00:10.000Z" });
        let closed = json!({ "phase": "Closed", "decidedAt": "1970-01-01T00:00:10.900Z",
            "closedAt": "1970-01-01T00:00:20.000Z" });
        let mut record = calm();
        record.seen = vec![incident(11, "n1-1", "n1", decided), incident(21, "n1-1", "n1", closed)];
        let table = [
            ("the decided one", command(12, "n1", "n1", "ForceOff"), true),
            ("power on is a command too", command(12, "n1", "n1", "On"), true),
            ("before the decision", command(9, "n1", "n1", "ForceOff"), false),
            ("after its end", command(22, "n1", "n1", "ForceOff"), false),
            ("the other one's machine behind that address", command(12, "n1", "n2", "ForceOff"), false),
            ("nobody's machine", command(12, "n1", "xx", "ForceOff"), false),
        ];
        for (name, entry, good) in table {
            record.ledger = vec![entry];
            assert_eq!(judge(&record).is_empty(), good, "{name}: {:?}", judge(&record));
        }
    }

    #[test]
    fn a_refused_command_counts_and_a_reading_does_not() {
        let mut record = calm();
        let mut refused = command(5, "n1", "n1", "ForceOff");
        refused.status = 409;
        let mut reading = command(5, "n1", "n1", "ForceOff");
        (reading.method, reading.path, reading.body) = ("GET".into(), "/redfish/v1/Systems/1".into(), None);
        record.ledger = vec![refused, reading];
        assert_eq!(judge(&record).len(), 1);
    }

    #[test]
    fn a_decision_that_names_another_machine_than_the_nodes_covers_nothing() {
        let decided = json!({ "phase": "Fencing", "decidedAt": "1970-01-01T00:00:10.000Z" });
        let mut record = calm();
        let mut wrong = incident(11, "n1-1", "n1", decided);
        wrong.object["spec"]["machineID"] = json!(uuid("n2"));
        record.seen = vec![wrong];
        record.ledger = vec![command(12, "n2", "n2", "ForceOff")];
        assert_eq!(judge(&record).len(), 1);
    }
}
