//! What goes into a replica and what comes out of it: configuration, the result of a turn, and every refusal.

use coroner_arbiter_core::command::{Entry, Outcome};
use coroner_arbiter_core::state::State;
use coroner_shared::id::ReplicaId;
use protobuf::Message as _;
use raft::prelude::{Message, MessageType};
use thiserror::Error;

use crate::store::StoreError;

/// Longest entry: a store keeps no larger value in one piece (see [`crate::store::VALUE_BYTES_MAX`]).
pub const ENTRY_BYTES_MAX: usize = 96 * 1024;
/// Longest message of a peer that is parsed at all; a snapshot is the longest.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;

/// How a replica runs.
#[derive(Clone, Copy, Debug)]
pub struct ReplicaConfig {
    /// Its Raft id; it belongs to the disk.
    pub id: ReplicaId,
    /// Ticks without a leader after which it stands for election: at least `.0`, fewer than `.1`, drawn by raft-rs.
    pub election_ticks: (usize, usize),
    /// Ticks between heartbeats of a leader.
    pub heartbeat_ticks: usize,
    /// A snapshot is made after this many applied entries.
    pub snapshot_every: u64,
}

impl ReplicaConfig {
    /// For a tick of 50 ms: heartbeat 100 ms, election after 1 to 2 s.
    pub fn new(id: ReplicaId) -> Self {
        Self { id, election_ticks: (20, 40), heartbeat_ticks: 2, snapshot_every: 2_000 }
    }
}

/// The members with which a group starts: the same on every replica.
#[derive(Clone, Debug)]
pub struct Bootstrap {
    /// All of them.
    pub members: Vec<ReplicaId>,
    /// The state before the first entry.
    pub state: State,
}

/// What a replica is in the group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It leads, in this term.
    Leader,
    /// It follows, or stands for election.
    Follower {
        /// Whom it knows as the leader.
        leader: Option<ReplicaId>,
    },
}

/// An entry that was applied.
#[derive(Clone, Debug)]
pub struct Applied {
    /// Its index in the log.
    pub index: u64,
    /// The entry.
    pub entry: Entry,
    /// What became of it.
    pub outcome: Outcome,
}

/// Whether an encoded message carries a snapshot: whoever sends one says how that ended, or the receiver stays in wait.
#[must_use]
pub fn is_snapshot(message: &[u8]) -> bool {
    Message::parse_from_bytes(message).is_ok_and(|m| m.get_msg_type() == MessageType::MsgSnapshot)
}

/// A promise that a message makes for its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Vote {
    /// In this term.
    pub term: u64,
    /// It votes for this replica and no other: itself, if it asks for votes.
    pub candidate: u64,
}

/// The vote that an encoded message gives, if it gives one: it must be on the sender's disk before. For oracles.
pub fn vote_in(message: &[u8]) -> Option<Vote> {
    let message = Message::parse_from_bytes(message).ok()?;
    let kind = message.get_msg_type();
    let asks = kind == MessageType::MsgRequestVote;
    let gives = kind == MessageType::MsgRequestVoteResponse && !message.reject;
    if !asks && !gives {
        return None;
    }
    let candidate = if asks { message.from } else { message.to };
    Some(Vote { term: message.term, candidate })
}

/// What one turn made; all of it is on the disk already.
#[derive(Debug, Default)]
pub struct Turn {
    /// Encoded messages for other replicas.
    pub messages: Vec<(ReplicaId, Vec<u8>)>,
    /// Entries that were applied, in order.
    pub applied: Vec<Applied>,
    /// Answers to [`Replica::read_index`](crate::Replica::read_index): the context, once the state holds everything committed before the question.
    pub reads: Vec<Vec<u8>>,
    /// The role, if it or the term changed.
    pub role: Option<(Role, u64)>,
}

/// The replica cannot go on; the process stops without sending what it could not save.
#[derive(Debug, Error)]
pub enum Fatal {
    /// The disk.
    #[error("replica {id} stops: its disk failed")]
    Store {
        /// Which replica.
        id: ReplicaId,
        /// What the disk says.
        #[source]
        source: StoreError,
    },
    /// raft-rs.
    #[error("replica {id} stops: raft refuses to go on")]
    Raft {
        /// Which replica.
        id: ReplicaId,
        /// What raft says.
        #[source]
        source: raft::Error,
    },
    /// A committed entry or a snapshot that this build cannot read: written by a newer one.
    #[error("replica {id} stops: {what} cannot be read by this build ({why}); start a build that knows it")]
    Unreadable {
        /// Which replica.
        id: ReplicaId,
        /// What.
        what: String,
        /// Why not.
        why: String,
    },
    /// Its leader knows that its disk held more than it does: it lost what it acknowledged, or a copy was put back.
    #[error(
        "replica {id} stops: its leader knows that it acknowledged entries up to {told}, and its log ends at {last}; its disk has lost what it said was saved, or an older copy of it was put back. Nothing is decided by it; the other replicas go on. Look at this disk, never put back a copy of one, and keep the other replicas healthy: it is taken in again only when another of them leads"
    )]
    Forgot {
        /// Which replica.
        id: ReplicaId,
        /// What the leader has seen acknowledged and committed.
        told: u64,
        /// The last entry on this disk.
        last: u64,
    },
    /// It was turned again after it had stopped.
    #[error("replica {id} has stopped before; it must be opened anew")]
    Stopped {
        /// Which replica.
        id: ReplicaId,
    },
}

/// Only a leader takes proposals.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum NotLeader {
    /// Somebody else leads, or nobody.
    #[error("this replica does not lead; {}", .leader.map_or("no leader is known".to_owned(), |l| format!("replica {l} does")))]
    Elsewhere {
        /// Who does.
        leader: Option<ReplicaId>,
    },
    /// raft-rs dropped it (too much in flight).
    #[error("the proposal was dropped: too many are in flight")]
    Dropped,
    /// Too large for one entry.
    #[error("the proposal has {0} bytes, more than {ENTRY_BYTES_MAX}")]
    TooLarge(usize),
}

/// A peer's message that is not taken.
#[derive(Debug, Error)]
pub enum StepError {
    /// Longer than any message may be.
    #[error("a message of {0} bytes is longer than {MESSAGE_BYTES_MAX}")]
    TooLong(usize),
    /// Not a Raft message.
    #[error("a message cannot be decoded")]
    Malformed,
    /// For somebody else, or not from whom the connection belongs to.
    #[error("a message from {from} to {to} came over the connection of {peer}")]
    WrongPeer {
        /// Claimed sender.
        from: u64,
        /// Claimed receiver.
        to: u64,
        /// Whose certificate the connection showed.
        peer: u64,
    },
    /// Of a kind that replicas do not send each other: no proposal, read, transfer of leadership.
    #[error("replicas send each other no {0}")]
    Kind(&'static str),
    /// It contradicts itself.
    #[error("a message holds {0}")]
    Unsound(&'static str),
    /// raft-rs does not take it (an old term, a removed member): not harmful.
    #[error("raft ignores a message: {0}")]
    Ignored(raft::Error),
}
