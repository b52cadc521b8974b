//! What the judge reads besides what is heard: BMCs and their neighbours, as of now. Gathered, not judged.

use std::collections::BTreeMap;

use coroner_arbiter_core::judge::BmcBook;
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::view::BmcView;
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use super::{Followers, Said};
use crate::bmc_pool::BmcPool;

/// What all replicas read, aged to now.
pub(super) fn book(own: Vec<(NodeName, BmcView)>, followers: &Followers, now: Mono) -> BmcBook {
    let mut book = BmcBook::new();
    for (node, view) in own {
        book.entry(node).or_default().push(view);
    }
    for Said { at, bmc, .. } in followers.values() {
        // A follower that says nothing any more has nothing to say of a BMC either.
        let old = now.since(*at);
        if old <= Span::from_secs(3) {
            for (node, view) in bmc {
                book.entry(node.clone()).or_default().push(BmcView { age: view.age + old, ..view.clone() });
            }
        }
    }
    book
}

/// Whether another BMC beside each suspect's answers.
pub(super) fn siblings(
    bmcs: &BmcPool,
    state: &State,
    suspects: &BTreeMap<NodeName, Mono>,
    now: Mono,
) -> BTreeMap<NodeName, bool> {
    suspects.keys().filter_map(|node| Some((node.clone(), bmcs.sibling_answers(state, node, now)?))).collect()
}
