//! Whom to ask about a suspect, and which BMCs to read.
//!
//! ```text
//!   Scene, desks --> Ask each second: up to 3 probers that are not observers, and every observer that does not call it
//!                    silent; 8 more half a second before an E2 deadline; of who is being fenced those who claim to
//!                    hear it
//!                --> Wanted: BMCs to read every 500 ms
//! ```
//!
//! Observers that do not accuse are asked too: one that hears the suspect must be able to veto with its beacon, and was
//! never silent, so it has told nothing yet.

use std::collections::BTreeMap;

use coroner_shared::beacon::AskProbe;
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use super::desk::Desk;
use super::scene::{HEARD, Scene};
use super::{Ask, Wanted};
use crate::phase::Phase;

/// Probers that are not observers.
const PROBERS: usize = 3;
/// More of them just before an E2 deadline.
const PROBERS_MORE: usize = 8;
/// So long before it.
const MORE_BEFORE: Span = Span::from_ms(500);
/// Between two rounds of questions.
const ROUND: Span = Span::from_secs(1);
/// The same for a node that has been held for [`LONG`].
const ROUND_HELD: Span = Span::from_secs(5);
const LONG: Span = Span::from_secs(60);
/// A claim is asked for its beacon if it is so much younger than any proof. Who has just lost power is claimed for up to S
/// more, and its last beacon to a replica may be three beats older than that to an observer; and yet it has to be asked
/// before the last proof is too old to forbid a command (3 s), with claims told once a second.
const CLAIM_BEYOND: Span = Span::from_ms(1750);
/// Suspects asked about at a time. The pace lets one decision through per second, so more would wait anyway; the oldest
/// failures come first.
const SUSPECTS_ASKED: usize = 64;
/// BMCs read at a time.
const BMCS_READ: usize = 256;

/// The questions of this step.
pub(super) fn asks(scene: &Scene<'_>, desks: &mut BTreeMap<NodeName, Desk>, number: &mut u64) -> Vec<Ask> {
    let mut asks = Vec::new();
    for name in oldest_first(scene, desks).into_iter().take(SUSPECTS_ASKED) {
        let Some(desk) = desks.get_mut(&name) else { continue };
        let every = if held_for(scene, &name) >= LONG { ROUND_HELD } else { ROUND };
        let more = wants_more(scene, desk, &name);
        let due = desk.round.is_none_or(|at| scene.now.since(at) >= every);
        let probers = probers(scene, desk, &name, more);
        // Just before the deadline the additional ones are asked at once, not with the next round.
        let fresh: Vec<NodeName> =
            probers.iter().filter(|p| due || (more && !desk.asks.contains_key(*p))).cloned().collect();
        ask(scene, desk, &name, fresh, due, number, &mut asks);
    }
    for name in claimed(scene, desks).into_iter().take(SUSPECTS_ASKED) {
        let Some(desk) = desks.get_mut(&name) else { continue };
        if desk.round.is_none_or(|at| scene.now.since(at) >= ROUND) {
            let claims = scene.claimants(&name).filter(|o| scene.pooled.heard_within(o, HEARD));
            ask(scene, desk, &name, claims.cloned().collect(), true, number, &mut asks);
        }
    }
    asks
}

fn ask(
    scene: &Scene<'_>,
    desk: &mut Desk,
    name: &NodeName,
    probers: Vec<NodeName>,
    due: bool,
    number: &mut u64,
    asks: &mut Vec<Ask>,
) {
    if due {
        desk.round = Some(scene.now);
    }
    for prober in probers {
        *number += 1;
        if let Some(ask) = question(scene, name, *number) {
            desk.asks(scene.now, &prober, *number);
            asks.push(Ask { prober, ask });
        }
    }
}

/// Those who are being fenced and of whom an observer says that it hears them, while no replica has a proof of it. A claim
/// is not signed and stops nothing; the beacon that the observer brings when it is asked forbids the next command.
fn claimed(scene: &Scene<'_>, desks: &BTreeMap<NodeName, Desk>) -> Vec<NodeName> {
    let fenced = |name: &NodeName| {
        scene.node(name).is_some_and(|n| match n.phase {
            Phase::Condemned { .. }
            | Phase::Fencing { .. }
            | Phase::ProvenOff { .. }
            | Phase::Releasing { .. } => true,
            Phase::Alive | Phase::Held { .. } | Phase::Released { .. } | Phase::Returning { .. } => false,
        })
    };
    let unproven = |name: &NodeName| {
        let proof = scene.pooled.newest_of_any(name).map_or(Span::MAX, |held| held.clock_ago);
        scene.claimed_ago(name).is_some_and(|ago| ago <= HEARD && ago + CLAIM_BEYOND <= proof)
    };
    desks.keys().filter(|name| fenced(name) && unproven(name)).cloned().collect()
}

/// The BMCs to read: of every suspect, the oldest failures first.
pub(super) fn bmcs(scene: &Scene<'_>, desks: &BTreeMap<NodeName, Desk>) -> Vec<Wanted> {
    let wanted = |node: NodeName| {
        let failure_date = desks.get(&node)?.failure_date;
        Some(Wanted { node, failure_date })
    };
    oldest_first(scene, desks).into_iter().take(BMCS_READ).filter_map(wanted).collect()
}

/// Suspects that may still be judged.
fn oldest_first(scene: &Scene<'_>, desks: &BTreeMap<NodeName, Desk>) -> Vec<NodeName> {
    let mut all: Vec<(bool, Mono, &NodeName)> = desks
        .iter()
        .filter(|(name, desk)| desk.looked.is_some() && is_judged(scene, name))
        .map(|(name, desk)| (held_for(scene, name) >= LONG, desk.failure_date, name))
        .collect();
    all.sort_unstable();
    all.into_iter().map(|(_, _, name)| name.clone()).collect()
}

/// Whether the node is in a phase that a verdict can change.
pub(super) fn is_judged(scene: &Scene<'_>, name: &NodeName) -> bool {
    scene.node(name).is_some_and(|n| match n.phase {
        Phase::Alive | Phase::Held { .. } | Phase::Returning { released: None, .. } => true,
        Phase::Condemned { .. }
        | Phase::Fencing { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => false,
    })
}

fn held_for(scene: &Scene<'_>, name: &NodeName) -> Span {
    scene.node(name).map_or(Span::ZERO, |n| match n.phase {
        Phase::Held { .. } => scene.state().now.since(n.phase_since),
        Phase::Alive
        | Phase::Returning { .. }
        | Phase::Condemned { .. }
        | Phase::Fencing { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. } => Span::ZERO,
    })
}

fn wants_more(scene: &Scene<'_>, desk: &Desk, name: &NodeName) -> bool {
    scene.age(desk.failure_date) + MORE_BEFORE >= scene.rules(name).silent_bmc_on
}

/// Who is asked. Those who were asked before stay, so that a later nothing answers an earlier something.
fn probers(scene: &Scene<'_>, desk: &Desk, name: &NodeName, more: bool) -> Vec<NodeName> {
    let observers = scene.state().observers.of(name);
    let can = |n: &NodeName| scene.counts_as_alive(n) && scene.pooled.heard_within(n, HEARD);
    let wanted = if more { PROBERS + PROBERS_MORE } else { PROBERS };
    let mut chosen: Vec<NodeName> =
        desk.asks.keys().filter(|n| !observers.contains(n) && can(n)).take(wanted).cloned().collect();
    if chosen.len() < wanted {
        chosen.extend(more_probers(scene, name, &chosen, wanted - chosen.len(), can));
    }
    let others_exist = !chosen.is_empty();
    let quiet = |o: &NodeName| scene.pooled.edge(o, name).silent.is_none();
    chosen.extend(observers.iter().filter(|o| can(o) && (!others_exist || quiet(o))).cloned());
    chosen
}

/// Probers in as many domains as there are, away from the suspect's own; among equals a fixed order that differs for
/// each suspect, so that not the same few are asked about everybody.
fn more_probers(
    scene: &Scene<'_>,
    name: &NodeName,
    chosen: &[NodeName],
    wanted: usize,
    can: impl Fn(&NodeName) -> bool,
) -> Vec<NodeName> {
    let graph = &scene.state().observers;
    let observers = graph.of(name);
    let own = graph.seat(name).map(|s| s.domain.as_str());
    let mut by_domain: BTreeMap<&str, Vec<(u64, &NodeName)>> = BTreeMap::new();
    for (n, seat) in graph.seats().filter(|(n, s)| s.in_service && *n != name) {
        if !observers.contains(n) && !chosen.contains(n) && can(n) {
            by_domain.entry(&seat.domain).or_default().push((order(name, n), n));
        }
    }
    for candidates in by_domain.values_mut() {
        candidates.sort_unstable();
        candidates.reverse();
    }
    let mut found = Vec::new();
    let mut domains: Vec<(bool, u64, &str)> = by_domain
        .iter()
        .map(|(domain, all)| (Some(*domain) == own, all.last().map_or(0, |(order, _)| *order), *domain))
        .collect();
    domains.sort_unstable();
    while found.len() < wanted && by_domain.values().any(|c| !c.is_empty()) {
        for (_, _, domain) in &domains {
            if found.len() < wanted
                && let Some((_, n)) = by_domain.get_mut(domain).and_then(Vec::pop)
            {
                found.push(n.clone());
            }
        }
    }
    found
}

fn question(scene: &Scene<'_>, name: &NodeName, number: u64) -> Option<AskProbe> {
    let peer = &scene.state().observers.seat(name)?.peer;
    Some(AskProbe { number, subject: peer.node.clone(), address: peer.address, key: peer.key })
}

/// FNV-1a over both names.
fn order(suspect: &NodeName, prober: &NodeName) -> u64 {
    let bytes = suspect.as_str().bytes().chain([0]).chain(prober.as_str().bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}
