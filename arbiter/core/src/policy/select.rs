//! Which policy speaks for a node. Two that select one node are refused as a conflict, never merged: a person must say
//! which one is meant.

use std::collections::BTreeMap;

use coroner_shared::id::NodeName;

use super::{Mode, Policy, Rules};
use crate::state::State;

/// Which policy speaks for a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Selected<'a> {
    /// None selects it: Observe.
    None,
    /// Exactly one.
    One(&'a Policy),
    /// More than one, by name: Observe.
    Conflict(Vec<String>),
}

/// The policy that selects a node by its labels. A node whose Node object was never seen is selected by none.
pub fn policy_for<'a>(state: &'a State, node: &NodeName) -> Selected<'a> {
    let Some(labels) = state.nodes.get(node).and_then(|n| n.facts.as_ref()).map(|f| &f.labels) else {
        return Selected::None;
    };
    let mut found = state.policies.values().filter(|policy| selects(policy, labels));
    match (found.next(), found.next()) {
        (None, _) => Selected::None,
        (Some(policy), None) => Selected::One(policy),
        (Some(first), Some(second)) => Selected::Conflict(
            [first, second].into_iter().chain(found).map(|policy| policy.name.clone()).collect(),
        ),
    }
}

/// The policy under which a node may be acted on: exactly one selects it, and it enforces.
pub fn enforcing<'a>(state: &'a State, node: &NodeName) -> Option<&'a Policy> {
    match policy_for(state, node) {
        Selected::One(policy) if policy.mode == Mode::Enforce => Some(policy),
        Selected::One(_) | Selected::None | Selected::Conflict(_) => None,
    }
}

/// The rules by which a node is judged: its policy's, or the balanced ones where no single policy speaks for it.
pub fn rules_for(state: &State, node: &NodeName) -> Rules {
    match policy_for(state, node) {
        Selected::One(policy) => policy.rules,
        Selected::None | Selected::Conflict(_) => Rules::BALANCED,
    }
}

/// Whether a policy's selector matches these labels: all of its own, with the same values.
pub fn selects(policy: &Policy, labels: &BTreeMap<String, String>) -> bool {
    policy.node_selector.iter().all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests;
