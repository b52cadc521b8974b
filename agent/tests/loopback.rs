//! Real agents on loopback addresses: beacons, acks, silence, questions, restarts, floods. No replica is needed for an
//! agent that remembers a slice; one made by hand sees what a real one would.

mod world;

use std::net::SocketAddr;
use std::time::Duration;

use coroner_shared::beacon::{Answer, AskProbe, Hearing, Path, Report, SelfDoubt, Status};
use coroner_shared::names::PORT_PEER;
use coroner_shared::time::Span;
use coroner_shared::wire::datagram::{Message, encode};
use nix::sys::signal::Signal;
use world::{CLUSTER, Host, Voice, now_ms};

/// The newest statement about `subject` in a message, if it is a batch of reports.
fn report_about<'a>(subject: &Host, message: &'a Message) -> Option<&'a Report> {
    let Message::Reports(batch) = message else { return None };
    batch.reports.iter().find(|report| report.subject == subject.node)
}

fn status(message: &Message) -> Option<&Status> {
    if let Message::Status(status) = message { Some(status) } else { None }
}

#[test]
fn two_agents_hear_each_other_and_tell_of_silence_and_of_its_end() {
    let (a, b) = (Host::new(1), Host::new(2));
    let (replica, peer) = Voice::replica(1);
    a.remember(&a.slice(1, &[&b], std::slice::from_ref(&peer)));
    b.remember(&b.slice(1, &[&a], &[peer]));
    let (_running_a, running_b) = (a.start(), b.start());
    let hosts = [&a, &b];
    for (host, other) in [(&a, &b), (&b, &a)] {
        replica.serve_until(
            &hosts,
            "a status of one that hears the other and has no doubts",
            |node, message| {
                let status = status(message).filter(|_| *node == host.node)?;
                let beacon = status.beacon.verify(&host.key.public(), CLUSTER).unwrap();
                assert_eq!((beacon.machine, beacon.boot), (host.machine, host.boot));
                assert!(beacon.seq.abs_diff(now_ms()) < 1000, "seq is CLOCK_BOOTTIME in milliseconds");
                (status.hears == [other.node.clone()] && status.doubts.is_empty()).then_some(())
            },
        );
    }
    replica.serve_until(&hosts, "that the kubelet's port was seen to answer", |node, message| {
        let worked = &status(message).filter(|_| *node == a.node)?.worked;
        worked.iter().any(|w| w.path == Path::Kubelet).then_some(())
    });

    running_b.signal(Signal::SIGSTOP);
    let (silent, probes) = replica.serve_until(&hosts, "a report that b is silent", |_, message| {
        match &report_about(&b, message)?.hearing {
            Hearing::Silent { silent, probes, .. } => Some((*silent, probes.clone())),
            Hearing::Heard { .. } => None,
        }
    });
    // Not before its time; how late depends on how busy the machine is that runs this.
    assert!((1450..5000).contains(&silent.as_ms()), "told after {silent}");
    let by = |path: Path, answer: Answer| probes.iter().any(|p| p.path == path && p.answer == answer);
    assert!(by(Path::Agent, Answer::Nothing), "{probes:?}");
    assert!(
        by(Path::Kubelet, Answer::Reset) || by(Path::Kubelet, Answer::Accepted),
        "its kernel lives: {probes:?}"
    );

    running_b.signal(Signal::SIGCONT);
    replica.serve_until(&hosts, "a withdrawal with b's own beacon", |_, message| {
        match &report_about(&b, message)?.hearing {
            Hearing::Heard { beacon, .. } => beacon.verify(&b.key.public(), CLUSTER).ok(),
            Hearing::Silent { .. } => None,
        }
    });
    replica.serve_until(&hosts, "b's word that it was paused", |node, message| {
        status(message).filter(|s| *node == b.node && s.doubts.contains(&SelfDoubt::LateTick)).map(|_| ())
    });
    assert!(a.log().contains("a peer is silent") && a.log().contains("is heard again"), "{}", a.log());
}

#[test]
fn beacons_come_each_quarter_second_and_are_acknowledged_each_second() {
    let (a, c) = (Host::new(3), Host::new(4));
    let (replica, peer) = Voice::replica(1);
    a.remember(&a.slice(1, &[&c], &[peer]));
    let hand = c.by_hand();
    let _running = a.start();
    let (mut beacons, mut acks, mut last_beat) = (Vec::new(), Vec::new(), 0);
    let start = now_ms();
    while now_ms() < start + 6000 {
        if now_ms() >= last_beat + 250 {
            last_beat = now_ms();
            hand.send(&a, &Message::Beacon(c.beacon(last_beat)));
        }
        match hand.hear(&[&a]) {
            Some((_, Message::Beacon(signed))) => {
                beacons.push((now_ms(), signed.verify(&a.key.public(), CLUSTER).unwrap().seq));
            }
            Some((_, Message::Ack(ack))) => {
                assert!(ack.seq <= last_beat && last_beat - ack.seq <= 600, "it holds a recent beacon");
                acks.push(ack);
            }
            Some(_) | None => {}
        }
        while replica.serve(&[&a]).is_some() {}
    }
    assert!(beacons[0].0 < start + 3000, "the first beacon came {} ms after the start", beacons[0].0 - start);
    assert!((12..=26).contains(&beacons.len()), "{} beacons in 6 s", beacons.len());
    assert!(beacons.windows(2).all(|w| w[1].1 > w[0].1), "seq rises");
    assert!((3..=7).contains(&acks.len()), "{} acks in 6 s", acks.len());
    assert!(acks.last().unwrap().arbiter_contact < Span::from_secs(3));
}

#[test]
fn a_replicas_question_is_answered_with_the_suspects_own_beacon() {
    let (a, b, stranger) = (Host::new(5), Host::new(6), Host::new(7));
    let (replica, peer) = Voice::replica(1);
    // b hears a and answers it; to a, b is nobody: only the question names it.
    a.remember(&a.slice(1, &[&stranger], std::slice::from_ref(&peer)));
    b.remember(&b.slice(1, &[&a], &[peer]));
    let (_running_a, _running_b) = (a.start(), b.start());
    let hosts = [&a, &b];
    for host in hosts {
        replica.serve_until(&hosts, "both to be up", |node, message| {
            status(message).filter(|_| *node == host.node).map(|_| ())
        });
    }
    let ask = |about: &Host, number| {
        let (subject, address, key) = (about.node.clone(), about.address, about.key.public());
        replica.send(&a, &Message::AskProbe(AskProbe { number, subject, address, key }));
        replica.serve_until(&hosts, "an answer", |_, message| {
            let Message::ProbeAnswer(answer) = message else { return None };
            (answer.number == number).then(|| answer.clone())
        })
    };
    let answer = ask(&b, 11);
    assert!(answer.beacon.unwrap().verify(&b.key.public(), CLUSTER).is_ok());
    assert!(answer.outcomes.iter().any(|o| o.path == Path::Agent && o.answer == Answer::Answered));
    let answer = ask(&stranger, 12);
    assert_eq!(answer.beacon, None);
    assert!(answer.outcomes.iter().filter(|o| o.path == Path::Agent).all(|o| o.answer == Answer::Nothing));
}

#[test]
fn a_restarted_agent_beacons_at_once_with_the_same_key_and_a_higher_number() {
    let (a, c) = (Host::new(8), Host::new(9));
    a.remember(&a.slice(1, &[&c], &[]));
    let hand = c.by_hand();
    let first_beacon = || {
        let start = now_ms();
        hand.serve_until(&[&a], "a beacon", |_, message| {
            let Message::Beacon(signed) = message else { return None };
            let beacon = signed.verify(&a.key.public(), CLUSTER).unwrap();
            (beacon.seq >= start).then(|| (now_ms() - start, beacon.seq))
        })
    };
    let running = a.start();
    let (_, before) = first_beacon();
    drop(running);
    let _running = a.start();
    let (after_ms, after) = first_beacon();
    assert!(after > before);
    assert!(after_ms < 3000, "{after_ms} ms from start to beacon, without any replica");
}

#[test]
fn told_to_stop_it_falls_silent_and_ends_well() {
    let (a, c) = (Host::new(10), Host::new(11));
    a.remember(&a.slice(1, &[&c], &[]));
    a.write("run/nologin", "");
    let hand = c.by_hand();
    let mut running = a.start();
    hand.serve_until(&[&a], "a beacon", |_, message| matches!(message, Message::Beacon(_)).then_some(()));
    running.signal(Signal::SIGTERM);
    assert_eq!(running.exit_code(), Some(0));
    while hand.hear(&[&a]).is_some() {}
    std::thread::sleep(Duration::from_millis(600));
    assert!(hand.hear(&[&a]).is_none());
    assert!(a.log().contains("kind=Reboot"), "{}", a.log());
}

#[test]
fn a_host_without_machine_id_says_so_and_sends_no_beacon() {
    let (a, c) = (Host::new(12), Host::new(13));
    std::fs::remove_file(a.root().join("sys/class/dmi/id/product_uuid")).unwrap();
    a.remember(&a.slice(1, &[&c], &[]));
    let hand = c.by_hand();
    let _running = a.start();
    let start = now_ms();
    let mut acks = 0;
    while now_ms() < start + 3000 {
        hand.send(&a, &Message::Beacon(c.beacon(now_ms())));
        std::thread::sleep(Duration::from_millis(200));
        while let Some((_, message)) = hand.hear(&[&a]) {
            assert!(!matches!(message, Message::Beacon(_) | Message::ProbeReply { .. }), "{message:?}");
            acks += u32::from(matches!(message, Message::Ack(_)));
        }
    }
    assert!(acks > 0, "it hears");
    assert!(a.log().contains("not fenceable, because"), "{}", a.log());
}

#[test]
fn an_agent_that_cannot_start_says_why() {
    let a = Host::new(14);
    let refused = a.command().arg("--node-name=N_1").arg("--address=0.0.0.0").output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "given twice is refused by clap");
    let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_coroner-agent"));
    let refused = command.env_clear().args(["--host-root=/none", "--node-name=N_1"]).output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(2));
    for part in ["--host-root is \"/none\"", "--node-name is \"N_1\"", "--address is \"\"", "right would be"]
    {
        assert!(text.contains(part), "{text}");
    }
    let _taken = a.by_hand();
    let refused = a.command().output().unwrap();
    let text = String::from_utf8(refused.stderr).unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(text.contains("another agent may be running on this host"), "{text}");
}

#[test]
fn a_flood_neither_eats_a_core_nor_deafens_nor_accuses() {
    let (a, c, liar) = (Host::new(15), Host::new(16), Host::new(17));
    let (replica, peer) = Voice::replica(1);
    a.remember(&a.slice(1, &[&c], &[peer]));
    let running = a.start();
    let hand = c.by_hand();
    let to = SocketAddr::new(a.address, PORT_PEER);
    // Forged under c's name from elsewhere, of a stranger, and rubbish.
    let forged = encode(&hand.sender, &Message::Beacon(c.beacon(1)), &liar.key, CLUSTER).unwrap();
    let stranger = liar.by_hand();
    let unknown = encode(&stranger.sender, &Message::Probe { nonce: 1 }, &liar.key, CLUSTER).unwrap();
    let rubbish = vec![0x55; 900];
    replica.serve_until(&[&a], "the agent to be up", |_, message| status(message).map(|_| ()));
    let (start, cpu, mut floods, mut last_beat) = (now_ms(), running.cpu_ms(), 0_u64, now_ms());
    let (mut longest_gap, mut accusations) = (0, Vec::new());
    while now_ms() < start + 4000 {
        for bytes in [&forged, &unknown, &rubbish] {
            for _ in 0..20 {
                let _ = stranger.socket.send_to(bytes, to);
                floods += 1;
            }
        }
        if now_ms() >= last_beat + 250 {
            longest_gap = longest_gap.max(now_ms() - last_beat);
            last_beat = now_ms();
            hand.send(&a, &Message::Beacon(c.beacon(last_beat)));
            replica.socket.set_nonblocking(true).unwrap();
            while let Some((_, message)) = replica.serve(&[&a]) {
                accusations.extend(report_about(&c, &message).cloned());
            }
        }
        std::thread::sleep(Duration::from_micros(500));
    }
    // If this test itself was held up, its peer was silent indeed.
    assert!(accusations.is_empty() || longest_gap > 800, "it accuses a peer that beats: {accusations:?}");
    let (wall, used) = (now_ms() - start, running.cpu_ms() - cpu);
    println!("{floods} datagrams in {wall} ms cost the agent {used} ms of CPU");
    assert!(floods > 10_000, "only {floods}: no flood");
    assert!(used * 100 < wall * 30, "{used} ms of CPU in {wall} ms");
}
