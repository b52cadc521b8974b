//! What people were told lately. A condition that comes and goes (a BMC that answers every other request, a fence that tries
//! again) is told when it first comes, and again only once it has been away for ten minutes.
//!
//! ```text
//!   each state that a replica sees --look--> what stands stays remembered, and so does what the log says was paged
//!   the leader's page job          --tell--> whether anybody must be told; either way it is `Paged` then
//! ```
//!
//! It is no part of the log, only of what each replica remembers of it: a leader whose process has just started may say once
//! more what came and went before that.

use std::collections::{BTreeMap, BTreeSet};

use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::time::{Mono, Span};

use crate::pages;
use crate::state::{Node, State};

/// A condition that was away for so long is told anew when it comes back.
pub const FORGETS: Span = Span::from_mins(10);

/// One thing to tell.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Matter {
    node: NodeName,
    reason: String,
    /// Of what happened once: in which incident. What stands is the same matter from one incident to the next.
    happened: Option<IncidentId>,
}

/// What was told, and when it was last so. At most a few reasons for each node.
#[derive(Debug, Default)]
pub struct Told {
    last: BTreeMap<Matter, Mono>,
}

// === impl Told ===

impl Told {
    /// Looks at a state that this replica sees, or saw until now; `now` is its own monotonic clock.
    pub fn look(&mut self, now: Mono, state: &State) {
        for (name, node) in &state.nodes {
            for reason in node.paged.keys() {
                self.last.insert(standing(name, reason), now);
            }
        }
        let nodes: BTreeSet<NodeName> = self.last.keys().map(|matter| matter.node.clone()).collect();
        for (name, node) in nodes.iter().filter_map(|name| Some((name, state.nodes.get(name)?))) {
            let stand =
                pages::standing(state, name, node).into_iter().map(|page| standing(name, &page.reason));
            let happened = node.alarms.keys().filter_map(|reason| happened(name, node, reason));
            for matter in stand.chain(happened) {
                if let Some(last) = self.last.get_mut(&matter) {
                    *last = now;
                }
            }
        }
        self.last.retain(|_, last| now.since(*last) < FORGETS);
    }

    /// Whether people must be told of this now. What happened once to a node without an open incident is always told.
    pub fn tell(&mut self, now: Mono, state: &State, name: &NodeName, reason: &str) -> bool {
        let alarm = state.nodes.get(name).filter(|node| node.alarms.contains_key(reason));
        let matter = match alarm {
            None => standing(name, reason),
            Some(node) => match happened(name, node, reason) {
                None => return true,
                Some(matter) => matter,
            },
        };
        self.last.insert(matter, now).is_none_or(|last| now.since(last) >= FORGETS)
    }
}

fn standing(node: &NodeName, reason: &str) -> Matter {
    Matter { node: node.clone(), reason: reason.to_owned(), happened: None }
}

fn happened(name: &NodeName, node: &Node, reason: &str) -> Option<Matter> {
    Some(Matter { happened: Some(node.phase.incident()?.clone()), ..standing(name, reason) })
}

#[cfg(test)]
mod tests;
