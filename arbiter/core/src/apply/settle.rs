//! What follows by itself from what the log knows by now: new boots, stops of a policy, times that are over, marks
//! nobody remembers, and the pruning of what has aged. Runs after every entry.

use coroner_shared::id::{Incarnation, NodeName};
use coroner_shared::time::Span;

use super::{At, boot, ledger, release};
use crate::brake;
use crate::fence::COMMAND_DEADLINE;
use crate::pages;
use crate::permit;
use crate::phase::{EvidenceClass, FenceProof, HeldReason, LastReadFailed, Phase, Released};
use crate::state::State;

/// A person's confirmation is worth so long.
pub(crate) const CONFIRMATION_AGE: Span = Span::from_mins(15);

/// Whether a proof is a person's confirmation that is worth nothing any more.
pub fn confirmation_is_over(state: &State, proof: &FenceProof) -> bool {
    match proof {
        FenceProof::PersonConfirmed { at, .. } => state.now.since(*at) > CONFIRMATION_AGE,
        FenceProof::BmcOff { .. } => false,
    }
}

/// Lets everything follow that follows.
pub(crate) fn settle(state: &mut State, at: At<'_>) {
    let open: Vec<NodeName> = state
        .nodes
        .iter()
        .filter(|(_, n)| n.phase.incident().is_some())
        .map(|(name, _)| name.clone())
        .collect();
    for name in &open {
        taint(state, at, name);
        boot::settle(state, at, name);
        stops(state, at, name);
        times(state, at, name);
    }
    orphans(state, at);
    pages_that_ended(state);
    book(state);
    ledger::prune(state);
}

/// The watch shows the taint: seen is seen, whoever saw it.
fn taint(state: &mut State, at: At<'_>, name: &NodeName) {
    let Some(node) = state.nodes.get(name) else { return };
    if let Phase::Releasing { incident, .. } = &node.phase
        && node.facts.as_ref().is_some_and(|f| f.tainted_by_us)
    {
        let id = incident.clone();
        release::taint_seen(state, at, name, &id);
    }
}

/// Nothing was sent yet, and something no longer permits it: the intent closes, the node is held.
fn stops(state: &mut State, at: At<'_>, name: &NodeName) {
    let Some(node) = state.nodes.get(name) else { return };
    match &node.phase {
        Phase::Condemned { .. } | Phase::Fencing { attempt: None, released: None, .. } => {}
        Phase::Fencing { .. }
        | Phase::Alive
        | Phase::Held { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => return,
    }
    let Some(class) = state.open_incident(name).and_then(|(_, i)| i.class.clone()) else { return };
    if let Some(why) = forbids(state, name, &class) {
        ledger::hold(state, at, name, why);
    }
}

/// What forbids the first power command of an incident. A machine found off goes on through a pause: off is proven by
/// reading alone.
pub(crate) fn forbids(state: &State, name: &NodeName, class: &EvidenceClass) -> Option<HeldReason> {
    if let Some(why) = permit::stopped(state, name) {
        return Some(why);
    }
    match class {
        EvidenceClass::FoundOff => {}
        EvidenceClass::HostSilentBmcOn | EvidenceClass::Ordered { .. } => {
            if let Some(who) = permit::paused_by(state, name) {
                return Some(HeldReason::Paused { who });
            }
        }
    }
    permit::fenceable(state, name).err()
}

/// Times that are over.
fn times(state: &mut State, at: At<'_>, name: &NodeName) {
    let now = state.now;
    let Some((_, incident)) = state.open_incident(name) else { return };
    let stalled_after = ledger::timings(incident).stalled;
    let Some(node) = state.nodes.get_mut(name) else { return };
    match &mut node.phase {
        Phase::Fencing { incident, intent, attempt, .. } => {
            let calling = attempt.as_ref().is_some_and(|a| now.since(a.at) < COMMAND_DEADLINE);
            if intent.stalled.is_none() && !calling && now.since(intent.progress) >= stalled_after {
                intent.stalled = Some(format!("no progress for {stalled_after}"));
                let id = incident.clone();
                ledger::note(state, at, &id, "Stalled", "no progress");
            }
        }
        Phase::ProvenOff {
            incident,
            proof: FenceProof::PersonConfirmed { at: confirmed, .. },
            last_read_failed,
            ..
        } => {
            if last_read_failed.is_none() && now.since(*confirmed) > CONFIRMATION_AGE {
                let why = "the person's confirmation is older than 15 minutes".to_owned();
                *last_read_failed = Some(LastReadFailed { since: now, why: why.clone() });
                let id = incident.clone();
                ledger::note(state, at, &id, "LastReadFailed", &why);
            }
        }
        Phase::ProvenOff { .. }
        | Phase::Alive
        | Phase::Held { .. }
        | Phase::Condemned { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => {}
    }
}

/// Our taint stands on a Node of which this group knows nothing (all replicas were lost once): it goes the way of a
/// return, which a person or the next boot ends. Whether the node was cordoned before us nobody knows, so we do not
/// uncordon it.
fn orphans(state: &mut State, at: At<'_>) {
    let found: Vec<(NodeName, Incarnation)> = state
        .nodes
        .iter()
        .filter(|(_, node)| matches!(node.phase, Phase::Alive))
        .filter_map(|(name, node)| {
            let facts = node.facts.as_ref().filter(|f| f.tainted_by_us)?;
            let machine = permit::kubelet_machine(state, name)?;
            Some((name.clone(), Incarnation { node: facts.uid.clone(), machine, boot: facts.boot? }))
        })
        .collect();
    for (name, life) in found {
        let boot = life.boot;
        let id = ledger::open(state, at, &name, life);
        if let Some(incident) = state.incidents.get_mut(&id) {
            incident.orphaned = true;
        }
        ledger::note(state, at, &id, "Orphaned", "our taint stands, and nobody remembers why");
        let released = Some(Released { was_cordoned: true, ..Released::default() });
        let phase = Phase::Returning { incident: id, boot, released, taint_removed: None, waived: None };
        ledger::enter(state, &name, phase);
    }
}

/// A standing condition that ended may be paged again when it comes back.
fn pages_that_ended(state: &mut State) {
    let ended: Vec<(NodeName, String)> = state
        .nodes
        .iter()
        .filter(|(_, node)| !node.paged.is_empty())
        .flat_map(|(name, node)| {
            let standing = pages::standing(state, name, node);
            node.paged
                .keys()
                .filter(|reason| standing.iter().all(|page| page.reason != **reason))
                .map(|reason| (name.clone(), reason.clone()))
                .collect::<Vec<_>>()
        })
        .collect();
    for (name, reason) in ended {
        if let Some(node) = state.nodes.get_mut(&name) {
            node.paged.remove(&reason);
        }
    }
}

/// Forgets what the brakes count no longer.
fn book(state: &mut State) {
    let now = state.now;
    for decisions in state.brakes.by_domain.values_mut() {
        decisions.retain(|(at, _)| now.since(*at) < brake::DOMAIN_WINDOW);
    }
    state.brakes.by_domain.retain(|_, decisions| !decisions.is_empty());
    if !brake::storm_on(state) {
        state.brakes.storm = None;
    }
    for node in state.nodes.values_mut() {
        if node.domain_before.as_ref().is_some_and(|(_, until)| *until <= now) {
            node.domain_before = None;
        }
        node.deaths.retain(|at| now.since(*at) < brake::DEATHS_WINDOW);
    }
}
