//! Signs of life that matter: a proof of life, its end, and a Lease that moves.

use coroner_shared::id::{BootId, IncidentId, NodeName};
use coroner_shared::mutant::{Mutant, planted};

use super::{At, ledger};
use crate::command::Outcome;
use crate::phase::{EvidenceClass, LastReadFailed, Phase};
use crate::policy::select::rules_for;
use crate::state::{Enforced, Node, State};

/// Forgets everything that a node is reproached with only until it is heard; a goodbye only if the sign was given after
/// it. Answers whether anything was forgotten.
pub(crate) fn is_well(state: &mut State, name: &NodeName, after_goodbye: bool) -> bool {
    let Some(node) = state.nodes.get_mut(name) else { return false };
    let ends = after_goodbye && node.goodbye.is_some();
    let was =
        ends || node.would_condemn_said.is_some() || node.enforced == Enforced::Unheard || node.in_storm;
    if ends {
        node.goodbye = None;
    }
    node.would_condemn_said = None;
    if node.enforced == Enforced::Unheard {
        node.enforced = Enforced::Cleared;
    }
    node.in_storm = false;
    was
}

/// Whether a beacon was sent after the standing goodbye; of a sign that is none it cannot be said.
pub(crate) fn is_after_goodbye(node: &Node, beacon: Option<(BootId, u64)>) -> bool {
    node.goodbye
        .as_ref()
        .is_some_and(|said| beacon.is_some_and(|(boot, seq)| boot == said.boot && seq > said.seq))
}

/// A proof of life of the registered boot: a beacon's number, 0 for a sign that has none, or `None` for a registration,
/// which an agent sends when it starts and not once it has said goodbye.
pub(crate) fn heard(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    (boot, seq): (BootId, Option<u64>),
) -> Outcome {
    let Some(node) = state.nodes.get(name) else { return Outcome::Stale };
    if node.member.as_ref().is_none_or(|m| m.boot != boot || m.boot_is_over()) {
        return Outcome::Stale;
    }
    let after_goodbye = seq.is_none_or(|seq| is_after_goodbye(node, Some((boot, seq))));
    let cleared = is_well(state, name, after_goodbye);
    if concerns_incident(state, name, boot) && edge_of_life(state, at, name, "a proof of life came") {
        return Outcome::Done;
    }
    if cleared { Outcome::Done } else { Outcome::Unchanged }
}

/// Whether this boot is the one of the open incident.
fn concerns_incident(state: &State, name: &NodeName, boot: BootId) -> bool {
    state.open_incident(name).is_some_and(|(_, incident)| incident.incarnation.boot == boot)
}

/// The edges that a proof of life of the boot under incident takes. Answers whether anything changed.
fn edge_of_life(state: &mut State, at: At<'_>, name: &NodeName, how: &str) -> bool {
    let Some(phase) = state.nodes.get(name).map(|n| n.phase.clone()) else { return false };
    match phase {
        Phase::Alive | Phase::Held { .. } | Phase::Returning { .. } => false,
        Phase::Condemned { .. } | Phase::Fencing { .. } if reprieves(state, name) => {
            reprieve(state, at, name, how);
            true
        }
        Phase::Condemned { incident, .. } | Phase::Fencing { incident, .. } => {
            if note_heard(state, name) {
                ledger::note(state, at, &incident, "Heard", how);
            }
            true
        }
        Phase::ProvenOff { incident, released, .. } => {
            ledger::note(state, at, &incident, "HeardAfterProof", how);
            alarm(
                state,
                name,
                "HeardAfterProof",
                "it was proven off, and is heard again under the same boot id",
            );
            if released.is_none() && nothing_sent(state, &incident) {
                // Proven by reading or by a person's word alone: no command of ours is to be waited for, and what it
                // was condemned on is over.
                reprieve(state, at, name, how);
                return true;
            }
            note_heard(state, name);
            let intent = ledger::intent(state, &incident, false);
            let attempt = state.incidents.get(&incident).and_then(|i| i.last_attempt.clone());
            ledger::enter(state, name, Phase::Fencing { incident, intent, attempt, released });
            true
        }
        Phase::Releasing { incident, released, .. } | Phase::Released { incident, released, .. } => {
            ledger::note(state, at, &incident, "ReFence", "the same boot id was heard after the release");
            alarm(
                state,
                name,
                "SameBootAfterRelease",
                "its workloads were released, and the same boot id is heard: a second writer. It is powered off again",
            );
            note_heard(state, name);
            let intent = ledger::intent(state, &incident, false);
            let released = Some(released);
            ledger::enter(state, name, Phase::Fencing { incident, intent, attempt: None, released });
            true
        }
    }
}

/// Whether a sign of life ends it: condemned on evidence of death, nothing sent, nothing released.
fn reprieves(state: &State, name: &NodeName) -> bool {
    let Some(node) = state.nodes.get(name) else { return false };
    let untouched = match &node.phase {
        Phase::Condemned { .. } => true,
        Phase::Fencing { attempt, released, .. } => attempt.is_none() && released.is_none(),
        Phase::Alive
        | Phase::Held { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => false,
    };
    let ordered = state
        .open_incident(name)
        .is_some_and(|(_, i)| matches!(i.class, Some(EvidenceClass::Ordered { .. })));
    untouched && !ordered
}

/// Whether no power command was ever committed under this incident, and nobody ordered one.
pub(crate) fn nothing_sent(state: &State, incident: &IncidentId) -> bool {
    state.incidents.get(incident).is_some_and(|record| {
        record.last_attempt.is_none() && !matches!(record.class, Some(EvidenceClass::Ordered { .. }))
    })
}

/// Ends a condemnation before anything was sent, if a sign of life may. Answers whether it did.
pub(crate) fn try_reprieve(state: &mut State, at: At<'_>, name: &NodeName, how: &str) -> bool {
    let yes = reprieves(state, name);
    if yes {
        reprieve(state, at, name, how);
    }
    yes
}

fn reprieve(state: &mut State, at: At<'_>, name: &NodeName, how: &str) {
    if let Some(id) = state.nodes.get(name).and_then(|n| n.phase.incident()).cloned() {
        ledger::undecide(state, &id, name);
    }
    ledger::end(state, at, name, "Reprieve", how);
}

/// Remembers that the boot under incident was heard just now. Answers whether it was silent before.
fn note_heard(state: &mut State, name: &NodeName) -> bool {
    let now = state.now;
    let Some(node) = state.nodes.get_mut(name) else { return false };
    node.heard = Some(now);
    let first = node.heard_since.is_none();
    if first {
        node.heard_since = Some(now);
    }
    first
}

/// Puts something that happened once on the list of pages.
pub(crate) fn alarm(state: &mut State, name: &NodeName, word: &str, text: &str) {
    if let Some(node) = state.nodes.get_mut(name) {
        node.alarms.insert(word.to_owned(), text.to_owned());
    }
}

/// The boot under incident fell silent again. The leader says so after the time that counts as heard, so the last
/// sign lies at least that far back.
pub(crate) fn silent_again(state: &mut State, at: At<'_>, name: &NodeName) -> Outcome {
    let heard = rules_for(state, name).heard;
    let now = state.now;
    let Some(node) = state.nodes.get_mut(name) else { return Outcome::Stale };
    let Some(since) = node.heard_since.take() else { return Outcome::Unchanged };
    node.heard = Some(now.back(heard).max(since));
    if let Some(id) = node.phase.incident().cloned() {
        ledger::note(state, at, &id, "SilentAgain", "");
    }
    Outcome::Done
}

/// The kubelet's Lease changed while an incident was open.
pub(crate) fn lease_moved(state: &mut State, at: At<'_>, name: &NodeName) -> Outcome {
    let now = state.now;
    let Some(node) = state.nodes.get_mut(name) else { return Outcome::Stale };
    let proven = match &node.phase {
        _ if planted(Mutant::LeaseIgnored) => return Outcome::Unchanged,
        Phase::Condemned { .. } | Phase::Fencing { .. } => None,
        Phase::ProvenOff { incident, .. } => Some(incident.clone()),
        // A hold is judged by its views; after the release began the boot id decides.
        Phase::Alive
        | Phase::Held { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => return Outcome::Unchanged,
    };
    node.lease_moved = Some(now);
    if let Phase::ProvenOff { last_read_failed, .. } = &mut node.phase {
        let since = last_read_failed.as_ref().map_or(now, |failed| failed.since);
        *last_read_failed = Some(LastReadFailed { since, why: "the kubelet renewed its Lease".to_owned() });
    }
    if let Some(incident) = proven {
        ledger::note(state, at, &incident, "LeaseMoved", "after the proof: off is proven anew");
        alarm(state, name, "LeaseMovedAfterProof", "it is proven off, and its kubelet renewed its Lease");
    } else {
        try_reprieve(state, at, name, "the kubelet renewed its Lease");
    }
    Outcome::Done
}
