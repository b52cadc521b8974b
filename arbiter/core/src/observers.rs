//! Who observes whom: committed with the membership, so that every replica tells every agent the same.
//!
//! ```text
//!   members, domains, service (State) --+
//!                                       +--> reseat --> the graph of now --> slice_for(agent): whom it hears, who hears it
//!   the graph before (State) -----------+
//! ```
//!
//! k = min(8, N - 1): a full mesh up to 9 nodes; above that 6 observers in other failure domains and 2 in the own
//! (Rapid, ATC'18: a fixed number of observers on an expander). The graph is a pure function of the graph before and
//! the membership, not of the membership alone: no function of the set keeps degrees, spread and a churn of at most 16
//! edges per join or leave at once, and an edge that moves costs an observer its standing until it has heard its new
//! subject. So the edges of those who stay, stay.
//!
//! Deliberately absent: any thought of who is silent now. A dead observer is replaced when it is out of service, not
//! when it is suspected, so that suspicion changes nothing outside.

mod deal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use coroner_shared::id::{ClusterId, NodeName};
use coroner_shared::slice::{Peer, ReplicaPeer, Slice, Timings};
use serde::{Deserialize, Serialize};

use crate::policy::select::rules_for;
use crate::state::State;

/// Most observers of one subject, and with one more the most subjects of one observer.
pub const K_MAX: usize = 8;
/// Of those, how many sit in other failure domains, where there are enough.
pub const OTHERS_WANTED: usize = 6;

/// The graph.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Observers {
    seats: BTreeMap<NodeName, Seat>,
    replicas: Vec<ReplicaPeer>,
    /// Membership at which the replicas last changed.
    replicas_since: u64,
}

/// One member in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Seat {
    /// As its peers know it.
    pub peer: Peer,
    /// Its failure domain.
    pub domain: String,
    /// Whether it may observe: not released.
    pub in_service: bool,
    /// The times its agent works with.
    pub timings: Timings,
    /// Membership since which this Node, machine and key have been a member.
    pub since: u64,
    /// Membership at which its part of the graph last changed.
    pub version: u64,
    /// Who hears it, by name.
    pub observers: Vec<NodeName>,
    /// Whom it hears, by name.
    pub subjects: Vec<NodeName>,
}

/// Brings the graph up to date with the rest of the state. `apply` calls it after every command that may have changed
/// members, their keys, machines, addresses or domains, phases, policies or replicas. `true` if anything changed; the
/// membership has then risen by one.
pub fn reseat(state: &mut State) -> bool {
    let membership = state.membership + 1;
    let members = members(state);
    let replicas = replicas(state);
    let changed = state.observers.take(members, replicas, membership);
    if changed {
        state.membership = membership;
    }
    changed
}

/// What an agent is told. `None` for a node that is no member.
pub fn slice_for(state: &State, cluster: ClusterId, node: &NodeName) -> Option<Slice> {
    let observers = &state.observers;
    let seat = observers.seats.get(node)?;
    let peers = |names: &[NodeName]| {
        names.iter().filter_map(|n| observers.seats.get(n)).map(|s| s.peer.clone()).collect()
    };
    Some(Slice {
        version: observers.slice_version(seat),
        cluster,
        node: seat.peer.node.clone(),
        subjects: peers(&seat.subjects),
        observers: peers(&seat.observers),
        replicas: observers.replicas.clone(),
        timings: seat.timings,
    })
}

// === impl Observers ===

impl Observers {
    /// A member's place in the graph.
    pub fn seat(&self, node: &NodeName) -> Option<&Seat> {
        self.seats.get(node)
    }

    /// All members, by name.
    pub fn seats(&self) -> impl Iterator<Item = (&NodeName, &Seat)> {
        self.seats.iter()
    }

    /// Who hears this node.
    pub fn of(&self, subject: &NodeName) -> &[NodeName] {
        self.seats.get(subject).map_or(&[], |s| &s.observers)
    }

    /// Whom this node hears.
    pub fn subjects_of(&self, observer: &NodeName) -> &[NodeName] {
        self.seats.get(observer).map_or(&[], |s| &s.subjects)
    }

    /// The version of a member's slice: of its own part or of what all agents share.
    pub fn slice_version(&self, seat: &Seat) -> u64 {
        seat.version.max(self.replicas_since)
    }

    fn take(
        &mut self,
        members: BTreeMap<NodeName, Seat>,
        replicas: Vec<ReplicaPeer>,
        membership: u64,
    ) -> bool {
        let mut changed = false;
        if self.replicas != replicas {
            self.replicas = replicas;
            self.replicas_since = membership;
            changed = true;
        }
        let same = members.len() == self.seats.len()
            && members.iter().zip(&self.seats).all(|((a, new), (b, old))| a == b && new.tells_the_same(old));
        if !same {
            self.redeal(members, membership);
            changed = true;
        }
        changed
    }

    /// Deals what has no observers yet, and marks everybody whose slice reads differently now.
    fn redeal(&mut self, mut members: BTreeMap<NodeName, Seat>, membership: u64) {
        let before = std::mem::take(&mut self.seats);
        for (name, seat) in &mut members {
            seat.since = match before.get(name) {
                Some(old) if old.is_same_member(seat) => old.since,
                Some(_) | None => membership,
            };
        }
        let edges = deal::deal(&before, &members);
        for (name, (observers, subjects)) in edges {
            if let Some(seat) = members.get_mut(&name) {
                seat.observers = observers;
                seat.subjects = subjects;
            }
        }
        let told: Vec<(NodeName, u64)> = members
            .iter()
            .map(|(name, seat)| match before.get(name) {
                Some(old) if !slice_differs(seat, old, &members, &before) => (name.clone(), old.version),
                Some(_) | None => (name.clone(), membership),
            })
            .collect();
        for (name, version) in told {
            if let Some(seat) = members.get_mut(&name) {
                seat.version = version;
            }
        }
        self.seats = members;
    }
}

impl Seat {
    /// The same Node on the same machine with the same key: what others remember of it still holds.
    fn is_same_member(&self, other: &Self) -> bool {
        self.peer.node == other.peer.node
            && self.peer.machine == other.peer.machine
            && self.peer.key == other.peer.key
    }

    /// Nothing that comes from outside the graph differs.
    fn tells_the_same(&self, other: &Self) -> bool {
        self.peer == other.peer
            && self.domain == other.domain
            && self.in_service == other.in_service
            && self.timings == other.timings
    }
}

// === helpers ===

fn slice_differs(
    new: &Seat,
    old: &Seat,
    now: &BTreeMap<NodeName, Seat>,
    before: &BTreeMap<NodeName, Seat>,
) -> bool {
    let peer_of = |all: &BTreeMap<NodeName, Seat>, n: &NodeName| all.get(n).map(|s| s.peer.clone());
    new.peer != old.peer
        || new.timings != old.timings
        || new.observers != old.observers
        || new.subjects != old.subjects
        || new.observers.iter().chain(&new.subjects).any(|n| peer_of(now, n) != peer_of(before, n))
}

/// Every registered host that can send beacons: one without a machine id cannot sign who it is.
fn members(state: &State) -> BTreeMap<NodeName, Seat> {
    let mut members = BTreeMap::new();
    for (name, node) in &state.nodes {
        let Some(member) = &node.member else { continue };
        let Ok(machine) = member.machine else { continue };
        let peer = Peer {
            name: name.clone(),
            node: member.uid.clone(),
            machine,
            address: member.address,
            key: member.key,
        };
        let seat = Seat {
            peer,
            domain: node.domain.clone(),
            in_service: !node.phase.out_of_service(),
            timings: rules_for(state, name).beacons,
            since: 0,
            version: 0,
            observers: Vec::new(),
            subjects: Vec::new(),
        };
        members.insert(name.clone(), seat);
    }
    members
}

fn replicas(state: &State) -> Vec<ReplicaPeer> {
    let peer = |(id, r): (&coroner_shared::id::ReplicaId, &crate::state::Replica)| ReplicaPeer {
        id: *id,
        host: r.host.clone(),
        address: r.address,
        key: r.key,
    };
    state.replicas.iter().map(peer).collect()
}
