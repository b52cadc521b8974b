//! What the log does not know yet: the difference between what Kubernetes shows and what the state holds, as commands.
//! Pure, and computed anew each time, so that nothing lost or repeated matters.

use std::collections::{BTreeMap, VecDeque};

use crate::command::{Command, NodeFacts, Outcome};
use crate::policy::{Binding, Policy};
use crate::state::State;
use coroner_shared::id::NodeName;

/// What Kubernetes shows, checked; `None` where the first list is not complete.
#[derive(Clone, Debug, Default)]
pub struct Shown {
    /// Nodes.
    pub nodes: Option<BTreeMap<String, NodeFacts>>,
    /// Policies without a wrong value.
    pub policies: Option<BTreeMap<String, Policy>>,
    /// Bindings without a wrong value.
    pub bindings: Option<BTreeMap<NodeName, Binding>>,
}

/// Refusals remembered; more are said again one by one.
const REFUSED_MAX: usize = 256;

/// What the log refused. It is not said again before something else is shown: a refusal is an entry like any other, and
/// every entry has the differences looked at anew.
#[derive(Debug, Default)]
pub struct Refused(VecDeque<Command>);

impl Refused {
    /// Notes what became of a command.
    pub fn note(&mut self, command: Command, outcome: &Outcome) {
        self.0.retain(|before| *before != command);
        if matches!(outcome, Outcome::Refused(_)) {
            self.0.push_back(command);
        }
        if self.0.len() > REFUSED_MAX {
            self.0.pop_front();
        }
    }

    /// Forgets everything: another leader may have been told otherwise.
    pub fn clear(&mut self) {
        self.0.clear();
    }

    /// [`differences`], but for what was refused.
    pub fn differences(&self, state: &State, shown: &Shown, limit: usize) -> Vec<Command> {
        all(state, shown).filter(|command| !self.0.contains(command)).take(limit).collect()
    }
}

/// The commands that bring the state up to what is shown, at most `limit` of them.
pub fn differences(state: &State, shown: &Shown, limit: usize) -> Vec<Command> {
    all(state, shown).take(limit).collect()
}

fn all<'a>(state: &'a State, shown: &'a Shown) -> impl Iterator<Item = Command> + 'a {
    let nodes = shown.nodes.iter().flat_map(|nodes| of_nodes(state, nodes));
    let policies = shown.policies.iter().flat_map(|policies| of_policies(state, policies));
    let bindings = shown.bindings.iter().flat_map(|bindings| of_bindings(state, bindings));
    nodes.chain(policies).chain(bindings)
}

fn of_nodes<'a>(
    state: &'a State,
    nodes: &'a BTreeMap<String, NodeFacts>,
) -> impl Iterator<Item = Command> + 'a {
    let known = |name: &NodeName| state.nodes.get(name).and_then(|n| n.facts.as_ref());
    let changed = nodes
        .values()
        .filter(move |facts| known(&facts.node) != Some(facts))
        .cloned()
        .map(Command::NodeFacts);
    let gone = state.nodes.iter().filter_map(move |(name, node)| {
        let facts = node.facts.as_ref()?;
        let still = nodes.contains_key(name.as_str());
        (!still).then(|| Command::NodeGone { node: name.clone(), uid: facts.uid.clone() })
    });
    changed.chain(gone)
}

fn of_policies<'a>(
    state: &'a State,
    policies: &'a BTreeMap<String, Policy>,
) -> impl Iterator<Item = Command> + 'a {
    let changed = policies.values().filter(|p| state.policies.get(&p.name) != Some(*p));
    let gone = state.policies.keys().filter(|name| !policies.contains_key(*name));
    changed
        .map(|p| Command::PolicySet(Box::new(p.clone())))
        .chain(gone.map(|name| Command::PolicyGone { name: name.clone() }))
}

fn of_bindings<'a>(
    state: &'a State,
    bindings: &'a BTreeMap<NodeName, Binding>,
) -> impl Iterator<Item = Command> + 'a {
    // Pin and `disabled` are the log's own; everything else is in the hash.
    let changed = bindings
        .iter()
        .filter(|(node, b)| state.bindings.get(*node).is_none_or(|known| known.hash != b.hash));
    let gone = state.bindings.keys().filter(|node| !bindings.contains_key(*node));
    changed
        .map(|(node, binding)| Command::BindingSet { node: node.clone(), binding: binding.clone() })
        .chain(gone.map(|node| Command::BindingGone { node: node.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::Pin;
    use coroner_shared::machine_id::Transform;

    fn binding(hash: &str) -> Binding {
        Binding {
            hash: hash.to_owned(),
            network: "default".to_owned(),
            quirks: Vec::new(),
            pin: None,
            disabled: None,
        }
    }

    #[test]
    fn nothing_is_gone_before_the_first_list_is_complete() {
        let mut state = State::default();
        let node = NodeName::new("n1").unwrap();
        state.bindings.insert(node.clone(), binding("a"));
        assert_eq!(differences(&state, &Shown::default(), 10), []);
        let empty = Shown { bindings: Some(BTreeMap::new()), ..Shown::default() };
        assert_eq!(differences(&state, &empty, 10), [Command::BindingGone { node }]);
    }

    #[test]
    fn a_pin_is_no_difference() {
        let mut state = State::default();
        let node = NodeName::new("n1").unwrap();
        let pin = Pin {
            machine: "00112233-4455-6677-8899-aabbccddeeff".parse().unwrap(),
            transform: Transform::Rfc,
            system_transform: Transform::Rfc,
            member: "/redfish/v1/Systems/1".to_owned(),
            serial: None,
            manager: None,
            tls_key: None,
        };
        state.bindings.insert(node.clone(), Binding { pin: Some(pin), ..binding("a") });
        let shown = |hash: &str| Shown {
            bindings: Some(BTreeMap::from([(node.clone(), binding(hash))])),
            ..Shown::default()
        };
        assert_eq!(differences(&state, &shown("a"), 10), []);
        assert_eq!(differences(&state, &shown("b"), 10).len(), 1);
    }

    #[test]
    fn what_the_log_refused_is_not_said_again_and_holds_nothing_else_up() {
        let (state, mut refused) = (State::default(), Refused::default());
        let node = |n: &str| NodeName::new(n).unwrap();
        let shown = |hash: &str| Shown {
            bindings: Some(BTreeMap::from([(node("n1"), binding(hash)), (node("n2"), binding("x"))])),
            ..Shown::default()
        };
        let first = refused.differences(&state, &shown("a"), 1);
        assert!(matches!(&first[..], [Command::BindingSet { node, .. }] if node.as_str() == "n1"));
        let refusal = crate::command::Refusal { reason: "BadBinding".into(), message: "x".into() };
        refused.note(first[0].clone(), &Outcome::Refused(refusal));
        let next = refused.differences(&state, &shown("a"), 1);
        assert!(matches!(&next[..], [Command::BindingSet { node, .. }] if node.as_str() == "n2"));
        assert_eq!(refused.differences(&state, &shown("b"), 10).len(), 2, "it was corrected");
        refused.note(first[0].clone(), &Outcome::Done);
        assert_eq!(refused.differences(&state, &shown("a"), 10).len(), 2);
    }
}
