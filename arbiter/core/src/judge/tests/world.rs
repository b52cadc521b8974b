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
                let mut witness = Witness::new(id, at(start));
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

    fn beat(&mut self, i: usize) {
        let now = self.now;
        if self.hosts[i].kubelet && now >= self.hosts[i].renewed + 10_000 {
            self.hosts[i].renewed = now;
        }
        if !self.hosts[i].agent || now < self.hosts[i].next_beat {
            return;
        }
        self.hosts[i].next_beat = now + T;
        self.hosts[i].beats += 1;
        let signed = self.signed(i);
        let captured = self.captured.entry(i).or_default();
        captured.push(signed.clone());
        if captured.len() > 4 {
            captured.remove(0);
        }
        for o in self.state.observers.of(&name(i)).to_vec() {
            let o = index_of(&o);
            if self.hosts[o].agent && !self.hosts[o].deaf && self.linked(i, o) {
                let was = self.hosts[o].silent.remove(&i);
                let heard = Heard { boot: self.hosts[i].boot, seq: now, at: now, beacon: signed.clone() };
                self.hosts[o].heard.insert(i, heard);
                if was {
                    let hearing = Hearing::Heard { beacon: signed.clone(), ago: Span::ZERO };
                    self.says(o, i, hearing);
                }
            }
        }
        if self.hosts[i].beats.is_multiple_of(4) {
            self.status(i, &signed);
        }
    }

    fn signed(&self, i: usize) -> SignedBeacon {
        let host = &self.hosts[i];
        let beacon = Beacon {
            node: host.uid.clone(),
            machine: machine(i),
            boot: host.boot,
            seq: self.now,
            health: host.health,
        };
        sign(&beacon)
    }

    fn status(&mut self, i: usize, signed: &SignedBeacon) {
        let now = self.now;
        let hears = self.hosts[i].heard.iter().filter(|(_, h)| now - h.at <= S);
        let hears: Vec<NodeUid> = hears.map(|(s, _)| self.hosts[*s].uid.clone()).collect();
        let subjects = self.state.observers.subjects_of(&name(i)).to_vec();
        let worked = subjects.iter().map(|s| WorkedPath {
            subject: self.hosts[index_of(s)].uid.clone(),
            path: Path::Kubelet,
            ago: Span::from_secs(30),
        });
        let status = Status {
            beacon: signed.clone(),
            slice: self.state.membership,
            hears,
            doubts: self.hosts[i].doubts.clone(),
            worked: worked.collect(),
        };
        let proven = Proven::trusted(signed.claims().unwrap());
        for r in 0..self.reps.len() {
            if self.replica_hears(r, i) {
                self.reps[r].witness.beacon(at(now), &proven, Some(address(i)));
                self.reps[r].witness.status(at(now), &self.hosts[i].uid, &status, &proven);
            }
        }
    }

    fn replica_hears(&self, r: usize, i: usize) -> bool {
        let host = self.reps[r].host;
        self.hosts[host].replica && self.linked(i, host)
    }

    /// Notices silence as an agent does: S without a beacon, then two probes.
    fn observe(&mut self, o: usize) {
        if !self.hosts[o].agent || self.hosts[o].mute {
            return;
        }
        let now = self.now;
        for s in self.state.observers.subjects_of(&name(o)).to_vec() {
            let s = index_of(&s);
            let since = self.hosts[o].heard.get(&s).map_or(self.started, |h| h.at);
            if now - since > S + PROBED && !self.hosts[o].silent.contains(&s) {
                let hearing = Hearing::Silent {
                    silent: Span::from_ms(now - since),
                    last: self.hosts[o].heard.get(&s).map(|h| (h.boot, h.seq)),
                    probes: self.probe(o, s, 100),
                };
                self.hosts[o].silent.insert(s);
                self.says(o, s, hearing);
            }
        }
    }

    /// What a probe sent `ago` milliseconds ago found.
    fn probe(&self, from: usize, to: usize, ago: u64) -> Vec<ProbeOutcome> {
        let there = self.linked(from, to) && self.linked(to, from);
        let (kubelet, ping) = match (there, self.hosts[to].kubelet, self.hosts[to].kernel) {
            (true, true, _) => (Answer::Accepted, Answer::Answered),
            (true, false, true) => (Answer::Reset, Answer::Answered),
            (true, false, false) | (false, _, _) => (Answer::Nothing, Answer::Nothing),
        };
        let outcome = |path, answer| ProbeOutcome {
            path,
            answer,
            asked_ago: Span::from_ms(ago),
            worked_ago: Some(Span::from_secs(30)),
        };
        vec![outcome(Path::Kubelet, kubelet), outcome(Path::Ping, ping)]
    }

    fn says(&mut self, o: usize, s: usize, hearing: Hearing) {
        self.hosts[o].number += 1;
        let number = self.hosts[o].number;
        let report = Report { subject: self.hosts[s].uid.clone(), hearing };
        for rep in &mut self.reps {
            let owed = rep.owed.entry(o).or_default();
            owed.0 = number;
            owed.1.retain(|r| r.subject != report.subject);
            owed.1.push(report.clone());
        }
    }

    /// All that an observer calls silent, told again every 30 s.
    fn repeat(&mut self, o: usize) {
        if !self.hosts[o].agent || !self.now.is_multiple_of(30_000) {
            return;
        }
        for s in self.hosts[o].silent.clone() {
            let heard = self.hosts[o].heard.get(&s);
            let hearing = Hearing::Silent {
                silent: Span::from_ms(self.now - heard.map_or(self.started, |h| h.at)),
                last: heard.map(|h| (h.boot, h.seq)),
                probes: Vec::new(),
            };
            self.says(o, s, hearing);
        }
    }

    /// Reports reach every replica that can be reached, the others later.
    fn deliver(&mut self) {
        for r in 0..self.reps.len() {
            for (o, (number, reports)) in std::mem::take(&mut self.reps[r].owed) {
                if !self.hosts[o].agent {
                    continue;
                }
                if !self.replica_hears(r, o) {
                    self.reps[r].owed.insert(o, (number, reports));
                    continue;
                }
                let batch = ReportBatch {
                    boot: self.hosts[o].boot,
                    number,
                    snapshot: false,
                    doubts: self.hosts[o].doubts.clone(),
                    reports,
                };
                let checked = CheckedBatch::trusted(&batch);
                self.reps[r].witness.reports(at(self.now), &self.hosts[o].uid, &checked);
            }
        }
    }

    fn answer_probes(&mut self) {
        let now = self.now;
        let due: Vec<_> = {
            let (due, later) =
                std::mem::take(&mut self.answers).into_iter().partition(|(at, _, _)| *at <= now);
            self.answers = later;
            due
        };
        for (_, prober, answer) in due {
            for r in 0..self.reps.len() {
                if self.hosts[prober].agent && self.replica_hears(r, prober) {
                    let checked = CheckedAnswer::trusted(&answer);
                    self.reps[r].witness.probe_answer(at(now), &self.hosts[prober].uid, &checked);
                }
            }
        }
    }

    /// 1.5 s after the leader's host stopped, the next replica that runs and reaches a majority leads.
    fn elect(&mut self) {
        let led = self.reaches_majority(self.leader);
        match (led, self.leaderless) {
            (true, _) => self.leaderless = None,
            (false, None) => self.leaderless = Some(self.now),
            (false, Some(since)) if self.now >= since + 1500 => {
                if let Some(next) = (0..self.reps.len()).find(|r| self.reaches_majority(*r)) {
                    self.leader = next;
                    self.new_leader();
                }
            }
            (false, Some(_)) => {}
        }
    }

    /// The leader begins a new term with an empty desk.
    pub(crate) fn new_leader(&mut self) {
        self.term += 1;
        self.judge = Judge::new(at(self.now));
        self.pool = Pool::new(self.reps[self.leader].id);
        self.last = JudgeOutput::default();
        self.led_since = self.now;
        self.leaderless = None;
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

    /// Another machine with this host's key speaks to the replicas.
    pub(crate) fn impostor(&mut self, i: usize, boot: BootId) {
        let beacon = Beacon {
            node: self.hosts[i].uid.clone(),
            machine: machine(i),
            boot,
            seq: self.now,
            health: HealthSummary::GOOD,
        };
        for rep in &mut self.reps {
            rep.witness.beacon(at(self.now), &Proven::trusted(beacon.clone()), None);
        }
    }

    /// The beacons of the last second.
    pub(crate) fn captured(&self, i: usize) -> Vec<SignedBeacon> {
        self.captured[&i].clone()
    }

    /// Somebody sends an old beacon again, to replicas and observers.
    pub(crate) fn replay(&mut self, i: usize, beacon: &SignedBeacon) {
        let proven = Proven::trusted(beacon.claims().unwrap());
        for rep in &mut self.reps {
            rep.witness.beacon(at(self.now), &proven, None);
        }
        for o in self.state.observers.of(&name(i)).to_vec() {
            self.says(index_of(&o), i, Hearing::Heard { beacon: beacon.clone(), ago: Span::ZERO });
        }
    }

    /// A replica restarts and has heard nobody.
    pub(crate) fn forget(&mut self, r: usize) {
        let mut witness = Witness::new(self.reps[r].id, at(self.now));
        witness.sync(at(self.now), &self.state);
        self.reps[r].witness = witness;
    }

    fn reaches_majority(&self, r: usize) -> bool {
        let host = self.reps[r].host;
        let there = self.reps.iter().filter(|other| {
            self.hosts[other.host].replica && self.linked(host, other.host) && self.linked(other.host, host)
        });
        self.hosts[host].replica && there.count() * 2 > self.reps.len()
    }

    fn read_bmcs(&mut self, wanted: &[(NodeName, Mono)]) {
        let now = self.now;
        for rep in &mut self.reps {
            if !self.hosts[rep.host].replica {
                continue;
            }
            for (node, _) in wanted {
                let reads = rep.reads.entry(node.clone()).or_default();
                if reads.last().is_none_or(|(at, _)| now >= at + 500) {
                    reads.push((now, self.hosts[index_of(node)].bmc));
                }
            }
        }
    }

    fn bmc_book(&self, wanted: &[(NodeName, Mono)]) -> BmcBook {
        let mut book = BmcBook::new();
        for (node, failed) in wanted {
            for rep in self.reps.iter().filter(|r| self.hosts[r.host].replica) {
                let reads = rep.reads.get(node).map(Vec::as_slice).unwrap_or_default();
                let view =
                    bmc_view(rep.id, reads, failed.as_ms(), self.now, self.hosts[index_of(node)].steady);
                book.entry(node.clone()).or_default().push(view);
            }
        }
        book
    }

    fn lead(&mut self) {
        let now = at(self.now);
        for r in 0..self.reps.len() {
            let to = self.reps[self.leader].host;
            let from = self.reps[r].host;
            if !self.hosts[from].replica || !self.linked(from, to) {
                continue;
            }
            let urgent = !self.last.judged.is_empty() && self.now >= self.reps[r].handed + 100;
            if r == self.leader || urgent || self.now >= self.reps[r].handed + 250 {
                self.reps[r].handed = self.now;
                let summary = self.reps[r].witness.summary(now, &self.state);
                self.pool.absorb(now, summary);
            }
        }
        let mut wanted: Vec<(NodeName, Mono)> =
            self.last.read_bmc.iter().map(|w| (w.node.clone(), w.failure_date)).collect();
        for i in &self.always_read {
            if !wanted.iter().any(|(n, _)| *n == name(*i)) {
                wanted.push((name(*i), at(0)));
            }
        }
        self.read_bmcs(&wanted);
        let bmc = self.bmc_book(&wanted);
        let siblings = self
            .hosts
            .iter()
            .map(|h| (h.name.clone(), self.hosts.iter().any(|o| o.name != h.name && o.bmc != Bmc::Gone)));
        let siblings = siblings.collect();
        let leases = self.leases();
        let sight = Sight {
            state: &self.state,
            pool: &self.pool,
            bmc: &bmc,
            siblings: &siblings,
            leases: &leases,
            me: self.reps[self.leader].id,
            term: self.term,
            quorum: self.reaches_majority(self.leader),
            group_age: self.group_age + Span::from_ms(self.now - self.started),
        };
        let output = self.judge.step(now, &sight);
        for ask in &output.ask_probes {
            self.ask(&ask.prober, &ask.ask);
        }
        self.commands.extend(output.commands.iter().map(|c| (self.now, c.clone())));
        if self.applies {
            let quiet = at(self.now).since(self.state.now);
            if crate::jobs::tick_after(&self.state).is_some_and(|after| quiet >= after) {
                self.commit(Command::Tick);
            }
            for command in output.commands.clone() {
                self.commit(command);
            }
        }
        self.last = output;
    }

    fn leases(&self) -> LeaseBook {
        let seen = |h: &Host| LeaseSeen {
            changed: (h.renewed > self.watched).then_some(at(h.renewed)),
            interval: Span::from_secs(10),
        };
        LeaseBook {
            readable: self.api,
            watched_since: Some(at(self.watched)),
            leases: self.hosts.iter().map(|h| (h.name.clone(), seen(h))).collect(),
        }
    }

    fn ask(&mut self, prober: &NodeName, ask: &AskProbe) {
        self.asked += 1;
        let (from, to) = (index_of(prober), self.index_of_uid(&ask.subject));
        let to_agent = self.linked(self.reps[self.leader].host, from);
        if !self.hosts[from].agent || !to_agent {
            return;
        }
        let mut outcomes = self.probe(from, to, 300);
        let held = self.hosts[from].heard.get(&to);
        outcomes.push(ProbeOutcome {
            path: Path::Agent,
            answer: Answer::Nothing,
            asked_ago: Span::from_ms(300),
            worked_ago: held.map(|h| Span::from_ms(self.now + 300 - h.at)),
        });
        let beacon = held.map(|h| h.beacon.clone());
        let answer = ProbeAnswer { number: ask.number, subject: ask.subject.clone(), outcomes, beacon };
        self.answers.push((self.now + 300, from, answer));
    }

    fn index_of_uid(&self, uid: &NodeUid) -> usize {
        self.hosts.iter().position(|h| h.uid == *uid).unwrap()
    }

    /// Applies a command as an entry of the log.
    pub(crate) fn commit(&mut self, command: Command) -> Outcome {
        self.index += 1;
        let span = at(self.now).since(self.state.now);
        let leader = self.reps[self.leader].id;
        let entry = Entry { span, leader, term: self.term, key: format!("k{}", self.index), command };
        let outcome = apply(&mut self.state, self.index, &entry);
        for rep in &mut self.reps {
            rep.witness.sync(at(self.now), &self.state);
        }
        outcome
    }
}

// === helpers ===

pub(crate) fn index_of(name: &NodeName) -> usize {
    name.as_str()[1..].parse().unwrap()
}

fn bmc_view(replica: ReplicaId, reads: &[(u64, Bmc)], failed: u64, now: u64, steady: bool) -> BmcView {
    let since: Vec<&(u64, Bmc)> = reads.iter().filter(|(at, _)| *at > failed).collect();
    let Some((newest, what)) = since.last() else {
        return BmcView { replica, read: BmcRead::NotRead, steady, age: Span::MAX };
    };
    let run: Vec<u64> = since.iter().rev().take_while(|(_, b)| b == what).map(|(at, _)| *at).collect();
    let first = run.last().copied().unwrap_or(*newest);
    let read = match what {
        Bmc::On => BmcRead::On,
        Bmc::Off => {
            BmcRead::Off { reads: u32::try_from(run.len()).unwrap(), over: Span::from_ms(newest - first) }
        }
        Bmc::Gone => BmcRead::Silent { since: Span::from_ms(now - first) },
        Bmc::Odd => BmcRead::Unclear { what: "odd".into(), since: Span::from_ms(now - first) },
    };
    BmcView { replica, read, steady, age: Span::from_ms(now - newest) }
}

fn sign(beacon: &Beacon) -> SignedBeacon {
    // The signature is not looked at here; one key for all keeps it cheap.
    thread_local! {
        static KEY: SecretKey = SecretKey::from_seed(&[1; 32]);
    }
    let template = KEY.with(|key| SignedBeacon::sign(beacon, key, CLUSTER).unwrap());
    SignedBeacon { signature: [0; 64], ..template }
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
