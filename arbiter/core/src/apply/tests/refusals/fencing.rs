//! Refusals on the way from an order to the release: attempts, readings, proofs, power-on.

use coroner_shared::bmc::CommandAnswer;
use coroner_shared::time::Span;

use crate::apply::tests::world::{World, binding, boot, key, name, offs, pin, policy, replica, secs, uid};
use crate::command::{Command, Outcome};
use crate::policy::Mode;

#[test]
fn orders_are_refused_by_name() {
    let mut w = World::new(5);
    let order = |n, who: &str| Command::Order {
        node: name(n),
        uid: uid(n),
        who: who.to_owned(),
        why: "w".to_owned(),
    };
    w.refused("UnknownNode", order(99, "alice"));
    let other = Command::Order { node: name(1), uid: uid(2), who: "alice".to_owned(), why: "w".to_owned() };
    w.refused("NodeReplaced", other);
    w.done(Command::Pause { node: None, who: "bob".to_owned(), why: "w".to_owned() });
    w.refused("Paused", order(1, "alice"));
    w.done(Command::Resume { node: None, who: "bob".to_owned(), why: "w".to_owned() });
    w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
    w.refused("Observe", order(1, "alice"));
    let mut second = policy(Mode::Enforce);
    second.name = "second".to_owned();
    w.done(Command::PolicySet(Box::new(second)));
    w.refused("PolicyConflict", order(1, "alice"));
    w.done(Command::PolicyGone { name: "all".to_owned() });
    w.change(1, |f| {
        f.labels.insert("coroner.dev/exclude".to_owned(), "true".to_owned());
    });
    w.refused("Excluded", order(1, "alice"));
    w.change(1, |f| f.labels.clear());
    w.done(Command::BindingGone { node: name(1) });
    w.refused("NotFenceable", order(1, "alice"));
    w.done(order(4, "alice"));
    w.refused("InIncident", order(4, "alice"));
    w.refused("InFlight", order(5, "alice"));
    w.done(Command::Register {
        node: name(6),
        uid: uid(6),
        machine: Err("no SMBIOS".to_owned()),
        boot: boot(6, 1),
        key: key(6, 1),
        address: "10.0.0.6".parse().unwrap(),
        by_token: true,
    });
    w.refused("Unregistered", order(6, "alice"));
}

#[test]
fn machines_found_off_that_come_on_again_are_turned_off_under_the_brakes_only() {
    let mut w = World::new(12);
    for id in 1..=3 {
        w.done(Command::ReplicaGone { replica: replica(id) });
    }
    // A row of racks lost power; commands went to machines that were off, and their releases wait for the API server.
    for n in 1..=3 {
        w.wait(secs(1));
        w.found_off(n);
        w.done(w.intent(n));
        w.done(w.attempt(n, 1, false));
        w.done(w.answered(n, 1, CommandAnswer::Accepted));
        w.wait(secs(5));
        w.done(w.proven(n, 1, offs(n, secs(4), Some(CommandAnswer::Accepted))));
    }
    for n in 1..=3 {
        w.done(Command::LastReadOn { node: name(n), incident: w.incident_id(n) });
    }
    for n in 1..=3 {
        w.refused("InFlight", w.attempt(n, 2, true));
    }
    // Stalled, they give their slots back: one at a time.
    w.wait(secs(200));
    let left = |w: &World| crate::brake::counts(&w.state).budget_left;
    let before = left(&w);
    w.done(w.attempt(1, 2, true));
    assert_eq!(left(&w), before - 1, "it takes its part of the budget");
    w.refused("InFlight", w.attempt(2, 2, true));
    // To hit an off machine again harms nobody.
    w.done(w.attempt(3, 2, false));
}

#[test]
fn attempts_are_refused_by_name() {
    let fenced = |found_off: bool, read_only: bool| {
        let mut w = World::new(5);
        if found_off {
            w.found_off(1);
        } else {
            w.silent_on(1);
        }
        let incident = w.incident_id(1);
        w.done(Command::Intent { node: name(1), incident, read_only });
        w
    };
    let mut w = fenced(true, false);
    w.refused("FoundOn", w.attempt(1, 1, true));
    w.done(w.attempt(1, 1, false));
    let mut w = fenced(true, true);
    w.refused("ReadOnlyIntent", w.attempt(1, 1, false));
    let mut w = fenced(false, false);
    w.done(w.attempt(1, 1, true));
    w.done(w.heard(1));
    w.refused("Heard", w.attempt(1, 2, true));
    w.done(Command::SilentAgain { node: name(1) });
    w.done(w.attempt(1, 2, true));
    w.done(Command::Pause { node: Some(name(1)), who: "bob".to_owned(), why: "w".to_owned() });
    w.refused("Paused", w.attempt(1, 3, true));
    assert_eq!(w.stands(1), "Fencing", "what was sent goes on to its proof");
    w.done(Command::Resume { node: Some(name(1)), who: "bob".to_owned(), why: "w".to_owned() });
    w.change(1, |f| {
        f.labels.insert("coroner.dev/exclude".to_owned(), "true".to_owned());
    });
    w.refused("Excluded", w.attempt(1, 3, true));
    w.change(1, |f| f.labels.clear());
    w.done(Command::BindingVerified {
        node: name(1),
        hash: "b1".to_owned(),
        result: Err("Mismatch".to_owned()),
    });
    w.refused("Identity", w.attempt(1, 3, true));
    // A paused re-fence waits, too.
    let mut w = World::new(5);
    w.released(1);
    w.done(w.heard(1));
    w.done(Command::Pause { node: None, who: "bob".to_owned(), why: "w".to_owned() });
    w.refused("Paused", w.attempt(1, 2, true));
    assert_eq!(w.stands(1), "Fencing:re-fence");
}

#[test]
fn readings_that_prove_nothing_are_refused() {
    let mut w = World::new(5);
    w.attempted(1);
    w.wait(secs(60));
    let accepted = || Some(CommandAnswer::Accepted);
    w.refused("NoProof", w.proven(1, 1, offs(1, Span::from_ms(3999), accepted())));
    w.refused("NoProof", w.proven(1, 1, offs(2, secs(4), accepted())));
    let mut two = offs(1, secs(4), accepted());
    two.readings.remove(0);
    w.refused("NoProof", w.proven(1, 1, two));
    let mut same_session = offs(1, secs(4), accepted());
    same_session.last_over_new_session = false;
    w.refused("NoProof", w.proven(1, 1, same_session));
    // A command that no attempt of this intent sent.
    w.refused("AnswerNotRecorded", w.proven(1, 0, offs(1, secs(30), accepted())));
    // Another life.
    let mut other = w.proven(1, 1, offs(1, secs(4), accepted()));
    if let Command::Proven { incarnation, .. } = &mut other {
        incarnation.boot = boot(1, 9);
    }
    assert_eq!(w.say(other), Outcome::Stale);
    // A binding that was disabled proves nothing.
    w.done(Command::BindingVerified {
        node: name(1),
        hash: "b1".to_owned(),
        result: Err("Mismatch".to_owned()),
    });
    w.refused("NoProof", w.proven(1, 1, offs(1, secs(4), accepted())));
    w.done(Command::BindingVerified { node: name(1), hash: "b1".to_owned(), result: Ok(pin(1)) });
    // A Lease that moved while it was read.
    w.done(Command::LeaseMoved { node: name(1) });
    w.wait(secs(3));
    w.refused("LeaseMoved", w.proven(1, 1, offs(1, secs(4), accepted())));
    w.wait(secs(1));
    w.done(w.proven(1, 1, offs(1, secs(4), accepted())));
}

#[test]
fn an_answer_that_was_not_recorded_shortens_nothing() {
    let mut w = World::new(5);
    w.silent_on(1);
    w.done(w.intent(1));
    w.done(w.attempt(1, 1, true));
    w.wait(secs(60));
    w.refused("NoProof", w.proven(1, 1, offs(1, secs(10), Some(CommandAnswer::Accepted))));
    let unknown = Some(CommandAnswer::Unknown { why: "reset".to_owned() });
    w.done(w.proven(1, 1, offs(1, secs(10), unknown)));
}

#[test]
fn a_cached_bmc_needs_a_minute_whatever_the_reader_says() {
    let mut w = World::new(5);
    let mut cached = binding(1);
    cached.quirks = vec![crate::policy::Quirk::Cached];
    w.done(Command::BindingSet { node: name(1), binding: cached });
    w.attempted(1);
    w.wait(secs(60));
    w.refused("NoProof", w.proven(1, 1, offs(1, secs(59), Some(CommandAnswer::Accepted))));
    w.done(w.proven(1, 1, offs(1, secs(60), Some(CommandAnswer::Accepted))));
}

#[test]
fn an_old_proof_releases_nothing_until_it_is_read_again() {
    let mut w = World::new(5);
    w.proven_off(1);
    w.wait(secs(60));
    let good = w.release_begun(1);
    w.wait(Span::from_ms(1));
    w.refused("ProofTooOld", good.clone());
    let with = |readings| {
        let mut command = good.clone();
        if let Command::ReleaseBegun { again, .. } = &mut command {
            *again = Some(Box::new(readings));
        }
        command
    };
    w.refused("NoProof", with(offs(1, secs(29), None)));
    w.done(with(offs(1, secs(30), None)));
    assert_eq!(w.stands(1), "Releasing");
}

#[test]
fn a_lease_that_moved_after_the_proof_asks_for_readings_after_it() {
    let mut w = World::new(5);
    w.proven_off(1);
    w.done(Command::LeaseMoved { node: name(1) });
    assert!(w.node(1).alarms.contains_key("LeaseMovedAfterProof"));
    w.refused("LeaseMoved", w.release_begun(1));
    w.wait(secs(29));
    let mut again = w.release_begun(1);
    if let Command::ReleaseBegun { again, .. } = &mut again {
        *again = Some(Box::new(offs(1, secs(30), None)));
    }
    w.refused("LeaseMoved", again.clone());
    w.wait(secs(1));
    w.done(again);
}

#[test]
fn power_on_is_refused_by_name() {
    let power_on = |w: &World| Command::PowerOn { node: name(1), incident: w.incident_id(1) };
    let mut w = World::new(5);
    w.released(1);
    w.refused("NoPowerOn", power_on(&w));
    w.done(w.leftovers_gone(1));
    w.done(Command::Pause { node: None, who: "bob".to_owned(), why: "w".to_owned() });
    w.refused("Paused", power_on(&w));
    w.done(Command::Resume { node: None, who: "bob".to_owned(), why: "w".to_owned() });
    w.done(power_on(&w));
    w.refused("NoPowerOn", power_on(&w));
    // Found off, and confirmed off by a person: somebody's hands may be in it.
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    w.done(w.confirm(1));
    w.done(w.release_begun(1));
    w.done(w.taint_seen(1));
    w.done(w.leftovers_gone(1));
    w.refused("NoPowerOn", power_on(&w));
    let mut w = World::new(5);
    w.found_off(1);
    w.done(w.intent(1));
    w.done(w.attempt(1, 1, false));
    w.wait(secs(31));
    w.done(w.proven(1, 1, offs(1, secs(30), None)));
    w.done(w.release_begun(1));
    w.done(w.taint_seen(1));
    w.done(w.leftovers_gone(1));
    w.refused("NoPowerOn", power_on(&w));
}
