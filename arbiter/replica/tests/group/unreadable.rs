//! What a newer build has written: this one stops, and its disk stays as it is.

use coroner_arbiter_core::apply;
use coroner_arbiter_core::snapshot;
use coroner_arbiter_core::state::State;
use coroner_arbiter_replica::{Fatal, MemoryStore, Replica, ReplicaConfig};
use protobuf::Message as _;
use raft::prelude::{ConfState, Entry, EntryType, Message, MessageType, Snapshot};

use crate::group::{bootstrap, id, quiet};

/// A follower with an empty log, and the leader's next message to it.
fn hear(message: Message) -> (Fatal, MemoryStore) {
    let config = ReplicaConfig::new(id(1));
    let mut replica = Replica::open(config, MemoryStore::new(), &bootstrap(3), &quiet()).unwrap();
    replica.turn().unwrap();
    let message = Message { from: 2, to: 1, term: 1, ..message };
    replica.step(id(2), &message.write_to_bytes().unwrap()).unwrap();
    (replica.turn().unwrap_err(), replica.into_store())
}

fn append(kind: EntryType, data: &[u8]) -> Message {
    let mut entry = Entry { index: 2, term: 1, ..Entry::default() };
    entry.set_entry_type(kind);
    entry.data = data.to_vec().into();
    let mut message = Message { index: 1, log_term: 1, commit: 2, ..Message::default() };
    message.set_msg_type(MessageType::MsgAppend);
    message.set_entries(vec![entry].into());
    message
}

fn snapshot_of(data: Vec<u8>) -> Message {
    let mut snapshot = Snapshot::default();
    let meta = snapshot.mut_metadata();
    (meta.index, meta.term) = (90, 1);
    meta.set_conf_state(ConfState { voters: vec![1, 2, 3], ..ConfState::default() });
    snapshot.data = data.into();
    let mut message = Message::default();
    message.set_msg_type(MessageType::MsgSnapshot);
    message.set_snapshot(snapshot);
    message
}

#[test]
fn a_committed_entry_that_this_build_cannot_read_stops_it() {
    for data in [&b"nonsense"[..], b"{}", br#"{"do":"SomethingNew"}"#] {
        let (fatal, _) = hear(append(EntryType::EntryNormal, data));
        assert!(matches!(&fatal, Fatal::Unreadable { what, .. } if what == "entry 2"), "{fatal:?}");
    }
}

#[test]
fn a_change_of_members_is_not_passed_over() {
    for kind in [EntryType::EntryConfChange, EntryType::EntryConfChangeV2] {
        let (fatal, _) = hear(append(kind, b""));
        assert!(fatal.to_string().contains("changes the members"), "{fatal}");
    }
}

#[test]
fn a_snapshot_that_this_build_cannot_read_does_not_replace_what_it_has() {
    let mut ahead = State::default();
    ahead.level = apply::LEVEL + 1;
    for data in [b"{\"version\":99}\n".to_vec(), Vec::from(b"x"), snapshot::to_bytes(&ahead).unwrap()] {
        let (fatal, disk) = hear(snapshot_of(data));
        assert!(matches!(fatal, Fatal::Unreadable { .. }), "{fatal:?}");
        assert_eq!(disk.platter().unwrap().snapshot.get_metadata().index, 1);
        assert!(Replica::open(ReplicaConfig::new(id(1)), disk, &bootstrap(3), &quiet()).is_ok());
    }
}
