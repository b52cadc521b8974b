//! The way back: what a return waits for, the taint taken away, the end.

use coroner_shared::bmc::Login;
use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::Mono;

use super::fencing::{AFTER_DEADLINE, is_current};
use super::refusal::{ActRefusal, FencingRefusal, Refuses};
use super::{At, ledger};
use crate::command::Outcome;
use crate::fence::{COMMAND_DEADLINE, LATE_COMMAND};
use crate::phase::Phase;
use crate::state::{Incident, State};

/// Something a return waits for, with the log time at which it is over, where time alone ends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Waits {
    /// For people.
    pub what: String,
    /// When it is over by itself.
    pub until: Option<Mono>,
}

/// When no command of the incident can act any more: nothing is Alive before that.
pub(crate) fn last_attempt_over(incident: &Incident) -> Option<Mono> {
    incident.last_attempt.as_ref().map(|attempt| {
        attempt.at
            + match attempt.login {
                Login::Session(_) => COMMAND_DEADLINE + AFTER_DEADLINE,
                // Nobody can cut off what a log-in without a session still carries.
                Login::Basic => LATE_COMMAND,
            }
    })
}

/// What the return of a node waits for now; empty: the taint may go (or, where none stands, the incident may end).
pub fn waits_for(state: &State, name: &NodeName) -> Vec<Waits> {
    let Some(node) = state.nodes.get(name) else { return Vec::new() };
    let Some((_, incident)) = state.open_incident(name) else { return Vec::new() };
    let Phase::Returning { boot, released, waived, .. } = &node.phase else { return Vec::new() };
    let mut waits = Vec::new();
    let mut wait = |what: String, until: Option<Mono>| waits.push(Waits { what, until });
    if let Some(over) = last_attempt_over(incident).filter(|over| state.now < *over) {
        wait("the deadline of the last power command".to_owned(), Some(over));
    }
    if waived.is_some() {
        return waits;
    }
    let reported = node.facts.as_ref().and_then(|f| f.boot);
    if reported != Some(*boot) || *boot == incident.incarnation.boot {
        wait("its kubelet to report a new boot".to_owned(), None);
    }
    let long = ledger::timings(incident).return_ready;
    let ready_alone = planted(Mutant::TaintGoesOnReady);
    match node.ready_since {
        Some(since) if state.now < since + long && !ready_alone => {
            wait(format!("its Node to be Ready for {long}"), Some(since + long));
        }
        Some(_) => {}
        None => wait("its Node to be Ready".to_owned(), None),
    }
    if released.is_some() && !incident.leftovers_gone && !ready_alone {
        wait("pods and attachments of the old life to go".to_owned(), None);
    }
    waits
}

/// What the end still waits for once the taint was taken away.
pub fn end_waits_for(state: &State, name: &NodeName) -> Vec<Waits> {
    let Some(node) = state.nodes.get(name) else { return Vec::new() };
    let Some((_, incident)) = state.open_incident(name) else { return Vec::new() };
    let Phase::Returning { released, taint_removed, .. } = &node.phase else { return Vec::new() };
    if released.is_none() {
        return waits_for(state, name);
    }
    let margin = ledger::timings(incident).return_margin;
    let mut waits = Vec::new();
    match taint_removed {
        None => waits.push(Waits { what: "the taint to be taken away".to_owned(), until: None }),
        Some(removed) if state.now < *removed + margin => waits.push(Waits {
            what: format!("{margin} of margin for caches that are behind"),
            until: Some(*removed + margin),
        }),
        Some(_) => {}
    }
    if node.facts.as_ref().is_some_and(|f| f.tainted_by_us) {
        waits.push(Waits { what: "the watch to show that the taint is gone".to_owned(), until: None });
    }
    if let Some(over) = last_attempt_over(incident).filter(|over| state.now < *over) {
        waits.push(Waits { what: "the deadline of the last power command".to_owned(), until: Some(over) });
    }
    waits
}

fn not_yet(waits: &[Waits]) -> FencingRefusal {
    let what: Vec<&str> = waits.iter().map(|w| w.what.as_str()).collect();
    FencingRefusal::NotYet(what.join(", "))
}

/// Taint and annotation were taken away and read back as gone.
pub(crate) fn taint_removed(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    incident: &IncidentId,
) -> Outcome {
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    let waits = waits_for(state, name);
    let now = state.now;
    let Some(Phase::Returning { released: Some(_), taint_removed, .. }) =
        state.nodes.get_mut(name).map(|n| &mut n.phase)
    else {
        return Outcome::Stale;
    };
    if taint_removed.is_some() {
        return Outcome::Unchanged;
    }
    if !waits.is_empty() {
        return not_yet(&waits).refuse(name);
    }
    *taint_removed = Some(now);
    ledger::note(state, at, incident, "TaintRemoved", "taint and annotation are gone");
    Outcome::Done
}

/// Everything of ours is gone from the Node: Returning -> Alive.
pub(crate) fn returned(state: &mut State, at: At<'_>, name: &NodeName, incident: &IncidentId) -> Outcome {
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    if !state.nodes.get(name).is_some_and(|n| matches!(n.phase, Phase::Returning { .. })) {
        return Outcome::Stale;
    }
    let waits = end_waits_for(state, name);
    if !waits.is_empty() {
        return not_yet(&waits).refuse(name);
    }
    ledger::end(state, at, name, "Returned", "");
    Outcome::Done
}

/// A person ends a return that waits: Ready and leftovers are asked no more. Taint and cordon still go the ordinary
/// way, so that nothing of ours stays behind.
pub(crate) fn waive(state: &mut State, at: At<'_>, name: &NodeName, who: &str, why: &str) -> Outcome {
    let Some(node) = state.nodes.get(name) else { return ActRefusal::UnknownNode.refuse(name) };
    let Phase::Returning { incident, released, waived, .. } = &node.phase else {
        return ActRefusal::NotReturning(node.phase.name()).refuse(name);
    };
    let (id, bare) = (incident.clone(), released.is_none());
    let Some(record) = state.incidents.get(&id) else { return Outcome::Stale };
    // Of an orphan no proof is known that could contradict.
    let old_boot = node.facts.as_ref().and_then(|f| f.boot) == Some(record.incarnation.boot);
    if old_boot && !record.orphaned {
        return ActRefusal::ReturnContradicted.refuse(name);
    }
    if waived.is_some() {
        return Outcome::Unchanged;
    }
    if let Some(Phase::Returning { waived, .. }) = state.nodes.get_mut(name).map(|n| &mut n.phase) {
        *waived = Some(who.to_owned());
    }
    ledger::note(state, at, &id, "ReturnOrdered", &format!("{who}: {why}"));
    if bare && end_waits_for(state, name).is_empty() {
        ledger::end(state, at, name, "Returned", &format!("ordered by {who}"));
    }
    Outcome::Done
}
