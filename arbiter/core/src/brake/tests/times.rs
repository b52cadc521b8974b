//! Pace, storm and repeated deaths: the brakes that go by time.

use coroner_shared::time::Span;

use super::said;
use crate::apply::tests::world::{World, name, offs, secs};
use crate::brake::{Stage, limits, pace_left, storm_on};
use crate::command::{Command, Outcome};

#[test]
fn the_pace_is_one_a_second_for_everything() {
    let mut w = World::new(60);
    w.found_off(10);
    assert_eq!(pace_left(&w.state, &limits(&w.state)), secs(1));
    assert_eq!(said(&w, 11, Stage::Condemn), ["Pace"; 3]);
    assert_eq!(said(&w, 11, Stage::Intent), ["ok"; 3], "only decisions are paced");
    w.say_after(Span::from_ms(999), Command::Tick);
    assert!(
        matches!(w.say(Command::Judge(Box::new(w.view(11).off()))), Outcome::Refused(r) if r.reason == "Pace")
    );
    assert_eq!(w.stands(11), "Alive", "a moment of patience is no hold");
    w.say_after(Span::from_ms(1), Command::Tick);
    w.found_off(11);
}

#[test]
fn a_storm_freezes_all_but_what_is_found_off_and_that_is_paced() {
    let mut w = World::new(10);
    let hold = |w: &mut World, n, members| {
        let view = w.view(n).on().in_a_storm(members);
        w.done(Command::Judge(Box::new(view)));
    };
    // More than three, in two domains.
    hold(&mut w, 9, 4);
    assert_eq!(w.stands(9), "Held:Storm");
    assert_eq!(said(&w, 8, Stage::Condemn), ["ok", "Storm", "Storm"]);
    assert_eq!(said(&w, 8, Stage::Attempt), ["ok", "Storm", "Storm"]);
    w.found_off(8);
    assert_eq!(pace_left(&w.state, &limits(&w.state)), secs(10));
    w.wait(secs(9));
    w.done(Command::Judge(Box::new(w.view(7).off())));
    assert_eq!(w.stands(7), "Held:Pace", "ten seconds are a hold, with its age");
    w.wait(secs(1));
    w.found_off(7);
    // It ends when its sign has been gone for a minute.
    w.wait(secs(49));
    assert!(storm_on(&w.state));
    w.wait(secs(1));
    assert!(!storm_on(&w.state));
    assert_eq!(w.state.brakes.storm, None);
    w.wait(secs(60));
    let view = w.view(6).on();
    w.done(Command::Judge(Box::new(view)));
    assert_ne!(w.stands(6), "Held:Storm");
    // Seen again in between it goes on, and remembers since when.
    let mut w = World::new(10);
    hold(&mut w, 9, 4);
    let since = w.state.now;
    w.wait(secs(59));
    hold(&mut w, 8, 4);
    w.wait(secs(59));
    assert_eq!(w.state.brakes.storm.map(|(s, _)| s), Some(since));
}

#[test]
fn what_is_no_storm() {
    let storm = |n: u32, members: u32, domains: u32| {
        let mut w = World::new(n);
        let mut view = w.view(n).on().in_a_storm(members);
        view.fleet.storm_domains = domains;
        w.say(Command::Judge(Box::new(view)));
        storm_on(&w.state)
    };
    assert!(storm(10, 4, 2));
    assert!(!storm(10, 3, 2), "no more than three");
    assert!(!storm(10, 4, 1), "one domain is DomainDown's");
    assert!(!storm(7, 6, 6), "below eight nodes rule 1 is the brake");
    assert!(storm(8, 4, 4));
}

#[test]
fn the_third_death_in_a_day_is_a_repeat_offender_until_a_person_clears_it() {
    let die = |w: &mut World| {
        w.silent_on(5);
        w.done(w.intent(5));
        w.done(w.attempt(5, 1, true));
        w.reboot(5);
        w.wait(secs(40));
        w.done(Command::Returned { node: name(5), incident: w.incident_id(5) });
        w.wait(secs(3600));
    };
    let mut w = World::new(12);
    die(&mut w);
    die(&mut w);
    assert_eq!(w.node(5).deaths.len(), 2);
    assert_eq!(said(&w, 5, Stage::Condemn), ["ok", "RepeatOffender", "RepeatOffender"]);
    w.done(Command::Judge(Box::new(w.view(5).on())));
    assert_eq!(w.stands(5), "Held:RepeatOffender");
    w.done(Command::ClearHeld { node: name(5), who: "alice".to_owned(), why: "new PSU".to_owned() });
    w.wait(secs(6));
    w.silent_on(5);
    // A day later the old deaths do not count.
    let mut w = World::new(12);
    die(&mut w);
    die(&mut w);
    w.wait(Span::from_mins(24 * 60));
    assert_eq!(said(&w, 5, Stage::Condemn), ["ok"; 3]);
}

#[test]
fn a_repeat_offender_that_is_found_off_is_released_and_stays_off() {
    let mut w = World::new(12);
    for _ in 0..2 {
        w.proven_off(5);
        w.reboot(5);
        w.wait(secs(40));
        w.done(Command::Returned { node: name(5), incident: w.incident_id(5) });
        w.wait(secs(3600));
    }
    w.found_off(5);
    w.done(w.intent(5));
    w.done(w.attempt(5, 1, false));
    w.wait(secs(31));
    w.done(w.proven(5, 1, offs(5, secs(30), None)));
    assert!(w.node(5).repeat_offender);
    w.done(w.release_begun(5));
    w.done(w.taint_seen(5));
    w.done(w.leftovers_gone(5));
    w.refused("NoPowerOn", Command::PowerOn { node: name(5), incident: w.incident_id(5) });
    // Not even if somebody turned it on in between and we turned it off.
    let mut w = World::new(12);
    w.found_off(5);
    w.done(w.intent(5));
    w.done(w.attempt(5, 1, false));
    w.wait(secs(31));
    w.done(w.proven(5, 1, offs(5, secs(30), None)));
    w.done(Command::LastReadOn { node: name(5), incident: w.incident_id(5) });
    w.done(w.attempt(5, 2, true));
    w.wait(secs(31));
    w.done(w.proven(5, 2, offs(5, secs(30), None)));
    w.done(w.release_begun(5));
    w.done(w.taint_seen(5));
    w.done(w.leftovers_gone(5));
    let mut offender = w.state.clone();
    offender.nodes.get_mut(&name(5)).unwrap().repeat_offender = true;
    let incident = w.incident_id(5);
    assert!(crate::apply::may_power_on(&w.state, &name(5), &incident).is_ok());
    assert!(crate::apply::may_power_on(&offender, &name(5), &incident).is_err());
}
