//! What is looked at in a peer's message before raft-rs sees it: raft-rs believes its peers, and panics where one
//! contradicts itself.
//!
//! A heartbeat that speaks of entries we do not have is no fault of the peer: this disk has lost what it acknowledged,
//! and the replica ends by name ([`Fatal::Forgot`](crate::Fatal::Forgot)) before raft-rs would panic.

use raft::prelude::{Message, MessageType};

use crate::said::StepError;

/// Up to which entry its leader knows this replica's log to reach, where the log ends before that. `term` and `last` are
/// the replica's own; a leader that is deposed says nothing that counts, and raft-rs drops it.
pub(crate) fn forgotten(message: &Message, term: u64, last: u64) -> Option<u64> {
    let deposed = (1..term).contains(&message.term);
    let counts = message.get_msg_type() == MessageType::MsgHeartbeat && !deposed;
    (counts && message.commit > last).then_some(message.commit)
}

/// Whether a replica may have sent this.
pub(crate) fn check(message: &Message) -> Result<(), StepError> {
    match message.get_msg_type() {
        MessageType::MsgAppend => entries(message),
        MessageType::MsgSnapshot => snapshot(message),
        MessageType::MsgAppendResponse
        | MessageType::MsgRequestVote
        | MessageType::MsgRequestVoteResponse
        | MessageType::MsgRequestPreVote
        | MessageType::MsgRequestPreVoteResponse
        | MessageType::MsgHeartbeat
        | MessageType::MsgHeartbeatResponse => Ok(()),
        // It would pass by the leader's own limits, and an empty one panics.
        MessageType::MsgPropose => Err(StepError::Kind("proposals")),
        MessageType::MsgReadIndex | MessageType::MsgReadIndexResp => Err(StepError::Kind("reads")),
        MessageType::MsgTransferLeader | MessageType::MsgTimeoutNow => {
            Err(StepError::Kind("transfers of leadership"))
        }
        MessageType::MsgHup
        | MessageType::MsgBeat
        | MessageType::MsgUnreachable
        | MessageType::MsgSnapStatus
        | MessageType::MsgCheckQuorum => Err(StepError::Kind("messages that stay within raft")),
    }
}

fn entries(message: &Message) -> Result<(), StepError> {
    let (mut index, mut term) = (message.index, message.log_term);
    for entry in &message.entries {
        if index.checked_add(1) != Some(entry.index) || entry.term < term || entry.term > message.term {
            return Err(StepError::Unsound("entries that do not follow each other"));
        }
        (index, term) = (entry.index, entry.term);
    }
    Ok(())
}

fn snapshot(message: &Message) -> Result<(), StepError> {
    let about = message.get_snapshot().get_metadata();
    let members = about.get_conf_state();
    let named_once = |ids: &[u64]| ids.iter().collect::<std::collections::BTreeSet<_>>().len() == ids.len();
    let plain = members.learners.is_empty()
        && members.voters_outgoing.is_empty()
        && members.learners_next.is_empty()
        && !members.auto_leave;
    if members.voters.is_empty() || members.voters.contains(&0) || !named_once(&members.voters) || !plain {
        return Err(StepError::Unsound(
            "a snapshot without members, or with some of a kind that we do not make",
        ));
    }
    if about.index == 0 || about.term > message.term {
        return Err(StepError::Unsound("a snapshot of no entry"));
    }
    Ok(())
}
