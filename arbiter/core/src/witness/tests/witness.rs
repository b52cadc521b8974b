//! One replica's hearing.

use coroner_shared::beacon::{Answer, Path, ProbeAnswer, ProbeOutcome, WorkedPath};
use coroner_shared::health::HealthSummary;

use super::*;
use crate::phase::Phase;

#[test]
fn a_beacon_counts_once_and_old_ones_neither_prove_nor_spoil() {
    let mut h = Heard::new();
    assert_eq!(h.beacon(1000, 3, 100), Taken::Proof);
    assert_eq!(h.beacon(5000, 3, 100), Taken::Old);
    assert_eq!(h.beacon(5000, 3, 99), Taken::Old);
    assert_eq!(h.proof(5000, 3), Some(4000));
    assert_eq!(h.beacon(6000, 3, 101), Taken::Proof);
    assert_eq!(h.beacon(6000, 42, 101), Taken::Unknown);
    let stranger =
        Proven::trusted(Beacon { node: NodeUid::new("other").unwrap(), ..beacon_of(3, boot(3, 0), 200) });
    assert_eq!(h.witness.beacon(at(6000), &stranger, None), Taken::Unknown);
}

#[test]
fn what_enough_observers_have_already_is_old_news() {
    // Four of five observers (H) say that they have 100; a beacon that was lost on its way to this replica is replayed.
    let mut h = Heard::new();
    h.beacon(1000, 5, 90);
    for from in 0..4 {
        h.silent(3000, from, 1, 5, 2000, 100);
    }
    assert_eq!(h.beacon(3500, 5, 95), Taken::Old);
    assert_eq!(h.beacon(3500, 5, 100), Taken::Old);
    assert_eq!(h.beacon(3500, 5, 101), Taken::Proof, "but a newer one is life");
    assert_eq!(h.proof(3600, 5), Some(100));
}

#[test]
fn fewer_liars_than_it_takes_to_condemn_cannot_make_a_living_host_look_old() {
    let mut h = Heard::new();
    for from in 0..3 {
        h.silent(3000, from, 1, 5, 2000, 1_000_000);
    }
    assert_eq!(h.beacon(3500, 5, 95), Taken::Proof);
    h.silent(3600, 3, 1, 5, 2000, 1_000_000);
    assert_eq!(h.beacon(3700, 5, 96), Taken::Old, "H liars could: that is what H is for");
}

#[test]
fn a_lying_observer_cannot_age_a_beacon_that_others_bring() {
    let mut h = Heard::new();
    h.heard(3000, 0, 1, 5, 100, 60_000);
    assert_eq!(h.proof(3000, 5), Some(60_000), "its own word is dated as it says");
    h.heard(3050, 1, 1, 5, 100, 0);
    assert_eq!(h.proof(3050, 5), Some(0));
    assert_eq!(h.beacon(3100, 5, 100), Taken::Proof, "and what came first-hand is dated first-hand");
}

#[test]
fn boots_once_left_never_come_back() {
    let mut h = Heard::new();
    let newer = Proven::trusted(beacon_of(3, boot(3, 1), 1));
    h.beacon(1000, 3, 500);
    assert_eq!(h.witness.beacon(at(2000), &newer, None), Taken::Proof, "not registered yet: a veto");
    let member = h.state.nodes.get_mut(&name(3)).unwrap().member.as_mut().unwrap();
    member.left_boots.push_back(boot(3, 0));
    member.boot = boot(3, 1);
    h.witness.sync(at(2000), &h.state);
    assert_eq!(h.beacon(3000, 3, 501), Taken::LeftBoot);
    h.heard(3000, 0, 1, 3, 502, 0);
    h.witness.registered(at(3000), &uid(3), boot(3, 0));
    assert_eq!(h.proof(10_000, 3), Some(8000), "nothing of the old boot is left");
    h.witness.registered(at(4000), &uid(3), boot(3, 1));
    assert_eq!(h.proof(10_000, 3), Some(6000), "a registration is a proof of life");
    h.witness.registered(at(5000), &NodeUid::new("other").unwrap(), boot(3, 1));
}

#[test]
fn traffic_of_a_replica_is_life_of_its_host() {
    let mut h = Heard::new();
    h.witness.replica_traffic(at(2000), replica(2));
    h.witness.replica_traffic(at(2000), replica(9));
    assert_eq!(h.proof(5000, 1), Some(3000), "replica 2 runs on n01");
    assert_eq!(h.proof(5000, 0), None);
}

#[test]
fn only_those_who_are_not_plainly_well_are_listed() {
    let mut h = Heard::new();
    for i in 0..6 {
        h.beacon(1000, i, 1);
    }
    assert_eq!(names(&h.summary(2250).nodes), [], "all were heard within S");
    assert!(!h.summary(2250).is_urgent(&h.state));
    assert_eq!(h.summary(2251).nodes.len(), 6);
    for i in 0..6 {
        h.beacon(3000, i, 2);
    }
    h.silent(3000, 0, 1, 5, 1500, 2);
    assert_eq!(names(&h.summary(3001).nodes), [name(5)]);
    assert!(h.summary(3001).is_urgent(&h.state));
    assert_eq!(h.summary(3001).reporters.len(), 1, "of its observers only one ever spoke");
    h.heard(3100, 0, 2, 5, 3, 0);
    assert_eq!(names(&h.summary(3101).nodes), [name(5)], "the others may not know yet");
    assert!(!h.summary(3101).is_urgent(&h.state));
    for i in 0..6 {
        h.beacon(74_000, i, 3);
    }
    assert_eq!(names(&h.summary(74_001).nodes), []);
    // Ill, twofold or waited for.
    let ill = Proven::trusted(Beacon { health: HealthSummary::KUBELET_DEAD, ..beacon_of(2, boot(2, 0), 3) });
    h.witness.beacon(at(74_200), &Proven::trusted(Beacon { seq: 4, ..ill.beacon().clone() }), None);
    assert_eq!(names(&h.summary(74_201).nodes), [name(2)]);
    h.beacon(74_300, 2, 5);
    h.state.nodes.get_mut(&name(4)).unwrap().in_storm = true;
    assert_eq!(names(&h.summary(74_301).nodes), [name(4)]);
    let node = h.state.nodes.get_mut(&name(4)).unwrap();
    node.in_storm = false;
    node.phase = Phase::Returning {
        incident: coroner_shared::id::IncidentId::from("i".to_owned()),
        boot: boot(4, 0),
        released: None,
        taint_removed: None,
        waived: None,
    };
    assert_eq!(names(&h.summary(74_301).nodes), [name(4)]);
}

/// A machine may be off for days after its release. While it was in the summary of a follower, that follower wrote to
/// the leader twenty times a second.
#[test]
fn the_silence_of_who_is_released_is_not_urgent_but_its_life_is() {
    let mut h = Heard::new();
    for i in 0..6 {
        h.beacon(1000, i, 1);
    }
    h.silent(3000, 0, 1, 5, 1500, 1);
    for i in 0..5 {
        h.beacon(3000, i, 2);
    }
    assert!(h.summary(3001).is_urgent(&h.state), "it is suspect");
    let mut released = crate::apply::tests::world::World::new(6);
    released.released(5);
    h.state.nodes.get_mut(&name(5)).unwrap().phase = released.phase(5).clone();
    assert_eq!(names(&h.summary(3001).nodes), [name(5)]);
    assert!(!h.summary(3001).is_urgent(&h.state));
    h.beacon(3100, 5, 9);
    assert!(h.summary(3101).is_urgent(&h.state), "a second writer, perhaps");
    h.silent(3200, 0, 2, 4, 1500, 1);
    assert!(h.summary(4700).is_urgent(&h.state), "another one");
}

#[test]
fn what_the_log_waits_for_is_always_listed() {
    for set in [
        (|n: &mut Node| n.would_condemn_said = Some(boot(4, 0))) as fn(&mut Node),
        |n| {
            n.goodbye = Some(crate::state::Goodbye {
                kind: coroner_shared::beacon::GoodbyeKind::Reboot,
                boot: boot(4, 0),
                seq: 1,
                at: at(0),
            });
        },
        |n| n.member.as_mut().unwrap().old_key = Some(coroner_shared::keys::PublicKey::from_bytes([5; 32])),
    ] {
        let mut h = Heard::new();
        for i in 0..6 {
            h.beacon(1000, i, 1);
        }
        set(h.state.nodes.get_mut(&name(4)).unwrap());
        assert_eq!(names(&h.summary(1001).nodes), [name(4)]);
    }
}

#[test]
fn an_accusation_stands_until_it_is_withdrawn_with_a_newer_beacon() {
    let mut h = Heard::new();
    h.silent(3000, 0, 5, 5, 1500, 90);
    assert_eq!(h.accuses(3000, 0, 5), Some(1500));
    assert_eq!(h.accuses(60_000, 0, 5), Some(58_500));
    h.heard(60_100, 0, 6, 5, 91, 100);
    assert_eq!(h.accuses(60_200, 0, 5), None);
    assert_eq!(h.proof(60_200, 5), Some(200), "and the beacon proves life");
    // Sent again, as it is until it is acknowledged.
    h.heard(60_300, 0, 6, 5, 91, 300);
    assert_eq!(h.proof(60_300, 5), Some(300), "it counts once");
    assert_eq!(h.accuses(60_300, 0, 5), None);
    // Overtaken.
    h.silent(60_400, 0, 5, 5, 57_000, 90);
    assert_eq!(h.accuses(60_400, 0, 5), None);
}

#[test]
fn a_withdrawal_with_a_beacon_that_h_observers_had_before_withdraws_nothing() {
    let mut h = Heard::new();
    for from in 0..4 {
        h.silent(3000 + from as u64, from, 1, 5, 2000, 100);
    }
    h.heard(9000, 0, 2, 5, 99, 0);
    // Silent since what the others had last.
    assert_eq!(h.accuses(9000, 0, 5), Some(7997));
    assert_eq!(h.proof(9000, 5), None);
}

#[test]
fn a_withdrawal_without_a_proof_is_not_heard_of() {
    let mut h = Heard::new();
    h.silent(3000, 0, 1, 5, 1500, 90);
    let forged =
        Hearing::Heard { beacon: SignedBeacon { bytes: vec![1, 2, 3], signature: [0; 64] }, ago: span(0) };
    h.batch(3100, 0, 2, false, vec![(5, forged)]);
    assert_eq!(h.accuses(3100, 0, 5), Some(1600));
}

#[test]
fn a_snapshot_withdraws_what_it_does_not_name() {
    let mut h = Heard::new();
    h.silent(3000, 0, 1, 5, 1500, 90);
    h.silent(3000, 0, 2, 4, 1500, 90);
    h.batch(4000, 0, 3, true, vec![(5, silence(5, 2500, 90))]);
    assert_eq!(h.accuses(4000, 0, 5), Some(2500));
    assert_eq!(h.accuses(4000, 0, 4), None);
    h.batch(5000, 0, 2, true, Vec::new());
    assert_eq!(h.accuses(5000, 0, 5), Some(3500), "an older snapshot says nothing");
}

#[test]
fn a_claim_to_hear_is_no_proof_of_life() {
    let mut h = Heard::new();
    h.status(1000, 0, 1, &[5], &[]);
    let listed = h.listed(1500, 5).unwrap();
    assert!(listed.proofs.is_empty());
    let edge = listed.edges.iter().find(|e| e.observer == name(0)).unwrap();
    assert_eq!((edge.hears_ago, edge.heard_once), (Some(span(500)), true));
    let other = listed.edges.iter().find(|e| e.observer == name(1)).unwrap();
    assert_eq!((other.hears_ago, other.heard_once), (None, false));
}

#[test]
fn an_old_status_says_nothing() {
    let mut h = Heard::new();
    h.status(1000, 0, 7, &[], &[SelfDoubt::Pressure]);
    h.status(2000, 0, 6, &[5], &[]);
    let summary = h.summary(2000);
    assert_eq!(summary.reporters[0].doubts, [SelfDoubt::Pressure]);
    let listed = summary.nodes.iter().find(|n| n.node == name(5)).unwrap();
    assert!(listed.edges.iter().all(|e| e.hears_ago.is_none()));
    h.status(3000, 0, 8, &[5], &[]);
    assert!(h.summary(3000).reporters[0].doubts.is_empty());
}

#[test]
fn a_status_of_somebody_else_is_not_taken_for_it() {
    let mut h = Heard::new();
    h.beacon(1000, 0, 7);
    let status = Status {
        beacon: signed(0, 7),
        slice: 1,
        hears: vec![uid(5)],
        doubts: Vec::new(),
        worked: Vec::new(),
    };
    h.witness.status(at(1000), &uid(1), &status, &proven(0, 7));
    assert!(h.listed(1000, 5).unwrap().edges.iter().all(|e| e.hears_ago.is_none()));
}

#[test]
fn paths_that_worked_are_merged_from_statuses() {
    let mut h = Heard::new();
    for (seq, path, ago) in [(1, Path::Kubelet, 5000), (2, Path::Ping, 9000)] {
        h.beacon(20_000 + seq, 0, seq);
        let status = Status {
            beacon: signed(0, seq),
            slice: 1,
            hears: Vec::new(),
            doubts: Vec::new(),
            worked: vec![WorkedPath { subject: uid(5), path, ago: span(ago) }],
        };
        h.witness.status(at(20_000 + seq), &uid(0), &status, &proven(0, seq));
    }
    let listed = h.listed(21_001, 5).unwrap();
    let edge = listed.edges.iter().find(|e| e.observer == name(0)).unwrap();
    assert_eq!(edge.worked_ago, Some(span(6000)), "the newest of all paths");
}

#[test]
fn an_agent_of_a_new_boot_knows_nothing_of_what_the_one_before_said() {
    let mut h = Heard::new();
    h.silent(3000, 0, 900, 5, 1500, 90);
    let batch = ReportBatch {
        boot: boot(0, 1),
        number: 1,
        snapshot: false,
        doubts: Vec::new(),
        reports: vec![Report { subject: uid(4), hearing: silence(4, 1500, 3) }],
    };
    h.witness.reports(at(4000), &uid(0), &CheckedBatch::trusted(&batch));
    assert_eq!(h.accuses(4000, 0, 5), None);
    assert_eq!(h.accuses(4000, 0, 4), Some(1500), "though its numbers begin anew");
    assert_eq!(h.summary(4000).reporters[0].boot, boot(0, 1));
}

#[test]
fn only_assigned_observers_accuse_but_anybody_may_bring_a_beacon() {
    let mut state = World::racks(12, 3).state;
    let stranger = (0..12).find(|i| !state.observers.of(&name(5)).contains(&name(*i)) && *i != 5).unwrap();
    let mut h = Heard::new();
    std::mem::swap(&mut h.state, &mut state);
    h.witness.sync(at(0), &h.state);
    h.silent(3000, stranger, 1, 5, 1500, 90);
    assert!(h.listed(3000, 5).unwrap().edges.iter().all(|e| e.silence.is_none()));
    h.heard(3000, stranger, 2, 5, 91, 0);
    assert_eq!(h.listed(4000, 5), None, "heard 1 s ago: calm");
    assert_eq!(h.proof(5000, 5), Some(2000));
}

fn answer(number: u64, outcomes: Vec<ProbeOutcome>, beacon: Option<u64>) -> CheckedAnswer {
    let beacon = beacon.map(|seq| signed(5, seq));
    CheckedAnswer::trusted(&ProbeAnswer { number, subject: uid(5), outcomes, beacon })
}

fn outcome(path: Path, answer: Answer, asked_ago: u64, worked_ago: Option<u64>) -> ProbeOutcome {
    ProbeOutcome { path, answer, asked_ago: span(asked_ago), worked_ago: worked_ago.map(span) }
}

#[test]
fn answers_of_probers_are_kept_with_their_ages_and_forgotten_after_two_minutes() {
    let mut h = Heard::new();
    let nothing = outcome(Path::Kubelet, Answer::Nothing, 300, None);
    h.witness.probe_answer(at(5000), &uid(1), &answer(7, vec![nothing], None));
    let probes = h.listed(6000, 5).unwrap().probes;
    assert_eq!((probes[0].number, probes[0].outcomes[0].asked_ago), (7, span(1300)));
    h.witness.probe_answer(at(6000), &uid(1), &answer(6, vec![nothing], None));
    assert_eq!(h.listed(6000, 5).unwrap().probes[0].number, 7, "a late answer to an older question");
    assert_eq!(h.listed(125_000, 5).unwrap().probes.len(), 1);
    assert!(h.listed(125_001, 5).unwrap().probes.is_empty());
}

#[test]
fn a_beacon_in_an_answer_is_dated_by_when_the_prober_got_it() {
    let mut h = Heard::new();
    let held = outcome(Path::Agent, Answer::Nothing, 300, Some(2000));
    h.witness.probe_answer(at(5000), &uid(1), &answer(1, vec![held], Some(50)));
    assert_eq!(h.proof(5000, 5), Some(2000), "an observer's newest, 2 s old");
    let fresh = outcome(Path::Agent, Answer::Answered, 300, Some(100));
    h.witness.probe_answer(at(6000), &uid(2), &answer(2, vec![fresh], Some(51)));
    assert_eq!(h.proof(6000, 5), Some(100));
    h.witness.probe_answer(at(9000), &uid(2), &answer(3, Vec::new(), Some(51)));
    assert_eq!(h.proof(9000, 5), Some(3100), "the same again");
}

#[test]
fn a_pause_of_this_process_ages_nobody() {
    let mut h = Heard::new();
    h.witness.tick(at(9000));
    h.beacon(9000, 5, 1);
    h.silent(9000, 0, 1, 4, 1500, 1);
    let tick = h.witness.tick(at(10_500));
    assert_eq!((tick.gap, tick.step_down), (span(1500), false));
    assert_eq!(h.proof(10_550, 5), Some(50));
    assert_eq!(h.accuses(10_550, 0, 4), Some(1550));
}

#[test]
fn only_members_are_kept() {
    let mut h = Heard::new();
    h.silent(3000, 0, 1, 5, 1500, 90);
    h.state.nodes.remove(&name(5));
    crate::observers::reseat(&mut h.state);
    h.witness.sync(at(3000), &h.state);
    assert_eq!(h.beacon(3000, 5, 91), Taken::Unknown);
    assert_eq!(h.listed(3000, 5), None);
    // A new Node under the old name is another member.
    let mut other = World::racks(6, 3).state;
    std::mem::swap(&mut h.state, &mut other);
    h.state.nodes.get_mut(&name(5)).unwrap().member.as_mut().unwrap().uid = NodeUid::new("new").unwrap();
    crate::observers::reseat(&mut h.state);
    h.witness.sync(at(4000), &h.state);
    assert_eq!(h.witness.name_of(&uid(5)), None);
    assert!(h.listed(4000, 5).unwrap().edges.iter().all(|e| e.silence.is_none()));
}

#[test]
fn many_probers_cost_no_memory() {
    let mut h = Heard::new();
    let mut world = World::racks(40, 3);
    std::mem::swap(&mut h.state, &mut world.state);
    h.witness.sync(at(0), &h.state);
    for i in 6..40 {
        h.witness.probe_answer(at(1000), &uid(i), &answer(1, Vec::new(), None));
    }
    assert_eq!(h.listed(1000, 5).unwrap().probes.len(), 24);
}

/// This replica's host booted 4 s ago; what it is told is older than that.
#[test]
fn what_a_freshly_booted_replica_is_told_keeps_its_age() {
    let mut h = Heard::new();
    h.heard(4000, 0, 1, 5, 90, 150_000);
    assert_eq!(h.proof(4000, 5), Some(150_000));
    h.silent(4100, 1, 1, 5, 120_000, 92);
    assert_eq!(h.accuses(4100, 1, 5), Some(120_000));
    let worked = vec![WorkedPath { subject: uid(5), path: Path::Ping, ago: span(900_000) }];
    let status = Status { beacon: signed(2, 1), slice: 1, hears: Vec::new(), doubts: Vec::new(), worked };
    h.beacon(4200, 2, 1);
    h.witness.status(at(4200), &uid(2), &status, &proven(2, 1));
    let listed = h.listed(4200, 5).unwrap();
    let edge = listed.edges.iter().find(|e| e.observer == name(2)).unwrap();
    assert_eq!(edge.worked_ago, Some(span(900_000)));
}
