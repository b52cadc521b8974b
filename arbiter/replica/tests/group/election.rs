//! Who leads, and who must not.

use coroner_arbiter_replica::{NotLeader, Role};

use crate::group::{ELECTION, Group, command, id};

#[test]
fn one_of_three_is_elected_and_the_others_know_it() {
    for seed in 0..3 {
        let mut group = Group::new(3, seed);
        let leader = group.elect();
        for member in group.ids() {
            let role = group.replica(member).role().0;
            let expected =
                if member == leader { Role::Leader } else { Role::Follower { leader: Some(id(leader)) } };
            assert_eq!(role, expected, "seed {seed}");
        }
        assert_eq!(group.replica(leader).active_members(), Some(3));
        assert_eq!(group.replica(leader).lag().into_values().collect::<Vec<_>>(), [0, 0, 0]);
    }
}

#[test]
fn the_seed_chooses_who_leads() {
    let leaders: Vec<u64> = (0..3).map(|seed| Group::new(3, seed).elect()).collect();
    assert_eq!(leaders.iter().collect::<std::collections::BTreeSet<_>>().len(), 3, "{leaders:?}");
    assert_eq!(leaders, (0..3).map(|seed| Group::new(3, seed).elect()).collect::<Vec<_>>());
}

#[test]
fn a_group_of_one_leads_itself() {
    let mut group = Group::new(1, 0);
    assert_eq!(group.elect(), 1);
    let key = group.commit(1);
    assert!(group.has_applied(1, &key));
    assert!(group.replica(1).read_index(b"q".to_vec()));
    group.turn(1);
    assert_eq!(group.heard[&1].reads, [b"q"]);
    group.restart(1);
    group.elect();
    group.settle();
    let hold = group.replica(1).applied();
    assert!(hold >= 3, "{hold}");
}

#[test]
fn a_follower_says_who_leads() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    for member in group.ids().into_iter().filter(|m| *m != leader) {
        let refused = group.try_propose(member);
        assert_eq!(refused, Err(NotLeader::Elsewhere { leader: Some(id(leader)) }));
        assert_eq!(group.replica(member).active_members(), None);
        assert!(group.replica(member).lag().is_empty());
    }
    assert!(group.wire.is_empty(), "nothing of it went to the leader");
}

/// Pre-vote.
#[test]
fn a_replica_that_is_cut_off_does_not_raise_the_term() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    let term = group.replica(leader).role().1;
    let lone = group.ids().into_iter().find(|m| *m != leader).unwrap();
    group.isolate(lone);
    group.run(ELECTION * 5);
    assert_eq!(group.replica(lone).role(), (Role::Follower { leader: None }, term));
    group.heal();
    group.run(ELECTION);
    assert_eq!(group.leader(), Some(leader), "its return disturbs nobody");
    assert_eq!(group.replica(leader).role().1, term);
    assert_eq!(group.replica(lone).role(), (Role::Follower { leader: Some(id(leader)) }, term));
}

/// Check-quorum.
#[test]
fn a_leader_that_is_cut_off_steps_down() {
    let mut group = Group::new(3, 0);
    let old = group.elect();
    group.isolate(old);
    group.run(ELECTION / 2);
    assert!(matches!(group.replica(old).role().0, Role::Follower { leader: None }));
    let new = group.elect();
    assert_ne!(new, old);
    group.heal();
    group.run(ELECTION);
    assert_eq!(group.leader(), Some(new));
}

#[test]
fn a_leader_that_only_hears_steps_down_too() {
    let mut group = Group::new(3, 1);
    let old = group.elect();
    for other in group.ids() {
        group.cut(old, other);
    }
    group.run(ELECTION);
    assert_ne!(group.elect(), old);
}

#[test]
fn two_of_three_elect_and_one_does_not() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    group.crash(leader, coroner_arbiter_replica::PowerCut::Lost);
    let second = group.elect();
    group.commit(second);
    group.crash(second, coroner_arbiter_replica::PowerCut::Lost);
    group.run(ELECTION * 3);
    assert_eq!(group.leader(), None);
}

#[test]
fn a_leader_told_to_step_down_does_and_takes_nothing_more() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    let now = group.now;
    group.replica(leader).step_down();
    // Even before the turn that says so: raft would hand the proposal to whoever leads next.
    let refused = group.replica(leader).propose(now, "k".to_owned(), command("late"));
    assert_eq!(refused, Err(NotLeader::Elsewhere { leader: None }));
    assert!(!group.replica(leader).read_index(b"late".to_vec()));
    group.turn(leader);
    assert!(matches!(group.heard[&leader].roles.last(), Some((Role::Follower { leader: None }, _))));
    group.elect();
    group.settle();
    assert!(!group.ids().into_iter().any(|m| group.has_applied(m, "k")));
}

#[test]
fn how_many_answer_is_known_at_every_moment() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    // Long enough for several checks of the quorum, at which raft forgets whom it heard.
    for _ in 0..ELECTION {
        group.tick();
        assert_eq!(group.replica(leader).active_members(), Some(3));
    }
    let lone = group.ids().into_iter().find(|m| *m != leader).unwrap();
    group.isolate(lone);
    group.run(ELECTION);
    assert_eq!(group.replica(leader).active_members(), Some(2));
}
