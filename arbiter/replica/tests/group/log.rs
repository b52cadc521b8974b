//! What is committed, what vanishes, and how time gets into the log.

use coroner_arbiter_core::apply;
use coroner_arbiter_core::command::Outcome;
use coroner_arbiter_replica::{MemoryStore, NotLeader, Replica, ReplicaConfig, Role};
use coroner_shared::time::Span;

use crate::group::{Group, bootstrap, command, id, quiet};

#[test]
fn what_is_committed_is_applied_by_all_and_makes_equal_states() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    let keys: Vec<String> = (0..20).map(|_| group.commit(leader)).collect();
    group.run(5);
    for member in group.ids() {
        assert!(keys.iter().all(|key| group.has_applied(member, key)));
        assert_eq!(group.replica(member).committed(), group.replica(leader).committed());
    }
    group.assert_equal();
    assert!(group.heard[&leader].applied.iter().all(|a| a.outcome != Outcome::Stale));
}

#[test]
fn many_proposals_in_one_turn_share_one_write() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    group.run(5);
    let before = group.disk(leader).writes();
    let now = group.now;
    for n in 0..50 {
        group.replica(leader).propose(now, format!("k{n}"), command("x")).unwrap();
    }
    group.turn(leader);
    group.settle();
    assert!(group.has_applied(leader, "k49"));
    assert_eq!(group.disk(leader).writes() - before, 1);
}

#[test]
fn what_a_deposed_leader_proposed_vanishes_and_is_never_answered() {
    let mut group = Group::new(3, 0);
    let old = group.elect();
    let kept = group.commit(old);
    group.isolate(old);
    let lost: Vec<String> = (0..3).map(|_| group.try_propose(old).unwrap()).collect();
    group.settle();
    let new = group.elect_without(old);
    let later = group.commit(new);
    group.heal();
    group.run(40);
    for member in group.ids() {
        assert!(group.has_applied(member, &kept) && group.has_applied(member, &later));
        assert!(!lost.iter().any(|key| group.has_applied(member, key)));
    }
    // Its role is what tells its proposers.
    assert!(group.heard[&old].roles.iter().any(|(role, _)| matches!(role, Role::Follower { .. })));
    group.assert_equal();
}

/// Between a message that deposes it and the turn that says so.
#[test]
fn a_leader_just_deposed_hands_nothing_to_its_successor() {
    let mut group = Group::new(3, 0);
    let old = group.elect();
    group.isolate(old);
    let new = group.elect_without(old);
    group.heal();
    // One heartbeat of the new leader arrives, without a turn.
    group.tick_only(new, 2);
    let beat = group.take_first(new, old);
    group.replica(old).step(id(new), &beat.bytes).unwrap();
    let now = group.now;
    let refused = group.replica(old).propose(now, "k".to_owned(), command("late"));
    assert!(matches!(refused, Err(NotLeader::Elsewhere { .. })), "{refused:?}");
    assert!(!group.replica(old).read_index(b"late".to_vec()));
    group.turn(old);
    group.run(20);
    assert!(!group.has_applied(new, "k"));
}

#[test]
fn each_entry_carries_the_time_since_the_last_as_its_leader_measured_it() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    let (minute, hour) = (Span::from_secs(60), Span::from_mins(60));
    for (pause, expected) in [
        (Span::ZERO, Span::ZERO),
        (Span::from_ms(2_500), Span::from_ms(2_500)),
        (Span::ZERO, Span::ZERO),
        (hour, minute),
        (Span::from_ms(1), Span::from_ms(1)),
    ] {
        group.now = group.now + pause;
        group.commit(leader);
        let last = group.heard[&leader].applied.last().unwrap();
        assert_eq!(last.entry.span, expected, "{pause} later");
        assert_eq!(last.entry.leader.get(), leader);
    }
    let total = Span::from_ms(2_500 + 60_000 + 1);
    assert_eq!(group.replica(leader).state().now.as_ms(), total.as_ms());
}

#[test]
fn a_proposal_that_is_refused_takes_no_time() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    group.commit(leader);
    group.now = group.now + Span::from_secs(3);
    let now = group.now;
    let huge = "x".repeat(200 * 1024);
    let refused = group.replica(leader).propose(now, "huge".to_owned(), command(&huge));
    assert!(matches!(refused, Err(NotLeader::TooLarge(bytes)) if bytes > 200 * 1024), "{refused:?}");
    group.commit(leader);
    assert_eq!(group.heard[&leader].applied.last().unwrap().entry.span, Span::from_secs(3));
}

#[test]
fn a_new_leader_counts_from_its_own_first_entry() {
    let mut group = Group::new(3, 0);
    let old = group.elect();
    group.commit(old);
    group.replica(old).step_down();
    group.turn(old);
    let new = group.elect();
    group.now = group.now + Span::from_secs(30);
    group.commit(new);
    assert_eq!(group.heard[&new].applied.last().unwrap().entry.span, Span::ZERO);
    // The same replica in a later term begins anew, too.
    group.replica(new).step_down();
    group.turn(new);
    while group.elect() != new {
        let other = group.elect();
        group.replica(other).step_down();
        group.turn(other);
        group.run(1);
    }
    group.now = group.now + Span::from_secs(30);
    group.commit(new);
    assert_eq!(group.heard[&new].applied.last().unwrap().entry.span, Span::ZERO);
}

#[test]
fn an_entry_as_large_as_may_be_is_committed() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    let now = group.now;
    let largest = (0..96 * 1024)
        .rev()
        .find(|size| group.replica(leader).propose(now, "k".to_owned(), command(&"x".repeat(*size))).is_ok());
    assert!(largest.is_some_and(|size| size > 95 * 1024), "{largest:?}");
    group.turn(leader);
    group.settle();
    assert!(group.has_applied(leader, "k"));
}

#[test]
fn too_much_in_flight_is_refused_and_not_kept() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    group.isolate(leader);
    let now = group.now;
    let body = "x".repeat(90 * 1024);
    let refused =
        (0..400).find_map(|n| group.replica(leader).propose(now, format!("k{n}"), command(&body)).err());
    assert_eq!(refused, Some(NotLeader::Dropped));
}

#[test]
fn rules_that_this_build_does_not_know_stop_it() {
    let mut first = bootstrap(1);
    first.state.level = apply::LEVEL + 1;
    let opened = Replica::open(ReplicaConfig::new(id(1)), MemoryStore::new(), &first, &quiet());
    let error = opened.err().unwrap().to_string();
    assert!(error.contains("level 2") && error.contains("this build knows level 1"), "{error}");
}
