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
mod table;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use coroner_shared::id::{ClusterId, NodeName};
use coroner_shared::slice::{Peer, ReplicaPeer, Slice, Timings};
use serde::{Deserialize, Serialize};

use self::table::{Facts, Table};
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
    #[serde(skip)]
    table: Cached,
}

/// The graph by position, made where it is missing. All of it follows from the seats, so that it makes no difference
/// between two graphs, and a copy of the state goes without.
#[derive(Debug, Default)]
struct Cached(Option<Table>);

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

/// Notes that something changed that other agents know of this member: key, machine, address, boot, domain, labels, or
/// whether it is in service. The graph follows at the end of the entry.
pub(crate) fn moved(state: &mut State, node: &NodeName) {
    state.membership += 1;
    state.moved.insert(node.clone());
}

/// Brings the graph up to date with those members that [`moved`], and with the replicas. `apply` calls it at the end of
/// each entry that changed any of them. `true` if anything changed; the membership has then risen by one.
pub(crate) fn reseat_moved(state: &mut State) -> bool {
    let moved = std::mem::take(&mut state.moved);
    let now = moved.into_iter().map(|name| (name.clone(), member(state, &name))).collect();
    take(state, now)
}

/// The same for everybody: after a policy changed, whose times the agents work with, and for graphs made from nothing.
pub fn reseat(state: &mut State) -> bool {
    state.moved.clear();
    let known: BTreeSet<NodeName> = state.nodes.keys().chain(state.observers.seats.keys()).cloned().collect();
    let now = known.into_iter().map(|name| (name.clone(), member(state, &name))).collect();
    take(state, now)
}

fn take(state: &mut State, now: BTreeMap<NodeName, Option<Seat>>) -> bool {
    let membership = state.membership + 1;
    let replicas = replicas(state);
    let changed = state.observers.take(now, replicas, membership);
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
        version: observers.slice_version(node)?,
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

    /// The version of a member's slice: of its own part or of what all agents share. `None` for a node that is no
    /// member.
    pub fn slice_version(&self, node: &NodeName) -> Option<u64> {
        self.seats.get(node).map(|seat| seat.version.max(self.replicas_since))
    }

    /// Takes what is so of some members now, `None` for those that are none any more, and the replicas.
    fn take(
        &mut self,
        now: BTreeMap<NodeName, Option<Seat>>,
        replicas: Vec<ReplicaPeer>,
        membership: u64,
    ) -> bool {
        let mut changed = false;
        if self.replicas != replicas {
            self.replicas = replicas;
            self.replicas_since = membership;
            changed = true;
        }
        let differs = |name: &NodeName, seat: &Option<Seat>| match (seat, self.seats.get(name)) {
            (Some(new), Some(old)) => !new.tells_the_same(old),
            (new, old) => new.is_some() != old.is_some(),
        };
        let now: BTreeMap<NodeName, Option<Seat>> =
            now.into_iter().filter(|(name, seat)| differs(name, seat)).collect();
        if !now.is_empty() {
            self.redeal(now, membership);
            changed = true;
        }
        changed
    }

    /// Deals what these changes leave open, and marks everybody whose slice reads differently now.
    fn redeal(&mut self, now: BTreeMap<NodeName, Option<Seat>>, membership: u64) {
        let facts = now.iter().map(|(name, seat)| (name.clone(), seat.as_ref().map(Seat::facts))).collect();
        let edges = self.table.get(&self.seats).change(&facts);
        let mut told = BTreeSet::new();
        for (name, seat) in now {
            let Some(seat) = seat else {
                self.seats.remove(&name);
                continue;
            };
            if self.update(&name, seat, membership) {
                told.insert(name);
            }
        }
        for (name, (observers, subjects)) in edges {
            if let Some(seat) = self.seats.get_mut(&name)
                && (seat.observers != observers || seat.subjects != subjects)
            {
                (seat.observers, seat.subjects, seat.version) = (observers, subjects, membership);
            }
        }
        // Whoever hears it, or is heard by it, has it in the own slice.
        for name in told {
            let near =
                self.seats.get(&name).map(|s| s.observers.iter().chain(&s.subjects).cloned().collect());
            let near: Vec<NodeName> = near.unwrap_or_default();
            for other in near {
                if let Some(seat) = self.seats.get_mut(&other) {
                    seat.version = membership;
                }
            }
        }
    }

    /// Takes what is new of one member, but for its edges. Whether others know it otherwise now.
    fn update(&mut self, name: &NodeName, new: Seat, membership: u64) -> bool {
        let Some(seat) = self.seats.get_mut(name) else {
            self.seats.insert(name.clone(), Seat { since: membership, version: membership, ..new });
            return true;
        };
        let known_otherwise = seat.peer != new.peer;
        if !seat.is_same_member(&new) {
            seat.since = membership;
        }
        if known_otherwise || seat.timings != new.timings {
            seat.version = membership;
        }
        let Seat { peer, domain, in_service, timings, since: _, version: _, observers: _, subjects: _ } = new;
        (seat.peer, seat.domain, seat.in_service, seat.timings) = (peer, domain, in_service, timings);
        known_otherwise
    }
}

impl Seat {
    /// The same Node on the same machine with the same key: what others remember of it still holds.
    fn is_same_member(&self, other: &Self) -> bool {
        self.peer.node == other.peer.node
            && self.peer.machine == other.peer.machine
            && self.peer.key == other.peer.key
    }

    fn facts(&self) -> Facts {
        Facts { domain: self.domain.clone(), in_service: self.in_service }
    }

    /// Nothing that comes from outside the graph differs.
    fn tells_the_same(&self, other: &Self) -> bool {
        self.peer == other.peer
            && self.domain == other.domain
            && self.in_service == other.in_service
            && self.timings == other.timings
    }
}

// === impl Cached ===

impl Cached {
    /// The table of these seats. Whoever changes it changes the seats alike.
    fn get(&mut self, seats: &BTreeMap<NodeName, Seat>) -> &mut Table {
        self.0.get_or_insert_with(|| Table::of(seats))
    }
}

impl Clone for Cached {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl PartialEq for Cached {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for Cached {}

// === helpers ===

/// What is so of a node as a member: every registered host that can send beacons. One without a machine id cannot sign
/// who it is.
fn member(state: &State, name: &NodeName) -> Option<Seat> {
    let node = state.nodes.get(name)?;
    let member = node.member.as_ref()?;
    let machine = member.machine.as_ref().ok().copied()?;
    let peer = Peer {
        name: name.clone(),
        node: member.uid.clone(),
        machine,
        address: member.address,
        key: member.key,
    };
    Some(Seat {
        peer,
        domain: node.domain.clone(),
        in_service: !node.phase.out_of_service(),
        timings: rules_for(state, name).beacons,
        since: 0,
        version: 0,
        observers: Vec::new(),
        subjects: Vec::new(),
    })
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
