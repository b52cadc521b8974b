//! The taint falls on a machine that is off: when it is written on a proof by readings, the machine has no power, or got
//! it within the second that a last read may be old.
//!
//! One thing no protocol can see: a BMC that answers from a cache says Off of a machine that has had power again for as
//! long as its cache is old. Where that alone is why a last read said Off, the machine may have power, and what must
//! hold is what the longer span of such a BMC is for: the life that the proof speaks of is over.

use coroner_arbiter_core::phase::{FenceProof, Phase};
use coroner_shared::time::{Mono, Span};

use super::Invariant;
use crate::sim::bmc::Bmc;
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
            Fact::Tainted { node, boot } => {
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
                let unseen =
                    says_off_by_its_cache(world, machine) && !world.machines[machine].can_execute(*boot);
                (world.machines[machine].has_power() && on > LAST_READ && !unseen)
                    .then(|| format!("{node} is tainted while its machine has been on for {on}"))
            }
            Fact::Committed { .. }
            | Fact::Command { .. }
            | Fact::Started { .. }
            | Fact::Paged { .. }
            | Fact::Due { .. }
            | Fact::End => None,
        }
    }
}

/// Whether the machine's BMC, asked when a last read of this taint may have been asked for, had Off in its cache.
fn says_off_by_its_cache(world: &World, machine: usize) -> bool {
    let read_at = world.now.back(LAST_READ);
    let lags = |bmc: &Bmc| bmc.traits.cached > Span::ZERO && !bmc.is_on_in_its_cache(read_at);
    world.bmcs.iter().any(|bmc| bmc.machine == machine && lags(bmc))
}
