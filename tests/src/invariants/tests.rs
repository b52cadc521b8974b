//! Each of these is done to a site by hand, and its invariant must say so: those that no planted bug makes speak first.
//! What planted bugs show of the others is in `tests/README.md`.

use coroner_arbiter_core::command::{Command, Entry, Outcome};
use coroner_arbiter_core::evidence::chained;
use coroner_arbiter_core::hears::Hears;
use coroner_arbiter_core::phase::{Attempt, Confirmation, EvidenceClass, FenceProof, HeldReason, Phase};
use coroner_arbiter_core::state::{Moment, Pause, State};
use coroner_arbiter_replica::Applied;
use coroner_shared::bmc::Login;
use coroner_shared::id::{BootId, IncidentId, NodeName, ReplicaId};
use coroner_shared::time::{Mono, Span};
use serde_json::json;

use crate::sim::truth::Fact;
use crate::sim::world::World;
use crate::sim::{By, Condition, Sim, Site};

mod brakes;
mod lives;

/// Every machine runs, nothing is committed yet.
fn site() -> Sim {
    Sim::quiet(Site::plain(1, 7, 0))
}

/// n4 lost power and was released.
fn released() -> Sim {
    let mut sim = site();
    sim.warm_up();
    sim.cut_power("n4");
    assert!(sim.run_until(Span::from_secs(60), |sim| sim.phase("n4") == "Released"));
    assert_eq!(sim.violations(), []);
    sim
}

/// Who speaks when that is done.
fn says(sim: &mut Sim, what: impl FnOnce(&mut World)) -> Vec<String> {
    sim.by_hand(what);
    sim.violations().into_iter().map(|violation| violation.invariant).collect()
}

fn name(node: usize) -> NodeName {
    NodeName::new(format!("n{node}")).expect("a name")
}

fn entry(key: &str, command: Command) -> Entry {
    let leader = ReplicaId::new(1).expect("an id");
    // Of no term that anybody led in: what is judged by who was heard then is not asked.
    Entry { span: Span::ZERO, leader, term: 0, key: key.to_owned(), command }
}

/// As an entry of its own, with what it decides on the evidence chain.
fn commit(world: &mut World, command: Command, before: &State, after: &State) {
    let mut after = after.clone();
    after.applied = before.applied + 1;
    for (name, node) in &after.nodes {
        let decides = matches!(node.phase, Phase::Condemned { .. } | Phase::ProvenOff { .. });
        let was = before.nodes.get(name).map_or("", |n| n.phase.name());
        let Some(incident) = node.phase.incident().filter(|_| decides && was != node.phase.name()) else {
            continue;
        };
        let record = after.incidents.get_mut(incident).expect("it is known");
        let line = Moment {
            at: after.now,
            index: after.applied,
            what: "by hand".to_owned(),
            detail: "(evidence 1)".to_owned(),
        };
        record.timeline.push_back(line);
        record.version = after.applied;
        after.evidence_chain = chained(&after.evidence_chain, "1");
    }
    commit_as_is(world, command, before, &after);
}

fn commit_as_is(world: &mut World, command: Command, before: &State, after: &State) {
    let entry = entry("by hand", command);
    world.tell(&Fact::Committed { entry: &entry, outcome: &Outcome::Done, before, after });
}

/// One more attempt of the first replica is committed in the open incident of n4.
fn attempt(world: &mut World) {
    let before = world.truth.state.clone();
    let mut after = before.clone();
    let (incident, _) = proof_of(&after);
    let record = after.incidents.get_mut(&incident).expect("it is known");
    record.last_attempt = Some(Attempt {
        number: record.last_attempt.as_ref().map_or(1, |last| last.number + 1),
        replica: world.replicas[0].id,
        term: 1,
        login: Login::Basic,
        at: after.now,
        answer: None,
        was_on: true,
    });
    commit(world, Command::Tick, &before, &after);
    world.truth.state = after;
}

/// The same state with other phases.
fn with(state: &State, phases: impl IntoIterator<Item = (usize, Phase)>) -> State {
    let mut state = state.clone();
    for (node, phase) in phases {
        let known = state.nodes.get_mut(&name(node)).expect("a node");
        known.phase = phase;
    }
    state
}

/// An incident about that node, as that of n4 was.
fn opened(state: &mut State, node: usize, class: EvidenceClass) -> IncidentId {
    let incident = state.incidents.values().next_back().expect("one is open").clone();
    let id = IncidentId::of(&name(node), 7 + node as u64);
    let domain = format!("host/n{node}");
    let changed =
        coroner_arbiter_core::state::Incident { node: name(node), class: Some(class), domain, ..incident };
    state.incidents.insert(id.clone(), changed);
    id
}

fn condemned(state: &mut State, node: usize, class: EvidenceClass) -> (usize, Phase) {
    let incident = opened(state, node, class.clone());
    (node, Phase::Condemned { incident, class })
}

fn proof_of(state: &State) -> (IncidentId, FenceProof) {
    let phase = &state.nodes[&name(4)].phase;
    let Phase::Released { incident, proof, .. } = phase else { panic!("n4 is {phase:?}") };
    (incident.clone(), proof.clone())
}

fn proven(incident: IncidentId, proof: FenceProof) -> Phase {
    Phase::ProvenOff { incident, proof, released: None, last_read_failed: None }
}

// === oracles ===

#[test]
fn a_workload_that_starts_where_another_machine_still_runs_it() {
    let mut sim = site();
    let said = says(&mut sim, |world| {
        world.machines[0].runs.insert(1, 0);
        world.tell(&Fact::Started { machine: 1, workload: 0, pod: 2 });
    });
    assert_eq!(said, ["no double run"]);
    // Nor does a frozen one leave off.
    let mut sim = site();
    let said = says(&mut sim, |world| {
        world.machines[0].runs.insert(1, 0);
        world.freeze(0);
        world.tell(&Fact::Started { machine: 1, workload: 0, pod: 2 });
    });
    assert_eq!(said, ["no double run"]);
}

#[test]
fn a_taint_on_a_node_whose_boot_may_still_run() {
    for frozen in [false, true] {
        let mut sim = site();
        let said = says(&mut sim, |world| {
            let boot = world.machines[2].boot.expect("it runs");
            if frozen {
                world.freeze(2);
            }
            world.tell(&Fact::Tainted { node: name(2), boot });
        });
        assert_eq!(said, ["release implies over", "released implies proven"]);
    }
}

#[test]
fn more_machines_down_by_our_hand_than_may_be() {
    let mut sim = site();
    sim.warm_up();
    let mut down = |hosts: &[usize]| {
        says(&mut sim, |world| {
            world.truth.violations.clear();
            for machine in 0..7 {
                let off = (world.now, BootId::from_bytes([1; 16]));
                world.machines[machine].off_by_us = hosts.contains(&machine).then_some(off);
            }
            world.tell(&Fact::TurnedOff { machine: hosts[0], by: By::Us });
        })
    };
    // Three of seven may be; replicas and etcd voters are n0 to n2.
    assert_eq!(down(&[3, 4, 5]), Vec::<String>::new());
    assert_eq!(down(&[3, 4, 5, 6]), ["bounded blast", "the floor holds"]);
    assert_eq!(down(&[0, 4]), Vec::<String>::new());
    assert_eq!(down(&[0, 2]), ["bounded blast"]);
}

#[test]
fn voters_that_host_no_replica_are_counted_as_well() {
    let mut plain = Site::plain(1, 7, 0);
    plain.control_plane = (0..7).map(|node| node > 3).collect();
    let mut sim = Sim::quiet(plain);
    sim.warm_up();
    let said = says(&mut sim, |world| {
        for host in [5, 6] {
            world.machines[host].off_by_us = Some((world.now, BootId::from_bytes([1; 16])));
            let (incident, why) = (IncidentId::of(&name(host), 1), HeldReason::Disputed);
            world.truth.state.nodes.get_mut(&name(host)).expect("a node").phase =
                Phase::Held { incident, why };
        }
        world.tell(&Fact::TurnedOff { machine: 6, by: By::Us });
    });
    assert_eq!(said, ["bounded blast"]);
    assert!(sim.violations()[0].what.contains("2 of 3 etcd voters"), "{:?}", sim.violations());
}

#[test]
fn more_in_flight_than_may_be() {
    let mut sim = released();
    let mut state = sim.state();
    let silent = EvidenceClass::HostSilentBmcOn;
    let first = condemned(&mut state, 3, silent.clone());
    let second = condemned(&mut state, 5, silent);
    let before = with(&state, [first]);
    let mut after = with(&before, [second]);
    // Long after the one before, so that the pace has nothing to say.
    after.now = after.now + Span::from_mins(20);
    let said = says(&mut sim, |world| commit(world, Command::Tick, &before, &after));
    assert_eq!(said, ["bounded blast"]);
}

#[test]
fn an_incident_that_nobody_speaks_of_any_more() {
    let mut sim = released();
    let said = says(&mut sim, |world| {
        let mut state = world.truth.state.clone();
        opened(&mut state, 5, EvidenceClass::HostSilentBmcOn);
        world.truth.state = state;
        world.tell(&Fact::End);
    });
    assert_eq!(said, ["nothing lost"]);
}

#[test]
fn what_others_set_on_a_node_is_gone_or_changed() {
    let ended = |change: fn(&mut World)| {
        let mut sim = site();
        sim.warm_up();
        says(&mut sim, |world| {
            change(world);
            world.tell(&Fact::End);
        })
    };
    let set = |world: &mut World| {
        world.people(&crate::sim::people::Act::ForeignTaint(3));
        world.people(&crate::sim::people::Act::ForeignTaint(3));
    };
    assert_eq!(ended(set), Vec::<String>::new());
    let one_gone = |world: &mut World| {
        world.people(&crate::sim::people::Act::ForeignTaint(3));
        world.api.change_node(&name(3), |node| node.taints.clear());
    };
    assert_eq!(ended(one_gone), ["clean end"]);
    let changed = |world: &mut World| {
        world.people(&crate::sim::people::Act::ForeignTaint(3));
        world.api.change_node(&name(3), |node| node.taints[0].value = "x".to_owned());
    };
    assert_eq!(ended(changed), ["clean end"]);
}

// === proofs and words ===

#[test]
fn a_proof_of_a_life_that_may_still_run() {
    let mut sim = released();
    let state = sim.state();
    let (incident, proof) = proof_of(&state);
    let before = with(&state, [(4, Phase::Alive)]);
    let after = with(&state, [(4, proven(incident, proof.clone()))]);
    assert_eq!(says(&mut sim, |world| commit(world, Command::Tick, &before, &after)), Vec::<String>::new());
    let said = says(&mut sim, |world| {
        let machine = &mut world.machines[4];
        (machine.condition, machine.boot) = (Condition::Frozen, Some(proof.incarnation().boot));
        commit(world, Command::Tick, &before, &after);
    });
    assert_eq!(said, ["proven implies off"]);
}

#[test]
fn a_release_by_a_proof_of_another_life() {
    let mut sim = released();
    let before = sim.state();
    let mut after = before.clone();
    let (incident, _) = proof_of(&after);
    let record = after.incidents.get_mut(&incident).expect("it is open");
    record.incarnation.boot = BootId::from_bytes([9; 16]);
    let said = says(&mut sim, |world| commit(world, Command::Tick, &before, &after));
    assert_eq!(said, ["released implies proven"]);
}

/// What a person said, about that incident and boot, and the state that it makes.
fn confirmed(state: &State, about: IncidentId, boot: Option<BootId>) -> (Command, State) {
    let (incident, proof) = proof_of(state);
    let life = proof.incarnation();
    let (who, why) = ("a person".to_owned(), "looked".to_owned());
    let told =
        json!({ "kind": "personConfirmed", "incarnation": life, "who": who, "why": why, "at": state.now });
    let word: FenceProof = serde_json::from_value(told).expect("a proof");
    let boot = boot.unwrap_or(life.boot);
    let confirmation = Confirmation { incident: about, node: life.node.clone(), boot, who, why };
    let command = Command::ConfirmOff { node: name(4), confirmation, heard: Hears::Silence };
    (command, with(state, [(4, proven(incident, word))]))
}

#[test]
fn a_word_about_another_incident_or_boot_or_a_machine_that_is_heard() {
    let mut sim = released();
    let state = sim.state();
    let (incident, proof) = proof_of(&state);
    let before = with(&state, [(4, Phase::Alive)]);
    let mut said = |about: &IncidentId, boot: Option<u8>| {
        let boot = boot.map(|byte| BootId::from_bytes([byte; 16]));
        let (command, after) = confirmed(&state, about.clone(), boot);
        says(&mut sim, |world| {
            world.truth.violations.clear();
            commit(world, command, &before, &after);
        })
    };
    assert_eq!(said(&incident, None), Vec::<String>::new());
    assert_eq!(said(&IncidentId::of(&name(4), 999), None), ["a person's word is bound"]);
    assert_eq!(said(&incident, Some(9)), ["a person's word is bound"]);
    let (_, after) = confirmed(&state, incident.clone(), None);
    let nobody = says(&mut sim, |world| {
        world.truth.violations.clear();
        commit(world, Command::Tick, &before, &after);
    });
    assert_eq!(nobody, ["a person's word is bound"]);
    // It runs, and the hosts of replicas get its beacons.
    let (command, after) = confirmed(&state, incident, None);
    let heard = says(&mut sim, |world| {
        world.truth.violations.clear();
        let boot = proof.incarnation().boot;
        (world.machines[4].condition, world.machines[4].boot) = (Condition::Runs, Some(boot));
        for second in 0..6 {
            world.now = world.now + Span::from_secs(u64::from(second > 0));
            (0..3).for_each(|receiver| world.beacon_arrives(receiver, 4));
        }
        let mut entry = entry("by hand", command);
        entry.term = u64::MAX;
        world.tell(&Fact::Committed {
            entry: &entry,
            outcome: &Outcome::Done,
            before: &before,
            after: &after,
        });
    });
    // Nor is it on the evidence chain, done so by hand.
    assert_eq!(heard, ["a person's word is bound", "the chain is whole"]);
}

#[test]
fn a_command_for_an_incident_that_was_closed_long_ago() {
    let mut sim = released();
    let (incident, _) = proof_of(&sim.state());
    let mut closed = |ago: Option<u64>| {
        says(&mut sim, |world| {
            world.truth.violations.clear();
            world.truth.looks.insert(name(4), world.now);
            attempt(world);
            let now = world.truth.state.now;
            let record = world.truth.state.incidents.get_mut(&incident).expect("it is known");
            record.closed = ago.map(|seconds| (now.back(Span::from_secs(seconds)), "Returned".to_owned()));
            let sent = world.now;
            world.tell(&Fact::Command { machine: 4, replica: 0, off: true, sent });
        })
    };
    assert_eq!(closed(None), Vec::<String>::new());
    assert_eq!(closed(Some(2)), Vec::<String>::new());
    assert_eq!(closed(Some(15)), ["right machine", "one executor"]);
}

// === liveness ===

#[test]
fn a_release_that_comes_too_late() {
    let due = |seconds: u64| {
        let mut sim = site();
        sim.warm_up();
        sim.cut_power("n4");
        assert!(sim.run_until(Span::from_secs(60), |sim| sim.phase("n4") == "Fencing"));
        sim.by_hand(|world| {
            let now = world.now;
            world.now = now.back(Span::from_secs(seconds));
            world.tell(&Fact::Due { machine: 4, proven: false });
            world.now = now;
        });
        assert!(sim.run_until(Span::from_secs(60), |sim| sim.phase("n4") == "Released"));
        says(&mut sim, |world| world.tell(&Fact::Due { machine: 4, proven: true }))
    };
    assert_eq!(due(0), Vec::<String>::new());
    assert_eq!(due(30), ["in time"]);
}

#[test]
fn the_same_page_again_and_again_and_a_log_that_fills_by_itself() {
    let mut sim = site();
    let said = says(&mut sim, |world| {
        for page in 0..7 {
            world.paged(&name(3), "Held", "because");
            world.now = world.now + Span::from_secs(if page < 4 { 201 } else { 199 });
        }
    });
    // Three in ten minutes may be, four may not.
    assert_eq!(said, ["few pages"]);
    let mut sim = site();
    let said = says(&mut sim, |world| {
        for index in 1..=900 {
            let entry = entry(&format!("tick {index}"), Command::Tick);
            world.committed(0, &Applied { index, entry, outcome: Outcome::Done });
        }
        world.truth.violations.clear();
        world.tell(&Fact::End);
    });
    assert_eq!(said, ["small log"]);
}

// === the log ===

#[test]
fn replicas_that_differ_and_two_that_lead() {
    let mut sim = site();
    sim.warm_up();
    let said = says(&mut sim, |world| {
        let (index, entry) = (world.committed_index(), entry("another", Command::Tick));
        world.committed(1, &Applied { index, entry, outcome: Outcome::Done });
    });
    assert_eq!(said, ["replicas agree"]);
    let mut sim = site();
    let said = says(&mut sim, |world| {
        world.leads_in(0, 3);
        world.leads_in(0, 3);
        world.leads_in(1, 4);
        world.leads_in(2, 3);
    });
    assert_eq!(said, ["one leader per term"]);
}
