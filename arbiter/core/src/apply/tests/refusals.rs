//! Every refusal: its word, and that its message tells an operator what happened to which node, what Coroner does next
//! and what they can do.

use coroner_shared::bmc::CommandAnswer;
use coroner_shared::time::Span;

use super::world::{World, binding, boot, key, machine, name, offs, pin, policy, replica, secs, uid};
use crate::apply::refusal::{ActRefusal, ConfirmRefusal, FactRefusal, FencingRefusal, HoldRefusal, Refuses};
use crate::command::{Command, Outcome};
use crate::phase::{Brake, HeldReason};
use crate::policy::Mode;
use crate::words;

/// One of every refusal there is.
fn all() -> Vec<Box<dyn Refuses>> {
    let mut all: Vec<Box<dyn Refuses>> = vec![
        Box::new(ActRefusal::UnknownNode),
        Box::new(ActRefusal::Unregistered),
        Box::new(ActRefusal::NodeReplaced),
        Box::new(ActRefusal::InIncident("Fencing")),
        Box::new(ActRefusal::NotReturning("Alive")),
        Box::new(ActRefusal::ReturnContradicted),
        Box::new(ActRefusal::NothingToClear),
        Box::new(ActRefusal::NotPinned),
        Box::new(ConfirmRefusal::NothingToConfirm("Alive")),
        Box::new(ConfirmRefusal::OtherIncident(None)),
        Box::new(ConfirmRefusal::OtherIncident(Some("n1-00000001".to_owned().into()))),
        Box::new(ConfirmRefusal::CallUnderWay),
        Box::new(ConfirmRefusal::Heard),
        Box::new(ConfirmRefusal::ShowsLife(HeldReason::KubeletAlive)),
        Box::new(FencingRefusal::Heard),
        Box::new(FencingRefusal::LeaseMoved),
        Box::new(FencingRefusal::NewBootSeen),
        Box::new(FencingRefusal::ReadOnlyIntent),
        Box::new(FencingRefusal::FoundOn),
        Box::new(FencingRefusal::NotFoundOff),
        Box::new(FencingRefusal::AnswerNotRecorded),
        Box::new(FencingRefusal::NoProof("too short".to_owned())),
        Box::new(FencingRefusal::ProofTooOld(secs(61))),
        Box::new(FencingRefusal::ConfirmationExpired),
        Box::new(FencingRefusal::NotYet("Ready".to_owned())),
        Box::new(FencingRefusal::NoPowerOn("its policy leaves it off")),
        Box::new(FactRefusal::BadPolicy("x is 0: must be 1".to_owned())),
        Box::new(FactRefusal::BadBinding("x".to_owned())),
        Box::new(FactRefusal::LevelUnknown(2, "replica 3".to_owned())),
        Box::new(FactRefusal::LevelBehind(2)),
        Box::new(FactRefusal::BootLeft),
        Box::new(FactRefusal::OldKeyAlive),
        Box::new(FactRefusal::KeyUnknown),
        Box::new(FactRefusal::NodeMismatch),
        Box::new(FactRefusal::NotWell("it is not Ready")),
        Box::new(FactRefusal::PinDisagrees("a against b".to_owned())),
        Box::new(HoldRefusal::Brake(Brake::Pace, secs(1))),
    ];
    for why in holds() {
        all.push(Box::new(HoldRefusal::Held(why)));
    }
    all
}

fn brakes() -> [Brake; 10] {
    [
        Brake::InFlight,
        Brake::PerDomain,
        Brake::PerDomain10m,
        Brake::Budget,
        Brake::Floor,
        Brake::Pace,
        Brake::Storm,
        Brake::ControlPlane,
        Brake::ArbiterHosts,
        Brake::RepeatOffender,
    ]
}

fn holds() -> Vec<HeldReason> {
    let text = || "what".to_owned();
    let mut holds: Vec<HeldReason> = brakes().map(HeldReason::Brake).to_vec();
    holds.extend([
        HeldReason::TooFewObservers,
        HeldReason::HostAnswersOnly,
        HeldReason::NetworkPartial,
        HeldReason::DomainDown,
        HeldReason::BmcSilent,
        HeldReason::BmcNetworkSilent,
        HeldReason::BmcUnclear(text()),
        HeldReason::ApiUnreadable,
        HeldReason::KubeletAlive,
        HeldReason::ArbiterBlind,
        HeldReason::NotSeenYet,
        HeldReason::TwoNodes,
        HeldReason::Paused { who: text() },
        HeldReason::SilentBeforeEnforce,
        HeldReason::Observe,
        HeldReason::PolicyConflict(vec![text(), text()]),
        HeldReason::Excluded,
        HeldReason::Goodbye(coroner_shared::beacon::GoodbyeKind::Reboot),
        HeldReason::NotFenceable(text()),
        HeldReason::Identity(text()),
        HeldReason::FoundOnAgain,
        HeldReason::MachineChanged { pinned: text(), found: text() },
        HeldReason::Duplicate,
        HeldReason::Disputed,
    ]);
    holds
}

#[test]
fn every_refusal_names_the_node_and_says_what_happened_what_follows_and_what_can_be_done() {
    for refusal in all() {
        let said = refusal.about("n1");
        assert!(said.message.starts_with("n1: "), "{}", said.message);
        assert!(!said.reason.is_empty() && said.reason.chars().all(char::is_alphanumeric), "{}", said.reason);
        let sentences: Vec<&str> = said.message.split(". ").collect();
        assert!(sentences.len() >= 3, "{}: {}", said.reason, said.message);
        assert!(said.message.ends_with('.'), "{}: {}", said.reason, said.message);
    }
}

#[test]
fn every_hold_and_brake_has_its_own_word_and_sentence() {
    let words_of: std::collections::BTreeSet<&str> = holds().iter().map(HeldReason::word).collect();
    assert_eq!(words_of.len(), holds().len());
    let sentences: std::collections::BTreeSet<String> = holds().iter().map(words::hold).collect();
    // NotFenceable and Identity say what they were told.
    assert_eq!(sentences.len(), holds().len() - 1);
    for why in holds() {
        assert!(words::hold_advice(&why).ends_with('.'), "{}", why.word());
    }
}

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
fn confirmations_are_refused_by_name() {
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    let good = w.confirm(1);
    let change = |with: fn(&mut crate::phase::Confirmation)| {
        let mut command = good.clone();
        if let Command::ConfirmOff { confirmation, .. } = &mut command {
            with(confirmation);
        }
        command
    };
    w.refused("OtherIncident", change(|c| c.incident = "n1-ffffffff".to_owned().into()));
    w.refused("OtherIncident", change(|c| c.node = uid(2)));
    w.refused("OtherIncident", change(|c| c.boot = boot(1, 9)));
    let mut heard = good.clone();
    if let Command::ConfirmOff { heard, .. } = &mut heard {
        *heard = true;
    }
    w.refused("Heard", heard);
    w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
    w.refused("Observe", good.clone());
    let mut back = policy(Mode::Enforce);
    back.hash = "back".to_owned();
    w.done(Command::PolicySet(Box::new(back)));
    w.new_boot(1);
    w.done(w.registration(1));
    w.refused("Heard", good.clone());
    let Command::ConfirmOff { confirmation, .. } = good else { panic!() };
    w.refused(
        "NothingToConfirm",
        Command::ConfirmOff { node: name(2), confirmation: confirmation.clone(), heard: false },
    );
    w.refused("UnknownNode", Command::ConfirmOff { node: name(99), confirmation, heard: false });
}

#[test]
fn a_confirmation_expires_after_a_quarter_of_an_hour_and_can_be_given_again() {
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    w.done(w.confirm(1));
    w.wait(secs(15 * 60));
    assert_eq!(w.say(w.release_begun(1)), Outcome::Done, "at 15 minutes it is still worth something");
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    w.done(w.confirm(1));
    w.wait(secs(15 * 60 + 1));
    w.refused("ConfirmationExpired", w.release_begun(1));
    w.done(w.confirm(1));
    w.done(w.release_begun(1));
}

#[test]
fn a_confirmation_is_void_on_any_sign_of_life() {
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    w.done(w.confirm(1));
    w.done(Command::LeaseMoved { node: name(1) });
    w.refused("LeaseMoved", w.release_begun(1));
    w.wait(secs(10));
    w.refused("ShowsLife", w.confirm(1));
    w.wait(secs(1));
    w.done(w.confirm(1));
    w.done(w.heard(1));
    assert_eq!(w.stands(1), "Alive");
}

#[test]
fn a_person_is_not_believed_against_a_kubelet_or_a_kernel_that_answers() {
    let mut w = World::new(5);
    let mut view = w.view(1).bmc_silent();
    view.lease.changed_ago = Some(secs(3));
    w.done(Command::Judge(Box::new(view)));
    assert_eq!(w.stands(1), "Held:KubeletAlive");
    w.refused("ShowsLife", w.confirm(1));

    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).answers())));
    assert_eq!(w.stands(1), "Held:HostAnswersOnly");
    w.refused("ShowsLife", w.confirm(1));

    // A kubelet that renews while a fence is under way, and its BMC went silent.
    let mut w = World::new(5);
    w.attempted(1);
    w.done(Command::LeaseMoved { node: name(1) });
    w.wait(secs(10));
    w.refused("ShowsLife", w.confirm(1));
    w.wait(secs(1));
    w.done(w.confirm(1));
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

#[test]
fn acts_of_people_are_refused_by_name() {
    let mut w = World::new(5);
    let who = || ("alice".to_owned(), "w".to_owned());
    let give_back = |n| Command::Return { node: name(n), who: who().0, why: who().1 };
    let clear = |n| Command::ClearHeld { node: name(n), who: who().0, why: who().1 };
    let repin = |n| Command::Repin { node: name(n), who: who().0, why: who().1 };
    w.refused("UnknownNode", give_back(99));
    w.refused("UnknownNode", clear(99));
    w.refused("UnknownNode", repin(99));
    w.refused("UnknownNode", Command::Pause { node: Some(name(99)), who: who().0, why: who().1 });
    w.refused("UnknownNode", Command::Resume { node: Some(name(99)), who: who().0, why: who().1 });
    w.refused("NotReturning", give_back(1));
    w.refused("NothingToClear", clear(1));
    w.done(Command::BindingGone { node: name(5) });
    w.refused("NotPinned", repin(5));
    w.done(repin(4));
    w.refused("NotPinned", repin(4));
    w.released(1);
    w.refused("NotReturning", give_back(1));
    w.refused("InIncident", repin(1));
    w.reboot(1);
    // The kubelet's watch falls back to the boot that ended.
    w.change(1, |f| f.boot = Some(boot(1, 1)));
    w.refused("ReturnContradicted", give_back(1));
}

#[test]
fn facts_are_refused_by_name() {
    let mut w = World::new(5);
    let mut bad = policy(Mode::Enforce);
    bad.brakes.pace = Span::ZERO;
    let before = w.state.policies.clone();
    w.refused("BadPolicy", Command::PolicySet(Box::new(bad)));
    assert_eq!(w.state.policies, before);
    let mut bad = binding(1);
    bad.hash = String::new();
    w.refused("BadBinding", Command::BindingSet { node: name(1), binding: bad });
    w.refused("LevelUnknown", Command::SetLevel(2));
    w.refused("LevelBehind", Command::SetLevel(0));
    assert_eq!(w.say(Command::SetLevel(1)), Outcome::Unchanged);
    let mut other = pin(1);
    other.machine = machine(2);
    w.done(Command::Repin { node: name(1), who: "alice".to_owned(), why: "w".to_owned() });
    let verified = |pin| Command::BindingVerified { node: name(1), hash: "b1".to_owned(), result: Ok(pin) };
    w.refused("PinDisagrees", verified(other));
    w.change(1, |f| f.ready = false);
    w.refused("NotWell", verified(pin(1)));
    w.change(1, |f| f.ready = true);
    w.done(verified(pin(1)));
}
