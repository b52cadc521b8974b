//! Release implies over: at the instant at which the API server had the taint in its hands, nothing of the named life
//! could run any more; and no pod of it is started again on that machine before its object is gone.

use super::{
    Record,
    audit::Tainted,
    watched::{Change, Kind},
};
use crate::lab::emulator::ledger::PowerStep;

pub(super) fn judge(record: &Record) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    for tainted in &record.tainted {
        found.extend(still_running(record, tainted).map(|what| (tainted.received, what)));
        found.extend(started_again(record, tainted));
    }
    found
}

fn still_running(record: &Record, tainted: &Tainted) -> Option<String> {
    let Tainted { node, boot_id, user, bound, .. } = tainted;
    if !bound {
        return Some(format!("{user} wrote the taint on {node} without a test of its boot id"));
    }
    let Some(life) = record.lives.life(node, boot_id) else {
        return Some(format!("{user} wrote the taint on {node} for boot {boot_id}, which it never had"));
    };
    match life.off_done {
        Some(end) if end <= tainted.received => None,
        Some(end) => {
            let ms = (end - tainted.received) / 1_000_000;
            Some(format!("{user} wrote the taint on {node}, whose boot {boot_id} ran for another {ms} ms"))
        }
        None => {
            Some(format!("{user} wrote the taint on {node}, whose boot {boot_id} is not over to this day"))
        }
    }
}

/// Of the pods that were on the node when it was tainted: whether each object was gone before anybody of ours gave the
/// machine power, and before it wrote from a later life of the same machine.
fn started_again(record: &Record, tainted: &Tainted) -> Vec<(u64, String)> {
    let mut found = Vec::new();
    for (name, uid) in pods_at(record, tainted) {
        let gone = record
            .seen
            .iter()
            .find(|seen| seen.kind == Kind::Pod && seen.uid == uid && seen.change == Change::Gone)
            .map_or(u64::MAX, |seen| seen.t);
        let powered = record.power.iter().find(|step| {
            step.event == PowerStep::OnBegin
                && step.by != "restore"
                && record.machine_of(&step.true_uuid).is_some_and(|m| m.name == tainted.node)
                && (tainted.received..gone).contains(&step.t)
        });
        if let Some(step) = powered {
            let what = format!("{} got power while the object of pod {name} was still there", tainted.node);
            found.push((step.t, what));
        }
        let workload = name.rsplit('/').next().unwrap_or_default();
        let wrote = record.writes.values().flatten().find(|stamp| {
            stamp.workload == workload
                && stamp.machine == tainted.node
                && stamp.boot_id != tainted.boot_id
                && (tainted.received..gone).contains(&stamp.t)
        });
        if let Some(stamp) = wrote {
            let what = format!(
                "{workload} writes on {} again (boot {}) while the object of its old pod is still there",
                tainted.node, stamp.boot_id
            );
            found.push((stamp.t, what));
        }
    }
    found
}

/// Pods that a release of the node concerns, as the watch knew them when the taint was written: name and uid.
fn pods_at(record: &Record, tainted: &Tainted) -> Vec<(String, String)> {
    let mut pods: Vec<(String, String)> = Vec::new();
    for seen in record.seen.iter().filter(|seen| seen.kind == Kind::Pod && seen.t <= tainted.received) {
        pods.retain(|(_, uid)| *uid != seen.uid);
        let concerns = seen.pod().is_some_and(|pod| pod.node == tainted.node && !pod.stays);
        if seen.change == Change::Applied && concerns {
            pods.push((seen.name.clone(), seen.uid.clone()));
        }
    }
    pods
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::oracles::{
        fixture::{calm, line, pod, running, s, stamp, step, with_truth},
        watched::PodSeen,
    };

    fn tainted(second: u64, boot_id: &str) -> Tainted {
        Tainted {
            node: "n1".into(),
            boot_id: boot_id.into(),
            bound: true,
            user: "arbiter".into(),
            received: s(second),
            done: s(second) + 1,
        }
    }

    /// n1 loses power at 10 s and is off at 11 s; w-0 ran there and its object goes at 15 s.
    fn dead() -> Record {
        let mut record = with_truth(
            calm(),
            &[
                line(10, "n1", "n1-a", "off_begin", Value::Null),
                line(11, "n1", "n1-a", "off_done", Value::Null),
            ],
        );
        record.seen = vec![
            pod(2, "default/w-0", "u0", Change::Applied, &running("n1")),
            pod(2, "coroner/agent-x", "u1", Change::Applied, &PodSeen { stays: true, ..running("n1") }),
            pod(2, "default/w-1", "u2", Change::Applied, &running("n2")),
            pod(15, "default/w-0", "u0", Change::Gone, &PodSeen::default()),
        ];
        record
    }

    #[test]
    fn the_named_life_must_be_over_when_the_taint_is_written() {
        let mut record = dead();
        let table = [
            (tainted(12, "n1-a"), None),
            (tainted(11, "n1-a"), None),
            (Tainted { received: s(11) - 1, ..tainted(11, "n1-a") }, Some("ran for another")),
            (tainted(12, "n1-z"), Some("never had")),
            (Tainted { node: "n2".into(), ..tainted(12, "n2-a") }, Some("not over")),
            (Tainted { bound: false, ..tainted(12, "n1-a") }, Some("without a test")),
        ];
        for (tainted, want) in table {
            record.tainted = vec![tainted.clone()];
            let found = judge(&record);
            match want {
                None => assert!(found.is_empty(), "{tainted:?}: {found:?}"),
                Some(word) => {
                    assert!(found.len() == 1 && found[0].1.contains(word), "{tainted:?}: {found:?}");
                }
            }
        }
    }

    #[test]
    fn no_pod_starts_again_before_its_object_is_gone() {
        let mut record = dead();
        record.tainted = vec![tainted(12, "n1-a")];
        record.power = vec![step(16, "n1", PowerStep::OnBegin)];
        record.writes.insert("default-w-0".into(), vec![stamp(20, "w-0", "n1", "n1-b")]);
        assert!(judge(&record).is_empty(), "power after the object is gone");
        record.power = vec![step(14, "n1", PowerStep::OnBegin)];
        assert!(judge(&record)[0].1.contains("got power while"));
        record.power.clear();
        record.writes.insert("default-w-0".into(), vec![stamp(14, "w-0", "n1", "n1-b")]);
        assert!(judge(&record)[0].1.contains("writes on n1 again"));
    }
}
