//! Release implies over: at the instant the taint is written, the life that the proof names can execute nothing, now or
//! later, on whatever machine.

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct ReleaseOver;

impl Invariant for ReleaseOver {
    fn name(&self) -> &'static str {
        "release implies over"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Tainted { node, boot } = fact else { return None };
        let alive = world.machines.iter().find(|m| m.can_execute(*boot))?;
        Some(format!("{node} is released while its boot runs on {} ({:?})", alive.name, alive.condition))
    }
}
