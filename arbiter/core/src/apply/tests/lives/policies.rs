//! Lives under a policy that changes, stops or pauses.

use super::*;

#[test]
fn from_condemned_on_an_incident_keeps_its_policy_and_domain() {
    let mut w = World::in_racks(6, |n| Some(n % 3));
    w.attempted(1);
    let mut changed = policy(Mode::Enforce);
    changed.hash = "new".to_owned();
    changed.timings.stalled = secs(1);
    w.done(Command::PolicySet(Box::new(changed)));
    w.change(1, |f| {
        f.labels.insert("topology.kubernetes.io/rack".to_owned(), "r9".to_owned());
    });
    w.wait(secs(30));
    assert_eq!(w.incident(1).policy, Some(("all".to_owned(), "Enforce".to_owned())));
    assert_eq!((w.node(1).domain.as_str(), w.incident(1).domain.as_str()), ("rack/r1", "rack/r1"));
    assert!(matches!(w.phase(1), Phase::Fencing { intent, .. } if intent.stalled.is_none()));
    // Observe stops the next command, and nothing that is proven.
    w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
    w.refused("Observe", w.attempt(1, 2, true));
    w.done(w.proven(1, 1, offs(1, secs(4), Some(CommandAnswer::Accepted))));
    w.done(w.release_begun(1));
}

#[test]
fn a_paused_fence_is_proven_and_released_but_sends_nothing() {
    let mut w = World::new(5);
    pause_all(&mut w);
    w.found_off(1);
    let incident = w.incident_id(1);
    w.done(Command::Intent { node: name(1), incident, read_only: true });
    w.refused("ReadOnlyIntent", w.attempt(1, 1, false));
    w.wait(secs(31));
    w.done(w.proven(1, 0, offs(1, secs(30), None)));
    w.done(w.release_begun(1));
    w.done(w.taint_seen(1));
    w.reboot(1);
    assert_eq!(w.stands(1), "Returning:released");
}

#[test]
fn in_observe_nothing_that_was_sent_is_confirmed_by_a_person() {
    let mut w = World::new(5);
    attempted(&mut w);
    w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
    assert_eq!(w.stands(1), "Fencing");
    w.refused("Observe", w.confirm(1));
}

#[test]
fn a_pause_after_the_intent_leaves_what_was_found_off_to_reading_alone() {
    let mut w = World::new(5);
    w.found_off(1);
    w.done(w.intent(1));
    pause_all(&mut w);
    w.refused("Paused", w.attempt(1, 1, false));
    assert_eq!(w.stands(1), "Fencing");
    w.wait(secs(31));
    w.done(w.proven(1, 0, offs(1, secs(30), None)));
}

#[test]
fn a_policy_pauses_its_nodes_and_what_was_condemned_under_it() {
    let paused = |hash: &str, paused| {
        let mut policy = policy(Mode::Enforce);
        policy.hash = hash.to_owned();
        policy.paused = paused;
        Command::PolicySet(Box::new(policy))
    };
    let mut w = World::new(5);
    w.done(paused("paused", true));
    w.done(Command::Judge(Box::new(w.view(1).on())));
    assert_eq!(w.stands(1), "Held:Paused");
    assert_eq!(crate::permit::paused_by(&w.state, &name(1)).as_deref(), Some("policy/all"));
    let mut w = World::new(5);
    attempted(&mut w);
    w.done(paused("paused", true));
    w.refused("Paused", w.attempt(1, 2, true));
    w.done(paused("again", false));
    w.done(w.attempt(1, 2, true));
}

#[test]
fn another_policy_does_not_take_over_what_the_first_one_condemned() {
    let of = |name: &str, mode, pool: &str| {
        let mut policy = policy(mode);
        policy.name = name.to_owned();
        policy.node_selector.insert("pool".to_owned(), pool.to_owned());
        policy.hash = format!("{mode:?}{pool}");
        Command::PolicySet(Box::new(policy))
    };
    for gone in [false, true] {
        let mut w = World::new(5);
        w.done(Command::PolicyGone { name: "all".to_owned() });
        w.change(1, |f| {
            f.labels.insert("pool".to_owned(), "a".to_owned());
        });
        w.done(of("first", Mode::Enforce, "a"));
        w.done(w.heard(1));
        silent_on(&mut w);
        if gone {
            w.done(Command::PolicyGone { name: "first".to_owned() });
        } else {
            w.done(of("first", Mode::Observe, "other"));
        }
        assert_eq!(w.stands(1), "Held:Observe");
        // It may condemn anew, under its own terms.
        w.done(of("second", Mode::Enforce, "a"));
        w.done(w.heard(1));
        w.wait(secs(60));
        silent_on(&mut w);
        assert_eq!(w.incident(1).terms.as_ref().unwrap().name, "second");
    }
}

#[test]
fn the_policy_that_condemned_must_still_enforce_whoever_selects_the_node() {
    let mut w = World::new(5);
    let of = |name: &str, mode, pool: Option<&str>| {
        let mut policy = policy(mode);
        policy.name = name.to_owned();
        policy.hash = format!("{mode:?}{pool:?}");
        policy.node_selector = pool.into_iter().map(|p| ("pool".to_owned(), p.to_owned())).collect();
        Command::PolicySet(Box::new(policy))
    };
    attempted(&mut w);
    w.done(of("all", Mode::Enforce, Some("nowhere")));
    w.done(of("other", Mode::Enforce, None));
    assert_eq!(crate::permit::observes(&w.state, &name(1)), None);
    w.done(of("all", Mode::Observe, Some("nowhere")));
    w.refused("Observe", w.attempt(1, 2, true));
}
