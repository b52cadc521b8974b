//! What permits a power command, and what forbids one: pauses, policies, opt-outs and bindings. Pure questions, asked
//! by `apply` before it commits and by the leader before it proposes.
//!
//! Everything here forbids only new harm. Proofs, releases and returns never ask.

use coroner_shared::id::NodeName;
use coroner_shared::machine_id::MachineId;
use coroner_shared::names::EXCLUDE_LABEL;

use crate::phase::HeldReason;
use crate::policy::select::{Selected, policy_for};
use crate::policy::{Mode, Pin};
use crate::state::State;

/// Why a binding whose spec changed may not be used.
pub(crate) const CHANGED: &str = "its MachineBinding changed and was not verified since";

/// Who paused power commands for this node, if anybody: a person for everything or for the node, or its policy.
pub fn paused_by(state: &State, node: &NodeName) -> Option<String> {
    if let Some(pause) = &state.pause {
        return Some(pause.who.clone());
    }
    let known = state.nodes.get(node)?;
    if let Some(pause) = &known.pause {
        return Some(pause.who.clone());
    }
    let by_policy = |name: &str| format!("policy/{name}");
    if let Some(terms) = state.open_incident(node).and_then(|(_, incident)| incident.terms.as_deref()) {
        // The terms are from then; a pause that came since is in the policy of now.
        let now = state.policies.get(&terms.name);
        return now.unwrap_or(terms).paused.then(|| by_policy(&terms.name));
    }
    match policy_for(state, node) {
        Selected::One(policy) => policy.paused.then(|| by_policy(&policy.name)),
        Selected::None | Selected::Conflict(_) => None,
    }
}

/// Whether the node carries the opt-out label.
pub fn excluded(state: &State, node: &NodeName) -> bool {
    let labels = state.nodes.get(node).and_then(|n| n.facts.as_ref()).map(|f| &f.labels);
    labels.and_then(|l| l.get(EXCLUDE_LABEL)).is_some_and(|value| value == "true")
}

/// What stops an incident that was condemned under a policy: the policy is gone or in Observe, another one claims the
/// node too, or the node opted out. Each acts as a pause of this node.
pub fn stopped(state: &State, node: &NodeName) -> Option<HeldReason> {
    if excluded(state, node) { Some(HeldReason::Excluded) } else { observes(state, node) }
}

/// Why no power command may be sent for this node now, whatever its binding says: somebody paused it, or what condemned
/// it is stopped. The one question that orders, notes, looks and `apply` ask.
pub fn commands_barred(state: &State, node: &NodeName) -> Option<HeldReason> {
    paused_by(state, node).map(|who| HeldReason::Paused { who }).or_else(|| stopped(state, node))
}

/// Why the node is in Observe, if it is: no policy in Enforce speaks for it, more than one selects it, or the policy
/// that condemned it does no longer enforce.
pub fn observes(state: &State, node: &NodeName) -> Option<HeldReason> {
    if let Some(terms) = state.open_incident(node).and_then(|(_, incident)| incident.terms.as_deref()) {
        match state.policies.get(&terms.name) {
            Some(policy) if policy.mode == Mode::Enforce => {}
            Some(_) | None => return Some(HeldReason::Observe),
        }
    }
    match policy_for(state, node) {
        Selected::One(policy) if policy.mode == Mode::Enforce => None,
        Selected::One(_) | Selected::None => Some(HeldReason::Observe),
        Selected::Conflict(names) => Some(HeldReason::PolicyConflict(names)),
    }
}

/// Whether the node's machine can be fenced at all: a binding, pinned and verified, and three sides that agree on
/// which machine it is (the agent, the kubelet, the pin).
///
/// # Errors
/// Why not.
pub fn fenceable(state: &State, node: &NodeName) -> Result<(), HeldReason> {
    let missing = |what: &str| Err(HeldReason::NotFenceable(what.to_owned()));
    let Some(binding) = state.bindings.get(node) else {
        return missing("no MachineBinding names its BMC");
    };
    let Some(pin) = &binding.pin else {
        return missing("its MachineBinding was never verified while the node was well");
    };
    if let Some(why) = &binding.disabled {
        return Err(HeldReason::Identity(why.clone()));
    }
    let Some(known) = state.nodes.get(node) else {
        return missing("its Node object was never seen");
    };
    let (Some(member), Some(facts)) = (&known.member, &known.facts) else {
        return missing("it is not registered, or its Node object was never seen");
    };
    match &member.machine {
        Ok(machine) if *machine == pin.machine => {}
        Ok(machine) => {
            return Err(HeldReason::MachineChanged {
                pinned: pin.machine.to_string(),
                found: machine.to_string(),
            });
        }
        Err(why) => return Err(HeldReason::NotFenceable(format!("it has no machine id: {why}"))),
    }
    match kubelet_machine(state, node) {
        Some(machine) if machine == pin.machine => Ok(()),
        Some(_) | None => Err(HeldReason::Identity(format!(
            "nodeInfo.systemUUID is {:?}, the pinned machine is {}",
            facts.system_uuid, pin.machine
        ))),
    }
}

/// The machine that the kubelet speaks of, in the byte order seen at enrolment.
pub fn kubelet_machine(state: &State, node: &NodeName) -> Option<MachineId> {
    let facts = state.nodes.get(node)?.facts.as_ref()?;
    match state.bindings.get(node).and_then(|b| b.pin.as_ref()) {
        Some(pin) => machine_of(&facts.system_uuid, pin),
        None => facts.system_uuid.parse().ok(),
    }
}

/// Whether the kubelet speaks of another machine than the pinned one. It can write its own status, so that this is a
/// sign of trouble and never a reason to pin anew.
pub fn kubelet_disagrees(state: &State, node: &NodeName) -> bool {
    let pin = state.bindings.get(node).and_then(|b| b.pin.as_ref());
    let facts = state.nodes.get(node).and_then(|n| n.facts.as_ref());
    match (pin, facts) {
        (Some(pin), Some(facts)) => machine_of(&facts.system_uuid, pin) != Some(pin.machine),
        (None, _) | (_, None) => false,
    }
}

/// Whether a binding that changed waits for its verification.
pub fn to_be_verified(state: &State, node: &NodeName) -> bool {
    state.bindings.get(node).is_some_and(|b| b.disabled.as_deref() == Some(CHANGED))
}

/// The machine that `nodeInfo.systemUUID` names in the byte order of a pin.
pub fn machine_of(system_uuid: &str, pin: &Pin) -> Option<MachineId> {
    let given: MachineId = system_uuid.parse().ok()?;
    MachineId::from_bytes(pin.system_transform.apply(given.bytes())).ok()
}
