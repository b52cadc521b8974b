//! What counts as heard, who may say so, and what the leader makes of several replicas.

mod checked;
mod pool;
mod trust;
mod witness;

use coroner_shared::beacon::{Beacon, Report, ReportBatch, SelfDoubt, SignedBeacon, Status};
use coroner_shared::health::HealthSummary;
use coroner_shared::id::{BootId, ClusterId, NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::SecretKey;
use coroner_shared::time::{Mono, Span};

use super::summary::NodeSummary;
use super::*;
use crate::judge::tests::world::{World, boot, machine, name};

const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);

/// Six nodes in three racks: everybody observes everybody, H is 4 of 5.
fn state() -> State {
    World::racks(6, 3).state
}

fn at(ms: u64) -> Mono {
    Mono::from_ms(ms)
}

fn span(ms: u64) -> Span {
    Span::from_ms(ms)
}

fn replica(id: u64) -> ReplicaId {
    ReplicaId::new(id).unwrap()
}

fn uid(i: usize) -> NodeUid {
    NodeUid::new(format!("uid-{i}")).unwrap()
}

fn beacon_of(i: usize, boot: BootId, seq: u64) -> Beacon {
    Beacon { node: uid(i), machine: machine(i), boot, seq, health: HealthSummary::GOOD }
}

fn signed(i: usize, seq: u64) -> SignedBeacon {
    SignedBeacon::sign(&beacon_of(i, boot(i, 0), seq), &SecretKey::from_seed(&[1; 32]), CLUSTER).unwrap()
}

fn proven(i: usize, seq: u64) -> Proven {
    Proven::trusted(beacon_of(i, boot(i, 0), seq))
}

/// One replica's witness, and what agents tell it.
struct Heard {
    witness: Witness,
    state: State,
}

impl Heard {
    fn new() -> Self {
        let state = state();
        let mut witness = Witness::new(replica(1), 1, at(0));
        witness.sync(at(0), &state);
        Self { witness, state }
    }

    fn beacon(&mut self, now: u64, i: usize, seq: u64) -> Taken {
        self.witness.beacon(at(now), &proven(i, seq), None)
    }

    fn status(&mut self, now: u64, i: usize, seq: u64, hears: &[usize], doubts: &[SelfDoubt]) {
        self.beacon(now, i, seq);
        let status = Status {
            beacon: signed(i, seq),
            slice: 1,
            hears: hears.iter().map(|s| uid(*s)).collect(),
            doubts: doubts.to_vec(),
            worked: Vec::new(),
        };
        self.witness.status(at(now), &uid(i), &status, &proven(i, seq));
    }

    fn batch(&mut self, now: u64, from: usize, number: u64, snapshot: bool, reports: Vec<(usize, Hearing)>) {
        let reports = reports.into_iter().map(|(s, hearing)| Report { subject: uid(s), hearing }).collect();
        let batch = ReportBatch { boot: boot(from, 0), number, snapshot, doubts: Vec::new(), reports };
        self.witness.reports(at(now), &uid(from), &CheckedBatch::trusted(&batch));
    }

    /// `from` reports `about` silent for `silent` ms, its last beacon was `seq`.
    fn silent(&mut self, now: u64, from: usize, number: u64, about: usize, silent: u64, seq: u64) {
        self.batch(now, from, number, false, vec![(about, silence(about, silent, seq))]);
    }

    fn heard(&mut self, now: u64, from: usize, number: u64, about: usize, seq: u64, ago: u64) {
        let hearing = Hearing::Heard { beacon: signed(about, seq), ago: span(ago) };
        self.batch(now, from, number, false, vec![(about, hearing)]);
    }

    fn summary(&mut self, now: u64) -> Summary {
        self.witness.summary(at(now), &self.state)
    }

    fn listed(&mut self, now: u64, i: usize) -> Option<NodeSummary> {
        self.summary(now).nodes.into_iter().find(|n| n.node == name(i))
    }

    /// The age of the latest proof of life.
    fn proof(&mut self, now: u64, i: usize) -> Option<u64> {
        self.listed(now, i)?.proofs.iter().map(|p| p.ago.as_ms()).min()
    }

    /// Whether this observer's accusation stands, and since when.
    fn accuses(&mut self, now: u64, observer: usize, subject: usize) -> Option<u64> {
        let listed = self.listed(now, subject)?;
        let edge = listed.edges.iter().find(|e| e.observer == name(observer))?;
        edge.silence.map(|s| s.silent.as_ms())
    }
}

use coroner_shared::beacon::Hearing;

fn silence(about: usize, silent: u64, seq: u64) -> Hearing {
    Hearing::Silent { silent: span(silent), last: Some((boot(about, 0), seq)), probes: Vec::new() }
}

fn names(nodes: &[NodeSummary]) -> Vec<NodeName> {
    nodes.iter().map(|n| n.node.clone()).collect()
}
