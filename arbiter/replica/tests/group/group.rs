//! A group of replicas, with the test as its network, clock and disks. Nothing is drawn by chance: each replica's
//! election time-out is one tick wide, and messages arrive in the order in which they were sent.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::snapshot;
use coroner_arbiter_core::state::State;
use coroner_arbiter_replica::{
    Applied, Bootstrap, Fatal, MemoryStore, NotLeader, PowerCut, Replica, ReplicaConfig, Role,
};
use coroner_shared::id::ReplicaId;
use coroner_shared::time::{Mono, Span};
use protobuf::Message as _;
use raft::prelude::{Message, MessageType};

use crate::laws::Laws;

/// One tick of the group's clock.
pub(crate) const TICK: Span = Span::from_ms(50);
/// Ticks within which any group that can elect a leader has one: two of the longest time-outs and some.
pub(crate) const ELECTION: usize = 80;

/// A replica, or the disk of one that is down.
pub(crate) enum Member {
    Up(Box<Replica<MemoryStore>>),
    Down(Box<MemoryStore>),
}

/// A message on its way.
pub(crate) struct Envelope {
    pub(crate) from: u64,
    pub(crate) to: u64,
    pub(crate) bytes: Vec<u8>,
}

/// What a member has said to those who use it.
#[derive(Default)]
pub(crate) struct Heard {
    pub(crate) applied: Vec<Applied>,
    pub(crate) reads: Vec<Vec<u8>>,
    pub(crate) roles: Vec<(Role, u64)>,
}

pub(crate) struct Group {
    pub(crate) members: BTreeMap<u64, Member>,
    pub(crate) heard: BTreeMap<u64, Heard>,
    pub(crate) wire: VecDeque<Envelope>,
    pub(crate) laws: Laws,
    pub(crate) now: Mono,
    pub(crate) snapshot_every: u64,
    /// The mutant that speaks before it saves: disks sync when the test says so, not when they are written. What the
    /// laws then find is for the test to look at.
    pub(crate) late_sync: bool,
    /// Whether what is said is compared with what the disk holds.
    pub(crate) compare_disks: bool,
    timeouts: BTreeMap<u64, usize>,
    cut: BTreeSet<(u64, u64)>,
    proposed: u64,
}

pub(crate) fn id(id: u64) -> ReplicaId {
    ReplicaId::new(id).unwrap()
}

pub(crate) fn quiet() -> slog::Logger {
    slog::Logger::root(slog::Discard, slog::o!())
}

pub(crate) fn bootstrap(members: u64) -> Bootstrap {
    Bootstrap { members: (1..=members).map(id).collect(), state: State::default() }
}

/// Something to commit that can be told from everything else.
pub(crate) fn command(what: &str) -> Command {
    Command::Pause { node: None, who: "test".to_owned(), why: what.to_owned() }
}

// === impl Group ===

impl Group {
    /// `members` replicas with empty disks; the seed chooses who stands for election first.
    pub(crate) fn new(members: u64, seed: u64) -> Self {
        Self::with(members, seed, 2_000)
    }

    pub(crate) fn with(members: u64, seed: u64, snapshot_every: u64) -> Self {
        let timeouts =
            (1..=members).map(|m| (m, 10 + 4 * usize::try_from((m + seed) % members).unwrap())).collect();
        let mut group = Self {
            members: (1..=members).map(|m| (m, Member::Down(Box::default()))).collect(),
            heard: (1..=members).map(|m| (m, Heard::default())).collect(),
            wire: VecDeque::new(),
            laws: Laws::default(),
            now: Mono::from_ms(1_000_000),
            snapshot_every,
            late_sync: false,
            compare_disks: true,
            timeouts,
            cut: BTreeSet::new(),
            proposed: 0,
        };
        group.ids().into_iter().for_each(|m| group.start(m));
        group
    }

    pub(crate) fn ids(&self) -> Vec<u64> {
        self.members.keys().copied().collect()
    }

    pub(crate) fn up(&self) -> Vec<u64> {
        self.members.iter().filter(|(_, m)| matches!(m, Member::Up(_))).map(|(id, _)| *id).collect()
    }

    pub(crate) fn config(&self, member: u64) -> ReplicaConfig {
        let ticks = self.timeouts[&member];
        ReplicaConfig {
            election_ticks: (ticks, ticks + 1),
            snapshot_every: self.snapshot_every,
            ..ReplicaConfig::new(id(member))
        }
    }

    pub(crate) fn replica(&mut self, member: u64) -> &mut Replica<MemoryStore> {
        match self.members.get_mut(&member).unwrap() {
            Member::Up(replica) => replica,
            Member::Down(_) => panic!("{member} is down"),
        }
    }

    pub(crate) fn disk(&mut self, member: u64) -> &mut MemoryStore {
        match self.members.get_mut(&member).unwrap() {
            Member::Up(replica) => replica.store_mut(),
            Member::Down(disk) => disk,
        }
    }

    // --- life and death ---

    pub(crate) fn try_start(&mut self, member: u64) -> Result<(), Fatal> {
        let Some(Member::Down(disk)) = self.members.get(&member) else { panic!("{member} is up") };
        let bootstrap = bootstrap(u64::try_from(self.members.len()).unwrap());
        let replica = Replica::open(self.config(member), MemoryStore::clone(disk), &bootstrap, &quiet())?;
        self.members.insert(member, Member::Up(Box::new(replica)));
        if self.late_sync {
            self.disk(member).lie(true);
        }
        Ok(())
    }

    pub(crate) fn start(&mut self, member: u64) {
        self.try_start(member).expect("the replica starts");
    }

    /// The power goes: the process is gone, and the disk keeps what `cut` says. What was sent arrives.
    pub(crate) fn crash(&mut self, member: u64, cut: PowerCut) {
        let Some(Member::Up(replica)) = self.members.remove(&member) else { panic!("{member} is down") };
        let mut disk = replica.into_store();
        disk.power_cut(cut);
        self.members.insert(member, Member::Down(Box::new(disk)));
    }

    pub(crate) fn restart(&mut self, member: u64) {
        self.crash(member, PowerCut::Lost);
        self.start(member);
    }

    // --- network ---

    /// Cuts everything between `member` and the others.
    pub(crate) fn isolate(&mut self, member: u64) {
        for other in self.ids() {
            self.cut.extend([(member, other), (other, member)]);
        }
    }

    pub(crate) fn cut(&mut self, from: u64, to: u64) {
        self.cut.insert((from, to));
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
    }

    /// Hands out the next message, if there is one.
    pub(crate) fn deliver_one(&mut self) -> bool {
        let Some(envelope) = self.wire.pop_front() else { return false };
        self.deliver(&envelope);
        true
    }

    pub(crate) fn deliver(&mut self, envelope: &Envelope) {
        let Envelope { from, to, bytes } = envelope;
        let reachable = !self.cut.contains(&(*from, *to)) && self.up().contains(to);
        let is_snapshot = parse(bytes).get_msg_type() == MessageType::MsgSnapshot;
        if reachable {
            // raft-rs may not take it: an old term.
            let _ = self.replica(*to).step(id(*from), bytes);
            self.turn(*to);
        }
        if self.up().contains(from) && (is_snapshot || !reachable) {
            let sender = self.replica(*from);
            if !reachable {
                sender.report_unreachable(id(*to));
            }
            if is_snapshot {
                sender.report_snapshot(id(*to), reachable);
            }
            self.turn(*from);
        }
    }

    /// Hands out messages until nobody has anything to say.
    pub(crate) fn settle(&mut self) {
        while self.deliver_one() {}
    }

    // --- time ---

    pub(crate) fn turn(&mut self, member: u64) {
        self.try_turn(member).expect("the turn succeeds");
    }

    /// Turns a member, holds what it says to the laws, and puts its messages on the wire.
    pub(crate) fn try_turn(&mut self, member: u64) -> Result<(), Fatal> {
        let turn = self.replica(member).turn()?;
        let heard = self.heard.get_mut(&member).unwrap();
        if let Some((role, term)) = turn.role {
            heard.roles.push((role, term));
            self.laws.role(member, role, term);
        }
        for applied in turn.applied {
            self.laws.entry(member, &applied);
            heard.applied.push(applied);
        }
        heard.reads.extend(turn.reads);
        for (to, bytes) in turn.messages {
            let platter = match &self.members[&member] {
                Member::Up(replica) => replica.store().platter(),
                Member::Down(disk) => disk.platter(),
            };
            if self.compare_disks {
                self.laws.message(&parse(&bytes), platter);
            }
            self.wire.push_back(Envelope { from: member, to: to.get(), bytes });
        }
        Ok(())
    }

    /// One tick for everybody, and everything that follows from it.
    pub(crate) fn tick(&mut self) {
        self.now = self.now + TICK;
        for member in self.up() {
            self.replica(member).tick();
            self.turn(member);
            self.settle();
        }
    }

    pub(crate) fn run(&mut self, ticks: usize) {
        (0..ticks).for_each(|_| self.tick());
    }

    /// Runs until somebody leads whom a majority follows.
    pub(crate) fn elect(&mut self) -> u64 {
        for _ in 0..ELECTION {
            if let Some(leader) = self.leader() {
                return leader;
            }
            self.tick();
        }
        panic!("no leader within {ELECTION} ticks");
    }

    /// Whom a majority takes for the leader.
    pub(crate) fn leader(&self) -> Option<u64> {
        let role = |m: &u64| match &self.members[m] {
            Member::Up(replica) => Some(replica.role()),
            Member::Down(_) => None,
        };
        self.up().into_iter().find(|candidate| {
            let Some((Role::Leader, term)) = role(candidate) else { return false };
            let follows = (Role::Follower { leader: Some(id(*candidate)) }, term);
            let followers = self.up().iter().filter(|m| role(m) == Some(follows)).count();
            (followers + 1) * 2 > self.members.len()
        })
    }

    /// Runs until somebody other than `old` leads.
    pub(crate) fn elect_without(&mut self, old: u64) -> u64 {
        for _ in 0..ELECTION {
            if let Some(leader) = self.leader().filter(|l| *l != old) {
                return leader;
            }
            self.tick();
        }
        panic!("no other leader within {ELECTION} ticks");
    }

    /// Runs step by step up to the moment at which somebody leads and nobody has heard of it; gives it and its term.
    pub(crate) fn elect_only(&mut self) -> (u64, u64) {
        let leads = |group: &Self| {
            let last = |m: &u64| {
                group.heard[m].roles.last().filter(|(role, _)| *role == Role::Leader).map(|(_, t)| *t)
            };
            group.up().into_iter().find_map(|m| last(&m).map(|term| (m, term)))
        };
        for _ in 0..ELECTION {
            for member in self.up() {
                self.replica(member).tick();
                self.turn(member);
            }
            while leads(self).is_none() && self.deliver_one() {}
            if let Some(found) = leads(self) {
                return found;
            }
        }
        panic!("no leader within {ELECTION} ticks");
    }

    /// Ticks one member only, and leaves what it says on the wire.
    pub(crate) fn tick_only(&mut self, member: u64, ticks: usize) {
        for _ in 0..ticks {
            self.replica(member).tick();
            self.turn(member);
        }
    }

    /// Takes the oldest message between two members off the wire.
    pub(crate) fn take_first(&mut self, from: u64, to: u64) -> Envelope {
        let at = self.wire.iter().position(|e| e.from == from && e.to == to).expect("a message");
        self.wire.remove(at).unwrap()
    }

    // --- use ---

    /// Proposes something new and gives its key.
    pub(crate) fn try_propose(&mut self, member: u64) -> Result<String, NotLeader> {
        self.proposed += 1;
        let (now, key) = (self.now, format!("key-{}", self.proposed));
        self.replica(member).propose(now, key.clone(), command(&key))?;
        self.turn(member);
        Ok(key)
    }

    /// Proposes and lets it be committed.
    pub(crate) fn commit(&mut self, leader: u64) -> String {
        let key = self.try_propose(leader).expect("the leader takes proposals");
        self.settle();
        key
    }

    pub(crate) fn has_applied(&self, member: u64, key: &str) -> bool {
        self.heard[&member].applied.iter().any(|a| a.entry.key == key)
    }

    /// All that are up have applied the same and hold the same state.
    pub(crate) fn assert_equal(&mut self) {
        let states: BTreeMap<u64, (u64, String)> = self
            .up()
            .into_iter()
            .map(|m| (m, (self.replica(m).applied(), snapshot::hash(self.replica(m).state()).unwrap())))
            .collect();
        let first = states.values().next().unwrap();
        assert!(states.values().all(|s| s == first), "{states:?}");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if !std::thread::panicking() && !self.late_sync {
            self.laws.uphold();
        }
    }
}

pub(crate) fn parse(bytes: &[u8]) -> Message {
    Message::parse_from_bytes(bytes).unwrap()
}
