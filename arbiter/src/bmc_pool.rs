//! This replica's sessions with the BMCs: one warm session each, polled so that steadiness can be shown, read every
//! half second while a node is a suspect. It reads and remembers; what a reading means is the core's to say.
//!
//! A fence borrows the warm session ([`Entry::borrow`]); polling waits meanwhile, and the fence feeds its own readings
//! to the same track.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coroner_arbiter_core::identity::{self, IdentityVerdict, NodeSide};
use coroner_arbiter_core::jobs::BmcKnown;
use coroner_arbiter_core::policy::Pin;
use coroner_arbiter_core::policy::select::{Selected, policy_for};
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::steady::{BmcTrack, ReadFailure};
use coroner_arbiter_core::view::{BmcRead, BmcView};
use coroner_bmc::Bmc;
use coroner_shared::bmc::{IdentityFacts, Power, PowerReading};
use coroner_shared::id::{NodeName, ReplicaId};
use coroner_shared::machine_id::MachineId;
use coroner_shared::time::{Mono, Span};
use tokio::sync::{OwnedMutexGuard, watch};

use crate::bmc_open::Opener;
use crate::clock;
use crate::replica::ReplicaHandle;

/// How often the power state is read where no single policy says.
const POWER_POLL: Span = Span::from_secs(30);

/// The driver of a warm session, and whether identity matched in it.
pub struct Warm {
    driver: Option<Box<dyn Bmc>>,
    identified: bool,
}

/// What people are shown of a BMC.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The last power state, and when.
    pub power: Option<(Power, Mono)>,
    /// The last error, and when.
    pub error: Option<(String, Mono)>,
    /// The last verdict on identity, and when.
    pub identity: Option<(String, Mono)>,
    /// `UUID` that the BMC gave, as it gave it.
    pub uuid: Option<String>,
}

/// One BMC.
pub struct Entry {
    node: NodeName,
    warm: Arc<tokio::sync::Mutex<Warm>>,
    track: Mutex<Option<BmcTrack>>,
    seen: Mutex<Seen>,
    wanted: watch::Sender<Option<Mono>>,
    /// The binding is gone or another one.
    over: watch::Sender<bool>,
}

/// All BMCs of this replica.
#[derive(Clone)]
pub struct BmcPool {
    handle: ReplicaHandle,
    opener: Opener,
    entries: Arc<Mutex<Entries>>,
}

/// By node: what the entry was made for, and the entry.
type Entries = BTreeMap<NodeName, (String, Arc<Entry>)>;

// === impl BmcPool ===

impl BmcPool {
    /// An empty pool; [`BmcPool::run`] fills it.
    pub fn new(handle: ReplicaHandle, opener: Opener) -> Self {
        Self { handle, opener, entries: Arc::default() }
    }

    /// Keeps one entry per binding, made anew whenever its address, trust or pin changes.
    pub async fn run(self) {
        let mut published = self.handle.watch();
        let mut specs = self.opener.watch();
        loop {
            self.reconcile();
            tokio::select! {
                changed = published.changed() => if changed.is_err() { return },
                changed = specs.changed() => if changed.is_err() { return },
            }
        }
    }

    fn reconcile(&self) {
        let state = self.handle.published().state;
        let mut entries = lock(&self.entries);
        let mut keep = BTreeMap::new();
        for (node, binding) in &state.bindings {
            let Some(spec) = self.opener.spec_hash(node) else { continue };
            let version = format!("{spec} {:?}", binding.pin);
            match entries.remove(node) {
                Some((same, entry)) if same == version => {
                    keep.insert(node.clone(), (same, entry));
                }
                old => {
                    // The old one logs out by itself once it sees that it is over.
                    if let Some((_, entry)) = old {
                        entry.over.send_replace(true);
                    }
                    let entry = Arc::new(Entry::new(node.clone(), binding.pin.clone()));
                    tokio::spawn(poll(self.handle.clone(), self.opener.clone(), Arc::clone(&entry)));
                    keep.insert(node.clone(), (version, entry));
                }
            }
        }
        for (_, (_, entry)) in std::mem::replace(&mut *entries, keep) {
            entry.over.send_replace(true);
        }
    }

    /// The entry of a node, if it has a binding.
    pub fn entry(&self, node: &NodeName) -> Option<Arc<Entry>> {
        lock(&self.entries).get(node).map(|(_, entry)| Arc::clone(entry))
    }

    /// What opens drivers.
    pub fn opener(&self) -> &Opener {
        &self.opener
    }

    /// Opens a further driver to a node's BMC, beside the warm one.
    ///
    /// # Errors
    /// No binding, no credentials, or a wrong binding; in words for people.
    pub async fn open(&self, node: &NodeName) -> Result<Box<dyn Bmc>, String> {
        self.opener.open(node).await
    }

    /// Says which nodes are suspects and since when they have failed; their BMCs are read every half second.
    pub fn want(&self, suspects: &BTreeMap<NodeName, Mono>) {
        for (node, (_, entry)) in lock(&self.entries).iter() {
            let wanted = suspects.get(node).copied();
            entry.wanted.send_if_modified(|old| {
                let changed = old.is_some() != wanted.is_some();
                *old = wanted;
                changed
            });
        }
    }

    /// What this replica has read of the suspects' BMCs since they failed.
    pub fn views(&self, suspects: &BTreeMap<NodeName, Mono>, now: Mono) -> Vec<(NodeName, BmcView)> {
        let me = self.handle.id();
        suspects.iter().map(|(node, failed)| (node.clone(), self.view(me, node, now, *failed))).collect()
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
            Some(entry) => lock(&entry.track)
                .as_ref()
                .map_or_else(|| unclear("the binding is not verified yet"), |t| t.view(me, now, failed)),
        }
    }

    /// Whether another BMC of the same network answered lately; `None`: there is none.
    pub fn sibling_answers(&self, state: &State, node: &NodeName, now: Mono) -> Option<bool> {
        let network = &state.bindings.get(node)?.network;
        let siblings = state.bindings.iter().filter(|(name, b)| *name != node && b.network == *network);
        let answers = siblings.filter_map(|(name, _)| self.entry(name)).map(|entry| {
            let seen = entry.seen();
            seen.power.is_some_and(|(_, at)| {
                now.since(at) <= Span::from_secs(35) && seen.error.is_none_or(|(_, bad)| bad <= at)
            })
        });
        answers.reduce(|a, b| a || b)
    }
}

// === impl Entry ===

impl Entry {
    fn new(node: NodeName, pin: Option<Pin>) -> Self {
        Self {
            node,
            warm: Arc::new(tokio::sync::Mutex::new(Warm { driver: None, identified: false })),
            track: Mutex::new(pin.map(BmcTrack::new)),
            seen: Mutex::default(),
            wanted: watch::Sender::new(None),
            over: watch::Sender::new(false),
        }
    }

    /// What people are shown.
    pub fn seen(&self) -> Seen {
        lock(&self.seen).clone()
    }

    /// Works on the track.
    pub fn with_track<T>(&self, work: impl FnOnce(&mut BmcTrack) -> T) -> Option<T> {
        lock(&self.track).as_mut().map(work)
    }

    /// What the track knows when a fence begins.
    pub fn known(&self, now: Mono) -> BmcKnown {
        let known = |t: &mut BmcTrack| BmcKnown {
            steady: t.steady(now),
            shown: t.shown().cloned(),
            off_for: t.off_for(now),
        };
        self.with_track(known).unwrap_or_default()
    }

    /// Takes the warm session for a while; polling waits.
    pub async fn borrow(&self) -> OwnedMutexGuard<Warm> {
        Arc::clone(&self.warm).lock_owned().await
    }

    /// Notes an identity that was read over the warm session, and judges it if there is a pin.
    pub fn note_identity(&self, facts: &IdentityFacts, verdict: Option<&IdentityVerdict>, now: Mono) {
        if let Some(verdict) = verdict {
            self.with_track(|t| t.identified(now, verdict));
        }
        self.show_identity(facts, verdict, now);
    }

    /// Keeps an identity for people to see.
    pub fn show_identity(&self, facts: &IdentityFacts, verdict: Option<&IdentityVerdict>, now: Mono) {
        let uuid = facts.members.iter().find_map(|m| match &m.read {
            coroner_shared::bmc::MemberRead::Read { uuid, .. } => uuid.clone(),
            coroner_shared::bmc::MemberRead::Unreadable { .. } => None,
        });
        let mut seen = lock(&self.seen);
        seen.uuid = uuid;
        seen.identity = verdict.map(|v| (v.to_string(), now)).or(seen.identity.take());
    }

    /// Notes a reading.
    pub fn note_power(&self, reading: &PowerReading, now: Mono) {
        self.with_track(|t| t.read(now, reading));
        lock(&self.seen).power = Some((reading.power.clone(), now));
    }

    /// Notes a failure.
    pub fn note_failure(&self, error: &str, no_answer: bool, took: Span, now: Mono) {
        let failure = if no_answer { ReadFailure::NoAnswer } else { ReadFailure::Unclear(error.to_owned()) };
        self.with_track(|t| t.failed(now, took, failure));
        lock(&self.seen).error = Some((error.to_owned(), now));
    }
}

impl Warm {
    /// The driver, opened if it is not.
    ///
    /// # Errors
    /// It cannot be opened; in words for people.
    pub async fn driver(&mut self, opener: &Opener, node: &NodeName) -> Result<&mut Box<dyn Bmc>, String> {
        let driver = match self.driver.take() {
            Some(driver) => driver,
            None => {
                self.identified = false;
                opener.open(node).await?
            }
        };
        Ok(self.driver.insert(driver))
    }

    /// Closes it: the next use logs in anew.
    pub async fn close(&mut self) {
        self.identified = false;
        if let Some(mut driver) = self.driver.take() {
            // Best effort: a session left behind dies by its own time-out.
            let _ = driver.close().await;
        }
    }

    /// Whether identity matched in this session.
    pub const fn is_identified(&self) -> bool {
        self.identified
    }

    /// Notes whether it does. Where it refuses it is read again before the next reading: a member that could not be read
    /// for a moment must not stand against this BMC for as long as the session lives.
    pub const fn set_identified(&mut self, identified: bool) {
        self.identified = identified;
    }
}

/// The node's side of an identity, from the state.
pub fn node_side<'a>(state: &'a State, node: &'a NodeName) -> NodeSide<'a> {
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
pub fn fleet(state: &State) -> BTreeMap<NodeName, MachineId> {
    let members = state
        .nodes
        .iter()
        .filter_map(|(name, n)| Some((name.clone(), n.member.as_ref()?.machine.clone().ok()?)));
    members.collect()
}

/// Polls one BMC until its binding is over, then logs out.
async fn poll(handle: ReplicaHandle, opener: Opener, entry: Arc<Entry>) {
    let mut wanted = entry.wanted.subscribe();
    let mut over = entry.over.subscribe();
    while !*over.borrow() {
        let state = handle.published().state;
        let power_poll = match policy_for(&state, &entry.node) {
            Selected::One(policy) => policy.power_poll,
            Selected::None | Selected::Conflict(_) => POWER_POLL,
        };
        let suspect = wanted.borrow_and_update().is_some();
        let due = entry.with_track(|t| t.next_poll(suspect, power_poll)).flatten();
        let left = due.map(|due| due.since(clock::now()));
        if left == Some(Span::ZERO) {
            read_once(&handle, &opener, &entry).await;
            continue;
        }
        let wait = left.unwrap_or(Span::from_secs(5)).min(Span::from_secs(5));
        tokio::select! {
            () = tokio::time::sleep(wait.into()) => {}
            _ = wanted.changed() => {}
            _ = over.changed() => {}
        }
    }
    entry.borrow().await.close().await;
}

/// One reading over the warm session, identifying first where that was not yet done in it.
async fn read_once(handle: &ReplicaHandle, opener: &Opener, entry: &Entry) {
    let mut warm = entry.borrow().await;
    let state = handle.published().state;
    let Some(pin) = state.bindings.get(&entry.node).and_then(|b| b.pin.clone()) else {
        tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        return;
    };
    let asked = clock::now();
    let failed = |error: &str, no_answer| {
        let now = clock::now();
        entry.note_failure(error, no_answer, now.since(asked), now);
    };
    let identified = warm.identified;
    let driver = match warm.driver(opener, &entry.node).await {
        Ok(driver) => driver,
        Err(why) => {
            failed(&why, false);
            // Without credentials or with a wrong binding nothing changes within half a second.
            return tokio::time::sleep(std::time::Duration::from_secs(1)).await;
        }
    };
    if !identified {
        match driver.identify().await {
            Ok(facts) => {
                let verdict = identity::check(&pin, &node_side(&state, &entry.node), &facts, &fleet(&state));
                entry.note_identity(&facts, Some(&verdict), clock::now());
                warm.identified = verdict.is_match();
            }
            Err(error) => {
                failed(&error.full(), error.no_answer());
                warm.close().await;
                return pause(&entry.wanted).await;
            }
        }
    }
    let Some(driver) = warm.driver.as_mut() else { return };
    match driver.power_state(&pin.member).await {
        Ok(reading) => entry.note_power(&reading, clock::now()),
        Err(error) => {
            failed(&error.full(), error.no_answer());
            warm.close().await;
            pause(&entry.wanted).await;
        }
    }
}

/// After a failure: half a second for a suspect, else five.
async fn pause(wanted: &watch::Sender<Option<Mono>>) {
    let suspect = wanted.borrow().is_some();
    tokio::time::sleep(std::time::Duration::from_millis(if suspect { 500 } else { 5000 })).await;
}

/// A lock that a panic elsewhere did not spoil: what it guards is replaced whole.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
