//! What people read: every phase has a reason or needs none, a next step, and advice where a person can do something.

use coroner_shared::bmc::CommandAnswer;

use super::{attention, incident, node, pause, phases, problems, verdict_line};
use crate::apply::tests::world::{World, name, offs, policy, secs};
use crate::command::Command;
use crate::policy::Mode;

type Part = fn(&mut World);

fn released(w: &mut World) {
    w.released(1);
}

fn booting(w: &mut World) {
    w.released(1);
    w.done(Command::PowerAfterRelease { node: name(1), incident: w.incident_id(1), on: true });
}

fn unknown(w: &mut World) {
    w.released(1);
    w.done(Command::PowerAfterRelease { node: name(1), incident: w.incident_id(1), on: true });
    w.wait(secs(1200));
}

fn held(w: &mut World) {
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
}

fn failed(w: &mut World) {
    w.proven_off(1);
    w.done(Command::LastReadFailed { node: name(1), incident: w.incident_id(1), why: "503".to_owned() });
}

fn re_fence(w: &mut World) {
    w.released(1);
    w.done(w.heard(1));
}

fn stalled(w: &mut World) {
    w.attempted(1);
    w.wait(secs(180));
}

fn paused(w: &mut World) {
    w.attempted(1);
    w.done(Command::Pause { node: None, who: "bob".to_owned(), why: "rewiring".to_owned() });
}

fn stopped(w: &mut World) {
    w.attempted(1);
    w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
}

fn paused_found_off(w: &mut World) {
    w.found_off(1);
    w.done(Command::Pause { node: None, who: "bob".to_owned(), why: "rewiring".to_owned() });
}

fn returning(w: &mut World) {
    w.released(1);
    w.wait(secs(20));
    w.reboot(1);
}

fn gone(w: &mut World) {
    w.released(1);
    w.done(w.leftovers_gone(1));
}

/// A person's word: hands may be in that machine.
fn confirmed(w: &mut World) {
    held(w);
    w.done(w.confirm(1));
    w.done(w.release_begun(1));
    w.done(w.taint_seen(1));
    w.done(w.leftovers_gone(1));
}

/// Nothing was silent yet: the kubelet of a quick reboot was first.
fn kubelet_first(w: &mut World) {
    w.new_boot(1);
    let boot = w.boot(1);
    w.change(1, |f| f.boot = Some(boot));
}

fn bare(w: &mut World) {
    w.done(Command::BindingGone { node: name(1) });
}

fn releasing(w: &mut World) {
    w.proven_off(1);
    w.done(w.release_begun(1));
}

#[test]
fn every_phase_says_what_it_is_what_comes_next_and_what_can_be_done() {
    let second_boot = crate::apply::tests::world::boot(1, 2).to_string();
    // Phase, part of the reason, part of the next step, part of the advice.
    let table: Vec<(&str, Part, &str, &str, &str)> = vec![
        ("Alive", |_| {}, "", "watched", ""),
        ("Alive", bare, "no MachineBinding", "nothing is done by itself", "coroner nodes"),
        ("Unregistered", |w| w.boot_without_agent(1), "has not registered", "not judged", "coroner fence"),
        ("Unregistered", kubelet_first, &second_boot, "not judged", "its agent runs"),
        ("Held", held, "BmcSilent", "judged again", "confirm-off"),
        ("Condemned", |w| w.silent_on(1), "HostSilentBmcOn", "powered off", ""),
        ("Condemned", |w| w.done(w.order(1, "alice")), "Ordered by alice: because", "powered off", ""),
        ("Fencing", |w| w.attempted(1), "attempt 1 was sent", "until it is proven", ""),
        ("Fencing", stalled, "Stalled: no progress", "growing pauses", "confirm-off"),
        ("Fencing", paused, "attempt 1 was sent", "paused by bob; off is proven by reading alone", "resume"),
        ("Fencing", stopped, "attempt 1 was sent", "no FencingPolicy in Enforce", "Enforce"),
        (
            "Condemned",
            paused_found_off,
            "FoundOff",
            "paused by bob; off is proven by reading alone",
            "resume",
        ),
        ("ReFencing", re_fence, "same boot id", "until it is proven", ""),
        ("ProvenOff", |w| w.proven_off(1), "its BMC proved it off", "last read", ""),
        ("ProvenOff", failed, "its BMC proved it off", "503", "confirm-off"),
        ("Releasing", releasing, "proved", "taint", ""),
        ("Released", released, "released", "are going", ""),
        ("Released", gone, "released", "powered on once", ""),
        (
            "Released",
            confirmed,
            "released",
            "awaited; we leave it off: we did not turn it off.",
            "Power it on",
        ),
        ("Booting", booting, "released", "new boot", ""),
        ("OnButUnknown", unknown, "released", "without a boot", "coroner fence"),
        (
            "Returning",
            returning,
            "booted anew",
            "waits for its Node to be Ready for 30.00s, pods",
            "coroner return",
        ),
    ];
    for (phase, set, reason, next, advice) in table {
        let mut w = World::new(5);
        set(&mut w);
        let said = node(&w.state, &name(1)).unwrap();
        assert_eq!(said.phase, phase);
        let all = (said.reason.unwrap_or_default(), said.next, said.advice.unwrap_or_default());
        assert!(all.0.contains(reason) && all.1.contains(next) && all.2.contains(advice), "{phase}: {all:?}");
        assert_eq!(
            (reason.is_empty(), advice.is_empty()),
            (all.0.is_empty(), all.2.is_empty()),
            "{phase}: {all:?}"
        );
        assert!(all.1.ends_with('.'), "{phase}: {all:?}");
        // It is a column of `kubectl get`, and what a released node waits for stands there longest.
        assert!(phase != "Released" || all.1.len() <= 80, "{phase}: {all:?}");
        if w.phase(1).incident().is_some() {
            let summary = incident(&w.state, &w.incident_id(1)).unwrap();
            assert_eq!((summary.phase.as_str(), summary.closed), (phase, None));
            assert_eq!(summary.waiting_for, Some(all.1));
        }
    }
}

#[test]
fn those_that_need_a_person_come_first_and_the_well_do_not_come_at_all() {
    let mut w = World::new(12);
    assert_eq!(attention(&w.state), vec![]);
    assert_eq!(verdict_line(&w.state), "All 12 nodes are alive.");
    assert_eq!(problems(&w.state), Vec::<String>::new());
    w.released(4);
    w.wait(secs(5));
    w.done(Command::Judge(Box::new(w.view(5).bmc_silent())));
    w.silent_on(6);
    let order: Vec<String> = attention(&w.state).into_iter().map(|n| n.node.to_string()).collect();
    assert_eq!(order, ["n5", "n6", "n4"]);
    assert_eq!(verdict_line(&w.state), "12 nodes: 1 Held, 1 Condemned, 1 Released.");
}

#[test]
fn a_boot_that_its_agent_has_not_registered_is_shown_and_paged_until_it_has() {
    let mut w = World::new(5);
    let paged = |w: &World| {
        let standing = crate::pages::standing(&w.state, &name(1), w.node(1));
        standing.into_iter().map(|page| page.reason).collect::<Vec<_>>()
    };
    w.boot_without_agent(1);
    assert_eq!(verdict_line(&w.state), "5 nodes: 1 Unregistered.");
    assert_eq!(attention(&w.state).into_iter().map(|n| n.node).collect::<Vec<_>>(), [name(1)]);
    assert_eq!(phases(&w.state), [("Alive".to_owned(), 4), ("Unregistered".to_owned(), 1)].into());
    assert_eq!(node(&w.state, &name(1)).unwrap().boot, None, "none that is heard");
    w.wait(secs(59));
    assert_eq!(paged(&w), Vec::<String>::new(), "an agent's container takes a moment");
    w.wait(secs(1));
    assert_eq!(paged(&w), ["BootUnregistered"]);
    w.done(w.registration(1));
    assert_eq!((paged(&w), attention(&w.state)), (vec![], vec![]));
    assert_eq!(node(&w.state, &name(1)).unwrap().boot, Some(w.boot(1)));
    assert_eq!(verdict_line(&w.state), "All 5 nodes are alive.");
}

#[test]
fn what_would_stop_us_tonight_is_said_once_for_many_nodes() {
    let mut w = World::new(12);
    for n in 1..=7 {
        w.done(Command::BindingGone { node: name(n) });
    }
    w.change(12, |f| f.system_uuid = "x".to_owned());
    let said = problems(&w.state);
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said.iter().any(|s| s.starts_with("n1, n2, n3, n4, n5 and 2 more: no MachineBinding")),
        "{said:?}"
    );
    w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
    assert_eq!(problems(&w.state).len(), 1);
    assert!(
        World::new(2).state.members() == 2 && problems(&World::new(2).state)[0].contains("fewer than three")
    );
}

#[test]
fn a_closed_incident_says_how_it_ended_and_what_happened_when() {
    let mut w = World::new(5);
    w.attempted(1);
    let id = w.incident_id(1);
    w.wait(secs(5));
    w.done(w.proven(1, 1, offs(1, secs(4), Some(CommandAnswer::Accepted))));
    w.reboot(1);
    w.wait(secs(30));
    w.done(Command::Returned { node: name(1), incident: id.clone() });
    w.wait(secs(7));
    let summary = incident(&w.state, &id).unwrap();
    assert_eq!(summary.phase, "Closed");
    assert_eq!(summary.closed, Some((secs(7), "Returned".to_owned())));
    assert_eq!(summary.class.as_deref(), Some("HostSilentBmcOn"));
    let told: Vec<&str> = summary.timeline.iter().map(|(_, what, _)| what.as_str()).collect();
    assert_eq!(
        told,
        ["Condemned", "Intent", "Attempt", "AttemptAnswered", "Proven", "Returning", "Returned"]
    );
    assert_eq!((summary.opened_ago, summary.timeline[0].0), (secs(42), secs(42)));
}

#[test]
fn a_pause_is_shown_with_its_name_and_age() {
    let mut w = World::new(3);
    assert_eq!(pause(&w.state), None);
    w.done(Command::Pause { node: None, who: "bob".to_owned(), why: "rewiring".to_owned() });
    w.wait(secs(9));
    let shown = pause(&w.state).unwrap();
    assert_eq!((shown.who.as_str(), shown.why.as_str(), shown.age), ("bob", "rewiring", secs(9)));
    assert!(verdict_line(&w.state).contains("paused by bob"));
}
