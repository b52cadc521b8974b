//! Clean end: a node that is Alive carries nothing of ours, and what others set is there.

use coroner_shared::names::INCIDENT_ANNOTATION;

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct CleanEnd;

impl Invariant for CleanEnd {
    fn name(&self) -> &'static str {
        "clean end"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::End = fact else { return None };
        for (name, node) in &world.api.nodes {
            let alive = world.truth.state.nodes.get(name).is_some_and(|n| n.phase.name() == "Alive");
            if !alive {
                continue;
            }
            if node.tainted() || node.annotations.contains_key(INCIDENT_ANNOTATION) {
                return Some(format!("{name} is Alive and carries a mark of ours"));
            }
            let foreign = usize::from(world.truth.foreign_taints.contains(name));
            if node.taints.len() < foreign {
                return Some(format!("{name} is Alive, and another controller's taint is gone from it"));
            }
            let people = world.truth.cordoned_by_people.contains(name);
            if node.unschedulable != people {
                return Some(format!(
                    "{name} is Alive, cordoned: {}, by people: {people}",
                    node.unschedulable
                ));
            }
        }
        None
    }
}
