//! Proven implies off: a proof by the BMC's readings is committed only for a life that is over. A person may be wrong;
//! a proof that rests on readings may not.

use coroner_arbiter_core::phase::{FenceProof, Phase};

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct ProvenOff;

impl Invariant for ProvenOff {
    fn name(&self) -> &'static str {
        "proven implies off"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Committed { before, after, .. } = fact else { return None };
        for (name, node) in &after.nodes {
            let Phase::ProvenOff { proof: FenceProof::BmcOff { incarnation, .. }, .. } = &node.phase else {
                continue;
            };
            let was = before.nodes.get(name).map(|n| n.phase.name());
            if was == Some("ProvenOff") {
                continue;
            }
            if let Some(alive) = world.machines.iter().find(|m| m.can_execute(incarnation.boot)) {
                return Some(format!(
                    "{name} is proven off while {} runs ({:?})",
                    alive.name, alive.condition
                ));
            }
        }
        None
    }
}
