//! Barred is barred: nothing is condemned that a policy only observes, by silence in a storm, or during a planned reboot;
//! and no power command leaves while commands are paused.

use coroner_arbiter_core::brake::storm_on;
use coroner_arbiter_core::permit;
use coroner_arbiter_core::phase::{EvidenceClass, Phase};
use coroner_arbiter_core::policy::select::rules_for;
use coroner_arbiter_core::state::State;
use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// A last look that is just good enough, and its way.
const LOOKED: Span = Span::from_secs(1);

#[derive(Default)]
pub(super) struct Barred {
    /// Since when everything is paused.
    paused: Option<Mono>,
}

impl Invariant for Barred {
    fn name(&self) -> &'static str {
        "barred is barred"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        match fact {
            Fact::Committed { before, after, .. } => {
                self.paused = after.pause.as_ref().map(|_| self.paused.unwrap_or(world.now));
                let condemned = after.nodes.iter().filter_map(|(name, node)| {
                    let Phase::Condemned { class, .. } = &node.phase else { return None };
                    let was = before.nodes.get(name)?.phase.name();
                    (was != "Condemned").then_some((name, class))
                });
                condemned.into_iter().find_map(|(name, class)| why_not(before, name, class))
            }
            Fact::Command { machine, off: true, sent } => {
                let since = self.paused?;
                let name = &world.machines[*machine].name;
                (sent.since(since) > LOOKED).then(|| format!("ForceOff to {name} left during a pause"))
            }
            Fact::Command { .. }
            | Fact::TurnedOff { .. }
            | Fact::TurnedOn { .. }
            | Fact::Tainted { .. }
            | Fact::Started { .. }
            | Fact::Due { .. }
            | Fact::End => None,
        }
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
