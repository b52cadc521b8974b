//! Brakes and what stops commands, broken by hand.

use super::*;

#[test]
fn decisions_faster_than_the_pace() {
    let mut sim = released();
    let mut state = sim.state();
    let [first, second] = [3, 5].map(|node| condemned(&mut state, node, EvidenceClass::FoundOff));
    let before = with(&state, [first]);
    let later = |by: u64| {
        let mut after = with(&before, [second.clone()]);
        after.now = after.now + Span::from_ms(by);
        after
    };
    let calm = with(&state, [(3, Phase::Alive)]);
    let said = says(&mut sim, |world| {
        commit(world, Command::Tick, &calm, &before);
        commit(world, Command::Tick, &before, &later(1_000));
    });
    assert_eq!(said, Vec::<String>::new());
    let said = says(&mut sim, |world| commit(world, Command::Tick, &before, &later(1_999)));
    assert_eq!(said, ["the pace holds"]);
}

#[test]
fn more_intents_than_the_budget_has_and_more_of_a_domain_than_in_ten_minutes() {
    let mut sim = released();
    let mut state = sim.state();
    let silent = EvidenceClass::HostSilentBmcOn;
    let rack = |state: &mut State, id: &IncidentId| {
        "rack/r1".clone_into(&mut state.incidents.get_mut(id).expect("it is open").domain);
    };
    let mut wrong = Vec::new();
    for (turn, node) in [3, 5, 6].into_iter().enumerate() {
        let (_, phase) = condemned(&mut state, node, silent.clone());
        if let Phase::Condemned { incident, .. } = &phase {
            rack(&mut state, incident);
        }
        state.now = state.now + Span::from_secs(15);
        let before = with(&state, [(node, Phase::Alive)]);
        let is_condemned = with(&state, [(node, phase.clone())]);
        let intent = coroner_arbiter_core::phase::Intent {
            since: Mono::default(),
            progress: Mono::default(),
            stalled: None,
            attempts: 0,
            read_only: false,
        };
        let incident = IncidentId::of(&name(node), 7 + node as u64);
        let fencing = Phase::Fencing { incident, intent, attempt: None, released: None };
        let is_fenced = with(&state, [(node, fencing)]);
        says(&mut sim, |world| {
            world.truth.violations.clear();
            commit(world, Command::Tick, &before, &is_condemned);
        });
        wrong.extend(sim.violations().into_iter().map(|v| (turn, v.what)));
        says(&mut sim, |world| {
            world.truth.violations.clear();
            commit(world, Command::Tick, &is_condemned, &is_fenced);
        });
        wrong.extend(sim.violations().into_iter().map(|v| (turn, v.what)));
    }
    let said: Vec<(usize, &str)> = wrong.iter().map(|(turn, what)| (*turn, &what[..10])).collect();
    assert_eq!(said, [(2, "n6: 3 of r"), (2, "n6: intent")], "{wrong:?}");
}

#[test]
fn a_power_off_that_leaves_although_something_stops_it() {
    let mut sim = released();
    let before = sim.state();
    let mut stopped = |change: fn(&mut State)| {
        let mut after = before.clone();
        change(&mut after);
        says(&mut sim, |world| {
            world.truth.violations.clear();
            attempt(world);
            commit(world, Command::Tick, &after, &before);
            commit(world, Command::Tick, &before, &after);
            let sent = world.now + Span::from_ms(1_001);
            world.truth.looks.insert(name(4), sent);
            world.tell(&Fact::Command { machine: 4, replica: 0, off: true, sent });
        })
    };
    assert_eq!(stopped(|_| {}), Vec::<String>::new());
    let changes: [fn(&mut State); 6] = [
        |state| state.pause = Some(a_pause()),
        |state| state.nodes.get_mut(&name(4)).expect("a node").pause = Some(a_pause()),
        |state| state.bindings.get_mut(&name(4)).expect("bound").disabled = Some("x".to_owned()),
        |state| {
            let facts = state.nodes.get_mut(&name(4)).and_then(|node| node.facts.as_mut()).expect("seen");
            facts.labels.insert(coroner_shared::names::EXCLUDE_LABEL.to_owned(), "true".to_owned());
        },
        |state| state.policies.clear(),
        |state| state.policies.values_mut().for_each(|policy| policy.paused = true),
    ];
    for (number, change) in changes.into_iter().enumerate() {
        assert_eq!(stopped(change), ["barred is barred"], "change {number}");
    }
}

fn a_pause() -> Pause {
    Pause { who: "a person".to_owned(), why: "because".to_owned(), at: Mono::default() }
}
