//! One executor: a replica sends no more power-offs in an incident than it has attempts committed in it. Nobody sends for
//! an attempt of another replica, and nobody sends for one attempt twice.

use std::collections::BTreeMap;

use super::{ARRIVES, Invariant};
use crate::sim::truth::Fact;
use crate::sim::world::World;
use coroner_arbiter_core::state::Incident;
use coroner_shared::id::{IncidentId, ReplicaId};

#[derive(Default)]
pub(super) struct OneExecutor {
    /// Attempts that were committed and not sent yet, as far as it was seen.
    left: BTreeMap<(IncidentId, ReplicaId), u32>,
}

impl Invariant for OneExecutor {
    fn name(&self) -> &'static str {
        "one executor"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Committed { before, after, .. } => {
                for (id, incident) in &after.incidents {
                    let number = |i: &Incident| i.last_attempt.as_ref().map(|a| a.number);
                    let was = before.incidents.get(id).and_then(number);
                    if let Some(attempt) = incident.last_attempt.as_ref().filter(|a| Some(a.number) != was) {
                        *self.left.entry((id.clone(), attempt.replica)).or_default() += 1;
                    }
                }
                None
            }
            Fact::Command { machine, replica, off: true, .. } => {
                let (node, by) = (&world.machines[*machine].name, world.replicas[*replica].id);
                let state = &world.truth.state;
                let recent =
                    |i: &Incident| i.closed.as_ref().is_none_or(|(at, _)| state.now.since(*at) < ARRIVES);
                let mut of_node = state.incidents.iter().filter(|(_, i)| i.node == *node && recent(i));
                let used = of_node.any(|(id, _)| match self.left.get_mut(&(id.clone(), by)) {
                    Some(left) if *left > 0 => {
                        *left -= 1;
                        true
                    }
                    Some(_) | None => false,
                });
                (!used)
                    .then(|| format!("replica {by} sends ForceOff to {node} and has no attempt left for it"))
            }
            Fact::Command { .. }
            | Fact::TurnedOff { .. }
            | Fact::TurnedOn { .. }
            | Fact::Tainted { .. }
            | Fact::Started { .. }
            | Fact::Paged { .. }
            | Fact::Due { .. }
            | Fact::End => None,
        }
    }
}
