//! A person's or a policy's order to power off a node that may be well. Consent is the log's: who, why, and which Node
//! they looked at. Brakes, identity and proof are as for any other death.

use coroner_shared::id::{IncidentId, NodeName, NodeUid};

use super::refusal::{ActRefusal, HoldRefusal, Refuses};
use super::{At, boot, ledger, settle, signs};
use crate::brake::{self, Asking, Stage};
use crate::command::Outcome;
use crate::evidence::{Decided, LookedAt};
use crate::phase::{Brake, EvidenceClass, Phase, Released};
use crate::policy::select::enforcing;
use crate::state::State;

/// Takes an order.
pub(crate) fn order(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    uid: &NodeUid,
    who: &str,
    why: &str,
) -> Outcome {
    let Some(node) = state.nodes.get(name) else { return ActRefusal::UnknownNode.refuse(name) };
    let Some(life) = node.life_to_order().filter(|_| node.facts.is_some()) else {
        return ActRefusal::Unregistered.refuse(name);
    };
    if life.node != *uid {
        return ActRefusal::NodeReplaced.refuse(name);
    }
    match &node.phase {
        Phase::Alive | Phase::Held { .. } => {}
        Phase::Released { incident, released, on_since: Some(since), .. } => {
            let (incident, released, since) = (incident.clone(), released.clone(), *since);
            return on_but_unknown(state, at, name, &incident, released, since, who, why);
        }
        Phase::Condemned { .. }
        | Phase::Fencing { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { on_since: None, .. }
        | Phase::Returning { .. } => return ActRefusal::InIncident(node.phase.name()).refuse(name),
    }
    let class = EvidenceClass::Ordered { who: who.to_owned(), why: why.to_owned() };
    if let Some(why) = settle::forbids(state, name, &class) {
        return HoldRefusal::Held(why).refuse(name);
    }
    let asking = Asking { node: name, incident: node.phase.incident(), class: &class, stage: Stage::Condemn };
    if let Err(brake) = brake::ask(state, asking) {
        let left = match brake {
            Brake::Pace => brake::pace_left(state, &brake::limits(state)),
            Brake::InFlight
            | Brake::PerDomain
            | Brake::PerDomain10m
            | Brake::Budget
            | Brake::Floor
            | Brake::Storm
            | Brake::ControlPlane
            | Brake::ArbiterHosts
            | Brake::RepeatOffender => coroner_shared::time::Span::ZERO,
        };
        return HoldRefusal::Brake(brake, left).refuse(name);
    }
    let Some(policy) = enforcing(state, name).cloned() else { return Outcome::Unchanged };
    boot::leave_old_boot(state, name, life.boot);
    let before = brake::counts(state);
    let same_life =
        state.open_incident(name).filter(|(_, i)| i.incarnation == life).map(|(id, _)| id.clone());
    let id = match same_life {
        Some(id) => id,
        None => {
            if let Some(old) = state.open_incident(name).map(|(id, _)| id.clone()) {
                ledger::close(state, at, &old, "NewBoot", "another life of the node was ordered off");
            }
            ledger::open(state, at, name, life)
        }
    };
    ledger::note(state, at, &id, "Ordered", &format!("{who}: {why}"));
    ledger::decide(state, &id, name, policy);
    if let Some(incident) = state.incidents.get_mut(&id) {
        incident.class = Some(class.clone());
    }
    ledger::enter(state, name, Phase::Condemned { incident: id.clone(), class: class.clone() });
    let looked_at = LookedAt::Order { who: who.to_owned(), why: why.to_owned() };
    ledger::record(state, at, &id, looked_at, Decided::Condemned(class), before);
    Outcome::Done
}

/// A released machine has been on for long without a boot that anybody knows, and a person orders it off again: a
/// re-fence.
fn on_but_unknown(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    id: &IncidentId,
    released: Released,
    on_since: coroner_shared::time::Mono,
    who: &str,
    why: &str,
) -> Outcome {
    let booting =
        state.incidents.get(id).map(ledger::timings).unwrap_or(crate::policy::LifeTimings::DEFAULT).booting;
    if state.now.since(on_since) < booting {
        return ActRefusal::InIncident("Released").refuse(name);
    }
    if let Some(who) = crate::permit::paused_by(state, name) {
        return HoldRefusal::Held(crate::phase::HeldReason::Paused { who }).refuse(name);
    }
    if let Err(why) = crate::permit::fenceable(state, name) {
        return HoldRefusal::Held(why).refuse(name);
    }
    ledger::note(state, at, id, "ReFence", &format!("ordered while OnButUnknown by {who}: {why}"));
    signs::alarm(
        state,
        name,
        "OnButUnknownOrdered",
        "it is powered off again by order: on, and no boot of it is known",
    );
    let intent = ledger::intent(state, id, false);
    let phase = Phase::Fencing { incident: id.clone(), intent, attempt: None, released: Some(released) };
    ledger::enter(state, name, phase);
    Outcome::Done
}
