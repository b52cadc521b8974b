//! Whom the desk asks, and what it reads.

use coroner_shared::time::{Mono, Span};

use super::world::{World, index_of, name};
use crate::phase::Phase;

fn asked_of(world: &World, subject: usize) -> Vec<usize> {
    let uid = &world.hosts[subject].uid;
    let asks = world.last.ask_probes.iter().filter(|a| a.ask.subject == *uid);
    asks.map(|a| index_of(&a.prober)).collect()
}

/// Runs until somebody is asked about `i`, and gives whom.
fn next_asked(world: &mut World, i: usize) -> Vec<usize> {
    assert!(world.run_until(10_000, |w| !asked_of(w, i).is_empty()));
    asked_of(world, i)
}

#[test]
fn three_that_are_not_observers_are_asked_each_second_from_as_many_domains() {
    let mut world = World::racks(20, 5);
    world.run(12_000);
    assert_eq!(world.asked, 0, "nobody is asked in calm times");
    world.hang(19);
    let first = next_asked(&mut world, 19);
    let observers: Vec<usize> = world.state.observers.of(&name(19)).iter().map(index_of).collect();
    let probers: Vec<usize> = first.iter().copied().filter(|p| !observers.contains(p)).collect();
    assert_eq!(probers.len(), 3, "{first:?}");
    let domains: std::collections::BTreeSet<usize> = probers.iter().map(|p| p % 5).collect();
    assert_eq!(domains.len(), 3);
    assert!(!domains.contains(&(19 % 5)), "not of its own domain, while there are others");
    let at = world.now;
    world.run(50);
    let second = next_asked(&mut world, 19);
    assert_eq!(world.now - at, 1000);
    let again: Vec<usize> = second.iter().copied().filter(|p| !observers.contains(p)).collect();
    assert_eq!(again, probers, "the same ones again");
    assert!(second.iter().all(|p| !observers.contains(p)), "all observers call it silent by now");
}

#[test]
fn an_observer_that_does_not_call_it_silent_is_asked_too() {
    let mut world = World::racks(20, 5);
    world.run(12_000);
    let mute = index_of(world.state.observers.of(&name(19)).last().unwrap());
    world.hosts[mute].mute = true;
    world.hang(19);
    world.run(4000);
    assert!(next_asked(&mut world, 19).contains(&mute));
}

#[test]
fn where_everybody_observes_the_observers_are_asked() {
    let mut world = World::racks(5, 3);
    world.run(12_000);
    world.hang(4);
    let mut asked = next_asked(&mut world, 4);
    asked.sort_unstable();
    assert_eq!(asked, [0, 1, 2, 3]);
}

#[test]
fn eight_more_are_asked_half_a_second_before_the_deadline() {
    let mut world = World::racks(25, 5);
    world.run(12_000);
    let died = world.now;
    world.hang(24);
    let early = next_asked(&mut world, 24);
    let many = |w: &World| asked_of(w, 24).len() >= 8;
    assert!(world.run_until(9000, many));
    let before: std::collections::BTreeSet<usize> = early.into_iter().collect();
    let more = asked_of(&world, 24).into_iter().filter(|p| !before.contains(p)).count();
    assert_eq!(more, 8);
    let age = world.view_of(24).unwrap().silence();
    assert_eq!(age.as_ms(), 7500);
    assert!(world.now - died >= 7250);
    assert!(world.run_until(600, |w| matches!(
        w.verdict_on(24),
        Some(crate::view::Verdict::Dead(_))
            | Some(crate::view::Verdict::Pending(crate::view::Pending::Renewal { .. }))
    )));
}

#[test]
fn nobody_who_is_silent_or_under_a_goodbye_is_asked() {
    let mut world = World::racks(20, 5);
    world.run(12_000);
    world.hang(18);
    world.run(4000);
    world.hang(19);
    for _ in 0..5 {
        assert!(!next_asked(&mut world, 19).contains(&18));
        world.run(50);
    }
}

#[test]
fn numbers_rise_over_terms() {
    let mut world = World::racks(5, 3);
    world.run(12_000);
    world.hang(4);
    next_asked(&mut world, 4);
    let before = world.last.ask_probes[0].ask.number;
    world.new_leader();
    next_asked(&mut world, 4);
    assert!(world.last.ask_probes.iter().all(|a| a.ask.number > before));
}

#[test]
fn the_bmc_of_a_suspect_is_read_and_of_nobody_else() {
    let mut world = World::racks(12, 3);
    world.run(12_000);
    assert!(world.last.read_bmc.is_empty());
    world.hang(11);
    world.run(3000);
    let wanted: Vec<_> = world.last.read_bmc.iter().map(|w| (index_of(&w.node), w.failure_date)).collect();
    let failed = world.view_of(11).unwrap().silence();
    assert_eq!(wanted, [(11, super::world::at(world.now).back(failed))]);
    world.start(11, None);
    world.run(2000);
    assert!(world.last.read_bmc.is_empty());
}

#[test]
fn a_held_node_is_asked_about_less_often_after_a_minute() {
    let mut world = World::racks(6, 3);
    world.run(12_000);
    world.applies = true;
    world.pull_cord(5);
    world.run(75_000);
    world.commit(crate::command::Command::Tick);
    let before = world.asked;
    world.run(20_000);
    let rounds = (world.asked - before) / 5;
    assert!((3..=5).contains(&rounds), "{rounds} rounds in 20 s");
}

/// Seed 9187 of the swarm: a machine that was heard again by an observer, and by no replica over a network that lost most
/// packets, was sent another ForceOff. An observer says that it hears, unsigned, and brings the beacon when it is asked.
#[test]
fn whoever_claims_to_hear_one_that_is_being_fenced_is_asked_for_its_beacon() {
    let mut world = World::racks(20, 5);
    world.applies = true;
    world.run(12_000);
    world.hang(19);
    let condemned = |w: &World| matches!(w.state.nodes[&name(19)].phase, Phase::Condemned { .. });
    assert!(world.run_until(15_000, condemned));
    world.run(10_000);
    assert_eq!(asked_of(&world, 19), [] as [usize; 0], "nobody claims anything");
    // It goes on; the replicas do not hear it, nor their hosts. A command was sent, so that to be heard averts nothing.
    world.applies = false;
    world.cut(|from, to| index_of(&from.name) == 19 && index_of(&to.name) <= 2);
    world.start(19, None);
    world.run(2500);
    let lives = |w: &World| {
        let at = Mono::from_ms(w.now);
        w.pool.at(at, &w.state).lives_within(&name(19), Span::from_secs(3))
    };
    for _ in 0..40 {
        world.run(250);
        assert!(lives(&world), "at {}", world.now);
    }
}
