//! Signs of life that are told to the log.

use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::keys::PublicKey;
use coroner_shared::time::{Mono, Span};

use super::world::{Bmc, World, at, boot, name};
use crate::command::Command;
use crate::phase::{EvidenceClass, Intent, Phase, Released};
use crate::state::{Enforced, Goodbye};

fn incident() -> IncidentId {
    IncidentId::from("n05-1".to_owned())
}

fn condemned() -> Phase {
    Phase::Condemned { incident: incident(), class: EvidenceClass::FoundOff }
}

fn fencing(released: bool) -> Phase {
    let intent = Intent {
        since: Mono::default(),
        progress: Mono::default(),
        stalled: None,
        attempts: 0,
        read_only: false,
    };
    let released = released.then(Released::default);
    Phase::Fencing { incident: incident(), intent, attempt: None, released }
}

/// A calm cluster in which n05 is in this phase.
fn world(phase: Phase) -> World {
    let mut world = World::racks(6, 3);
    world.run(12_000);
    set(&mut world, phase);
    world
}

fn set(world: &mut World, phase: Phase) {
    world.state.nodes.get_mut(&name(5)).unwrap().phase = phase;
    world.commands.clear();
}

fn heard(world: &World) -> Vec<u64> {
    let of = |c: &Command| matches!(c, Command::Heard { node, boot: b, .. } if *node == name(5) && *b == boot(5, 0));
    world.commands.iter().filter(|(_, c)| of(c)).map(|(at, _)| *at).collect()
}

fn count(world: &World, is: fn(&Command) -> bool) -> usize {
    world.commands.iter().filter(|(_, c)| is(c)).count()
}

#[test]
fn a_condemned_node_that_is_heard_is_told_at_once_and_again_each_second() {
    let mut world = world(condemned());
    world.run(3500);
    let told = heard(&world);
    assert!((3..=4).contains(&told.len()), "{told:?}");
    assert!(told.windows(2).all(|w| w[1] - w[0] >= 1000));
}

#[test]
fn a_new_leader_that_has_not_listened_takes_nobody_for_silent() {
    let mut world = world(fencing(false));
    world.state.nodes.get_mut(&name(5)).unwrap().heard_since = Some(world.state.now);
    // All replicas begin anew: none of them has heard anybody yet.
    (0..3).for_each(|r| world.forget(r));
    world.new_leader();
    world.run(50);
    assert!(!world.last.settled);
    assert_eq!(world.last.settles_in, Some(Span::from_ms(4950)), "what is left of 5 s");
    let most = world.last.settles_in.unwrap().as_ms();
    assert!(world.run_until(most, |w| w.last.settled), "in the time that it said it has listened");
    assert_eq!(world.last.settles_in, None);
    assert_eq!(count(&world, |c| matches!(c, Command::SilentAgain { .. })), 0, "it was never silent");
    world.hang(5);
    world.run(5000);
    assert!(count(&world, |c| matches!(c, Command::SilentAgain { .. })) > 0, "now it is");
}

#[test]
fn what_it_was_condemned_on_is_no_sign_of_life() {
    // Power lost; condemned as soon as it is found off. Its last beacon is less than 3 s old by then.
    let mut world = world(Phase::Alive);
    world.applies = true;
    world.power_off(5);
    let condemned = |w: &World| matches!(w.state.nodes[&name(5)].phase, Phase::Condemned { .. });
    assert!(world.run_until(4000, condemned));
    world.run(10_000);
    assert!(heard(&world).is_empty());
    // It really comes back: reprieved.
    world.start(5, None);
    world.run(2000);
    assert_eq!(world.state.nodes[&name(5)].phase, Phase::Alive);
}

#[test]
fn nothing_is_told_of_the_living() {
    let mut world = world(Phase::Alive);
    world.run(30_000);
    assert!(world.commands.is_empty());
}

#[test]
fn while_it_is_heard_in_fencing_it_is_told_every_five_seconds_and_its_silence_once() {
    let mut world = world(fencing(false));
    world.state.nodes.get_mut(&name(5)).unwrap().heard_since = Some(at(1));
    world.run(12_000);
    let told = heard(&world);
    assert!((2..=3).contains(&told.len()), "{told:?}");
    assert_eq!(count(&world, |c| matches!(c, Command::SilentAgain { .. })), 0);
    world.hang(5);
    let silent = |w: &World| count(w, |c| matches!(c, Command::SilentAgain { .. })) > 0;
    let from = world.now;
    assert!(world.run_until(6000, silent));
    assert!((2000..=3100).contains(&(world.now - from)), "{}", world.now - from);
    world.state.nodes.get_mut(&name(5)).unwrap().heard_since = None;
    world.commands.clear();
    world.run(5000);
    assert_eq!(count(&world, |c| matches!(c, Command::SilentAgain { .. })), 0);
}

/// n05 runs a replica; its agent is silent, only its replica speaks.
fn only_traffic(phase: Phase) -> usize {
    let mut world = World::racks(6, 3);
    world.run(12_000);
    world.hosts[1].agent = false;
    world.run(5000);
    world.state.nodes.get_mut(&name(1)).unwrap().phase = phase;
    world.commands.clear();
    world.run(3000);
    count(&world, |c| matches!(c, Command::Heard { seq: 0, .. }))
}

#[test]
fn traffic_of_a_replica_reprieves_and_is_no_boot_id() {
    assert!(only_traffic(condemned()) >= 2);
    assert!(only_traffic(fencing(false)) >= 2);
    // A replica speaks again after a reboot before its agent has registered: no second writer.
    assert_eq!(only_traffic(fencing(true)), 0);
}

#[test]
fn only_the_registered_boot_is_told() {
    let mut world = world(condemned());
    world.hosts[5].boot = boot(5, 1);
    world.run(2000);
    world.commands.clear();
    world.run(5000);
    assert_eq!(count(&world, |c| matches!(c, Command::Heard { .. })), 0);
}

#[test]
fn a_lease_that_moves_is_told_where_power_commands_are_wanted() {
    for (phase, want) in [(condemned(), true), (fencing(false), true), (Phase::Alive, false)] {
        let mut world = world(phase);
        world.hosts[5].agent = false;
        world.run(11_000);
        let told = count(&world, |c| matches!(c, Command::LeaseMoved { node } if *node == name(5)));
        assert_eq!(told > 0, want);
        assert!(told <= 4, "{told} times for at most two renewals");
    }
    let mut world = world(condemned());
    world.hang(5);
    world.run(2000);
    world.commands.clear();
    world.run(20_000);
    assert_eq!(count(&world, |c| matches!(c, Command::LeaseMoved { .. })), 0);
}

#[test]
fn a_renewal_from_before_a_pause_is_none_after_it() {
    let mut world = world(condemned());
    let told = |w: &World| count(w, |c| matches!(c, Command::LeaseMoved { .. })) > 0;
    assert!(world.run_until(15_000, told));
    world.hang(5);
    world.commands.clear();
    world.paused(1900);
    world.run(2000);
    assert!(!told(&world));
}

/// Said at the host's time `said`; beacons up to that number were sent before it.
fn goodbye(world: &mut World, said: u64) {
    let log_time = world.state.now;
    world.state.nodes.get_mut(&name(5)).unwrap().goodbye =
        Some(Goodbye { kind: GoodbyeKind::Reboot, boot: boot(5, 0), seq: said, at: log_time });
}

#[test]
fn the_next_sign_of_life_ends_a_goodbye() {
    let mut world = world(Phase::Alive);
    world.commit(Command::Tick);
    let said = world.now + 3000;
    goodbye(&mut world, said);
    world.run(3000);
    assert!(heard(&world).is_empty(), "those were on their way when it was said, however late they come");
    world.run(1500);
    assert!(!heard(&world).is_empty());
    // Silent since: it stands, and nothing is judged.
    let mut world = self::world(Phase::Alive);
    world.commit(Command::Tick);
    let said = world.now;
    goodbye(&mut world, said);
    world.hang(5);
    for _ in 0..6 {
        world.run(5000);
        world.commit(Command::Tick);
    }
    assert!(heard(&world).is_empty());
    let verdict = world.verdict_on(5);
    assert!(
        matches!(verdict, Some(crate::view::Verdict::Pending(crate::view::Pending::Goodbye { .. }))),
        "{verdict:?}"
    );
}

#[test]
fn what_stands_against_a_node_until_it_is_heard_is_ended() {
    for set in [(|n: &mut crate::state::Node| n.in_storm = true) as fn(&mut crate::state::Node), |n| {
        n.would_condemn_said = Some(boot(5, 0));
    }] {
        let mut world = world(Phase::Alive);
        set(world.state.nodes.get_mut(&name(5)).unwrap());
        world.run(1500);
        assert!(!heard(&world).is_empty());
    }
}

#[test]
fn what_a_replica_heard_before_its_pause_is_no_sign_of_life_after_it() {
    for phase in [condemned(), fencing(false), fencing(true)] {
        // The last beacon came up to a second before the pause.
        for late in (0..1000).step_by(250) {
            let mut world = world(Phase::Alive);
            world.always_read = vec![5];
            world.run(late);
            world.hosts[1].replica = false;
            world.run(50);
            world.power_off(5);
            world.run(20_000);
            set(&mut world, phase.clone());
            world.hosts[1].replica = true;
            world.run(3000);
            let told = |c: &Command| {
                matches!(c, Command::Heard { .. } | Command::BindingVerified { result: Err(_), .. })
            };
            assert_eq!(count(&world, told), 0, "{late} {phase:?}: {:?}", world.commands);
        }
    }
}

fn enforce(world: &mut World) {
    world.state.nodes.values_mut().for_each(|n| n.enforced = Enforced::Unheard);
    world.commands.clear();
}

fn told_heard(world: &World) -> Vec<NodeName> {
    let who = |(_, c): &(u64, Command)| {
        if let Command::Heard { node, .. } = c { Some(node.clone()) } else { None }
    };
    world.commands.iter().filter_map(who).collect()
}

#[test]
fn everybody_who_is_heard_after_enforce_is_told_once_and_who_was_silent_before_never() {
    let mut world = world(Phase::Alive);
    world.applies = true;
    world.hang(5);
    world.run(1500);
    enforce(&mut world);
    world.run(3000);
    let mut told = told_heard(&world);
    told.sort();
    assert_eq!(told, (0..5).map(name).collect::<Vec<_>>());
    // Not by a new leader either, whose pool is full of what the others heard before.
    world.new_leader();
    world.run(60_000);
    assert_eq!(told_heard(&world).len(), 5);
    assert_eq!(world.state.nodes[&name(5)].enforced, Enforced::Unheard);
    world.start(5, None);
    world.run(3000);
    assert_eq!(world.state.nodes[&name(5)].enforced, Enforced::Cleared);
}

#[test]
fn a_sign_from_before_enforce_is_none_after_it() {
    // The last beacon of n05 came less than S ago when Enforce begins, and so is young enough for everything else.
    let mut world = world(Phase::Alive);
    world.hang(5);
    world.run(250);
    enforce(&mut world);
    world.run(20_000);
    assert!(heard(&world).is_empty());
}

#[test]
fn a_boot_that_is_over_is_not_told_as_heard() {
    let mut world = world(Phase::Alive);
    enforce(&mut world);
    let member = world.state.nodes.get_mut(&name(5)).unwrap().member.as_mut().unwrap();
    member.left_boots.push_back(member.boot);
    world.run(5000);
    assert!(heard(&world).is_empty(), "the log would refuse it, once a second for ever");
}

#[test]
fn a_goodbye_is_not_ended_because_enforce_began() {
    let mut world = world(Phase::Alive);
    let said = world.now + 3000;
    goodbye(&mut world, said);
    enforce(&mut world);
    world.run(3000);
    assert!(heard(&world).is_empty(), "its beacons were on their way when it was said");
}

#[test]
fn a_fleet_under_its_first_policy_is_told_in_parts() {
    let mut world = World::racks(70, 7);
    world.run(4000);
    enforce(&mut world);
    world.run(2000);
    let mut at: std::collections::BTreeMap<u64, usize> = std::collections::BTreeMap::new();
    for (when, command) in &world.commands {
        *at.entry(*when).or_insert(0) += usize::from(matches!(command, Command::Heard { .. }));
    }
    assert_eq!(at.values().copied().max(), Some(64), "{at:?}");
    assert!(at.values().sum::<usize>() >= 70, "{at:?}");
}

#[test]
fn an_old_key_that_was_silent_for_a_minute_is_told() {
    let mut world = world(Phase::Alive);
    let old = PublicKey::from_bytes([5; 32]);
    world.state.nodes.get_mut(&name(5)).unwrap().member.as_mut().unwrap().old_key = Some(old);
    let told = |w: &World| count(w, |c| matches!(c, Command::OldKeySilent { .. })) > 0;
    assert!(!world.run_until(59_900, told));
    assert!(world.run_until(200, told));
    assert!(world.last.findings.iter().any(|f| f.to_string().starts_with("n05: KeyChanged")));
}

#[test]
fn off_while_heard_disables_the_binding() {
    let mut world = world(Phase::Alive);
    world.always_read = vec![5];
    world.set_bmc(5, Bmc::Off);
    let told = |w: &World| count(w, |c| matches!(c, Command::BindingVerified { result: Err(_), .. })) > 0;
    let from = world.now;
    assert!(world.run_until(10_000, told));
    assert!(world.now - from >= 3000, "{}", world.now - from);
    assert!(world.last.findings.iter().any(|f| f.to_string().starts_with("n05: OffWhileHeard")));
    // Disabled already, or truly off: nothing to say.
    world.commands.clear();
    world.state.bindings.get_mut(&name(5)).unwrap().disabled = Some("told".into());
    assert!(!world.run_until(5000, told));
    let mut world = self::world(Phase::Alive);
    world.always_read = vec![5];
    world.power_off(5);
    assert!(!world.run_until(20_000, told));
}
