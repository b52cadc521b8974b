//! In time: a lone death with a good BMC is decided within its class's deadline and the kubelet's missed renewal, and proven
//! within the span of its proof and what calls take; or a brake holds it by name.

use coroner_arbiter_core::phase::{HeldReason, Phase};
use coroner_shared::id::NodeName;

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct InTime;

impl Invariant for InTime {
    fn name(&self) -> &'static str {
        "in time"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Due { machine, proven } = fact else { return None };
        let name = &world.machines[*machine].name;
        let node = world.truth.state.nodes.get(name)?;
        match &node.phase {
            Phase::ProvenOff { .. }
            | Phase::Releasing { .. }
            | Phase::Released { .. }
            | Phase::Returning { .. } => None,
            Phase::Held { why: HeldReason::Brake(_), .. } => None,
            Phase::Condemned { .. } | Phase::Fencing { .. } if !proven => None,
            // Proven, released, and back already.
            Phase::Alive if is_back(world, name) => None,
            Phase::Alive | Phase::Held { .. } | Phase::Condemned { .. } | Phase::Fencing { .. } => {
                Some(format!("{name} is still {:?}", node.phase))
            }
        }
    }
}

/// Whether its death was proven and its return is over.
fn is_back(world: &World, name: &NodeName) -> bool {
    let mut incidents = world.truth.state.incidents.values();
    incidents.any(|i| i.node == *name && i.proven.is_some() && i.closed.is_some())
}
