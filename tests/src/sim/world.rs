//! Everything there is: machines, network, BMCs, API server, replicas; and the two ways in which something happens in
//! it, happenings at their time and tasks of processes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

use coroner_shared::time::{Mono, Span};

use super::agents::Packet;
use super::api::Api;
use super::bmc::{Bmc, Line};
use super::chance::{Chance, Purpose};
use super::coverage::Coverage;
use super::machine::{Condition, Machine};
use super::network::Network;
use super::process::ReplicaHost;
use super::queue::{Happening, Life, Queue};
use super::site::Site;
use super::task::{Reactor, TaskId, Work};
use super::trace::Trace;
use super::truth::Truth;

/// When a run begins; machines that run already booted before.
pub(crate) const START: Mono = Mono::from_ms(1_000_000_000);

/// Tasks that end together: a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct Group(pub(crate) u64);

/// A task that is to begin.
pub(crate) struct Spawned {
    pub(crate) id: TaskId,
    /// The machine it runs on.
    pub(crate) machine: usize,
    pub(crate) group: Group,
    pub(crate) make: Box<dyn FnOnce(Shared) -> Work>,
}

/// Datagrams that somebody keeps, with where they went.
pub(crate) type Kept = VecDeque<(SocketAddr, Rc<Packet>)>;

/// The world, as tasks hold it.
#[derive(Clone)]
pub(crate) struct Shared {
    pub(crate) world: Rc<RefCell<World>>,
    pub(crate) reactor: Reactor,
}

/// Everything there is.
pub(crate) struct World {
    pub(crate) now: Mono,
    pub(crate) site: Site,
    pub(crate) reactor: Reactor,
    pub(crate) queue: Queue,
    /// How often everything healed: what went wrong before goes on no more.
    pub(crate) heals: u32,
    pub(crate) machines: Vec<Machine>,
    pub(crate) bmcs: Vec<Bmc>,
    pub(crate) ledger: Vec<Line>,
    pub(crate) network: Network,
    pub(crate) api: Api,
    pub(crate) replicas: Vec<ReplicaHost>,
    pub(crate) draws: Draws,
    pub(crate) trace: Trace,
    pub(crate) truth: Truth,
    pub(crate) coverage: Coverage,
    pub(crate) spawned: Vec<Spawned>,
    pub(crate) killed: Vec<Group>,
    pub(crate) killed_tasks: Vec<TaskId>,
    /// Whose datagrams somebody records, and what they have.
    pub(crate) recorded: Option<(usize, Kept)>,
    /// Whether they still do.
    pub(crate) records: bool,
    /// Until when hands of a leader come late, and come again.
    pub(crate) late_until: Mono,
    /// How often a replica looks at what it heard while nothing is wrong.
    pub(crate) calm_step: Span,
    next_task: TaskId,
    next_group: u64,
    /// Numbers of sessions and connections, as drivers count them.
    pub(crate) next_session: u64,
}

/// Chance by purpose.
pub(crate) struct Draws {
    pub(crate) machines: Chance,
    pub(crate) bmcs: Chance,
    pub(crate) replicas: Chance,
    pub(crate) odd: Chance,
}

/// Happenings that wait for a frozen machine; the rest is lost, as in a full socket.
const MISSED_MAX: usize = 512;

// === impl World ===

impl World {
    pub(crate) fn new(site: Site, trace: Trace) -> Self {
        let seed = site.seed;
        Self {
            now: START,
            reactor: Reactor::default(),
            queue: Queue::default(),
            heals: 0,
            machines: Vec::new(),
            bmcs: Vec::new(),
            ledger: Vec::new(),
            network: Network::new(Chance::new(seed, Purpose::Network)),
            api: Api { watch_takes: (Span::from_ms(5), Span::from_ms(40)), ..Api::default() },
            replicas: Vec::new(),
            draws: Draws {
                machines: Chance::new(seed, Purpose::Machines),
                bmcs: Chance::new(seed, Purpose::Bmcs),
                replicas: Chance::new(seed, Purpose::Replicas),
                odd: Chance::new(seed, Purpose::Odd),
            },
            trace,
            truth: Truth::new(&site),
            coverage: Coverage::default(),
            spawned: Vec::new(),
            killed: Vec::new(),
            killed_tasks: Vec::new(),
            recorded: None,
            records: false,
            late_until: START,
            calm_step: Span::from_ms(200),
            next_task: 0,
            next_group: 0,
            next_session: 0,
            site,
        }
    }

    /// Something happens at that time.
    pub(crate) fn at(&mut self, at: Mono, what: impl FnOnce(&mut Self) + 'static) {
        self.queue.push(at.max(self.now), None, Box::new(what));
    }

    /// Something happens after that time.
    pub(crate) fn after(&mut self, span: Span, what: impl FnOnce(&mut Self) + 'static) {
        self.at(self.now + span, what);
    }

    /// Something happens on a machine, if the same life of it still runs then; later, if it is frozen.
    pub(crate) fn on_machine(&mut self, span: Span, machine: usize, what: impl FnOnce(&mut Self) + 'static) {
        let life = self.machines[machine].life;
        self.queue.push(self.now + span, Some((machine, life)), Box::new(what));
    }

    /// It is time for it.
    pub(crate) fn happens(&mut self, life: Option<Life>, what: Happening) {
        match life {
            Some((machine, life)) => self.happens_on(machine, life, what),
            None => what(self),
        }
    }

    /// The same for what waits by the machine's own clock.
    pub(crate) fn on_clock(&mut self, span: Span, machine: usize, what: impl FnOnce(&mut Self) + 'static) {
        let span = self.machines[machine].drift.passes_in(span);
        self.on_machine(span, machine, what);
    }

    fn happens_on(&mut self, machine: usize, life: u64, what: Happening) {
        let on = &mut self.machines[machine];
        if on.life != life {
            return;
        }
        match on.condition {
            Condition::Runs => what(self),
            Condition::Frozen if on.missed.len() < MISSED_MAX => on.missed.push_back((life, what)),
            Condition::Frozen
            | Condition::Off
            | Condition::Firmware
            | Condition::Hung
            | Condition::CrashKernel => {}
        }
    }

    /// A machine moves again: what it missed comes first.
    pub(crate) fn catch_up(&mut self, machine: usize) {
        for task in std::mem::take(&mut self.machines[machine].sleeping) {
            self.reactor.make_ready(task);
        }
        for (life, what) in std::mem::take(&mut self.machines[machine].missed) {
            self.happens_on(machine, life, what);
        }
    }

    /// Begins a task on a machine.
    pub(crate) fn spawn(
        &mut self,
        machine: usize,
        group: Group,
        make: impl FnOnce(Shared) -> Work + 'static,
    ) -> TaskId {
        self.next_task += 1;
        let id = self.next_task;
        self.spawned.push(Spawned { id, machine, group, make: Box::new(make) });
        id
    }

    pub(crate) fn new_group(&mut self) -> Group {
        self.next_group += 1;
        Group(self.next_group)
    }

    /// A line of the trace.
    pub(crate) fn say(&mut self, what: &str) {
        let at = Mono::from_ms(self.now.since(START).as_ms());
        self.trace.say(at, what);
    }

    /// Since the beginning of the run.
    pub(crate) fn elapsed(&self) -> Span {
        self.now.since(START)
    }

    pub(crate) fn machine_of(&self, name: &coroner_shared::id::NodeName) -> Option<usize> {
        self.machines.iter().position(|m| m.name == *name)
    }
}
