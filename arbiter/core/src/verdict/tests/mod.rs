//! The decision rule: every rule, every refusal, every boundary.

mod property;
mod rows;

use coroner_shared::beacon::{Answer, Path, ProbeOutcome};
use coroner_shared::id::{BootId, Incarnation, NodeName, NodeUid, ReplicaId};
use coroner_shared::machine_id::MachineId;
use coroner_shared::time::Span;

use crate::view::*;

pub(crate) const BOOT: BootId = BootId::from_bytes([1; 16]);

pub(crate) fn ms(ms: u64) -> Span {
    Span::from_ms(ms)
}

fn secs(s: u64) -> Span {
    Span::from_secs(s)
}

fn name(name: &str) -> NodeName {
    name.parse().unwrap()
}

fn replica(id: u64) -> ReplicaId {
    ReplicaId::new(id).unwrap()
}

/// A host of 20 that fell silent 10 s ago, with its 8 observers (two in its own rack r0, two each in r1, r2, r3) silent,
/// three probers without an answer, a BMC that says On to three replicas, and a Lease that has not moved for 20 s: dead.
pub(crate) fn dead_host() -> View {
    View {
        node: name("victim"),
        incarnation: Incarnation {
            node: NodeUid::new("uid").unwrap(),
            machine: MachineId::from_bytes([7; 16]).unwrap(),
            boot: BOOT,
        },
        leader: replica(1),
        term: 3,
        own_host: false,
        members: 20,
        last_sign: Some(Sign { age: secs(10), held_by: "replica 2".into(), beacon: Some((BOOT, 5)) }),
        group_age: Span::from_mins(60),
        observers: (0..8).map(|i| observer(i, &format!("r{}", i / 2))).collect(),
        domain: "r0".into(),
        probes: (0..3).map(prober).collect(),
        bmc: (1..=3).map(|r| bmc(r, BmcRead::On)).collect(),
        sibling_answers: Some(true),
        lease: LeaseView {
            readable: true,
            changed_ago: Some(secs(20)),
            watched_for: Span::from_mins(60),
            interval: secs(10),
        },
        fleet: FleetView {
            others_alive: 19,
            unexplained: 0,
            partial: 0,
            quorum: true,
            domain_members: 5,
            domain_silent: 1,
            correlated_for: None,
            storm_members: 1,
            storm_domains: 1,
        },
        goodbye: None,
        untold: None,
        duplicate: false,
    }
}

fn observer(i: usize, domain: &str) -> ObserverView {
    ObserverView {
        node: name(&format!("o{i}")),
        domain: domain.into(),
        standing: Standing::Eligible,
        said: Said::Silent { silent: secs(10) },
        probes: Vec::new(),
    }
}

fn prober(i: usize) -> ProbeView {
    ProbeView {
        prober: name(&format!("p{i}")),
        asked_ago: ms(2000),
        outcomes: vec![
            outcome(Answer::Nothing, 2000),
            ProbeOutcome { path: Path::Ping, ..outcome(Answer::Nothing, 2000) },
        ],
        answered: true,
    }
}

fn outcome(answer: Answer, asked_ago: u64) -> ProbeOutcome {
    ProbeOutcome { path: Path::Kubelet, answer, asked_ago: ms(asked_ago), worked_ago: Some(secs(60)) }
}

fn bmc(by: u64, read: BmcRead) -> BmcView {
    BmcView { replica: replica(by), read, steady: true, age: ms(300) }
}

/// All replicas read this.
fn all_read(view: &mut View, read: &BmcRead) {
    view.bmc = (1..=3).map(|r| bmc(r, read.clone())).collect();
}

/// All replicas read Off, twice over half a second.
fn off(view: &mut View) {
    all_read(view, &BmcRead::Off { reads: 2, over: ms(500) });
}

fn silent_for(view: &mut View, age: u64) {
    if let Some(sign) = &mut view.last_sign {
        sign.age = ms(age);
    }
    for observer in &mut view.observers {
        observer.said = Said::Silent { silent: ms(age) };
    }
}
