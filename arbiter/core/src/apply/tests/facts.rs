//! Facts: levels, registrations and keys, failure domains, bindings, and what makes an act idempotent.

use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::time::Span;

use super::world::{World, binding, boot, key, machine, name, pin, policy, replica, secs, uid};
use crate::apply::{LEVEL, apply};
use crate::command::{Command, Outcome};
use crate::phase::HeldReason;
use crate::policy::Mode;
use crate::state::{Enforced, State};

fn register(n: u32, count: u8, keys: u8, by_token: bool) -> Command {
    Command::Register {
        node: name(n),
        uid: uid(n),
        machine: Ok(machine(n)),
        boot: boot(n, count),
        key: key(n, keys),
        address: "10.1.0.1".parse().unwrap(),
        by_token,
    }
}

#[test]
fn a_level_rises_once_all_replicas_know_it_and_never_falls() {
    let mut w = World::new(3);
    let knows = |id: u32, level| Command::ReplicaKnows {
        replica: replica(u64::from(id)),
        host: name(id),
        address: "10.0.0.1".parse().unwrap(),
        key: key(id, 200),
        level,
    };
    w.done(knows(1, 2));
    w.done(knows(2, 2));
    w.refused("LevelUnknown", Command::SetLevel(2));
    // One that left the group is not asked.
    w.done(Command::ReplicaGone { replica: replica(3) });
    w.done(Command::SetLevel(2));
    assert_eq!(w.state.level, 2);
    w.refused("LevelBehind", Command::SetLevel(1));
    assert_eq!(State::default().level, 1);
    assert_eq!(LEVEL, 1);
    let mut empty = World::new(0);
    empty.refused("LevelUnknown", Command::SetLevel(2));
}

#[test]
fn log_time_is_the_sum_of_the_spans_each_at_most_a_minute() {
    let mut w = World::new(3);
    let start = w.state.now;
    w.say_after(secs(59), Command::Tick);
    w.say_after(secs(3600), Command::Tick);
    w.say_after(Span::MAX, Command::Tick);
    assert_eq!(w.state.now.since(start), secs(59 + 60 + 60));
}

#[test]
fn an_entry_is_applied_once() {
    let mut w = World::new(3);
    let (index, entry) = w.log.last().cloned().unwrap();
    let state = w.state.clone();
    assert_eq!(apply(&mut w.state, index, &entry), Outcome::Stale);
    assert_eq!(w.state, state);
}

#[test]
fn an_operators_act_sent_twice_is_done_once() {
    let mut w = World::new(5);
    w.done(w.order(1, "alice"));
    let (_, entry) = w.log.last().cloned().unwrap();
    assert_eq!(w.say_entry(entry.clone()), Outcome::Unchanged);
    w.done(w.heard(1));
    let mut another = entry;
    another.key = "another".to_owned();
    assert!(matches!(w.say_entry(another), Outcome::Refused(_)));
}

#[test]
fn a_refused_act_may_be_sent_again_under_its_key() {
    let mut w = World::new(5);
    w.done(Command::Pause { node: None, who: "bob".to_owned(), why: "w".to_owned() });
    w.refused("Paused", w.order(1, "alice"));
    let (_, entry) = w.log.last().cloned().unwrap();
    w.done(Command::Resume { node: None, who: "bob".to_owned(), why: "w".to_owned() });
    assert_eq!(w.say_entry(entry), Outcome::Done);
}

#[test]
fn only_a_token_introduces_a_key_and_the_committed_key_registers_a_boot() {
    let mut w = World::new(3);
    w.refused("KeyUnknown", register(1, 2, 9, false));
    w.refused("KeyUnknown", register(7, 1, 1, false));
    w.done(register(1, 2, 1, false));
    assert_eq!(w.node(1).member.as_ref().unwrap().boot, boot(1, 2));
    assert!(w.node(1).member.as_ref().unwrap().left_boots.contains(&boot(1, 1)));
    w.done(register(1, 3, 9, true));
    assert_eq!(w.node(1).member.as_ref().unwrap().key, key(1, 9));
    assert_eq!(w.node(1).member.as_ref().unwrap().old_key, None);
    // Of another Node object the token is refused while the old one stands.
    let mut other = register(1, 4, 9, true);
    if let Command::Register { uid: of, .. } = &mut other {
        *of = uid(9);
    }
    w.refused("NodeMismatch", other);
}

#[test]
fn an_old_key_keeps_its_voice_until_it_was_silent() {
    let mut w = World::new(3);
    w.done(register(1, 1, 2, true));
    let member = w.node(1).member.clone().unwrap();
    assert_eq!((member.key, member.old_key), (key(1, 2), Some(key(1, 1))));
    w.refused("OldKeyAlive", register(1, 1, 3, true));
    // The old key still registers, and stays the old one.
    w.say(register(1, 1, 1, false));
    assert_eq!(w.node(1).member.as_ref().unwrap().key, key(1, 2));
    assert_eq!(w.say(Command::OldKeySilent { node: name(1), key: key(1, 2) }), Outcome::Stale);
    w.done(Command::OldKeySilent { node: name(1), key: key(1, 1) });
    assert_eq!(w.node(1).member.as_ref().unwrap().old_key, None);
    w.done(register(1, 1, 3, true));
}

#[test]
fn a_node_without_a_registration_is_never_judged() {
    let mut w = World::new(3);
    let view = w.view(1).off();
    w.done(Command::NodeGone { node: name(1), uid: uid(1) });
    let mut facts = w.facts(1);
    facts.labels.clear();
    w.done(Command::NodeFacts(facts));
    assert_eq!(w.say(Command::Judge(Box::new(view))), Outcome::Stale);
    assert_eq!(crate::status::node(&w.state, &name(1)).unwrap().phase, "Unregistered");
}

#[test]
fn a_view_of_another_leader_or_term_is_stale() {
    let mut w = World::new(5);
    for change in [|v: &mut crate::view::View| v.leader = replica(2), |v: &mut crate::view::View| v.term = 2]
    {
        let mut view = w.view(1).off();
        change(&mut view);
        assert_eq!(w.say(Command::Judge(Box::new(view))), Outcome::Stale);
    }
}

#[test]
fn a_goodbye_ends_with_the_next_beacon_registration_or_boot() {
    let mut w = World::new(3);
    let said = |w: &World, kind, seq| Command::Goodbye { node: name(1), boot: w.boot(1), kind, seq };
    let heard = |w: &World, seq| Command::Heard { node: name(1), boot: w.boot(1), seq };
    w.done(said(&w, GoodbyeKind::Reboot, 700));
    assert_eq!(w.say(said(&w, GoodbyeKind::Reboot, 700)), Outcome::Unchanged);
    // Signs from before it, and signs without a number.
    for seq in [0, 699, 700] {
        assert_eq!(w.say(heard(&w, seq)), Outcome::Unchanged);
    }
    assert!(w.node(1).goodbye.is_some());
    w.done(heard(&w, 701));
    assert_eq!(w.node(1).goodbye, None);
    w.done(said(&w, GoodbyeKind::AgentRestart, 800));
    w.done(w.registration(1));
    assert_eq!(w.node(1).goodbye, None);
    w.done(said(&w, GoodbyeKind::Reboot, 900));
    let old = said(&w, GoodbyeKind::Reboot, 900);
    w.reboot(1);
    assert_eq!(w.node(1).goodbye, None);
    assert_eq!(w.say(old), Outcome::Stale);
}

#[test]
fn the_later_of_two_goodbyes_stands_in_whatever_order_they_come() {
    let mut w = World::new(3);
    let said = |w: &World, kind, seq| Command::Goodbye { node: name(1), boot: w.boot(1), kind, seq };
    w.done(said(&w, GoodbyeKind::AgentRestart, 700));
    let first = w.node(1).goodbye.clone().unwrap().at;
    w.wait(secs(30));
    w.done(said(&w, GoodbyeKind::AgentRestart, 30_700));
    let second = w.node(1).goodbye.clone().unwrap();
    assert!(second.at > first, "its time begins anew");
    w.done(said(&w, GoodbyeKind::Reboot, 30_800));
    assert_eq!(w.say(said(&w, GoodbyeKind::AgentRestart, 30_700)), Outcome::Unchanged);
    assert_eq!(w.node(1).goodbye.clone().unwrap().kind, GoodbyeKind::Reboot);
}

#[test]
fn a_domain_changes_while_its_node_is_alive_and_counts_twice_for_ten_minutes() {
    let mut w = World::in_racks(4, Some);
    let relabel = |w: &mut World, rack: &str| {
        let rack = rack.to_owned();
        w.change(1, move |f| {
            f.labels.insert("topology.kubernetes.io/rack".to_owned(), rack);
        })
    };
    relabel(&mut w, "r9");
    assert_eq!(w.node(1).domain, "rack/r9");
    assert_eq!(crate::brake::domains_of(w.node(1), w.state.now), ["rack/r9", "rack/r1"]);
    w.wait(secs(600));
    assert_eq!(crate::brake::domains_of(w.node(1), w.state.now), ["rack/r9"]);
    assert_eq!(w.node(1).domain_before, None);
    w.silent_on(1);
    relabel(&mut w, "r2");
    assert_eq!(w.node(1).domain, "rack/r9", "not in mid-incident");
    w.done(w.heard(1));
    assert_eq!(w.node(1).domain, "rack/r2");
}

#[test]
fn the_first_label_of_a_cluster_makes_one_domain_of_all_others() {
    let mut w = World::new(4);
    assert_eq!(w.node(2).domain, "host/n2");
    let membership = w.state.membership;
    w.change(1, |f| {
        f.labels.insert("topology.kubernetes.io/zone".to_owned(), "a".to_owned());
    });
    assert_eq!(w.node(1).domain, "zone/a");
    assert_eq!(w.node(2).domain, "unlabelled");
    assert!(w.state.membership > membership);
    w.change(1, |f| f.labels.clear());
    assert_eq!((w.node(1).domain.as_str(), w.node(2).domain.as_str()), ("host/n1", "host/n2"));
}

#[test]
fn a_binding_keeps_its_pin_over_a_change_and_is_not_used_before_it_is_verified() {
    let mut w = World::new(3);
    let mut changed = binding(1);
    changed.hash = "b2".to_owned();
    changed.pin = Some(pin(2));
    w.done(Command::BindingSet { node: name(1), binding: changed });
    let stands = &w.state.bindings[&name(1)];
    assert_eq!(stands.pin, Some(pin(1)), "a pin is the log's");
    assert!(stands.disabled.is_some());
    let verified =
        |hash: &str, result| Command::BindingVerified { node: name(1), hash: hash.to_owned(), result };
    assert_eq!(w.say(verified("b1", Ok(pin(1)))), Outcome::Stale, "of an older version");
    w.done(verified("b2", Ok(pin(1))));
    assert!(crate::permit::fenceable(&w.state, &name(1)).is_ok());
    // Another machine behind it: disabled, never pinned anew.
    w.done(verified("b2", Ok(pin(2))));
    let stands = &w.state.bindings[&name(1)];
    assert_eq!(stands.pin, Some(pin(1)));
    assert!(matches!(crate::permit::fenceable(&w.state, &name(1)), Err(HeldReason::Identity(_))));
    w.done(verified("b2", Ok(pin(1))));
    w.done(verified("b2", Err("off while beacons arrive".to_owned())));
    assert!(crate::permit::fenceable(&w.state, &name(1)).is_err());
}

#[test]
fn an_agent_is_told_other_times_as_soon_as_another_policy_selects_its_node() {
    let mut w = World::new(5);
    let mut slow = policy(Mode::Enforce);
    (slow.name, slow.hash) = ("slow".to_owned(), "slow".to_owned());
    slow.node_selector = [("pool".to_owned(), "slow".to_owned())].into();
    slow.rules.beacons.suspect = Span::from_ms(1900);
    w.done(Command::PolicySet(Box::new(slow)));
    let mut others = policy(Mode::Enforce);
    others.hash = "others".to_owned();
    others.node_selector = [("pool".to_owned(), "fast".to_owned())].into();
    w.done(Command::PolicySet(Box::new(others)));
    let told = |w: &World| w.state.observers.seat(&name(1)).map(|s| (s.timings.suspect, s.version)).unwrap();
    let (before, version) = told(&w);
    w.change(1, |f| {
        f.labels.insert("pool".to_owned(), "slow".to_owned());
    });
    let (after, newer) = told(&w);
    assert_ne!(before, Span::from_ms(1900));
    assert_eq!(after, Span::from_ms(1900));
    assert!(newer > version, "its slice is a new one");
}

#[test]
fn three_sides_must_agree_on_the_machine() {
    let mut w = World::new(3);
    w.change(1, |f| f.system_uuid = machine(2).to_string());
    assert!(matches!(crate::permit::fenceable(&w.state, &name(1)), Err(HeldReason::Identity(_))));
    w.change(1, |f| f.system_uuid = machine(1).to_string().to_uppercase());
    assert!(crate::permit::fenceable(&w.state, &name(1)).is_ok());
    let mut other = register(1, 2, 1, true);
    if let Command::Register { machine: of, .. } = &mut other {
        *of = Ok(machine(9));
    }
    w.done(other);
    assert!(matches!(crate::permit::fenceable(&w.state, &name(1)), Err(HeldReason::MachineChanged { .. })));
    let mut none = register(1, 3, 1, true);
    if let Command::Register { machine: of, .. } = &mut none {
        *of = Err("placeholder".to_owned());
    }
    w.done(none);
    assert!(matches!(crate::permit::fenceable(&w.state, &name(1)), Err(HeldReason::NotFenceable(_))));
}

#[test]
fn a_node_is_unheard_from_each_change_to_enforce_until_it_is_heard() {
    let mut w = World::new(3);
    let is = |w: &World| w.node(1).enforced;
    assert_eq!(is(&w), Enforced::Cleared, "it registered under a policy that enforces");
    let mut same = policy(Mode::Enforce);
    same.hash = "other".to_owned();
    w.done(Command::PolicySet(Box::new(same.clone())));
    assert_eq!(is(&w), Enforced::Cleared, "a change within Enforce is no new beginning");
    w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
    assert_eq!(is(&w), Enforced::Observe);
    w.done(Command::PolicySet(Box::new(policy(Mode::Enforce))));
    assert_eq!(is(&w), Enforced::Unheard);
    w.done(Command::PolicySet(Box::new(same)));
    assert_eq!(is(&w), Enforced::Unheard);
    w.done(w.heard(1));
    assert_eq!(is(&w), Enforced::Cleared);
    assert_eq!(w.say(w.heard(1)), Outcome::Unchanged);
    w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
    w.done(Command::PolicySet(Box::new(policy(Mode::Enforce))));
    w.reboot(1);
    assert_eq!(is(&w), Enforced::Cleared, "a registration is a proof of life");
}

#[test]
fn a_node_heard_after_enforce_is_fenced_though_log_time_stood_still_and_one_not_heard_is_held() {
    for (heard, stands) in [(true, "Condemned"), (false, "Held:SilentBeforeEnforce")] {
        let mut w = World::new(5);
        w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
        w.done(Command::PolicySet(Box::new(policy(Mode::Enforce))));
        if heard {
            w.done(w.heard(1));
        } else {
            // An hour later still, whatever the ages say.
            w.wait(secs(3600));
        }
        w.done(Command::Judge(Box::new(w.view(1).off())));
        assert_eq!(w.stands(1), stands);
    }
}

#[test]
fn silent_before_enforce_is_cleared_by_a_person_or_by_being_heard() {
    let held = || {
        let mut w = World::new(5);
        w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
        w.done(Command::PolicySet(Box::new(policy(Mode::Enforce))));
        w.done(Command::Judge(Box::new(w.view(1).off())));
        assert_eq!(w.stands(1), "Held:SilentBeforeEnforce");
        w
    };
    let mut w = held();
    assert_eq!(w.say(Command::Judge(Box::new(w.view(1).off()))), Outcome::Unchanged);
    w.done(Command::ClearHeld { node: name(1), who: "alice".to_owned(), why: "w".to_owned() });
    assert_eq!(w.node(1).enforced, Enforced::Cleared);
    w.found_off(1);
    let mut w = held();
    w.done(w.heard(1));
    w.found_off(1);
    let mut w = held();
    w.done(w.order(1, "alice"));
}

#[test]
fn evidence_is_chained_and_judges_again_to_the_same() {
    let mut w = World::new(5);
    assert_eq!(w.state.evidence_chain, "");
    w.found_off(1);
    let first = w.state.evidence_chain.clone();
    let incident = w.incident(1);
    let record = incident.record.clone().unwrap();
    assert_eq!(incident.evidence.as_deref(), Some(record.digest().as_str()));
    assert_eq!(first, crate::evidence::chained("", &record.digest()));
    assert_eq!((record.brakes_before.in_flight, record.brakes_after.in_flight), (0, 1));
    let crate::evidence::LookedAt::View { view, rules, verdict } = &record.looked_at else { panic!() };
    assert_eq!(crate::verdict::verdict(view, rules), *verdict);
    w.done(w.intent(1));
    assert_eq!(w.state.evidence_chain, first, "an intent is no decision");
    w.wait(secs(31));
    w.done(w.proven(1, 0, super::world::offs(1, secs(30), None)));
    let incident = w.incident(1);
    let proof =
        incident.timeline.back().unwrap().detail.rsplit(' ').next().unwrap().trim_end_matches(')').to_owned();
    assert_eq!(w.state.evidence_chain, crate::evidence::chained(&first, &proof));
    assert_ne!(
        w.state.evidence_chain,
        crate::evidence::chained("", &proof),
        "each link holds the one before"
    );
    assert_eq!(w.incident(1).record.clone().unwrap(), record, "the incident still rests on its decision");
}

#[test]
fn timelines_and_incidents_are_bounded() {
    let mut w = World::new(5);
    w.attempted(1);
    for number in 2..200 {
        w.done(w.attempt(1, number, true));
    }
    let timeline = &w.incident(1).timeline;
    assert_eq!(timeline.len(), 64);
    assert_eq!(timeline[0].what, "Condemned", "how it began stays");
    assert!(timeline.back().unwrap().detail.starts_with("199,"));
    w.reboot(1);
    w.wait(secs(40));
    w.done(Command::Returned { node: name(1), incident: w.incident_id(1) });
    for _ in 0..1100 {
        w.wait(secs(20));
        w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
        w.wait(secs(5));
        w.done(Command::Judge(Box::new(w.view(1).alive())));
    }
    assert_eq!(w.state.incidents.len(), 1000);
    assert_eq!(w.closed(1), "HoldEnded");
    w.state.now = w.state.now + Span::from_mins(30 * 24 * 60);
    w.say(Command::Tick);
    assert_eq!(w.state.incidents.len(), 0);
}
