//! The bookkeeping that every edge shares: changes of phase, incidents, timelines, the evidence chain. Decides nothing.

use coroner_shared::id::{Incarnation, IncidentId, NodeName};
use coroner_shared::time::Span;

use super::At;
use crate::brake;
use crate::domain;
use crate::evidence::{BrakeCounts, Decided, Evidence, LookedAt, chained};
use crate::observers;
use crate::phase::{HeldReason, Intent, Phase};
use crate::policy::{LifeTimings, Policy};
use crate::state::{Incident, Moment, Node, State};
use crate::words;

/// Lines of a timeline.
pub(crate) const TIMELINE_MAX: usize = 64;
/// The first lines of a timeline stay whatever happens later: they say how it began.
const TIMELINE_HEAD: usize = 16;
/// Closed incidents that are kept.
pub(crate) const CLOSED_MAX: usize = 1000;
/// Closed incidents are kept so long.
pub(crate) const CLOSED_AGE: Span = Span::from_mins(30 * 24 * 60);
/// Deaths that are remembered of one node; more than any sensible `deathsPerDay`.
const DEATHS_MAX: usize = 32;

// === phases ===

/// Moves a node to a phase.
pub(crate) fn enter(state: &mut State, name: &NodeName, phase: Phase) {
    let now = state.now;
    let Some(node) = state.nodes.get_mut(name) else { return };
    let alive = matches!(phase, Phase::Alive);
    let moved = node.phase.out_of_service() != phase.out_of_service();
    node.phase = phase;
    node.phase_since = now;
    if alive {
        node.heard_since = None;
        node.heard = None;
        node.lease_moved = None;
    }
    if moved {
        // Who observes whom depends on who is out of service.
        observers::moved(state, name);
    }
    if alive {
        settle_domain(state, name);
    }
}

/// Takes over the failure domain that the labels name now, while nothing is open; for ten minutes the brakes count the
/// node in the old one too.
pub(crate) fn settle_domain(state: &mut State, name: &NodeName) {
    let any = any_labelled(state);
    let until = state.now + brake::DOMAIN_WINDOW;
    let Some(node) = state.nodes.get_mut(name) else { return };
    if !matches!(node.phase, Phase::Alive) {
        return;
    }
    let domain = domain::of(name, node.facts.as_ref().map(|f| &f.labels), any);
    if domain != node.domain {
        let before = std::mem::replace(&mut node.domain, domain);
        // A node that nobody registered never counted anywhere.
        node.domain_before = node.member.is_some().then_some((before, until));
        observers::moved(state, name);
    }
}

/// Whether any node carries a label that names a domain.
pub(crate) fn any_labelled(state: &State) -> bool {
    state.nodes.values().filter_map(|n| n.facts.as_ref()).any(|f| domain::of_labels(&f.labels).is_some())
}

/// A fresh intent of an incident.
pub(crate) fn intent(state: &State, incident: &IncidentId, read_only: bool) -> Intent {
    let attempts = state
        .incidents
        .get(incident)
        .and_then(|i| i.last_attempt.as_ref())
        .map_or(0, |attempt| attempt.number);
    Intent { since: state.now, progress: state.now, stalled: None, attempts, read_only }
}

/// The durations that an incident goes by.
pub(crate) fn timings(incident: &Incident) -> LifeTimings {
    incident.terms.as_deref().map_or(LifeTimings::DEFAULT, |terms| terms.timings)
}

// === incidents ===

/// Opens an incident of one life.
pub(crate) fn open(state: &mut State, at: At<'_>, name: &NodeName, incarnation: Incarnation) -> IncidentId {
    let id = IncidentId::of(name, at.index);
    let domain = state.nodes.get(name).map(|n| n.domain.clone()).unwrap_or_default();
    let incident = Incident {
        node: name.clone(),
        incarnation,
        class: None,
        held: None,
        observed: false,
        policy: None,
        terms: None,
        domain,
        evidence: None,
        record: None,
        last_attempt: None,
        sent_while_on: false,
        proven_by: None,
        decided: None,
        proven: None,
        tainted: None,
        orphaned: false,
        turned_off_by_us: false,
        powered_on: false,
        leftovers_gone: false,
        timeline: std::collections::VecDeque::new(),
        opened: state.now,
        closed: None,
        version: at.index,
    };
    state.incidents.insert(id.clone(), incident);
    id
}

/// Closes an incident. Its terms end with it.
pub(crate) fn close(state: &mut State, at: At<'_>, id: &IncidentId, how: &str, detail: &str) {
    note(state, at, id, how, detail);
    let now = state.now;
    if let Some(incident) = state.incidents.get_mut(id) {
        incident.closed = Some((now, how.to_owned()));
        incident.terms = None;
    }
}

/// Closes the open incident of a node and lets it live.
pub(crate) fn end(state: &mut State, at: At<'_>, name: &NodeName, how: &str, detail: &str) {
    if let Some(id) = state.nodes.get(name).and_then(|n| n.phase.incident()).cloned() {
        close(state, at, &id, how, detail);
    }
    enter(state, name, Phase::Alive);
}

/// Holds a node under its open incident. What a condemnation bound and counted is taken back: it was not fenced.
pub(crate) fn hold(state: &mut State, at: At<'_>, name: &NodeName, why: HeldReason) {
    let Some(id) = state.nodes.get(name).and_then(|n| n.phase.incident()).cloned() else { return };
    if state.incidents.get(&id).is_some_and(|i| i.decided.is_some()) {
        undecide(state, &id, name);
    }
    if let Some(incident) = state.incidents.get_mut(&id) {
        incident.held = Some(why.clone());
        // Whatever was proven no longer holds, or nobody would hold it.
        (incident.proven, incident.proven_by) = (None, None);
    }
    note(state, at, &id, "Held", &words::hold(&why));
    enter(state, name, Phase::Held { incident: id, why });
}

/// Adds a line to the timeline of an incident.
pub(crate) fn note(state: &mut State, at: At<'_>, id: &IncidentId, what: &str, detail: &str) {
    let now = state.now;
    let Some(incident) = state.incidents.get_mut(id) else { return };
    incident.version = at.index;
    incident.timeline.push_back(Moment {
        at: now,
        index: at.index,
        what: what.to_owned(),
        detail: detail.to_owned(),
    });
    while incident.timeline.len() > TIMELINE_MAX {
        incident.timeline.remove(TIMELINE_HEAD);
    }
}

/// Forgets closed incidents that are too old or too many.
pub(crate) fn prune(state: &mut State) {
    let now = state.now;
    state.incidents.retain(|_, incident| {
        incident.closed.as_ref().is_none_or(|(closed, _)| now.since(*closed) < CLOSED_AGE)
    });
    let mut closed: Vec<_> = state
        .incidents
        .iter()
        .filter_map(|(id, incident)| Some((incident.closed.as_ref()?.0, incident.opened, id.clone())))
        .collect();
    if closed.len() <= CLOSED_MAX {
        return;
    }
    closed.sort();
    for (_, _, id) in closed.iter().take(closed.len() - CLOSED_MAX) {
        state.incidents.remove(id);
    }
}

// === a death ===

/// Binds an incident to the policy that condemns, and counts the decision.
pub(crate) fn decide(state: &mut State, id: &IncidentId, name: &NodeName, policy: Policy) {
    let now = state.now;
    if let Some(incident) = state.incidents.get_mut(id) {
        incident.policy = Some((policy.name.clone(), policy.hash.clone()));
        incident.terms = Some(Box::new(policy));
        incident.decided = Some(now);
        incident.held = None;
    }
    state.brakes.last_decision = Some(now);
    let Some(node) = state.nodes.get_mut(name) else { return };
    node.deaths.push_back(now);
    if node.deaths.len() > DEATHS_MAX {
        node.deaths.pop_front();
    }
    node.in_storm = false;
    for domain in brake::domains_of(node, now) {
        let decisions = state.brakes.by_domain.entry(domain.to_owned()).or_default();
        // One incident counts once, however often it was held again in between.
        decisions.retain(|(_, of)| of != id);
        decisions.push_back((now, id.clone()));
    }
}

/// Takes back what [`decide`] bound: the node was not fenced. Its domain keeps the count, since the decision was made.
pub(crate) fn undecide(state: &mut State, id: &IncidentId, name: &NodeName) {
    if let Some(incident) = state.incidents.get_mut(id) {
        incident.policy = None;
        incident.terms = None;
        incident.decided = None;
    }
    if let Some(node) = state.nodes.get_mut(name) {
        node.deaths.pop_back();
    }
}

// === evidence ===

/// Puts a decision on the chain and keeps it as what the incident rests on. `before`: the brakes' counts before it.
pub(crate) fn record(
    state: &mut State,
    at: At<'_>,
    id: &IncidentId,
    looked_at: LookedAt,
    decided: Decided,
    before: BrakeCounts,
) {
    let Some((evidence, digest)) = chain(state, at, id, looked_at, decided, before) else { return };
    if let Some(incident) = state.incidents.get_mut(id) {
        incident.evidence = Some(digest);
        incident.record = Some(Box::new(evidence));
        incident.version = at.index;
    }
}

/// Puts a proof on the chain; the incident still rests on the decision before it. Answers the digest.
pub(crate) fn chain_proof(state: &mut State, at: At<'_>, id: &IncidentId, looked_at: LookedAt) -> String {
    let before = brake::counts(state);
    chain(state, at, id, looked_at, Decided::ProvenOff, before).map_or_else(String::new, |(_, digest)| digest)
}

fn chain(
    state: &mut State,
    at: At<'_>,
    id: &IncidentId,
    looked_at: LookedAt,
    decided: Decided,
    before: BrakeCounts,
) -> Option<(Evidence, String)> {
    let incident = state.incidents.get(id)?;
    let evidence = Evidence {
        index: at.index,
        at: state.now,
        level: state.level,
        node: incident.node.clone(),
        looked_at,
        decided,
        policy: incident.policy.clone(),
        brakes_before: before,
        brakes_after: brake::counts(state),
    };
    let digest = evidence.digest();
    state.evidence_chain = chained(&state.evidence_chain, &digest);
    Some((evidence, digest))
}

/// The node, made if it is not known yet.
pub(crate) fn known<'a>(state: &'a mut State, name: &NodeName) -> &'a mut Node {
    let now = state.now;
    state.nodes.entry(name.clone()).or_insert_with(|| Node::new(name, now))
}
