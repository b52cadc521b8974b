//! Which work each phase asks for, that it is named and safe to repeat, and how long the log may stay silent.

use std::collections::BTreeSet;

use coroner_shared::bmc::CommandAnswer;
use coroner_shared::id::NodeName;
use coroner_shared::names::EXCLUDE_LABEL;

use super::{
    BmcKnown, Job, ReturnStep, Signs, TICK_FAR, TICK_NEAR, again_order, deadline, fence_order, jobs,
    last_look, tick_after, wanted,
};
use crate::apply::tests::world::{
    World, before, key, machine as machine_id, name, offs, pin, policy, secs, uid,
};
use crate::command::Command;
use crate::fence::Fence;
use crate::phase::{EvidenceClass, FenceProof};
use crate::policy::{AfterRelease, Mode, Policy, ReleaseStrategy};

/// Kinds of the jobs about node `n`'s life, without pages and publications.
fn kinds(w: &World, n: u32) -> Vec<&'static str> {
    let shown = ["PublishIncident", "PublishBinding", "PublishPolicy", "Page"];
    let of = |job: &&Job| job.node() == Some(&name(n)) && !shown.contains(&job.key().kind);
    jobs(&w.state).iter().filter(of).map(|job| job.key().kind).collect()
}

/// The one job of a kind about node `n`.
#[track_caller]
fn job(w: &World, n: u32, kind: &str) -> Job {
    let mut found: Vec<Job> =
        jobs(&w.state).into_iter().filter(|j| j.node() == Some(&name(n)) && j.key().kind == kind).collect();
    assert_eq!(found.len(), 1, "{kind}: {found:?}");
    found.remove(0)
}

fn pages(w: &World, n: u32) -> BTreeSet<String> {
    jobs(&w.state)
        .into_iter()
        .filter_map(|job| {
            if let Job::Page { node, reason, .. } = job { (node == name(n)).then_some(reason) } else { None }
        })
        .collect()
}

#[test]
fn a_well_cluster_asks_for_nothing_but_what_is_shown() {
    let w = World::new(5);
    for n in 1..=5 {
        assert_eq!(kinds(&w, n), Vec::<&str>::new());
        assert_eq!(pages(&w, n), BTreeSet::new());
    }
    assert_eq!(tick_after(&w.state), None);
    let shown: BTreeSet<&str> = jobs(&w.state).iter().map(|job| job.key().kind).collect();
    assert_eq!(shown, ["PublishBinding", "PublishPolicy"].into());
}

#[test]
fn each_phase_asks_for_its_work() {
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    assert_eq!(kinds(&w, 1), Vec::<&str>::new(), "a hold asks for nothing");
    w.silent_on(1);
    assert_eq!(kinds(&w, 1), ["Fence"]);
    w.done(w.intent(1));
    w.done(w.attempt(1, 1, true));
    w.done(w.answered(1, 1, CommandAnswer::Accepted));
    assert_eq!(kinds(&w, 1), ["Fence"]);
    w.wait(secs(5));
    w.done(w.proven(1, 1, offs(1, secs(4), Some(CommandAnswer::Accepted))));
    assert_eq!(kinds(&w, 1), ["Release"]);
    w.done(w.release_begun(1));
    assert_eq!(kinds(&w, 1), ["WriteRelease"]);
    w.done(w.taint_seen(1));
    w.change(1, |f| f.tainted_by_us = true);
    assert_eq!(kinds(&w, 1), ["Expedite", "WatchReleased"]);
    w.done(w.leftovers_gone(1));
    assert_eq!(kinds(&w, 1), ["WatchReleased", "PowerOn"]);
    w.done(Command::PowerOn { node: name(1), incident: w.incident_id(1) });
    assert_eq!(kinds(&w, 1), ["WatchReleased"], "one attempt");
    w.change(1, |f| f.ready = false);
    w.reboot(1);
    assert_eq!(kinds(&w, 1), Vec::<&str>::new(), "Ready is waited for");
    w.wait(secs(30));
    let Job::Return(removing) = job(&w, 1, "Return") else { panic!() };
    assert_eq!(removing.step, ReturnStep::RemoveTaint { keep_taint: false, orphaned: false });
    w.done(Command::TaintRemoved { node: name(1), incident: w.incident_id(1) });
    w.change(1, |f| f.tainted_by_us = false);
    assert_eq!(kinds(&w, 1), Vec::<&str>::new(), "the margin");
    w.wait(secs(10));
    let Job::Return(finishing) = job(&w, 1, "Return") else { panic!() };
    assert_eq!(finishing.step, ReturnStep::Finish { uncordon: true });
    w.done(Command::Returned { node: name(1), incident: w.incident_id(1) });
    assert_eq!(kinds(&w, 1), Vec::<&str>::new());
}

#[test]
fn leftovers_are_watched_on_the_way_back_too() {
    let mut w = World::new(5);
    w.released(1);
    w.reboot(1);
    let Job::WatchReleased(watch) = job(&w, 1, "WatchReleased") else { panic!() };
    assert_eq!((watch.leftovers, watch.power), (Some(before()), false));
}

#[test]
fn a_cordon_that_others_made_is_theirs() {
    let mut w = World::new(5);
    w.proven_off(1);
    let mut begun = w.release_begun(1);
    if let Command::ReleaseBegun { before, .. } = &mut begun {
        before.was_cordoned = true;
    }
    w.done(begun);
    w.done(w.taint_seen(1));
    w.done(w.leftovers_gone(1));
    w.reboot(1);
    w.wait(secs(30));
    w.done(Command::TaintRemoved { node: name(1), incident: w.incident_id(1) });
    w.wait(secs(10));
    let Job::Return(finishing) = job(&w, 1, "Return") else { panic!() };
    assert_eq!(finishing.step, ReturnStep::Finish { uncordon: false });
}

#[test]
fn a_job_is_wanted_while_the_state_asks_for_exactly_it() {
    let mut w = World::new(5);
    w.silent_on(1);
    let fence = job(&w, 1, "Fence");
    w.done(w.intent(1));
    w.done(w.attempt(1, 1, true));
    assert!(wanted(&w.state, &fence), "nothing that changes while it runs is in it");
    w.done(Command::Pause { node: None, who: "bob".to_owned(), why: "w".to_owned() });
    assert!(wanted(&w.state, &fence));
    // Another binding, another life, another phase: not wanted.
    let mut changed = crate::apply::tests::world::binding(1);
    changed.hash = "b2".to_owned();
    w.done(Command::BindingSet { node: name(1), binding: changed });
    assert!(!wanted(&w.state, &fence));
    let fence = job(&w, 1, "Fence");
    w.reboot(1);
    assert!(!wanted(&w.state, &fence));
    let mut w = World::new(5);
    w.proven_off(1);
    let release = job(&w, 1, "Release");
    assert!(wanted(&w.state, &release));
    w.done(w.heard(1));
    assert!(!wanted(&w.state, &release));
    w.done(Command::NodeGone { node: name(1), uid: uid(1) });
    assert!(!wanted(&w.state, &release));
    // Those that are about no node.
    let shown = jobs(&w.state).into_iter().find(|job| job.key().kind == "PublishIncident").unwrap();
    assert!(wanted(&w.state, &shown));
}

#[test]
fn names_are_unique_and_do_not_change_with_what_is_in_a_job() {
    let mut w = World::new(12);
    w.released(1);
    w.wait(secs(2));
    w.silent_on(5);
    w.done(Command::Judge(Box::new(w.view(6).bmc_silent())));
    let all = jobs(&w.state);
    let keys: BTreeSet<_> = all.iter().map(Job::key).collect();
    assert_eq!(keys.len(), all.len());
    let before = job(&w, 5, "Fence");
    let mut changed = crate::apply::tests::world::binding(5);
    changed.quirks = vec![crate::policy::Quirk::Cached];
    w.done(Command::BindingSet { node: name(5), binding: changed });
    let after = job(&w, 5, "Fence");
    assert_ne!(before, after);
    assert_eq!(before.key(), after.key());
    assert_eq!(before.key().to_string(), format!("Fence/n5/{}", w.incident_id(5)));
}

#[test]
fn a_new_leader_derives_the_same_work_from_the_same_state() {
    let mut w = World::new(5);
    w.released(1);
    let copy = crate::snapshot::from_bytes(&crate::snapshot::to_bytes(&w.state).unwrap()).unwrap();
    assert_eq!(jobs(&copy), jobs(&w.state));
}

#[test]
fn the_release_goes_by_the_terms_it_was_condemned_under() {
    let mut w = World::new(5);
    let mut terms = policy(Mode::Enforce);
    terms.release = ReleaseStrategy::Taint;
    terms.after_release = AfterRelease::StayOff;
    w.done(Command::PolicySet(Box::new(terms)));
    w.proven_off(1);
    let mut later = policy(Mode::Enforce);
    later.hash = "later".to_owned();
    w.done(Command::PolicySet(Box::new(later)));
    w.done(w.release_begun(1));
    w.done(w.taint_seen(1));
    let Job::Expedite(expedite) = job(&w, 1, "Expedite") else { panic!() };
    assert_eq!((expedite.strategy, expedite.released), (ReleaseStrategy::Taint, before()));
    w.done(w.leftovers_gone(1));
    assert_eq!(kinds(&w, 1), ["WatchReleased"], "it stays off");
}

#[test]
fn a_release_that_a_person_confirmed_needs_no_bmc() {
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    w.done(w.confirm(1));
    w.done(Command::BindingGone { node: name(1) });
    let Job::Release(release) = job(&w, 1, "Release") else { panic!() };
    assert!(matches!(release.proof, FenceProof::PersonConfirmed { .. }));
    assert_eq!((release.pin, release.kept), (None, None));
    w.wait(secs(15 * 60 + 1));
    assert_eq!(kinds(&w, 1), Vec::<&str>::new(), "a word that is too old asks for the person");
    w.wait(secs(60));
    assert_eq!(pages(&w, 1), ["LastReadFailed".to_owned()].into());
}

#[test]
fn a_re_fence_is_a_fence_that_being_heard_does_not_stop() {
    let mut w = World::new(5);
    w.released(1);
    w.done(w.heard(1));
    assert_eq!(kinds(&w, 1), ["Fence"], "nothing more is deleted while it may write");
    let Job::Fence(fence) = job(&w, 1, "Fence") else { panic!() };
    assert!(fence.re_fence);
}

/// A held node has no class, and a person's word gives it none.
#[test]
fn what_a_person_wrongly_confirmed_is_fenced_once_it_is_heard() {
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    w.done(w.confirm(1));
    w.done(w.release_begun(1));
    w.done(w.taint_seen(1));
    w.done(w.heard(1));
    assert_eq!((w.node(1).phase.name(), w.incident(1).class.clone()), ("Fencing", None));
    let Job::Fence(fence) = job(&w, 1, "Fence") else { panic!() };
    assert_eq!((fence.class, fence.re_fence), (EvidenceClass::HostSilentBmcOn, true), "a second writer");
}

#[test]
fn an_order_for_the_fence_says_what_the_state_knows() {
    let mut w = World::new(5);
    w.silent_on(1);
    let fence = |w: &World| {
        let Job::Fence(fence) = job(w, 1, "Fence") else { panic!() };
        fence
    };
    let known = BmcKnown { steady: true, shown: None, off_for: secs(7) };
    let order = fence_order(&w.state, &fence(&w), known).unwrap();
    assert!(!order.intent_open && order.last_attempt == 0 && order.previous_login.is_none());
    assert!(order.steady && order.off_for == secs(7) && !order.again && !order.paused && !order.re_fence);
    assert_eq!((order.pin.clone(), order.stalled_after), (pin(1), secs(180)));
    assert_eq!((order.fleet.len(), order.system_uuid.clone()), (5, w.facts(1).system_uuid));
    drop(Fence::new(order));
    w.done(w.intent(1));
    w.done(w.attempt(1, 1, true));
    w.done(Command::Pause { node: None, who: "bob".to_owned(), why: "w".to_owned() });
    let order = fence_order(&w.state, &fence(&w), BmcKnown::default()).unwrap();
    assert!(order.intent_open && order.paused);
    assert_eq!((order.last_attempt, order.previous_login.is_some()), (1, true));
    w.wait(secs(5));
    let gone = fence(&w);
    w.done(w.proven(1, 1, offs(1, secs(30), None)));
    assert_eq!(fence_order(&w.state, &gone, BmcKnown::default()), None);
    let Job::Release(release) = job(&w, 1, "Release") else { panic!() };
    let again = again_order(&w.state, &release, BmcKnown::default()).unwrap();
    assert!(again.again && again.intent_open);
}

#[test]
fn whatever_bars_commands_bars_them_in_the_order_and_in_each_look() {
    type Change = fn(&mut World);
    fn pause(node: Option<NodeName>) -> Command {
        Command::Pause { node, who: "bob".to_owned(), why: "w".to_owned() }
    }
    let table: Vec<(&str, &str, Change)> = vec![
        ("everything is paused", "Paused", |w| w.done(pause(None))),
        ("the node is paused", "Paused", |w| w.done(pause(Some(name(1))))),
        ("the policy is paused", "Paused", |w| {
            w.done(Command::PolicySet(Box::new(Policy { paused: true, ..policy(Mode::Enforce) })));
        }),
        ("the policy observes", "Observe", |w| w.done(Command::PolicySet(Box::new(policy(Mode::Observe))))),
        ("the policy is gone", "Observe", |w| w.done(Command::PolicyGone { name: "all".to_owned() })),
        ("another policy claims the node", "PolicyConflict", |w| {
            let other = Policy { name: "other".to_owned(), ..policy(Mode::Enforce) };
            w.done(Command::PolicySet(Box::new(other)));
        }),
        ("the node opted out", "Excluded", |w| {
            w.change(1, |f| {
                f.labels.insert(EXCLUDE_LABEL.to_owned(), "true".to_owned());
            });
        }),
    ];
    for (what, word, change) in table {
        let mut w = World::new(5);
        w.attempted(1);
        let fence = job(&w, 1, "Fence");
        let at = w.state.now;
        let signs = Signs { heard: Some(at), lease_moved: None };
        let look = last_look(&w.state, &fence, at, signs);
        assert!(look.wanted && !look.paused, "{what}: before");
        assert_eq!((look.at, look.heard, look.lease_moved), (at, Some(at), None));
        change(&mut w);
        let look = last_look(&w.state, &fence, at, signs);
        let Job::Fence(of) = &fence else { panic!() };
        let order = fence_order(&w.state, of, BmcKnown::default()).unwrap();
        assert!(look.wanted, "{what}: off may still be proven by reading");
        assert_eq!((look.paused, order.paused), (true, true), "{what}");
        // And the log agrees: an attempt that the look permits is not refused for what the look did not see.
        w.refused(word, w.attempt(1, 2, true));
        // What is proven by reading is released all the same.
        w.wait(secs(30));
        w.done(w.proven(1, 1, offs(1, secs(30), None)));
        let release = job(&w, 1, "Release");
        assert!(last_look(&w.state, &release, at, Signs::default()).wanted, "{what}: the release");
    }
}

#[test]
fn no_power_on_while_paused_or_for_a_machine_we_did_not_turn_off() {
    let mut w = World::new(5);
    w.released(1);
    w.done(w.leftovers_gone(1));
    w.done(Command::Pause { node: None, who: "bob".to_owned(), why: "w".to_owned() });
    assert_eq!(kinds(&w, 1), ["WatchReleased"]);
    w.done(Command::Resume { node: None, who: "bob".to_owned(), why: "w".to_owned() });
    assert_eq!(kinds(&w, 1), ["WatchReleased", "PowerOn"]);
    w.done(Command::PowerAfterRelease { node: name(1), incident: w.incident_id(1), on: true });
    assert_eq!(kinds(&w, 1), ["WatchReleased"], "it is on already");
}

// === what is shown ===

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

// === ticks ===

#[test]
fn ticks_are_logged_while_anything_waits_for_a_time_and_not_a_moment_longer() {
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    assert_eq!(tick_after(&w.state), Some(TICK_NEAR));
    w.wait(secs(5));
    w.done(Command::Judge(Box::new(w.view(1).alive())));
    assert_eq!(tick_after(&w.state), None);
    // A death is remembered for a day, its domain for ten minutes, the pace for a second.
    w.attempted(1);
    w.reboot(1);
    w.wait(secs(40));
    w.done(Command::Returned { node: name(1), incident: w.incident_id(1) });
    assert_eq!(tick_after(&w.state), Some(TICK_NEAR), "the budget is refilled within a minute");
    w.wait(secs(120));
    assert_eq!(tick_after(&w.state), Some(TICK_FAR));
    w.wait(secs(600));
    assert_eq!(tick_after(&w.state), Some(TICK_FAR));
    let far = deadline(&w.state).unwrap();
    assert!(far.since(w.state.now) > secs(23 * 3600));
    w.wait(secs(24 * 3600));
    assert_eq!(tick_after(&w.state), None);
}
