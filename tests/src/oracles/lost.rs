//! Nothing lost: every decision that anybody could see has ended, or says what it waits for; and none vanishes.

use std::collections::BTreeMap;

use super::{
    Record,
    watched::{Change, Kind, Seen},
};

pub(super) fn judge(record: &Record) -> Vec<(u64, String)> {
    let mut last: BTreeMap<&str, (&Seen, &str)> = BTreeMap::new();
    let mut found = Vec::new();
    for seen in record.seen.iter().filter(|seen| seen.kind == Kind::Incident) {
        match seen.change {
            Change::Applied => {
                let phase = seen.object["status"]["phase"].as_str().unwrap_or_default();
                last.insert(&seen.name, (seen, phase));
            }
            Change::Gone => match last.remove(seen.name.as_str()) {
                Some((_, "Closed")) | None => {}
                Some((_, phase)) => {
                    found.push((seen.t, format!("incident {} is gone though it was {phase}", seen.name)));
                }
            },
        }
    }
    for (name, (seen, phase)) in last {
        let status = &seen.object["status"];
        let says = |key: &str| status[key].as_str().is_some_and(|text| !text.is_empty());
        if phase != "Closed" && !phase.is_empty() && !says("waitingFor") && !says("heldReason") {
            found.push((seen.t, format!("incident {name} is {phase} and does not say what it waits for")));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::oracles::fixture::{calm, incident};

    #[test]
    fn an_incident_ends_or_says_what_it_waits_for() {
        let table = [
            ("ended", json!({ "phase": "Closed" }), true),
            ("waits", json!({ "phase": "Fencing", "waitingFor": "the BMC" }), true),
            ("held", json!({ "phase": "Held", "heldReason": "BmcSilent" }), true),
            ("says nothing", json!({ "phase": "Fencing", "waitingFor": "" }), false),
        ];
        for (name, status, good) in table {
            let mut record = calm();
            record.seen = vec![
                incident(5, "i", "n1", json!({ "phase": "Condemned" })),
                incident(6, "i", "n1", status.clone()),
            ];
            assert_eq!(judge(&record).is_empty(), good, "{name}");
            let mut gone = incident(7, "i", "n1", Value::Null);
            gone.change = Change::Gone;
            record.seen.push(gone);
            assert_eq!(judge(&record).is_empty(), name == "ended", "{name}, and then gone");
        }
    }
}
