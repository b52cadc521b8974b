//! What goes out in calm times.

use super::*;

/// What `pick` finds among the datagrams to host `n`'s agent.
fn to_agent<T>(bench: &Bench, n: u8, pick: fn(&Message) -> Option<T>) -> Vec<(Mono, T)> {
    let ours = bench.sent.iter().filter(|(_, to, _)| *to == SocketAddr::new(address(n), PORT_PEER));
    ours.filter_map(|(at, _, m)| Some((*at, pick(m)?))).collect()
}

fn beacons_to(bench: &Bench, n: u8) -> Vec<(Mono, SignedBeacon)> {
    to_agent(bench, n, |m| if let Message::Beacon(signed) = m { Some(signed.clone()) } else { None })
}

fn acks_to(bench: &Bench, n: u8) -> Vec<(Mono, Ack)> {
    to_agent(bench, n, |m| if let Message::Ack(ack) = m { Some(*ack) } else { None })
}

#[test]
fn nothing_is_said_before_the_first_slice() {
    let mut bench = Bench::unborn(Some(machine(1)));
    bench.run(10_000);
    assert_eq!(bench.sent, []);
    assert_eq!(bench.changes, [Change::Doubts(SelfDoubt::NoArbiter)]);
    assert_eq!(bench.agent.counts.void_rounds, 0);
}

#[test]
fn the_first_beacon_leaves_with_the_slice() {
    let mut bench = Bench::unborn(Some(machine(1)));
    bench.run(12_345);
    bench.input(Input::Slice(slice(1, &[2])));
    assert_eq!(bench.agent.next_wakeup(), bench.now);
    bench.tick();
    assert_eq!(beacons_to(&bench, 2).len(), 1);
    assert_eq!(bench.agent.counts.void_rounds, 0, "a machine without work is not late");
}

#[test]
fn every_observer_gets_a_beacon_each_250_ms_give_or_take_5_percent() {
    let mut bench = Bench::settled(&[2, 3]);
    bench.run(60_000);
    let to_2 = beacons_to(&bench, 2);
    assert_eq!(to_2, beacons_to(&bench, 3), "the same bytes at the same time to everybody");
    let gaps: Vec<u64> = to_2.windows(2).map(|w| (w[1].0 - w[0].0).as_ms()).collect();
    assert!(gaps.iter().all(|g| (237..=263).contains(g)), "{gaps:?}");
    assert!(gaps.iter().max() > gaps.iter().min(), "without jitter hosts beat together");
    assert!((235..=245).contains(&to_2.len()), "{} beacons in a minute", to_2.len());
    for (at, signed) in to_2 {
        assert_eq!(signed.claims().unwrap().seq, at.as_ms(), "seq is the clock");
    }
}

#[test]
fn each_replica_gets_a_status_each_second_with_the_beacon_that_the_observers_get() {
    let mut bench = Bench::settled(&[2, 3]);
    bench.run(60_000);
    let beacons: Vec<SignedBeacon> = beacons_to(&bench, 2).into_iter().map(|(_, b)| b).collect();
    for n in [1, 2, 3] {
        let statuses = bench.statuses_to(n);
        assert!((58..=62).contains(&statuses.len()), "{} in a minute", statuses.len());
        for (_, status) in statuses {
            assert!(beacons.contains(&status.beacon));
            assert_eq!((status.slice, status.hears, status.doubts), (1, vec![uid(2), uid(3)], vec![]));
        }
    }
}

#[test]
fn a_status_names_only_those_it_hears_now() {
    let mut bench = Bench::settled(&[2, 3]);
    bench.alive.remove(&3);
    bench.run(2500);
    let (_, last) = bench.statuses_to(1).pop().unwrap();
    assert_eq!(last.hears, [uid(2)]);
}

#[test]
fn statuses_tell_of_every_path_in_turn_and_fit_a_datagram() {
    let peers: Vec<u8> = (2..=10).collect();
    let mut bench = Bench::new(&peers);
    for n in &peers {
        bench.kernels.insert((*n, HostPath::Kubelet), Answer::Accepted);
        bench.kernels.insert((*n, HostPath::Ping), Answer::Answered);
    }
    bench.run(5000);
    bench.clear();
    bench.run(5100);
    let statuses = bench.statuses_to(1);
    assert!(statuses.iter().all(|(_, s)| s.worked.len() == 6));
    let told: BTreeSet<(NodeUid, Path)> =
        statuses.into_iter().flat_map(|(_, s)| s.worked).map(|w| (w.subject, w.path)).collect();
    assert_eq!(told.len(), 27, "nine subjects, three paths each");
}

#[test]
fn a_path_that_never_answered_is_not_told() {
    let mut bench = Bench::settled(&[2]);
    bench.run(1100);
    let (_, status) = bench.statuses_to(1).pop().unwrap();
    let worked: Vec<Path> = status.worked.iter().map(|w| w.path).collect();
    assert_eq!(worked, [Path::Agent], "a beacon is an answer of the agent path");
}

#[test]
fn an_ack_says_which_beacon_is_held_for_how_long_and_goes_only_to_those_heard() {
    let mut bench = Bench::settled(&[2, 3]);
    bench.alive.remove(&3);
    bench.run(1300);
    bench.clear();
    bench.run(10_000);
    assert_eq!(acks_to(&bench, 3), []);
    let acks = acks_to(&bench, 2);
    assert!((9..=11).contains(&acks.len()), "{} in 10 s", acks.len());
    for (at, ack) in acks {
        assert_eq!(ack.seq + ack.held.as_ms(), at.as_ms(), "sent when made, held since");
        assert!(ack.held <= Span::from_ms(250));
        assert!(ack.arbiter_contact <= Span::from_ms(1100));
    }
}

#[test]
fn the_round_trip_is_what_the_observer_did_not_hold() {
    let mut bench = Bench::settled(&[2]);
    let sent = bench.now.as_ms();
    bench.pause(40);
    let ack = Ack { seq: sent, held: Span::from_ms(30), arbiter_contact: Span::ZERO };
    bench.hear_agent(2, Message::Ack(ack));
    assert_eq!(bench.agent.view(bench.now).rtt_max, Some(Span::from_ms(10)));
}

#[test]
fn a_host_without_machine_id_is_never_heard_but_still_hears() {
    let mut bench = Bench::unborn(None);
    bench.alive = BTreeSet::from([2, 3]);
    bench.input(Input::Slice(slice(1, &[2, 3])));
    bench.run(3000);
    bench.hear_agent(2, Message::Probe { nonce: 9 });
    bench.alive.remove(&3);
    bench.run(2000);
    let speaks =
        |m: &Message| matches!(m, Message::Beacon(_) | Message::Status(_) | Message::ProbeReply { .. });
    assert!(!bench.sent.iter().any(|(_, _, m)| speaks(m)));
    assert!(!bench.agent.view(bench.now).beaconing);
    assert_eq!(bench.told(1, 3), "S");
    assert!(!acks_to(&bench, 2).is_empty());
}

#[test]
fn health_travels_with_the_beacon() {
    let mut bench = Bench::settled(&[2]);
    bench.input(Input::Health(HealthSummary::KUBELET_DEAD));
    bench.run(300);
    let (_, signed) = beacons_to(&bench, 2).pop().unwrap();
    assert_eq!(signed.claims().unwrap().health, HealthSummary::KUBELET_DEAD);
}

#[test]
fn unheard_by_every_observer_a_host_says_so() {
    let mut bench = Bench::settled(&[2, 3]);
    bench.alive.clear();
    bench.run(5000);
    assert!(bench.changes.contains(&Change::Alone));
    bench.alive.insert(2);
    bench.run(1500);
    assert!(bench.changes.contains(&Change::NotAlone));
}

#[test]
fn a_newer_slice_is_asked_for_once_per_version() {
    let mut bench = Bench::settled(&[2]);
    let mut wanted = Vec::new();
    for (replica, slice) in [(1, 1), (1, 2), (2, 2), (2, 3), (3, 1)] {
        let from = SocketAddr::new(address(200 + replica), PORT_REPORT);
        let sender = Sender::Replica(ReplicaId::new(u64::from(replica)).unwrap());
        let message = Message::StatusAck { term: 5, slice };
        wanted.extend(bench.agent.handle(bench.now, Input::Heard { sender, from, message }));
    }
    assert_eq!(wanted, [Output::SliceWanted { version: 2 }, Output::SliceWanted { version: 3 }]);
}

#[test]
fn a_slice_that_would_stall_or_spin_the_agent_is_bent_to_what_works() {
    let mut bench = Bench::unborn(Some(machine(1)));
    let zero = Span::ZERO;
    let timings = Timings { beacon: zero, status: zero, suspect: zero, path_probe: zero, snapshot: zero };
    bench.input(Input::Slice(Slice { timings, ..slice(1, &[2]) }));
    bench.run(1000);
    assert!(beacons_to(&bench, 2).len() <= 55);
}

#[test]
fn an_old_or_impossible_ack_is_no_sign_of_being_heard() {
    for (seq_ago, hears) in [(0_i64, 1), (3400, 1), (3600, 0), (-5, 0)] {
        let mut bench = Bench::settled(&[2]);
        bench.alive.clear();
        bench.run(5000);
        let seq = bench.now.as_ms().saturating_add_signed(-seq_ago);
        let ack = Ack { seq, held: Span::ZERO, arbiter_contact: Span::ZERO };
        bench.hear_agent(2, Message::Ack(ack));
        assert_eq!(bench.agent.view(bench.now).observers_hearing, hears, "a beacon of {seq_ago} ms ago");
    }
}

#[test]
fn acks_that_overtake_each_other_do_not_set_time_back() {
    let mut bench = Bench::settled(&[2]);
    bench.alive.clear();
    bench.run(5000);
    for seq_ago in [0, 3000] {
        let seq = bench.now.as_ms() - seq_ago;
        bench.hear_agent(2, Message::Ack(Ack { seq, held: Span::ZERO, arbiter_contact: Span::ZERO }));
    }
    bench.run(1000);
    assert_eq!(bench.agent.view(bench.now).observers_hearing, 1);
}

#[test]
fn new_observers_get_time_to_answer_before_a_host_feels_alone() {
    let mut bench = Bench::new(&[2]);
    bench.alive.clear();
    bench.run(3000);
    assert!(!bench.changes.contains(&Change::Alone));
    bench.run(2000);
    assert!(bench.changes.contains(&Change::Alone));
}

#[test]
fn after_a_pause_beacons_are_not_made_up_for() {
    let mut bench = Bench::settled(&[2]);
    bench.pause(10_000);
    bench.run(200);
    assert_eq!(beacons_to(&bench, 2).len(), 1);
}

#[test]
fn a_path_that_worked_eleven_minutes_ago_is_not_told() {
    let mut bench = Bench::new(&[2]);
    bench.kernels.insert((2, HostPath::Kubelet), Answer::Accepted);
    bench.run(5000);
    bench.kernels.clear();
    for (minutes, told) in [(9, true), (2, false)] {
        bench.run(minutes * 60_000);
        let (_, status) = bench.statuses_to(1).pop().unwrap();
        assert_eq!(status.worked.iter().any(|w| w.path == Path::Kubelet), told);
        bench.clear();
    }
}

#[test]
fn a_host_that_becomes_another_node_signs_as_that_node_at_once() {
    let mut bench = Bench::settled(&[2]);
    bench.run(300);
    bench.hear_agent(2, Message::Probe { nonce: 1 });
    bench.input(Input::Slice(Slice { node: uid(9), ..slice(2, &[2]) }));
    bench.hear_agent(2, Message::Probe { nonce: 2 });
    let nodes: Vec<NodeUid> = to_agent(&bench, 2, |m| {
        if let Message::ProbeReply { beacon, .. } = m { Some(beacon.claims().unwrap().node) } else { None }
    })
    .into_iter()
    .map(|(_, node)| node)
    .collect();
    assert_eq!(nodes, [uid(1), uid(9)]);
}

#[test]
fn a_slice_beyond_the_limit_is_cut_to_it() {
    let mut bench = Bench::unborn(Some(machine(1)));
    bench.input(Input::Slice(slice(1, &(2..50).collect::<Vec<u8>>())));
    bench.run(300);
    let view = bench.agent.view(bench.now);
    assert_eq!((view.subjects.len(), view.observers), (16, 16));
}
