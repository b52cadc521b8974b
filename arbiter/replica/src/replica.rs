//! The turning of one replica: raft-rs, the state, and the order in which things may leave.

use coroner_shared::mutant::{Mutant, planted};

use std::collections::{BTreeMap, VecDeque};

use coroner_arbiter_core::apply;
use coroner_arbiter_core::command::{Command, Entry};
use coroner_arbiter_core::state::State;
use coroner_shared::id::ReplicaId;
use coroner_shared::time::{Mono, Span};
use protobuf::Message as _;
use raft::prelude::{EntryType, HardState, Message, Snapshot};
use raft::{RawNode, ReadOnlyOption, SnapshotStatus, StateRole};

use crate::first;
use crate::heard::Heard;
use crate::incoming;
use crate::mirror::Mirror;
use crate::said::ENTRY_BYTES_MAX;
pub use crate::said::{
    Applied, Bootstrap, Fatal, MESSAGE_BYTES_MAX, NotLeader, ReplicaConfig, Role, StepError, Turn,
};
use crate::store::{Base, Batch, LogStore};

/// The span of an entry is capped here: a leader that slept must not make deadlines pass.
const SPAN_MAX: Span = Span::from_secs(60);
/// Entries kept behind a snapshot, so that a replica that was away for a moment needs none.
const TRAILING: u64 = 500;

/// One member of the group.
pub struct Replica<S: LogStore> {
    config: ReplicaConfig,
    node: RawNode<Mirror>,
    store: S,
    state: State,
    applied: u64,
    role: (Role, u64),
    heard: Heard,
    /// Reads asked for while this leader had not yet committed anything in its term: raft would drop them.
    asked: Vec<Vec<u8>>,
    /// Reads that raft has confirmed at an index the state has not reached yet.
    reads: VecDeque<(u64, Vec<u8>)>,
    /// When this leader proposed its last entry, on its own clock, and in which term.
    last_proposal: Option<(u64, Mono)>,
    /// Hard state that differs from the disk only in its commit index.
    unsaved_commit: bool,
    /// A leader spoke of entries up to this one as acknowledged, and the log ends before it.
    forgot: Option<u64>,
    /// A turn failed: what raft believes to be on the disk may not be there.
    stopped: bool,
}

// === impl Replica ===

impl<S: LogStore> Replica<S> {
    /// Opens the disk; on an empty one the group's first state is written.
    ///
    /// # Errors
    /// Disk, raft, or a snapshot of a newer build.
    pub fn open(
        config: ReplicaConfig,
        mut store: S,
        bootstrap: &Bootstrap,
        logger: &slog::Logger,
    ) -> Result<Self, Fatal> {
        let id = config.id;
        let failed = |source| Fatal::Store { id, source };
        let log = match store.load().map_err(failed)? {
            Some(log) => log,
            None => {
                let first = first::first_log(id, bootstrap)?;
                let batch = Batch {
                    hard_state: Some(&first.hard_state),
                    received: Some(&first.snapshot),
                    ..Batch::default()
                };
                store.write(&batch).map_err(failed)?;
                first
            }
        };
        let state = first::decode(id, &log.snapshot)?;
        let applied = log.snapshot.get_metadata().index;
        let node = RawNode::new(&raft_config(&config, applied), Mirror::new(log), logger)
            .map_err(|source| Fatal::Raft { id, source })?;
        let role = (Role::Follower { leader: None }, node.raft.term);
        Ok(Self {
            config,
            node,
            store,
            state,
            applied,
            role,
            heard: Heard::default(),
            asked: Vec::new(),
            reads: VecDeque::new(),
            last_proposal: None,
            unsaved_commit: false,
            forgot: None,
            stopped: false,
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

    /// Role and term, as of the last turn.
    pub fn role(&self) -> (Role, u64) {
        self.role
    }

    /// Its id.
    pub fn id(&self) -> ReplicaId {
        self.config.id
    }

    /// The disk.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The disk, for whoever plays its faults.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// Gives back the disk; the rest of the replica is gone, as after a crash.
    pub fn into_store(self) -> S {
        self.store
    }

    /// How many replicas the leader heard from within the shortest election time-out, itself included; `None` elsewhere.
    pub fn active_members(&self) -> Option<usize> {
        let progress = self.node.status().progress?;
        let active = |id: u64| {
            id == self.config.id.get()
                || ReplicaId::new(id).is_ok_and(|id| self.heard.lately(id, self.config.election_ticks.0))
        };
        Some(progress.iter().filter(|(id, _)| active(**id)).count())
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
        self.heard.tick();
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
        incoming::check(&message)?;
        if self.forgot.is_none() {
            let raft = &self.node.raft;
            self.forgot = incoming::forgotten(&message, raft.term, raft.raft_log.last_index());
        }
        if self.forgot.is_some() {
            // The next turn ends the replica.
            return Ok(());
        }
        self.heard.from(peer);
        self.node.step(message).map_err(StepError::Ignored)
    }

    /// The network could not reach a replica.
    pub fn report_unreachable(&mut self, id: ReplicaId) {
        self.node.report_unreachable(id.get());
    }

    /// How the sending of a snapshot ended; without this a follower stays in wait for ever.
    pub fn report_snapshot(&mut self, id: ReplicaId, sent: bool) {
        self.node
            .report_snapshot(id.get(), if sent { SnapshotStatus::Finish } else { SnapshotStatus::Failure });
    }

    /// Proposes a command. Whether it is committed shows in a later [`Turn`], or never: a proposal may vanish with its
    /// leader, so every command is safe to repeat.
    ///
    /// # Errors
    /// [`NotLeader`].
    pub fn propose(&mut self, now: Mono, key: String, command: Command) -> Result<(), NotLeader> {
        let Some(term) = self.leads() else {
            let leader = ReplicaId::new(self.node.raft.leader_id).ok().filter(|l| *l != self.config.id);
            return Err(NotLeader::Elsewhere { leader });
        };
        // Time that passed under another leader, or in another term, is in no entry of this one.
        let since = self.last_proposal.filter(|(of, _)| *of == term).map(|(_, then)| now.since(then));
        let span = since.unwrap_or(Span::ZERO).min(SPAN_MAX);
        let entry = Entry { span, leader: self.config.id, term, key, command };
        let data = serde_json::to_vec(&entry).map_err(|_| NotLeader::Dropped)?;
        if data.len() > ENTRY_BYTES_MAX {
            return Err(NotLeader::TooLarge(data.len()));
        }
        self.node.propose(Vec::new(), data).map_err(|_| NotLeader::Dropped)?;
        self.last_proposal = Some((term, now));
        Ok(())
    }

    /// Asks for a linearizable read; says whether this replica leads and so may answer. The context, unique in this
    /// life of the replica, comes back in [`Turn::reads`] once a quorum has confirmed the leader and the state holds
    /// everything committed before; never, if leadership is lost.
    pub fn read_index(&mut self, context: Vec<u8>) -> bool {
        // A follower's question is not handed to the leader: raft-rs takes any answer to the same context as an answer
        // to this question, also one to another replica, or to this one before a restart. A leader's own are told
        // apart by their term.
        if self.leads().is_none() {
            return false;
        }
        if planted(Mutant::LocalReads) {
            self.reads.push_back((self.applied, context));
            return true;
        }
        self.asked.push(context);
        true
    }

    /// Saves, applies and hands out whatever is ready.
    ///
    /// # Errors
    /// [`Fatal`]: the caller stops the process.
    pub fn turn(&mut self) -> Result<Turn, Fatal> {
        if self.stopped {
            return Err(Fatal::Stopped { id: self.config.id });
        }
        let turned = self.turned();
        self.stopped = turned.is_err();
        turned
    }

    /// The term in which it leads: both as raft has it now and as the last turn said.
    fn leads(&self) -> Option<u64> {
        let raft = &self.node.raft;
        // Messages since the last turn may have deposed it; raft would then hand what it is given to another leader.
        (raft.state == StateRole::Leader && self.role == (Role::Leader, raft.term)).then_some(raft.term)
    }

    fn turned(&mut self) -> Result<Turn, Fatal> {
        if let Some(told) = self.forgot {
            let last = self.node.raft.raft_log.last_index();
            return Err(Fatal::Forgot { id: self.config.id, told, last });
        }
        let mut turn = Turn::default();
        self.ask();
        while self.node.has_ready() {
            self.one_ready(&mut turn)?;
        }
        self.note_role(&mut turn);
        self.answer_reads(&mut turn);
        if self.applied.saturating_sub(self.node.store().snapshot_index()) >= self.config.snapshot_every {
            self.make_snapshot()?;
        }
        Ok(turn)
    }

    fn ask(&mut self) {
        if self.leads().is_some() && self.node.raft.commit_to_current_term() {
            for context in self.asked.drain(..) {
                self.node.read_index(context);
            }
        }
    }

    fn one_ready(&mut self, turn: &mut Turn) -> Result<(), Fatal> {
        let mut ready = self.node.ready();
        let received = (!ready.snapshot().is_empty()).then(|| ready.snapshot().clone());
        // Before it is saved: what this build cannot read must not replace what it can.
        let state = received.as_ref().map(|s| first::decode(self.config.id, s)).transpose()?;
        self.save(&ready, received.as_ref())?;
        if let (Some(state), Some(snapshot)) = (state, received) {
            self.state = state;
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
        let must_sync = ready.must_sync() && !planted(Mutant::VoteNotSynced);
        if !must_sync && ready.entries().is_empty() && received.is_none() {
            if let Some(hard_state) = hard_state {
                self.node.mut_store().set_hard_state(hard_state);
                self.unsaved_commit = true;
            }
            return Ok(());
        }
        let mut to_save = hard_state;
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
        let id = self.config.id;
        for committed in entries {
            let index = committed.index;
            let what = || format!("entry {index}");
            match committed.get_entry_type() {
                EntryType::EntryNormal => {}
                EntryType::EntryConfChange | EntryType::EntryConfChangeV2 => {
                    let why = "it changes the members of the group, which this build does not".to_owned();
                    return Err(Fatal::Unreadable { id, what: what(), why });
                }
            }
            // A new leader's first entry is empty.
            if !committed.data.is_empty() {
                first::knows_rules(id, &self.state)?;
                let entry: Entry =
                    serde_json::from_slice(&committed.data).map_err(|e| first::unreadable(id, what(), &e))?;
                let outcome = apply::apply(&mut self.state, index, &entry);
                turn.applied.push(Applied { index, entry, outcome });
            }
            self.applied = index;
        }
        Ok(())
    }

    fn answer_reads(&mut self, turn: &mut Turn) {
        while self.reads.front().is_some_and(|(index, _)| *index <= self.applied) {
            turn.reads.extend(self.reads.pop_front().map(|(_, context)| context));
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
            // Asked of a leadership that is over.
            self.asked.clear();
            self.reads.clear();
            turn.role = Some(self.role);
        }
    }

    fn make_snapshot(&mut self) -> Result<(), Fatal> {
        let id = self.config.id;
        let mirror = self.node.store();
        let base_at = |index| {
            let term = raft::Storage::term(mirror, index).map_err(|source| Fatal::Raft { id, source })?;
            Ok(Base { index, term })
        };
        let base = base_at(self.applied.saturating_sub(TRAILING).max(mirror.base().index))?;
        let snapshot = first::encode(id, &self.state, base_at(self.applied)?, mirror.conf_state())?;
        let hard_state = mirror.hard_state().clone();
        let batch =
            Batch { hard_state: Some(&hard_state), made: Some((&snapshot, base)), ..Batch::default() };
        self.store.write(&batch).map_err(|source| Fatal::Store { id, source })?;
        self.unsaved_commit = false;
        self.node.mut_store().compact(snapshot, base);
        Ok(())
    }
}

// === helpers ===

fn raft_config(config: &ReplicaConfig, applied: u64) -> raft::Config {
    raft::Config {
        id: config.id.get(),
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
    }
}

fn collect_messages(messages: impl Iterator<Item = Message>, turn: &mut Turn) {
    for message in messages {
        if let (Ok(to), Ok(bytes)) = (ReplicaId::new(message.to), message.write_to_bytes()) {
            turn.messages.push((to, bytes));
        }
    }
}
