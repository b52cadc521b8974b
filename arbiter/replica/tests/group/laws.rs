//! What must hold whatever happens: checked at each message that leaves and each entry that is applied.

use std::collections::BTreeMap;

use coroner_arbiter_replica::{Applied, Loaded, Role};
use raft::prelude::{Message, MessageType};

/// What has been seen of a group so far.
#[derive(Default)]
pub(crate) struct Laws {
    /// Who led in which term.
    leaders: BTreeMap<u64, u64>,
    /// The key of each entry that anybody has applied.
    log: BTreeMap<u64, String>,
    /// What each member voted in which term, as its messages say.
    votes: BTreeMap<(u64, u64), u64>,
    /// The first law that was broken, and how.
    broken: Option<String>,
}

// === impl Laws ===

impl Laws {
    /// The first broken law; a test that plays a bad disk looks here, all others end with [`Self::uphold`].
    pub(crate) fn broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }

    /// Panics if any law was broken.
    pub(crate) fn uphold(&self) {
        assert_eq!(self.broken, None);
    }

    /// Entries that were applied anywhere: whatever happens later, they stay.
    pub(crate) fn applied(&self) -> &BTreeMap<u64, String> {
        &self.log
    }

    /// One leader in a term.
    pub(crate) fn role(&mut self, id: u64, role: Role, term: u64) {
        if role == Role::Leader {
            let first = *self.leaders.entry(term).or_insert(id);
            self.hold(first == id, || format!("{first} and {id} both led in term {term}"));
        }
    }

    /// One log: whoever applies an index applies the same entry.
    pub(crate) fn entry(&mut self, id: u64, applied: &Applied) {
        let key = applied.entry.key.clone();
        let first = self.log.entry(applied.index).or_insert_with(|| key.clone()).clone();
        self.hold(first == key, || format!("{id} applied {key} as entry {}, another {first}", applied.index));
    }

    /// Nothing is said that the disk does not hold.
    pub(crate) fn message(&mut self, message: &Message, disk: Option<&Loaded>) {
        let Some(disk) = disk else {
            return self.hold(false, || format!("{} speaks with an empty disk", message.from));
        };
        let (from, term) = (message.from, message.term);
        let hard = &disk.hard_state;
        match message.get_msg_type() {
            MessageType::MsgRequestVote => {
                self.vote(from, term, from);
                self.hold(hard.term == term && hard.vote == from, || {
                    format!("{from} stands in term {term}, unsaved")
                });
            }
            MessageType::MsgRequestVoteResponse if !message.reject => {
                self.vote(from, term, message.to);
                self.hold(hard.term == term && hard.vote == message.to, || {
                    format!("{from} votes in term {term}, unsaved")
                });
            }
            MessageType::MsgAppendResponse if !message.reject => {
                let last = disk.entries.last().map_or(disk.base.index, |e| e.index);
                self.hold(hard.term >= term && last >= message.index, || {
                    format!("{from} has entry {} on its disk, it says; it ends at {last}", message.index)
                });
            }
            MessageType::MsgAppend => {
                let last = disk.entries.last().map_or(disk.base.index, |e| e.index);
                let sent = message.entries.last().map_or(0, |e| e.index);
                self.hold(last >= sent, || format!("{from} sends entry {sent}, its own log ends at {last}"));
            }
            MessageType::MsgHeartbeat | MessageType::MsgHeartbeatResponse | MessageType::MsgSnapshot => {
                self.hold(hard.term >= term, || format!("{from} speaks in term {term}, unsaved"));
            }
            // A refusal promises nothing, nor does a pre-vote; the rest never leaves a replica.
            MessageType::MsgAppendResponse
            | MessageType::MsgRequestVoteResponse
            | MessageType::MsgRequestPreVote
            | MessageType::MsgRequestPreVoteResponse
            | MessageType::MsgHup
            | MessageType::MsgBeat
            | MessageType::MsgPropose
            | MessageType::MsgUnreachable
            | MessageType::MsgSnapStatus
            | MessageType::MsgCheckQuorum
            | MessageType::MsgTransferLeader
            | MessageType::MsgTimeoutNow
            | MessageType::MsgReadIndex
            | MessageType::MsgReadIndexResp => {}
        }
    }

    /// One vote in a term.
    fn vote(&mut self, id: u64, term: u64, whom: u64) {
        let first = *self.votes.entry((id, term)).or_insert(whom);
        self.hold(first == whom, || format!("{id} voted for {first} and {whom} in term {term}"));
    }

    fn hold(&mut self, good: bool, broken: impl FnOnce() -> String) {
        if !good && self.broken.is_none() {
            self.broken = Some(broken());
        }
    }
}
