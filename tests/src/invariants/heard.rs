//! Heard is not condemned: nobody is condemned by silence whose beacon reached, within the suspicion time, somebody
//! whose word reaches the leader at once.

use coroner_arbiter_core::phase::{EvidenceClass, Phase};
use coroner_shared::time::Span;

use super::{Invariant, REACHES};
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// The suspicion time of the fastest profile.
const S: Span = Span::from_secs(1);

pub(super) struct Heard;

impl Invariant for Heard {
    fn name(&self) -> &'static str {
        "heard is not condemned"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Committed { entry, before, after, .. } = fact else { return None };
        if world.truth.is_over(entry.term) {
            return None;
        }
        for (name, node) in &after.nodes {
            let Phase::Condemned { class, .. } = &node.phase else { continue };
            if matches!(class, EvidenceClass::Ordered { .. }) {
                continue;
            }
            if before.nodes.get(name).is_some_and(|n| n.phase.name() == "Condemned") {
                continue;
            }
            let machine = world.machine_of(name)?;
            let heard = world.truth.hears(machine).find(|(receiver, hears)| {
                let known = world.now.since(hears.last) < S && world.now.since(hears.since) >= REACHES;
                *receiver != machine && known && world.is_well_connected(*receiver)
            });
            if let Some((receiver, hears)) = heard {
                let by = &world.machines[receiver].name;
                let ago = world.now.since(hears.last);
                return Some(format!("{name} is condemned although {by} heard it {ago} ago"));
            }
        }
        None
    }
}
