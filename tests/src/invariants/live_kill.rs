//! No live kill: no power-off is sent to a running machine while somebody whose word reaches the leader at once has been
//! hearing it for a while. An order and a second writer after a release are not silence.

use coroner_arbiter_core::phase::{EvidenceClass, Phase};
use coroner_shared::time::Span;

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// So long before the command was sent the hearing must have begun: a last look of 500 ms, a letter of a follower, a
/// status each second.
const BEGAN: Span = Span::from_secs(3);

pub(super) struct LiveKill;

impl Invariant for LiveKill {
    fn name(&self) -> &'static str {
        "no live kill"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Command { machine, off: true, sent, .. } = fact else { return None };
        let name = &world.machines[*machine].name;
        // A machine that speaks for another node is not heard as its own.
        let odd = !world.machines[*machine].odd.is_none();
        if odd || !world.machines[*machine].is_up() || excused(world, name) {
            return None;
        }
        let (receiver, hears) = world.truth.hears(*machine).find(|(receiver, hears)| {
            sent.since(hears.since) >= BEGAN
                && sent.since(hears.last) <= Span::from_ms(1250)
                && receiver != machine
                && world.is_well_connected(*receiver)
        })?;
        let by = &world.machines[receiver].name;
        let since = world.now.since(hears.since);
        Some(format!("{name} is sent ForceOff although {by} has been hearing it for {since}"))
    }
}

fn excused(world: &World, name: &coroner_shared::id::NodeName) -> bool {
    let Some((_, incident)) = world.truth.state.open_incident(name) else { return false };
    let refence = world
        .truth
        .state
        .nodes
        .get(name)
        .is_some_and(|n| matches!(&n.phase, Phase::Fencing { released: Some(_), .. }));
    refence || matches!(incident.class, Some(EvidenceClass::Ordered { .. }))
}
