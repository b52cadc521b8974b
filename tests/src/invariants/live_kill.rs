//! No live kill: a running machine is not turned off by our hand while somebody whose word reaches the leader at once
//! has been hearing it for a while. An order and a second writer after a release are not silence.

use coroner_arbiter_core::phase::{EvidenceClass, Phase};
use coroner_shared::time::{Mono, Span};

use super::Invariant;
use crate::sim::By;
use crate::sim::machine::Condition;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// So long before the command was sent the hearing must have begun: a last look of 500 ms, a letter of a follower, a
/// status each second.
const BEGAN: Span = Span::from_secs(3);

#[derive(Default)]
pub(super) struct LiveKill {
    sent: Vec<(usize, Mono)>,
}

impl Invariant for LiveKill {
    fn name(&self) -> &'static str {
        "no live kill"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Command { machine, off: true, sent } => {
                self.sent.push((*machine, *sent));
                None
            }
            Fact::TurnedOff { machine, by: By::Us, was: Condition::Runs, .. } => {
                let (_, sent) = self.sent.iter().rev().find(|(of, _)| of == machine)?;
                let name = &world.machines[*machine].name;
                if excused(world, name) {
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
                Some(format!("{name} is turned off although {by} has been hearing it for {since}"))
            }
            Fact::Command { .. }
            | Fact::TurnedOff { .. }
            | Fact::TurnedOn { .. }
            | Fact::Committed { .. }
            | Fact::Tainted { .. }
            | Fact::Started { .. }
            | Fact::Due { .. }
            | Fact::End => None,
        }
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
