//! A replica's warm sessions with the BMCs, polled so that steadiness can be shown. Mirrors `arbiter/src/bmc_pool.rs`;
//! the track is the core's.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use coroner_arbiter_core::identity::{self, IdentityVerdict, NodeSide};
use coroner_arbiter_core::jobs::BmcKnown;
use coroner_arbiter_core::policy::Pin;
use coroner_arbiter_core::policy::select::{Selected, policy_for};
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::steady::{BmcTrack, ReadFailure};
use coroner_arbiter_core::view::{BmcRead, BmcView};
use coroner_shared::bmc::{Continuity, PowerReading};
use coroner_shared::id::{NodeName, ReplicaId};
use coroner_shared::machine_id::MachineId;
use coroner_shared::time::{Mono, Span};

use super::driver::{Driver, Failed};
use super::process::Process;
use super::task::{Lock, Signal, either};
use super::world::{Shared, World};

const POWER_POLL: Span = Span::from_secs(30);

/// The driver of a warm session, and whether identity matched in it.
#[derive(Default)]
pub(crate) struct Warm {
    pub(crate) driver: Option<Driver>,
    pub(crate) identified: bool,
}

/// One BMC.
pub(crate) struct Entry {
    node: NodeName,
    bmc: usize,
    pub(crate) lock: Lock,
    pub(crate) warm: RefCell<Warm>,
    track: RefCell<Option<BmcTrack>>,
    power_at: Cell<Option<Mono>>,
    error_at: Cell<Option<Mono>>,
    wanted: Cell<Option<Mono>>,
    wanted_changed: Signal,
    over: Cell<bool>,
}

// === impl Entry ===

impl Entry {
    pub(crate) fn with_track<T>(&self, work: impl FnOnce(&mut BmcTrack) -> T) -> Option<T> {
        self.track.borrow_mut().as_mut().map(work)
    }

    pub(crate) fn known(&self, now: Mono) -> BmcKnown {
        let known = |t: &mut BmcTrack| BmcKnown {
            steady: t.steady(now),
            shown: t.shown().cloned(),
            off_for: t.off_for(now),
        };
        self.with_track(known).unwrap_or_default()
    }

    pub(crate) fn steady(&self, now: Mono) -> Option<Continuity> {
        self.with_track(|t| if t.steady(now) { t.shown().cloned() } else { None }).flatten()
    }

    pub(crate) fn identified(&self, verdict: &IdentityVerdict, now: Mono) {
        self.with_track(|t| t.identified(now, verdict));
    }

    pub(crate) fn note_power(&self, reading: &PowerReading, now: Mono) {
        self.with_track(|t| t.read(now, reading));
        self.power_at.set(Some(now));
    }

    pub(crate) fn note_failure(&self, failed: &Failed, took: Span, now: Mono) {
        let failure =
            if failed.no_answer { ReadFailure::NoAnswer } else { ReadFailure::Unclear(failed.why.clone()) };
        self.with_track(|t| t.failed(now, took, failure));
        self.error_at.set(Some(now));
    }

    /// The warm driver, made if it is not there.
    pub(crate) fn take_driver(&self, index: usize) -> Driver {
        let mut warm = self.warm.borrow_mut();
        warm.driver.take().unwrap_or_else(|| {
            warm.identified = false;
            Driver::new(index, self.bmc)
        })
    }

    pub(crate) fn put_driver(&self, driver: Driver) {
        self.warm.borrow_mut().driver = Some(driver);
    }
}

// === impl Process ===

impl Process {
    pub(crate) fn entry(&self, node: &NodeName) -> Option<Rc<Entry>> {
        self.bmcs.get(node).map(|(_, entry)| Rc::clone(entry))
    }

    /// The suspects' BMCs are read every half second.
    pub(crate) fn want_bmcs(&self) {
        for (node, (_, entry)) in &self.bmcs {
            let wanted = self.ears.suspects.get(node).copied();
            let old = entry.wanted.replace(wanted);
            if old.is_some() != wanted.is_some() {
                entry.wanted_changed.send();
            }
        }
    }

    /// What this replica has read of the suspects' BMCs since they failed.
    pub(crate) fn views(&self, me: ReplicaId, now: Mono) -> Vec<(NodeName, BmcView)> {
        let suspects = self.ears.suspects.iter();
        suspects.map(|(node, failed)| (node.clone(), self.view(me, node, now, *failed))).collect()
    }

    fn view(&self, me: ReplicaId, node: &NodeName, now: Mono, failed: Mono) -> BmcView {
        let unclear = |what: &str| BmcView {
            replica: me,
            read: BmcRead::Unclear { what: what.to_owned(), since: now.since(failed) },
            steady: false,
            age: Span::ZERO,
        };
        match self.entry(node) {
            None => unclear("no binding"),
            Some(entry) => entry
                .with_track(|t| t.view(me, now, failed))
                .unwrap_or_else(|| unclear("the binding is not verified yet")),
        }
    }

    /// Whether another BMC of the same network answered lately, for each suspect that has one.
    pub(crate) fn siblings(&self, state: &State, now: Mono) -> BTreeMap<NodeName, bool> {
        let answers = |node: &NodeName| {
            let network = &state.bindings.get(node)?.network;
            let siblings = state.bindings.iter().filter(|(name, b)| *name != node && b.network == *network);
            let answers = siblings.filter_map(|(name, _)| self.entry(name)).map(|entry| {
                entry.power_at.get().is_some_and(|at| {
                    now.since(at) <= Span::from_secs(35) && entry.error_at.get().is_none_or(|bad| bad <= at)
                })
            });
            answers.reduce(|a, b| a || b)
        };
        let suspects = self.ears.suspects.keys();
        suspects.filter_map(|node| Some((node.clone(), answers(node)?))).collect()
    }
}

// === impl World ===

impl World {
    /// One entry per binding, made anew whenever its address, trust or pin changes.
    pub(crate) fn reconcile_bmcs(&mut self, index: usize) {
        let Some(process) = self.replicas[index].process.as_deref_mut() else { return };
        let state = std::sync::Arc::clone(&process.published.state);
        let mut old = std::mem::take(&mut process.bmcs);
        let mut keep = BTreeMap::new();
        let mut fresh = Vec::new();
        for (node, binding) in &state.bindings {
            let Some(spec) = self.api.bindings.get(node).map(|b| b.hash.clone()) else { continue };
            let version = format!("{spec} {:?}", binding.pin);
            match old.remove(node) {
                Some((same, entry)) if same == version => {
                    keep.insert(node.clone(), (same, entry));
                }
                before => {
                    if let Some((_, entry)) = before {
                        entry.over.set(true);
                        entry.wanted_changed.send();
                    }
                    let Some(bmc) = self.site.bmc_at(&spec) else { continue };
                    let entry = Rc::new(Entry {
                        node: node.clone(),
                        bmc,
                        lock: self.reactor.lock(),
                        warm: RefCell::default(),
                        track: RefCell::new(binding.pin.clone().map(BmcTrack::new)),
                        power_at: Cell::new(None),
                        error_at: Cell::new(None),
                        wanted: Cell::new(None),
                        wanted_changed: self.reactor.signal(),
                        over: Cell::new(false),
                    });
                    fresh.push(Rc::clone(&entry));
                    keep.insert(node.clone(), (version, entry));
                }
            }
        }
        for (_, (_, entry)) in old {
            entry.over.set(true);
            entry.wanted_changed.send();
        }
        let Some(process) = self.replicas[index].process.as_deref_mut() else { return };
        process.bmcs = keep;
        let (group, host) = (process.group, self.site.replicas[index]);
        for entry in fresh {
            self.spawn(host, group, move |shared| Box::pin(poll(shared, index, entry)));
        }
    }
}

/// The node's side of an identity, from the state.
pub(crate) fn node_side<'a>(state: &'a State, node: &'a NodeName) -> NodeSide<'a> {
    let known = state.nodes.get(node);
    let machine =
        known.and_then(|n| n.member.as_ref()).map_or(Err("no agent has registered"), |m| match &m.machine {
            Ok(id) => Ok(*id),
            Err(why) => Err(why.as_str()),
        });
    let system_uuid = known.and_then(|n| n.facts.as_ref()).map_or("", |f| f.system_uuid.as_str());
    NodeSide { node, machine, system_uuid }
}

/// All registered machines.
pub(crate) fn fleet(state: &State) -> BTreeMap<NodeName, MachineId> {
    let of = |n: &coroner_arbiter_core::state::Node| n.member.as_ref()?.machine.clone().ok();
    state.nodes.iter().filter_map(|(name, n)| Some((name.clone(), of(n)?))).collect()
}

/// Polls one BMC until its binding is over, then logs out.
async fn poll(shared: Shared, index: usize, entry: Rc<Entry>) {
    while !entry.over.get() {
        let Some(published) = shared.published(index) else { return };
        let power_poll = match policy_for(&published.state, &entry.node) {
            Selected::One(policy) => policy.power_poll,
            Selected::None | Selected::Conflict(_) => POWER_POLL,
        };
        let seen = entry.wanted_changed.version();
        let suspect = entry.wanted.get().is_some();
        let due = entry.with_track(|t| t.next_poll(suspect, power_poll)).flatten();
        let left = due.map(|due| due.since(shared.host_now(index)));
        if left == Some(Span::ZERO) {
            read_once(&shared, index, &entry).await;
            continue;
        }
        let wait = left.unwrap_or(Span::from_secs(5)).min(Span::from_secs(5));
        either(shared.reactor.sleep(wait), entry.wanted_changed.after(seen)).await;
    }
    let _held = entry.lock.hold().await;
    let driver = entry.warm.borrow_mut().driver.take();
    if let Some(mut driver) = driver {
        driver.close(&shared).await;
    }
}

/// One reading over the warm session, identifying first where that was not yet done in it.
async fn read_once(shared: &Shared, index: usize, entry: &Rc<Entry>) {
    let _held = entry.lock.hold().await;
    let Some(published) = shared.published(index) else { return };
    let state = published.state;
    let Some(pin) = state.bindings.get(&entry.node).and_then(|b| b.pin.clone()) else {
        return shared.reactor.sleep(Span::from_secs(1)).await;
    };
    let asked = shared.host_now(index);
    let mut driver = entry.take_driver(index);
    let identified = entry.warm.borrow().identified;
    let result = read(shared, index, entry, &mut driver, &state, &pin, identified).await;
    if let Err(failed) = result {
        let now = shared.host_now(index);
        entry.note_failure(&failed, now.since(asked), now);
        driver.close(shared).await;
        entry.warm.borrow_mut().identified = false;
        let suspect = entry.wanted.get().is_some();
        return shared.reactor.sleep(Span::from_ms(if suspect { 500 } else { 5000 })).await;
    }
    entry.put_driver(driver);
}

async fn read(
    shared: &Shared,
    index: usize,
    entry: &Rc<Entry>,
    driver: &mut Driver,
    state: &State,
    pin: &Pin,
    identified: bool,
) -> Result<(), Failed> {
    if !identified {
        let facts = driver.identify(shared).await?;
        let verdict = identity::check(pin, &node_side(state, &entry.node), &facts, &fleet(state));
        entry.identified(&verdict, shared.host_now(index));
        entry.warm.borrow_mut().identified = verdict.is_match();
    }
    driver.at(&pin.member);
    let reading = driver.power_state(shared).await?;
    entry.note_power(&reading, shared.host_now(index));
    Ok(())
}

impl Shared {
    pub(crate) fn entry(&self, index: usize, node: &NodeName) -> Option<Rc<Entry>> {
        self.world.borrow().replicas[index].process.as_ref()?.entry(node)
    }

    /// A further driver to a node's BMC, beside the warm one.
    pub(crate) fn open(&self, index: usize, node: &NodeName) -> Result<Driver, String> {
        let world = self.world.borrow();
        let spec = world.api.bindings.get(node).ok_or("no binding")?;
        let bmc = world.site.bmc_at(&spec.hash).ok_or("the binding names no BMC")?;
        Ok(Driver::new(index, bmc))
    }
}
