//! Clean end: a node that is Alive carries nothing of ours, and what others set on it is there, byte for byte.

use coroner_shared::names::INCIDENT_ANNOTATION;

use super::Invariant;
use crate::sim::people::foreign_taint;
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
            let foreign = world.truth.foreign_taints.iter().filter(|n| *n == name).count();
            if node.taints != vec![foreign_taint(); foreign] || !node.annotations.is_empty() {
                let (taints, annotations) = (&node.taints, &node.annotations);
                return Some(format!(
                    "{name} is Alive, others set {foreign} taints on it, and it has {taints:?} and {annotations:?}"
                ));
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
