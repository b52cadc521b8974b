//! The kubelets' Leases as one replica's watch shows them: when each last changed, how often it does, and whether the
//! watch can be believed at all.
//!
//! ```text
//!   watch: listed, note, gone   --+
//!   probe of the API server: answered --+--> Leases --> LeaseBook (what the judge looks at)
//! ```
//!
//! Deliberately absent: the API server. Whoever watches it hands in what came, with its own clock.

use std::collections::BTreeMap;

use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use crate::judge::{LeaseBook, LeaseSeen};

/// The kubelet's renewal period (a quarter of nodeLeaseDurationSeconds, 40 s), until another one is learnt.
const RENEWAL: Span = Span::from_secs(10);
/// Some kubelet renews within this time, or the watch is stale: three nodes renewing every 10 s leave no such gap.
const LEASES_QUIET: Span = Span::from_secs(15);
/// What is known of a Lease that was deleted is kept so long.
const GONE_KEPT: Span = Span::from_mins(60);
/// The API server counts as readable for so long after an answer.
const ANSWER_COUNTS: Span = Span::from_secs(3);

/// One kubelet's Lease.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Lease {
    /// `resourceVersion`; empty once the Lease is gone.
    version: String,
    /// When it was last seen to change; `None`: not since the watch began.
    changed: Option<Mono>,
    /// Learnt from the last two changes.
    interval: Span,
}

/// All Leases, and whether the API server can be read.
#[derive(Clone, Debug, Default)]
pub struct Leases {
    /// By node.
    seen: BTreeMap<NodeName, Lease>,
    /// When the watch was complete for the first time.
    since: Option<Mono>,
    /// When any of them changed last.
    newest: Option<Mono>,
    /// When the API server last answered.
    answered: Option<Mono>,
}

// === impl Leases ===

impl Leases {
    /// Whether the API server can be read now and the watch is alive.
    pub fn readable(&self, now: Mono) -> bool {
        let answered = self.answered.is_some_and(|at| now.since(at) <= ANSWER_COUNTS);
        let fresh = self.seen.len() < 2 || self.newest.is_some_and(|at| now.since(at) <= LEASES_QUIET);
        answered && self.since.is_some() && fresh
    }

    /// A Lease was listed or changed; `version` is its `resourceVersion`, compared for change only. The first sight is no
    /// change, unless the first list was complete by then: a kubelet made it just now.
    pub fn note(&mut self, node: NodeName, version: &str, now: Mono) {
        match self.seen.get_mut(&node) {
            None => {
                let changed = self.since.map(|_| now);
                self.newest = changed.or(self.newest);
                self.seen.insert(node, Lease { version: version.to_owned(), changed, interval: RENEWAL });
            }
            Some(lease) if lease.version != version => {
                if let Some(before) = lease.changed {
                    let interval = now.since(before);
                    // A kubelet that was away is not one that renews rarely.
                    if interval >= Span::from_secs(1) && interval <= RENEWAL.times(2) {
                        lease.interval = interval.max(Span::from_secs(2));
                    }
                }
                version.clone_into(&mut lease.version);
                lease.changed = Some(now);
                self.newest = Some(now);
            }
            Some(_) => {}
        }
    }

    /// The first list, or one made again, is complete.
    pub fn listed(&mut self, now: Mono) {
        self.since.get_or_insert(now);
        self.newest = Some(now);
    }

    /// A Lease is gone. That is no sign of life, and takes none away: a kubelet that lives makes it anew, which is one.
    /// What was seen of it is forgotten once it can matter no more.
    pub fn gone(&mut self, node: &NodeName, now: Mono) {
        if let Some(lease) = self.seen.get_mut(node) {
            lease.version.clear();
        }
        let young = |lease: &Lease| lease.changed.is_some_and(|at| now.since(at) < GONE_KEPT);
        self.seen.retain(|_, lease| !lease.version.is_empty() || young(lease));
    }

    /// The API server answered a question asked at that instant.
    pub fn answered(&mut self, asked: Mono) {
        self.answered = Some(asked);
    }

    /// When a node's Lease last changed.
    pub fn changed(&self, node: &NodeName) -> Option<Mono> {
        self.seen.get(node)?.changed
    }

    /// What the judge looks at.
    pub fn book(&self, now: Mono) -> LeaseBook {
        let seen = |lease: &Lease| LeaseSeen { changed: lease.changed, interval: lease.interval };
        LeaseBook {
            readable: self.readable(now),
            watched_since: self.since,
            leases: self.seen.iter().map(|(node, lease)| (node.clone(), seen(lease))).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_sight_of_a_lease_is_no_change_of_it() {
        let node = NodeName::new("n1").unwrap();
        let at = Mono::from_ms;
        let mut leases = Leases::default();
        leases.note(node.clone(), "1", at(0));
        assert_eq!(leases.seen[&node].changed, None);
        leases.note(node.clone(), "1", at(1000));
        assert_eq!(leases.seen[&node].changed, None);
        leases.note(node.clone(), "2", at(2000));
        assert_eq!(leases.seen[&node].changed, Some(at(2000)));
        leases.note(node.clone(), "3", at(7000));
        assert_eq!(leases.seen[&node].interval, Span::from_secs(5));
        // Away for a while: the interval that was learnt stays.
        leases.note(node.clone(), "4", at(100_000));
        assert_eq!(leases.seen[&node].interval, Span::from_secs(5));
    }

    #[test]
    fn a_lease_that_was_deleted_and_made_anew_is_a_sign_of_life_and_forgets_none() {
        let at = Mono::from_ms;
        let (kept, unknown) = (NodeName::new("n1").unwrap(), NodeName::new("n2").unwrap());
        let mut leases = Leases::default();
        leases.note(kept.clone(), "1", at(0));
        leases.listed(at(0));
        leases.note(kept.clone(), "2", at(10_000));
        leases.gone(&kept, at(12_000));
        assert_eq!(leases.changed(&kept), Some(at(10_000)), "that it was deleted says nothing");
        leases.note(kept.clone(), "3", at(20_000));
        assert_eq!(leases.changed(&kept), Some(at(20_000)));
        leases.note(unknown.clone(), "4", at(30_000));
        assert_eq!(leases.changed(&unknown), Some(at(30_000)), "made after the list was complete");
        leases.gone(&kept, at(40_000));
        leases.gone(&unknown, at(4_000_000));
        assert!(leases.seen.is_empty(), "nothing is kept for ever");
    }

    #[test]
    fn a_quiet_watch_is_not_taken_for_silent_kubelets() {
        let at = Mono::from_ms;
        let mut leases = Leases {
            since: Some(at(0)),
            newest: Some(at(0)),
            answered: Some(at(20_000)),
            ..Leases::default()
        };
        for n in ["n1", "n2", "n3"] {
            leases.note(NodeName::new(n).unwrap(), "1", at(0));
        }
        assert!(!leases.readable(at(20_000)), "no Lease has changed for 20 s");
        leases.newest = Some(at(10_000));
        assert!(leases.readable(at(20_000)));
        assert!(!leases.readable(at(24_000)), "the API server has not answered for 4 s");
    }
}
