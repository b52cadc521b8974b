//! A released pod is over: no pod that was bound to a node when our taint was written on it begins to run again. Its object
//! must be gone first, and whatever runs its workload then is another pod.

use std::collections::BTreeMap;

use coroner_shared::id::NodeName;

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

#[derive(Default)]
pub(super) struct PodsEnd {
    /// Pods of released lives.
    released: BTreeMap<u64, NodeName>,
}

impl Invariant for PodsEnd {
    fn name(&self) -> &'static str {
        "a released pod is over"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Tainted { node, .. } => {
                self.released.extend(world.api.pods_of(node).map(|(uid, _)| (uid, node.clone())));
                None
            }
            Fact::Started { machine, pod, .. } => {
                let node = self.released.get(pod)?;
                let on = &world.machines[*machine].name;
                Some(format!("pod {pod} of {node}, which was released, begins to run on {on}"))
            }
            Fact::Committed { .. }
            | Fact::Command { .. }
            | Fact::TurnedOff { .. }
            | Fact::TurnedOn { .. }
            | Fact::Paged { .. }
            | Fact::Due { .. }
            | Fact::End => None,
        }
    }
}
