//! What people ask for besides orders and confirmations: pauses, clearing, and the notes that a page was given.

use coroner_shared::id::NodeName;

use super::refusal::{ActRefusal, Refuses};
use super::{At, ledger};
use crate::command::Outcome;
use crate::state::{Enforced, Pause, State};

/// Stops power commands, of one node or of all.
pub(crate) fn pause(state: &mut State, node: Option<&NodeName>, who: &str, why: &str) -> Outcome {
    let pause = Pause { who: who.to_owned(), why: why.to_owned(), at: state.now };
    let Some(name) = node else {
        if state.pause.is_some() {
            return Outcome::Unchanged;
        }
        state.pause = Some(pause);
        return Outcome::Done;
    };
    let Some(known) = state.nodes.get_mut(name) else { return ActRefusal::UnknownNode.refuse(name) };
    if known.pause.is_some() {
        return Outcome::Unchanged;
    }
    known.pause = Some(pause);
    Outcome::Done
}

/// Ends a pause.
pub(crate) fn resume(state: &mut State, node: Option<&NodeName>) -> Outcome {
    let ended = match node {
        None => state.pause.take(),
        Some(name) => match state.nodes.get_mut(name) {
            Some(known) => known.pause.take(),
            None => return ActRefusal::UnknownNode.refuse(name),
        },
    };
    if ended.is_some() { Outcome::Done } else { Outcome::Unchanged }
}

/// Clears `RepeatOffender` and `SilentBeforeEnforce`; the node is judged again by its next view.
pub(crate) fn clear_held(state: &mut State, at: At<'_>, name: &NodeName, who: &str, why: &str) -> Outcome {
    let Some(node) = state.nodes.get_mut(name) else { return ActRefusal::UnknownNode.refuse(name) };
    let repeats = node.repeat_offender || held_as_repeat_offender(node);
    let silent_before = node.is_silent_before_enforce();
    if !repeats && !silent_before {
        return ActRefusal::NothingToClear.refuse(name);
    }
    if repeats {
        node.repeat_offender = false;
        node.deaths.clear();
    }
    if silent_before {
        node.enforced = Enforced::Cleared;
    }
    if let Some(id) = node.phase.incident().cloned() {
        ledger::note(state, at, &id, "Cleared", &format!("{who}: {why}"));
    }
    Outcome::Done
}

fn held_as_repeat_offender(node: &crate::state::Node) -> bool {
    use crate::phase::{Brake, HeldReason, Phase};
    matches!(&node.phase, Phase::Held { why: HeldReason::Brake(Brake::RepeatOffender), .. })
}

/// A page was given.
pub(crate) fn paged(state: &mut State, name: &NodeName, reason: &str) -> Outcome {
    let now = state.now;
    let Some(node) = state.nodes.get_mut(name) else { return Outcome::Stale };
    if node.alarms.remove(reason).is_some() {
        return Outcome::Done;
    }
    if node.paged.contains_key(reason) {
        return Outcome::Unchanged;
    }
    node.paged.insert(reason.to_owned(), now);
    Outcome::Done
}
