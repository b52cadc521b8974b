//! What some planted bugs need and no shipped code may hold: a proof out of nothing, and edges that do not exist.

use std::mem;

use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::time::Mono;

use super::ledger;
use crate::phase::{FenceProof, OffReadings, Phase};
use crate::policy::Pin;
use crate::state::{Incident, State};

/// A proof that rests on no reading at all.
pub(crate) fn proof(record: &Incident, pin: &Pin, at: Mono) -> FenceProof {
    let readings = OffReadings {
        readings: Vec::new(),
        closing: None,
        steady: false,
        command: None,
        member: pin.member.clone(),
        transform: pin.transform,
        identity_before: pin.machine.to_string(),
        identity_after: pin.machine.to_string(),
        last_over_new_session: false,
        cached: false,
    };
    FenceProof::BmcOff { incarnation: record.incarnation.clone(), readings, at }
}

/// The node's new boot is taken for a proof of the old one. Answers whether its phase took one.
pub(super) fn take_for_proof(state: &mut State, name: &NodeName) -> bool {
    let (Some(pin), Some((_, record))) =
        (state.bindings.get(name).and_then(|b| b.pin.clone()), state.open_incident(name))
    else {
        return false;
    };
    let proof = proof(record, &pin, state.now);
    let Some(node) = state.nodes.get_mut(name) else { return false };
    match mem::replace(&mut node.phase, Phase::Alive) {
        Phase::Fencing { incident, released, .. } => {
            let phase = Phase::ProvenOff { incident, proof, released, last_read_failed: None };
            ledger::enter(state, name, phase);
            true
        }
        other @ (Phase::Alive
        | Phase::Held { .. }
        | Phase::Condemned { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. }) => {
            let proven = matches!(other, Phase::ProvenOff { .. });
            node.phase = other;
            proven
        }
    }
}

/// A released machine that is on is fenced, without its boot id having been heard.
pub(super) fn fence_released(state: &mut State, name: &NodeName, incident: &IncidentId) {
    let Some(Phase::Released { released, .. }) = state.nodes.get(name).map(|n| n.phase.clone()) else {
        return;
    };
    let intent = ledger::intent(state, incident, false);
    let phase =
        Phase::Fencing { incident: incident.clone(), intent, attempt: None, released: Some(released) };
    ledger::enter(state, name, phase);
}
