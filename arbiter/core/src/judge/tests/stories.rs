//! What happens to hosts and networks, and what the desk makes of it.

use coroner_shared::beacon::SelfDoubt;
use coroner_shared::time::Span;

use super::world::{Bmc, Host, World, boot, index_of, name};
use crate::command::Command;
use crate::phase::{Brake, EvidenceClass, HeldReason, Phase};
use crate::view::{Pending, Verdict};

pub(super) const FOUND_OFF: Verdict = Verdict::Dead(EvidenceClass::FoundOff);
pub(super) const SILENT_ON: Verdict = Verdict::Dead(EvidenceClass::HostSilentBmcOn);

/// Everybody is well, and has been for a while.
pub(super) fn calm(n: usize, racks: usize) -> World {
    let mut world = World::racks(n, racks);
    world.run(12_000);
    assert!(world.last.judged.is_empty() && world.last.findings.is_empty() && world.commands.is_empty());
    world
}

/// Runs, and fails as soon as anybody at all counts as dead.
#[track_caller]
pub(super) fn nobody_dies(world: &mut World, ms: u64) {
    let dead = |w: &World| w.last.judged.values().any(|(_, v)| matches!(v, Verdict::Dead(_)));
    assert!(
        !world.run_until(ms, dead),
        "{:?}",
        world.last.judged.values().map(|(_, v)| v).collect::<Vec<_>>()
    );
}

#[track_caller]
pub(super) fn becomes(world: &mut World, i: usize, verdict: &Verdict, within_ms: u64) {
    let reached = world.run_until(within_ms, |w| w.verdict_on(i) == Some(verdict));
    assert!(reached, "n{i:02} is {:?} and not {verdict:?}", world.verdict_on(i));
}

pub(super) fn is(host: &Host, i: usize) -> bool {
    index_of(&host.name) == i
}

pub(super) fn phase(world: &World, i: usize) -> &Phase {
    &world.state.nodes[&name(i)].phase
}

pub(super) fn judged(command: &Command) -> bool {
    matches!(command, Command::Judge(_))
}

#[test]
fn power_lost_is_decided_within_three_seconds_and_a_hang_within_eleven_and_a_half() {
    for victim in [0, 1, 7] {
        let mut world = calm(12, 3);
        world.power_off(victim);
        becomes(&mut world, victim, &FOUND_OFF, 3000);
        let mut world = calm(12, 3);
        let from = world.now;
        world.hang(victim);
        becomes(&mut world, victim, &SILENT_ON, 11_500);
        assert!(world.now - from >= 7500, "the deadline counts from the last beacon");
    }
}

/// Five of these whose observers are among them, so that fewer than a storm's members meet rule 1, and some do.
fn five_that_observe_each_other(world: &World) -> Vec<usize> {
    let of = |i: usize| -> Vec<usize> { world.state.observers.of(&name(i)).iter().map(index_of).collect() };
    let observers: Vec<Vec<usize>> = (0..20).map(of).collect();
    let met = |set: &[usize], i: usize| observers[i].iter().filter(|o| set.contains(o)).count() <= 2;
    // No host of a replica, and no rack of which more than two fall silent.
    let bits = |set: u32| (3..20_usize).filter(move |i| set >> i & 1 == 1);
    let sets = (0..1_u32 << 20).filter(|set| set.count_ones() == 5 && set & 7 == 0);
    let fits = |set: &Vec<usize>| {
        let by_rack = |rack: usize| set.iter().filter(|i| **i % 5 == rack).count();
        let meet = set.iter().filter(|i| met(set, **i)).count();
        (0..5).all(|rack| by_rack(rack) <= 2) && (1..=3).contains(&meet)
    };
    sets.map(|set| bits(set).collect::<Vec<_>>()).find(fits).unwrap()
}

#[test]
fn those_who_fall_silent_together_are_a_storm_though_they_observe_each_other() {
    let mut world = calm(20, 5);
    world.applies = true;
    let silent = five_that_observe_each_other(&world);
    silent.iter().for_each(|i| world.hang(*i));
    world.run(60_000);
    for i in silent {
        assert!(matches!(phase(&world, i), Phase::Held { .. }), "n{i:02} is {:?}", phase(&world, i));
        assert!(world.state.nodes[&name(i)].in_storm, "n{i:02}");
    }
}

#[test]
fn a_node_that_two_observers_still_hear_is_not_condemned() {
    // n11 reaches only two of its observers, and nobody's probes reach it.
    let mut world = calm(12, 3);
    let hears: Vec<usize> =
        world.state.observers.of(&name(11)).iter().map(index_of).filter(|i| *i > 2).take(2).collect();
    world.cut(move |from, to| is(to, 11) || (is(from, 11) && !hears.contains(&index_of(&to.name))));
    nobody_dies(&mut world, 60_000);
    assert!(world.last.findings.iter().any(|f| f.to_string().starts_with("n11: Partial")));
    // When they hear it no more either, it is cut off from everybody and counts as dead.
    world.cut(|from, to| is(to, 11) || is(from, 11));
    world.hosts[11].kubelet = false;
    becomes(&mut world, 11, &SILENT_ON, 25_000);
}

#[test]
fn a_node_heard_only_by_an_observer_that_reaches_only_a_follower_is_not_condemned() {
    let mut world = calm(6, 3);
    // n05 is heard by n04 alone, and n04 reaches replica 3 (n02) alone.
    world.cut(|from, to| {
        (is(from, 5) && !is(to, 4)) || is(to, 5) || (is(from, 4) && (is(to, 0) || is(to, 1)))
    });
    nobody_dies(&mut world, 60_000);
}

#[test]
fn one_deaf_host_accuses_everybody_and_nobody_believes_it() {
    for n in [5, 12] {
        let mut world = calm(n, 3);
        world.hosts[n - 1].deaf = true;
        nobody_dies(&mut world, 20_000);
        // A true death is decided all the same.
        world.hang(n - 2);
        becomes(&mut world, n - 2, &SILENT_ON, 20_000);
    }
}

#[test]
fn whom_nobody_hears_is_judged_though_its_observers_may_not_accuse() {
    // At N = 3 the host of a replica hears nothing any more, and says so of itself: one of the two observers is left.
    for (kind, want) in [(Bmc::Off, FOUND_OFF), (Bmc::On, Verdict::Held(HeldReason::TooFewObservers))] {
        let mut world = calm(3, 3);
        world.hosts[1].deaf = true;
        world.hosts[1].doubts = vec![SelfDoubt::NoArbiter];
        nobody_dies(&mut world, 20_000);
        assert!(world.last.judged.is_empty(), "{:?}", world.last.judged.keys());
        world.hang(2);
        world.set_bmc(2, kind);
        becomes(&mut world, 2, &want, 15_000);
    }
}

#[test]
fn at_four_nodes_one_observer_that_never_reports_holds_e2_and_not_e0() {
    for kind in [Bmc::On, Bmc::Off] {
        let mut world = calm(4, 2);
        world.hosts[2].mute = true;
        world.hang(3);
        world.set_bmc(3, kind);
        let want = if kind == Bmc::Off { FOUND_OFF } else { Verdict::Held(HeldReason::TooFewObservers) };
        becomes(&mut world, 3, &want, 20_000);
    }
}

#[test]
fn an_agent_that_stopped_is_not_a_host_that_died() {
    let mut world = calm(6, 3);
    world.hosts[5].agent = false;
    nobody_dies(&mut world, 60_000);
    assert_eq!(world.verdict_on(5), Some(&Verdict::Held(HeldReason::KubeletAlive)));
    assert!(world.last.findings.iter().any(|f| f.to_string().starts_with("n05: AgentDown")));
    // Then the host hangs: the kubelet misses a renewal.
    world.hang(5);
    becomes(&mut world, 5, &SILENT_ON, 50_000);
}

#[test]
fn a_kernel_that_answers_is_held_and_once_its_power_is_gone_it_is_found_off() {
    let mut world = calm(6, 3);
    (world.hosts[5].agent, world.hosts[5].kubelet) = (false, false);
    becomes(&mut world, 5, &Verdict::Held(HeldReason::HostAnswersOnly), 22_000);
    nobody_dies(&mut world, 120_000);
    world.power_off(5);
    becomes(&mut world, 5, &FOUND_OFF, 45_000);
}

#[test]
fn a_kernel_that_stops_answering_is_dead_after_nobody_could_reproduce_it_for_30_s() {
    let mut world = calm(6, 3);
    (world.hosts[5].agent, world.hosts[5].kubelet) = (false, false);
    becomes(&mut world, 5, &Verdict::Held(HeldReason::HostAnswersOnly), 22_000);
    world.hosts[5].kernel = false;
    nobody_dies(&mut world, 29_000);
    becomes(&mut world, 5, &SILENT_ON, 10_000);
}

#[test]
fn an_api_that_cannot_be_read_holds_a_hang_until_it_can() {
    let mut world = calm(6, 3);
    world.api = false;
    world.hang(5);
    becomes(&mut world, 5, &Verdict::Held(HeldReason::ApiUnreadable), 9000);
    world.api = true;
    becomes(&mut world, 5, &SILENT_ON, 12_000);
}

#[test]
fn a_rack_that_hangs_is_held_and_one_without_power_is_found_off() {
    for (kind, want) in [(Bmc::On, Verdict::Held(HeldReason::DomainDown)), (Bmc::Off, FOUND_OFF)] {
        let mut world = World::new(15, |i| format!("rack/{}", i / 3));
        world.run(12_000);
        for i in 12..15 {
            world.hang(i);
            world.set_bmc(i, kind);
            world.run(1500);
        }
        for i in 12..15 {
            becomes(&mut world, i, &want, 40_000);
        }
        if kind == Bmc::On {
            nobody_dies(&mut world, 60_000);
        }
    }
}

#[test]
fn a_member_stays_in_its_set_and_a_late_one_joins_it() {
    // Three of six fall within 5 s: a set. A fourth within 5 s of the last joins; a fifth much later does not.
    let mut world = World::new(18, |i| format!("rack/{}", i / 6));
    world.run(12_000);
    for i in [12, 13, 14] {
        world.hang(i);
        world.run(2000);
    }
    world.run(2000);
    world.hang(15);
    becomes(&mut world, 15, &Verdict::Held(HeldReason::DomainDown), 40_000);
    world.hang(16);
    becomes(&mut world, 16, &SILENT_ON, 25_000);
    assert_eq!(world.verdict_on(12), Some(&Verdict::Held(HeldReason::DomainDown)));
}

#[test]
fn two_that_fall_five_seconds_apart_are_a_set_and_six_seconds_apart_are_not() {
    for (apart, correlated) in [(4500, true), (6000, false)] {
        let mut world = World::new(12, |i| format!("rack/{}", i / 2));
        world.run(12_000);
        world.hang(10);
        world.run(apart);
        world.hang(11);
        world.run(4000);
        assert_eq!(world.view_of(10).unwrap().fleet.domain_silent, if correlated { 2 } else { 1 });
    }
}

#[test]
fn a_storm_is_told_to_the_log_while_it_lasts_and_holds_everybody_in_it() {
    let mut world = calm(30, 6);
    world.applies = true;
    // Five in different racks, of which none is a set, each with six observers that live.
    let storm = five_apart(&world);
    for i in &storm {
        world.hang(*i);
    }
    world.run(3000);
    assert!(world.state.brakes.storm.is_some(), "told before any deadline");
    assert!(world.commands.iter().filter(|(_, c)| judged(c)).count() <= 1, "once in 5 s");
    world.run(25_000);
    for i in storm {
        let storm = HeldReason::Brake(Brake::Storm);
        assert!(
            matches!(phase(&world, i), Phase::Held { why, .. } if *why == storm),
            "{:?}",
            phase(&world, i)
        );
    }
    let proposals = world.commands.iter().filter(|(_, c)| judged(c)).count();
    assert!(proposals <= 12, "{proposals} views in 28 s");
    // It is over a minute after its sign is gone, though the members stay held.
    world.run(60_000);
    world.commit(Command::Tick);
    assert!(!crate::brake::storm_on(&world.state));
}

/// Five workers in five racks that hear little of each other.
fn five_apart(world: &World) -> Vec<usize> {
    let mut five: Vec<usize> = Vec::new();
    for i in 3..30 {
        let hears = |a: usize, b: usize| world.state.observers.of(&name(a)).contains(&name(b));
        let apart = five.iter().all(|j| i % 6 != j % 6);
        let few = |k: usize| five.iter().chain([&i]).filter(|j| hears(k, **j)).count() <= 2;
        if five.len() < 5 && apart && five.iter().chain([&i]).all(|k| few(*k)) {
            five.push(i);
        }
    }
    assert_eq!(five.len(), 5);
    five
}

#[test]
fn a_host_that_was_never_heard_is_only_judged_by_being_found_off() {
    for (kind, want) in [(Bmc::On, Verdict::Held(HeldReason::NotSeenYet)), (Bmc::Off, FOUND_OFF)] {
        let mut world = World::racks(6, 3);
        world.group_age = Span::ZERO;
        world.hang(5);
        world.set_bmc(5, kind);
        becomes(&mut world, 5, &want, 20_000);
    }
}

#[test]
fn a_death_goes_through_the_log_once() {
    let mut world = calm(6, 3);
    world.applies = true;
    world.power_off(5);
    world.run(10_000);
    assert!(matches!(phase(&world, 5), Phase::Condemned { class: EvidenceClass::FoundOff, .. }));
    assert_eq!(world.commands.iter().filter(|(_, c)| judged(c)).count(), 1);
}

#[test]
fn a_hold_follows_its_reason_and_ends_when_the_node_is_heard() {
    let mut world = calm(6, 3);
    world.applies = true;
    world.pull_cord(5);
    world.run(10_000);
    let held = |w: &World, why: &HeldReason| matches!(phase(w, 5), Phase::Held { why: w, .. } if w == why);
    assert!(held(&world, &HeldReason::BmcSilent));
    world.run(60_000);
    assert_eq!(world.commands.len(), 1, "nothing changed, so nothing was told: {:?}", world.commands.len());
    // The BMC comes back with the machine off.
    world.set_bmc(5, Bmc::Off);
    world.run(3000);
    assert!(matches!(phase(&world, 5), Phase::Condemned { .. }));
    // Another one is held, and comes back.
    world.pull_cord(4);
    world.run(20_000);
    assert!(matches!(phase(&world, 4), Phase::Held { .. }));
    world.start(4, None);
    world.run(3000);
    assert_eq!(*phase(&world, 4), Phase::Alive);
}

#[test]
fn a_hold_that_waits_for_a_probe_or_a_reading_is_not_over() {
    let mut world = calm(6, 3);
    world.applies = true;
    world.pull_cord(5);
    world.run(10_000);
    world.set_bmc(5, Bmc::Odd);
    // Between Silent and Unclear the power state is unknown for 5 s: the verdict is Pending, the hold stands.
    let alive = world.run_until(30_000, |w| *phase(w, 5) == Phase::Alive);
    assert!(!alive);
    assert!(
        matches!(phase(&world, 5), Phase::Held { why: HeldReason::BmcUnclear(_), .. }),
        "{:?}",
        phase(&world, 5)
    );
}

#[test]
fn what_comes_to_nothing_is_proposed_less_and_less() {
    let mut world = calm(6, 3);
    world.power_off(5);
    world.run(40_000);
    let at: Vec<u64> = world.commands.iter().filter(|(_, c)| judged(c)).map(|(at, _)| *at).collect();
    let gaps: Vec<u64> = at.windows(2).map(|w| w[1] - w[0]).collect();
    assert_eq!(gaps, [1000, 2000, 4000, 8000, 16_000]);
}

#[test]
fn a_decision_that_must_wait_for_its_pace_is_made_as_soon_as_it_may() {
    let mut world = calm(9, 9);
    world.applies = true;
    for i in [6, 7, 8] {
        world.power_off(i);
    }
    let all = |w: &World| (6..9).all(|i| matches!(phase(w, i), Phase::Condemned { .. }));
    assert!(world.run_until(6000, all));
    let at: Vec<u64> = world.commands.iter().filter(|(_, c)| judged(c)).map(|(at, _)| *at).collect();
    assert!(at.len() <= 12, "{at:?}");
}

#[test]
fn two_machines_with_one_identity_are_not_judged() {
    let mut world = calm(6, 3);
    // Another machine with n05's key and another boot speaks to the replicas.
    for _ in 0..40 {
        world.run(500);
        world.impostor(5, boot(5, 7));
    }
    assert!(world.last.findings.iter().any(|f| f.to_string().starts_with("n05: Duplicate")));
    world.power_off(5);
    becomes(&mut world, 5, &Verdict::Held(HeldReason::Duplicate), 20_000);
}

#[test]
fn a_replayed_beacon_neither_reprieves_nor_blocks() {
    let mut world = calm(6, 3);
    let old = world.captured(5);
    world.power_off(5);
    world.run(1600);
    for beacon in old {
        world.replay(5, &beacon);
        world.run(100);
    }
    becomes(&mut world, 5, &FOUND_OFF, 1500);
}

#[test]
fn a_follower_that_lost_its_memory_takes_nobody_along() {
    let mut world = calm(6, 3);
    world.hang(5);
    becomes(&mut world, 5, &SILENT_ON, 12_000);
    world.forget(1);
    let pending = |w: &World| matches!(w.verdict_on(5), Some(Verdict::Pending(Pending::Heard)));
    assert!(!world.run_until(5000, pending));
    assert_eq!(world.verdict_on(5), Some(&SILENT_ON));
    assert!(world.last.judged.len() == 1);
}
