//! Replicas' questions, and strangers'.

use super::*;
use crate::Known;

use coroner_shared::beacon::{AskProbe, ProbeAnswer};

fn question(number: u64, n: u8) -> Message {
    let key = SecretKey::from_seed(&[n; 32]).public();
    Message::AskProbe(AskProbe { number, subject: uid(n), address: address(n), key })
}

fn answers(bench: &Bench) -> Vec<(Mono, SocketAddr, ProbeAnswer)> {
    let answer = |m: &Message| if let Message::ProbeAnswer(answer) = m { Some(answer.clone()) } else { None };
    bench.sent.iter().filter_map(|(at, to, m)| Some((*at, *to, answer(m)?))).collect()
}

/// Asks about host 50 and gives the answer in words: `ms after the question: path:answer ...`.
#[track_caller]
fn check(agent_lives: bool, kernels: &[(HostPath, Answer)], expected: &str) {
    let mut bench = Bench::settled(&[2]);
    for (path, answer) in kernels {
        bench.kernels.insert((50, *path), *answer);
    }
    let asked = bench.now;
    bench.hear_replica(2, question(7, 50));
    if agent_lives {
        // Not in `alive`: it is no subject and sends no beacons here, but it answers.
        bench.tick();
        let nonce = bench
            .sent
            .iter()
            .filter(|(_, to, _)| host(to.ip()) == 50)
            .find_map(|(_, _, m)| if let Message::Probe { nonce } = m { Some(*nonce) } else { None });
        let beacon = beacon(50, 50, 1);
        bench.hear_agent(50, Message::ProbeReply { nonce: nonce.unwrap(), beacon });
    }
    bench.run(1000);
    let [(at, to, answer)] = &answers(&bench)[..] else { panic!("not one answer") };
    assert_eq!(*to, SocketAddr::new(address(202), PORT_REPORT), "only who asked gets it");
    assert_eq!((answer.number, &answer.subject), (7, &uid(50)));
    assert_eq!(answer.beacon.is_some(), agent_lives);
    let outcomes: Vec<String> =
        answer.outcomes.iter().map(|o| format!("{:?}:{:?}", o.path, o.answer)).collect();
    assert_eq!(format!("{}: {}", (*at - asked).as_ms(), outcomes.join(" ")), expected);
}

#[test]
fn a_replicas_question_is_answered_from_every_path() {
    use Answer::{Accepted, Answered, NotSent, Reset};
    use HostPath::{Kubelet, Ping};
    check(
        false,
        &[],
        "300: Agent:Nothing Agent:Nothing Kubelet:Nothing Kubelet:Nothing Ping:Nothing Ping:Nothing",
    );
    check(
        false,
        &[(Kubelet, Reset), (Ping, NotSent)],
        "300: Agent:Nothing Agent:Nothing Kubelet:Reset Ping:NotSent",
    );
    check(true, &[(Kubelet, Accepted), (Ping, Answered)], "0: Agent:Answered Kubelet:Accepted Ping:Answered");
    check(true, &[(Ping, Answered)], "300: Agent:Answered Kubelet:Nothing Kubelet:Nothing Ping:Answered");
}

#[test]
fn only_a_replica_may_ask() {
    let mut bench = Bench::settled(&[2]);
    bench.hear_agent(2, question(1, 50));
    bench.run(1000);
    assert_eq!(answers(&bench), []);
    assert!(bench.probes.iter().all(|(_, n, _)| *n != 50));
}

#[test]
fn the_same_question_twice_is_one_and_two_replicas_get_their_own() {
    let mut bench = Bench::settled(&[2]);
    bench.hear_replica(1, question(1, 50));
    bench.hear_replica(1, question(1, 50));
    bench.hear_replica(2, question(1, 50));
    bench.run(1000);
    let to: Vec<u8> = answers(&bench).iter().map(|(_, to, _)| host(to.ip())).collect();
    assert_eq!(to, [201, 202]);
}

#[test]
fn the_questions_of_a_mad_replica_are_bounded() {
    let mut bench = Bench::settled(&[2]);
    for number in 0..1000 {
        bench.hear_replica(1, question(number, 50));
    }
    bench.run(1000);
    assert_eq!(answers(&bench).len(), 16);
}

#[test]
fn the_asked_hosts_key_is_known_as_long_as_the_question_is_open() {
    let mut bench = Bench::settled(&[2]);
    let sender = Sender::Node(uid(50));
    assert_eq!(bench.agent.known(&sender), None);
    bench.hear_replica(1, question(1, 50));
    let key = SecretKey::from_seed(&[50; 32]).public();
    assert_eq!(bench.agent.known(&sender), Some(Known { key, address: address(50) }));
    bench.run(1000);
    assert_eq!(bench.agent.known(&sender), None);
    let two = Known { key: peer(2).key, address: address(2) };
    assert_eq!(bench.agent.known(&Sender::Node(uid(2))), Some(two));
    let first = Known { key: replica(1).key, address: address(201) };
    assert_eq!(bench.agent.known(&Sender::Replica(ReplicaId::new(1).unwrap())), Some(first));
}

#[test]
fn of_its_own_subject_a_prober_knows_which_paths_worked() {
    let mut bench = Bench::new(&[2]);
    bench.kernels.insert((2, HostPath::Kubelet), Answer::Accepted);
    bench.run(5000);
    bench.kernels.clear();
    bench.alive.clear();
    bench.run(1000);
    bench.hear_replica(1, question(1, 2));
    bench.run(400);
    let (_, _, answer) = answers(&bench).pop().unwrap();
    let worked: BTreeSet<(Path, bool)> =
        answer.outcomes.iter().map(|o| (o.path, o.worked_ago.is_some())).collect();
    assert_eq!(worked, BTreeSet::from([(Path::Agent, true), (Path::Kubelet, true), (Path::Ping, false)]));
}

#[test]
fn a_subjects_answer_to_a_question_is_a_beacon_like_any_other() {
    let mut bench = Bench::settled(&[2]);
    bench.alive.remove(&2);
    bench.run(2000);
    assert_eq!(bench.told(1, 2), "S");
    bench.hear_replica(1, question(1, 2));
    bench.alive.insert(2);
    bench.tick();
    bench.tick();
    assert_eq!(bench.told(1, 2), "SH");
}

#[test]
fn a_probe_of_a_peer_or_replica_is_answered_at_once_with_a_fresh_beacon() {
    let mut bench = Bench::settled(&[2]);
    bench.pause(3);
    bench.hear_agent(2, Message::Probe { nonce: 9 });
    bench.hear_replica(3, Message::Probe { nonce: 10 });
    let replies: Vec<_> = bench
        .sent
        .iter()
        .filter_map(|(_, to, m)| {
            let Message::ProbeReply { nonce, beacon } = m else { return None };
            Some((*to, *nonce, beacon.claims().unwrap().seq))
        })
        .collect();
    let seq = bench.now.as_ms();
    assert_eq!(
        replies,
        [
            (SocketAddr::new(address(2), PORT_PEER), 9, seq),
            (SocketAddr::new(address(203), PORT_REPORT), 10, seq)
        ]
    );
}

#[test]
fn strangers_are_answered_only_by_a_host_that_nobody_seems_to_hear() {
    let from = SocketAddr::new(address(77), 4000);
    let replies = |bench: &Bench| bench.sent.iter().filter(|(_, to, _)| *to == from).count();
    for (observers, replicas, expected) in [(true, true, 0), (false, true, 1), (true, false, 1)] {
        let mut bench = Bench::settled(&[2]);
        if !observers {
            bench.alive.clear();
        }
        if !replicas {
            bench.replicas.clear();
        }
        bench.run(5000);
        bench.input(Input::Stranger { from, nonce: 1 });
        assert_eq!(replies(&bench), expected, "{observers} {replicas}");
    }
    let mut bench = Bench::settled(&[2]);
    bench.alive.clear();
    bench.run(5000);
    for _ in 0..1000 {
        bench.run(1);
        bench.input(Input::Stranger { from, nonce: 1 });
    }
    assert_eq!(replies(&bench), 5, "five a second at most");
}
