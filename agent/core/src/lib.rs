//! The agent's machine: beacons in, reports out. Pure: no IO, no clock, no chance but what is handed in.
//!
//! ```text
//!                 .--------------------------------------------------------------.
//!   Heard ------->| peers      when each subject was last heard; silence          |---> Send (beacon, ack, status,
//!   Unverified -->| lineage    which of its beacons is newer                      |           report, answer)
//!   Stranger ---->| paths      which ways to it answered lately                   |---> Probe
//!   Probed ------>| reports    what each replica has yet to be told               |---> SliceWanted
//!   Slice ------->| observers  when to send beacons, who says it hears us         |---> Changed
//!   Pressure ---->| trust      reasons not to be believed                         |
//!   Tick -------->| probes     questions of replicas                              |
//!                 '--------------------------------------------------------------'
//! ```
//!
//! Only [`Input::Tick`] acts; everything else teaches, except that a probe is answered at once. So whoever drives
//! this hands in all that has come before it ticks: a beacon that waits in the socket clears its sender before
//! anybody looks at the time. What is deliberately absent: whether a host is dead. That is the arbiter's to say.

mod chance;
mod input;
mod lineage;
mod observers;
mod output;
mod paths;
mod peers;
mod probes;
mod reports;
mod speak;
#[cfg(test)]
mod tests;
mod trust;
mod view;

use coroner_shared::beacon::{Answer, AskProbe, Beacon, SignedBeacon};
use coroner_shared::health::HealthSummary;
use coroner_shared::id::{BootId, ClusterId, NodeUid, ReplicaId};
use coroner_shared::keys::{PublicKey, SecretKey};
use coroner_shared::machine_id::MachineId;
use coroner_shared::slice::{Slice, Timings};
use coroner_shared::time::{Mono, Span};
use coroner_shared::wire::datagram::{DatagramError, Message, Sender};

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

pub use crate::input::{Input, Pressure, Tick};
pub use crate::output::{Change, HostPath, Output, ProbeNumber};
pub use crate::view::{Counts, SubjectView, View};

use crate::chance::Chance;
use crate::observers::Observers;
use crate::peers::{Heard, Subjects};
use crate::probes::Asks;
use crate::reports::Outbox;
use crate::trust::Trust;

/// Without a slice the machine still ticks this often, so that doubts begin and end.
const IDLE_TICK: Span = Span::from_secs(1);

/// Signs beacons. The shell gives the host's key; the simulator may give something cheaper.
pub trait Sign: Send {
    /// A beacon as it goes to everybody.
    ///
    /// # Errors
    /// [`DatagramError`] if it cannot be encoded.
    fn sign(&self, beacon: &Beacon, cluster: ClusterId) -> Result<SignedBeacon, DatagramError>;
}

impl Sign for SecretKey {
    fn sign(&self, beacon: &Beacon, cluster: ClusterId) -> Result<SignedBeacon, DatagramError> {
        SignedBeacon::sign(beacon, self, cluster)
    }
}

/// What an agent is born with.
pub struct Birth {
    /// This boot.
    pub boot: BootId,
    /// The SMBIOS UUID; a host without one sends no beacons and cannot be fenced.
    pub machine: Option<MachineId>,
    /// For jitter and numbers of probes.
    pub seed: u64,
    /// The host's key.
    pub sign: Box<dyn Sign>,
}

/// One agent.
pub struct Agent {
    birth: Birth,
    health: HealthSummary,
    slice: Option<Own>,
    subjects: Subjects,
    observers: Observers,
    outbox: Outbox,
    asks: Asks,
    trust: Trust,
    chance: Chance,
    counts: Counts,
    idle_due: Mono,
    newest: Option<(u64, SignedBeacon)>,
    /// Where the next status goes on with the list of paths that worked.
    paths_told: usize,
    alone: bool,
    slice_wanted: u64,
    stranger_answered: Option<Mono>,
    known: BTreeMap<Sender, Known>,
}

/// Somebody whose word can be checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Known {
    /// What signs for it.
    pub key: PublicKey,
    /// Where it lives; a signed datagram from elsewhere is as good, but may be one of many copies.
    pub address: IpAddr,
}

/// What the slice says of this agent itself.
#[derive(Clone, Debug)]
struct Own {
    version: u64,
    cluster: ClusterId,
    node: NodeUid,
    timings: Timings,
}

// === impl Agent ===

impl Agent {
    /// An agent without a slice. `now` is CLOCK_BOOTTIME: the numbers of beacons and batches are taken from it.
    pub fn new(now: Mono, birth: Birth) -> Self {
        Self {
            chance: Chance::new(birth.seed),
            birth,
            health: HealthSummary::GOOD,
            slice: None,
            subjects: Subjects::default(),
            observers: Observers::default(),
            outbox: Outbox::new(now),
            asks: Asks::default(),
            trust: Trust::new(now),
            counts: Counts::default(),
            idle_due: now,
            newest: None,
            paths_told: 0,
            alone: false,
            slice_wanted: 0,
            stranger_answered: None,
            known: BTreeMap::new(),
        }
    }

    /// Takes in one thing that happened, and says what to do about it.
    pub fn handle(&mut self, now: Mono, input: Input) -> Vec<Output> {
        match input {
            Input::Heard { sender: Sender::Node(node), from, message } => {
                self.agent_says(now, &node, from, message)
            }
            Input::Heard { sender: Sender::Replica(replica), from, message } => {
                self.replica_says(now, replica, from, message)
            }
            Input::Unverified { from } => {
                if let Some(subject) = self.subjects.unsigned(now, from) {
                    self.outbox.silent(now, subject);
                }
                self.asks.unsigned(now, from);
                Vec::new()
            }
            Input::Stranger { from, nonce } => self.stranger(now, from, nonce),
            Input::Probed { number, answer } => {
                self.answered(now, number, answer);
                Vec::new()
            }
            Input::Slice(slice) => self.take_slice(now, slice),
            Input::Pressure(pressure) => {
                self.trust.pressure(pressure);
                Vec::new()
            }
            Input::Health(health) => {
                self.health = health;
                Vec::new()
            }
            Input::Tick(tick) => self.tick(now, tick),
        }
    }

    /// When the next tick is due; later than 250 ms after it, a tick voids its round.
    pub fn next_wakeup(&self) -> Mono {
        let Some(own) = &self.slice else { return self.idle_due };
        let due = [self.subjects.due(&own.timings), self.asks.due(), self.outbox.due()];
        due.into_iter().flatten().fold(self.observers.due(), Mono::min)
    }

    /// Key and address of a sender: of a peer or replica in the slice, or of a host that a replica asks about.
    pub fn known(&self, sender: &Sender) -> Option<Known> {
        let asked = match sender {
            Sender::Node(node) => self.asks.known(node),
            Sender::Replica(_) => None,
        };
        self.known.get(sender).copied().or(asked)
    }

    /// Who this agent is when it sends; `None` before its first slice.
    pub fn sender(&self) -> Option<(Sender, ClusterId)> {
        self.slice.as_ref().map(|own| (Sender::Node(own.node.clone()), own.cluster))
    }

    /// What it knows now.
    pub fn view(&self, now: Mono) -> View {
        let subject = |s: &peers::Subject| SubjectView {
            name: s.peer.name.clone(),
            silent: s.is_silent(),
            last: s.last().map(|last| now.since(last.at)),
        };
        View {
            slice: self.slice.as_ref().map(|own| own.version),
            beaconing: self.slice.is_some() && self.birth.machine.is_some(),
            subjects: self.subjects.iter().map(subject).collect(),
            observers: self.observers.count(),
            observers_hearing: self.observers.hearing(now),
            rtt_max: self.observers.rtt_max(),
            arbiter_contact: Some(self.trust.contact_ago(now)).filter(|ago| *ago != Span::MAX),
            doubts: self.trust.doubts(now),
            counts: self.counts,
        }
    }

    fn agent_says(&mut self, now: Mono, node: &NodeUid, from: SocketAddr, message: Message) -> Vec<Output> {
        match message {
            Message::Beacon(signed) => self.beacon_came(now, signed, false),
            Message::Ack(ack) => {
                self.observers.acked(now, node, ack);
                Vec::new()
            }
            Message::Probe { nonce } => self.reply(now, from, nonce),
            Message::ProbeReply { nonce, beacon } => {
                let number = ProbeNumber(nonce);
                let asked = self.subjects.get(node).is_some_and(|s| s.paths.knows(number));
                self.answered(now, number, Answer::Answered);
                self.asks.replied(now, node, number, &beacon);
                self.beacon_came(now, beacon, asked)
            }
            // Not for agents: whoever sends these to one is mistaken.
            Message::Status(_)
            | Message::StatusAck { .. }
            | Message::Reports(_)
            | Message::ReportsAck { .. }
            | Message::AskProbe(_)
            | Message::ProbeAnswer(_) => Vec::new(),
        }
    }

    fn replica_says(
        &mut self,
        now: Mono,
        replica: ReplicaId,
        from: SocketAddr,
        message: Message,
    ) -> Vec<Output> {
        self.trust.contact(now);
        self.outbox.contact(now, replica);
        match message {
            Message::StatusAck { term, slice } => {
                self.outbox.term(now, term);
                let have = self.slice.as_ref().map_or(0, |own| own.version);
                if slice > have && slice > self.slice_wanted {
                    self.slice_wanted = slice;
                    return vec![Output::SliceWanted { version: slice }];
                }
                Vec::new()
            }
            Message::ReportsAck { number, term } => {
                self.outbox.acked(now, replica, number);
                self.outbox.term(now, term);
                Vec::new()
            }
            Message::AskProbe(ask) => self.asked(now, replica, from, ask),
            Message::Probe { nonce } => self.reply(now, from, nonce),
            // Not for agents, or not from replicas.
            Message::Beacon(_)
            | Message::Ack(_)
            | Message::ProbeReply { .. }
            | Message::Status(_)
            | Message::Reports(_)
            | Message::ProbeAnswer(_) => Vec::new(),
        }
    }

    fn asked(&mut self, now: Mono, replica: ReplicaId, from: SocketAddr, ask: AskProbe) -> Vec<Output> {
        self.asks.ask(now, replica, from, ask);
        Vec::new()
    }

    fn answered(&mut self, now: Mono, number: ProbeNumber, answer: Answer) {
        if let Some(subject) = self.subjects.answered(now, number, answer) {
            self.outbox.silent(now, subject);
        }
        self.asks.answered(now, number, answer);
    }

    /// A verified beacon: of a subject, or of a host that a replica asked about.
    fn beacon_came(&mut self, now: Mono, signed: SignedBeacon, asked: bool) -> Vec<Output> {
        let Ok(beacon) = signed.claims() else { return Vec::new() };
        match self.subjects.beacon(now, &beacon, signed, asked, &mut self.chance) {
            Heard::Ignored => {
                self.counts.beacons_ignored += 1;
                Vec::new()
            }
            Heard::Newer { was_silent, changes } => {
                self.counts.beacons_heard += 1;
                if was_silent {
                    self.outbox.heard(now, beacon.node);
                }
                changes.into_iter().map(Output::Changed).collect()
            }
            Heard::Challenge { address, number } => {
                self.counts.beacons_ignored += 1;
                vec![speak::probe(address, number)]
            }
        }
    }

    fn take_slice(&mut self, now: Mono, slice: Slice) -> Vec<Output> {
        let peers = slice.subjects.iter().chain(&slice.observers);
        let nodes = peers
            .map(|peer| (Sender::Node(peer.node.clone()), Known { key: peer.key, address: peer.address }));
        let replicas = slice.replicas.iter().map(|replica| {
            (Sender::Replica(replica.id), Known { key: replica.key, address: replica.address })
        });
        self.known = nodes.chain(replicas).collect();
        let taken = Change::SliceTaken {
            version: slice.version,
            subjects: slice.subjects.len(),
            observers: slice.observers.len(),
            replicas: slice.replicas.len(),
        };
        if self.slice.as_ref().is_none_or(|own| own.cluster != slice.cluster || own.node != slice.node) {
            self.newest = None;
        }
        self.observers.assign(now, &slice.observers);
        let left = self.subjects.assign(now, slice.subjects, &mut self.chance);
        self.outbox.forget(&left);
        self.outbox.assign(now, &slice.replicas);
        let timings = checked(slice.timings);
        self.slice = Some(Own { version: slice.version, cluster: slice.cluster, node: slice.node, timings });
        vec![Output::Changed(taken)]
    }
}

// === helpers ===

/// The arbiter checks its configuration as a set; an agent only makes sure that no value can stall or spin it.
fn checked(timings: Timings) -> Timings {
    let beacon = timings.beacon.clamp(Span::from_ms(20), Span::from_secs(10));
    Timings {
        beacon,
        status: timings.status.max(beacon),
        suspect: timings.suspect.max(beacon.times(4)),
        path_probe: timings.path_probe.max(Span::from_secs(1)),
        snapshot: timings.snapshot.max(Span::from_secs(1)),
    }
}
