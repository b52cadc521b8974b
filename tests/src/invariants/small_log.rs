//! A small log: what is committed is bounded by what happens, not by how fast it can be committed.

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// Entries a minute and node, with all nodes in trouble at once.
const PER_NODE_MINUTE: u64 = 30;
/// Of a start: registrations, facts, bindings, verifications of each node.
const PER_NODE: u64 = 60;

pub(super) struct SmallLog;

impl Invariant for SmallLog {
    fn name(&self) -> &'static str {
        "small log"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::End = fact else { return None };
        let (nodes, minutes) = (world.site.nodes as u64, world.elapsed().as_ms() / 60_000 + 1);
        let most = 200 + nodes * (PER_NODE + PER_NODE_MINUTE * minutes);
        let entries = world.truth.entries();
        (entries > most).then(|| format!("{entries} entries in {minutes} min with {nodes} nodes"))
    }
}
