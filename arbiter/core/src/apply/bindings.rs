//! Bindings: which BMC is a node's. The pin is made once, while the node is well, and is never made anew by itself.

use coroner_shared::id::NodeName;

use super::refusal::{ActRefusal, FactRefusal, Refuses};
use super::{At, ledger};
use crate::command::Outcome;
use crate::permit;
use crate::phase::Phase;
use crate::policy::{Binding, Pin};
use crate::state::State;

/// Takes a binding; pin and standing are the log's, whatever the entry says.
pub(crate) fn set(state: &mut State, name: &NodeName, binding: &Binding) -> Outcome {
    let errors = binding.check();
    if !errors.is_empty() {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        return FactRefusal::BadBinding(errors.join("; ")).refuse(name);
    }
    let new = match state.bindings.get(name) {
        None => Binding { pin: None, disabled: None, ..binding.clone() },
        Some(old) if old.hash == binding.hash => {
            Binding { pin: old.pin.clone(), disabled: old.disabled.clone(), ..binding.clone() }
        }
        Some(old) => Binding {
            pin: old.pin.clone(),
            disabled: old.pin.as_ref().map(|_| permit::CHANGED.to_owned()),
            ..binding.clone()
        },
    };
    if state.bindings.get(name) == Some(&new) {
        return Outcome::Unchanged;
    }
    state.bindings.insert(name.clone(), new);
    Outcome::Done
}

/// Forgets a binding and its pin.
pub(crate) fn gone(state: &mut State, name: &NodeName) -> Outcome {
    if state.bindings.remove(name).is_some() { Outcome::Done } else { Outcome::Unchanged }
}

/// Takes the result of a verification: enrols where there is no pin, enables or disables where there is one.
pub(crate) fn verified(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    hash: &str,
    result: &Result<Pin, String>,
) -> Outcome {
    let Some(binding) = state.bindings.get(name) else { return Outcome::Stale };
    if binding.hash != hash {
        return Outcome::Stale;
    }
    let (pin, disabled) = match (result, &binding.pin) {
        (Err(why), pin) => (pin.clone(), Some(why.clone())),
        (Ok(found), Some(pin)) if found == pin => (Some(pin.clone()), None),
        (Ok(found), Some(pin)) => (Some(pin.clone()), Some(differs(pin, found))),
        (Ok(found), None) => match enrols(state, name, found) {
            Ok(()) => (Some(found.clone()), None),
            Err(refusal) => return refusal.refuse(name),
        },
    };
    let new = Binding { pin, disabled, ..binding.clone() };
    if *binding == new {
        return Outcome::Unchanged;
    }
    if let (Some(why), Some(id)) =
        (&new.disabled, state.nodes.get(name).and_then(|n| n.phase.incident()).cloned())
    {
        ledger::note(state, at, &id, "BindingDisabled", why);
    }
    state.bindings.insert(name.clone(), new);
    Outcome::Done
}

/// What two pins differ in, both shown.
fn differs(pin: &Pin, found: &Pin) -> String {
    if pin.machine == found.machine {
        format!(
            "the BMC's identity changed: pinned {} at {}, found at {}",
            pin.machine, pin.member, found.member
        )
    } else {
        format!("the BMC is of machine {}, pinned is {}", found.machine, pin.machine)
    }
}

/// A pin is made while the node is well, and only of the machine that its agent and its kubelet both speak of.
fn enrols(state: &State, name: &NodeName, found: &Pin) -> Result<(), FactRefusal> {
    let Some(node) = state.nodes.get(name) else {
        return Err(FactRefusal::NotWell("its Node object was never seen"));
    };
    let Phase::Alive = node.phase else {
        return Err(FactRefusal::NotWell("it is not Alive"));
    };
    let (Some(member), Some(facts)) = (&node.member, &node.facts) else {
        return Err(FactRefusal::NotWell("its agent never registered, or its Node object was never seen"));
    };
    if !facts.ready {
        return Err(FactRefusal::NotWell("its Node is not Ready"));
    }
    match &member.machine {
        Ok(machine) if *machine == found.machine => {}
        Ok(machine) => {
            return Err(FactRefusal::PinDisagrees(format!("{} against {machine}", found.machine)));
        }
        Err(why) => return Err(FactRefusal::PinDisagrees(format!("the agent gives none ({why})"))),
    }
    match permit::machine_of(&facts.system_uuid, found) {
        Some(machine) if machine == found.machine => Ok(()),
        Some(_) | None => Err(FactRefusal::PinDisagrees(format!(
            "{} against nodeInfo.systemUUID {:?}",
            found.machine, facts.system_uuid
        ))),
    }
}

/// Forgets the pin after a person said that the machine was changed on purpose; the next good verification enrols.
pub(crate) fn repin(state: &mut State, name: &NodeName, who: &str, why: &str) -> Outcome {
    let Some(node) = state.nodes.get(name) else { return ActRefusal::UnknownNode.refuse(name) };
    match &node.phase {
        Phase::Alive | Phase::Held { .. } => {}
        Phase::Condemned { .. }
        | Phase::Fencing { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => return ActRefusal::InIncident(node.phase.name()).refuse(name),
    }
    let text = format!("{who} had the machine pinned anew: {why}");
    let Some(binding) = state.bindings.get_mut(name) else { return ActRefusal::NotPinned.refuse(name) };
    if binding.pin.is_none() {
        return ActRefusal::NotPinned.refuse(name);
    }
    binding.pin = None;
    binding.disabled = None;
    if let Some(node) = state.nodes.get_mut(name) {
        node.alarms.insert("Repinned".to_owned(), text);
    }
    Outcome::Done
}
