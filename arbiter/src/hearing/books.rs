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

#[cfg(test)]
mod tests {
    use super::*;
    use coroner_arbiter_core::view::BmcRead;
    use coroner_shared::id::ReplicaId;

    fn view(replica: u64, age: u64) -> BmcView {
        let replica = ReplicaId::new(replica).unwrap();
        BmcView { replica, read: BmcRead::On, steady: true, age: Span::from_ms(age) }
    }

    #[test]
    fn what_a_follower_read_grows_older_and_a_follower_that_says_nothing_is_not_believed() {
        let node: NodeName = "n1".parse().unwrap();
        let now = Mono::from_ms(1_000_000);
        let said = |ago: u64, replica: u64| {
            let bmc = vec![(node.clone(), view(replica, 100))];
            Said { at: now.back(Span::from_ms(ago)), bmc, uptime: Span::ZERO }
        };
        let ids = [2, 3, 4].map(|id| ReplicaId::new(id).unwrap());
        let followers: Followers =
            [(ids[0], said(0, 2)), (ids[1], said(3000, 3)), (ids[2], said(3001, 4))].into();
        let book = book(vec![(node.clone(), view(1, 50))], &followers, now);
        assert_eq!(book[&node], [view(1, 50), view(2, 100), view(3, 3100)]);
    }
}
