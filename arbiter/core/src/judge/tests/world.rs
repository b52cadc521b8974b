//! A small deterministic cluster around the real graph, witnesses, pool and judge: agents, replicas, BMCs and kubelets
//! that do what they do in steps of 50 ms, and links that can be cut. The log is not modelled: what the judge proposes
//! is kept, and applied only where a test says so.

use std::collections::{BTreeMap, BTreeSet};

use coroner_shared::beacon::{
    Answer, AskProbe, Beacon, Hearing, Path, ProbeAnswer, ProbeOutcome, Report, ReportBatch, SelfDoubt,
    SignedBeacon, Status, WorkedPath,
};
use coroner_shared::health::HealthSummary;
use coroner_shared::id::{BootId, ClusterId, NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::{PublicKey, SecretKey};
use coroner_shared::machine_id::{MachineId, Transform};
use coroner_shared::time::{Mono, Span};

use super::super::*;
use crate::apply::apply;
use crate::command::{Entry, NodeFacts, Outcome};
use crate::policy::{AfterRelease, Binding, Brakes, LifeTimings, Mode, Pin, Policy, ReleaseStrategy, Rules};
use crate::state::{Enforced, Member, Node, Replica};
use crate::view::BmcRead;
use crate::witness::{CheckedAnswer, CheckedBatch, Proven, Witness};

mod agents;
mod leader;
mod made;

use made::{binding, host, node, policy};

pub(crate) const STEP: u64 = 50;
const T: u64 = 250;
const S: u64 = 1250;
/// Two probes 100 ms apart, each with 100 ms to answer.
const PROBED: u64 = 200;
const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);

/// A BMC as it behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bmc {
    On,
    Off,
    Gone,
    Odd,
}

/// A host as it behaves.
#[derive(Clone, Debug)]
pub(crate) struct Host {
    pub(crate) name: NodeName,
    pub(crate) uid: NodeUid,
    pub(crate) boot: BootId,
    /// Its agent runs.
    pub(crate) agent: bool,
    /// Its kubelet renews its Lease.
    pub(crate) kubelet: bool,
    /// Its kernel answers pings and refuses ports.
    pub(crate) kernel: bool,
    /// The replica on it, if any, runs.
    pub(crate) replica: bool,
    pub(crate) bmc: Bmc,
    pub(crate) bmc_since: u64,
    pub(crate) steady: bool,
    pub(crate) health: HealthSummary,
    pub(crate) doubts: Vec<SelfDoubt>,
    /// It never reports anybody.
    pub(crate) mute: bool,
    /// It hears nobody.
    pub(crate) deaf: bool,
    renewed: u64,
    beats: u64,
    next_beat: u64,
    number: u64,
    heard: BTreeMap<usize, Heard>,
    /// Whom it calls silent.
    silent: BTreeSet<usize>,
}

#[derive(Clone, Debug)]
struct Heard {
    boot: BootId,
    seq: u64,
    at: u64,
    beacon: SignedBeacon,
}

/// A replica.
#[derive(Clone)]
pub(crate) struct Rep {
    pub(crate) id: ReplicaId,
    pub(crate) host: usize,
    pub(crate) witness: Witness,
    handed: u64,
    reads: BTreeMap<NodeName, Vec<(u64, Bmc)>>,
    /// What observers have not yet been able to tell it.
    owed: BTreeMap<usize, (u64, Vec<Report>)>,
}

type Cut = std::rc::Rc<dyn Fn(&Host, &Host) -> bool>;

#[derive(Clone)]
pub(crate) struct World {
    pub(crate) now: u64,
    pub(crate) started: u64,
    pub(crate) state: State,
    pub(crate) hosts: Vec<Host>,
    pub(crate) reps: Vec<Rep>,
    pub(crate) leader: usize,
    pub(crate) judge: Judge,
    pub(crate) pool: Pool,
    pub(crate) api: bool,
    pub(crate) group_age: Span,
    /// How often the leader works; every step unless a test is in a hurry.
    pub(crate) every: u64,
    /// Whether proposals are applied to the state.
    pub(crate) applies: bool,
    pub(crate) commands: Vec<(u64, Command)>,
    pub(crate) last: JudgeOutput,
    pub(crate) asked: usize,
    /// BMCs that are read though nobody asked for it.
    pub(crate) always_read: Vec<usize>,
    /// When the leader of now was elected.
    pub(crate) led_since: u64,
    /// A tick said that this leader must give up.
    pub(crate) stepped_down: bool,
    /// Beacons of the last second, by host.
    captured: BTreeMap<usize, Vec<SignedBeacon>>,
    watched: u64,
    term: u64,
    index: u64,
    leaderless: Option<u64>,
    answers: Vec<(u64, usize, ProbeAnswer)>,
    cut: Cut,
}

pub(crate) fn at(ms: u64) -> Mono {
    Mono::from_ms(ms)
}

pub(crate) fn name(i: usize) -> NodeName {
    format!("n{i:02}").parse().unwrap()
}

impl World {
    /// `n` hosts in these domains; replicas on the first three, or on the first where there are fewer.
    pub(crate) fn new(n: usize, domain: impl Fn(usize) -> String) -> Self {
        let start = 1_000_000;
        let mut state = State { now: at(start), ..State::default() };
        state.policies.insert("all".into(), policy());
        let hosts: Vec<Host> = (0..n).map(|i| host(i, start)).collect();
        for (i, host) in hosts.iter().enumerate() {
            state.nodes.insert(host.name.clone(), node(i, host, domain(i), &state));
            state.bindings.insert(host.name.clone(), binding(i));
        }
        let count = if n < 3 { 1 } else { 3 };
        for i in 0..count {
            let id = ReplicaId::new(i as u64 + 1).unwrap();
            let replica =
                Replica { host: name(i), address: address(i), key: PublicKey::from_bytes([9; 32]), level: 1 };
            state.replicas.insert(id, replica);
        }
        crate::observers::reseat(&mut state);
        let reps = (0..count)
            .map(|i| {
                let id = ReplicaId::new(i as u64 + 1).unwrap();
                let mut witness = Witness::new(id, start, at(start));
                witness.sync(at(start), &state);
                Rep { id, host: i, witness, handed: start, reads: BTreeMap::new(), owed: BTreeMap::new() }
            })
            .collect();
        Self {
            now: start,
            started: start,
            state,
            hosts,
            reps,
            leader: 0,
            judge: Judge::new(at(start)),
            pool: Pool::new(ReplicaId::new(1).unwrap()),
            api: true,
            group_age: Span::from_mins(60),
            every: STEP,
            applies: false,
            commands: Vec::new(),
            last: JudgeOutput::default(),
            asked: 0,
            always_read: Vec::new(),
            led_since: start,
            stepped_down: false,
            captured: BTreeMap::new(),
            watched: start,
            term: 1,
            index: 0,
            leaderless: None,
            answers: Vec::new(),
            cut: std::rc::Rc::new(|_, _| false),
        }
    }

    pub(crate) fn racks(n: usize, racks: usize) -> Self {
        Self::new(n, |i| format!("rack/{}", i % racks))
    }

    pub(crate) fn cut(&mut self, cut: impl Fn(&Host, &Host) -> bool + 'static) {
        self.cut = std::rc::Rc::new(cut);
    }

    pub(crate) fn heal(&mut self) {
        self.cut = std::rc::Rc::new(|_, _| false);
    }

    /// Power lost: nothing of it runs.
    pub(crate) fn power_off(&mut self, i: usize) {
        self.stop(i);
        self.set_bmc(i, Bmc::Off);
    }

    /// Nothing of it answers, its BMC still says On.
    pub(crate) fn hang(&mut self, i: usize) {
        self.stop(i);
    }

    /// Power lost, and its BMC's with it.
    pub(crate) fn pull_cord(&mut self, i: usize) {
        self.stop(i);
        self.set_bmc(i, Bmc::Gone);
    }

    pub(crate) fn set_bmc(&mut self, i: usize, bmc: Bmc) {
        self.hosts[i].bmc = bmc;
        self.hosts[i].bmc_since = self.now;
    }

    fn stop(&mut self, i: usize) {
        let host = &mut self.hosts[i];
        (host.agent, host.kubelet, host.kernel, host.replica) = (false, false, false, false);
    }

    /// A host comes back with a new boot, or goes on with its old one.
    pub(crate) fn start(&mut self, i: usize, boot: Option<BootId>) {
        let now = self.now;
        let host = &mut self.hosts[i];
        (host.agent, host.kubelet, host.kernel, host.replica) = (true, true, true, true);
        host.boot = boot.unwrap_or(host.boot);
        host.next_beat = now;
        host.heard.clear();
        host.silent.clear();
        self.set_bmc(i, Bmc::On);
    }

    pub(crate) fn run(&mut self, ms: u64) {
        self.run_until(ms, |_| false);
    }

    /// Runs until `done` or for `ms`; answers whether it was done.
    pub(crate) fn run_until(&mut self, ms: u64, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now + ms;
        while self.now < end {
            self.step();
            if done(self) {
                return true;
            }
        }
        false
    }

    pub(crate) fn verdict_on(&self, i: usize) -> Option<&Verdict> {
        self.last.judged.get(&name(i)).map(|(_, verdict)| verdict)
    }

    pub(crate) fn view_of(&self, i: usize) -> Option<&View> {
        self.last.judged.get(&name(i)).map(|(view, _)| view)
    }

    fn linked(&self, a: usize, b: usize) -> bool {
        a == b || !(self.cut)(&self.hosts[a], &self.hosts[b])
    }

    fn step(&mut self) {
        self.now += STEP;
        for i in 0..self.hosts.len() {
            self.beat(i);
        }
        for i in 0..self.hosts.len() {
            self.observe(i);
            self.repeat(i);
        }
        self.deliver();
        self.answer_probes();
        for rep in self.reps.iter_mut().filter(|r| self.hosts[r.host].replica) {
            rep.witness.tick(at(self.now));
        }
        self.elect();
        if self.leaderless.is_none() {
            self.pool.tick(at(self.now));
            if self.now.is_multiple_of(self.every) {
                self.lead();
            }
        }
    }

    fn replica_hears(&self, r: usize, i: usize) -> bool {
        let host = self.reps[r].host;
        self.hosts[host].replica && self.linked(i, host)
    }

    /// All replicas sleep; the hosts go on, and what arrives waits in the sockets.
    pub(crate) fn paused(&mut self, ms: u64) {
        for _ in 0..ms / STEP {
            self.now += STEP;
            for i in 0..self.hosts.len() {
                self.beat(i);
                self.observe(i);
            }
        }
        for rep in &mut self.reps {
            self.stepped_down |= rep.witness.tick(at(self.now)).step_down;
        }
        self.stepped_down |= self.pool.tick(at(self.now)).step_down;
    }

    fn index_of_uid(&self, uid: &NodeUid) -> usize {
        self.hosts.iter().position(|h| h.uid == *uid).unwrap()
    }
}

// === helpers ===

pub(crate) fn index_of(name: &NodeName) -> usize {
    name.as_str()[1..].parse().unwrap()
}

pub(crate) fn machine(i: usize) -> MachineId {
    let mut bytes = [7; 16];
    bytes[15] = u8::try_from(i).unwrap();
    MachineId::from_bytes(bytes).unwrap()
}

fn address(i: usize) -> std::net::IpAddr {
    [10, 0, 0, u8::try_from(i + 1).unwrap()].into()
}

pub(crate) fn boot(i: usize, nth: u8) -> BootId {
    BootId::from_bytes([u8::try_from(i + 1).unwrap(), nth, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1])
}
