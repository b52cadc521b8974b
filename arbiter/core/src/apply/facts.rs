//! Facts that the leader tells the log: levels, replicas, Node objects, policies. They move no node by themselves;
//! what follows from them is in `settle`.

use coroner_shared::id::{NodeName, NodeUid, ReplicaId};

use super::refusal::{FactRefusal, Refuses};
use super::{At, ledger};
use crate::command::{NodeFacts, Outcome};
use crate::domain;
use crate::observers;
use crate::policy::Policy;
use crate::policy::select::enforcing;
use crate::state::{Enforced, Node, Replica, State};

// === levels and replicas ===

/// Raises the level, once every replica of the group said that it knows it.
pub(crate) fn set_level(state: &mut State, level: u32) -> Outcome {
    if level == state.level {
        return Outcome::Unchanged;
    }
    if level < state.level {
        return Outcome::Refused(FactRefusal::LevelBehind(state.level).about("level"));
    }
    let ignorant: Vec<String> = state
        .replicas
        .iter()
        .filter(|(_, replica)| replica.level < level)
        .map(|(id, replica)| format!("replica {id} on {}", replica.host))
        .collect();
    if !ignorant.is_empty() || state.replicas.is_empty() {
        let who = if ignorant.is_empty() { "anybody".to_owned() } else { ignorant.join(", ") };
        return Outcome::Refused(FactRefusal::LevelUnknown(level, who).about("level"));
    }
    state.level = level;
    Outcome::Done
}

/// Takes what a replica says of itself.
pub(crate) fn replica_knows(state: &mut State, (id, replica): (ReplicaId, Replica)) -> Outcome {
    if state.replicas.get(&id) == Some(&replica) {
        return Outcome::Unchanged;
    }
    state.replicas.insert(id, replica);
    state.membership += 1;
    Outcome::Done
}

/// Forgets a replica that left the group.
pub(crate) fn replica_gone(state: &mut State, id: ReplicaId) -> Outcome {
    if state.replicas.remove(&id).is_none() {
        return Outcome::Unchanged;
    }
    state.membership += 1;
    Outcome::Done
}

// === Node objects ===

/// Takes what a Node object says.
pub(crate) fn node_facts(state: &mut State, at: At<'_>, facts: &NodeFacts) -> Outcome {
    let name = &facts.node;
    let stands = state.nodes.get(name).and_then(uid_of);
    if stands.is_some_and(|uid| *uid != facts.uid) {
        // Another Node object under the old name: the old life ends here, the new one begins with nothing.
        end_of_node(state, at, name);
    }
    let before = any_labelled_without(state, name);
    let now = state.now;
    let node = ledger::known(state, name);
    if node.facts.as_ref() == Some(facts) {
        return Outcome::Unchanged;
    }
    let labelled = node.facts.as_ref().is_some_and(|f| domain::of_labels(&f.labels).is_some());
    let kept_ready = node.facts.as_ref().is_some_and(|f| f.ready && f.boot == facts.boot);
    if !facts.ready {
        node.ready_since = None;
    } else if !kept_ready || node.ready_since.is_none() {
        node.ready_since = Some(now);
    }
    let relabelled = node.facts.as_ref().is_none_or(|f| f.labels != facts.labels);
    node.facts = Some(facts.clone());
    if relabelled {
        // Another policy may select it, with other times for its agent.
        state.moved.insert(name.clone());
    }
    // The first label of the cluster, or the last one that goes, changes what an unlabelled node means.
    let labelled_now = domain::of_labels(&facts.labels).is_some();
    if !before && labelled != labelled_now {
        let names: Vec<NodeName> = state.nodes.keys().cloned().collect();
        for name in &names {
            ledger::settle_domain(state, name);
        }
    } else {
        ledger::settle_domain(state, name);
    }
    note_enforced(state, name);
    Outcome::Done
}

/// Whether any other node carries a label that names a domain.
fn any_labelled_without(state: &State, but: &NodeName) -> bool {
    let others = state.nodes.iter().filter(|(name, _)| *name != but);
    others.filter_map(|(_, n)| n.facts.as_ref()).any(|f| domain::of_labels(&f.labels).is_some())
}

/// The uid under which a node is known: of its Node object, else of its registration.
fn uid_of(node: &Node) -> Option<&NodeUid> {
    let by_facts = node.facts.as_ref().map(|f| &f.uid);
    by_facts.or_else(|| node.member.as_ref().map(|m| &m.uid))
}

/// A Node object is gone.
pub(crate) fn node_gone(state: &mut State, at: At<'_>, name: &NodeName, uid: &NodeUid) -> Outcome {
    match state.nodes.get(name).and_then(uid_of) {
        Some(stands) if stands == uid => {
            end_of_node(state, at, name);
            Outcome::Done
        }
        Some(_) => Outcome::Stale,
        None => Outcome::Unchanged,
    }
}

/// Closes what is open and forgets the node. An attempt under way still runs to its deadline; whoever sends it knows.
pub(crate) fn end_of_node(state: &mut State, at: At<'_>, name: &NodeName) {
    let Some(node) = state.nodes.get(name) else { return };
    if let Some(id) = node.phase.incident().cloned() {
        ledger::close(state, at, &id, "NodeGone", "the Node was deleted or re-created");
    }
    state.nodes.remove(name);
    observers::moved(state, name);
}

// === policies ===

/// Takes a policy that can be meant.
pub(crate) fn policy_set(state: &mut State, policy: &Policy) -> Outcome {
    let errors = policy.check();
    if !errors.is_empty() {
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        return Outcome::Refused(FactRefusal::BadPolicy(errors.join("; ")).about(&policy.name));
    }
    if state.policies.get(&policy.name) == Some(policy) {
        return Outcome::Unchanged;
    }
    state.policies.insert(policy.name.clone(), policy.clone());
    note_all_enforced(state);
    Outcome::Done
}

/// Forgets a policy.
pub(crate) fn policy_gone(state: &mut State, name: &str) -> Outcome {
    if state.policies.remove(name).is_none() {
        return Outcome::Unchanged;
    }
    note_all_enforced(state);
    Outcome::Done
}

fn note_all_enforced(state: &mut State) {
    let names: Vec<NodeName> = state.nodes.keys().cloned().collect();
    for name in &names {
        note_enforced(state, name);
    }
}

/// Notes whether a policy in Enforce speaks for a node; what was silent before is not acted on unasked.
fn note_enforced(state: &mut State, name: &NodeName) {
    let enforced = enforcing(state, name).is_some();
    let Some(node) = state.nodes.get_mut(name) else { return };
    node.enforced = match (enforced, node.enforced) {
        (false, _) => Enforced::Observe,
        (true, Enforced::Observe) => Enforced::Unheard,
        (true, was @ (Enforced::Unheard | Enforced::Cleared)) => was,
    };
}
