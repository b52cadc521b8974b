//! What others are to see: resources that are copies of the state, verifications that are due, pages.

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
    for policy in state.policies.values() {
        let selected: Vec<_> = state
            .nodes
            .values()
            .filter_map(|n| n.facts.as_ref())
            .filter(|f| selects(policy, &f.labels))
            .collect();
        let conflicts = state
            .policies
            .values()
            .filter(|other| other.name != policy.name)
            .filter(|other| selected.iter().any(|f| selects(other, &f.labels)))
            .map(|other| other.name.clone())
            .collect();
        jobs.push(Job::PublishPolicy { name: policy.name.clone(), conflicts });
    }
}
