//! Settles: half an hour after everything healed, with people doing what only they can, every node is Alive.

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct Settles;

impl Invariant for Settles {
    fn name(&self) -> &'static str {
        "settles"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::End = fact else { return None };
        if !world.truth.settled {
            return None;
        }
        let state = &world.truth.state;
        let late = state.nodes.iter().find(|(_, n)| n.phase.name() != "Alive" || n.member.is_none());
        if let Some((name, node)) = late {
            return Some(format!("{name} is still {:?} after everything healed", node.phase));
        }
        let missing = world.machines.iter().find(|m| !state.nodes.contains_key(&m.name));
        missing.map(|m| format!("{} is not known to the log after everything healed", m.name))
    }
}
