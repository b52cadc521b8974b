//! How long each stage of a death took: from the instant at which the machine fell silent.
//!
//! That instant is when its power began to go, or when it began to hang: its last beacon left at most one beacon
//! period (250 ms) before, which nobody outside can see, so every stage reads up to 250 ms less than from the beacon.
//! The stages come from different witnesses: `decided` and `proven` from the Incident, `tainted` from the API server's
//! audit log, `running` from our own watch.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::{
    Record,
    watched::{Change, Kind},
};

/// Milliseconds from silence; an absent stage is null.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// To the committed decision.
    pub decided: Option<u64>,
    /// To the committed proof.
    pub proven: Option<u64>,
    /// To the answer to the patch that wrote the taint.
    pub tainted: Option<u64>,
    /// To the moment at which the watch saw the replacement Running on another node.
    pub running: Option<u64>,
}

/// The death of one life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Death {
    /// The machine.
    pub machine: String,
    /// The life that ended, or hung.
    pub boot_id: String,
    /// When it fell silent, `CLOCK_BOOTTIME` in ns.
    pub silent: u64,
    /// Pods whose replacements are waited for: name and old uid.
    pub pods: Vec<(String, String)>,
}

// === impl Stages ===

impl Stages {
    /// The stages of that death, as far as the record goes.
    #[must_use]
    pub fn of(record: &Record, death: &Death) -> Self {
        let ms = |t: u64| t.saturating_sub(death.silent) / 1_000_000;
        let of_incident = |key: &str| {
            let mut copies = record.seen.iter().filter(|seen| {
                let spec = &seen.object["spec"];
                seen.kind == Kind::Incident
                    && spec["nodeName"] == death.machine.as_str()
                    && spec["bootID"] == death.boot_id.as_str()
            });
            let stamp = |value: &Value| record.clock.of_stamp(value.as_str()?);
            // The first copy: a later leader counts the time before its own from the log, which is less exact.
            copies.find_map(|seen| stamp(&seen.object["status"][key])).map(ms)
        };
        let tainted = record.tainted.iter().find(|tainted| {
            tainted.node == death.machine
                && tainted.boot_id == death.boot_id
                && tainted.received >= death.silent
        });
        Self {
            decided: of_incident("decidedAt"),
            proven: of_incident("provenAt"),
            tainted: tainted.map(|tainted| ms(tainted.done)),
            running: running(record, death).map(ms),
        }
    }
}

/// When the last of the replacements ran; `None` while one is missing.
fn running(record: &Record, death: &Death) -> Option<u64> {
    let mut last = None;
    for (name, old) in &death.pods {
        let first = record.seen.iter().find(|seen| {
            seen.t >= death.silent
                && seen.change == Change::Applied
                && seen.name == *name
                && seen.uid != *old
                && seen
                    .pod()
                    .is_some_and(|pod| pod.phase == "Running" && pod.node != death.machine && !pod.deleting)
        })?;
        last = last.max(Some(first.t));
    }
    last
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::oracles::{
        audit::Tainted,
        fixture::{calm, incident, pod, running, s},
        watched::PodSeen,
    };

    #[test]
    fn each_stage_has_its_own_witness_and_an_absent_one_is_null() {
        let death = Death {
            machine: "n1".into(),
            boot_id: "n1-a".into(),
            silent: s(10),
            pods: vec![("default/w-0".into(), "old".into())],
        };
        let mut record = calm();
        assert_eq!(Stages::of(&record, &death), Stages::default());
        let status =
            json!({ "decidedAt": "1970-01-01T00:00:12.500Z", "provenAt": "1970-01-01T00:00:16.750Z" });
        let pending = PodSeen { phase: "Pending".into(), ..running("n2") };
        record.seen = vec![
            incident(13, "n1-1", "n1", json!({ "decidedAt": "1970-01-01T00:00:12.500Z" })),
            incident(17, "n1-1", "n1", status),
            pod(18, "default/w-0", "new", Change::Applied, &pending),
            pod(18, "default/w-0", "same", Change::Applied, &running("n1")),
            pod(19, "default/w-0", "new", Change::Applied, &running("n2")),
        ];
        record.tainted = vec![Tainted {
            node: "n1".into(),
            boot_id: "n1-a".into(),
            bound: true,
            user: "u".into(),
            received: s(17),
            done: s(17) + 20_000_000,
        }];
        let stages = Stages::of(&record, &death);
        let want =
            Stages { decided: Some(2500), proven: Some(6750), tainted: Some(7020), running: Some(9000) };
        assert_eq!(stages, want);
        assert_eq!(Stages::of(&record, &Death { boot_id: "n1-b".into(), ..death }).decided, None);
    }
}
