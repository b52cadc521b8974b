//! Which members answer, counted in ticks.
//!
//! raft-rs has a flag for this too, and clears it for everybody at each check of the quorum: whoever reads it at that
//! moment sees a leader without a group.

use std::collections::BTreeMap;

use coroner_shared::id::ReplicaId;

/// When each member was last heard.
#[derive(Debug, Default)]
pub(crate) struct Heard {
    ticks: u64,
    last: BTreeMap<ReplicaId, u64>,
}

// === impl Heard ===

impl Heard {
    /// One tick of raft's clock.
    pub(crate) fn tick(&mut self) {
        self.ticks = self.ticks.saturating_add(1);
    }

    /// A message came. Bounded: only members whose certificate was checked get here.
    pub(crate) fn from(&mut self, member: ReplicaId) {
        self.last.insert(member, self.ticks);
    }

    /// Whether it was heard in the last `within` ticks.
    pub(crate) fn lately(&self, member: ReplicaId, within: usize) -> bool {
        let within = u64::try_from(within).unwrap_or(u64::MAX);
        self.last.get(&member).is_some_and(|last| self.ticks.saturating_sub(*last) <= within)
    }
}
