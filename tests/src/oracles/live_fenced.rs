//! No live kill: no machine that runs and whose beacons leave its rack is turned off by our hand, unless a test
//! declared that somebody ordered it.
//!
//! What counts is what the BMC truly did, so a command that did nothing is no kill. A machine that came back less than
//! [`GRACE_NS`] before is none either: its first beacon may be under way.

use super::{Record, lives::Condition};
use crate::lab::emulator::ledger::PowerStep;

/// The last look may be 500 ms old, and replicas hear a beacon once a second.
const GRACE_NS: u64 = 1_500_000_000;

pub(super) fn judge(record: &Record) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    let offs = record.power.iter().filter(|step| step.event == PowerStep::OffBegin && step.by != "restore");
    for step in offs {
        let Some(machine) = record.machine_of(&step.true_uuid) else { continue };
        let lived = [step.t.saturating_sub(GRACE_NS), step.t]
            .map(|t| record.lives.condition(&machine.name, &machine.rack, t));
        if lived == [Condition::Lives, Condition::Lives] && !record.ordered(&machine.name, step.t) {
            let what =
                format!("the BMC {} turned off {}, which lived and could be heard", step.bmc, machine.name);
            found.push((step.t, what));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::oracles::{
        fixture::{calm, line, s, step, with_truth},
        record::Order,
    };

    #[test]
    fn a_machine_that_can_be_heard_is_not_turned_off() {
        let cut = |target: Value, direction: &str| json!({ "begin_t": s(10), "cut": { "target": target, "direction": direction } });
        let frozen = line(10, "n1", "n1-a", "frozen", json!({ "begin_t": s(10) }));
        let link = json!({ "kind": "link", "machine": "n1" });
        let table = [
            ("calm", vec![], true),
            ("hangs", vec![frozen.clone()], false),
            (
                "went on long before",
                vec![frozen.clone(), line(15, "n1", "n1-a", "thawed", Value::Null)],
                true,
            ),
            ("went on just before", vec![frozen, line(19, "n1", "n1-a", "thawed", Value::Null)], false),
            ("cut off", vec![line(10, "n1", "n1-a", "cut", cut(link.clone(), "both"))], false),
            ("heard, though it hears nothing", vec![line(10, "n1", "n1-a", "cut", cut(link, "in"))], true),
            (
                "cut from one peer only",
                vec![line(
                    10,
                    "n1",
                    "n1-a",
                    "cut",
                    cut(json!({"kind":"pair","machine":"n1","peer":"n2"}), "both"),
                )],
                true,
            ),
            (
                "cut from the API server only",
                vec![line(10, "n1", "n1-a", "cut", cut(json!({"kind":"api","machine":"n1"}), "both"))],
                true,
            ),
        ];
        for (name, lines, kill) in table {
            let mut record = with_truth(calm(), &lines);
            record.power = vec![step(20, "n1", PowerStep::OffBegin)];
            assert_eq!(judge(&record).len(), usize::from(kill), "{name}: {:?}", judge(&record));
        }
    }

    #[test]
    fn an_order_excuses_and_only_from_when_it_was_given() {
        let mut record = calm();
        record.power = vec![step(20, "n1", PowerStep::OffBegin)];
        let mut judged = |t: u64, machine: &str| {
            record.orders = vec![Order { t: s(t), machine: machine.to_owned() }];
            judge(&record).len()
        };
        assert_eq!((judged(19, "n1"), judged(21, "n1"), judged(19, "n2")), (0, 1, 1));
    }
}
