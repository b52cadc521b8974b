//! Tests of the whole machine. [`Bench`] drives one agent as a shell would, with a world of living subjects, observers
//! and replicas that can be turned off one by one.

mod beacons;
mod properties;
mod questions;
mod reports;
mod silence;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use coroner_shared::beacon::{
    Ack, Answer, Beacon, Hearing, Path, ReportBatch, SelfDoubt, SignedBeacon, Status,
};
use coroner_shared::health::HealthSummary;
use coroner_shared::id::{BootId, ClusterId, NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::SecretKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::names::{PORT_PEER, PORT_REPORT};
use coroner_shared::slice::{Peer, ReplicaPeer, Slice, Timings};
use coroner_shared::time::{Mono, Span};
use coroner_shared::wire::DATAGRAM_BYTES_MAX;
use coroner_shared::wire::datagram::{Message, Sender, encoded_bytes};

use crate::{Agent, Birth, Change, HostPath, Input, Output, ProbeNumber, Tick};

const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);
/// The agent is born at this time, so that ages cannot pass for instants.
const BORN: u64 = 1_000_000;

/// Boot `n` of a host.
fn boot(n: u8) -> BootId {
    BootId::from_bytes([n; 16])
}

fn uid(n: u8) -> NodeUid {
    NodeUid::new(format!("8d2c6f3a-1b4e-4c7d-9e0f-0000000000{n:02x}")).unwrap()
}

fn machine(n: u8) -> MachineId {
    MachineId::from_bytes([n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]).unwrap()
}

fn address(n: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(10, 0, 0, n))
}

fn peer(n: u8) -> Peer {
    let name = NodeName::new(format!("n{n}")).unwrap();
    let key = SecretKey::from_seed(&[n; 32]).public();
    Peer { name, node: uid(n), machine: machine(n), address: address(n), key }
}

fn replica(n: u8) -> ReplicaPeer {
    let host = NodeName::new(format!("r{n}")).unwrap();
    let key = SecretKey::from_seed(&[100 + n; 32]).public();
    ReplicaPeer { id: ReplicaId::new(u64::from(n)).unwrap(), host, address: address(200 + n), key }
}

fn slice(version: u64, peers: &[u8]) -> Slice {
    Slice {
        version,
        cluster: CLUSTER,
        node: uid(1),
        subjects: peers.iter().map(|n| peer(*n)).collect(),
        observers: peers.iter().map(|n| peer(*n)).collect(),
        replicas: [1, 2, 3].map(replica).to_vec(),
        timings: Timings::BALANCED,
    }
}

fn beacon(n: u8, boot_n: u8, seq: u64) -> SignedBeacon {
    let beacon =
        Beacon { node: uid(n), machine: machine(n), boot: boot(boot_n), seq, health: HealthSummary::GOOD };
    SignedBeacon::sign(&beacon, &SecretKey::from_seed(&[n; 32]), CLUSTER).unwrap()
}

/// One agent, node 1 at 10.0.0.1, and what the world around it does by itself.
struct Bench {
    agent: Agent,
    now: Mono,
    /// Subjects that send a beacon each 250 ms.
    alive: BTreeSet<u8>,
    /// Replicas that acknowledge statuses and reports.
    replicas: BTreeSet<u8>,
    /// What a host's kernel answers; nothing where it is not named.
    kernels: BTreeMap<(u8, HostPath), Answer>,
    term: u64,
    drops: u64,
    sent: Vec<(Mono, SocketAddr, Message)>,
    probes: Vec<(Mono, u8, HostPath)>,
    changes: Vec<Change>,
}

impl Bench {
    /// Peers 2.. are subjects and observers, all alive; replicas 1 to 3 answer.
    fn new(peers: &[u8]) -> Self {
        let mut bench = Self::unborn(Some(machine(1)));
        bench.alive = peers.iter().copied().collect();
        bench.input(Input::Slice(slice(1, peers)));
        bench
    }

    /// Without a slice.
    fn unborn(machine: Option<MachineId>) -> Self {
        let birth =
            Birth { boot: boot(1), machine, seed: 42, sign: Box::new(SecretKey::from_seed(&[1; 32])) };
        let now = Mono::from_ms(BORN);
        Self {
            agent: Agent::new(now, birth),
            now,
            alive: BTreeSet::new(),
            replicas: BTreeSet::from([1, 2, 3]),
            kernels: BTreeMap::new(),
            term: 5,
            drops: 0,
            sent: Vec::new(),
            probes: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Calm for long enough that all paths were tried and every doubt is over, then a clean sheet.
    fn settled(peers: &[u8]) -> Self {
        let mut bench = Self::new(peers);
        bench.run(5000);
        bench.clear();
        bench
    }

    fn clear(&mut self) {
        self.sent.clear();
        self.probes.clear();
        self.changes.clear();
    }

    fn input(&mut self, input: Input) {
        let outputs = self.agent.handle(self.now, input);
        for output in outputs {
            self.perform(output);
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Send { to, message } => {
                let bytes = encoded_bytes(&Sender::Node(uid(1)), &message);
                assert!(bytes <= DATAGRAM_BYTES_MAX, "{bytes} bytes: {message:?}");
                for to in to {
                    self.sent.push((self.now, to, message.clone()));
                    self.world_answers(to, &message);
                }
            }
            Output::Probe { number, path, address } => {
                let host = host(address);
                self.probes.push((self.now, host, path));
                if let Some(answer) = self.kernels.get(&(host, path)).copied() {
                    self.input(Input::Probed { number, answer });
                }
            }
            Output::SliceWanted { .. } => {}
            Output::Changed(change) => self.changes.push(change),
        }
    }

    fn world_answers(&mut self, to: SocketAddr, message: &Message) {
        let host = host(to.ip());
        if self.alive.contains(&host) {
            if let Message::Probe { nonce } = message {
                let beacon = beacon(host, host, self.now.as_ms());
                self.hear_agent(host, Message::ProbeReply { nonce: *nonce, beacon });
            }
            if let Message::Beacon(signed) = message {
                let seq = signed.claims().unwrap().seq;
                let ack = Ack { seq, held: Span::ZERO, arbiter_contact: Span::ZERO };
                self.hear_agent(host, Message::Ack(ack));
            }
        }
        let replica = host.wrapping_sub(200);
        if self.replicas.contains(&replica) {
            if matches!(message, Message::Status(_)) {
                self.hear_replica(replica, Message::StatusAck { term: self.term, slice: 1 });
            }
            if let Message::Reports(batch) = message {
                let (number, term) = (batch.number, self.term);
                self.hear_replica(replica, Message::ReportsAck { number, term });
            }
        }
    }

    fn hear_agent(&mut self, n: u8, message: Message) {
        let from = SocketAddr::new(address(n), PORT_PEER);
        self.input(Input::Heard { sender: Sender::Node(uid(n)), from, message });
    }

    fn hear_replica(&mut self, n: u8, message: Message) {
        let from = SocketAddr::new(address(200 + n), PORT_REPORT);
        let sender = Sender::Replica(ReplicaId::new(u64::from(n)).unwrap());
        self.input(Input::Heard { sender, from, message });
    }

    fn beacon_from(&mut self, n: u8, boot_n: u8, seq: u64) {
        self.hear_agent(n, Message::Beacon(beacon(n, boot_n, seq)));
    }

    fn tick(&mut self) {
        self.tick_drained(true);
    }

    fn tick_drained(&mut self, drained: bool) {
        let awake = Mono::from_ms(self.now.as_ms() - 1000);
        let drops = self.drops;
        let outputs = self.agent.handle(self.now, Input::Tick(Tick { awake, drained, drops }));
        assert!(self.agent.next_wakeup() > self.now, "it would spin");
        for output in outputs {
            self.perform(output);
        }
    }

    /// Lets `ms` pass: living subjects beat each 250 ms, ticks come when they are due.
    fn run(&mut self, ms: u64) {
        let end = self.now + Span::from_ms(ms);
        loop {
            let beat = Mono::from_ms((self.now.as_ms() / 250 + 1) * 250);
            let next = self.agent.next_wakeup().max(self.now).min(beat);
            if next > end {
                break;
            }
            self.now = next;
            if next == beat {
                for n in self.alive.clone() {
                    self.beacon_from(n, n, self.now.as_ms());
                }
            }
            self.tick();
        }
        self.now = end;
    }

    /// Time passes and this process does not run.
    fn pause(&mut self, ms: u64) {
        self.now = self.now + Span::from_ms(ms);
    }

    /// What `pick` finds among the datagrams to a replica.
    fn to_replica<T>(&self, replica: u8, pick: fn(&Message) -> Option<T>) -> Vec<(Mono, T)> {
        let ours = self.sent.iter().filter(|(_, to, _)| host(to.ip()) == 200 + replica);
        ours.filter_map(|(at, _, m)| Some((*at, pick(m)?))).collect()
    }

    fn batches_to(&self, replica: u8) -> Vec<(Mono, ReportBatch)> {
        self.to_replica(replica, |m| if let Message::Reports(batch) = m { Some(batch.clone()) } else { None })
    }

    fn statuses_to(&self, replica: u8) -> Vec<(Mono, Status)> {
        self.to_replica(
            replica,
            |m| if let Message::Status(status) = m { Some(status.clone()) } else { None },
        )
    }

    /// What the replica was told about a subject, newest last: `S` silent, `H` heard.
    fn told(&self, replica: u8, subject: u8) -> String {
        let batches = self.batches_to(replica);
        let reports = batches.iter().flat_map(|(_, b)| &b.reports).filter(|r| r.subject == uid(subject));
        reports
            .map(|r| match r.hearing {
                Hearing::Silent { .. } => 'S',
                Hearing::Heard { .. } => 'H',
            })
            .collect()
    }
}

/// The last byte of an address of ours.
fn host(address: IpAddr) -> u8 {
    match address {
        IpAddr::V4(v4) => v4.octets()[3],
        IpAddr::V6(_) => 0,
    }
}
