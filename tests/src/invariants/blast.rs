//! Bounded blast: on every prefix of the log no more nodes are in flight than the brakes allow, in all and per domain;
//! and in truth no more machines are down by our hand than the floor, nor the hosts of so many replicas, or so many etcd
//! voters, that the others are no majority.

use std::collections::BTreeMap;

use coroner_arbiter_core::brake::limits;
use coroner_arbiter_core::phase::{EvidenceClass, Phase};
use coroner_arbiter_core::policy::Mode;
use coroner_arbiter_core::state::State;

use super::Invariant;
use crate::sim::By;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// The page's default of how many of one domain.
const PER_DOMAIN: u32 = 1;

pub(super) struct Blast;

impl Invariant for Blast {
    fn name(&self) -> &'static str {
        "bounded blast"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Committed { before, after, .. } => grew(before, after).then(|| in_flight(after)).flatten(),
            Fact::TurnedOff { by: By::Us, .. } => down(world),
            Fact::TurnedOff { .. }
            | Fact::TurnedOn { .. }
            | Fact::Command { .. }
            | Fact::Tainted { .. }
            | Fact::Started { .. }
            | Fact::Paged { .. }
            | Fact::Due { .. }
            | Fact::End => None,
        }
    }
}

/// Whether somebody came into flight with this entry: limits that sink stop only what comes.
fn grew(before: &State, after: &State) -> bool {
    after.nodes.iter().any(|(name, node)| {
        node.phase.name() == "Condemned"
            && before.nodes.get(name).is_none_or(|n| n.phase.name() != "Condemned")
    })
}

fn in_flight(state: &State) -> Option<String> {
    let mut domains: BTreeMap<&str, u32> = BTreeMap::new();
    let mut all = 0;
    for (name, node) in &state.nodes {
        let stalled = matches!(&node.phase, Phase::Fencing { intent, .. } if intent.stalled.is_some());
        if !matches!(node.phase, Phase::Condemned { .. } | Phase::Fencing { .. }) || stalled {
            continue;
        }
        let Some((_, incident)) = state.open_incident(name) else { continue };
        if incident.class == Some(EvidenceClass::FoundOff) {
            continue;
        }
        all += 1;
        *domains.entry(&incident.domain).or_default() += 1;
    }
    // By the page, and not by the core; of several policies the strictest.
    let by_page = match state.members() {
        0..20 => 1,
        20..200 => 2,
        members => (members / 100).min(5),
    };
    let brakes = || state.policies.values().filter(|p| p.mode == Mode::Enforce).map(|p| p.brakes);
    let most = brakes().map(|b| b.in_flight.unwrap_or(by_page)).min().unwrap_or(by_page);
    if all > most {
        return Some(format!("{all} nodes are in flight, {most} may be"));
    }
    let (domain, count) = domains.into_iter().max_by_key(|(_, count)| *count)?;
    let most = brakes().map(|b| b.per_domain).min().unwrap_or(PER_DOMAIN);
    (count > most).then(|| format!("{count} nodes of {domain} are in flight, {most} may be"))
}

fn down(world: &World) -> Option<String> {
    let down: Vec<usize> =
        (0..world.machines.len()).filter(|index| world.machines[*index].off_by_us.is_some()).collect();
    let limits = limits(&world.truth.state);
    let count = u32::try_from(down.len()).unwrap_or(u32::MAX);
    if count > limits.floor {
        return Some(format!("{count} machines are down by our hand, {} may be", limits.floor));
    }
    let all = world.site.replicas.len();
    let hosts = down.iter().filter(|index| world.site.replicas.contains(index)).count();
    if hosts * 2 >= all {
        return Some(format!("the hosts of {hosts} of {all} replicas are down by our hand"));
    }
    let all = world.site.control_plane.iter().filter(|serves| **serves).count();
    // One whose Node was made anew meanwhile begins as one that is well.
    let out = |name| world.truth.state.nodes.get(name).is_some_and(|node| node.phase.name() != "Alive");
    let votes = |index: &&usize| world.site.control_plane[**index] && out(&world.machines[**index].name);
    let voters = down.iter().filter(votes).count();
    (voters > 0 && voters * 2 >= all).then(|| format!("{voters} of {all} etcd voters are down by our hand"))
}
