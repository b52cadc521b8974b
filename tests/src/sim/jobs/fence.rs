//! Performs the calls that the core's fence asks for. Mirrors `arbiter/src/executor/fence.rs`.

use std::rc::Rc;

use coroner_arbiter_core::fence::{Ended, Fence, FenceEvent, Identified, Look, Note, Over, Step};
use coroner_arbiter_core::identity;
use coroner_arbiter_core::jobs::{self, FenceJob, Job, Signs};
use coroner_arbiter_core::permit;
use coroner_arbiter_replica::Role;
use coroner_shared::bmc::{CommandAnswer, Continuity, Login, PowerReading};
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use super::Cancel;
use crate::sim::bmc::Op;
use crate::sim::driver::{Driver, Failed, NotSent};
use crate::sim::pool::{Entry, fleet, node_side};
use crate::sim::task::{Either, either};
use crate::sim::world::{Shared, World};

struct Performing<'a> {
    shared: &'a Shared,
    index: usize,
    job: &'a Job,
    fence: &'a FenceJob,
    entry: Rc<Entry>,
    first: Option<Driver>,
    second: Option<Driver>,
    told: Told,
}

/// What the machine was told last, so that it is told changes only.
#[derive(Default, PartialEq, Clone)]
struct Told {
    heard: Option<Mono>,
    lease: Option<Mono>,
    paused: bool,
    steady: Option<Continuity>,
}

pub(crate) async fn run(shared: &Shared, index: usize, job: &Job, fence: &FenceJob, cancel: Cancel) {
    let node = &fence.life.node;
    let Some(entry) = shared.entry(index, node) else {
        return shared.reactor.sleep(Span::from_ms(500)).await;
    };
    let _held = entry.lock.hold().await;
    let known = entry.known(shared.host_now(index));
    let Some(published) = shared.published(index) else { return };
    let Some(order) = jobs::fence_order(&published.state, fence, known) else { return };
    let told = Told { paused: order.paused, ..Told::default() };
    let first = Some(entry.take_driver(index));
    let mut performing =
        Performing { shared, index, job, fence, entry: Rc::clone(&entry), first, second: None, told };
    let mut machine = Fence::new(order);
    let mut step = machine.next(shared.host_now(index), FenceEvent::Start);
    loop {
        performing.note(&mut machine);
        let sends = matches!(step, Step::SendForceOff { .. });
        let event = {
            let work = performing.perform(&mut machine, step);
            if sends {
                work.await
            } else {
                match either(work, unwanted(&cancel)).await {
                    Either::First(event) => event,
                    Either::Second(()) => break,
                }
            }
        };
        match event {
            Ok(event) => step = machine.next(shared.host_now(index), event),
            Err(_) => break,
        }
    }
    if let Some(first) = performing.first.take() {
        entry.put_driver(first);
    }
    if let Some(mut second) = performing.second.take() {
        second.close(shared).await;
    }
}

async fn unwanted(cancel: &Cancel) {
    while cancel.wanted.get() {
        cancel.changed.after(cancel.changed.version()).await;
    }
}

impl Performing<'_> {
    async fn perform(&mut self, machine: &mut Fence, step: Step) -> Result<FenceEvent, Ended> {
        let node = self.fence.life.node.clone();
        Ok(match step {
            Step::LastLook => FenceEvent::Looked(look(self.shared, self.index, self.job, &node).await),
            Step::Identify(over) => FenceEvent::Identity(self.identify(over).await),
            Step::DeleteSession { uri } => {
                let shared = self.shared;
                if let Some(driver) = self.first.as_mut() {
                    let work = driver.delete_session(shared, &uri);
                    // Gone, or not deletable: the attempt's own deadline has cut its socket anyway.
                    let _ = shared.reactor.within(Span::from_secs(5), work).await;
                }
                FenceEvent::Deleted
            }
            Step::ReadPower(over) => FenceEvent::Power(self.read(over).await),
            Step::NewSession => {
                if let Some(mut old) = self.second.take() {
                    old.close(self.shared).await;
                }
                let opened = open_session(self.shared, self.index, &node).await;
                FenceEvent::Opened(opened.map(|driver| self.second = Some(driver)))
            }
            Step::Commit(command) => FenceEvent::Committed(self.shared.commit(self.index, *command).await),
            Step::SendForceOff { number: _, send_before, deadline } => {
                self.force_off(send_before, deadline).await
            }
            Step::Wait { until } => {
                self.wait(machine, until).await;
                FenceEvent::Woke
            }
            Step::Ended(ended) => return Err(ended),
        })
    }

    fn driver(&mut self, over: Over) -> Result<&mut Driver, String> {
        match over {
            Over::First => {
                let (entry, index) = (&self.entry, self.index);
                Ok(self.first.get_or_insert_with(|| entry.take_driver(index)))
            }
            Over::New => self.second.as_mut().ok_or_else(|| "the second session is not open".to_owned()),
        }
    }

    async fn identify(&mut self, over: Over) -> Result<Identified, String> {
        let (shared, index) = (self.shared, self.index);
        let asked = shared.host_now(index);
        let driver = self.driver(over)?;
        let result = driver.identify(shared).await;
        let login = driver.login().unwrap_or(Login::Basic);
        let now = shared.host_now(index);
        match result {
            Ok(facts) => {
                let state = shared.published(index).ok_or("this replica ends")?.state;
                let node = &self.fence.life.node;
                let verdict =
                    identity::check(&self.fence.pin, &node_side(&state, node), &facts, &fleet(&state));
                self.entry.identified(&verdict, now);
                if over == Over::First {
                    self.entry.warm.borrow_mut().identified = verdict.is_match();
                }
                Ok(Identified { facts, login })
            }
            Err(failed) => Err(self.failed(&failed, asked, now)),
        }
    }

    fn failed(&self, failed: &Failed, asked: Mono, now: Mono) -> String {
        self.entry.note_failure(failed, now.since(asked), now);
        failed.why.clone()
    }

    async fn read(&mut self, over: Over) -> Result<(PowerReading, Login), String> {
        let (shared, index) = (self.shared, self.index);
        let asked = shared.host_now(index);
        let member = self.fence.pin.member.clone();
        let driver = self.driver(over)?;
        driver.at(&member);
        let result = driver.power_state(shared).await;
        let login = driver.login().unwrap_or(Login::Basic);
        let now = shared.host_now(index);
        match result {
            Ok(reading) => {
                // The track follows the warm session; another session's readings would look like a restart to it.
                if over == Over::First {
                    self.entry.note_power(&reading, now);
                }
                Ok((reading, login))
            }
            Err(failed) => Err(self.failed(&failed, asked, now)),
        }
    }

    async fn force_off(&mut self, send_before: Mono, deadline: Mono) -> FenceEvent {
        let (shared, index, fence) = (self.shared, self.index, self.fence);
        let driver = match self.driver(Over::First) {
            Ok(driver) => driver,
            Err(why) => return FenceEvent::NotSent { why },
        };
        driver.at(&fence.pin.member);
        let limit = deadline.since(shared.host_now(index));
        // Asked by the driver right before it writes: connecting may take longer than a look may be old.
        let may_leave = || shared.host_now(index) <= send_before;
        match shared.reactor.within(limit, driver.command(shared, Op::ForceOff, &may_leave, limit)).await {
            Some(Ok(answer)) => FenceEvent::Answered(answer),
            Some(Err(NotSent::TooLate)) => FenceEvent::TooLate,
            Some(Err(NotSent::Failed(failed))) => FenceEvent::NotSent { why: failed.why },
            None => FenceEvent::Answered(CommandAnswer::Unknown { why: format!("no answer within {limit}") }),
        }
    }

    /// Waits, and ends early when there is something to tell the machine.
    async fn wait(&mut self, machine: &mut Fence, until: Mono) {
        loop {
            let now = self.shared.host_now(self.index);
            if now >= until || self.note(machine) {
                return;
            }
            self.shared.reactor.sleep(until.since(now).min(Span::from_ms(100))).await;
        }
    }

    /// Tells the machine what has changed; whether anything has.
    fn note(&mut self, machine: &mut Fence) -> bool {
        let now = self.shared.host_now(self.index);
        let node = &self.fence.life.node;
        let Some(published) = self.shared.published(self.index) else { return false };
        let signs = self.shared.world.borrow().signs(self.index, node);
        let barred = permit::commands_barred(&published.state, node).is_some();
        let told = Told {
            heard: signs.heard,
            lease: signs.lease_moved,
            paused: published.role == Role::Leader && barred,
            steady: self.entry.steady(now),
        };
        if told == self.told {
            return false;
        }
        if let (Some(at), true) = (told.heard, told.heard != self.told.heard) {
            machine.note(now, Note::Heard(at));
        }
        if let (Some(at), true) = (told.lease, told.lease != self.told.lease) {
            machine.note(now, Note::LeaseMoved(at));
        }
        if told.paused != self.told.paused {
            machine.note(now, Note::Paused(told.paused));
        }
        if told.steady != self.told.steady {
            machine.note(now, Note::Steady(told.steady.clone()));
        }
        self.told = told;
        true
    }
}

/// A driver of its own, connected and logged in, so that its first question is answered at once.
pub(super) async fn open_session(shared: &Shared, index: usize, node: &NodeName) -> Result<Driver, String> {
    let mut driver = shared.open(index, node)?;
    driver.fresh_session(shared).await.map_err(|failed| failed.why)?;
    Ok(driver)
}

/// The last look: a linearizable read, and what all reachable replicas hear.
pub(super) async fn look(shared: &Shared, index: usize, job: &Job, node: &NodeName) -> Result<Look, String> {
    let at = shared.host_now(index);
    let asked = shared.reactor.now();
    shared.read_index(index, Span::from_ms(500)).await?;
    let published = shared.published(index).ok_or("this replica ends")?;
    if !shared.settles(index, Span::ZERO).await {
        return Err("this leader has only just been elected".to_owned());
    }
    let signs = shared.world.borrow().signs(index, node);
    shared.world.borrow_mut().truth.looks.insert(node.clone(), asked);
    let look = jobs::last_look(&published.state, job, at, signs);
    Ok(Look { wanted: look.wanted && published.role == Role::Leader, ..look })
}

impl World {
    /// What the leader hears of a node.
    pub(crate) fn signs(&self, index: usize, node: &NodeName) -> Signs {
        Signs {
            heard: self.last_sign(index, node).map(|(at, _)| at),
            lease_moved: self.replicas[index].process.as_ref().and_then(|p| p.leases.changed(node)),
        }
    }
}
