//! The brakes, row by row: numbers by hand for small and large clusters, then each brake between its column for
//! machines found off and its column for everything else.

mod control_plane;
mod times;

use coroner_shared::bmc::CommandAnswer;

use super::{
    Asking, Limits, Stage, ask, budget_default, budget_left, counts, floor_default, in_flight_default,
    limits, limits_of, storm_members_default,
};
use crate::apply::tests::world::{World, name, offs, policy, replica, secs, uid};
use crate::command::Command;
use crate::phase::EvidenceClass;
use crate::policy::{Brakes, Mode};

fn ordered(who: &str) -> EvidenceClass {
    EvidenceClass::Ordered { who: who.to_owned(), why: "w".to_owned() }
}

/// What the brakes say of each class at a stage, as words: found off, silent with BMC On, ordered by a person.
fn said(world: &World, n: u32, stage: Stage) -> [&'static str; 3] {
    [EvidenceClass::FoundOff, EvidenceClass::HostSilentBmcOn, ordered("alice")].map(|class| {
        let node = name(n);
        let incident = world.node(n).phase.incident();
        match ask(&world.state, Asking { node: &node, incident, class: &class, stage }) {
            Ok(()) => "ok",
            Err(brake) => brake.word(),
        }
    })
}

#[test]
fn the_defaults_by_size() {
    // N, in flight, budget, floor, storm members.
    for (n, flight, budget, floor, storm) in [
        (0, 1, 2, 0, 3),
        (1, 1, 2, 0, 3),
        (2, 1, 2, 0, 3),
        (3, 1, 2, 1, 3),
        (4, 1, 2, 1, 3),
        (5, 1, 2, 2, 3),
        (6, 1, 2, 2, 3),
        (7, 1, 2, 3, 3),
        (8, 1, 2, 3, 3),
        (9, 1, 2, 4, 3),
        (10, 1, 2, 4, 3),
        (11, 1, 2, 4, 3),
        (12, 1, 2, 4, 3),
        (19, 1, 2, 5, 3),
        (20, 2, 2, 6, 3),
        (50, 2, 2, 15, 3),
        (199, 2, 2, 59, 3),
        (200, 2, 2, 60, 4),
        (399, 3, 2, 119, 7),
        (500, 5, 2, 150, 10),
        (1000, 5, 5, 300, 20),
        (5000, 5, 25, 1500, 100),
        (u32::MAX, 5, 21_474_836, 1_288_490_188, 85_899_345),
    ] {
        let of = (in_flight_default(n), budget_default(n), floor_default(n), storm_members_default(n));
        assert_eq!(of, (flight, budget, floor, storm), "N = {n}");
    }
}

#[test]
fn of_each_brake_the_strictest_value_of_all_policies_in_enforce_binds() {
    let mut w = World::new(5);
    let strict = |name: &str, mode, brakes| {
        let mut policy = policy(mode);
        policy.name = name.to_owned();
        policy.node_selector.insert("no".to_owned(), "node".to_owned());
        policy.brakes = brakes;
        Command::PolicySet(Box::new(policy))
    };
    let defaults = limits_of(&Brakes::DEFAULT, 5);
    assert_eq!(limits(&w.state), defaults);
    let few = Brakes { floor: Some(1), per_domain_10m: 1, pace: secs(3), ..Brakes::DEFAULT };
    let slow = Brakes {
        in_flight: Some(9),
        budget: Some(1),
        budget_refill: secs(600),
        storm_pace: secs(60),
        storm_members: Some(1),
        storm_domains: 1,
        deaths_per_day: 2,
        ..Brakes::DEFAULT
    };
    w.done(strict("few", Mode::Enforce, few));
    w.done(strict("slow", Mode::Enforce, slow));
    w.done(strict("seen", Mode::Observe, Brakes { floor: Some(1), pace: secs(9), ..Brakes::DEFAULT }));
    let want = Limits {
        in_flight: 1,
        per_domain: 1,
        per_domain_10m: 1,
        budget: 1,
        budget_refill: secs(600),
        floor: 1,
        pace: secs(3),
        storm_pace: secs(60),
        storm_members: 1,
        storm_domains: 1,
        deaths_per_day: 2,
    };
    assert_eq!(limits(&w.state), want);
    w.done(Command::PolicyGone { name: "few".to_owned() });
    w.done(Command::PolicyGone { name: "slow".to_owned() });
    assert_eq!(limits(&w.state), defaults);
}

#[test]
fn in_flight_holds_all_but_what_is_found_off_and_counts_no_stall() {
    let mut w = World::new(12);
    w.silent_on(4);
    w.wait(secs(1));
    assert_eq!(said(&w, 5, Stage::Condemn), ["ok", "InFlight", "InFlight"]);
    assert_eq!(said(&w, 4, Stage::Intent), ["ok"; 3], "an incident does not count against itself");
    w.done(w.intent(4));
    assert_eq!(said(&w, 5, Stage::Condemn), ["ok", "InFlight", "InFlight"]);
    w.done(w.attempt(4, 1, true));
    assert_eq!(said(&w, 4, Stage::Attempt), ["ok"; 3]);
    w.wait(secs(180));
    assert_eq!(counts(&w.state).in_flight, 0);
    assert_eq!(said(&w, 5, Stage::Condemn), ["ok"; 3]);
    // A new command takes the slot again while it is under way; it is no progress.
    w.done(w.attempt(4, 2, true));
    assert_eq!(counts(&w.state).in_flight, 1);
    w.wait(secs(9));
    assert_eq!(counts(&w.state).in_flight, 1);
    w.wait(secs(1));
    assert_eq!(counts(&w.state).in_flight, 0);
    // The slot is taken by another: the stalled one must ask for it again.
    w.silent_on(5);
    w.refused("InFlight", w.attempt(4, 3, true));
    assert_eq!(w.stands(4), "Fencing");
    // Found off goes on beside it, and is counted.
    w.wait(secs(1));
    w.found_off(6);
    assert_eq!(counts(&w.state).in_flight, 2);
}

#[test]
fn two_may_be_in_flight_from_twenty_nodes_on() {
    let mut w = World::new(20);
    w.silent_on(4);
    w.wait(secs(1));
    w.silent_on(5);
    w.wait(secs(1));
    assert_eq!(said(&w, 6, Stage::Condemn), ["ok", "InFlight", "InFlight"]);
}

#[test]
fn one_at_a_time_in_a_domain_and_two_in_ten_minutes() {
    // 24 nodes in racks of four: 1 5 9 .. are r1.
    let mut w = World::in_racks(24, |n| Some(n % 6));
    w.silent_on(7);
    w.wait(secs(1));
    assert_eq!(said(&w, 13, Stage::Condemn), ["ok", "PerDomain", "PerDomain"]);
    assert_eq!(said(&w, 8, Stage::Condemn), ["ok"; 3], "another rack");
    w.done(w.heard(7));
    assert_eq!(said(&w, 13, Stage::Condemn), ["ok"; 3]);
    w.silent_on(13);
    w.done(w.heard(13));
    w.wait(secs(1));
    assert_eq!(said(&w, 19, Stage::Condemn), ["ok", "PerDomain10m", "PerDomain10m"]);
    assert_eq!(said(&w, 8, Stage::Condemn), ["ok"; 3]);
    w.wait(secs(597));
    assert_eq!(said(&w, 19, Stage::Condemn), ["ok", "PerDomain10m", "PerDomain10m"]);
    w.wait(secs(2));
    assert_eq!(said(&w, 19, Stage::Condemn), ["ok"; 3]);
}

#[test]
fn a_node_that_changed_its_domain_counts_in_both() {
    let mut w = World::in_racks(24, |n| Some(n % 6));
    w.change(7, |f| {
        f.labels.insert("topology.kubernetes.io/rack".to_owned(), "r5".to_owned());
    });
    w.silent_on(7);
    w.wait(secs(1));
    assert_eq!(said(&w, 13, Stage::Condemn), ["ok", "PerDomain", "PerDomain"], "the rack it was in");
    assert_eq!(said(&w, 11, Stage::Condemn), ["ok", "PerDomain", "PerDomain"], "the rack it is in");
    w.done(w.heard(7));
    w.wait(secs(601));
    w.silent_on(7);
    w.wait(secs(1));
    assert_eq!(said(&w, 13, Stage::Condemn), ["ok"; 3]);
    assert_eq!(said(&w, 11, Stage::Condemn), ["ok", "PerDomain", "PerDomain"]);
}

#[test]
fn an_incident_that_was_held_in_between_counts_once_in_its_domain() {
    let mut w = World::in_racks(24, |n| Some(n % 6));
    for _ in 0..3 {
        w.silent_on(7);
        w.done(Command::Pause { node: Some(name(7)), who: "bob".to_owned(), why: "w".to_owned() });
        w.done(Command::Resume { node: Some(name(7)), who: "bob".to_owned(), why: "w".to_owned() });
        assert_eq!(w.stands(7), "Held:Paused");
        w.wait(secs(6));
    }
    assert_eq!(w.state.brakes.by_domain["rack/r1"].len(), 1);
    assert_eq!(said(&w, 7, Stage::Condemn), ["ok"; 3]);
}

#[test]
fn the_budget_is_taken_at_the_intent_and_refilled_one_a_minute() {
    let mut w = World::new(60);
    let left = |w: &World| budget_left(&w.state, &limits(&w.state));
    assert_eq!(left(&w), 2);
    for (n, want) in [(10, 1), (11, 0)] {
        w.silent_on(n);
        assert_eq!(left(&w), want + 1, "being condemned takes nothing");
        w.done(w.intent(n));
        assert_eq!(left(&w), want);
        w.done(w.heard(n));
        w.wait(secs(1));
    }
    assert_eq!(said(&w, 12, Stage::Condemn), ["ok", "Budget", "Budget"]);
    assert_eq!(said(&w, 12, Stage::Intent), ["ok", "Budget", "Budget"]);
    assert_eq!(said(&w, 12, Stage::Attempt), ["ok"; 3], "an attempt was paid for by its intent");
    w.wait(secs(58));
    // 59 s after the second intent, 60 s after the first.
    assert_eq!(left(&w), 1);
    w.wait(secs(59));
    assert_eq!(left(&w), 1);
    w.wait(secs(2));
    assert_eq!(left(&w), 2);
    w.wait(secs(600));
    assert_eq!(left(&w), 2, "it does not grow beyond its size");
    // What is found off takes nothing.
    w.found_off(13);
    w.done(w.intent(13));
    assert_eq!(left(&w), 2);
}

#[test]
fn the_floor_counts_machines_down_by_our_hand_until_they_return() {
    // N = 5: at most two.
    let mut w = World::new(5);
    let down = |w: &mut World, n: u32| {
        w.silent_on(n);
        w.done(w.intent(n));
        w.done(w.attempt(n, 1, true));
        w.done(w.answered(n, 1, CommandAnswer::Accepted));
        w.wait(secs(5));
        w.done(w.proven(n, 1, offs(n, secs(4), Some(CommandAnswer::Accepted))));
        w.wait(secs(120));
    };
    down(&mut w, 4);
    assert_eq!(said(&w, 3, Stage::Condemn), ["ok"; 3]);
    down(&mut w, 5);
    assert_eq!(counts(&w.state).down, 2);
    assert_eq!(said(&w, 3, Stage::Condemn), ["ok", "Floor", "Floor"]);
    assert_eq!(said(&w, 5, Stage::Attempt), ["ok"; 3], "it does not count against itself");
    w.reboot(5);
    assert_eq!(w.stands(5), "Returning");
    assert_eq!(said(&w, 3, Stage::Condemn), ["ok"; 3]);
    // At N = 2 nothing may ever be down by our hand.
    let mut two = World::new(2);
    two.done(Command::ReplicaGone { replica: replica(2) });
    assert_eq!(said(&two, 2, Stage::Condemn), ["ok", "Floor", "Floor"]);
}

#[test]
fn two_deaths_are_decided_from_five_nodes_on_and_one_from_three() {
    for n in 3..=12 {
        let mut w = World::new(n);
        // Not a host of a replica, where there is one.
        let first = n;
        w.silent_on(first);
        w.done(w.intent(first));
        w.done(w.attempt(first, 1, true));
        w.done(w.answered(first, 1, CommandAnswer::Accepted));
        w.wait(secs(5));
        w.done(w.proven(first, 1, offs(first, secs(4), Some(CommandAnswer::Accepted))));
        let second = n - 1;
        let view = w.view(second).on();
        w.say(Command::Judge(Box::new(view)));
        let want = match n {
            3 => "Held:ArbiterHosts",
            4 => "Held:Floor",
            _ => "Condemned",
        };
        assert_eq!(w.stands(second), want, "N = {n}");
        // Found off is decided whatever the size.
        let mut w = World::new(n);
        w.found_off(n);
        w.wait(secs(1));
        w.found_off(n - 1);
    }
}

#[test]
fn a_re_fence_was_paid_for_when_its_node_was_first_condemned() {
    let mut w = World::new(5);
    w.released(1);
    w.wait(secs(600));
    w.silent_on(4);
    w.done(w.heard(1));
    w.done(w.attempt(1, 2, true));
    assert_eq!(w.stands(1), "Fencing:re-fence");
}

#[test]
fn a_deleted_node_counts_nowhere() {
    let mut w = World::new(12);
    w.attempted(4);
    assert_eq!((counts(&w.state).in_flight, counts(&w.state).down), (1, 1));
    w.done(Command::NodeGone { node: name(4), uid: uid(4) });
    assert_eq!((counts(&w.state).in_flight, counts(&w.state).down), (0, 0));
    assert_eq!(counts(&w.state).members, 11);
}
