//! Recovers: once everything healed, a node that was fenced and runs again, Ready, with nothing of its old life left, is
//! Alive within a minute, or as long as its policy's timings make it wait.

use std::collections::BTreeMap;

use coroner_arbiter_core::fence::LATE_COMMAND;
use coroner_arbiter_core::phase::Phase;
use coroner_arbiter_core::state::Node;
use coroner_shared::bmc::Login;
use coroner_shared::id::{NodeName, ReplicaId};
use coroner_shared::time::{Mono, Span};

use super::{ARRIVES, Invariant};
use crate::sim::api::Ready;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// Design 8, liveness.
const WITHIN: Span = Span::from_secs(60);
/// What calls and ticks of the log take beside the timings of a policy.
const CALLS: Span = Span::from_secs(20);

#[derive(Default)]
pub(super) struct Recovers {
    /// Since when nothing stands in its way, under which leader.
    fit: BTreeMap<NodeName, (Mono, ReplicaId)>,
}

impl Invariant for Recovers {
    fn name(&self) -> &'static str {
        "recovers"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        if !matches!(fact, Fact::Committed { .. } | Fact::End) {
            return None;
        }
        let leader = world.leader().map(|index| world.replicas[index].id);
        let state = &world.truth.state;
        let mut late = None;
        for (name, node) in &state.nodes {
            let Some(leader) = leader.filter(|_| world.truth.settled && is_fit(world, name, node)) else {
                self.fit.remove(name);
                continue;
            };
            let since = self.fit.entry(name.clone()).or_insert((world.now, leader));
            if since.1 != leader {
                *since = (world.now, leader);
            }
            let fit = world.now.since(since.0);
            if fit > allowed(world, name) {
                late = Some(format!("{name} runs well again for {fit} and is still {:?}", node.phase));
            }
        }
        late
    }
}

fn allowed(world: &World, name: &NodeName) -> Span {
    let terms = world.truth.state.open_incident(name).and_then(|(_, incident)| incident.terms.as_deref());
    let waits = terms.map_or(Span::ZERO, |t| t.timings.return_ready + t.timings.return_margin + CALLS);
    WITHIN.max(waits)
}

/// Whether only we keep it from being Alive.
fn is_fit(world: &World, name: &NodeName, node: &Node) -> bool {
    if !matches!(node.phase, Phase::Released { .. } | Phase::Returning { .. }) {
        return false;
    }
    let Some(machine) = world.machine_of(name) else { return false };
    let on = &world.machines[machine];
    let Some(object) = world.api.nodes.get(name) else { return false };
    let new_boot =
        world.truth.state.open_incident(name).is_some_and(|(_, i)| on.boot != Some(i.incarnation.boot));
    let well = on.is_up() && new_boot && object.boot == on.boot && object.ready == Ready::True;
    well && !world.api.down
        && !has_leftovers(world, node)
        && !awaits_deadline(world, name)
        && world.is_well_connected(machine)
}

/// Whether something of the old life is still there, in truth.
fn has_leftovers(world: &World, node: &Node) -> bool {
    let (Phase::Released { released, .. } | Phase::Returning { released: Some(released), .. }) = &node.phase
    else {
        return false;
    };
    let there = |uid: &str, known: &dyn Fn(u64) -> bool| uid.parse().is_ok_and(known);
    released.pods.iter().any(|(uid, _)| there(uid, &|uid| world.api.pods.contains_key(&uid)))
        || released
            .attachments
            .iter()
            .any(|(uid, _)| there(uid, &|uid| world.api.attachments.contains_key(&uid)))
}

/// Whether a power command may still arrive: nothing returns before that.
fn awaits_deadline(world: &World, name: &NodeName) -> bool {
    let state = &world.truth.state;
    let attempt = state.open_incident(name).and_then(|(_, incident)| incident.last_attempt.as_ref());
    attempt.is_some_and(|a| {
        let arrives = match a.login {
            Login::Session(_) => ARRIVES,
            Login::Basic => LATE_COMMAND,
        };
        state.now.since(a.at) < arrives
    })
}
