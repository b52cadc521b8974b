//! Which work each phase asks for, that it is named and safe to repeat, and how long the log may stay silent.

mod looks;
mod shown;

use std::collections::BTreeSet;

use coroner_shared::bmc::CommandAnswer;

use super::{Job, ReturnStep, TICK_FAR, TICK_NEAR, deadline, jobs, read_before_patch, tick_after};
use crate::apply::tests::world::{World, before, name, offs, pin, policy, secs};
use crate::command::Command;
use crate::phase::{EvidenceClass, FenceProof};
use crate::policy::{AfterRelease, Mode, ReleaseStrategy};

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
fn the_patch_is_read_for_through_a_verified_binding_only() {
    let mut w = World::new(5);
    w.proven_off(1);
    w.done(w.release_begun(1));
    let Job::WriteRelease(write) = job(&w, 1, "WriteRelease") else { panic!() };
    let release = read_before_patch(&w.state, &write);
    assert_eq!((&release.life, &release.proof), (&write.life, &write.proof));
    assert_eq!((release.pin, release.kept), (Some(pin(1)), Some(before())));
    let result = Err("Mismatch: a, b".to_owned());
    w.done(Command::BindingVerified { node: name(1), hash: "b1".to_owned(), result });
    assert_eq!(read_before_patch(&w.state, &write).pin, None, "as before the release begins");
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
