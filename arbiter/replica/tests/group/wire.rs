//! Bytes from the network: whatever they are, they are taken or refused, never a panic.

use coroner_arbiter_replica::StepError;
use coroner_arbiter_replica::replica::MESSAGE_BYTES_MAX;
use proptest::prelude::*;
use protobuf::{Message as _, ProtobufEnum as _};
use raft::prelude::{Entry, Message, MessageType};

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
        for entries in [0, 1] {
            let mut message = Message { from: peer, to: leader, ..Message::default() };
            message.set_msg_type(*kind);
            message.set_entries(vec![Entry::default(); entries].into());
            let bytes = message.write_to_bytes().unwrap();
            if let Err(StepError::Kind(what)) = group.replica(leader).step(id(peer), &bytes) {
                refused.push((*kind, what));
            }
        }
    }
    let refused: Vec<MessageType> = refused.into_iter().step_by(2).map(|(kind, _)| kind).collect();
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
fn a_message_that_is_too_long_is_not_parsed() {
    let mut group = Group::new(3, 0);
    let long = vec![0; MESSAGE_BYTES_MAX + 1];
    assert!(matches!(group.replica(1).step(id(2), &long), Err(StepError::TooLong(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]

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
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..4),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut group = Group::new(3, 0);
        let mut entry = Entry { index: 2, term: 1, ..Entry::default() };
        entry.data = vec![7; 20].into();
        let mut good = Message { from: 2, to: 1, term: 1, index: 1, log_term: 1, ..Message::default() };
        good.set_msg_type(MessageType::values()[kind]);
        good.set_entries(vec![entry].into());
        let mut bytes = good.write_to_bytes().unwrap();
        for (at, to) in changes {
            let at = at.index(bytes.len());
            bytes[at] = to;
        }
        bytes.truncate(1 + cut.index(bytes.len()));
        // What still decodes is raft's to judge; with a commit index of its own making it would rightly panic, since
        // the connection vouches for its peer.
        let decoded = Message::parse_from_bytes(&bytes).ok();
        if decoded.is_none_or(|m| m.commit <= 1 && m.from == 2 && m.to == 1 && m.index <= 1) {
            let _ = group.replica(1).step(id(2), &bytes);
        }
    }
}
