//! Settles: half an hour after everything healed, with people doing what only they can, every node is Alive, and no storm and
//! no finding is left. But for one:
//! a person ordered a machine off whose BMC says yes and does nothing. That order stands, tried on and paged, until a
//! person takes the machine's power. And a BMC whose answers take longer than a last read may be old proves nothing that
//! lasts: it is paged, and confirmed off by hand.

use coroner_arbiter_core::brake::storm_on;
use coroner_arbiter_core::judge::{Finding, FindingKind};
use coroner_arbiter_core::phase::{EvidenceClass, Phase};
use coroner_arbiter_core::state::Node;
use coroner_shared::id::NodeName;
use coroner_shared::time::Span;

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// A reading that took longer is too old for a last read (design 4).
const FRESH: Span = Span::from_secs(3);

pub(super) struct Settles;

impl Invariant for Settles {
    fn name(&self) -> &'static str {
        "settles"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::End = fact else { return None };
        if !world.truth.settled {
            return None;
        }
        let state = &world.truth.state;
        let settled = |n: &Node| n.phase.name() == "Alive" && n.member.is_some();
        let late = state.nodes.iter().find(|(name, n)| {
            !settled(n) && !waits_for_a_hand(world, name, n) && !is_too_slow(world, name, n)
        });
        if let Some((name, node)) = late {
            return Some(format!("{name} is still {:?} after everything healed", node.phase));
        }
        if let Some(what) = what_lasts(world) {
            return Some(format!("half an hour after everything healed there is still {what}"));
        }
        let missing = world.machines.iter().find(|m| !state.nodes.contains_key(&m.name));
        missing.map(|m| format!("{} is not known to the log after everything healed", m.name))
    }
}

/// A storm, or a finding of the leader. How few racks or probers a site has stays true.
pub(crate) fn what_lasts(world: &World) -> Option<String> {
    if storm_on(&world.truth.state) {
        return Some("a storm".to_owned());
    }
    let process = world.replicas[world.leader()?].process.as_ref()?;
    let lasts =
        |finding: &&Finding| !matches!(finding.kind(), FindingKind::TopologyWeak | FindingKind::ProbeBlind);
    process.ears.findings.iter().find(lasts).map(ToString::to_string)
}

/// Whether its BMC answers too slowly for what is wanted of it.
fn is_too_slow(world: &World, name: &NodeName, node: &Node) -> bool {
    let fenced =
        matches!(node.phase, Phase::Fencing { .. } | Phase::ProvenOff { .. } | Phase::Releasing { .. });
    let slow = |m: usize| world.bmcs.iter().any(|bmc| bmc.machine == m && bmc.traits.takes.1 > FRESH);
    fenced && world.machine_of(name).is_some_and(slow)
}

/// Whether somebody ordered it off, its BMC obeys nobody, and people were told.
fn waits_for_a_hand(world: &World, name: &NodeName, node: &Node) -> bool {
    let Phase::Fencing { incident, intent, .. } = &node.phase else { return false };
    let class = world.truth.state.incidents.get(incident).and_then(|record| record.class.as_ref());
    let ordered = matches!(class, Some(EvidenceClass::Ordered { .. }));
    let ignores = |m: usize| world.bmcs.iter().any(|bmc| bmc.machine == m && bmc.traits.ignores);
    ordered && intent.stalled.is_some() && world.machine_of(name).is_some_and(ignores)
}
