//! Released implies proven: the taint is written for a life that the log has proven off, and a release rests on a proof of
//! the life its incident is about.

use coroner_arbiter_core::phase::Phase;

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct ReleasedProven;

impl Invariant for ReleasedProven {
    fn name(&self) -> &'static str {
        "released implies proven"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Tainted { node, boot } => {
                let mut incidents = world.truth.state.incidents.values();
                let proven = incidents.any(|incident| {
                    incident.node == *node && incident.incarnation.boot == *boot && incident.proven.is_some()
                });
                (!proven).then(|| format!("{node} is released, and no proof of its boot {boot} is committed"))
            }
            Fact::Committed { after, .. } => after.nodes.iter().find_map(|(name, node)| {
                let (Phase::Releasing { incident, proof, .. } | Phase::Released { incident, proof, .. }) =
                    &node.phase
                else {
                    return None;
                };
                let life = &after.incidents.get(incident)?.incarnation;
                (proof.incarnation() != life)
                    .then(|| format!("{name} is released by a proof of another life"))
            }),
            Fact::Command { .. }
            | Fact::TurnedOff { .. }
            | Fact::TurnedOn { .. }
            | Fact::Started { .. }
            | Fact::Paged { .. }
            | Fact::Due { .. }
            | Fact::End => None,
        }
    }
}
