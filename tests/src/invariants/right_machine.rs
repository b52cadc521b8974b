//! Right machine: a power command reaches a machine only for a committed attempt (or power-on) of an incident of that
//! very machine, which is open, or was when the command left.

use super::{ARRIVES, Invariant};
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct RightMachine;

impl Invariant for RightMachine {
    fn name(&self) -> &'static str {
        "right machine"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Command { machine, off, .. } = fact else { return None };
        let on = &world.machines[*machine];
        let state = &world.truth.state;
        let permitted = state.incidents.values().any(|incident| {
            incident.node == on.name
                && incident.incarnation.machine == world.true_id(*machine)
                && incident.closed.as_ref().is_none_or(|(at, _)| state.now.since(*at) < ARRIVES)
                && (if *off { incident.last_attempt.is_some() } else { incident.powered_on })
        });
        let what = if *off { "ForceOff" } else { "On" };
        (!permitted).then(|| format!("{what} reached {}, of which no decision is committed", on.name))
    }
}
