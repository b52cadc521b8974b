//! When a subject counts as silent, and when not.

use super::*;

/// A line per thing told about subject 2 and probe sent to it, in ms after its last beacon.
fn timeline(bench: &Bench, last: u64) -> Vec<String> {
    let mut lines = Vec::new();
    for (at, to, message) in &bench.sent {
        let ms = at.as_ms() - last;
        if matches!(message, Message::Probe { .. }) && host(to.ip()) == 2 {
            lines.push((ms, "agent probe".to_owned()));
        }
        if let Message::Reports(batch) = message
            && host(to.ip()) == 201
        {
            for report in batch.reports.iter().filter(|r| r.subject == uid(2)) {
                lines.push((ms, describe(&report.hearing)));
            }
        }
    }
    for (at, n, path) in bench.probes.iter().filter(|(_, n, _)| *n == 2) {
        assert_eq!(*n, 2);
        lines.push((at.as_ms() - last, format!("{path:?} probe")));
    }
    lines.sort();
    lines.into_iter().map(|(ms, what)| format!("{ms} {what}")).collect()
}

fn describe(hearing: &Hearing) -> String {
    match hearing {
        Hearing::Silent { silent, probes, .. } => {
            let probes: Vec<String> = probes.iter().map(|p| format!("{:?}:{:?}", p.path, p.answer)).collect();
            format!("SILENT for {} [{}]", silent.as_ms(), probes.join(" "))
        }
        Hearing::Heard { ago, .. } => format!("HEARD {} ago", ago.as_ms()),
    }
}

/// Subject 2 of three has answered on `paths`; then it is cut off for `ms`. Gives the bench and the time of its last
/// beacon, with calm probing out of the way.
fn silenced(paths: &[(HostPath, Answer)], ms: u64) -> (Bench, u64) {
    let mut bench = Bench::new(&[2, 3, 4]);
    for (path, answer) in paths {
        bench.kernels.insert((2, *path), *answer);
    }
    bench.run(5000);
    bench.clear();
    bench.kernels.clear();
    bench.alive.remove(&2);
    let last = bench.now.as_ms();
    assert_eq!(last % 250, 0, "a beacon came just now");
    bench.run(ms);
    (bench, last)
}

#[test]
fn five_beacons_missing_two_probes_then_a_report() {
    let (bench, last) = silenced(&[(HostPath::Kubelet, Answer::Accepted)], 2000);
    assert_eq!(
        timeline(&bench, last),
        [
            "1251 Kubelet probe",
            "1251 agent probe",
            "1351 Kubelet probe",
            "1351 agent probe",
            "1451 SILENT for 1451 [Agent:Nothing Agent:Nothing Kubelet:Nothing Kubelet:Nothing]",
        ]
    );
    for replica in [1, 2, 3] {
        assert_eq!(bench.told(replica, 2), "S");
    }
    let subject = NodeName::new("n2").unwrap();
    assert_eq!(bench.changes, [Change::Silent { subject, silent: Span::from_ms(1451) }]);
    assert_eq!(bench.told(1, 3), "", "the others are heard");
}

#[test]
fn the_path_history_travels_with_the_outcome() {
    let (bench, last) = silenced(&[(HostPath::Kubelet, Answer::Reset)], 2000);
    let (at, batch) = bench.batches_to(1).pop().unwrap();
    let Hearing::Silent { last: newest, probes, .. } = &batch.reports[0].hearing else { panic!() };
    assert_eq!(*newest, Some((boot(2), last)));
    let agent = &probes[0];
    assert_eq!(agent.asked_ago, at - Mono::from_ms(last + 1251));
    assert_eq!(agent.worked_ago, Some(at - Mono::from_ms(last)), "the last beacon");
    assert!(probes[2].worked_ago.unwrap() > Span::from_secs(4), "the kubelet's port answered in calm times");
}

#[test]
fn a_beacon_at_the_last_moment_and_nobody_is_told() {
    for wait in [1250, 1300, 1400, 1450] {
        let (mut bench, last) = silenced(&[], wait);
        bench.beacon_from(2, 2, last + wait);
        bench.alive.insert(2);
        bench.run(2000);
        assert_eq!(bench.told(1, 2), "", "after {wait} ms");
    }
}

#[test]
fn the_socket_is_drained_before_anybody_looks_at_the_time() {
    let (mut bench, last) = silenced(&[], 1250);
    bench.pause(100);
    bench.beacon_from(2, 2, last + 1);
    bench.tick();
    assert_eq!(bench.probes, [], "the beacon was in the socket, so there is nothing to ask");
}

#[test]
fn an_answer_to_a_probe_is_told_whatever_it_is() {
    for (answer, told) in [
        (Answer::Accepted, "Kubelet:Accepted Kubelet:Accepted"),
        (Answer::Reset, "Kubelet:Reset Kubelet:Reset"),
        (Answer::NotSent, "Kubelet:NotSent Kubelet:NotSent"),
    ] {
        let (mut bench, last) = silenced(&[(HostPath::Kubelet, Answer::Accepted)], 1000);
        bench.kernels.insert((2, HostPath::Kubelet), answer);
        bench.run(1000);
        let report = timeline(&bench, last).pop().unwrap();
        assert!(report.contains(told), "{report}");
    }
}

#[test]
fn an_answer_that_comes_after_the_report_is_told_too() {
    let (mut bench, last) = silenced(&[(HostPath::Ping, Answer::Answered)], 1000);
    let numbers = numbers_of_probes(&mut bench, 600);
    assert_eq!(bench.told(1, 2), "S");
    bench.input(Input::Probed { number: numbers[1], answer: Answer::Answered });
    bench.run(50);
    let report = timeline(&bench, last).pop().unwrap();
    assert!(report.contains("Ping:Nothing Ping:Answered"), "{report}");
    bench.input(Input::Probed { number: numbers[0], answer: Answer::Nothing });
    bench.run(50);
    assert_eq!(bench.told(1, 2), "SS", "that the other one found nothing was told already");
}

/// Runs with probes left unanswered and gives their numbers.
fn numbers_of_probes(bench: &mut Bench, ms: u64) -> Vec<ProbeNumber> {
    let end = bench.now + Span::from_ms(ms);
    let mut numbers = Vec::new();
    while bench.agent.next_wakeup() <= end {
        bench.now = bench.agent.next_wakeup();
        let awake = Mono::from_ms(bench.now.as_ms() - 1000);
        let outputs = bench.agent.handle(bench.now, Input::Tick(Tick { awake, drained: true, drops: 0 }));
        for output in outputs {
            if let Output::Probe { number, .. } = &output {
                numbers.push(*number);
            }
            bench.perform(output);
        }
        for n in bench.alive.clone() {
            bench.beacon_from(n, n, bench.now.as_ms());
        }
    }
    numbers
}

#[test]
fn an_unsigned_datagram_from_its_address_is_an_answer() {
    let (mut bench, last) = silenced(&[], 1260);
    bench.input(Input::Unverified { from: address(2) });
    bench.input(Input::Unverified { from: address(9) });
    bench.run(1000);
    let report = timeline(&bench, last).pop().unwrap();
    assert!(report.contains("[Agent:Answered Agent:Nothing]"), "{report}");
}

#[test]
fn a_subject_never_heard_is_silent_since_it_was_assigned() {
    let mut bench = Bench::settled(&[2]);
    bench.input(Input::Slice(slice(2, &[2, 3])));
    bench.run(2000);
    let (at, batch) = bench.batches_to(1).pop().unwrap();
    let Hearing::Silent { silent, last, .. } = &batch.reports[0].hearing else { panic!() };
    assert_eq!((&batch.reports[0].subject, *silent, *last), (&uid(3), at - Mono::from_ms(BORN + 5000), None));
}

#[test]
fn where_no_path_is_known_to_work_all_are_tried() {
    let mut bench = Bench::settled(&[2]);
    bench.input(Input::Slice(slice(2, &[2, 3])));
    bench.run(2000);
    let kinds: BTreeSet<HostPath> = bench.probes.iter().filter(|p| p.1 == 3).map(|p| p.2).collect();
    assert_eq!(kinds, BTreeSet::from([HostPath::Kubelet, HostPath::Ping]));
}

#[test]
fn heard_again_withdraws_with_the_newest_beacon() {
    let (mut bench, last) = silenced(&[], 3000);
    bench.beacon_from(2, 2, last + 2900);
    bench.beacon_from(2, 2, last + 2950);
    bench.run(20);
    let (_, batch) = bench.batches_to(1).pop().unwrap();
    let Hearing::Heard { beacon: signed, ago } = &batch.reports[0].hearing else { panic!() };
    assert_eq!((signed, *ago), (&beacon(2, 2, last + 2950), Span::ZERO));
    let subject = NodeName::new("n2").unwrap();
    assert_eq!(bench.changes.last(), Some(&Change::HeardAgain { subject, silent: Span::from_ms(3000) }));
}

#[test]
fn dripping_old_beacons_neither_clears_nor_keeps_anybody() {
    let (mut bench, last) = silenced(&[], 0);
    for drip in 0..30 {
        bench.run(100);
        bench.beacon_from(2, 2, last - drip);
        bench.beacon_from(2, 2, last);
    }
    assert_eq!(bench.told(1, 2), "S");
    assert_eq!(bench.agent.view(bench.now).subjects[0].last, Some(Span::from_ms(3000)));
}

#[test]
fn a_new_boot_is_heard_and_the_old_one_never_comes_back() {
    let (mut bench, last) = silenced(&[], 3000);
    bench.beacon_from(2, 77, 15_000);
    let subject = || NodeName::new("n2").unwrap();
    assert!(bench.changes.contains(&Change::Rebooted { subject: subject(), boot: boot(77) }));
    bench.run(500);
    bench.beacon_from(2, 2, last);
    bench.beacon_from(2, 2, last + 60_000);
    assert_eq!(bench.agent.view(bench.now).subjects[0].last, Some(Span::from_ms(500)));
}

#[test]
fn a_replayed_old_boot_does_not_make_a_living_host_silent() {
    let mut bench = Bench::settled(&[2]);
    bench.beacon_from(2, 66, 9_000_000);
    bench.run(3000);
    let subject = || NodeName::new("n2").unwrap();
    assert_eq!(
        bench.changes,
        [
            Change::Rebooted { subject: subject(), boot: boot(66) },
            Change::BootProven { subject: subject(), boot: boot(2) },
        ]
    );
    bench.beacon_from(2, 66, 9_000_001);
    bench.run(3000);
    assert_eq!(bench.told(1, 2), "");
    assert_eq!(bench.changes.len(), 2, "and it does not work twice");
}

#[test]
fn a_late_tick_voids_the_round_and_everybody_gets_their_time_anew() {
    let mut bench = Bench::settled(&[2, 3]);
    bench.alive.clear();
    bench.pause(20_000);
    bench.tick();
    assert_eq!(bench.changes[0], Change::Doubts(SelfDoubt::LateTick));
    assert_eq!(bench.told(1, 2), "");
    bench.run(1250);
    assert_eq!(bench.probes, [], "no probe before S is over again");
    bench.run(250);
    assert_eq!(bench.told(1, 2), "S", "but then silence is silence");
    let (_, batch) = bench.batches_to(1).pop().unwrap();
    assert!(batch.doubts.contains(&SelfDoubt::LateTick));
    let Hearing::Silent { silent, .. } = &batch.reports[0].hearing else { panic!() };
    assert!(*silent > Span::from_secs(21), "and its length is told as it is");
}

#[test]
fn a_pause_in_the_middle_of_a_doubt_takes_the_doubt_back() {
    let (mut bench, _) = silenced(&[], 1300);
    bench.pause(400);
    bench.tick();
    bench.run(1200);
    assert_eq!(bench.told(1, 2), "");
    bench.run(300);
    assert_eq!(bench.told(1, 2), "S");
}

#[test]
fn a_socket_that_could_not_be_emptied_accuses_nobody() {
    let (mut bench, _) = silenced(&[], 1250);
    for _ in 0..50 {
        bench.now = bench.now + Span::from_ms(100);
        bench.tick_drained(false);
    }
    assert_eq!(bench.told(1, 2), "");
    assert_eq!(bench.changes, [Change::Doubts(SelfDoubt::ReceiveDrops)]);
}

#[test]
fn each_path_to_each_subject_is_tried_once_a_minute() {
    let mut bench = Bench::settled(&[2, 3]);
    bench.run(600_000);
    for n in [2, 3] {
        for path in [HostPath::Kubelet, HostPath::Ping] {
            let count = bench.probes.iter().filter(|(_, to, p)| (*to, *p) == (n, path)).count();
            assert!((9..=11).contains(&count), "{count} probes of n{n} by {path:?} in 10 minutes");
        }
    }
}

#[test]
fn a_new_subjects_paths_are_tried_within_a_second() {
    let mut bench = Bench::new(&[2]);
    bench.run(1001);
    assert_eq!(bench.probes.len(), 2);
    assert!(bench.sent.iter().any(|(_, to, m)| host(to.ip()) == 2 && matches!(m, Message::Probe { .. })));
}

#[test]
fn a_subject_that_moves_begins_with_no_known_path() {
    let mut bench = Bench::settled(&[2]);
    let mut moved = slice(2, &[2]);
    moved.subjects[0].address = address(99);
    bench.input(Input::Slice(moved));
    bench.run(1001);
    assert_eq!(bench.probes.iter().map(|p| p.1).collect::<Vec<_>>(), [99, 99]);
}

#[test]
fn a_flood_of_beacons_of_a_left_boot_is_answered_by_one_question_a_second() {
    let mut bench = Bench::settled(&[2]);
    bench.alive.clear();
    bench.beacon_from(2, 66, 9_000_000);
    for more in 1..1000 {
        bench.now = bench.now + Span::from_ms(2);
        bench.beacon_from(2, 2, bench.now.as_ms() + more);
    }
    let questions = bench.sent.iter().filter(|(_, _, m)| matches!(m, Message::Probe { .. })).count();
    assert_eq!(questions, 2);
}
