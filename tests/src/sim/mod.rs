//! The simulator: the shipped cores under every fault, in virtual time, judged by what truly happens.
//!
//! ```text
//!   Site (from a seed, or by hand) --> Sim --+-- machines, kubelets, API server, network, BMCs   (this folder: faked)
//!                                            +-- agents             coroner-agent-core           (as shipped)
//!                                            +-- three replicas     coroner-arbiter-replica, raft-rs on MemoryStore
//!                                            +-- witness, judge, apply, jobs, fence, last read   coroner-arbiter-core
//!                                            |
//!                                            +--> facts --> crate::invariants --> Violation
//!                                            +--> Coverage, Trace (with a hash)
//! ```
//!
//! One seed is one thread, one stream of chance per purpose ([`chance`]) and no clock but the queue's; maps are ordered;
//! each replica's election time-out is one tick wide, since raft-rs draws from a source of its own otherwise. Two runs
//! of a seed give one hash.
//!
//! # How to write a story
//!
//! ```text
//! use coroner_shared::time::Span;
//! use coroner_tests::sim::{Sim, Site};
//!
//! let mut sim = Sim::new(Site::plain(1, 5, 2));
//! sim.warm_up(); // everybody registered, every BMC steady
//! sim.cut_power("n4"); // acts: see below
//! assert!(sim.run_until(Span::from_secs(30), |sim| sim.phase("n4") == "Released"), "{}", sim.story());
//! sim.finish(); // heals, settles, asks the invariants for the last time
//! assert!(sim.violations().is_empty(), "{}", sim.story());
//! ```
//!
//! Looks: [`Sim::phase`], [`Sim::held`], [`Sim::state`], [`Sim::findings`], [`Sim::ledger`], [`Sim::leader`],
//! [`Sim::violations`], [`Sim::coverage`], [`Sim::hash`], [`Sim::story`]. Acts: `acts.rs` (machines, network, BMCs, API
//! server, replicas, people). Seeds: `swarm.rs` draws a site and its faults; [`run_seed`] plays it.
//!
//! Modules: [`site`] (what there is), `world`, `queue`, `task`, `trace`, `chance` (how it goes on), `machine`, `life`,
//! `cluster`, `api`, `network`, `bmc` (the faked world), `agents`, `uplink` (agents' shells), `process`, `hearing`,
//! `watch`, `ingress`, `driver`, `pool`, `jobs` (the arbiter's shells: they perform calls, and mirror `arbiter/src` so
//! closely that both can be read side by side), `truth` (what happens, for [`crate::invariants`]).

mod acts;
mod agents;
pub(crate) mod api;
pub(crate) mod bmc;
mod chance;
mod classes;
mod cluster;
mod coverage;
mod drift;
mod driver;
mod hearing;
mod ingress;
mod jobs;
mod late;
mod liars;
mod life;
mod looks;
pub(crate) mod machine;
pub mod model;
#[cfg(coroner_mutants)]
pub mod mutants;
mod network;
mod odd;
pub(crate) mod people;
mod pool;
mod process;
mod queue;
mod replay;
mod scripts;
mod set_up;
pub mod site;
pub mod stories;
mod swarm;
mod task;
mod trace;
mod trouble;
pub(crate) mod truth;
mod upkeep;
mod uplink;
mod watch;
pub(crate) mod world;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use coroner_shared::time::{Mono, Span};

pub use self::coverage::{Coverage, MUST};
pub(crate) use self::life::By;
pub use self::machine::Condition;
pub use self::site::Site;
pub use self::swarm::{Outcome, Plays, draws_one_of, names_a_class, run_seed, tell_seed};
pub use self::trace::tell;
pub use self::truth::Violation;

use self::task::{TaskId, Work};
use self::trace::Trace;
use self::world::{Group, Shared, World};

struct Task {
    machine: usize,
    group: Group,
    work: Work,
}

/// One simulated site.
pub struct Sim {
    shared: Shared,
    tasks: BTreeMap<TaskId, Task>,
}

// === impl Sim ===

impl Sim {
    /// A site at its beginning; its story is kept.
    #[must_use]
    pub fn new(site: Site) -> Self {
        Self::with_trace(site, Trace::new(true, false))
    }

    /// The same, each line of the story printed as it comes.
    #[must_use]
    pub fn aloud(site: Site) -> Self {
        Self::with_trace(site, Trace::new(true, true))
    }

    /// The same, without a story: hashes and counts only.
    #[must_use]
    pub fn quiet(site: Site) -> Self {
        Self::with_trace(site, Trace::new(false, false))
    }

    fn with_trace(site: Site, trace: Trace) -> Self {
        let world = World::new(site, trace);
        let reactor = world.reactor.clone();
        reactor.set_now(world.now);
        let shared = Shared { world: Rc::new(RefCell::new(world)), reactor };
        shared.world.borrow_mut().set_up();
        Self { shared, tasks: BTreeMap::new() }
    }

    /// Goes on for so long.
    pub fn run_for(&mut self, span: Span) {
        let until = self.shared.reactor.now() + span;
        while self.step(until) {}
    }

    /// Goes on until that is so, at most for so long; whether it came to be. Looked at after each 50 ms.
    pub fn run_until(&mut self, limit: Span, what: impl Fn(&Self) -> bool) -> bool {
        let until = self.shared.reactor.now() + limit;
        loop {
            if what(self) {
                return true;
            }
            let now = self.shared.reactor.now();
            if now >= until {
                return false;
            }
            self.run_for(until.since(now).min(Span::from_ms(50)));
        }
    }

    /// One happening, or everybody who is due; `false` once nothing is left before that time.
    fn step(&mut self, until: Mono) -> bool {
        self.run_tasks();
        let reactor = &self.shared.reactor;
        let queued = self.shared.world.borrow().queue.next_at();
        let wake = reactor.next_wake();
        let next = match (queued, wake) {
            (Some(a), Some(b)) => a.min(b),
            (Some(a), None) | (None, Some(a)) => a,
            (None, None) => until,
        };
        if next > until || (queued.is_none() && wake.is_none()) {
            reactor.set_now(until);
            self.shared.world.borrow_mut().now = until;
            return false;
        }
        reactor.set_now(next);
        let mut world = self.shared.world.borrow_mut();
        world.now = next;
        if queued == Some(next) {
            if let Some((life, what)) = world.queue.pop() {
                world.happens(life, what);
            }
        } else {
            drop(world);
            reactor.wake();
        }
        true
    }

    fn run_tasks(&mut self) {
        loop {
            self.take_spawned();
            let Some(id) = self.shared.reactor.next_ready() else { return };
            self.poll(id);
        }
    }

    /// Begins what was spawned and drops what was killed.
    fn take_spawned(&mut self) {
        let (spawned, killed, killed_tasks) = {
            let mut world = self.shared.world.borrow_mut();
            if world.spawned.is_empty() && world.killed.is_empty() && world.killed_tasks.is_empty() {
                return;
            }
            (
                std::mem::take(&mut world.spawned),
                std::mem::take(&mut world.killed),
                std::mem::take(&mut world.killed_tasks),
            )
        };
        for new in spawned {
            let work = (new.make)(self.shared.clone());
            self.tasks.insert(new.id, Task { machine: new.machine, group: new.group, work });
            self.shared.reactor.make_ready(new.id);
        }
        if !killed.is_empty() {
            self.tasks.retain(|_, task| !killed.contains(&task.group));
        }
        for id in killed_tasks {
            self.tasks.remove(&id);
        }
    }

    fn poll(&mut self, id: TaskId) {
        let Some(mut task) = self.tasks.remove(&id) else { return };
        {
            let mut world = self.shared.world.borrow_mut();
            let machine = &mut world.machines[task.machine];
            if !machine.is_up() {
                machine.sleeping.push(id);
                self.tasks.insert(id, task);
                return;
            }
        }
        self.shared.reactor.set_current(id);
        let mut context = Context::from_waker(Waker::noop());
        match task.work.as_mut().poll(&mut context) {
            Poll::Ready(()) => {}
            Poll::Pending => {
                self.tasks.insert(id, task);
            }
        }
    }
}
