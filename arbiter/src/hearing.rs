//! What this replica hears, and on the leader what all replicas hear: the task that owns the witness and, while this
//! replica leads, the desk at which it judges.
//!
//! Every 50 ms: drain what came, tick the witness, then either hand the summary to the leader or judge. Nothing is
//! decided here: the witness, the pool and the judge are the core's.

mod books;
mod task;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::hears::Hears;
use coroner_arbiter_core::judge::{Ask, Finding, LISTENS_AT_MOST};
use coroner_arbiter_core::leases::Leases;
use coroner_arbiter_core::view::{BmcView, Sign, Verdict, View};
use coroner_arbiter_core::witness::checked::{CheckedAnswer, CheckedBatch, Proven};
use coroner_arbiter_core::witness::pool::Pool;
use coroner_arbiter_core::witness::summary::Summary;
use coroner_arbiter_replica::Role;
use coroner_shared::beacon::Status;
use coroner_shared::id::{BootId, NodeName, NodeUid, ReplicaId};
use coroner_shared::time::{Mono, Span};
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};

use crate::bmc_pool::BmcPool;
use crate::clock;
use crate::propose::Proposer;
use crate::replica::Published;

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
    (hearing, move |parts| Box::pin(task::run(own, parts, inbox)))
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

    /// How long ago at most the machine itself spoke last; `None` also where this replica does not lead.
    pub fn spoke_ago(&self, node: &NodeName) -> Option<Span> {
        let state = Arc::clone(&self.published.borrow().state);
        self.desk().pool.as_ref()?.spoke_ago(clock::now(), &state, node)
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

#[cfg(test)]
mod tests;
