//! Accusers are true: whoever counts as a silent observer in a condemnation is an agent that lives, that has heard the
//! subject before, that is not deaf, and that did not just wake up; and the deadline ran from the last time that anybody
//! who reaches the leader heard it, without the pauses of a leader that could hear nobody meanwhile.

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::phase::{EvidenceClass, Phase};
use coroner_arbiter_core::policy::select::rules_for;
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::view::{Said, Standing, View};
use coroner_shared::id::{NodeName, ReplicaId};
use coroner_shared::time::Span;

use super::{Invariant, REACHES};
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// From the look at an observer to the commit, and the 3 s within which it must have been heard.
const DEAD_FOR: Span = Span::from_secs(5);
/// A path that did not answer for so long before the failure date says nothing by its silence.
const PATH: Span = Span::from_mins(10);
/// So much later than the observer itself others must have heard its subjects.
const DEAF_FOR: Span = Span::from_secs(4);
/// Pauses that are longer than this are forgiven: 500 ms, and a tick.
const PAUSE: Span = Span::from_ms(600);
/// Beacons come to a replica once a second, and to the agent beside it more often.
const OWN_SLACK: Span = Span::from_ms(1_500);
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
        if was == "Condemned" || world.truth.is_over(entry.term) {
            return None;
        }
        let counted = view.observers.iter().filter(|o| o.standing == Standing::Eligible);
        counted
            .filter(|o| matches!(o.said, Said::Silent { .. }))
            .find_map(|o| untrue(world, view, &o.node).or_else(|| deaf(world, before, view, &o.node)))
            .or_else(|| too_early(world, before, view))
            .or_else(|| unforgiven(world, before, view, &entry.leader))
    }
}

/// What speaks against this observer.
fn untrue(world: &World, view: &View, observer: &NodeName) -> Option<String> {
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

/// The leader's own pauses are no silence of others: neither those in which it led nor earlier ones of its process.
fn unforgiven(world: &World, before: &State, view: &View, leader: &ReplicaId) -> Option<String> {
    let subject = world.machine_of(&view.node)?;
    let index = world.replicas.iter().position(|replica| replica.id == *leader)?;
    let host = world.site.replicas[index];
    let began = world.replicas[index].process.as_ref()?.began;
    let (_, hears) = world.truth.hears(subject).find(|(receiver, _)| *receiver == host)?;
    if host == subject || hears.last < began || world.now.since(hears.since) < REACHES {
        return None;
    }
    let deadline = rules_for(before, &view.node).silent_bmc_on;
    let paused = world.machines[host].paused_since(hears.last, PAUSE);
    let attended = world.now.since(hears.last).saturating_sub(paused);
    (attended + OWN_SLACK < deadline).then(|| {
        format!(
            "{} is condemned {attended} after its leader heard it, {paused} of pauses left out, before its deadline \
             of {deadline}",
            view.node
        )
    })
}

/// An observer that for seconds has not heard half of those it listens to, though replicas hear them, is deaf. What other
/// observers say of each other proves nothing (seed 656 of these draws).
fn deaf(world: &World, before: &State, view: &View, observer: &NodeName) -> Option<String> {
    let index = world.machine_of(observer)?;
    // A leader that does not hear of it cannot know (seed 6791 of these draws); clones and the like speak for others.
    if !world.is_well_connected(index) || !world.machines[index].odd.is_none() {
        return None;
    }
    let subjects = before.observers.subjects_of(observer);
    let last = |subject: usize, by: &dyn Fn(usize) -> bool| {
        world.truth.hears(subject).filter(|(receiver, _)| by(*receiver)).map(|(_, hears)| hears.last).max()
    };
    // Who heard a life that is proven over says nothing of whom it hears now (seed 6820 of these draws).
    let proven = ["ProvenOff", "Releasing", "Released"];
    let over = |name: &NodeName| before.nodes.get(name).is_some_and(|n| proven.contains(&n.phase.name()));
    // Nor does who heard the accused last: whoever hears half of the others again is deaf no more (seed 15642).
    let lives = subjects.iter().filter(|name| **name != view.node && !over(name));
    let missed = lives.filter(|name| {
        let Some(subject) = world.machine_of(name) else { return false };
        let Some(own) = last(subject, &|by| by == index) else { return false };
        let others = |by: usize| {
            let replica = by != index && by != subject && world.site.replicas.contains(&by);
            // Who was paused since takes old beacons late, out of its socket (seed 12929 of these draws).
            let awake = world.machines[by].paused_since(own, PAUSE) == Span::ZERO;
            replica && awake && world.is_well_connected(by)
        };
        last(subject, &others).is_some_and(|others| others.since(own) > DEAF_FOR)
    });
    let missed: Vec<&str> = missed.map(NodeName::as_str).collect();
    (missed.len() >= 2 && missed.len() * 2 >= subjects.len()).then(|| {
        let missed = missed.join(", ");
        format!("{} is accused by {observer}, which replicas' hosts outvote about {missed}", view.node)
    })
}

/// Deadlines run from the last sign of life that anybody holds.
fn too_early(world: &World, before: &State, view: &View) -> Option<String> {
    let subject = world.machine_of(&view.node)?;
    let deadline = rules_for(before, &view.node).silent_bmc_on;
    let heard = world
        .truth
        .hears(subject)
        // One who has just come back was not heard of when this was proposed.
        .filter(|(_, hears)| world.now.since(hears.since) >= REACHES)
        .filter(|(receiver, _)| *receiver != subject && world.is_well_connected(*receiver));
    let (receiver, last) =
        heard.map(|(receiver, hears)| (receiver, hears.last)).max_by_key(|(_, last)| *last)?;
    let age = world.now.since(last);
    (age + SLACK < deadline).then(|| {
        let by = &world.machines[receiver].name;
        format!("{} is condemned {age} after {by} heard it, before its deadline of {deadline}", view.node)
    })
}
