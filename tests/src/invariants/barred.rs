//! Barred is barred: nothing is condemned that a policy only observes, by silence in a storm, or during a planned reboot;
//! and no power-off leaves for a node whose commands are paused, by a person or by what a policy, a label or a binding has
//! become meanwhile.

use std::collections::BTreeMap;

use coroner_arbiter_core::brake::storm_on;
use coroner_arbiter_core::permit;
use coroner_arbiter_core::phase::{EvidenceClass, Phase};
use coroner_arbiter_core::policy::Mode;
use coroner_arbiter_core::policy::select::rules_for;
use coroner_arbiter_core::state::{Node, State};
use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::id::NodeName;
use coroner_shared::names::EXCLUDE_LABEL;
use coroner_shared::time::{Mono, Span};

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// A last look that is just good enough, and its way.
const LOOKED: Span = Span::from_secs(1);

#[derive(Default)]
pub(super) struct Barred {
    /// Whose commands are stopped, since when and why.
    stopped: BTreeMap<NodeName, (Mono, &'static str)>,
}

impl Invariant for Barred {
    fn name(&self) -> &'static str {
        "barred is barred"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Committed { before, after, .. } => {
                self.note(world.now, after);
                let condemned = after.nodes.iter().filter_map(|(name, node)| {
                    let Phase::Condemned { class, .. } = &node.phase else { return None };
                    let was = before.nodes.get(name)?.phase.name();
                    (was != "Condemned").then_some((name, class))
                });
                condemned.into_iter().find_map(|(name, class)| why_not(before, name, class))
            }
            Fact::Command { machine, off: true, sent, .. } => {
                let name = &world.machines[*machine].name;
                let (since, why) = self.stopped.get(name)?;
                (sent.since(*since) > LOOKED).then(|| format!("ForceOff to {name} left although {why}"))
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

impl Barred {
    fn note(&mut self, now: Mono, state: &State) {
        for (name, node) in &state.nodes {
            match stops(state, name, node) {
                Some(why) => {
                    let (since, _) = self.stopped.get(name).copied().unwrap_or((now, why));
                    self.stopped.insert(name.clone(), (since, why));
                }
                None => {
                    self.stopped.remove(name);
                }
            }
        }
    }
}

/// What stops commands to a node, read from the state and not asked of the core.
fn stops(state: &State, name: &NodeName, node: &Node) -> Option<&'static str> {
    if state.pause.is_some() {
        return Some("everything is paused");
    }
    if node.pause.is_some() {
        return Some("the node is paused");
    }
    if state.bindings.get(name).is_some_and(|binding| binding.disabled.is_some()) {
        return Some("its binding is disabled");
    }
    let labels = node.facts.as_ref().map(|facts| &facts.labels);
    if labels.and_then(|labels| labels.get(EXCLUDE_LABEL)).is_some_and(|value| value == "true") {
        return Some("it carries the opt-out label");
    }
    let terms = state.open_incident(name).and_then(|(_, incident)| incident.terms.as_deref())?;
    match state.policies.get(&terms.name) {
        None => Some("its policy is gone"),
        Some(policy) if policy.paused => Some("its policy is paused"),
        Some(policy) => (policy.mode != Mode::Enforce).then_some("its policy only observes"),
    }
}

fn why_not(before: &State, name: &NodeName, class: &EvidenceClass) -> Option<String> {
    if let Some(why) = permit::observes(before, name) {
        return Some(format!("{name} is condemned ({}) although {}", class.word(), why.word()));
    }
    if *class != EvidenceClass::HostSilentBmcOn {
        return None;
    }
    if storm_on(before) {
        return Some(format!("{name} is condemned by silence in a storm"));
    }
    let goodbye = before.nodes.get(name)?.goodbye.as_ref()?;
    let planned = matches!(goodbye.kind, GoodbyeKind::Reboot | GoodbyeKind::Shutdown);
    let lasts = before.now.since(goodbye.at) < rules_for(before, name).goodbye;
    (planned && lasts).then(|| format!("{name} is condemned by silence during its {:?}", goodbye.kind))
}
