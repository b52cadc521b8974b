//! What this replica hears, and on the leader what all replicas hear: the task that owns the witness and, while this
//! replica leads, the desk at which it judges.
//!
//! Every 50 ms: drain what came, tick the witness, then either hand the summary to the leader or judge. Nothing is
//! decided here: the witness, the pool and the judge are the core's.

mod books;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::hears::Hears;
use coroner_arbiter_core::judge::{Ask, Finding, Judge, JudgeOutput, LISTENS_AT_MOST, Sight};
use coroner_arbiter_core::leases::Leases;
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::view::{BmcView, Sign, Verdict, View};
use coroner_arbiter_core::witness::Witness;
use coroner_arbiter_core::witness::checked::{CheckedAnswer, CheckedBatch, Proven};
use coroner_arbiter_core::witness::pool::Pool;
use coroner_arbiter_core::witness::summary::Summary;
use coroner_arbiter_replica::Role;
use coroner_shared::beacon::Status;
use coroner_shared::id::{BootId, NodeName, NodeUid, ReplicaId};
use coroner_shared::names::PORT_REPLICA;
use coroner_shared::time::{Mono, Span};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use crate::bmc_pool::BmcPool;
use crate::bounds::answer_json;
use crate::clock;
use crate::propose::Proposer;
use crate::replica::Published;
use books::{book, siblings};

/// Where a follower hands over what it hears.
pub const WITNESS: &str = "/witness";
/// How often the desk works.
const STEP: Duration = Duration::from_millis(50);
/// How often a follower hands over in calm times; at every step while there are suspects.
const CALM: Span = Span::from_ms(250);
/// How long a person's confirmation waits for a leader that has only just been elected.
const LISTEN: Duration = Duration::from_secs(4);
/// The longest answer to a follower: a thousand suspects at once, and what is asked about them.
const ANSWER_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Datagrams that may wait; more are dropped, which is what a network does.
const QUEUE: usize = 8192;
/// A follower to the leader.
#[derive(Serialize, Deserialize)]
pub struct FromFollower {
    /// What it hears.
    pub summary: Summary,
    /// What it read of the suspects' BMCs.
    pub bmc: Vec<(NodeName, BmcView)>,
    /// For how long its process has been running.
    pub uptime: Span,
}

/// The leader's answer.
#[derive(Default, Serialize, Deserialize)]
pub struct ToFollower {
    /// Suspects, and how long ago each failed: their BMCs are read every half second.
    pub suspects: Vec<(NodeName, Span)>,
    /// Probes to ask for.
    pub asks: Vec<Ask>,
}

/// One thing that was heard, already verified.
pub enum Heard {
    /// An agent's status with its beacon.
    Status {
        /// Who.
        node: NodeUid,
        /// What.
        status: Box<Status>,
        /// Its beacon, verified.
        beacon: Proven,
        /// From where.
        from: IpAddr,
    },
    /// Reports of an agent, their beacons verified.
    Reports {
        /// Who.
        node: NodeUid,
        /// What.
        batch: CheckedBatch,
    },
    /// An agent's answer to a probe that was asked for.
    Answer {
        /// Who.
        node: NodeUid,
        /// What.
        answer: CheckedAnswer,
    },
    /// A registration was committed.
    Registered {
        /// Who.
        node: NodeUid,
        /// Which boot.
        boot: BootId,
    },
    /// Another replica sent something.
    ReplicaTraffic(ReplicaId),
}

/// What the leader's desk shows to the executor and to people.
#[derive(Default)]
struct Desk {
    pool: Option<Pool>,
    settled: bool,
    settles_in: Option<Span>,
    judged: BTreeMap<NodeName, (View, Verdict)>,
    findings: Vec<Finding>,
    suspects: BTreeMap<NodeName, Mono>,
    asks: Vec<Ask>,
    followers: Followers,
}

/// What each follower said last, and when.
type Followers = BTreeMap<ReplicaId, Said>;

/// What a follower said.
struct Said {
    at: Mono,
    bmc: Vec<(NodeName, BmcView)>,
    uptime: Span,
}

/// A handle to what is heard.
#[derive(Clone)]
pub struct Hearing {
    heard: mpsc::Sender<Heard>,
    desk: Arc<Mutex<Desk>>,
    published: watch::Receiver<Published>,
    leases: watch::Receiver<Arc<Leases>>,
}

/// What the task needs besides.
pub struct Parts {
    /// Proposes.
    pub proposer: Proposer,
    /// Reads BMCs.
    pub bmcs: BmcPool,
    /// Sends probes that are asked for: to which agent, what.
    pub asks: mpsc::Sender<(IpAddr, coroner_shared::beacon::AskProbe)>,
}

/// Makes the handle and the task.
pub fn new(
    published: watch::Receiver<Published>,
    leases: watch::Receiver<Arc<Leases>>,
) -> (Hearing, impl FnOnce(Parts) -> std::pin::Pin<Box<dyn Future<Output = ()> + Send>>) {
    let (heard, inbox) = mpsc::channel(QUEUE);
    let hearing = Hearing { heard, desk: Arc::default(), published, leases };
    let own = hearing.clone();
    (hearing, move |parts| Box::pin(run(own, parts, inbox)))
}

// === impl Hearing ===

impl Hearing {
    /// Hands in what was heard; dropped if the task does not keep up.
    pub fn take(&self, heard: Heard) -> bool {
        self.heard.try_send(heard).is_ok()
    }

    /// A registration was committed: a proof of life.
    pub async fn registered(&self, node: NodeUid, boot: BootId) {
        let _ = self.heard.send(Heard::Registered { node, boot }).await;
    }

    /// Another replica sent something: a sign of life of its host.
    pub async fn replica_traffic(&self, replica: ReplicaId) {
        let _ = self.heard.send(Heard::ReplicaTraffic(replica)).await;
    }

    /// Takes what a follower hears; answers with the suspects.
    pub async fn take_follower(&self, from: ReplicaId, said: FromFollower) -> ToFollower {
        self.replica_traffic(from).await;
        let now = clock::now();
        let mut desk = self.desk();
        let Some(pool) = desk.pool.as_mut() else { return ToFollower::default() };
        pool.absorb(now, said.summary);
        desk.followers.insert(from, Said { at: now, bmc: said.bmc, uptime: said.uptime });
        let suspects =
            desk.suspects.iter().map(|(node, failed)| (node.clone(), now.since(*failed))).collect();
        ToFollower { suspects, asks: desk.asks.clone() }
    }

    /// The latest sign of life of a node that any reachable replica holds; `None` also where this replica does not lead.
    pub fn last_sign(&self, node: &NodeName) -> Option<(Mono, Sign)> {
        let state = Arc::clone(&self.published.borrow().state);
        let now = clock::now();
        let sign = self.desk().pool.as_ref()?.last_sign(now, &state, node)?;
        Some((now.back(sign.age), sign))
    }

    /// Whether this replica leads and has listened for long enough to say that somebody is not heard.
    pub fn settled(&self) -> bool {
        self.desk().settled
    }

    /// Waits until it has, at most `limit`; whether it has.
    pub async fn settles(&self, limit: Duration) -> bool {
        let until = tokio::time::Instant::now() + limit;
        while !self.settled() {
            if tokio::time::Instant::now() >= until {
                return false;
            }
            tokio::time::sleep(STEP).await;
        }
        true
    }

    /// When the node's Lease last changed.
    pub fn lease_moved(&self, node: &NodeName) -> Option<Mono> {
        self.leases.borrow().changed(node)
    }

    /// A command that must carry what the leader hears when it proposes it.
    pub async fn with_what_is_heard(&self, command: Command) -> Command {
        let Command::ConfirmOff { node, confirmation, .. } = command else { return command };
        let state = Arc::clone(&self.published.borrow().state);
        let limit = coroner_arbiter_core::policy::select::rules_for(&state, &node).beacons.suspect;
        // Where too little was listened to nothing is known, and a confirmation waits.
        let leads = self.published.borrow().role == Role::Leader;
        let settled = leads && self.settles(LISTEN).await;
        let now = clock::now();
        let (heard, settles_in) = {
            let desk = self.desk();
            let heard = desk.pool.as_ref().is_some_and(|pool| pool.heard_within(now, &state, &node, limit));
            let left = desk.settles_in.unwrap_or(LISTENS_AT_MOST);
            (heard, (!(settled && desk.pool.is_some())).then_some(left))
        };
        let last = self.last_sign(&node).map(|(at, _)| at);
        let renews =
            self.leases.borrow().book(now).leases.get(&node).is_some_and(|lease| lease.shows_life(now, last));
        Command::ConfirmOff { node, confirmation, heard: Hears::of(settles_in, heard, renews) }
    }

    /// How a node was judged last.
    pub fn judged(&self, node: &NodeName) -> Option<(View, Verdict)> {
        self.desk().judged.get(node).cloned()
    }

    /// Findings about a node.
    pub fn findings(&self, node: &NodeName) -> Vec<String> {
        self.desk().findings.iter().filter(|f| f.node() == Some(node)).map(ToString::to_string).collect()
    }

    /// All findings.
    pub fn all_findings(&self) -> Vec<Finding> {
        self.desk().findings.clone()
    }

    /// As if this leader had listened for long enough, to replicas that hear this.
    #[cfg(test)]
    pub(crate) fn has_listened(&self, pool: Pool) {
        let mut desk = self.desk();
        (desk.settled, desk.settles_in, desk.pool) = (true, None, Some(pool));
    }

    fn desk(&self) -> MutexGuard<'_, Desk> {
        self.desk.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === the task ===

struct Task {
    hearing: Hearing,
    parts: Parts,
    witness: Witness,
    judge: Option<(Judge, u64)>,
    started: Mono,
    synced: u64,
    handed_over: Mono,
    handing: Arc<Mutex<bool>>,
    asked: BTreeSet<(NodeName, u64)>,
}

/// A number for this start. Should the kernel have no chance to give, the clock tells most starts apart.
fn life(now: Mono) -> u64 {
    getrandom::u64().unwrap_or(now.as_ms())
}

async fn run(hearing: Hearing, parts: Parts, mut inbox: mpsc::Receiver<Heard>) {
    let now = clock::now();
    let me = parts.proposer.handle().id();
    let mut task = Task {
        hearing,
        parts,
        witness: Witness::new(me, life(now), now),
        judge: None,
        started: now,
        synced: u64::MAX,
        handed_over: now,
        handing: Arc::default(),
        asked: BTreeSet::new(),
    };
    let mut every = tokio::time::interval(STEP);
    every.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            heard = inbox.recv() => match heard {
                Some(heard) => task.take(heard),
                None => return,
            },
            _ = every.tick() => {
                // What has arrived counts before time is judged: a process that was paused must not accuse.
                while let Ok(heard) = inbox.try_recv() {
                    task.take(heard);
                }
                task.step().await;
            }
        }
    }
}

impl Task {
    fn take(&mut self, heard: Heard) {
        let now = clock::now();
        match heard {
            Heard::Status { node, status, beacon, from } => {
                self.witness.beacon(now, &beacon, Some(from));
                self.witness.status(now, &node, &status, &beacon);
            }
            Heard::Reports { node, batch } => self.witness.reports(now, &node, &batch),
            Heard::Answer { node, answer } => self.witness.probe_answer(now, &node, &answer),
            Heard::Registered { node, boot } => self.witness.registered(now, &node, boot),
            Heard::ReplicaTraffic(replica) => self.witness.replica_traffic(now, replica),
        }
    }

    async fn step(&mut self) {
        let now = clock::now();
        let published = self.hearing.published.borrow().clone();
        if published.applied != self.synced {
            self.witness.sync(now, &published.state);
            self.synced = published.applied;
        }
        let tick = self.witness.tick(now);
        if tick.step_down {
            tracing::warn!(gap = %tick.gap, "this process was asleep; it gives up leading, if it did");
            self.parts.proposer.handle().step_down().await;
        }
        match published.role {
            Role::Leader => self.lead(now, &published).await,
            Role::Follower { leader } => {
                self.judge = None;
                {
                    let mut desk = self.hearing.desk();
                    // Whoever leads no more knows no more than its own.
                    if desk.pool.is_some() {
                        *desk = Desk::default();
                    }
                }
                if let Some(leader) = leader {
                    self.follow(now, &published.state, leader);
                }
            }
        }
    }

    async fn lead(&mut self, now: Mono, published: &Published) {
        let me = self.parts.proposer.handle().id();
        if self.judge.as_ref().is_none_or(|(_, term)| *term != published.term) {
            self.judge = Some((Judge::new(now), published.term));
            *self.hearing.desk() = Desk { pool: Some(Pool::new(me)), ..Desk::default() };
        }
        let own = self.witness.summary(now, &published.state);
        let output = {
            let mut desk = self.hearing.desk();
            let own_bmc = self.parts.bmcs.views(&desk.suspects, now);
            let bmc = book(own_bmc, &desk.followers, now);
            let leases = self.hearing.leases.borrow().book(now);
            let group_age = desk
                .followers
                .values()
                .map(|said| said.uptime + now.since(said.at))
                .fold(now.since(self.started), Ord::max);
            let siblings = siblings(&self.parts.bmcs, &published.state, &desk.suspects, now);
            let (Some(pool), Some((judge, term))) = (desk.pool.as_mut(), self.judge.as_mut()) else { return };
            pool.absorb(now, own);
            pool.tick(now);
            let sight = Sight {
                state: &published.state,
                pool,
                bmc: &bmc,
                siblings: &siblings,
                leases: &leases,
                me,
                term: *term,
                quorum: has_quorum(published),
                group_age,
            };
            let output = judge.step(now, &sight);
            desk.settled = output.settled;
            desk.settles_in = output.settles_in;
            desk.judged.clone_from(&output.judged);
            desk.findings.clone_from(&output.findings);
            desk.suspects = output.read_bmc.iter().map(|w| (w.node.clone(), w.failure_date)).collect();
            desk.asks.clone_from(&output.ask_probes);
            self.parts.bmcs.want(&desk.suspects);
            output
        };
        self.perform(published, output).await;
    }

    async fn perform(&mut self, published: &Published, output: JudgeOutput) {
        if let Some(why) = output.step_down {
            tracing::warn!(?why, "another replica hears more; this one gives up leading");
            self.parts.proposer.handle().step_down().await;
        }
        self.ask(&published.state, &output.ask_probes);
        for command in output.commands {
            let proposer = self.parts.proposer.clone();
            tokio::spawn(async move {
                if let Err(error) = proposer.here(command).await {
                    tracing::debug!(%error, "a proposal of the judge has no outcome");
                }
            });
        }
    }

    /// Sends the probes that are asked for, each once.
    fn ask(&mut self, state: &State, asks: &[Ask]) {
        for Ask { prober, ask } in asks {
            let Some(member) = state.nodes.get(prober).and_then(|n| n.member.as_ref()) else { continue };
            if self.asked.insert((prober.clone(), ask.number)) {
                let _ = self.parts.asks.try_send((member.address, ask.clone()));
            }
        }
        while self.asked.len() > 4096 {
            self.asked.pop_first();
        }
    }

    /// Hands the summary to the leader: at every step while anything is urgent, else four times a second.
    fn follow(&mut self, now: Mono, state: &Arc<State>, leader: ReplicaId) {
        let summary = self.witness.summary(now, state);
        let urgent = summary.is_urgent(state);
        let busy = std::mem::replace(&mut *lock(&self.handing), true);
        if busy || !(urgent || now.since(self.handed_over) >= CALM) {
            if !busy {
                *lock(&self.handing) = false;
            }
            return;
        }
        self.handed_over = now;
        let Some(address) = self.parts.proposer.peers().get(&leader).copied() else { return };
        let url = format!("https://{}{WITNESS}", SocketAddr::new(address, PORT_REPLICA));
        let wanted = self.hearing.desk().suspects.clone();
        let said = FromFollower {
            summary,
            bmc: self.parts.bmcs.views(&wanted, now),
            uptime: now.since(self.started),
        };
        let (client, bmcs, handing) =
            (self.parts.proposer.client().clone(), self.parts.bmcs.clone(), Arc::clone(&self.handing));
        let (asks, state, desk) =
            (self.parts.asks.clone(), Arc::clone(state), Arc::clone(&self.hearing.desk));
        tokio::spawn(async move {
            let sent = client.post(url).timeout(Duration::from_secs(1)).json(&said).send().await;
            if let Ok(answer) = sent
                && let Ok(answer) = answer_json::<ToFollower>(answer, ANSWER_BYTES_MAX).await
            {
                let now = clock::now();
                let suspects: BTreeMap<NodeName, Mono> =
                    answer.suspects.into_iter().map(|(node, ago)| (node, now.back(ago))).collect();
                bmcs.want(&suspects);
                lock(&desk).suspects = suspects;
                for Ask { prober, ask } in answer.asks {
                    if let Some(member) = state.nodes.get(&prober).and_then(|n| n.member.as_ref()) {
                        let _ = asks.try_send((member.address, ask));
                    }
                }
            }
            *lock(&handing) = false;
        });
    }
}

// === helpers ===

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn has_quorum(published: &Published) -> bool {
    let members = published.state.replicas.len().max(1);
    published.active.is_some_and(|active| active > members / 2)
}

#[cfg(test)]
mod tests;
