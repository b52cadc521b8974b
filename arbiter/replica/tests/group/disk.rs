//! A disk that fails: nothing that rests on it is said.

use coroner_arbiter_replica::{
    Batch, Fatal, LogStore, MemoryStore, PowerCut, Replica, ReplicaConfig, StoreError,
};
use coroner_shared::time::Span;
use raft::prelude::{Entry, HardState, MessageType};

use crate::group::{Group, bootstrap, id, parse, quiet};

fn is_disk(fatal: &Fatal) -> bool {
    matches!(fatal, Fatal::Store { source: StoreError::Io { .. }, .. })
}

#[test]
fn a_save_that_fails_is_fatal_and_nothing_of_that_turn_leaves() {
    let faults: [fn(&mut MemoryStore); 2] = [|disk| disk.fail(true), |disk| disk.fill(true)];
    for fault in faults {
        // A follower that is asked to take an entry, one that is asked for its vote, and a leader with a proposal.
        let mut group = Group::new(3, 0);
        let leader = group.elect();
        let other = group.ids().into_iter().find(|m| *m != leader).unwrap();
        group.run(5);
        group.try_propose(leader).unwrap();
        let append = group.take_first(leader, other);
        assert_eq!(parse(&append.bytes).get_msg_type(), MessageType::MsgAppend);
        fault(group.disk(other));
        group.replica(other).step(id(leader), &append.bytes).unwrap();
        let sent = group.wire.len();
        assert!(is_disk(&group.try_turn(other).unwrap_err()));
        assert_eq!(group.wire.len(), sent, "not a message");
        assert!(matches!(group.try_turn(other), Err(Fatal::Stopped { .. })), "and it stays down");

        fault(group.disk(leader));
        let now = group.now;
        group.replica(leader).propose(now, "k".to_owned(), crate::group::command("x")).unwrap();
        assert!(is_disk(&group.try_turn(leader).unwrap_err()));
        assert_eq!(group.wire.len(), sent);

        let mut group = Group::new(3, 0);
        group.run(9);
        for member in group.ids() {
            fault(group.disk(member));
        }
        let died = (0..80).find_map(|_| {
            group.up().into_iter().find_map(|m| {
                group.replica(m).tick();
                let turned = group.try_turn(m);
                while let Some(e) = group.wire.pop_front() {
                    let kind = parse(&e.bytes).get_msg_type();
                    // Pre-votes promise nothing and are not saved.
                    let harmless = [MessageType::MsgRequestPreVote, MessageType::MsgRequestPreVoteResponse];
                    assert!(harmless.contains(&kind), "{kind:?}");
                    let _ = group.replica(e.to).step(id(e.from), &e.bytes);
                    let _ = group.try_turn(e.to);
                }
                turned.err()
            })
        });
        assert!(died.is_none_or(|fatal| is_disk(&fatal) || matches!(fatal, Fatal::Stopped { .. })));
        assert!(
            group
                .heard
                .values()
                .all(|h| h.roles.iter().all(|(role, _)| *role != coroner_arbiter_replica::Role::Leader))
        );
    }
}

#[test]
fn a_snapshot_that_cannot_be_saved_is_fatal_too() {
    let mut group = Group::with(1, 0, 10);
    let leader = group.elect();
    let mut died = false;
    for n in 0..20 {
        group.disk(leader).fail(n == 15);
        let now = group.now;
        died |= group.replica(leader).propose(now, format!("k{n}"), crate::group::command("x")).is_ok()
            && group.try_turn(leader).is_err();
    }
    assert!(died);
}

#[test]
fn a_disk_that_cannot_be_read_or_is_damaged_stops_the_start() {
    let mut disk = MemoryStore::new();
    disk.fail_reads(true);
    assert!(is_disk(&open(disk).unwrap_err()));
    let mut disk = MemoryStore::new();
    disk.damage("entry 7 is missing");
    let error = open(disk).unwrap_err();
    let Fatal::Store { source, .. } = &error else { panic!("{error:?}") };
    assert!(source.to_string().contains("entry 7 is missing"), "{source}");
    let mut disk = MemoryStore::new();
    disk.fill(true);
    assert!(is_disk(&open(disk).unwrap_err()), "the first log cannot be written");
}

#[test]
fn an_entry_that_no_store_keeps_in_one_piece_is_refused_whole() {
    let mut disk = MemoryStore::new();
    let mut small = Entry { index: 1, term: 1, ..Entry::default() };
    small.data = vec![0; 10].into();
    let mut large = Entry { index: 2, term: 1, ..Entry::default() };
    large.data = vec![0; 200 * 1024].into();
    let entries = [small, large];
    let hard_state = HardState { term: 1, ..HardState::default() };
    let refused = disk.write(&Batch { entries: &entries, hard_state: Some(&hard_state), ..Batch::default() });
    assert!(matches!(refused, Err(StoreError::TooLarge { bytes, .. }) if bytes > 200 * 1024), "{refused:?}");
    assert_eq!(disk.load().unwrap(), None, "nothing was written");
}

#[test]
fn the_memory_store_loses_keeps_and_tears_what_it_was_told_to() {
    let entry = |index| Entry { index, term: 1, ..Entry::default() };
    let full = || {
        let mut disk = MemoryStore::new();
        disk.lie(true);
        for from in [1_u64, 3, 5] {
            let hard_state = HardState { term: 1, commit: from, ..HardState::default() };
            let entries = [entry(from), entry(from + 1)];
            disk.write(&Batch { hard_state: Some(&hard_state), entries: &entries, ..Batch::default() })
                .unwrap();
        }
        assert_eq!((disk.unsynced(), disk.writes()), (3, 3));
        disk
    };
    let last =
        |disk: &mut MemoryStore| disk.load().unwrap().map(|log| (log.entries.len(), log.hard_state.commit));
    for (cut, expected) in [
        (PowerCut::Lost, None),
        (PowerCut::Kept(1), Some((2, 1))),
        (PowerCut::Kept(9), Some((6, 5))),
        (PowerCut::Torn { whole: 1, entries: 1 }, Some((3, 1))),
        (PowerCut::Torn { whole: 3, entries: 1 }, Some((6, 5))),
    ] {
        let mut disk = full();
        assert_eq!(last(&mut disk), Some((6, 5)), "as long as the power is there all of it is");
        disk.power_cut(cut);
        assert_eq!(last(&mut disk), expected, "{cut:?}");
    }
    let mut disk = full();
    disk.sync();
    disk.power_cut(PowerCut::Lost);
    assert_eq!(last(&mut disk), Some((6, 5)));
    disk.stall(Span::from_ms(300));
    disk.write(&Batch::default()).unwrap();
    disk.write(&Batch::default()).unwrap();
    assert_eq!((disk.take_stall(), disk.take_stall()), (Span::from_ms(600), Span::ZERO));
}

fn open(disk: MemoryStore) -> Result<(), Fatal> {
    Replica::open(ReplicaConfig::new(id(1)), disk, &bootstrap(1), &quiet()).map(|_| ())
}
