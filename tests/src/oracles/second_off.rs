//! The ledger rule: our hand turns one life of a machine from On to Off at most once. A repeated command to a machine
//! that is off, or to one whose BMC did nothing, turns nothing.

use std::collections::BTreeMap;

use super::Record;
use crate::lab::emulator::ledger::PowerStep;

pub(super) fn judge(record: &Record) -> Vec<(u64, String)> {
    let mut turned: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    let mut found = Vec::new();
    let offs = record.power.iter().filter(|step| step.event == PowerStep::OffBegin && step.by != "restore");
    for step in offs {
        let Some(machine) = record.machine_of(&step.true_uuid) else { continue };
        let Some(life) = record.lives.life_at(&machine.name, step.t) else { continue };
        let times = turned.entry((&machine.name, &life.boot_id)).or_default();
        *times += 1;
        if *times > 1 {
            found.push((
                step.t,
                format!("{} was turned off {times} times in its boot {}", machine.name, life.boot_id),
            ));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::oracles::fixture::{calm, line, step, with_truth};

    #[test]
    fn a_second_turn_in_one_life_is_found_and_one_in_the_next_life_is_none() {
        let off = PowerStep::OffBegin;
        let mut record = with_truth(
            calm(),
            &[line(12, "n1", "n1-a", "off_done", Value::Null), line(20, "n1", "n1-b", "on", Value::Null)],
        );
        record.power = vec![step(11, "n1", off), step(15, "n1", off), step(21, "n1", off)];
        assert!(judge(&record).is_empty(), "{:?}", judge(&record));
        record.power = vec![step(10, "n1", off), step(11, "n1", off)];
        assert_eq!(judge(&record).len(), 1);
    }
}
