//! When a job is still wanted, and what the orders and last looks of a fence say.

use coroner_shared::id::NodeName;
use coroner_shared::names::EXCLUDE_LABEL;

use super::job;
use crate::apply::tests::world::{World, name, offs, pin, policy, secs, uid};
use crate::command::Command;
use crate::fence::Fence;
use crate::jobs::{BmcKnown, Job, Signs, again_order, fence_order, jobs, last_look, wanted};
use crate::policy::{Mode, Policy};

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
