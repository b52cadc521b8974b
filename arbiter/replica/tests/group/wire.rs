//! Bytes from the network: whatever they are, they are taken or refused, never a panic.

use coroner_arbiter_replica::StepError;
use coroner_arbiter_replica::replica::MESSAGE_BYTES_MAX;
use proptest::prelude::*;
use protobuf::{Message as _, ProtobufEnum as _};
use raft::prelude::{ConfState, Entry, Message, MessageType, Snapshot};

use crate::group::{Group, id};

fn message(kind: MessageType, from: u64, to: u64) -> Vec<u8> {
    let mut message = Message { from, to, ..Message::default() };
    message.set_msg_type(kind);
    message.write_to_bytes().unwrap()
}

#[test]
fn a_message_is_taken_from_the_peer_it_names_and_for_us_only() {
    let mut group = Group::new(3, 0);
    group.elect();
    for (peer, from, to) in [(2, 3, 1), (2, 2, 3), (2, 1, 1), (2, 2, 0), (3, 0, 1)] {
        let refused = group.replica(1).step(id(peer), &message(MessageType::MsgHeartbeat, from, to));
        match refused {
            Err(StepError::WrongPeer { from: f, to: t, peer: p }) => assert_eq!((f, t, p), (from, to, peer)),
            other => panic!("{other:?}"),
        }
    }
    assert!(group.replica(1).step(id(2), &message(MessageType::MsgHeartbeat, 2, 1)).is_ok());
}

#[test]
fn an_answer_of_somebody_outside_the_group_is_ignored() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    let answer = message(MessageType::MsgAppendResponse, 9, leader);
    assert!(matches!(group.replica(leader).step(id(9), &answer), Err(StepError::Ignored(_))));
}

/// Everything but what replicas send; most of it would pass by the leader's limits, an empty proposal would panic.
#[test]
fn only_what_replicas_send_is_taken() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    let peer = group.ids().into_iter().find(|m| *m != leader).unwrap();
    let mut refused = Vec::new();
    for kind in MessageType::values() {
        let message = Message { from: peer, to: leader, ..good(*kind) };
        let empty = Message { entries: Vec::new().into(), ..message.clone() };
        for message in [message, empty] {
            let bytes = message.write_to_bytes().unwrap();
            if let Err(StepError::Kind(_)) = group.replica(leader).step(id(peer), &bytes) {
                refused.push(*kind);
            }
        }
    }
    refused.dedup();
    assert_eq!(
        refused,
        [
            MessageType::MsgHup,
            MessageType::MsgBeat,
            MessageType::MsgPropose,
            MessageType::MsgUnreachable,
            MessageType::MsgSnapStatus,
            MessageType::MsgCheckQuorum,
            MessageType::MsgTransferLeader,
            MessageType::MsgTimeoutNow,
            MessageType::MsgReadIndex,
            MessageType::MsgReadIndexResp,
        ]
    );
}

#[test]
fn a_message_that_contradicts_itself_is_refused() {
    let mut group = Group::new(3, 0);
    type Spoil = fn(&mut Message);
    let spoilt: [(&str, Spoil); 8] = [
        ("a gap", |m| m.mut_entries()[1].index = 9),
        ("not after the entry before", |m| m.index = 3),
        ("an index that cannot go on", |m| (m.index, m.mut_entries()[0].index) = (u64::MAX, 0)),
        ("a term that falls", |m| m.mut_entries()[1].term = 0),
        ("a term that is not yet", |m| m.mut_entries()[2].term = 2),
        ("nobody", |m| m.mut_snapshot().mut_metadata().mut_conf_state().voters.clear()),
        ("somebody twice", |m| m.mut_snapshot().mut_metadata().mut_conf_state().voters.push(1)),
        ("of nothing", |m| m.mut_snapshot().mut_metadata().index = 0),
    ];
    for (n, (what, spoil)) in spoilt.into_iter().enumerate() {
        let mut message = good(if n < 5 { MessageType::MsgAppend } else { MessageType::MsgSnapshot });
        let bytes = message.write_to_bytes().unwrap();
        spoil(&mut message);
        let refused = group.replica(1).step(id(2), &message.write_to_bytes().unwrap());
        assert!(matches!(refused, Err(StepError::Unsound(_))), "{what}: {refused:?}");
        assert!(group.replica(1).step(id(2), &bytes).is_ok(), "and the good one is taken");
    }
}

#[test]
fn a_message_that_is_too_long_is_not_parsed() {
    let mut group = Group::new(3, 0);
    let long = vec![0; MESSAGE_BYTES_MAX + 1];
    assert!(matches!(group.replica(1).step(id(2), &long), Err(StepError::TooLong(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1024, ..ProptestConfig::default() })]

    #[test]
    fn any_bytes_are_refused_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let mut group = Group::new(3, 0);
        let refused = group.replica(1).step(id(2), &bytes);
        prop_assert!(!matches!(refused, Err(StepError::TooLong(_))));
        group.turn(1);
    }

    /// A good message with a few bytes changed or cut off.
    #[test]
    fn a_spoilt_message_does_not_panic(
        kind in 0..19_usize,
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        whole in any::<bool>(),
    ) {
        let mut group = Group::new(3, 0);
        let mut bytes = good(MessageType::values()[kind]).write_to_bytes().unwrap();
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        if !whole {
            bytes.truncate(1 + cut.index(bytes.len()));
        }
        if group.replica(1).step(id(2), &bytes).is_ok() {
            // A state that no build of ours wrote stops the replica, and so does a commit index beyond our log, which
            // says that this disk has lost something; a panic would fail the test.
            let _ = group.replica(1).turn();
        }
    }
}

/// As a leader would send it to a follower that has nothing yet.
fn good(kind: MessageType) -> Message {
    let mut message = Message { from: 2, to: 1, term: 1, index: 1, log_term: 1, ..Message::default() };
    message.set_msg_type(kind);
    let entries = (2..5).map(|index| {
        let mut entry = Entry { index, term: 1, ..Entry::default() };
        entry.data = vec![7; 5].into();
        entry
    });
    message.set_entries(entries.collect::<Vec<_>>().into());
    let mut snapshot = Snapshot::default();
    let meta = snapshot.mut_metadata();
    (meta.index, meta.term) = (9, 1);
    meta.set_conf_state(ConfState { voters: vec![1, 2, 3], ..ConfState::default() });
    snapshot.data = coroner_arbiter_core::snapshot::to_bytes(&Default::default()).unwrap().into();
    message.set_snapshot(snapshot);
    message
}
