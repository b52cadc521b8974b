//! Hand-made records for the oracles' own tests: two machines in two racks, and whatever a test adds.

use serde_json::{Value, json};

use super::{
    Record,
    clock::{Clock, Sample},
    lives::Lives,
    record::{Limits, Machine},
    watched::{Change, Kind, PodSeen, Seen},
};
use crate::lab::{
    emulator::ledger::{Entry, PowerEvent, PowerStep},
    truth::Line,
    writer::Stamp,
};

/// Seconds as the records have them.
pub(super) fn s(seconds: u64) -> u64 {
    seconds * 1_000_000_000
}

/// n1 in r1 and n2 in r2, on since 1 s as boots `n1-a` and `n2-a`; nothing else happened. Both host a replica.
pub(super) fn calm() -> Record {
    let machine = |name: &str, rack: &str| Machine {
        name: name.to_owned(),
        uuid: uuid(name),
        rack: rack.to_owned(),
        arbiter: true,
    };
    Record {
        machines: vec![machine("n1", "r1"), machine("n2", "r2"), machine("n3", "r2")],
        lives: Lives::new(&[
            line(1, "n1", "n1-a", "on", Value::Null),
            line(1, "n2", "n2-a", "on", Value::Null),
            line(1, "n3", "n3-a", "on", Value::Null),
        ]),
        ledger: Vec::new(),
        power: Vec::new(),
        writes: std::collections::BTreeMap::new(),
        tainted: Vec::new(),
        seen: Vec::new(),
        clock: Clock::new(vec![Sample { t: 0, wall: 0 }]),
        limits: Limits { floor: 2, in_flight: 2, per_domain: 1 },
        orders: Vec::new(),
    }
}

/// The UUID of a machine.
pub(super) fn uuid(name: &str) -> String {
    format!("00000000-0000-4000-8000-0000000000{name}")
}

/// What the machines' lives were, besides that they are on since 1 s.
pub(super) fn with_truth(mut record: Record, lines: &[Line]) -> Record {
    let on = ["n1", "n2", "n3"].map(|name| line(1, name, &format!("{name}-a"), "on", Value::Null));
    let all: Vec<Line> = on.into_iter().chain(lines.iter().cloned()).collect();
    record.lives = Lives::new(&all);
    record
}

/// A line of truth, at that second.
#[expect(clippy::needless_pass_by_value, reason = "always made for this call")]
pub(super) fn line(second: u64, machine: &str, boot_id: &str, event: &str, detail: Value) -> Line {
    let line =
        json!({ "t": s(second), "machine": machine, "boot_id": boot_id, "event": event, "detail": detail });
    serde_json::from_value(line).unwrap()
}

/// A step of a BMC's, by the session `s1`.
pub(super) fn step(second: u64, machine: &str, event: PowerStep) -> PowerEvent {
    PowerEvent { t: s(second), bmc: machine.to_owned(), true_uuid: uuid(machine), event, by: "s1".to_owned() }
}

/// A power command in the ledger.
pub(super) fn command(second: u64, bmc: &str, victim: &str, kind: &str) -> Entry {
    Entry {
        t: s(second),
        bmc: bmc.to_owned(),
        address: "a".to_owned(),
        true_uuid: uuid(victim),
        session: Some("s1".to_owned()),
        method: "POST".to_owned(),
        path: "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset".to_owned(),
        body: Some(json!({ "ResetType": kind })),
        status: 204,
        shown: None,
        true_power: None,
    }
}

/// An Incident as the watch saw it at that second.
#[expect(clippy::needless_pass_by_value, reason = "always made for this call")]
pub(super) fn incident(second: u64, name: &str, node: &str, status: Value) -> Seen {
    Seen {
        t: s(second),
        kind: Kind::Incident,
        name: name.to_owned(),
        uid: name.to_owned(),
        change: Change::Applied,
        object: json!({
            "spec": { "nodeName": node, "machineID": uuid(node), "bootID": format!("{node}-a") },
            "status": status,
        }),
    }
}

/// A pod as the watch saw it.
pub(super) fn pod(second: u64, name: &str, uid: &str, change: Change, pod: &PodSeen) -> Seen {
    Seen {
        t: s(second),
        kind: Kind::Pod,
        name: name.to_owned(),
        uid: uid.to_owned(),
        change,
        object: pod.kept(),
    }
}

/// A running pod on that node.
pub(super) fn running(node: &str) -> PodSeen {
    PodSeen { node: node.to_owned(), phase: "Running".to_owned(), ready: true, ..PodSeen::default() }
}

/// A stamp on a volume.
pub(super) fn stamp(second: u64, workload: &str, machine: &str, boot_id: &str) -> Stamp {
    Stamp {
        t: s(second),
        workload: workload.to_owned(),
        machine: machine.to_owned(),
        boot_id: boot_id.to_owned(),
        run: 1,
    }
}
