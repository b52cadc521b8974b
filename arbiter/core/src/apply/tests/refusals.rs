//! Every refusal: its word, and that its message tells an operator what happened to which node, what Coroner does next
//! and what they can do.

mod confirm;
mod fencing;

use coroner_shared::time::Span;

use super::world::{World, binding, boot, machine, name, pin, policy, secs};
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
        Box::new(ConfirmRefusal::NotListenedYet(secs(4))),
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
