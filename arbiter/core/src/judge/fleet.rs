//! Counts over the whole membership: who is silent without a reason, who is torn, who fell silent together.
//!
//! ```text
//!   Scene, desks (failure dates, rule 1) --> Fleet --view_of(subject)--> FleetView
//! ```
//!
//! Sets are made of failure dates, not of when the desk noticed: a new leader notices everything at once.

use std::collections::{BTreeMap, BTreeSet};

use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use super::desk::Desk;
use super::scene::{HEARD, Scene};
use crate::phase::{HeldReason, Phase};
use crate::view::FleetView;

/// Members of one domain whose failure dates lie within this are one set.
pub(super) const TOGETHER: Span = Span::from_secs(5);
/// Members that fell silent within this are counted for a storm.
const STORM_WITHIN: Span = Span::from_secs(10);

/// The counts of one step.
pub(super) struct Fleet<'a> {
    alive: BTreeSet<&'a NodeName>,
    unexplained: BTreeSet<&'a NodeName>,
    partial: BTreeSet<&'a NodeName>,
    quorum: bool,
    /// By domain: who met rule 1, and when it failed.
    met: BTreeMap<&'a str, BTreeMap<&'a NodeName, Mono>>,
    domain_members: BTreeMap<&'a str, BTreeSet<&'a NodeName>>,
    storm_members: u32,
    storm_domains: u32,
}

// === impl Fleet ===

impl<'a> Fleet<'a> {
    pub(super) fn count(scene: &Scene<'a>, desks: &BTreeMap<NodeName, Desk>) -> Self {
        let seats = || scene.state().observers.seats();
        let counts = |n: &&NodeName| scene.counts_as_alive(n) || is_held_blind(scene, n);
        let alive: BTreeSet<&NodeName> = seats().map(|(n, _)| n).filter(counts).collect();
        let listed_alive: Vec<&NodeName> =
            scene.listed.iter().copied().filter(|n| alive.contains(*n)).collect();
        let mut met: BTreeMap<&str, BTreeMap<&NodeName, Mono>> = BTreeMap::new();
        let mut domain_members: BTreeMap<&str, BTreeSet<&NodeName>> = BTreeMap::new();
        // Those who fall silent together observe each other: counting rule 1 alone, five of twenty are no storm, since
        // too few observers are left to say so of each, and the few of whom they can would be fenced. So those count,
        // too, whom nobody hears who may say so.
        let mut stormy: BTreeMap<&str, BTreeMap<&NodeName, Mono>> = BTreeMap::new();
        for (name, seat) in seats() {
            if let Some(desk) = desks.get(name).filter(|d| d.met || d.lost) {
                stormy.entry(&seat.domain).or_default().insert(name, desk.failure_date);
            }
            let desk = desks.get(name).filter(|d| d.met);
            if let Some(desk) = desk {
                met.entry(&seat.domain).or_default().insert(name, desk.failure_date);
            }
            // Who was released long ago is no part of what can fall silent now.
            if seat.in_service || desk.is_some() {
                domain_members.entry(&seat.domain).or_default().insert(name);
            }
        }
        let (storm_members, storm_domains) = storm(scene, &stormy);
        Self {
            unexplained: listed_alive.iter().copied().filter(|n| is_unexplained(scene, n)).collect(),
            partial: listed_alive.iter().copied().filter(|n| is_partial(scene, n)).collect(),
            alive,
            quorum: scene.sight.quorum,
            met,
            domain_members,
            storm_members,
            storm_domains,
        }
    }

    /// The counts as seen from one node.
    pub(super) fn view_of(&self, name: &NodeName, domain: &str, correlated_for: Option<Span>) -> FleetView {
        let others = |set: &BTreeSet<&NodeName>| count(set.len() - usize::from(set.contains(name)));
        FleetView {
            others_alive: others(&self.alive),
            unexplained: others(&self.unexplained),
            partial: others(&self.partial),
            quorum: self.quorum,
            domain_members: count(self.domain_members.get(domain).map_or(0, BTreeSet::len)),
            domain_silent: count(self.together(name, domain).len()),
            correlated_for,
            storm_members: self.storm_members,
            storm_domains: self.storm_domains,
        }
    }

    /// Members of a domain that met rule 1.
    pub(super) fn met_in(&self, domain: &str) -> impl Iterator<Item = &'a NodeName> {
        self.met.get(domain).into_iter().flat_map(|m| m.keys().copied())
    }

    /// Members that some hear and some do not.
    pub(super) fn partial(&self) -> impl Iterator<Item = &'a NodeName> {
        self.partial.iter().copied()
    }

    /// How many count as Alive.
    pub(super) fn alive(&self) -> usize {
        self.alive.len()
    }

    /// The largest set of its domain, within 5 s, that this node is part of.
    pub(super) fn together(&self, name: &NodeName, domain: &str) -> BTreeSet<&'a NodeName> {
        let Some(met) = self.met.get(domain) else { return BTreeSet::new() };
        let Some(own) = met.get(name) else { return BTreeSet::new() };
        let windows = met.values().filter(|from| **from <= *own && own.since(**from) <= TOGETHER);
        let within = |from: Mono| {
            let inside = |at: &Mono| *at >= from && at.since(from) <= TOGETHER;
            met.iter().filter(|(_, at)| inside(at)).map(|(n, _)| *n).collect::<BTreeSet<_>>()
        };
        windows.map(|from| within(*from)).max_by_key(BTreeSet::len).unwrap_or_default()
    }
}

// === helpers ===

/// Held for nothing but that the silence of many is unexplained. It goes on being counted: a hold that took its node out
/// of the count would end its own reason a moment later, for all of them, while the arbiter hears no more than before.
fn is_held_blind(scene: &Scene<'_>, name: &NodeName) -> bool {
    scene.node(name).is_some_and(|n| {
        let blind = matches!(n.phase, Phase::Held { why: HeldReason::ArbiterBlind, .. });
        blind && n.member.is_some() && n.goodbye.is_none()
    })
}

/// Not heard by any replica for 3 s, and none of its observers claims to hear it or reports it silent.
fn is_unexplained(scene: &Scene<'_>, name: &NodeName) -> bool {
    if scene.pooled.heard_within(name, HEARD) || scene.is_claimed(name) {
        return false;
    }
    !scene.state().observers.of(name).iter().any(|o| scene.pooled.edge(o, name).silent.is_some())
}

/// Heard now by some, at least S after an observer that may accuse had its last beacon. A host that has just died was
/// heard within 3 s as well, but by nobody later than by others.
fn is_partial(scene: &Scene<'_>, name: &NodeName) -> bool {
    let observers = scene.state().observers.of(name);
    let claims = observers.iter().filter_map(|o| scene.pooled.edge(o, name).hears_ago);
    let proven = scene.pooled.last_proof(name).map(|held| held.ago);
    let Some(heard) = claims.chain(proven).min().filter(|ago| *ago <= HEARD) else { return false };
    let later = scene.rules(name).beacons.suspect;
    observers
        .iter()
        .filter(|o| scene.may_accuse(o))
        .any(|o| scene.pooled.edge(o, name).silent.is_some_and(|s| s.silent >= heard + later))
}

/// Who fell silent within the last 10 s, counting from when silence can first be reported, and of how many domains.
fn storm(scene: &Scene<'_>, silent: &BTreeMap<&str, BTreeMap<&NodeName, Mono>>) -> (u32, u32) {
    let lately = |(name, failed): (&&NodeName, &Mono)| {
        let reported_after = scene.rules(name).beacons.suspect;
        scene.age(*failed) <= reported_after + STORM_WITHIN
    };
    let per_domain: Vec<usize> = silent
        .values()
        .map(|m| m.iter().filter(|(n, f)| lately((n, f))).count())
        .filter(|n| *n > 0)
        .collect();
    (count(per_domain.iter().sum()), count(per_domain.len()))
}

fn count(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}
