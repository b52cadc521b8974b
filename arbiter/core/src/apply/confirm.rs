//! A person says that a machine is off. Bound to incident, Node and boot, so that it can never be taken for another
//! life; void on any sign of life.

use coroner_shared::id::NodeName;

use super::refusal::{ActRefusal, ConfirmRefusal, HoldRefusal, Refuses};
use super::{At, ledger};
use crate::command::Outcome;
use crate::evidence::LookedAt;
use crate::fence::COMMAND_DEADLINE;
use crate::hears::Hears;
use crate::permit;
use crate::phase::{Confirmation, FenceProof, HeldReason, Phase, Released};
use crate::policy::select::enforcing;
use crate::state::{Node, State};
use crate::verdict::LEASE_RENEWAL;

/// Takes a confirmation.
pub(crate) fn confirm_off(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    confirmation: &Confirmation,
    heard: Hears,
) -> Outcome {
    let released = match admit(state, name, confirmation, heard) {
        Ok(released) => released,
        Err(outcome) => return outcome,
    };
    let Some((id, incident)) = state.open_incident(name) else {
        return ConfirmRefusal::OtherIncident(None).refuse(name);
    };
    let (id, incarnation) = (id.clone(), incident.incarnation.clone());
    if incident.decided.is_none() {
        let Some(policy) = enforcing(state, name).cloned() else {
            return HoldRefusal::Held(HeldReason::Observe).refuse(name);
        };
        ledger::decide(state, &id, name, policy);
    }
    let proof = FenceProof::PersonConfirmed {
        incarnation,
        who: confirmation.who.clone(),
        why: confirmation.why.clone(),
        at: state.now,
    };
    let digest = ledger::chain_proof(state, at, &id, LookedAt::Confirmation(confirmation.clone()));
    let text = format!("{}: {} (evidence {digest})", confirmation.who, confirmation.why);
    ledger::note(state, at, &id, "PersonConfirmed", &text);
    let now = state.now;
    if let Some(incident) = state.incidents.get_mut(&id) {
        incident.proven = Some(now);
        incident.proven_by = Some(format!("PersonConfirmed by {}", confirmation.who));
    }
    ledger::enter(state, name, Phase::ProvenOff { incident: id, proof, released, last_read_failed: None });
    Outcome::Done
}

/// What speaks for a machine that runs although nobody hears its agent: a hold says so, or the kubelet renewed its Lease
/// and its next renewal is not overdue. A person who is mistaken about the machine must not be believed against that.
fn shows_life(state: &State, node: &Node, heard: Hears) -> Option<HeldReason> {
    if let Phase::Held { why: why @ (HeldReason::KubeletAlive | HeldReason::HostAnswersOnly), .. } =
        &node.phase
    {
        return Some(why.clone());
    }
    let renewed = node.lease_moved.is_some_and(|moved| state.now.since(moved) < LEASE_RENEWAL);
    (renewed || heard == Hears::Kubelet).then_some(HeldReason::KubeletAlive)
}

/// Whether the confirmation may be taken; what was released before, in a re-fence.
fn admit(
    state: &State,
    name: &NodeName,
    confirmation: &Confirmation,
    heard: Hears,
) -> Result<Option<Released>, Outcome> {
    let refused = |refusal: ConfirmRefusal| Err(refusal.refuse(name));
    let Some(node) = state.nodes.get(name) else {
        return Err(ActRefusal::UnknownNode.refuse(name));
    };
    let released = match &node.phase {
        Phase::Held { .. } | Phase::Condemned { .. } => None,
        Phase::Fencing { attempt, released, .. } => {
            let calling = attempt
                .as_ref()
                .is_some_and(|a| a.answer.is_none() && state.now.since(a.at) < COMMAND_DEADLINE);
            if calling {
                return refused(ConfirmRefusal::CallUnderWay);
            }
            released.clone()
        }
        Phase::ProvenOff { released, last_read_failed: Some(_), .. } => released.clone(),
        Phase::ProvenOff { last_read_failed: None, .. }
        | Phase::Alive
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => return refused(ConfirmRefusal::NothingToConfirm(node.phase.name())),
    };
    let Some((id, incident)) = state.open_incident(name) else {
        return refused(ConfirmRefusal::OtherIncident(None));
    };
    let life = &incident.incarnation;
    if *id != confirmation.incident || life.node != confirmation.node || life.boot != confirmation.boot {
        return refused(ConfirmRefusal::OtherIncident(Some(id.clone())));
    }
    // A registration of another boot is a sign of life, too.
    let rebooted = node.member.as_ref().is_some_and(|m| m.boot != life.boot);
    if heard == Hears::Node || node.heard_since.is_some() || rebooted {
        return refused(ConfirmRefusal::Heard);
    }
    if let Some(why) = shows_life(state, node, heard) {
        return refused(ConfirmRefusal::ShowsLife(why));
    }
    // Last: what speaks for the machine is the better answer, and will not be another one in a few seconds.
    if let Hears::NotYet { ask_again } = heard {
        return refused(ConfirmRefusal::NotListenedYet(ask_again));
    }
    if let Some(why) = permit::observes(state, name) {
        return Err(HoldRefusal::Held(why).refuse(name));
    }
    Ok(released)
}
