//! Nothing lost: at the end every incident is closed, or says what it waits for.

use coroner_arbiter_core::status;

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct NothingLost;

impl Invariant for NothingLost {
    fn name(&self) -> &'static str {
        "nothing lost"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::End = fact else { return None };
        let state = &world.truth.state;
        for (id, incident) in state.incidents.iter().filter(|(_, i)| i.closed.is_none()) {
            let open = state.open_incident(&incident.node).map(|(open, _)| open);
            if open != Some(id) && !incident.observed {
                return Some(format!("{id} is open and no phase of {} speaks of it", incident.node));
            }
            let waits = status::incident(state, id).and_then(|summary| summary.waiting_for);
            if waits.is_none_or(|waits| waits.is_empty()) && !incident.observed {
                return Some(format!("{id} is open and waits for nothing"));
            }
        }
        None
    }
}
