//! The floor holds: never more machines down by our hand, in truth, than the page's formula allows, counted anew and
//! not by the core: half of the others below ten nodes, else three in ten and at least four.

use super::Invariant;
use crate::sim::By;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct Floor;

impl Invariant for Floor {
    fn name(&self) -> &'static str {
        "the floor holds"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::TurnedOff { by: By::Us, .. } = fact else { return None };
        let n = world.truth.state.members();
        let floor = if n < 10 { n.saturating_sub(1) / 2 } else { (n * 3 / 10).max(4) };
        let own = world.site.policies.values().filter_map(|policy| policy.brakes.floor).min();
        let floor = own.unwrap_or(floor);
        let down = world.machines.iter().filter(|machine| machine.off_by_us.is_some()).count();
        let down = u32::try_from(down).unwrap_or(u32::MAX);
        (down > floor).then(|| format!("{down} of {n} machines are down by our hand, {floor} may be"))
    }
}
