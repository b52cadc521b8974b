//! Accusers are true: whoever counts as a silent observer in a condemnation is an agent that lives, that has heard the
//! subject before, and that did not just wake up; and the deadline ran from the last time that anybody who reaches the
//! leader heard it.

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::phase::{EvidenceClass, Phase};
use coroner_arbiter_core::policy::select::rules_for;
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::view::{Said, Standing, View};
use coroner_shared::time::Span;

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// From the look at an observer to the commit, and the 3 s within which it must have been heard.
const DEAD_FOR: Span = Span::from_secs(5);
/// A path that did not answer for so long before the failure date says nothing by its silence.
const PATH: Span = Span::from_mins(10);
/// On the way, and between a beacon and the step that looks at it.
const SLACK: Span = Span::from_secs(1);

pub(super) struct Accusers;

impl Invariant for Accusers {
    fn name(&self) -> &'static str {
        "accusers are true"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Committed { entry, before, after, .. } = fact else { return None };
        let Command::Judge(view) = &entry.command else { return None };
        let was = before.nodes.get(&view.node)?.phase.name();
        let Phase::Condemned { class: EvidenceClass::HostSilentBmcOn, .. } =
            &after.nodes.get(&view.node)?.phase
        else {
            return None;
        };
        if was == "Condemned" {
            return None;
        }
        let counted = view.observers.iter().filter(|o| o.standing == Standing::Eligible);
        counted
            .filter(|o| matches!(o.said, Said::Silent { .. }))
            .find_map(|o| untrue(world, view, &o.node))
            .or_else(|| too_early(world, before, view))
    }
}

/// What speaks against this observer.
fn untrue(world: &World, view: &View, observer: &coroner_shared::id::NodeName) -> Option<String> {
    let (index, subject) = (world.machine_of(observer)?, world.machine_of(&view.node)?);
    let machine = &world.machines[index];
    let gone = world.now.since(machine.disturbed);
    if !machine.is_up() && gone > DEAD_FOR {
        return Some(format!(
            "{} is accused by {observer}, which is {:?} for {gone}",
            view.node, machine.condition
        ));
    }
    let heard = world.truth.hears(subject).find(|(receiver, _)| *receiver == index);
    let Some((_, hears)) = heard else {
        return Some(format!("{} is accused by {observer}, which never heard it", view.node));
    };
    let silent = world.now.since(hears.last);
    (silent > view.silence() + PATH + DEAD_FOR)
        .then(|| format!("{} is accused by {observer}, which did not hear it for {silent}", view.node))
}

/// Deadlines run from the last sign of life that anybody holds.
fn too_early(world: &World, before: &State, view: &View) -> Option<String> {
    let subject = world.machine_of(&view.node)?;
    let deadline = rules_for(before, &view.node).silent_bmc_on;
    let heard = world
        .truth
        .hears(subject)
        .filter(|(receiver, _)| *receiver != subject && world.is_well_connected(*receiver));
    let (receiver, last) =
        heard.map(|(receiver, hears)| (receiver, hears.last)).max_by_key(|(_, last)| *last)?;
    let age = world.now.since(last);
    (age + SLACK < deadline).then(|| {
        let by = &world.machines[receiver].name;
        format!("{} is condemned {age} after {by} heard it, before its deadline of {deadline}", view.node)
    })
}
