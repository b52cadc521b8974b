//! A new boot under an open incident. It never releases and never powers off; it ends the incident, and only when it
//! comes with the pinned machine and the kubelet's own `nodeInfo.bootID` says the same. Another machine under the same
//! Node is a security event.
//!
//! Agents are not needed for that: the kubelet's Node status carries boot id and machine. Where an agent has registered
//! it must agree.

use coroner_shared::id::{BootId, IncidentId, NodeName};
use coroner_shared::machine_id::MachineId;
#[cfg(coroner_mutants)]
use coroner_shared::mutant::{Mutant, planted};

use super::register::leave_boot;
use super::{At, ledger, signs};
use crate::observers;
use crate::permit;
use crate::phase::{HeldReason, Phase, Released};
use crate::state::{Incident, Node, State};

/// What stands under the Node's name, seen from an incident.
enum Seen {
    /// The life of the incident, or nothing that says otherwise.
    Nothing,
    /// A new boot of the same machine, on which agent and kubelet agree.
    NewBoot(BootId),
    /// Another machine.
    OtherMachine(MachineId),
}

/// What a registration of another boot does at once, before the kubelet speaks: it is a proof of life.
pub(crate) fn registered(state: &mut State, at: At<'_>, name: &NodeName) {
    let Some((_, incident)) = state.open_incident(name) else { return };
    let same_machine =
        state.nodes.get(name).and_then(|n| n.member.as_ref()).is_some_and(|m| {
            m.machine.as_ref().is_ok_and(|machine| *machine == incident.incarnation.machine)
        });
    if same_machine {
        signs::try_reprieve(state, at, name, "it registered a new boot");
    }
}

/// Takes the edges of a new boot or another machine, as far as agent and kubelet have spoken by now.
pub(crate) fn settle(state: &mut State, at: At<'_>, name: &NodeName) {
    let Some(node) = state.nodes.get(name) else { return };
    let Some((_, incident)) = state.open_incident(name) else { return };
    match seen(state, name, node, incident) {
        Seen::Nothing => {}
        Seen::NewBoot(boot) => {
            leave_old_boot(state, name, boot);
            new_boot(state, at, name, boot);
        }
        Seen::OtherMachine(found) => {
            let pinned = incident.incarnation.machine;
            let tainted = node.facts.as_ref().is_some_and(|f| f.tainted_by_us);
            let stops = match &node.phase {
                Phase::Condemned { .. } => true,
                Phase::Fencing { released, .. } | Phase::ProvenOff { released, .. } => released.is_none(),
                // Its patch was refused by another boot id, unless the taint stands: then it is released.
                Phase::Releasing { .. } => !tainted && kubelet_left(node, incident),
                Phase::Alive | Phase::Held { .. } | Phase::Released { .. } | Phase::Returning { .. } => false,
            };
            if stops {
                let why = HeldReason::MachineChanged { pinned: pinned.to_string(), found: found.to_string() };
                ledger::hold(state, at, name, why);
            }
        }
    }
}

/// Whether the kubelet reports another boot than the incident's.
fn kubelet_left(node: &Node, incident: &Incident) -> bool {
    let boot = node.facts.as_ref().and_then(|f| f.boot);
    boot.is_some_and(|boot| boot != incident.incarnation.boot)
}

fn seen(state: &State, name: &NodeName, node: &Node, incident: &Incident) -> Seen {
    let life = &incident.incarnation;
    let agent = node.member.as_ref().filter(|m| m.uid == life.node);
    if let Some(Ok(machine)) = agent.map(|m| &m.machine)
        && *machine != life.machine
    {
        return Seen::OtherMachine(*machine);
    }
    let Some(facts) = node.facts.as_ref().filter(|f| f.uid == life.node) else { return Seen::Nothing };
    let Some(boot) = facts.boot.filter(|boot| *boot != life.boot) else { return Seen::Nothing };
    let agrees = match agent {
        // The registered boot, or one that no agent has registered yet; never one that was left.
        Some(m) if m.boot == boot => true,
        Some(m) => !m.left_boots.contains(&boot) && (m.boot == life.boot || m.boot_is_over()),
        None => true,
    };
    if !agrees {
        return Seen::Nothing;
    }
    match permit::kubelet_machine(state, name) {
        Some(machine) if machine == life.machine => Seen::NewBoot(boot),
        Some(machine) => Seen::OtherMachine(machine),
        None => Seen::Nothing,
    }
}

/// The kubelet runs in another boot than the agent registered: that one is over, and accuses and lives no more.
pub(crate) fn leave_old_boot(state: &mut State, name: &NodeName, boot: BootId) {
    let Some(member) = state.nodes.get_mut(name).and_then(|n| n.member.as_mut()) else { return };
    if member.boot != boot && !member.boot_is_over() {
        leave_boot(member);
        observers::moved(state, name);
    }
}

fn new_boot(state: &mut State, at: At<'_>, name: &NodeName, boot: BootId) {
    if signs::try_reprieve(state, at, name, "the kubelet reports a new boot") {
        return;
    }
    #[cfg(coroner_mutants)]
    if planted(Mutant::NewBootIsProof) && super::planted::take_for_proof(state, name) {
        return;
    }
    let Some(node) = state.nodes.get(name) else { return };
    let text = boot.to_string();
    match node.phase.clone() {
        Phase::Alive => {}
        // Nothing was decided; a life that is over needs no verdict.
        Phase::Held { .. } => ledger::end(state, at, name, "NewBoot", &text),
        // Ordered, since anything else was reprieved above: the order spoke of a life that is over.
        Phase::Condemned { .. } => {
            let why = HeldReason::Identity("the boot that was ordered off is over".to_owned());
            ledger::hold(state, at, name, why);
        }
        Phase::Fencing { incident, released, .. } | Phase::ProvenOff { incident, released, .. } => {
            returning(state, at, name, incident, boot, released);
        }
        Phase::Releasing { incident, released, .. } => {
            // The patch tests the boot id, so a taint that does not stand beside a new one never will: nothing was
            // released, and the pods that were to go run on by right.
            let tainted = node.facts.as_ref().is_some_and(|f| f.tainted_by_us);
            returning(state, at, name, incident, boot, tainted.then_some(released));
        }
        Phase::Released { incident, released, .. } => {
            returning(state, at, name, incident, boot, Some(released));
        }
        Phase::Returning { incident, boot: before, released, taint_removed, waived } => {
            if before != boot {
                ledger::note(state, at, &incident, "NewBoot", &text);
                let phase = Phase::Returning { incident, boot, released, taint_removed, waived };
                ledger::enter(state, name, phase);
            }
        }
    }
}

fn returning(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    incident: IncidentId,
    boot: BootId,
    released: Option<Released>,
) {
    ledger::note(state, at, &incident, "Returning", &boot.to_string());
    if let Some(node) = state.nodes.get_mut(name) {
        node.heard_since = None;
    }
    let phase = Phase::Returning { incident, boot, released, taint_removed: None, waived: None };
    ledger::enter(state, name, phase);
}
