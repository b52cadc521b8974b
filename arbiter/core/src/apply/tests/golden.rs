//! Writes the golden log of level 1: a story that takes every kind of command at least once. Run by hand, once, when a
//! level is made; from then on the file is frozen and `tests/golden_level_1.rs` reads it.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::bmc::CommandAnswer;
use sha2::{Digest, Sha256};

use super::world::{World, binding, key, machine, name, offs, pin, policy, replica, secs, uid};
use crate::apply::apply;
use crate::command::Command;
use crate::evidence::hex;
use crate::policy::Mode;
use crate::snapshot;
use crate::state::State;

/// The words of a story, so that a command nobody told is noticed.
const COMMANDS: [&str; 42] = [
    "Tick",
    "SetLevel",
    "ReplicaKnows",
    "ReplicaGone",
    "NodeFacts",
    "NodeGone",
    "PolicySet",
    "PolicyGone",
    "BindingSet",
    "BindingGone",
    "BindingVerified",
    "Repin",
    "Register",
    "OldKeySilent",
    "Goodbye",
    "Heard",
    "SilentAgain",
    "LeaseMoved",
    "Judge",
    "Order",
    "ConfirmOff",
    "Pause",
    "Resume",
    "Return",
    "ClearHeld",
    "Intent",
    "Attempt",
    "AttemptAnswered",
    "Stalled",
    "FoundOnAgain",
    "StillOn",
    "Proven",
    "LastReadFailed",
    "LastReadOn",
    "ReleaseBegun",
    "TaintSeen",
    "LeftoversGone",
    "PowerAfterRelease",
    "PowerOn",
    "TaintRemoved",
    "Returned",
    "Paged",
];

fn tell() -> World {
    let mut w = World::in_racks(5, |n| Some(n % 2));
    released_and_returned(&mut w);
    held_and_confirmed(&mut w);
    averted_and_re_fenced(&mut w);
    facts_of_all_kinds(&mut w);
    w
}

fn who() -> (String, String) {
    ("alice".to_owned(), "a story".to_owned())
}

/// A cut cord of a host: found silent and On, fenced, released, powered on, returned.
fn released_and_returned(w: &mut World) {
    w.say(Command::Judge(Box::new(w.view(5).on())));
    w.say(w.intent(5));
    w.say(w.attempt(5, 1, true));
    w.say(w.answered(5, 1, CommandAnswer::Accepted));
    w.wait(secs(5));
    w.say(w.proven(5, 1, offs(5, secs(4), Some(CommandAnswer::Accepted))));
    w.say(Command::LastReadFailed { node: name(5), incident: w.incident_id(5), why: "503".to_owned() });
    w.say(w.release_begun(5));
    w.say(w.taint_seen(5));
    w.change(5, |f| f.tainted_by_us = true);
    w.say(w.leftovers_gone(5));
    w.say(Command::PowerOn { node: name(5), incident: w.incident_id(5) });
    w.say(Command::PowerAfterRelease { node: name(5), incident: w.incident_id(5), on: true });
    w.reboot(5);
    w.wait(secs(30));
    w.say(Command::TaintRemoved { node: name(5), incident: w.incident_id(5) });
    w.change(5, |f| f.tainted_by_us = false);
    w.wait(secs(10));
    w.say(Command::Returned { node: name(5), incident: w.incident_id(5) });
    w.wait(secs(600));
}

/// A cut cord of a rack: held, confirmed by a person; and one found off, then On, then reprieved.
fn held_and_confirmed(w: &mut World) {
    w.say(Command::Judge(Box::new(w.view(4).bmc_silent())));
    w.say(Command::Paged { node: name(4), reason: "HeldBmcSilent".to_owned() });
    w.say(w.confirm(4));
    w.say(w.release_begun(4));
    w.say(w.taint_seen(4));
    w.reboot(4);
    w.say(Command::Return { node: name(4), who: who().0, why: who().1 });
    w.say(Command::TaintRemoved { node: name(4), incident: w.incident_id(4) });
    w.wait(secs(10));
    w.say(Command::Returned { node: name(4), incident: w.incident_id(4) });
    w.say(Command::Judge(Box::new(w.view(5).off())));
    w.say(Command::FoundOnAgain { node: name(5), incident: w.incident_id(5) });
    w.wait(secs(5));
    w.say(Command::Judge(Box::new(w.view(5).off())));
    w.say(Command::LeaseMoved { node: name(5) });
    w.wait(secs(700));
}

/// Ordered, found On at the last read, proven again, released, heard: powered off once more; and one that was averted.
fn averted_and_re_fenced(w: &mut World) {
    w.say(w.order(4, "alice"));
    w.say(w.intent(4));
    w.say(w.attempt(4, 1, true));
    w.wait(secs(31));
    w.say(w.proven(4, 1, offs(4, secs(30), None)));
    w.say(Command::LastReadOn { node: name(4), incident: w.incident_id(4) });
    w.say(w.attempt(4, 2, true));
    w.wait(secs(31));
    w.say(w.proven(4, 2, offs(4, secs(30), None)));
    w.say(w.release_begun(4));
    w.say(w.taint_seen(4));
    w.say(w.heard(4));
    w.say(w.attempt(4, 3, true));
    w.say(Command::SilentAgain { node: name(4) });
    w.wait(secs(31));
    w.say(w.proven(4, 3, offs(4, secs(30), None)));
    w.say(w.release_begun(4));
    w.say(w.taint_seen(4));
    w.say(w.leftovers_gone(4));
    w.wait(secs(700));
    w.say(Command::Judge(Box::new(w.view(5).on())));
    w.say(w.intent(5));
    w.say(w.attempt(5, 1, true));
    w.say(w.heard(5));
    let why = "Off while heard".to_owned();
    w.say(Command::Stalled { node: name(5), incident: w.incident_id(5), why, disable_binding: true });
    w.wait(secs(60));
    w.say(w.still_on(5));
    w.say(Command::Paged { node: name(5), reason: "Averted".to_owned() });
}

/// Levels, keys, goodbyes, bindings, policies, pauses, storms, and a Node that is re-created.
fn facts_of_all_kinds(w: &mut World) {
    w.say(Command::SetLevel(1));
    w.say(Command::SetLevel(2));
    w.say(Command::ReplicaGone { replica: replica(3) });
    w.say(Command::Goodbye { node: name(2), boot: w.boot(2), kind: GoodbyeKind::AgentRestart, seq: 7 });
    let mut other_key = w.registration(2);
    if let Command::Register { key: of, .. } = &mut other_key {
        *of = key(2, 2);
    }
    w.say(other_key);
    w.say(Command::OldKeySilent { node: name(2), key: key(2, 1) });
    let mut changed = binding(3);
    changed.hash = "b2".to_owned();
    w.say(Command::BindingSet { node: name(3), binding: changed });
    w.say(Command::BindingVerified { node: name(3), hash: "b2".to_owned(), result: Ok(pin(3)) });
    w.say(Command::Repin { node: name(3), who: who().0, why: who().1 });
    w.say(Command::BindingGone { node: name(1) });
    w.say(Command::Pause { node: None, who: who().0, why: who().1 });
    w.say(Command::Judge(Box::new(w.view(3).on().in_a_storm(4))));
    w.say(Command::Resume { node: None, who: who().0, why: who().1 });
    w.say(Command::PolicySet(Box::new(policy(Mode::Observe))));
    w.say(Command::Judge(Box::new(w.view(2).off())));
    w.say(Command::PolicyGone { name: "all".to_owned() });
    w.say(Command::PolicySet(Box::new(policy(Mode::Enforce))));
    w.say(Command::Judge(Box::new(w.view(2).off())));
    w.say(Command::ClearHeld { node: name(2), who: who().0, why: who().1 });
    let mut other_machine = w.registration(1);
    if let Command::Register { machine: of, .. } = &mut other_machine {
        *of = Ok(machine(77));
    }
    w.say(other_machine);
    w.say(Command::NodeGone { node: name(1), uid: uid(1) });
    w.wait(secs(120));
}

#[test]
fn the_story_tells_every_command() {
    let told: BTreeSet<String> = tell()
        .log
        .iter()
        .map(|(_, entry)| {
            let json = serde_json::to_value(&entry.command).unwrap();
            json["do"].as_str().unwrap().to_owned()
        })
        .collect();
    let want: BTreeSet<String> = COMMANDS.iter().map(|word| word[..1].to_lowercase() + &word[1..]).collect();
    assert_eq!(told, want);
}

/// Only for a level that is not shipped yet: `cargo test -p coroner-arbiter-core write_golden -- --ignored`.
#[test]
#[ignore = "writes the golden file; a level that was shipped is frozen"]
fn write_golden_level_1() {
    let mut state = State::default();
    let mut text = String::new();
    for (index, entry) in tell().log {
        let outcome = apply(&mut state, index, &entry);
        let outcome = hex(&Sha256::digest(serde_json::to_vec(&outcome).unwrap()));
        let hash = snapshot::hash(&state).unwrap();
        let line = serde_json::json!({
            "index": index, "entry": entry, "outcome": &outcome[..16], "state": &hash[..16],
        });
        writeln!(text, "{line}").unwrap();
    }
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/golden_level_1.jsonl");
    std::fs::write(path, text).unwrap();
}
