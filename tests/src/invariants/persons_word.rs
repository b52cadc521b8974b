//! A person's word is bound: a proof that rests on it comes from a confirmation of that very incident, Node and boot, and
//! of no machine that somebody whose word reaches the leader hears.

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::phase::{FenceProof, Phase};

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct PersonsWord;

impl Invariant for PersonsWord {
    fn name(&self) -> &'static str {
        "a person's word is bound"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Committed { entry, before, after, .. } = fact else { return None };
        for (name, node) in &after.nodes {
            let Phase::ProvenOff { incident, proof: proof @ FenceProof::PersonConfirmed { .. }, .. } =
                &node.phase
            else {
                continue;
            };
            let was = before.nodes.get(name).map(|n| &n.phase);
            if matches!(was, Some(Phase::ProvenOff { proof: old, .. }) if old == proof) {
                continue;
            }
            let Command::ConfirmOff { node: meant, confirmation, .. } = &entry.command else {
                return Some(format!(
                    "{name} counts as confirmed off, and nobody confirmed it in that entry"
                ));
            };
            let life = proof.incarnation();
            if meant != name
                || confirmation.incident != *incident
                || confirmation.node != life.node
                || confirmation.boot != life.boot
            {
                return Some(format!("{name} is proven off by what a person said of another life"));
            }
            let machine = world.machine_of(name)?;
            let same = world.machines[machine].boot == Some(life.boot);
            if same && !world.truth.is_over(entry.term) && world.is_surely_heard(machine) {
                return Some(format!("{name} is confirmed off by a person while it is heard"));
            }
        }
        None
    }
}
