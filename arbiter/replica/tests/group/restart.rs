//! A restart at any point keeps the term, the vote and the log.

use coroner_arbiter_core::snapshot;
use coroner_arbiter_replica::{LogStore, MemoryStore, PowerCut, Replica};
use std::collections::BTreeMap;

use crate::group::{ELECTION, Group, bootstrap, quiet};

/// Hash of the state after each entry, as members reach it.
type History = BTreeMap<u64, String>;

/// Loses the power of a copy of `member` now, starts the copy again, and compares.
fn compare(group: &mut Group, member: u64, history: &mut History) {
    let config = group.config(member);
    let replica = group.replica(member);
    let (role, applied) = (replica.role(), replica.applied());
    let hash = snapshot::hash(replica.state()).unwrap();
    assert_eq!(history.entry(applied).or_insert_with(|| hash.clone()), &hash, "state after entry {applied}");
    let mut disk: MemoryStore = replica.store().clone();
    disk.power_cut(PowerCut::Lost);
    let before = disk.load().unwrap().expect("the first log is written at the first start");

    let mut copy = Replica::open(config, disk, &bootstrap(3), &quiet()).unwrap();
    let turn = copy.turn().unwrap();
    assert_eq!(copy.role().1, role.1, "the term");
    assert!(turn.messages.is_empty(), "a restarted replica waits before it says anything");
    // It applies what its disk knows to be committed; that may be less than the whole group has.
    assert!(copy.applied() <= applied);
    if let Some(hash) = history.get(&copy.applied()) {
        assert_eq!(&snapshot::hash(copy.state()).unwrap(), hash, "state after entry {}", copy.applied());
    }
    let mut disk = copy.into_store();
    disk.power_cut(PowerCut::Lost);
    let after = disk.load().unwrap().unwrap();
    assert_eq!(after, before, "a start changes nothing");
    assert_eq!(after.hard_state.term, role.1);
}

/// An eventful life: elections, deposed leaders with entries that are overwritten, compaction, a snapshot received.
#[test]
fn a_restart_at_every_turn_of_an_eventful_life_keeps_term_vote_and_log() {
    let mut group = Group::with(3, 0, 40);
    let mut history = History::new();
    let mut turns = 0;
    for round in 0..12_u64 {
        let leader = group.elect();
        let others: Vec<u64> = group.ids().into_iter().filter(|m| *m != leader).collect();
        match round % 4 {
            0 => {
                for _ in 0..15 {
                    group.commit(leader);
                }
            }
            1 => {
                group.isolate(leader);
                for _ in 0..3 {
                    group.try_propose(leader).unwrap();
                }
            }
            2 => {
                group.isolate(others[0]);
                for _ in 0..600 {
                    group.commit(leader);
                }
            }
            _ => group.restart(others[1]),
        }
        for _ in 0..ELECTION / 2 {
            for member in group.up() {
                group.replica(member).tick();
                group.turn(member);
                compare(&mut group, member, &mut history);
                while let Some(envelope) = group.wire.pop_front() {
                    group.deliver(&envelope);
                    compare(&mut group, envelope.to, &mut history);
                    turns += 1;
                }
            }
        }
        group.heal();
    }
    group.run(ELECTION);
    group.assert_equal();
    assert!(turns > 500, "{turns}");
}

/// The vote, too: asked again in the same term, by another, it says no.
#[test]
fn a_replica_that_voted_and_restarted_does_not_vote_again_in_that_term() {
    assert_eq!(crate::chaos::two_candidates(false), None);
}
