//! From the intent to its end: what is permitted once, what stalls, and what ends without a proof.

use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::time::Span;

use super::refusal::{FencingRefusal, HoldRefusal, Refuses};
use super::{At, ledger, settle, signs};
use crate::brake::{self, Asking, Stage};
use crate::command::{Command, Outcome};
use crate::fence::COMMAND_DEADLINE;
use crate::permit;
use crate::phase::{EvidenceClass, HeldReason, Phase};
use crate::state::State;

/// A node is not Alive before the deadline of its last attempt and this.
pub(crate) const AFTER_DEADLINE: Span = Span::from_secs(10);

/// Whether this incident is the node's open one.
pub(crate) fn is_current(state: &State, name: &NodeName, incident: &IncidentId) -> bool {
    state.nodes.get(name).and_then(|n| n.phase.incident()) == Some(incident)
}

/// Condemned -> Fencing, after the last look.
pub(crate) fn intent(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    incident: &IncidentId,
    read_only: bool,
) -> Outcome {
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    let class = match state.nodes.get(name).map(|n| &n.phase) {
        Some(Phase::Condemned { class, .. }) => class.clone(),
        Some(Phase::Fencing { .. }) => return Outcome::Unchanged,
        Some(
            Phase::Alive
            | Phase::Held { .. }
            | Phase::ProvenOff { .. }
            | Phase::Releasing { .. }
            | Phase::Released { .. }
            | Phase::Returning { .. },
        )
        | None => return Outcome::Stale,
    };
    if rebooted(state, name) {
        return FencingRefusal::NewBootSeen.refuse(name);
    }
    let asking = Asking { node: name, incident: Some(incident), class: &class, stage: Stage::Intent };
    let forbidden = settle::forbids(state, name, &class)
        .or_else(|| brake::ask(state, asking).err().map(HeldReason::Brake));
    if let Some(why) = forbidden {
        ledger::hold(state, at, name, why.clone());
        return HoldRefusal::Held(why).refuse(name);
    }
    match class {
        // A machine that is off already costs nothing of the budget.
        EvidenceClass::FoundOff => {}
        EvidenceClass::HostSilentBmcOn | EvidenceClass::Ordered { .. } => brake::spend(state),
    }
    ledger::note(state, at, incident, "Intent", if read_only { "reading only" } else { "" });
    let intent = ledger::intent(state, incident, read_only);
    let phase = Phase::Fencing { incident: incident.clone(), intent, attempt: None, released: None };
    ledger::enter(state, name, phase);
    Outcome::Done
}

/// Whether another boot than the one under incident has registered.
pub(crate) fn rebooted(state: &State, name: &NodeName) -> bool {
    let Some((_, incident)) = state.open_incident(name) else { return false };
    let boot = incident.incarnation.boot;
    let member = state.nodes.get(name).and_then(|n| n.member.as_ref());
    member.is_some_and(|m| m.left_boots.contains(&boot) || (m.boot != boot && !m.boot_is_over()))
}

/// The intent makes no progress, or the binding turned out to be wrong.
pub(crate) fn stalled(state: &mut State, at: At<'_>) -> Outcome {
    let Command::Stalled { node: name, incident, why, disable_binding } = &at.entry.command else {
        return Outcome::Unchanged;
    };
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    let Some(node) = state.nodes.get_mut(name) else { return Outcome::Stale };
    let Phase::Fencing { intent, attempt, released, .. } = &mut node.phase else { return Outcome::Stale };
    let untouched = attempt.is_none() && released.is_none();
    if intent.stalled.as_ref() == Some(why) && !disable_binding {
        return Outcome::Unchanged;
    }
    intent.stalled = Some(why.clone());
    ledger::note(state, at, incident, "Stalled", why);
    if *disable_binding {
        if let Some(binding) = state.bindings.get_mut(name) {
            binding.disabled = Some(why.clone());
        }
        signs::alarm(state, name, "BindingDisabled", why);
        if untouched {
            ledger::hold(state, at, name, HeldReason::Identity(why.clone()));
        }
    }
    Outcome::Done
}

/// Found off, nothing sent, and On was read: the intent closes, the node is judged again.
pub(crate) fn found_on_again(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    incident: &IncidentId,
) -> Outcome {
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    let untouched = match state.nodes.get(name).map(|n| &n.phase) {
        Some(Phase::Condemned { .. }) => true,
        Some(Phase::Fencing { attempt, released, .. }) => attempt.is_none() && released.is_none(),
        Some(
            Phase::Alive
            | Phase::Held { .. }
            | Phase::ProvenOff { .. }
            | Phase::Releasing { .. }
            | Phase::Released { .. }
            | Phase::Returning { .. },
        )
        | None => return Outcome::Stale,
    };
    let found_off = state.incidents.get(incident).is_some_and(|i| i.class == Some(EvidenceClass::FoundOff));
    if !untouched || !found_off {
        return FencingRefusal::NotFoundOff.refuse(name);
    }
    ledger::hold(state, at, name, HeldReason::FoundOnAgain);
    Outcome::Done
}

/// After an attempt the BMC says On, or nothing for 10 minutes: with a node that has been heard for long enough, the
/// fence is averted.
pub(crate) fn still_on(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    incident: &IncidentId,
    read: bool,
) -> Outcome {
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    let Some(node) = state.nodes.get(name) else { return Outcome::Stale };
    let Some(record) = state.incidents.get(incident) else { return Outcome::Stale };
    let Phase::Fencing { attempt: Some(attempt), released: None, .. } = &node.phase else {
        return Outcome::Stale;
    };
    if matches!(record.class, Some(EvidenceClass::Ordered { .. })) {
        return FencingRefusal::NotYet("the machine to be off, as ordered".to_owned()).refuse(name);
    }
    let averted = ledger::timings(record).averted;
    let heard_long = node.heard_since.is_some_and(|since| state.now.since(since) >= averted);
    if !heard_long {
        let text = format!("a proof of life for {averted} under the same boot id");
        return FencingRefusal::NotYet(text).refuse(name);
    }
    if state.now < attempt.at + COMMAND_DEADLINE + AFTER_DEADLINE {
        return FencingRefusal::NotYet("the deadline of the last attempt".to_owned()).refuse(name);
    }
    let how = if read { "heard, and its BMC says On" } else { "heard, and its BMC has been silent" };
    ledger::undecide(state, incident, name);
    ledger::end(state, at, name, "Averted", how);
    signs::alarm(
        state,
        name,
        "Averted",
        "a power command was sent to it, and it lives: it was condemned wrongly",
    );
    Outcome::Done
}

/// Whether an open incident's power commands are permitted now, brakes aside.
///
/// # Errors
/// What forbids them.
pub(crate) fn may_command(state: &State, name: &NodeName) -> Result<(), HeldReason> {
    permit::commands_barred(state, name).map_or_else(|| permit::fenceable(state, name), Err)
}
