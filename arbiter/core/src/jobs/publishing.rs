//! What others are to see: resources that are copies of the state, verifications that are due, pages.

use std::collections::{BTreeMap, BTreeSet};

use coroner_shared::id::NodeName;

use super::Job;
use crate::pages;
use crate::permit;
use crate::policy::select::selects;
use crate::state::{Node, State};
use crate::words;

/// What is to be shown of one node.
pub(super) fn of_node(state: &State, name: &NodeName, node: &Node, jobs: &mut Vec<Job>) {
    if let Some(binding) = state.bindings.get(name) {
        if binding.pin.is_none() || binding.disabled.is_some() {
            jobs.push(Job::Verify { node: name.clone(), hash: binding.hash.clone() });
        }
        jobs.push(Job::PublishBinding {
            node: name.clone(),
            ready: permit::fenceable(state, name).map_err(|why| words::hold(&why)),
            pin: binding.pin.clone(),
        });
    }
    for (reason, text) in &node.alarms {
        jobs.push(Job::Page { node: name.clone(), reason: reason.clone(), text: text.clone() });
    }
    for page in pages::standing(state, name, node) {
        if !node.paged.contains_key(&page.reason) {
            jobs.push(Job::Page { node: name.clone(), reason: page.reason, text: page.text });
        }
    }
}

/// What is to be shown of incidents and policies.
pub(super) fn of_state(state: &State, jobs: &mut Vec<Job>) {
    for (id, incident) in &state.incidents {
        jobs.push(Job::PublishIncident { incident: id.clone(), version: incident.version });
    }
    for (name, others) in conflicts(state) {
        let conflicts = others.into_iter().map(str::to_owned).collect();
        jobs.push(Job::PublishPolicy { name: name.to_owned(), conflicts });
    }
}

/// Each policy with those that select a node that it selects, in one pass over the nodes.
fn conflicts(state: &State) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut conflicts: BTreeMap<&str, BTreeSet<&str>> =
        state.policies.keys().map(|name| (name.as_str(), BTreeSet::new())).collect();
    for facts in state.nodes.values().filter_map(|n| n.facts.as_ref()) {
        let matching = state.policies.values().filter(|policy| selects(policy, &facts.labels));
        let names: Vec<&str> = matching.map(|policy| policy.name.as_str()).collect();
        if names.len() < 2 {
            continue;
        }
        for name in &names {
            let others = names.iter().filter(|other| *other != name);
            conflicts.entry(name).or_default().extend(others);
        }
    }
    conflicts
}
