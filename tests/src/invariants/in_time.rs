//! In time: a lone death with a good BMC is decided within its class's deadline and the kubelet's missed renewal, proven
//! within the span of its proof and what calls take, and released no later than the span of its row and 15 s after it must
//! have been decided; or a brake holds it by name.

use std::collections::BTreeMap;

use coroner_arbiter_core::phase::{FenceProof, HeldReason, Phase};
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use super::Invariant;
use super::table::span_of;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// From a proof to its taint, and what calls take.
const RELEASES: Span = Span::from_secs(15);

#[derive(Default)]
pub(super) struct InTime {
    /// By when a death had to be decided.
    due: BTreeMap<usize, Mono>,
    /// When the taint fell, and what Off was read over for it.
    tainted: BTreeMap<NodeName, (Mono, Span)>,
}

impl Invariant for InTime {
    fn name(&self) -> &'static str {
        "in time"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Tainted { node, .. } => {
                let phase = &world.truth.state.nodes.get(node)?.phase;
                self.tainted.entry(node.clone()).or_insert((world.now, read_over(phase)?));
                None
            }
            Fact::Due { machine, proven: false } => {
                if !is_braked(world, *machine) {
                    self.due.insert(*machine, world.now);
                }
                undecided(world, *machine, false)
            }
            Fact::Due { machine, proven: true } => {
                undecided(world, *machine, true).or_else(|| self.unreleased(world, *machine))
            }
            Fact::Committed { .. }
            | Fact::Command { .. }
            | Fact::TurnedOff { .. }
            | Fact::TurnedOn { .. }
            | Fact::Started { .. }
            | Fact::Paged { .. }
            | Fact::End => None,
        }
    }
}

impl InTime {
    fn unreleased(&self, world: &World, machine: usize) -> Option<String> {
        let name = &world.machines[machine].name;
        let phase = &world.truth.state.nodes.get(name)?.phase;
        if matches!(phase, Phase::Held { .. }) {
            return None;
        }
        let tainted = self.tainted.get(name).copied();
        let (at, over) = match tainted {
            Some(tainted) => tainted,
            None => (world.now, read_over(phase)?),
        };
        let late = at.since(*self.due.get(&machine)?);
        let done = if tainted.is_some() { "was released" } else { "is not released" };
        (late > over + RELEASES).then(|| {
            format!("{name} {done} {late} after it had to be decided; Off has to be read over {over}")
        })
    }
}

/// What Off has to be read over until the taint: who does not know its BMC as steady reads the same span once more for a
/// last read.
fn read_over(phase: &Phase) -> Option<Span> {
    let (Phase::ProvenOff { proof, .. } | Phase::Releasing { proof, .. } | Phase::Released { proof, .. }) =
        phase
    else {
        return None;
    };
    match proof {
        FenceProof::BmcOff { readings, .. } => {
            let span = span_of(readings);
            Some(if readings.steady { span } else { span + span })
        }
        FenceProof::PersonConfirmed { .. } => None,
    }
}

fn is_braked(world: &World, machine: usize) -> bool {
    let node = world.truth.state.nodes.get(&world.machines[machine].name);
    node.is_some_and(|node| matches!(&node.phase, Phase::Held { why: HeldReason::Brake(_), .. }))
}

fn undecided(world: &World, machine: usize, proven: bool) -> Option<String> {
    let name = &world.machines[machine].name;
    let node = world.truth.state.nodes.get(name)?;
    match &node.phase {
        Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => None,
        Phase::Held { why: HeldReason::Brake(_), .. } => None,
        Phase::Condemned { .. } | Phase::Fencing { .. } if !proven => None,
        // Proven, released, and back already.
        Phase::Alive if is_back(world, name) => None,
        Phase::Alive | Phase::Held { .. } | Phase::Condemned { .. } | Phase::Fencing { .. } => {
            Some(format!("{name} is still {:?}", node.phase))
        }
    }
}

/// Whether its death was proven and its return is over.
fn is_back(world: &World, name: &NodeName) -> bool {
    let mut incidents = world.truth.state.incidents.values();
    incidents.any(|i| i.node == *name && i.proven.is_some() && i.closed.is_some())
}
