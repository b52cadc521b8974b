//! Lives, their evidence and their end, done to a site by hand.

use coroner_arbiter_core::evidence::LookedAt;
use coroner_arbiter_core::state::{Goodbye, Incident};
use coroner_arbiter_core::view::{BmcRead, View};
use coroner_shared::beacon::GoodbyeKind;

use super::*;

/// n4 was condemned a moment ago, by silence or because it was found off.
fn just_condemned(freezes: bool) -> Sim {
    let mut sim = site();
    sim.warm_up();
    if freezes {
        sim.freeze("n4");
    } else {
        sim.cut_power("n4");
    }
    let is_decided = |sim: &Sim| matches!(sim.phase("n4"), "Condemned" | "Fencing");
    assert!(sim.run_until(Span::from_secs(60), is_decided));
    sim
}

// === evidence ===

#[test]
fn a_decision_that_is_not_on_the_chain_and_a_record_that_was_changed() {
    let mut sim = released();
    let mut state = sim.state();
    let (node, phase) = condemned(&mut state, 3, EvidenceClass::HostSilentBmcOn);
    let mut after = with(&state, [(node, phase)]);
    after.now = after.now + Span::from_mins(20);
    let said = says(&mut sim, |world| commit_as_is(world, Command::Tick, &state, &after));
    assert_eq!(said, ["the chain is whole"]);
    // What condemned n4, with and without a changed word.
    let seen = |change: fn(&mut Incident)| {
        let mut sim = just_condemned(false);
        let mut after = sim.state();
        // As the log was just before that entry.
        let mut before = with(&after, [(4, Phase::Alive)]);
        before.evidence_chain.clear();
        let incident = after.incidents.values_mut().next_back().expect("one is open");
        let record = incident.record.as_ref().expect("it rests on something");
        (after.evidence_chain, after.applied) = (chained("", &record.digest()), record.index);
        incident.version = record.index;
        change(incident);
        says(&mut sim, |world| {
            // Only the chain is asked.
            commit_as_is(world, Command::Tick, &before, &after);
            world.truth.violations.retain(|violation| violation.invariant == "the chain is whole");
        })
    };
    assert_eq!(seen(|_| {}), Vec::<String>::new());
    let other = seen(|incident| {
        incident.record.as_mut().expect("it rests on something").brakes_before.down += 1;
    });
    assert_eq!(other, ["the chain is whole"]);
}

// === rules ===

/// What n4 was condemned by, judged again with a change.
fn judged(freezes: bool, change: impl FnOnce(&mut View, &mut State)) -> Option<String> {
    let mut sim = just_condemned(freezes);
    let after = sim.state();
    let (id, incident) = after.incidents.iter().next_back().expect("one is open");
    let record = incident.record.clone().expect("it rests on something");
    let LookedAt::View { mut view, .. } = record.looked_at else { panic!("it was judged") };
    let class = incident.class.clone().expect("it has one");
    let after = with(&after, [(4, Phase::Condemned { incident: id.clone(), class })]);
    let mut before = with(&after, [(4, Phase::Alive)]);
    change(&mut view, &mut before);
    sim.by_hand(|world| {
        // Of that very leader.
        let (leader, term) = (view.leader, view.term);
        let key = "by hand".to_owned();
        let entry = Entry { span: Span::ZERO, leader, term, key, command: Command::Judge(view) };
        world.tell(&Fact::Committed {
            entry: &entry,
            outcome: &Outcome::Done,
            before: &before,
            after: &after,
        });
    });
    sim.violations().into_iter().find(|v| v.invariant == "rules hold").map(|v| v.what)
}

#[test]
fn an_arbiter_that_is_blind_condemns() {
    for freezes in [false, true] {
        assert_eq!(judged(freezes, |_, _| {}), None);
        assert_eq!(judged(freezes, |view, _| view.fleet.unexplained = 1), None);
        let two = judged(freezes, |view, _| view.fleet.unexplained = 2).expect("it says so");
        assert!(two.contains("2 of 6 others are unheard"), "{two}");
        let alone = judged(freezes, |view, _| view.fleet.quorum = false).expect("it says so");
        assert!(alone.contains("no quorum"), "{alone}");
    }
}

#[test]
fn off_is_believed_too_soon_in_a_goodbye() {
    let off_for = |kind: GoodbyeKind, seconds: u64, ago: u64| {
        judged(false, |view, before| {
            let over = Span::from_secs(seconds);
            view.bmc.iter_mut().for_each(|bmc| bmc.read = BmcRead::Off { reads: 9, over });
            before.now = before.now + Span::from_mins(60);
            let at = before.now.back(Span::from_secs(ago));
            let node = before.nodes.get_mut(&view.node).expect("it is known");
            let boot = view.incarnation.boot;
            node.goodbye = Some(Goodbye { boot, kind, at, seq: u64::MAX });
        })
    };
    let (reboot, shutdown) = (GoodbyeKind::Reboot, GoodbyeKind::Shutdown);
    assert!(off_for(reboot, 119, 130).is_some_and(|what| what.contains("read Off for 2m")));
    assert_eq!(off_for(reboot, 120, 130), None);
    assert!(off_for(shutdown, 29, 30).is_some_and(|what| what.contains("read Off for 30")));
    assert_eq!(off_for(shutdown, 30, 30), None);
    assert_eq!(off_for(GoodbyeKind::AgentRestart, 2, 3), None);
    // A goodbye that is over protects nobody.
    assert_eq!(off_for(reboot, 2, 3_000), None);
}

#[test]
fn a_node_that_dies_again_and_again_is_left_to_a_person() {
    let mut sim = released();
    let mut state = sim.state();
    let mut said = Vec::new();
    for turn in 0..3 {
        // Long after the one before, so that no other brake has anything to say.
        state.now = state.now + Span::from_mins(60);
        let alive = with(&state, [(3, Phase::Alive)]);
        let class = EvidenceClass::HostSilentBmcOn;
        let same = opened(&mut state, 3, class.clone());
        // An incident of its own each time: none counts against itself.
        let incident = IncidentId::of(&name(3), 100 + turn);
        let record = state.incidents.remove(&same).expect("it is open");
        state.incidents.insert(incident.clone(), record);
        let is_condemned = with(&state, [(3, Phase::Condemned { incident: incident.clone(), class })]);
        let (_, proof) = proof_of(&state);
        let mut is_proven = with(&state, [(3, proven(incident.clone(), proof))]);
        is_proven.incidents.get_mut(&incident).expect("it is open").proven = Some(is_proven.now);
        let condemns = says(&mut sim, |world| commit(world, Command::Tick, &alive, &is_condemned));
        said.extend(condemns);
        sim.by_hand(|world| {
            commit(world, Command::Tick, &is_condemned, &is_proven);
            world.truth.violations.clear();
        });
    }
    // The third of three.
    assert_eq!(said, ["the pace holds"]);
}

// === commands ===

#[test]
fn a_power_off_of_another_replica_than_the_attempts_and_a_second_one() {
    let mut sim = released();
    let mut sends = |replica: usize, attempted: bool| {
        says(&mut sim, |world| {
            world.truth.violations.clear();
            if attempted {
                attempt(world);
            }
            world.truth.looks.insert(name(4), world.now);
            let sent = world.now;
            world.tell(&Fact::Command { machine: 4, replica, off: true, sent });
        })
    };
    // Found off: the log has one attempt, and it was sent.
    assert_eq!(sends(0, false), ["one executor"]);
    assert_eq!(sends(1, true), ["one executor"]);
    assert_eq!(sends(0, false), Vec::<String>::new());
    assert_eq!(sends(0, false), ["one executor"]);
    assert_eq!(sends(0, true), Vec::<String>::new());
}

// === the end of a life ===

#[test]
fn a_pod_of_a_released_life_that_begins_to_run_again() {
    let mut sim = site();
    sim.warm_up();
    let said = says(&mut sim, |world| {
        let on = (0..7).find(|node| world.api.pods_of(&name(*node)).next().is_some());
        let on = on.expect("somebody runs one");
        let of = world.api.pods_of(&name(on)).map(|(uid, pod)| (uid, pod.workload)).next();
        let (pod, workload) = of.expect("it runs one");
        world.tell(&Fact::Tainted { node: name(on), boot: BootId::from_bytes([7; 16]) });
        world.truth.violations.clear();
        world.machines[on].runs.clear();
        world.tell(&Fact::Started { machine: on, workload, pod: pod + 1_000 });
        world.tell(&Fact::Started { machine: on, workload, pod });
    });
    assert_eq!(said, ["a released pod is over"]);
}

#[test]
fn a_node_that_runs_well_again_and_is_not_let_back() {
    let well_for = |seconds: u64, healed: bool| {
        let mut sim = released();
        sim.power_on("n4");
        assert!(sim.run_until(Span::from_mins(10), |sim| sim.phase("n4") == "Returning"));
        sim.run_for(Span::from_secs(15));
        assert_eq!(sim.phase("n4"), "Returning");
        says(&mut sim, |world| {
            world.truth.settled = healed;
            let state = world.truth.state.clone();
            commit(world, Command::Tick, &state, &state);
            world.now = world.now + Span::from_secs(seconds);
            commit(world, Command::Tick, &state, &state);
        })
    };
    assert_eq!(well_for(60, true), Vec::<String>::new());
    assert_eq!(well_for(61, true), ["recovers"]);
    assert_eq!(well_for(600, false), Vec::<String>::new());
}

#[test]
fn a_storm_or_a_finding_that_outlives_what_it_was_about() {
    let ended = |change: fn(&mut World)| {
        let mut sim = site();
        sim.warm_up();
        sim.run_for(Span::from_secs(30));
        says(&mut sim, |world| {
            world.truth.settled = true;
            change(world);
            world.tell(&Fact::End);
        })
    };
    assert_eq!(ended(|_| {}), Vec::<String>::new());
    let storm = |world: &mut World| {
        let now = world.truth.state.now;
        world.truth.state.brakes.storm = Some((now, now));
    };
    assert_eq!(ended(storm), ["settles"]);
    // Its agent is gone while its kubelet goes on: somebody has to be told, for as long as it is so.
    let mut sim = site();
    sim.warm_up();
    sim.by_hand(|world| world.machines[3].agent = None);
    assert!(sim.run_until(Span::from_secs(60), |sim| !sim.findings().is_empty()), "{}", sim.story());
    let said = says(&mut sim, |world| {
        world.truth.settled = true;
        world.tell(&Fact::End);
    });
    assert_eq!(said, ["settles"]);
}
