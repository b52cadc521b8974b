//! Edges have causes: what moves a life in the log is what the life's page says may move it, and no other entry.

use std::collections::BTreeMap;

use coroner_arbiter_core::command::{Command, Entry, Outcome};
use coroner_arbiter_core::phase::{Brake, EvidenceClass, HeldReason, Phase};
use coroner_arbiter_core::policy::LifeTimings;
use coroner_arbiter_core::state::State;
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

#[derive(Default)]
pub(super) struct Edges {
    /// Caught in a storm, since when.
    caught: BTreeMap<NodeName, Mono>,
}

impl Invariant for Edges {
    fn name(&self) -> &'static str {
        "edges have causes"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Committed { entry, outcome, before, after } = fact else { return None };
        refence(entry, before, after)
            .or_else(|| answer(entry, outcome, before))
            .or_else(|| taint(world, entry, outcome, before, after))
            .or_else(|| kept(before, after))
            .or_else(|| self.storm(world, before, after))
    }
}

impl Edges {
    /// Who was caught in a storm is condemned only when found off, ordered, or heard in between.
    fn storm(&mut self, world: &World, before: &State, after: &State) -> Option<String> {
        for (name, node) in &after.nodes {
            match &node.phase {
                Phase::Held { why: HeldReason::Brake(Brake::Storm), .. } => {
                    self.caught.entry(name.clone()).or_insert(world.now);
                }
                Phase::Condemned { class: EvidenceClass::HostSilentBmcOn, .. } => {
                    let was = before.nodes.get(name).map(|n| n.phase.name());
                    let since = self.caught.get(name).copied().filter(|_| was != Some("Condemned"));
                    let subject = world.machine_of(name)?;
                    if let Some(since) = since
                        && world.truth.hears(subject).all(|(_, hears)| hears.last < since)
                    {
                        return Some(format!(
                            "{name} was caught in a storm and is condemned without being heard"
                        ));
                    }
                }
                Phase::Alive => {
                    self.caught.remove(name);
                }
                Phase::Held { .. }
                | Phase::Condemned { .. }
                | Phase::Fencing { .. }
                | Phase::ProvenOff { .. }
                | Phase::Releasing { .. }
                | Phase::Released { .. }
                | Phase::Returning { .. } => {}
            }
        }
        None
    }
}

/// After the taint only the same boot id, heard, is fenced again; On alone is a boot under way, until it has been one for
/// so long that a person may order it off.
fn refence(entry: &Entry, before: &State, after: &State) -> Option<String> {
    let ordered =
        matches!(&entry.command, Command::Order { node, .. } if on_for_long(before, after.now, node));
    let heard = ordered || matches!(entry.command, Command::Heard { .. } | Command::Register { .. });
    let moved = |name: &NodeName| {
        let from = before.nodes.get(name).map(|n| n.phase.name());
        from == Some("Released") && after.nodes.get(name).is_some_and(|n| n.phase.name() == "Fencing")
    };
    let name = after.nodes.keys().find(|name| moved(name)).filter(|_| !heard)?;
    Some(format!("{name} was released and is fenced again, though nobody heard its boot"))
}

/// Whether a released machine has been on, without a boot that anybody knows, for longer than a boot takes; `now` is the time
/// of the entry, which may be what ends it.
fn on_for_long(state: &State, now: Mono, name: &NodeName) -> bool {
    let Some((_, incident)) = state.open_incident(name) else { return false };
    let booting =
        incident.terms.as_deref().map_or(LifeTimings::DEFAULT.booting, |terms| terms.timings.booting);
    match state.nodes.get(name).map(|n| &n.phase) {
        Some(Phase::Released { on_since: Some(since), .. }) => now.since(*since) >= booting,
        Some(_) | None => false,
    }
}

/// An answer belongs to the attempt of its number.
fn answer(entry: &Entry, outcome: &Outcome, before: &State) -> Option<String> {
    let Command::AttemptAnswered { node, incident, number, .. } = &entry.command else { return None };
    let phase = before.nodes.get(node).map(|n| &n.phase);
    let current = match phase {
        Some(Phase::Fencing { incident: open, attempt: Some(attempt), .. }) => {
            open == incident && attempt.number == *number
        }
        Some(_) | None => false,
    };
    (*outcome == Outcome::Done && !current)
        .then(|| format!("the answer to attempt {number} of {incident} is taken, and that is not under way"))
}

/// The taint stays until the Node has been Ready for as long as its policy says and pods and attachments of the old life
/// are gone, or a person waives that.
fn taint(world: &World, entry: &Entry, outcome: &Outcome, before: &State, after: &State) -> Option<String> {
    let Command::TaintRemoved { node, .. } = &entry.command else { return None };
    let (_, incident) = before.open_incident(node)?;
    let was = before.nodes.get(node)?;
    let Phase::Returning { waived: None, .. } = &was.phase else { return None };
    if *outcome != Outcome::Done || incident.orphaned {
        return None;
    }
    if !incident.leftovers_gone {
        return Some(format!(
            "the taint of {node} is gone, and pods or attachments of its old life are left"
        ));
    }
    let long = world.site.policies.values().map(|policy| policy.timings.return_ready).min()?;
    let ready = was.ready_since.map_or(Span::ZERO, |since| after.now.since(since));
    (ready < long).then(|| format!("the taint of {node} is gone, Ready for {ready}, {long} are asked for"))
}

/// What a Node was like before us is recorded once per incident.
fn kept(before: &State, after: &State) -> Option<String> {
    let recorded = |state: &State, name: &NodeName| match state.nodes.get(name).map(|n| n.phase.clone()) {
        Some(
            Phase::Fencing { incident, released: Some(released), .. }
            | Phase::ProvenOff { incident, released: Some(released), .. }
            | Phase::Releasing { incident, released, .. }
            | Phase::Released { incident, released, .. }
            | Phase::Returning { incident, released: Some(released), .. },
        ) => Some((incident, released.was_cordoned)),
        Some(_) | None => None,
    };
    let changed = |name: &&NodeName| match (recorded(before, name), recorded(after, name)) {
        (Some((then, was)), Some((now, is))) => then == now && was != is,
        (None, _) | (_, None) => false,
    };
    let name = after.nodes.keys().find(changed)?;
    Some(format!("{name} is remembered otherwise than it was before its release"))
}
