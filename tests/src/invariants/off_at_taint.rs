//! The taint falls on a machine that is off: when it is written on a proof by readings, the machine has no power, or got
//! it within the second that a last read may be old.

use coroner_arbiter_core::phase::{FenceProof, Phase};
use coroner_shared::time::{Mono, Span};

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// A last read may be so old, and the patch takes its time.
const LAST_READ: Span = Span::from_ms(2_000);

#[derive(Default)]
pub(super) struct OffAtTaint {
    on: std::collections::BTreeMap<usize, Mono>,
}

impl Invariant for OffAtTaint {
    fn name(&self) -> &'static str {
        "the taint falls on a machine that is off"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::TurnedOn { .. } => {
                for (index, _) in world.machines.iter().enumerate().filter(|(_, m)| m.has_power()) {
                    self.on.entry(index).or_insert(world.now);
                }
                None
            }
            Fact::TurnedOff { machine, .. } => {
                self.on.remove(machine);
                None
            }
            Fact::Tainted { node, .. } => {
                let by_readings = match world.truth.state.nodes.get(node).map(|n| &n.phase) {
                    Some(
                        Phase::Releasing { proof, .. }
                        | Phase::Released { proof, .. }
                        | Phase::ProvenOff { proof, .. },
                    ) => matches!(proof, FenceProof::BmcOff { .. }),
                    Some(_) | None => true,
                };
                let machine = world.machine_of(node)?;
                let since = *self.on.get(&machine).filter(|_| by_readings)?;
                let on = world.now.since(since);
                (world.machines[machine].has_power() && on > LAST_READ)
                    .then(|| format!("{node} is tainted while its machine has been on for {on}"))
            }
            Fact::Committed { .. }
            | Fact::Command { .. }
            | Fact::Started { .. }
            | Fact::Due { .. }
            | Fact::End => None,
        }
    }
}
