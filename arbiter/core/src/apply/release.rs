//! From the proof to the taint, and what is watched after it.

use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::Span;

use super::fencing::{is_current, may_command, rebooted};
use super::proven::holds;
use super::refusal::{FencingRefusal, HoldRefusal, Refuses};
use super::settle::CONFIRMATION_AGE;
use super::signs::nothing_sent;
use super::{At, ledger};
use crate::command::{Command, Outcome};
use crate::evidence::LookedAt;
use crate::last_read::PROOF_AGE_MAX;
use crate::phase::{FenceProof, HeldReason, LastReadFailed, OffReadings, Phase};
use crate::policy::AfterRelease;
use crate::state::State;

// === the last read ===

/// The last read could not be made: the release waits, visibly.
pub(crate) fn last_read_failed(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    incident: &IncidentId,
    why: &str,
) -> Outcome {
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    let now = state.now;
    let Some(Phase::ProvenOff { last_read_failed, .. }) = state.nodes.get_mut(name).map(|n| &mut n.phase)
    else {
        return Outcome::Stale;
    };
    if last_read_failed.as_ref().is_some_and(|failed| failed.why == why) {
        return Outcome::Unchanged;
    }
    let since = last_read_failed.as_ref().map_or(now, |failed| failed.since);
    *last_read_failed = Some(LastReadFailed { since, why: why.to_owned() });
    ledger::note(state, at, incident, "LastReadFailed", why);
    Outcome::Done
}

/// The last read said On: off is wanted again.
pub(crate) fn last_read_on(state: &mut State, at: At<'_>, name: &NodeName, incident: &IncidentId) -> Outcome {
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    let Some(Phase::ProvenOff { released, .. }) = state.nodes.get(name).map(|n| &n.phase) else {
        return Outcome::Stale;
    };
    let released = released.clone();
    if released.is_none() && nothing_sent(state, incident) {
        // Nobody asked a brake for it, and a person's word is no evidence against a BMC that says On: it is judged anew
        // by what is seen of it now.
        ledger::note(state, at, incident, "LastReadOn", "nothing was sent to it; it is judged anew");
        ledger::hold(state, at, name, HeldReason::FoundOnAgain);
        return Outcome::Done;
    }
    ledger::note(state, at, incident, "LastReadOn", "it is on again; off is wanted anew");
    let intent = ledger::intent(state, incident, false);
    let attempt = state.incidents.get(incident).and_then(|i| i.last_attempt.clone());
    let phase = Phase::Fencing { incident: incident.clone(), intent, attempt, released };
    ledger::enter(state, name, phase);
    Outcome::Done
}

// === the release ===

/// ProvenOff -> Releasing, after a good last read.
pub(crate) fn begun(state: &mut State, at: At<'_>) -> Outcome {
    let Command::ReleaseBegun { node: name, incident, before, again } = &at.entry.command else {
        return Outcome::Unchanged;
    };
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    let Some(Phase::ProvenOff { proof, released, .. }) = state.nodes.get(name).map(|n| &n.phase) else {
        return Outcome::Stale;
    };
    let (proof, released) = (proof.clone(), released.clone());
    if let Err(refusal) = still_proven(state, name, incident, &proof, again.as_deref()) {
        return refusal.refuse(name);
    }
    if let Some(again) = again {
        ledger::chain_proof(state, at, incident, LookedAt::Readings(again.clone()));
    }
    // In a re-fence the node carries our own cordon by now: what it was like is what was recorded first.
    let kept = released.filter(|_| !planted(Mutant::OwnCordonForeign));
    let released = kept.unwrap_or_else(|| before.clone());
    let text = format!("{} pods and {} attachments must go", released.pods.len(), released.attachments.len());
    ledger::note(state, at, incident, "ReleaseBegun", &text);
    ledger::enter(state, name, Phase::Releasing { incident: incident.clone(), proof, released });
    Outcome::Done
}

/// Whether the proof may be acted on now: fresh, or made again, and nothing spoke against it since.
fn still_proven(
    state: &State,
    name: &NodeName,
    incident: &IncidentId,
    proof: &FenceProof,
    again: Option<&OffReadings>,
) -> Result<(), FencingRefusal> {
    if rebooted(state, name) && !planted(Mutant::NewBootIsProof) {
        return Err(FencingRefusal::NewBootSeen);
    }
    if let Some(again) = again {
        return holds(state, name, incident, again, None);
    }
    let node = state.nodes.get(name);
    if node.is_some_and(|n| n.heard_since.is_some() || n.heard.is_some_and(|heard| heard > proof.at())) {
        return Err(FencingRefusal::Heard);
    }
    if node.and_then(|n| n.lease_moved).is_some_and(|moved| moved >= proof.at()) {
        return Err(FencingRefusal::LeaseMoved);
    }
    let age = state.now.since(proof.at());
    match proof {
        FenceProof::BmcOff { .. } if age > PROOF_AGE_MAX => Err(FencingRefusal::ProofTooOld(age)),
        FenceProof::PersonConfirmed { .. } if age > CONFIRMATION_AGE => {
            Err(FencingRefusal::ConfirmationExpired)
        }
        FenceProof::BmcOff { .. } | FenceProof::PersonConfirmed { .. } => Ok(()),
    }
}

/// Releasing -> Released.
pub(crate) fn taint_seen(state: &mut State, at: At<'_>, name: &NodeName, incident: &IncidentId) -> Outcome {
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    match state.nodes.get(name).map(|n| n.phase.clone()) {
        Some(Phase::Releasing { incident, proof, released }) => {
            let now = state.now;
            if let Some(record) = state.incidents.get_mut(&incident) {
                record.tainted = Some(now);
            }
            ledger::note(state, at, &incident, "Released", "the taint stands");
            ledger::enter(state, name, Phase::Released { incident, proof, released, on_since: None });
            Outcome::Done
        }
        Some(Phase::Released { .. }) => Outcome::Unchanged,
        Some(
            Phase::Alive
            | Phase::Held { .. }
            | Phase::Condemned { .. }
            | Phase::Fencing { .. }
            | Phase::ProvenOff { .. }
            | Phase::Returning { .. },
        )
        | None => Outcome::Stale,
    }
}

// === after the release ===

/// None of the recorded pods and attachments is left.
pub(crate) fn leftovers_gone(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    incident: &IncidentId,
) -> Outcome {
    let out = state.nodes.get(name).is_some_and(|n| n.phase.out_of_service());
    if !is_current(state, name, incident) || !out {
        return Outcome::Stale;
    }
    let Some(record) = state.incidents.get_mut(incident) else { return Outcome::Stale };
    if record.leftovers_gone {
        return Outcome::Unchanged;
    }
    record.leftovers_gone = true;
    ledger::note(state, at, incident, "LeftoversGone", "pods and attachments of the old life are gone");
    Outcome::Done
}

/// The BMC was read On, or Off again, after the release.
pub(crate) fn power(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    incident: &IncidentId,
    on: bool,
) -> Outcome {
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    let now = state.now;
    let Some(Phase::Released { on_since, .. }) = state.nodes.get_mut(name).map(|n| &mut n.phase) else {
        return Outcome::Stale;
    };
    if on_since.is_some() == on {
        return Outcome::Unchanged;
    }
    *on_since = on.then_some(now);
    let what = if on { "Booting" } else { "OffAgain" };
    ledger::note(state, at, incident, what, "as its BMC says");
    #[cfg(coroner_mutants)]
    if on && planted(Mutant::OnIsFenced) {
        super::planted::fence_released(state, name, incident);
    }
    Outcome::Done
}

/// One committed attempt to power the machine on.
pub(crate) fn power_on(state: &mut State, at: At<'_>, name: &NodeName, incident: &IncidentId) -> Outcome {
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    if let Err(why) = may_power_on(state, name, incident) {
        return FencingRefusal::NoPowerOn(why).refuse(name);
    }
    if let Err(why) = may_command(state, name) {
        return HoldRefusal::Held(why).refuse(name);
    }
    if let Some(record) = state.incidents.get_mut(incident) {
        record.powered_on = true;
    }
    ledger::note(state, at, incident, "PowerOn", "one attempt to power it on");
    Outcome::Done
}

/// Whether power-on is wanted: only of a machine that we turned off, once, when nothing of the old life is left.
///
/// # Errors
/// Why not.
pub fn may_power_on(state: &State, name: &NodeName, incident: &IncidentId) -> Result<(), &'static str> {
    let Some(node) = state.nodes.get(name) else { return Err("it is not known") };
    let Some(record) = state.incidents.get(incident) else { return Err("no incident is open") };
    let Phase::Released { on_since, .. } = &node.phase else { return Err("it is not released") };
    let after = record.terms.as_deref().map_or(AfterRelease::StayOff, |terms| terms.after_release);
    if on_since.is_some() {
        Err("its BMC says On already")
    } else if !record.turned_off_by_us {
        Err("we did not turn it off")
    } else if !record.leftovers_gone {
        Err("pods or attachments of the old life are left")
    } else if record.powered_on {
        Err("it was powered on once for this incident")
    } else if node.repeat_offender {
        Err("it died too often within 24 hours")
    } else {
        match after {
            AfterRelease::PowerOn => Ok(()),
            AfterRelease::StayOff => Err("its policy leaves it off"),
        }
    }
}

/// For how long a released machine may be on without a boot that anybody knows.
pub fn booting(state: &State, incident: &IncidentId) -> Span {
    state.incidents.get(incident).map_or(crate::policy::LifeTimings::DEFAULT, ledger::timings).booting
}
