//! How the replicas are told, until they have it.

use super::*;

/// Two subjects, of which 2 has just been reported silent to replicas that acknowledge or not.
fn silent_with(replicas: &[u8]) -> Bench {
    let mut bench = Bench::settled(&[2, 3]);
    bench.replicas = replicas.iter().copied().collect();
    bench.alive.remove(&2);
    bench.run(1451);
    bench
}

#[test]
fn a_report_is_repeated_each_100_ms_to_each_replica_that_has_not_acknowledged() {
    let mut bench = silent_with(&[1]);
    bench.run(500);
    assert_eq!(bench.told(1, 2), "S");
    for replica in [2, 3] {
        let batches = bench.batches_to(replica);
        assert_eq!(batches.len(), 6, "at once and five times more");
        assert!(batches.windows(2).all(|w| w[1].0 - w[0].0 == Span::from_ms(100)));
        assert!(batches.windows(2).all(|w| w[1].1.number == w[0].1.number), "nothing changed");
        let silent = |b: &ReportBatch| match b.reports[0].hearing {
            Hearing::Silent { silent, .. } => silent,
            Hearing::Heard { .. } => Span::ZERO,
        };
        let grows = |w: &[(Mono, ReportBatch)]| silent(&w[1].1) == silent(&w[0].1) + (w[1].0 - w[0].0);
        assert!(batches.windows(2).all(grows), "each repeat tells the age as it is then");
    }
}

#[test]
fn a_replica_that_says_nothing_is_tried_once_a_second_and_served_when_it_speaks() {
    let mut bench = silent_with(&[1, 2]);
    bench.run(10_000);
    bench.clear();
    bench.run(10_000);
    assert_eq!(bench.batches_to(3).len(), 10);
    bench.clear();
    bench.hear_replica(3, Message::StatusAck { term: 5, slice: 1 });
    bench.tick();
    assert_eq!(bench.told(3, 2), "S");
}

#[test]
fn nobody_can_acknowledge_what_was_not_said() {
    let mut bench = silent_with(&[]);
    let (_, batch) = bench.batches_to(1).pop().unwrap();
    bench.hear_replica(1, Message::ReportsAck { number: batch.number + 1, term: 5 });
    bench.hear_replica(1, Message::ReportsAck { number: u64::MAX, term: 5 });
    bench.clear();
    bench.run(100);
    assert_eq!(bench.told(1, 2), "S");
    bench.hear_replica(1, Message::ReportsAck { number: batch.number, term: 5 });
    bench.clear();
    bench.run(1000);
    assert_eq!(bench.told(1, 2), "");
}

#[test]
fn an_old_ack_does_not_stand_for_a_newer_change() {
    let mut bench = silent_with(&[]);
    let (_, first) = bench.batches_to(1).pop().unwrap();
    bench.alive.remove(&3);
    bench.run(1500);
    bench.hear_replica(1, Message::ReportsAck { number: first.number, term: 5 });
    bench.clear();
    bench.run(100);
    let (_, batch) = bench.batches_to(1).pop().unwrap();
    assert_eq!(batch.reports.iter().map(|r| r.subject.clone()).collect::<Vec<_>>(), [uid(3)]);
}

#[test]
fn a_withdrawal_is_repeated_until_every_replica_has_it() {
    let mut bench = silent_with(&[1, 2]);
    bench.alive.insert(2);
    bench.run(2000);
    assert_eq!((bench.told(1, 2), bench.told(2, 2)), ("SH".into(), "SH".into()));
    assert!(bench.told(3, 2).ends_with("HHHH"));
    bench.replicas.insert(3);
    bench.run(1100);
    bench.clear();
    bench.run(1000);
    assert_eq!(bench.told(3, 2), "", "all have it");
}

#[test]
fn a_snapshot_goes_out_each_30_seconds_and_tells_of_all_that_are_silent() {
    let mut bench = silent_with(&[1, 2, 3]);
    bench.clear();
    bench.run(60_000);
    let batches = bench.batches_to(1);
    assert_eq!(batches.len(), 2);
    for (_, batch) in batches {
        assert!(batch.snapshot);
        assert_eq!(batch.reports.len(), 1);
    }
}

#[test]
fn a_snapshot_of_a_calm_agent_is_empty_and_nothing_else_is_said() {
    let mut bench = Bench::settled(&[2, 3]);
    bench.run(60_000);
    let batches: Vec<_> =
        bench.batches_to(2).into_iter().map(|(_, b)| (b.snapshot, b.reports.len())).collect();
    assert_eq!(batches, [(true, 0), (true, 0)]);
}

#[test]
fn a_new_term_gets_a_snapshot_at_once_and_an_old_one_does_not() {
    let mut bench = silent_with(&[1, 2, 3]);
    bench.clear();
    for (term, snapshots) in [(5, 0), (4, 0), (6, 1), (6, 1), (7, 2)] {
        bench.term = term;
        bench.hear_replica(2, Message::StatusAck { term, slice: 1 });
        bench.tick();
        for replica in [1, 2, 3] {
            let batches = bench.batches_to(replica);
            assert_eq!(batches.len(), snapshots, "term {term}");
            assert!(batches.iter().all(|(_, b)| b.snapshot && b.reports.len() == 1));
        }
    }
}

#[test]
fn a_new_replica_gets_a_snapshot() {
    let mut bench = silent_with(&[1, 2, 3]);
    bench.clear();
    let mut with_fourth = slice(2, &[2, 3]);
    with_fourth.replicas.push(replica(4));
    bench.input(Input::Slice(with_fourth));
    bench.tick();
    let (_, batch) = bench.batches_to(4).pop().unwrap();
    assert!(batch.snapshot);
    assert_eq!(bench.told(4, 2), "S");
}

#[test]
fn nine_silent_subjects_fit_one_datagram() {
    let peers: Vec<u8> = (2..=10).collect();
    let mut bench = Bench::new(&peers);
    for n in &peers {
        bench.kernels.insert((*n, HostPath::Kubelet), Answer::Accepted);
        bench.kernels.insert((*n, HostPath::Ping), Answer::Answered);
    }
    bench.run(5000);
    bench.kernels.clear();
    bench.alive.clear();
    bench.run(2000);
    bench.term = 9;
    bench.clear();
    bench.run(3000);
    let (_, batch) = bench.batches_to(1).pop().unwrap();
    assert_eq!((batch.snapshot, batch.reports.len()), (true, 9));
}

#[test]
fn what_does_not_fit_goes_in_parts_of_which_none_claims_to_be_all() {
    let long = |n: u8| NodeUid::new(format!("{n:02}{}", "x".repeat(126))).unwrap();
    let mut bench = Bench::unborn(Some(machine(1)));
    let mut big = slice(1, &[2, 3, 4, 5, 6, 7, 8, 9, 10]);
    for (subject, n) in big.subjects.iter_mut().zip(2..) {
        subject.node = long(n);
    }
    big.observers.clear();
    bench.input(Input::Slice(big));
    bench.run(3000);
    bench.term = 6;
    bench.clear();
    bench.run(2000);
    let batches = bench.batches_to(1);
    assert!(batches.len() > 1);
    assert!(batches.iter().all(|(_, b)| !b.snapshot || b.reports.is_empty() || b.reports.len() == 9));
    let told: BTreeSet<NodeUid> =
        batches.iter().flat_map(|(_, b)| &b.reports).map(|r| r.subject.clone()).collect();
    assert_eq!(told.len(), 9);
    let (_, last) = batches.last().unwrap();
    assert!(!last.snapshot, "the last part alone is not all there is");
    bench.clear();
    bench.run(1000);
    assert_eq!(bench.batches_to(1), [], "and then it is done");
}

#[test]
fn a_standing_accusation_is_followed_by_its_authors_new_doubts() {
    let mut bench = silent_with(&[1, 2, 3]);
    bench.clear();
    bench.drops = 1;
    bench.run(270);
    let (_, batch) = bench.batches_to(1).pop().unwrap();
    assert_eq!(batch.doubts, [SelfDoubt::ReceiveDrops]);
    bench.clear();
    bench.run(3100);
    let (_, batch) = bench.batches_to(1).pop().unwrap();
    assert_eq!(batch.doubts, [], "and by their end");
}

#[test]
fn doubts_of_one_who_accuses_nobody_wait_for_the_status() {
    let mut bench = Bench::settled(&[2, 3]);
    bench.drops = 1;
    bench.run(1100);
    assert_eq!(bench.batches_to(1), []);
    assert_eq!(bench.statuses_to(1).pop().unwrap().1.doubts, [SelfDoubt::ReceiveDrops]);
}

#[test]
fn without_a_replica_for_three_seconds_an_agent_says_so() {
    let mut bench = Bench::settled(&[2, 3]);
    bench.replicas.clear();
    bench.run(4100);
    assert_eq!(bench.statuses_to(1).pop().unwrap().1.doubts, [SelfDoubt::NoArbiter]);
}

#[test]
fn of_a_subject_no_longer_assigned_nothing_is_said() {
    let mut bench = silent_with(&[]);
    bench.input(Input::Slice(slice(2, &[3])));
    bench.clear();
    bench.run(1000);
    assert_eq!(bench.told(1, 2), "");
}

#[test]
fn a_subject_that_stays_keeps_its_silence_over_a_new_slice() {
    let mut bench = silent_with(&[1, 2, 3]);
    bench.input(Input::Slice(slice(2, &[2, 3, 4])));
    bench.clear();
    bench.run(1000);
    assert!(bench.agent.view(bench.now).subjects[0].silent);
    assert_eq!(bench.told(1, 2), "", "all know it");
}

#[test]
fn batch_numbers_rise_over_a_restart_of_the_agent() {
    let mut first = silent_with(&[1, 2, 3]);
    first.run(60_000);
    let (_, before) = first.batches_to(1).pop().unwrap();
    let birth = Birth {
        boot: boot(1),
        machine: Some(machine(1)),
        seed: 1,
        sign: Box::new(SecretKey::from_seed(&[1; 32])),
    };
    let mut second = Bench::new(&[2]);
    second.now = first.now;
    second.agent = Agent::new(second.now, birth);
    second.input(Input::Slice(slice(1, &[2])));
    second.run(100);
    assert!(second.batches_to(1)[0].1.number > before.number);
}

#[test]
fn a_withdrawal_is_over_when_all_have_it_or_a_minute_has_passed() {
    let mut bench = silent_with(&[1, 2, 3]);
    bench.alive.insert(2);
    bench.run(2000);
    let mut with_fourth = slice(2, &[2, 3]);
    with_fourth.replicas.push(replica(4));
    bench.input(Input::Slice(with_fourth));
    bench.run(1000);
    assert_eq!(bench.told(4, 2), "", "it was told to all that there were");

    let mut bench = silent_with(&[1, 2]);
    bench.alive.insert(2);
    bench.run(50_000);
    bench.clear();
    bench.run(5000);
    assert_eq!(bench.told(3, 2), "HHHHH", "once a second to one that is down");
    bench.run(40_000);
    bench.clear();
    bench.run(5000);
    assert_eq!(bench.told(3, 2), "", "the snapshots since say the same");
}

#[test]
fn a_subject_that_left_silent_and_comes_back_alive_has_no_past() {
    let mut bench = silent_with(&[1, 2, 3]);
    bench.input(Input::Slice(slice(2, &[3])));
    bench.run(500);
    bench.clear();
    bench.alive.insert(2);
    bench.input(Input::Slice(slice(3, &[2, 3])));
    bench.run(40_000);
    assert_eq!(bench.told(1, 2), "");
}
