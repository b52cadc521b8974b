//! What a replica hears, and on the leader what all hear: the witness's step, the followers' letters, the judge's desk.
//! Mirrors `arbiter/src/hearing.rs` and `hearing/task.rs`; witness, pool and judge are the core's.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::judge::{Ask, BmcBook, Finding, Judge, JudgeOutput, Sight};
use coroner_arbiter_core::view::{BmcView, Sign, Verdict, View};
use coroner_arbiter_core::witness::pool::Pool;
use coroner_arbiter_core::witness::summary::Summary;
use coroner_arbiter_replica::Role;
use coroner_shared::id::{NodeName, ReplicaId};
use coroner_shared::names::PORT_PEER;
use coroner_shared::time::{Mono, Span};
use coroner_shared::wire::datagram::Message;

use super::network::{End, Flow};
use super::world::{Group, Shared, World};

/// How often the desk works while anything is wrong.
const STEP: Span = Span::from_ms(50);
/// How often a follower hands over in calm times.
const CALM: Span = Span::from_ms(250);
/// A letter without an answer is given up after this.
const LETTER: Span = Span::from_secs(1);

/// What a process has heard, beside its witness.
#[derive(Default)]
pub(crate) struct Ears {
    pub(crate) judge: Option<(Judge, u64)>,
    pub(crate) pool: Option<Pool>,
    pub(crate) judged: BTreeMap<NodeName, (View, Verdict)>,
    pub(crate) findings: Vec<Finding>,
    pub(crate) suspects: BTreeMap<NodeName, Mono>,
    asks: Vec<Ask>,
    /// Leads, and has listened for long enough to say that somebody is not heard.
    pub(crate) settled: bool,
    followers: BTreeMap<ReplicaId, Said>,
    synced: Option<u64>,
    handed_over: Mono,
    /// Number of the letter on its way.
    handing: Option<u64>,
    letters: u64,
    asked: BTreeSet<(NodeName, u64)>,
}

struct Said {
    at: Mono,
    bmc: Vec<(NodeName, BmcView)>,
    uptime: Span,
}

/// A follower to the leader.
struct Letter {
    summary: Summary,
    bmc: Vec<(NodeName, BmcView)>,
    uptime: Span,
}

// === impl World ===

impl World {
    pub(crate) fn hearing_step(&mut self, index: usize, group: Group) {
        let host = self.site.replicas[index];
        let now = self.machines[host].host_time(self.now);
        let Some(process) = self.process(index, group) else { return };
        if process.ears.synced != Some(process.published.applied) {
            process.witness.sync(now, &process.published.state);
            process.ears.synced = Some(process.published.applied);
        }
        let tick = process.witness.tick(now);
        if tick.step_down {
            process.replica.step_down();
            self.turn(index);
        }
        let Some(process) = self.process(index, group) else { return };
        let busy = match process.published.role {
            Role::Leader => self.lead(index, now),
            Role::Follower { leader } => {
                process.ears.judge = None;
                if process.ears.pool.is_some() {
                    let ears = std::mem::take(&mut process.ears);
                    process.ears = Ears {
                        synced: ears.synced,
                        handed_over: ears.handed_over,
                        handing: ears.handing,
                        letters: ears.letters,
                        asked: ears.asked,
                        ..Ears::default()
                    };
                }
                leader.is_some_and(|leader| self.follow(index, group, now, leader))
            }
        };
        let step = if busy { STEP } else { self.calm_step };
        self.on_clock(step, host, move |world| world.hearing_step(index, group));
    }

    /// Judges; whether anything is wrong.
    fn lead(&mut self, index: usize, now: Mono) -> bool {
        let id = self.replicas[index].id;
        let Some(process) = self.replicas[index].process.as_deref_mut() else { return false };
        let term = process.published.term;
        if process.ears.judge.as_ref().is_none_or(|(_, of)| *of != term) {
            process.ears.judge = Some((Judge::new(now), term));
            process.ears.pool = Some(Pool::new(id));
            process.ears.judged.clear();
            process.ears.findings.clear();
            process.ears.suspects.clear();
            process.ears.asks.clear();
            process.ears.settled = false;
            process.ears.followers.clear();
        }
        let state = std::sync::Arc::clone(&process.published.state);
        let own = process.witness.summary(now, &state);
        let own_bmc = process.views(id, now);
        let siblings = process.siblings(&state, now);
        let leases = process.leases.book(now);
        let quorum = process.published.active.is_some_and(|n| n > state.replicas.len().max(1) / 2);
        let started = process.started;
        let ears = &mut process.ears;
        let bmc = book(own_bmc, &ears.followers, now);
        let uptimes = ears.followers.values().map(|said| said.uptime + now.since(said.at));
        let group_age = uptimes.fold(now.since(started), Ord::max);
        let (Some(pool), Some((judge, _))) = (ears.pool.as_mut(), ears.judge.as_mut()) else { return false };
        pool.absorb(now, own);
        pool.tick(now);
        let sight = Sight {
            state: &state,
            pool,
            bmc: &bmc,
            siblings: &siblings,
            leases: &leases,
            me: id,
            term,
            quorum,
            group_age,
        };
        let output = judge.step(now, &sight);
        ears.judged.clone_from(&output.judged);
        ears.findings.clone_from(&output.findings);
        ears.suspects = output.read_bmc.iter().map(|w| (w.node.clone(), w.failure_date)).collect();
        ears.asks.clone_from(&output.ask_probes);
        ears.settled = output.settled;
        let busy = !ears.suspects.is_empty() || !ears.judged.is_empty();
        process.want_bmcs();
        self.perform(index, output);
        busy
    }

    fn perform(&mut self, index: usize, output: JudgeOutput) {
        for (_, verdict) in output.judged.values() {
            self.coverage.verdict(verdict);
        }
        for finding in &output.findings {
            self.coverage.finding(finding);
        }
        if output.step_down.is_some() {
            self.coverage.reach("leader: steps down, another hears more");
            if let Some(process) = self.replicas[index].process.as_deref_mut() {
                process.replica.step_down();
            }
            self.turn(index);
        }
        self.ask_probes(index, &output.ask_probes, true);
        for command in output.commands {
            // Nobody waits: what comes of it is in the state.
            drop(self.propose_view(index, command));
        }
    }

    fn propose_view(
        &mut self,
        index: usize,
        command: Command,
    ) -> super::task::Slot<Result<coroner_arbiter_core::command::Outcome, String>> {
        self.propose(index, command)
    }

    fn ask_probes(&mut self, index: usize, asks: &[Ask], once: bool) {
        for Ask { prober, ask } in asks {
            let Some(process) = self.replicas[index].process.as_deref_mut() else { return };
            let member = process.published.state.nodes.get(prober).and_then(|n| n.member.as_ref());
            let Some(address) = member.map(|m| m.address) else { continue };
            if once && !process.ears.asked.insert((prober.clone(), ask.number)) {
                continue;
            }
            while process.ears.asked.len() > 4096 {
                process.ears.asked.pop_first();
            }
            self.replica_says(index, SocketAddr::new(address, PORT_PEER), Message::AskProbe(ask.clone()));
        }
    }

    /// Hands what is heard to the leader; whether anybody is silent.
    fn follow(&mut self, index: usize, group: Group, now: Mono, leader: ReplicaId) -> bool {
        let id = self.replicas[index].id;
        let Some(process) = self.process(index, group) else { return false };
        let state = std::sync::Arc::clone(&process.published.state);
        let summary = process.witness.summary(now, &state);
        let urgent = summary.is_urgent(&state);
        if process.ears.handing.is_some() || !(urgent || now.since(process.ears.handed_over) >= CALM) {
            return urgent;
        }
        process.ears.handed_over = now;
        process.ears.letters += 1;
        let number = process.ears.letters;
        process.ears.handing = Some(number);
        let letter = Letter { summary, bmc: process.views(id, now), uptime: now.since(process.started) };
        let Some(target) = self.replicas.iter().position(|r| r.id == leader) else { return urgent };
        let (host, leading) = (self.site.replicas[index], self.site.replicas[target]);
        if let Some(after) = self.network.stream(End::Host(host), End::Host(leading), Flow::Replica) {
            self.on_machine(after, leading, move |world| {
                world.take_letter(index, group, number, target, letter);
            });
        }
        self.on_machine(LETTER, host, move |world| world.letter_over(index, group, number));
        urgent
    }

    fn letter_over(&mut self, index: usize, group: Group, number: u64) {
        if let Some(process) = self.process(index, group)
            && process.ears.handing == Some(number)
        {
            process.ears.handing = None;
        }
    }

    fn take_letter(&mut self, from: usize, group: Group, number: u64, index: usize, letter: Letter) {
        let id = self.replicas[from].id;
        let (host, leading) = (self.site.replicas[from], self.site.replicas[index]);
        let now = self.machines[leading].host_time(self.now);
        let Some(process) = self.replicas[index].process.as_deref_mut() else { return };
        process.witness.replica_traffic(now, id);
        let mut suspects: Vec<(NodeName, Span)> = Vec::new();
        let mut asks = Vec::new();
        if let Some(pool) = process.ears.pool.as_mut() {
            pool.absorb(now, letter.summary);
            let said = Said { at: now, bmc: letter.bmc, uptime: letter.uptime };
            process.ears.followers.insert(id, said);
            let ago = |(node, failed): (&NodeName, &Mono)| (node.clone(), now.since(*failed));
            suspects = process.ears.suspects.iter().map(ago).collect();
            asks.clone_from(&process.ears.asks);
        }
        if let Some(after) = self.network.stream(End::Host(leading), End::Host(host), Flow::Replica) {
            self.on_machine(after, host, move |world| {
                world.letter_over(from, group, number);
                let now = world.machines[host].host_time(world.now);
                let Some(process) = world.process(from, group) else { return };
                process.ears.suspects =
                    suspects.into_iter().map(|(node, ago)| (node, now.back(ago))).collect();
                process.want_bmcs();
                world.ask_probes(from, &asks, false);
            });
        }
    }

    /// The latest sign of life that any reachable replica holds, for the leader's work.
    pub(crate) fn last_sign(&self, index: usize, node: &NodeName) -> Option<(Mono, Sign)> {
        let host = self.site.replicas[index];
        let now = self.machines[host].host_time(self.now);
        let process = self.replicas[index].process.as_ref()?;
        let sign = process.ears.pool.as_ref()?.last_sign(now, &process.published.state, node)?;
        Some((now.back(sign.age), sign))
    }
}

/// What all replicas read, aged to now.
fn book(own: Vec<(NodeName, BmcView)>, followers: &BTreeMap<ReplicaId, Said>, now: Mono) -> BmcBook {
    let mut book = BmcBook::new();
    for (node, view) in own {
        book.entry(node).or_default().push(view);
    }
    for Said { at, bmc, .. } in followers.values() {
        let old = now.since(*at);
        if old <= Span::from_secs(3) {
            for (node, view) in bmc {
                book.entry(node.clone()).or_default().push(BmcView { age: view.age + old, ..view.clone() });
            }
        }
    }
    book
}

impl Shared {
    /// Waits until this leader has listened for long enough, at most so long; whether it has.
    pub(crate) async fn settles(&self, index: usize, limit: Span) -> bool {
        let until = self.reactor.now() + limit;
        loop {
            let settled =
                self.world.borrow().replicas[index].process.as_ref().is_some_and(|p| p.ears.settled);
            if settled || self.reactor.now() >= until {
                return settled;
            }
            self.reactor.sleep(STEP).await;
        }
    }
}
