//! What comes and goes, what stands, and what happens again: told once each.

use coroner_shared::time::{Mono, Span};

use super::{FORGETS, Told};
use crate::apply::tests::world::{World, name, secs};
use crate::command::Command;

/// Ten minutes of looks, each second one, with what stands at each.
fn tells(told: &mut Told, from: u64, to: u64, mut at: impl FnMut(u64) -> World, reason: &str) -> u32 {
    let mut given = 0;
    for second in from..to {
        let (now, w) = (Mono::from_ms(second * 1_000), at(second));
        told.look(now, &w.state);
        let stands = crate::pages::standing(&w.state, &name(1), w.node(1));
        if stands.iter().any(|page| page.reason == reason) {
            given += u32::from(told.tell(now, &w.state, &name(1), reason));
        }
    }
    given
}

fn held() -> World {
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    w
}

#[test]
fn what_comes_and_goes_is_told_once_and_again_after_ten_calm_minutes() {
    let mut told = Told::default();
    let flaps = |second: u64| if (second / 20).is_multiple_of(2) { held() } else { World::new(5) };
    assert_eq!(tells(&mut told, 0, 200, flaps, "HeldBmcSilent"), 1);
    // Another reason is another matter, and so is another node.
    let w = held();
    assert!(told.tell(Mono::from_ms(200_000), &w.state, &name(1), "Stalled"));
    assert!(told.tell(Mono::from_ms(200_000), &w.state, &name(2), "HeldBmcSilent"));
    // Away for less than ten minutes, and for ten minutes.
    let back = Mono::from_ms(179_000) + FORGETS;
    told.look(back.back(secs(1)), &World::new(5).state);
    assert!(!told.tell(back.back(secs(1)), &w.state, &name(1), "HeldBmcSilent"));
    let gone = back.back(secs(1)) + FORGETS;
    told.look(gone, &World::new(5).state);
    assert!(told.tell(gone, &w.state, &name(1), "HeldBmcSilent"));
}

#[test]
fn what_stands_is_never_forgotten_however_long() {
    let mut told = Told::default();
    let now = |minute: u64| Mono::default() + Span::from_mins(minute);
    let w = held();
    assert!(told.tell(now(0), &w.state, &name(1), "HeldBmcSilent"));
    for minute in 1..60 {
        told.look(now(minute), &w.state);
    }
    assert!(!told.tell(now(60), &w.state, &name(1), "HeldBmcSilent"));
}

#[test]
fn whoever_leads_next_knows_what_the_log_says_was_paged() {
    let mut w = held();
    w.done(Command::Paged { node: name(1), reason: "HeldBmcSilent".to_owned() });
    let mut told = Told::default();
    told.look(Mono::from_ms(1_000), &w.state);
    // It ends, and comes again when that replica leads.
    assert!(!told.tell(Mono::from_ms(30_000), &held().state, &name(1), "HeldBmcSilent"));
}

#[test]
fn what_happens_again_in_one_incident_is_told_once() {
    let mut w = World::new(5);
    w.attempted(1);
    let stall = |w: &mut World, why: &str| {
        let (incident, why) = (w.incident_id(1), why.to_owned());
        w.done(Command::Stalled { node: name(1), incident, why, disable_binding: true });
    };
    let mut told = Told::default();
    let mut given = Vec::new();
    for minute in 0..60 {
        // A reading says it in other words than a look.
        stall(&mut w, if minute % 2 == 0 { "another machine" } else { "Off while heard" });
        let now = Mono::default() + Span::from_mins(minute);
        told.look(now, &w.state);
        if told.tell(now, &w.state, &name(1), "BindingDisabled") {
            given.push(minute);
        }
        w.done(Command::Paged { node: name(1), reason: "BindingDisabled".to_owned() });
    }
    assert_eq!(given, [0]);
    // What happens to a node without an incident is told each time.
    let mut w = World::new(5);
    w.attempted(1);
    w.wait(secs(20));
    w.done(w.heard(1));
    w.wait(secs(60));
    w.done(w.still_on(1));
    for _ in 0..2 {
        assert!(told.tell(Mono::default(), &w.state, &name(1), "Averted"));
    }
}
