//! Linearizable reads: what the last look before an irreversible call rests on.

use raft::prelude::MessageType;

use crate::group::{Group, id, parse};

fn asked(group: &mut Group, member: u64, context: &str) {
    assert!(group.replica(member).read_index(context.into()));
    group.turn(member);
}

fn answered(group: &Group, member: u64, context: &str) -> bool {
    group.heard[&member].reads.iter().any(|r| r == context.as_bytes())
}

#[test]
fn a_leader_that_a_quorum_confirms_answers_and_its_state_holds_all_before() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    let key = group.commit(leader);
    asked(&mut group, leader, "q");
    assert!(!answered(&group, leader, "q"), "nobody has confirmed it yet");
    group.settle();
    assert!(answered(&group, leader, "q"));
    assert!(group.has_applied(leader, &key));
}

#[test]
fn one_confirmation_of_three_is_enough_and_none_is_not() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    let lone = group.ids().into_iter().find(|m| *m != leader).unwrap();
    group.isolate(lone);
    asked(&mut group, leader, "with one");
    group.settle();
    assert!(answered(&group, leader, "with one"));
    group.isolate(leader);
    asked(&mut group, leader, "alone");
    group.settle();
    assert!(!answered(&group, leader, "alone"));
}

#[test]
fn what_a_deposed_leader_is_asked_is_never_answered() {
    let mut group = Group::new(3, 0);
    let old = group.elect();
    group.isolate(old);
    asked(&mut group, old, "stale");
    let new = group.elect_without(old);
    group.commit(new);
    group.heal();
    group.run(100);
    // Not even once it leads again.
    while group.elect() != old {
        let other = group.elect();
        group.replica(other).step_down();
        group.turn(other);
        group.run(1);
    }
    group.run(50);
    assert!(!answered(&group, old, "stale"));
    asked(&mut group, old, "fresh");
    group.settle();
    assert!(answered(&group, old, "fresh"));
}

/// Its state may lack what its predecessor committed, until an entry of its own term is committed.
#[test]
fn a_new_leader_answers_only_with_everything_its_predecessor_committed() {
    let mut group = Group::new(3, 0);
    let old = group.elect();
    group.run(5);
    // The others have the entry, and do not know that it is committed.
    let key = group.try_propose(old).unwrap();
    let mut acks = 0;
    while acks < 2 {
        let envelope = group.wire.pop_front().unwrap();
        acks += usize::from(parse(&envelope.bytes).get_msg_type() == MessageType::MsgAppendResponse);
        group.deliver(&envelope);
    }
    assert!(group.has_applied(old, &key));
    group.crash(old, coroner_arbiter_replica::PowerCut::Lost);
    group.wire.clear();
    let (new, _) = group.elect_only();
    assert!(!group.has_applied(new, &key), "it does not know yet that this is committed");
    asked(&mut group, new, "q");
    assert!(!answered(&group, new, "q"));
    while !answered(&group, new, "q") {
        assert!(group.deliver_one() || !group.up().is_empty());
        if group.wire.is_empty() {
            group.tick_only(new, 1);
        }
    }
    assert!(group.has_applied(new, &key));
}

/// Before it has committed anything in its term.
#[test]
fn what_a_new_leader_is_asked_and_cannot_answer_yet_ends_with_its_leadership() {
    let mut group = Group::new(3, 0);
    let old = group.elect();
    group.crash(old, coroner_arbiter_replica::PowerCut::Lost);
    let (new, _) = group.elect_only();
    asked(&mut group, new, "too early");
    // Nobody hears that it leads.
    group.wire.clear();
    group.replica(new).step_down();
    group.turn(new);
    while group.elect() != new {
        let other = group.elect();
        group.replica(other).step_down();
        group.turn(other);
        group.run(1);
    }
    group.run(20);
    assert!(!answered(&group, new, "too early"));
}

#[test]
fn a_follower_is_not_asked() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    for member in group.ids().into_iter().filter(|m| *m != leader) {
        assert!(!group.replica(member).read_index(b"q".to_vec()));
        group.turn(member);
    }
    group.settle();
    assert!(group.heard.values().all(|h| h.reads.is_empty()));
}

/// The same context in two terms: an acknowledgement of the first is none of the second.
#[test]
fn an_old_acknowledgement_confirms_no_later_question() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    asked(&mut group, leader, "q");
    // Both answers are under way when the leader loses its place, and arrive when it leads again and is cut off.
    let others: Vec<u64> = group.ids().into_iter().filter(|m| *m != leader).collect();
    for other in &others {
        let beat = group.take_first(leader, *other);
        assert_eq!(parse(&beat.bytes).get_msg_type(), MessageType::MsgHeartbeat);
        group.deliver(&beat);
    }
    let late: Vec<_> = others.iter().map(|other| group.take_first(*other, leader)).collect();
    group.replica(leader).step_down();
    group.turn(leader);
    while group.elect() != leader {
        let other = group.elect();
        group.replica(other).step_down();
        group.turn(other);
        group.run(1);
    }
    group.run(5);
    group.isolate(leader);
    asked(&mut group, leader, "q");
    for envelope in late {
        let _ = group.replica(leader).step(id(envelope.from), &envelope.bytes);
        group.turn(leader);
    }
    group.settle();
    assert!(!answered(&group, leader, "q"));
}
