//! Compaction, and how a replica that was away for long comes back.

use coroner_arbiter_replica::PowerCut;
use raft::prelude::MessageType;

use crate::group::{ELECTION, Group, id, parse};

/// More than a snapshot keeps behind itself.
const PAST_COMPACTION: usize = 700;

#[test]
fn the_log_stays_short() {
    let mut group = Group::with(3, 0, 100);
    let leader = group.elect();
    for _ in 0..2_000 {
        group.commit(leader);
    }
    group.run(5);
    for member in group.ids() {
        let log = group.disk(member).platter().unwrap();
        // 500 behind the snapshot, and up to 100 before the next one.
        assert!(log.entries.len() <= 500 + 100 + 2, "{}", log.entries.len());
        assert!(log.snapshot.get_metadata().index > 1_800);
        assert_eq!(log.check(), Ok(()));
    }
}

/// Alone, a leader learns of commits only while it advances.
#[test]
fn a_group_of_one_compacts_and_restarts() {
    let mut group = Group::with(1, 0, 10);
    group.elect();
    for n in 0..50 {
        group.commit(1);
        if n % 7 == 0 {
            group.restart(1);
            group.elect();
        }
    }
    let log = group.disk(1).platter().unwrap();
    assert_eq!(log.check(), Ok(()));
    assert!(log.snapshot.get_metadata().index > 40);
}

#[test]
fn whoever_was_away_past_compaction_gets_a_snapshot_and_then_everybody_restarts() {
    let mut group = Group::with(3, 0, 100);
    let leader = group.elect();
    let away = group.ids().into_iter().find(|m| *m != leader).unwrap();
    group.crash(away, PowerCut::Lost);
    for _ in 0..PAST_COMPACTION {
        group.commit(leader);
    }
    group.start(away);
    group.run(20);
    let got = group.disk(away).platter().unwrap().snapshot.get_metadata().index;
    assert!(got > 500, "it caught up by a snapshot, not by entries: {got}");
    group.assert_equal();

    for member in group.ids() {
        group.crash(member, PowerCut::Lost);
    }
    for member in group.ids() {
        group.start(member);
        assert!(group.replica(member).applied() > 500);
    }
    let leader = group.elect();
    let key = group.commit(leader);
    group.run(5);
    assert!(group.ids().into_iter().all(|m| group.has_applied(m, &key)));
    group.assert_equal();
}

#[test]
fn a_snapshot_that_is_lost_on_the_way_is_sent_again() {
    let mut group = Group::with(3, 0, 100);
    let leader = group.elect();
    let away = group.ids().into_iter().find(|m| *m != leader).unwrap();
    group.crash(away, PowerCut::Lost);
    for _ in 0..PAST_COMPACTION {
        group.commit(leader);
    }
    group.start(away);
    let mut lost = 0;
    for _ in 0..ELECTION {
        for member in group.up() {
            group.replica(member).tick();
            group.turn(member);
            while let Some(envelope) = group.wire.pop_front() {
                if parse(&envelope.bytes).get_msg_type() == MessageType::MsgSnapshot && lost < 2 {
                    lost += 1;
                    group.replica(leader).report_snapshot(id(away), false);
                    group.turn(leader);
                } else {
                    group.deliver(&envelope);
                }
            }
        }
    }
    assert_eq!(lost, 2);
    group.assert_equal();
}

/// The receiver loses its power after the message came and before it is on its disk.
#[test]
fn a_snapshot_that_the_receiver_did_not_save_is_sent_again() {
    let mut group = Group::with(3, 0, 100);
    let leader = group.elect();
    let away = group.ids().into_iter().find(|m| *m != leader).unwrap();
    group.crash(away, PowerCut::Lost);
    for _ in 0..PAST_COMPACTION {
        group.commit(leader);
    }
    group.start(away);
    let mut died = false;
    for _ in 0..ELECTION {
        group.replica(leader).tick();
        group.turn(leader);
        while let Some(envelope) = group.wire.pop_front() {
            let snapshot = parse(&envelope.bytes).get_msg_type() == MessageType::MsgSnapshot;
            if snapshot && !died {
                died = true;
                group.replica(away).step(id(leader), &envelope.bytes).unwrap();
                group.restart(away);
                group.replica(leader).report_snapshot(id(away), true);
                group.turn(leader);
            } else {
                group.deliver(&envelope);
            }
        }
    }
    assert!(died);
    group.assert_equal();
}
