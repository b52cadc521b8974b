//! What is verified, published and paged.

use std::collections::BTreeSet;

use coroner_shared::beacon::GoodbyeKind;

use super::{job, kinds, pages};
use crate::apply::tests::world::{World, key, machine as machine_id, name, pin, policy, secs};
use crate::command::Command;
use crate::jobs::{Job, jobs, tick_after};
use crate::policy::Mode;

#[test]
fn a_binding_is_verified_until_it_is_good() {
    let mut w = World::new(5);
    let mut changed = crate::apply::tests::world::binding(1);
    changed.hash = "b2".to_owned();
    w.done(Command::BindingSet { node: name(1), binding: changed });
    let Job::Verify { hash, .. } = job(&w, 1, "Verify") else { panic!() };
    assert_eq!(hash, "b2");
    w.done(Command::BindingVerified { node: name(1), hash, result: Ok(pin(1)) });
    assert_eq!(kinds(&w, 1), Vec::<&str>::new());
    let Job::PublishBinding { ready, pin: shown, .. } = job(&w, 1, "PublishBinding") else { panic!() };
    assert_eq!((ready, shown), (Ok(()), Some(pin(1))));
}

#[test]
fn both_policies_of_a_conflict_say_so() {
    let mut w = World::new(5);
    let mut other = policy(Mode::Enforce);
    other.name = "other".to_owned();
    w.done(Command::PolicySet(Box::new(other)));
    let shown: Vec<_> = jobs(&w.state)
        .into_iter()
        .filter_map(|job| {
            if let Job::PublishPolicy { name, conflicts } = job { Some((name, conflicts)) } else { None }
        })
        .collect();
    let both = |a: &str, b: &str| (a.to_owned(), vec![b.to_owned()]);
    assert_eq!(shown, [both("all", "other"), both("other", "all")]);
}

#[test]
fn an_incident_is_published_anew_whenever_it_changed() {
    let mut w = World::new(5);
    let version = |w: &World| {
        let of = |job: Job| if let Job::PublishIncident { version, .. } = job { Some(version) } else { None };
        jobs(&w.state).into_iter().find_map(of).unwrap()
    };
    w.silent_on(1);
    let first = version(&w);
    w.wait(secs(5));
    assert_eq!(version(&w), first);
    w.done(w.intent(1));
    assert!(version(&w) > first);
}

#[test]
fn a_page_is_given_once_while_its_condition_stands() {
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    assert_eq!(pages(&w, 1), ["HeldBmcSilent".to_owned()].into());
    let paged = |reason: &str| Command::Paged { node: name(1), reason: reason.to_owned() };
    w.done(paged("HeldBmcSilent"));
    assert_eq!(pages(&w, 1), BTreeSet::new());
    w.wait(secs(5));
    w.done(Command::Judge(Box::new(w.view(1).alive())));
    assert!(w.node(1).paged.is_empty(), "forgotten with its condition");
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    assert_eq!(pages(&w, 1), ["HeldBmcSilent".to_owned()].into());
    // What happened once is paged once, whatever the phase by then.
    let mut w = World::new(5);
    w.attempted(1);
    w.wait(secs(20));
    w.done(w.heard(1));
    w.wait(secs(60));
    w.done(w.still_on(1));
    assert_eq!(pages(&w, 1), ["Averted".to_owned()].into());
    w.done(paged("Averted"));
    assert_eq!(pages(&w, 1), BTreeSet::new());
}

#[test]
fn a_stalled_fence_that_tries_again_is_not_paged_anew() {
    let mut w = World::new(5);
    w.attempted(1);
    w.wait(secs(180));
    assert_eq!(pages(&w, 1), ["Stalled".to_owned()].into());
    w.done(Command::Paged { node: name(1), reason: "Stalled".to_owned() });
    for number in 2..=5 {
        w.done(w.attempt(1, number, true));
        let standing = crate::pages::standing(&w.state, &name(1), w.node(1));
        assert!(standing.iter().any(|p| p.text.contains(&format!("attempt {number} is under way"))));
        for _ in 0..6 {
            w.wait(secs(10));
            assert_eq!(pages(&w, 1), BTreeSet::new(), "told once, attempt {number}");
        }
    }
    // Proven, and then read On: that is another fence, whose first command is progress.
    w.done(w.answered(1, 5, coroner_shared::bmc::CommandAnswer::Accepted));
    w.done(w.proven(1, 5, crate::apply::tests::world::offs(1, secs(60), None)));
    assert!(w.node(1).paged.is_empty());
    w.done(Command::LastReadOn { node: name(1), incident: w.incident_id(1) });
    w.done(w.attempt(1, 6, true));
    w.wait(secs(179));
    assert_eq!(pages(&w, 1), BTreeSet::new());
    w.wait(secs(1));
    assert_eq!(pages(&w, 1), ["Stalled".to_owned()].into());
}

#[test]
fn whatever_says_that_the_machine_is_another_one_is_paged_and_never_pins_anew() {
    let refused = |hash: &str| Command::BindingVerified {
        node: name(1),
        hash: hash.to_owned(),
        result: Err("Mismatch: pinned is a, found is b".to_owned()),
    };
    let mut w = World::new(5);
    assert_eq!(pages(&w, 1), BTreeSet::new());
    // The kubelet speaks of another machine.
    let mine = w.facts(1).system_uuid;
    w.change(1, |f| f.system_uuid = "4c4c4544-0042-4d10-8052-000000000099".to_owned());
    assert_eq!(pages(&w, 1), ["SystemUuidChanged".to_owned()].into());
    w.change(1, |f| f.system_uuid.clone_from(&mine));
    assert_eq!(pages(&w, 1), BTreeSet::new());
    // A round finds another machine's BMC at the address.
    w.done(refused("b1"));
    assert_eq!(pages(&w, 1), ["BindingRefused".to_owned()].into());
    let text = jobs(&w.state).into_iter().find_map(|job| {
        if let Job::Page { reason, text, .. } = job {
            (reason == "BindingRefused").then_some(text)
        } else {
            None
        }
    });
    assert!(text.is_some_and(|t| t.contains("pinned is a, found is b")), "both values are shown");
    w.done(Command::BindingVerified { node: name(1), hash: "b1".to_owned(), result: Ok(pin(1)) });
    assert_eq!(pages(&w, 1), BTreeSet::new());
    // A binding that somebody changed is verified first.
    let mut changed = crate::apply::tests::world::binding(1);
    changed.hash = "b2".to_owned();
    w.done(Command::BindingSet { node: name(1), binding: changed });
    assert_eq!(pages(&w, 1), BTreeSet::new());
    w.done(refused("b2"));
    assert_eq!(pages(&w, 1), ["BindingRefused".to_owned()].into());
    // Its agent speaks of another machine.
    let mut other = w.registration(1);
    if let Command::Register { machine, .. } = &mut other {
        *machine = Ok(crate::apply::tests::world::machine(9));
    }
    let mut w = World::new(5);
    w.done(other);
    assert!(pages(&w, 1).contains("MachineChanged"), "{:?}", pages(&w, 1));
    assert_eq!(w.state.bindings[&name(1)].pin, Some(pin(1)), "the pin is what it was");
    // While it is fenced the kubelet's word counts too.
    let mut w = World::new(5);
    w.attempted(1);
    w.change(1, |f| f.system_uuid = "4c4c4544-0042-4d10-8052-000000000099".to_owned());
    assert!(pages(&w, 1).contains("SystemUuidChanged"));
    w.done(refused("b1"));
    assert!(!pages(&w, 1).contains("BindingRefused"), "the fence says so itself");
}

/// A host that said goodbye and hangs in its shutdown, in a cluster in which nothing else happens.
#[test]
fn the_end_of_a_goodbye_is_a_time_that_the_log_comes_to() {
    for (kind, lasts) in
        [(GoodbyeKind::AgentRestart, 120), (GoodbyeKind::Reboot, 1200), (GoodbyeKind::Shutdown, 1200)]
    {
        let mut w = World::new(5);
        assert_eq!(tick_after(&w.state), None);
        w.done(Command::Goodbye { node: name(1), boot: w.boot(1), kind, seq: 7 });
        let begin = w.state.now;
        while let Some(tick) = tick_after(&w.state) {
            w.say_after(tick, Command::Tick);
        }
        let waited = w.state.now.since(begin);
        assert!((secs(lasts)..secs(lasts + 5)).contains(&waited), "{kind:?}: {waited}");
    }
}

#[test]
fn what_waits_too_long_is_paged_by_name() {
    let after = |set: fn(&mut World), wait: u64| {
        let mut w = World::new(12);
        set(&mut w);
        let begin = w.state.now;
        assert_eq!(pages(&w, 5), BTreeSet::new());
        // As the leader does: time passes by the Ticks that are asked for, and by no others.
        while w.state.now.since(begin) < secs(wait - 5) {
            let tick = tick_after(&w.state).expect("nobody would log the time at which it is due");
            w.say_after(tick.min(secs(wait - 5).saturating_sub(w.state.now.since(begin))), Command::Tick);
        }
        w.wait(secs(4));
        assert_eq!(pages(&w, 5), BTreeSet::new());
        w.wait(secs(1));
        pages(&w, 5).into_iter().collect::<Vec<_>>().join(",")
    };
    assert_eq!(after(|w| w.silent_on(5), 180), "CondemnedWaits");
    assert_eq!(after(|w| w.boot_without_agent(5), 60), "BootUnregistered");
    assert_eq!(after(|w| w.attempted(5), 180), "Stalled");
    let mut told = World::new(12);
    told.attempted(5);
    let (incident, why) = (told.incident_id(5), "401".to_owned());
    told.done(Command::Stalled { node: name(5), incident, why, disable_binding: false });
    assert_eq!(
        pages(&told, 5),
        ["Stalled".to_owned()].into(),
        "a stall that the fence tells of is paged at once"
    );
    let failed = |w: &mut World| {
        w.proven_off(5);
        w.done(Command::LastReadFailed { node: name(5), incident: w.incident_id(5), why: "x".to_owned() });
    };
    assert_eq!(after(failed, 60), "LastReadFailed");
    let releasing = |w: &mut World| {
        w.proven_off(5);
        w.done(w.release_begun(5));
    };
    assert_eq!(after(releasing, 60), "ReleaseWaits");
    assert_eq!(after(|w| w.released(5), 600), "LeftoversStay");
    let on = |w: &mut World| {
        w.released(5);
        w.done(w.leftovers_gone(5));
        w.done(Command::PowerAfterRelease { node: name(5), incident: w.incident_id(5), on: true });
    };
    assert_eq!(after(on, 1200), "OnButUnknown");
    let power_on = |w: &mut World| {
        w.released(5);
        w.done(w.leftovers_gone(5));
        w.done(Command::PowerOn { node: name(5), incident: w.incident_id(5) });
    };
    assert_eq!(after(power_on, 1200), "StaysOff");
    let returning = |w: &mut World| {
        w.attempted(5);
        w.reboot(5);
        w.change(5, |f| f.ready = false);
    };
    assert_eq!(after(returning, 1200), "ReturnWaits");
    let few = |w: &mut World| {
        let mut view = w.view(5).on();
        view.observers.truncate(1);
        view.observers.extend(view.observers.clone().into_iter().cycle().take(7).map(|mut o| {
            o.said = crate::view::Said::Nothing;
            o
        }));
        w.done(Command::Judge(Box::new(view)));
        assert_eq!(w.stands(5), "Held:TooFewObservers");
    };
    assert_eq!(after(few, 60), "HeldTooFewObservers");
}

#[test]
fn a_replaced_machine_is_told_what_can_be_done_in_its_phase() {
    let advice = |set: fn(&mut World)| {
        let mut w = World::new(12);
        set(&mut w);
        w.new_boot(5);
        let mut registration = w.registration(5);
        if let Command::Register { machine, key: new_key, .. } = &mut registration {
            (*machine, *new_key) = (Ok(machine_id(77)), key(5, 9));
        }
        w.done(registration);
        let standing = crate::pages::standing(&w.state, &name(5), w.node(5));
        standing.into_iter().find(|p| p.reason == "MachineChanged").unwrap().text
    };
    assert!(advice(|_| {}).contains("coroner repin"));
    // There it would be refused.
    assert!(advice(|w| w.released(5)).contains("delete the Node object"));
}
