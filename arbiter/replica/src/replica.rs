//! The turning of one replica: raft-rs, the state, and the order in which things may leave.

use std::collections::{BTreeMap, VecDeque};

use coroner_arbiter_core::command::{Command, Entry, Outcome};
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::{apply, snapshot};
use coroner_shared::id::ReplicaId;
use coroner_shared::time::{Mono, Span};
use protobuf::Message as _;
use raft::prelude::{ConfState, EntryType, HardState, Message, MessageType, Snapshot};
use raft::{RawNode, ReadOnlyOption, SnapshotStatus, StateRole};
use thiserror::Error;

use crate::mirror::Mirror;
use crate::store::{Base, Batch, Loaded, LogStore, StoreError};

/// Longest entry: sled keeps larger values outside the file that we sync.
const ENTRY_BYTES_MAX: usize = 96 * 1024;
/// Longest message of a peer that is parsed at all; a snapshot is the longest.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024 * 1024;
/// The span of an entry is capped here: a leader that slept must not make deadlines pass.
const SPAN_MAX: Span = Span::from_secs(60);
/// Entries kept behind a snapshot, so that a replica that was away for a moment needs none.
const TRAILING: u64 = 500;

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

/// What one turn made; all of it is on the disk already.
#[derive(Debug, Default)]
pub struct Turn {
    /// Encoded messages for other replicas.
    pub messages: Vec<(ReplicaId, Vec<u8>)>,
    /// Entries that were applied, in order.
    pub applied: Vec<Applied>,
    /// Answers to [`Replica::read_index`]: the context, once the state holds everything committed before the question.
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
    /// raft-rs does not take it (an old term, a removed member): not harmful.
    #[error("raft ignores a message: {0}")]
    Ignored(raft::Error),
}

/// One member of the group.
pub struct Replica<S: LogStore> {
    config: ReplicaConfig,
    node: RawNode<Mirror>,
    store: S,
    state: State,
    applied: u64,
    role: (Role, u64),
    /// Reads that raft has confirmed at an index the state has not reached yet.
    reads: VecDeque<(u64, Vec<u8>)>,
    /// When the last entry was proposed by this leader, on its own clock.
    last_proposal: Option<Mono>,
    /// Hard state that differs from the disk only in its commit index.
    unsaved_commit: bool,
}

// === impl Replica ===

impl<S: LogStore> Replica<S> {
    /// Opens the disk; on an empty one the group's first state is written.
    ///
    /// # Errors
    /// Disk, raft, or a snapshot of a newer build.
    pub fn open(config: ReplicaConfig, mut store: S, bootstrap: &Bootstrap, logger: &slog::Logger) -> Result<Self, Fatal> {
        let id = config.id;
        let failed = |source| Fatal::Store { id, source };
        let log = match store.load().map_err(failed)? {
            Some(log) => log,
            None => {
                let first = first_log(bootstrap).map_err(|e| unreadable(id, &e))?;
                let batch = Batch { hard_state: Some(&first.hard_state), received: Some(&first.snapshot), ..Batch::default() };
                store.write(&batch).map_err(failed)?;
                first
            }
        };
        let state = decode_state(id, &log.snapshot)?;
        let applied = log.snapshot.get_metadata().index;
        let raft_config = raft::Config {
            id: id.get(),
            election_tick: config.election_ticks.0,
            min_election_tick: config.election_ticks.0,
            max_election_tick: config.election_ticks.1,
            heartbeat_tick: config.heartbeat_ticks,
            applied,
            max_size_per_msg: 1024 * 1024,
            max_inflight_msgs: 64,
            max_uncommitted_size: 16 * 1024 * 1024,
            // Both are off by default, and without them a cut-off replica disturbs or misleads the others.
            check_quorum: true,
            pre_vote: true,
            // A lease would trust clocks.
            read_only_option: ReadOnlyOption::Safe,
            ..raft::Config::default()
        };
        let node = RawNode::new(&raft_config, Mirror::new(log), logger).map_err(|source| Fatal::Raft { id, source })?;
        let role = (Role::Follower { leader: None }, node.raft.term);
        Ok(Self {
            config,
            node,
            store,
            state,
            applied,
            role,
            reads: VecDeque::new(),
            last_proposal: None,
            unsaved_commit: false,
        })
    }

    /// The state as applied so far.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// Index of the last applied entry.
    pub fn applied(&self) -> u64 {
        self.applied
    }

    /// Index up to which the group has committed, as far as this replica knows.
    pub fn committed(&self) -> u64 {
        self.node.raft.raft_log.committed
    }

    /// Role and term.
    pub fn role(&self) -> (Role, u64) {
        self.role
    }

    /// Its id.
    pub fn id(&self) -> ReplicaId {
        self.config.id
    }

    /// How many replicas the leader heard from within the last election time-out, itself included; `None` elsewhere.
    pub fn active_members(&self) -> Option<usize> {
        let progress = self.node.status().progress?;
        Some(progress.iter().filter(|(id, p)| **id == self.config.id.get() || p.recent_active).count())
    }

    /// How far behind the leader each member's log is, in entries; empty elsewhere.
    pub fn lag(&self) -> BTreeMap<ReplicaId, u64> {
        let last = self.node.raft.raft_log.last_index();
        let Some(progress) = self.node.status().progress else { return BTreeMap::new() };
        progress
            .iter()
            .filter_map(|(id, p)| ReplicaId::new(*id).ok().map(|id| (id, last.saturating_sub(p.matched))))
            .collect()
    }

    /// One tick of raft's clock.
    pub fn tick(&mut self) {
        self.node.tick();
    }

    /// Stops leading, if it does: it has been asleep for too long to be believed.
    pub fn step_down(&mut self) {
        if self.node.raft.state == StateRole::Leader {
            let term = self.node.raft.term;
            self.node.raft.become_follower(term, 0);
        }
    }

    /// A message of another replica, as its connection's certificate names it.
    ///
    /// # Errors
    /// Not one that may be taken; nothing changed.
    pub fn step(&mut self, peer: ReplicaId, bytes: &[u8]) -> Result<(), StepError> {
        if bytes.len() > MESSAGE_BYTES_MAX {
            return Err(StepError::TooLong(bytes.len()));
        }
        let message = Message::parse_from_bytes(bytes).map_err(|_| StepError::Malformed)?;
        if message.from != peer.get() || message.to != self.config.id.get() {
            return Err(StepError::WrongPeer { from: message.from, to: message.to, peer: peer.get() });
        }
        self.node.step(message).map_err(StepError::Ignored)
    }

    /// The network could not reach a replica.
    pub fn report_unreachable(&mut self, id: ReplicaId) {
        self.node.report_unreachable(id.get());
    }

    /// How the sending of a snapshot ended; without this a follower stays in wait for ever.
    pub fn report_snapshot(&mut self, id: ReplicaId, sent: bool) {
        self.node.report_snapshot(id.get(), if sent { SnapshotStatus::Finish } else { SnapshotStatus::Failure });
    }

    /// Proposes a command. Whether it is committed shows in a later [`Turn`], or never: a proposal may vanish with its
    /// leader, so every command is safe to repeat.
    ///
    /// # Errors
    /// [`NotLeader`].
    pub fn propose(&mut self, now: Mono, key: String, command: Command) -> Result<(), NotLeader> {
        let (Role::Leader, term) = self.role else {
            let leader = ReplicaId::new(self.node.raft.leader_id).ok().filter(|l| *l != self.config.id);
            return Err(NotLeader::Elsewhere { leader });
        };
        let span = self.last_proposal.map_or(Span::ZERO, |then| now.since(then)).min(SPAN_MAX);
        let entry = Entry { span, leader: self.config.id, term, key, command };
        let data = serde_json::to_vec(&entry).map_err(|_| NotLeader::Dropped)?;
        if data.len() > ENTRY_BYTES_MAX {
            return Err(NotLeader::TooLarge(data.len()));
        }
        self.node.propose(Vec::new(), data).map_err(|_| NotLeader::Dropped)?;
        self.last_proposal = Some(now);
        Ok(())
    }

    /// Asks for a linearizable read. Its context comes back in [`Turn::reads`] once a quorum has confirmed the leader
    /// and the state holds everything committed before; never, if leadership is lost.
    pub fn read_index(&mut self, context: Vec<u8>) {
        self.node.read_index(context);
    }

    /// Saves, applies and hands out whatever is ready.
    ///
    /// # Errors
    /// [`Fatal`]: the caller stops the process.
    pub fn turn(&mut self) -> Result<Turn, Fatal> {
        let mut turn = Turn::default();
        while self.node.has_ready() {
            self.one_ready(&mut turn)?;
        }
        self.answer_reads(&mut turn);
        self.note_role(&mut turn);
        if self.applied.saturating_sub(self.node.store().snapshot_index()) >= self.config.snapshot_every {
            self.make_snapshot()?;
        }
        Ok(turn)
    }

    fn one_ready(&mut self, turn: &mut Turn) -> Result<(), Fatal> {
        let mut ready = self.node.ready();
        let snapshot = (!ready.snapshot().is_empty()).then(|| ready.snapshot().clone());
        self.save(&ready, snapshot.as_ref())?;
        if let Some(snapshot) = snapshot {
            self.state = decode_state(self.config.id, &snapshot)?;
            self.applied = snapshot.get_metadata().index;
        }
        let messages = ready.take_messages().into_iter().chain(ready.take_persisted_messages());
        collect_messages(messages, turn);
        self.reads.extend(ready.take_read_states().into_iter().map(|r| (r.index, r.request_ctx)));
        let committed = ready.take_committed_entries();
        self.apply(committed, turn)?;

        let mut light = self.node.advance(ready);
        if let Some(commit) = light.commit_index() {
            self.node.mut_store().set_commit(commit);
            self.unsaved_commit = true;
        }
        collect_messages(light.take_messages().into_iter(), turn);
        let committed = light.take_committed_entries();
        self.apply(committed, turn)?;
        self.node.advance_apply();
        Ok(())
    }

    /// Persists before anything that rests on it is sent. A change of the commit index alone rides on the next write:
    /// raft finds it again.
    fn save(&mut self, ready: &raft::Ready, received: Option<&Snapshot>) -> Result<(), Fatal> {
        let hard_state: Option<HardState> = ready.hs().cloned();
        if !ready.must_sync() && ready.entries().is_empty() && received.is_none() {
            if let Some(hard_state) = hard_state {
                self.node.mut_store().set_hard_state(hard_state);
                self.unsaved_commit = true;
            }
            return Ok(());
        }
        let mut to_save = hard_state.clone();
        if to_save.is_none() && (self.unsaved_commit || received.is_some()) {
            to_save = Some(self.node.store().hard_state().clone());
        }
        if let (Some(hard), Some(snapshot)) = (to_save.as_mut(), received) {
            // raft-rs refuses to start from a snapshot that lies ahead of the commit index beside it.
            hard.commit = hard.commit.max(snapshot.get_metadata().index);
        }
        let batch = Batch { hard_state: to_save.as_ref(), entries: ready.entries(), received, made: None };
        self.store.write(&batch).map_err(|source| Fatal::Store { id: self.config.id, source })?;
        self.unsaved_commit = false;
        let mirror = self.node.mut_store();
        if let Some(snapshot) = received {
            mirror.receive(snapshot.clone());
        }
        mirror.append(ready.entries().clone());
        if let Some(hard_state) = to_save {
            mirror.set_hard_state(hard_state);
        }
        Ok(())
    }

    fn apply(&mut self, entries: Vec<raft::prelude::Entry>, turn: &mut Turn) -> Result<(), Fatal> {
        for committed in entries {
            let index = committed.index;
            // A new leader's first entry is empty; changes of members have a type of their own and none is made yet.
            if !committed.data.is_empty() && committed.get_entry_type() == EntryType::EntryNormal {
                let entry: Entry = serde_json::from_slice(&committed.data).map_err(|e| Fatal::Unreadable {
                    id: self.config.id,
                    what: format!("entry {index}"),
                    why: e.to_string(),
                })?;
                let outcome = apply::apply(&mut self.state, index, &entry);
                turn.applied.push(Applied { index, entry, outcome });
            }
            self.applied = index;
        }
        Ok(())
    }

    fn answer_reads(&mut self, turn: &mut Turn) {
        while let Some((index, _)) = self.reads.front() {
            if *index > self.applied {
                break;
            }
            if let Some((_, context)) = self.reads.pop_front() {
                turn.reads.push(context);
            }
        }
    }

    fn note_role(&mut self, turn: &mut Turn) {
        let raft = &self.node.raft;
        let role = match raft.state {
            StateRole::Leader => Role::Leader,
            StateRole::Follower | StateRole::Candidate | StateRole::PreCandidate => {
                Role::Follower { leader: ReplicaId::new(raft.leader_id).ok() }
            }
        };
        if (role, raft.term) != self.role {
            self.role = (role, raft.term);
            // Time that passed under another leader is in that leader's entries.
            self.last_proposal = None;
            turn.role = Some(self.role);
        }
    }

    fn make_snapshot(&mut self) -> Result<(), Fatal> {
        let failed = |source| Fatal::Raft { id: self.config.id, source };
        let term = raft::Storage::term(self.node.store(), self.applied).map_err(failed)?;
        let keep_from = self.applied.saturating_sub(TRAILING).max(self.node.store().base().index);
        let base = Base { index: keep_from, term: raft::Storage::term(self.node.store(), keep_from).map_err(failed)? };
        let snapshot = make_snapshot(&self.state, self.applied, term, self.node.store().conf_state())
            .map_err(|e| unreadable(self.config.id, &e))?;
        let hard_state = self.node.store().hard_state().clone();
        let batch = Batch { hard_state: Some(&hard_state), made: Some((&snapshot, base)), ..Batch::default() };
        self.store.write(&batch).map_err(|source| Fatal::Store { id: self.config.id, source })?;
        self.unsaved_commit = false;
        self.node.mut_store().compact(snapshot, base);
        Ok(())
    }
}

// === helpers ===

/// The same synthetic snapshot on every first replica: index 1, term 1, all members.
fn first_log(bootstrap: &Bootstrap) -> Result<Loaded, snapshot::SnapshotError> {
    let conf_state = ConfState { voters: bootstrap.members.iter().map(|id| id.get()).collect(), ..ConfState::default() };
    let snapshot = make_snapshot(&bootstrap.state, 1, 1, &conf_state)?;
    let hard_state = HardState { term: 1, commit: 1, ..HardState::default() };
    Ok(Loaded { hard_state, snapshot, base: Base { index: 1, term: 1 }, entries: Vec::new() })
}

fn make_snapshot(state: &State, index: u64, term: u64, conf_state: &ConfState) -> Result<Snapshot, snapshot::SnapshotError> {
    let mut made = Snapshot::default();
    let meta = made.mut_metadata();
    meta.index = index;
    meta.term = term;
    meta.set_conf_state(conf_state.clone());
    made.data = snapshot::to_bytes(state)?.into();
    Ok(made)
}

fn decode_state(id: ReplicaId, from: &Snapshot) -> Result<State, Fatal> {
    snapshot::from_bytes(&from.data).map_err(|e| unreadable(id, &e))
}

fn unreadable(id: ReplicaId, error: &snapshot::SnapshotError) -> Fatal {
    Fatal::Unreadable { id, what: "a snapshot".to_owned(), why: error.to_string() }
}

fn collect_messages(messages: impl Iterator<Item = Message>, turn: &mut Turn) {
    for message in messages {
        debug_assert_ne!(message.get_msg_type(), MessageType::MsgHup, "local messages never leave raft");
        if let (Ok(to), Ok(bytes)) = (ReplicaId::new(message.to), message.write_to_bytes()) {
            turn.messages.push((to, bytes));
        }
    }
}
