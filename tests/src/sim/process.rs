//! A replica's process: the Raft group turned by hand on disks of memory. Mirrors `arbiter/src/replica.rs`,
//! `arbiter/src/transport.rs`; what it does by itself is in `upkeep.rs`.

use std::collections::BTreeMap;
use std::sync::Arc;

use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_core::facts::Shown;
use coroner_arbiter_core::leases::Leases;
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::witness::Witness;
use coroner_arbiter_replica::{
    Bootstrap, Fatal, MemoryStore, PowerCut, Replica, ReplicaConfig, Role, is_snapshot,
};
use coroner_shared::id::{NodeName, ReplicaId};
use coroner_shared::keys::PublicKey;
use coroner_shared::time::{Mono, Span};

use super::hearing::Ears;
use super::jobs::Running;
use super::network::{End, Flow};
use super::pool::Entry;
use super::task::{Signal, Slot};
use super::upkeep;
use super::world::{Group, Shared, World};

/// Raft's tick.
const TICK: Span = Span::from_ms(50);
/// A leader that slept longer than this steps down before it does anything else.
const SLEPT: Span = Span::from_secs(2);
/// A proposal whose outcome is not known after this has none.
const PROPOSE_WITHIN: Span = Span::from_secs(5);

/// A member of the group, with its process or only its disk.
pub(crate) struct ReplicaHost {
    pub(crate) id: ReplicaId,
    pub(crate) key: PublicKey,
    /// The disk while no process has it.
    pub(crate) disk: Option<MemoryStore>,
    /// An older copy of the disk, for somebody to put back.
    pub(crate) copy: Option<MemoryStore>,
    /// The power goes while the next write is under way.
    pub(crate) tears: bool,
    /// The level it says it knows, where that is not this build's.
    pub(crate) level: Option<u32>,
    pub(crate) process: Option<Box<Process>>,
    /// Its election time-out, in ticks.
    pub(crate) patience: usize,
}

/// What all parts of the process may see.
#[derive(Clone)]
pub(crate) struct Published {
    pub(crate) state: Arc<State>,
    pub(crate) role: Role,
    pub(crate) term: u64,
    pub(crate) applied: u64,
    pub(crate) active: Option<usize>,
    /// When, on the host's clock, the last entry was applied.
    pub(crate) at: Mono,
}

/// A running process.
pub(crate) struct Process {
    pub(crate) group: Group,
    pub(crate) replica: Replica<MemoryStore>,
    pub(crate) published: Published,
    pub(crate) changed: Signal,
    waiting: BTreeMap<String, Slot<Result<Outcome, String>>>,
    /// Reads, with what was committed when they were asked for.
    reads: BTreeMap<u64, (Slot<Result<(), String>>, u64)>,
    next_read: u64,
    keys: u64,
    last_tick: Mono,
    pub(crate) started: Mono,
    /// The same by the world's clock.
    pub(crate) began: Mono,
    pub(crate) witness: Witness,
    pub(crate) ears: Ears,
    pub(crate) leases: Leases,
    pub(crate) shown: Shown,
    pub(crate) shown_changed: Signal,
    pub(crate) watch_broken: bool,
    pub(crate) watch_stuck: bool,
    pub(crate) bmcs: BTreeMap<NodeName, (String, std::rc::Rc<Entry>)>,
    pub(crate) running: Running,
}

// === impl World: the process ===

impl World {
    pub(crate) fn replica_starts(&mut self, index: usize) {
        let host = self.site.replicas[index];
        let group = self.new_group();
        let patience = self.replicas[index].patience;
        let Some(disk) = self.replicas[index].disk.take() else { return };
        let id = self.replicas[index].id;
        let members = self.replicas.iter().map(|r| r.id).collect();
        let bootstrap = Bootstrap { members, state: State::default() };
        // One tick wide: raft-rs then draws nothing that matters.
        let config = ReplicaConfig {
            election_ticks: (patience, patience + 1),
            snapshot_every: self.site.snapshot_every,
            ..ReplicaConfig::new(id)
        };
        let kept = disk.clone();
        let logger = slog::Logger::root(slog::Discard, slog::o!());
        let replica = match Replica::open(config, disk, &bootstrap, &logger) {
            Ok(replica) => replica,
            Err(fatal) => {
                self.say(&format!("replica {id} does not start: {fatal}"));
                self.coverage.reach("replica: does not start");
                self.replicas[index].disk = Some(kept);
                return;
            }
        };
        let now = self.machines[host].host_time(self.now);
        let (role, term) = replica.role();
        let published = Published {
            state: Arc::new(replica.state().clone()),
            role,
            term,
            applied: replica.applied(),
            active: None,
            at: now,
        };
        self.replicas[index].process = Some(Box::new(Process {
            group,
            replica,
            published,
            changed: self.reactor.signal(),
            waiting: BTreeMap::new(),
            reads: BTreeMap::new(),
            next_read: 0,
            keys: 0,
            last_tick: now,
            started: now,
            began: self.now,
            witness: Witness::new(id, group.0, now),
            ears: Ears::default(),
            leases: Leases::default(),
            shown: Shown::default(),
            shown_changed: self.reactor.signal(),
            watch_broken: true,
            watch_stuck: false,
            bmcs: BTreeMap::new(),
            running: Running::default(),
        }));
        self.say(&format!("replica {id} starts"));
        let ticks = group;
        self.on_machine(TICK, host, move |world| world.replica_ticks(index, ticks));
        self.on_machine(Span::from_ms(10), host, move |world| world.hearing_step(index, group));
        self.on_machine(Span::from_ms(20), host, move |world| world.watch_round(index, group));
        self.on_machine(Span::from_ms(30), host, move |world| world.reconcile_round(index, group));
        self.spawn(host, group, move |shared| Box::pin(upkeep::tell_facts(shared, index)));
        self.spawn(host, group, move |shared| Box::pin(upkeep::keep_time(shared, index)));
        self.spawn(host, group, move |shared| Box::pin(super::jobs::binding::rounds(shared, index)));
    }

    /// The process ends; what its disk had only in its cache may be lost with the power.
    pub(crate) fn replica_ends(&mut self, index: usize, lost_power: bool) {
        let Some(process) = self.replicas[index].process.take() else { return };
        self.killed.push(process.group);
        let mut disk = process.replica.into_store();
        if lost_power {
            let unsynced = disk.unsynced() as u64;
            let kept = usize::try_from(self.draws.replicas.below(unsynced + 1)).unwrap_or(0);
            let entries = usize::try_from(self.draws.replicas.below(3)).unwrap_or(0);
            let cut = match self.draws.replicas.below(3) {
                0 => PowerCut::Lost,
                1 => PowerCut::Kept(kept),
                _ => PowerCut::Torn { whole: kept, entries },
            };
            disk.power_cut(cut);
        } else {
            disk.sync();
        }
        self.replicas[index].disk = Some(disk);
        let id = self.replicas[index].id;
        self.say(&format!("replica {id} ends"));
    }

    pub(crate) fn process(&mut self, index: usize, group: Group) -> Option<&mut Process> {
        self.replicas[index].process.as_deref_mut().filter(|p| p.group == group)
    }

    pub(crate) fn leader(&self) -> Option<usize> {
        let leads =
            |host: &ReplicaHost| host.process.as_ref().is_some_and(|p| p.published.role == Role::Leader);
        let leaders = self.replicas.iter().enumerate().filter(|(_, r)| leads(r));
        leaders.max_by_key(|(_, r)| r.process.as_ref().map(|p| p.published.term)).map(|(index, _)| index)
    }

    fn replica_ticks(&mut self, index: usize, group: Group) {
        let host = self.site.replicas[index];
        let now = self.machines[host].host_time(self.now);
        let Some(process) = self.process(index, group) else { return };
        let slept = now.since(process.last_tick);
        if slept > SLEPT {
            process.replica.step_down();
        }
        if slept >= TICK {
            process.replica.tick();
            process.last_tick = now;
        }
        self.turn(index);
        self.on_clock(TICK, host, move |world| world.replica_ticks(index, group));
    }

    /// Turns the replica, and does what comes out of it in the order of the arbiter's thread.
    pub(crate) fn turn(&mut self, index: usize) {
        let host = self.site.replicas[index];
        let now = self.machines[host].host_time(self.now);
        let tears = self.replicas[index].tears;
        let Some(process) = self.replicas[index].process.as_deref_mut() else { return };
        let turn = match process.replica.turn() {
            Ok(turn) => turn,
            Err(fatal) => return self.replica_dies(index, &fatal),
        };
        if tears && process.replica.store().unsynced() > 0 {
            // Nothing of this turn has left the process.
            return self.power_goes_in_a_write(index);
        }
        let stall = process.replica.store_mut().take_stall();
        let advanced = process.published.applied != process.replica.applied();
        if let Some((role, term)) = turn.role {
            process.fail_waiting();
            if role == Role::Leader {
                let id = self.replicas[index].id;
                self.say(&format!("replica {id} leads in term {term}"));
                self.leads_in(index, term);
                self.coverage.reach("replica: elected");
            }
        }
        for applied in &turn.applied {
            self.committed(index, applied);
        }
        let Some(process) = self.replicas[index].process.as_deref_mut() else { return };
        if advanced || turn.role.is_some() {
            let (role, term) = process.replica.role();
            process.published = Published {
                state: if advanced {
                    Arc::new(process.replica.state().clone())
                } else {
                    Arc::clone(&process.published.state)
                },
                role,
                term,
                applied: process.replica.applied(),
                active: process.replica.active_members(),
                at: if advanced { now } else { process.published.at },
            };
            process.changed.send();
        } else {
            process.published.active = process.replica.active_members();
        }
        for applied in turn.applied {
            if let Some(slot) = process.waiting.remove(&applied.entry.key) {
                slot.fill(Ok(applied.outcome));
            }
        }
        let (mut answered, done) = (Vec::new(), process.replica.applied());
        for context in turn.reads {
            let number = <[u8; 8]>::try_from(context.as_slice()).map(u64::from_be_bytes);
            if let Some((slot, committed)) = number.ok().and_then(|n| process.reads.remove(&n)) {
                slot.fill(Ok(()));
                answered.push(committed);
            }
        }
        for committed in answered {
            self.read_answered(index, done, committed);
        }
        for (to, bytes) in turn.messages {
            self.raft_message(index, to, bytes, stall);
        }
        if advanced {
            self.reconcile_bmcs(index);
            self.reconcile(index);
        }
    }

    fn replica_dies(&mut self, index: usize, fatal: &Fatal) {
        let id = self.replicas[index].id;
        self.say(&format!("replica {id} stops: {fatal}"));
        self.coverage.reach("replica: stops with its disk");
        self.replica_ends(index, false);
        let host = self.site.replicas[index];
        // Restarted by its kubelet.
        self.on_machine(Span::from_secs(10), host, move |world| world.replica_starts(index));
    }

    fn raft_message(&mut self, index: usize, to: ReplicaId, bytes: Vec<u8>, stall: Span) {
        self.message_leaves(index, &bytes);
        let Some(target) = self.replicas.iter().position(|r| r.id == to) else { return };
        let (from, host) = (self.site.replicas[index], self.site.replicas[target]);
        let (id, group) = match &self.replicas[index].process {
            Some(process) => (self.replicas[index].id, process.group),
            None => return,
        };
        let snapshot = is_snapshot(&bytes);
        let way = self.network.stream(End::Host(from), End::Host(host), Flow::Replica);
        let up = self.machines[host].is_up() && self.replicas[target].process.is_some();
        if let Some(after) = way {
            self.on_machine(after + stall, host, move |world| world.raft_arrives(target, id, &bytes));
        }
        if snapshot || way.is_none() || !up {
            let good = way.is_some() && up;
            self.on_machine(Span::from_ms(500), from, move |world| {
                if let Some(process) = world.process(index, group) {
                    if !good {
                        process.replica.report_unreachable(to);
                    }
                    if snapshot {
                        process.replica.report_snapshot(to, good);
                    }
                }
            });
        }
    }

    fn raft_arrives(&mut self, index: usize, from: ReplicaId, bytes: &[u8]) {
        let host = self.site.replicas[index];
        let now = self.machines[host].host_time(self.now);
        if let Some(process) = self.replicas[index].process.as_deref_mut() {
            process.witness.replica_traffic(now, from);
            // A message that is not taken is raft's to send again.
            let _ = process.replica.step(from, bytes);
            self.turn(index);
        }
    }

    /// Proposes where this replica leads.
    pub(crate) fn propose(&mut self, index: usize, command: Command) -> Slot<Result<Outcome, String>> {
        let key = match self.replicas[index].process.as_deref_mut() {
            Some(process) => {
                process.keys += 1;
                format!("{}-{}-{}", index + 1, process.group.0, process.keys)
            }
            None => String::new(),
        };
        if self.now < self.late_until {
            self.comes_late(index, &command);
        }
        self.propose_as(index, key, command)
    }

    pub(crate) fn propose_as(
        &mut self,
        index: usize,
        key: String,
        command: Command,
    ) -> Slot<Result<Outcome, String>> {
        let slot = self.reactor.slot();
        let host = self.site.replicas[index];
        let now = self.machines[host].host_time(self.now);
        let Some(process) = self.replicas[index].process.as_deref_mut() else { return slot };
        match process.replica.propose(now, key.clone(), command) {
            Ok(()) => {
                process.waiting.insert(key, slot.clone());
                self.turn(index);
            }
            Err(error) => slot.fill(Err(error.to_string())),
        }
        slot
    }

    /// Somebody reads until then; what comes of each read is looked at when it is answered.
    pub(crate) fn read_on(&mut self, until: Mono) {
        for index in 0..self.replicas.len() {
            let host = self.site.replicas[index];
            let leads = |p: &Process| p.published.role == Role::Leader;
            if self.machines[host].is_up() && self.replicas[index].process.as_deref().is_some_and(leads) {
                drop(self.read_index(index));
            }
        }
        if self.now < until {
            self.after(Span::from_ms(100), move |world| world.read_on(until));
        }
    }

    fn read_index(&mut self, index: usize) -> Slot<Result<(), String>> {
        let slot = self.reactor.slot();
        let committed = self.committed_index();
        let Some(process) = self.replicas[index].process.as_deref_mut() else { return slot };
        process.next_read += 1;
        let number = process.next_read;
        process.reads.insert(number, (slot.clone(), committed));
        process.replica.read_index(number.to_be_bytes().to_vec());
        self.turn(index);
        slot
    }
}

impl Process {
    /// After a change of role nobody knows what becomes of what was proposed.
    fn fail_waiting(&mut self) {
        for (_, slot) in std::mem::take(&mut self.waiting) {
            slot.fill(Err("it is not known whether the command was committed".to_owned()));
        }
        for (_, (slot, _)) in std::mem::take(&mut self.reads) {
            slot.fill(Err("the leader changed".to_owned()));
        }
    }
}

// === what its tasks use ===

impl Shared {
    pub(crate) fn published(&self, index: usize) -> Option<Published> {
        self.world.borrow().replicas[index].process.as_ref().map(|p| p.published.clone())
    }

    /// This host's clock.
    pub(crate) fn host_now(&self, index: usize) -> Mono {
        let world = self.world.borrow();
        world.machines[world.site.replicas[index]].host_time(world.now)
    }

    pub(crate) fn leads(&self, index: usize) -> bool {
        self.published(index).is_some_and(|p| p.role == Role::Leader)
    }

    /// Proposes here.
    pub(crate) async fn commit(&self, index: usize, command: Command) -> Result<Outcome, String> {
        let slot = self.world.borrow_mut().propose(index, command);
        self.outcome(slot).await
    }

    pub(crate) async fn outcome(&self, slot: Slot<Result<Outcome, String>>) -> Result<Outcome, String> {
        let answer = self.reactor.within(PROPOSE_WITHIN, slot.take()).await;
        answer.unwrap_or_else(|| Err("no outcome within 5 s".to_owned()))
    }

    /// A linearizable read.
    pub(crate) async fn read_index(&self, index: usize, limit: Span) -> Result<(), String> {
        let slot = self.world.borrow_mut().read_index(index);
        let answer = self.reactor.within(limit, slot.take()).await;
        answer.unwrap_or_else(|| Err("no quorum confirmed the leader in time".to_owned()))
    }
}
