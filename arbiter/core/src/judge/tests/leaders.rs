//! Leaders that hear little: blind, new, slept, or without what the one before had heard.

use coroner_shared::beacon::SelfDoubt;
use coroner_shared::time::Span;

use super::stories::{FOUND_OFF, SILENT_ON, becomes, calm, is, judged, nobody_dies, phase};
use super::world::{World, index_of, name};
use crate::phase::{HeldReason, Phase};

#[test]
fn a_leader_that_hears_nobody_freezes_and_gives_up_leading() {
    let mut world = calm(12, 3);
    // The leader's host receives nothing from workers; the other replicas still reach it, and report.
    world.cut(|from, to| is(to, 0) && index_of(&from.name) > 2);
    nobody_dies(&mut world, 20_000);
    assert_eq!(world.last.step_down, Some(super::super::StepDown::HearsLess));
    // Cut off from workers as a group: nobody hears more, so all freeze.
    let mut world = calm(30, 3);
    world.cut(|from, to| index_of(&to.name) <= 2 && index_of(&from.name) > 2);
    nobody_dies(&mut world, 30_000);
    assert_eq!(world.last.step_down, None);
    assert!(
        world.last.findings.iter().any(|f| f.node().is_none()),
        "ArbiterBlind: {:?}",
        world.last.findings
    );
}

#[test]
fn while_the_arbiter_is_blind_a_machine_found_off_waits_too() {
    let mut world = calm(30, 3);
    (world.applies, world.every) = (true, 200);
    world.cut(|from, to| index_of(&to.name) <= 2 && index_of(&from.name) > 2);
    world.run(4000);
    world.power_off(29);
    nobody_dies(&mut world, 12_000);
    let said = world.commands.len();
    nobody_dies(&mut world, 18_000);
    // To be held for it does not end it.
    let held = |i: usize| matches!(phase(&world, i), Phase::Held { why: HeldReason::ArbiterBlind, .. });
    assert!((3..30).all(held), "{:?}", (3..30).map(|i| phase(&world, i)).collect::<Vec<_>>());
    assert_eq!(world.commands.len(), said, "nothing changed, so nothing was told");
    assert!(world.last.findings.iter().any(|f| f.node().is_none()), "{:?}", world.last.findings);
    world.heal();
    let condemned = |w: &World| matches!(phase(w, 29), Phase::Condemned { .. });
    assert!(world.run_until(5000, condemned), "{:?}", phase(&world, 29));
    // A hold lasts 5 s at least.
    world.run(7000);
    assert!((3..29).all(|i| *phase(&world, i) == Phase::Alive));
}

#[test]
fn one_whom_only_its_observers_hear_is_no_suspect() {
    let mut world = calm(20, 5);
    world.applies = true;
    world.cut(|from, to| is(from, 19) && index_of(&to.name) <= 2);
    let unsuspected = |world: &mut World, ms: u64| {
        assert!(!world.run_until(ms, |w| !w.last.judged.is_empty()), "{:?}", world.last.judged);
    };
    unsuspected(&mut world, 15_000);
    // Nor where no replica remembers anything, or another one leads.
    (0..3).for_each(|r| world.forget(r));
    unsuspected(&mut world, 6000);
    world.new_leader();
    unsuspected(&mut world, 6000);
    assert_eq!((world.asked, world.commands.len()), (0, 0));
    world.power_off(19);
    becomes(&mut world, 19, &FOUND_OFF, 4000);
}

#[test]
fn a_pause_of_every_replica_accuses_nobody() {
    let mut world = calm(6, 3);
    world.paused(1900);
    nobody_dies(&mut world, 100);
    assert!(world.last.judged.is_empty(), "{:?}", world.last.judged.keys());
    assert!(!world.stepped_down);
    world.paused(2100);
    assert!(world.stepped_down);
}

#[test]
fn a_new_leader_listens_first() {
    // Warm: the others were heard within 3 s.
    let mut world = calm(6, 3);
    world.power_off(0);
    world.run_until(10_000, |w| w.commands.iter().any(|(_, c)| judged(c)));
    assert_eq!(world.now - world.led_since, 1000, "one second, if warm");
    // Cold: it has heard less than 90 % of those that nobody accuses.
    let mut world = calm(30, 3);
    let unseen = |w: &World, i: usize| w.state.observers.of(&name(i)).iter().all(|o| index_of(o) > 2);
    let four: Vec<usize> = (3..29).filter(|i| unseen(&world, *i)).take(4).collect();
    assert_eq!(four.len(), 4);
    world.cut(move |from, to| index_of(&to.name) <= 2 && four.contains(&index_of(&from.name)));
    world.run(4000);
    world.power_off(29);
    world.run(2000);
    world.new_leader();
    world.run_until(10_000, |w| w.commands.iter().any(|(at, c)| *at > w.led_since && judged(c)));
    assert_eq!(world.now - world.led_since, 5000, "five if not");
}

/// Seeds 131 and 2838 of the swarm: three seconds after the leader had heard it, its successor condemned a machine that
/// the leader alone had heard, by silences that had lasted for long.
#[test]
fn what_a_leader_heard_is_lost_with_it_and_deadlines_wait_for_that() {
    let mut world = calm(6, 3);
    // n05 reaches the leader's host alone, and the agent there hears nobody.
    world.hosts[0].deaf = true;
    world.hosts[0].doubts = vec![SelfDoubt::ReceiveDrops];
    world.hosts[5].kubelet = false;
    world.cut(|from, to| (is(from, 5) && !is(to, 0)) || is(to, 5));
    nobody_dies(&mut world, 30_000);
    let killed = world.now;
    world.hosts[0].replica = false;
    becomes(&mut world, 5, &SILENT_ON, 15_000);
    let after = world.now - killed;
    assert!((9500..9600).contains(&after), "eight seconds after the election: {after}");
}

#[test]
fn after_quorum_from_nothing_nobody_is_judged_for_ten_seconds() {
    let mut world = World::racks(6, 3);
    world.group_age = Span::ZERO;
    world.run(5000);
    assert_eq!(world.last.settles_in, Some(Span::from_secs(5)), "the group is five seconds old");
    world.power_off(5);
    world.run_until(20_000, |w| w.commands.iter().any(|(_, c)| judged(c)));
    assert_eq!(world.now - world.started, 10_000);
    assert_eq!(world.verdict_on(5), Some(&FOUND_OFF));
}
