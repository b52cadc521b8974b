//! What this replica has heard: soft state, fed by verified datagrams, forgotten with the process.
//!
//! ```text
//!   beacons, statuses, report batches,    +---------+  Summary   +------+  Pooled (now, State)
//!   probe answers, registrations,   ----> | Witness | ---------> | Pool | ---------------------> judge, last looks
//!   traffic of other replicas             +---------+  of every  +------+
//!   State (members, boots, graph) ------------^        replica
//! ```
//!
//! Nothing here judges. It dates every sign of life at its first receipt, keeps every accusation with its author, and
//! hands both on with their ages. A beacon proves life only if it is newer than any its bringer brought before and
//! newer than what H observers (enough to condemn) say they have: dripping old beacons gains nothing, and fewer than H
//! liars cannot make a living host's beacons look old. Boots that the log has left never come back.
//!
//! Memory: registered members only, at most their 8 observers and 24 probers each.

pub mod attention;
mod book;
pub mod checked;
mod hearing;
pub mod pool;
pub(crate) mod reports;
pub mod summary;
#[cfg(test)]
mod tests;
pub(crate) mod trust;

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use coroner_shared::beacon::{Path, SelfDoubt, Status};
use coroner_shared::id::{BootId, NodeName, NodeUid, ReplicaId};
use coroner_shared::time::{Mono, Span};

use crate::phase::Phase;
use crate::state::{Node, State};
use attention::{Attention, Tick};
use book::{Book, Brought, PROBERS_MAX, ProbeSeen};
use hearing::Mark;
use reports::{Edge, Reporter, Silence};
use summary::ReporterSummary;

pub use checked::{CheckedAnswer, CheckedBatch, CheckedHearing, CheckedReport, NotProven, Proven};
pub use pool::Pool;
pub use summary::Summary;

/// A prober's answer is forgotten after this; it stands for 30 s at most.
const PROBES_KEPT: Span = Span::from_mins(2);

/// One replica's hearing.
#[derive(Clone, Debug)]
pub struct Witness {
    me: ReplicaId,
    life: u64,
    started: Mono,
    number: u64,
    membership: u64,
    attention: Attention,
    names: BTreeMap<NodeUid, NodeName>,
    books: BTreeMap<NodeName, Book>,
    hosts: BTreeMap<ReplicaId, NodeName>,
}

/// What a beacon was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// A proof of life.
    Proof,
    /// No newer than what is known.
    Old,
    /// Of a boot that the log has left: it never comes back.
    LeftBoot,
    /// Of nobody who is a member.
    Unknown,
}

// === impl Witness ===

impl Witness {
    /// A replica that has heard nothing yet. `life` is another number at each start; the clock would not do, since it
    /// begins anew with each boot of the host.
    pub fn new(me: ReplicaId, life: u64, now: Mono) -> Self {
        Self {
            me,
            life,
            started: now,
            number: 0,
            membership: 0,
            attention: Attention::default(),
            names: BTreeMap::new(),
            books: BTreeMap::new(),
            hosts: BTreeMap::new(),
        }
    }

    /// Takes members, boots, replicas and the graph from the log. To be called after every applied batch.
    pub fn sync(&mut self, now: Mono, state: &State) {
        let _ = now;
        self.membership = state.membership;
        self.hosts = state.replicas.iter().map(|(id, r)| (*id, r.host.clone())).collect();
        let mut before = std::mem::take(&mut self.books);
        self.names.clear();
        for (name, seat) in state.observers.seats() {
            let Some(node) = state.nodes.get(name) else { continue };
            let uid = seat.peer.node.clone();
            let known = before.remove(name).filter(|b| b.uid == uid);
            let mut book = known.unwrap_or_else(|| Book::new(uid.clone()));
            book.sync(node, seat);
            self.names.insert(uid, name.clone());
            self.books.insert(name.clone(), book);
        }
    }

    /// To be called every 50 ms, after the sockets were drained and before [`Witness::summary`].
    pub fn tick(&mut self, now: Mono) -> Tick {
        self.attention.tick(now)
    }

    /// The member of this uid.
    pub fn name_of(&self, uid: &NodeUid) -> Option<&NodeName> {
        self.names.get(uid)
    }

    /// A beacon that came to this replica itself, from this address.
    pub fn beacon(&mut self, now: Mono, beacon: &Proven, from: Option<IpAddr>) -> Taken {
        let (beacon, key) = (beacon.beacon(), beacon.key());
        let Some(name) = self.names.get(&beacon.node) else { return Taken::Unknown };
        let Some(book) = self.books.get_mut(name) else { return Taken::Unknown };
        if book.left.contains(&beacon.boot) {
            return Taken::LeftBoot;
        }
        let mark = Mark { boot: beacon.boot, seq: beacon.seq, at: now };
        if book.is_fresh(&mark) && book.hearing.first_hand(mark, from, beacon.health) {
            if let Some(key) = key {
                book.hearing.spoke(key, now);
            }
            Taken::Proof
        } else {
            Taken::Old
        }
    }

    /// An agent's status, with its own beacon, which [`Witness::beacon`] has taken before. With an older beacon than the
    /// newest it is an old status and says nothing.
    pub fn status(&mut self, now: Mono, from: &NodeUid, status: &Status, beacon: &Proven) {
        let Some(name) = self.names.get(from).cloned() else { return };
        let newest = self.books.get(&name).and_then(|b| b.hearing.newest());
        let said_with = (beacon.beacon().boot, beacon.beacon().seq);
        if beacon.beacon().node != *from || newest.map(|m| (m.boot, m.seq)) != Some(said_with) {
            return;
        }
        self.speaks(&name, now, beacon.beacon().boot, &status.doubts);
        let hears: BTreeSet<&NodeName> = status.hears.iter().filter_map(|uid| self.names.get(uid)).collect();
        let subjects = self.books.get(&name).map(|b| b.subjects.clone()).unwrap_or_default();
        for subject in subjects {
            let heard = hears.contains(&subject);
            if let Some(edge) = self.books.get_mut(&subject).and_then(|b| b.edges.get_mut(&name)) {
                edge.claims(now, heard);
            }
        }
        for worked in &status.worked {
            let Some(subject) = self.names.get(&worked.subject) else { continue };
            if let Some(edge) = self.books.get_mut(subject).and_then(|b| b.edges.get_mut(&name)) {
                edge.worked(worked.path, now.back(worked.ago));
            }
        }
    }

    /// A batch of reports from an agent.
    pub fn reports(&mut self, now: Mono, from: &NodeUid, batch: &CheckedBatch) {
        let Some(reporter) = self.names.get(from).cloned() else { return };
        if self.books.get(&reporter).is_none_or(|b| b.left.contains(&batch.boot)) {
            return;
        }
        self.speaks(&reporter, now, batch.boot, &batch.doubts);
        for report in &batch.reports {
            self.report(now, &reporter, batch.number, report);
        }
        if batch.snapshot {
            self.snapshot(now, &reporter, batch);
        }
    }

    /// What a prober found.
    pub fn probe_answer(&mut self, now: Mono, from: &NodeUid, answer: &CheckedAnswer) {
        let (Some(prober), Some(subject)) = (self.names.get(from), self.names.get(&answer.subject)) else {
            return;
        };
        let Some(book) = self.books.get_mut(subject) else { return };
        if let Some(beacon) = &answer.beacon {
            // A fresh reply, or the newest that an observer holds: it came when the agent path last answered.
            let agent = answer.outcomes.iter().filter(|o| o.path == Path::Agent);
            let ago = agent.filter_map(|o| o.worked_ago).min().unwrap_or(Span::ZERO);
            book.brings(prober, beacon, now.back(ago));
        }
        if !book.probes.contains_key(prober) && book.probes.len() >= PROBERS_MAX {
            return;
        }
        let fresh = ProbeSeen { number: 0, told: now, paths: BTreeMap::new() };
        let seen = book.probes.entry(prober.clone()).or_insert(fresh);
        if answer.number >= seen.number {
            seen.number = answer.number;
            seen.told = now;
        }
        for outcome in &answer.outcomes {
            seen.paths.entry(outcome.path).or_default().take(now, outcome);
        }
    }

    /// A host registered: a proof of life.
    pub fn registered(&mut self, now: Mono, node: &NodeUid, boot: BootId) {
        let Some(book) = self.names.get(node).and_then(|n| self.books.get_mut(n)) else { return };
        if !book.left.contains(&boot) {
            book.hearing.registered(boot, now);
        }
    }

    /// Raft or ingress traffic of another replica: its host lives.
    pub fn replica_traffic(&mut self, now: Mono, replica: ReplicaId) {
        if let Some(book) = self.hosts.get(&replica).and_then(|host| self.books.get_mut(host)) {
            book.hearing.traffic(now);
        }
    }

    /// Everything that the leader must know, as of `now`.
    pub fn summary(&mut self, now: Mono, state: &State) -> Summary {
        self.number += 1;
        let awaited = |name: &NodeName| state.nodes.get(name).is_some_and(is_awaited);
        for book in self.books.values_mut() {
            book.probes.retain(|_, p| self.attention.age(now, p.told) <= PROBES_KEPT);
        }
        let tells = |(n, b): &(&NodeName, &Book)| awaited(n) || !b.is_calm(now, &self.attention);
        let listed: Vec<(&NodeName, &Book)> = self.books.iter().filter(tells).collect();
        let nodes = listed.iter().map(|(name, b)| b.summary(name, now, &self.attention)).collect();
        let observers: BTreeSet<&NodeName> = listed.iter().flat_map(|(_, b)| b.edges.keys()).collect();
        let age = |stamp| self.attention.age(now, stamp);
        let reporters = observers
            .into_iter()
            .filter_map(|n| self.books.get(n).map(|b| (n, &b.reporter)))
            .filter_map(|(n, r)| {
                let (boot, doubts) = (r.boot?, r.doubts.clone());
                Some(ReporterSummary { node: n.clone(), boot, doubts, told_ago: age(r.told) })
            })
            .collect();
        Summary {
            replica: self.me,
            life: self.life,
            number: self.number,
            membership: self.membership,
            listening: now.since(self.started),
            nodes,
            reporters,
        }
    }

    /// Notes who speaks; a new boot of an agent knows nothing of what the one before said.
    fn speaks(&mut self, name: &NodeName, now: Mono, boot: BootId, doubts: &[SelfDoubt]) {
        let Some(book) = self.books.get_mut(name) else { return };
        let rebooted = book.reporter.boot.is_some_and(|b| b != boot);
        book.reporter = Reporter { boot: Some(boot), doubts: doubts.to_vec(), told: now };
        if rebooted {
            for subject in book.subjects.clone() {
                if let Some(edge) = self.books.get_mut(&subject).and_then(|b| b.edges.get_mut(name)) {
                    *edge = Edge::default();
                }
            }
        }
    }

    fn report(&mut self, now: Mono, reporter: &NodeName, number: u64, report: &CheckedReport) {
        let Some(book) = self.names.get(&report.subject).and_then(|n| self.books.get_mut(n)) else { return };
        match &report.hearing {
            CheckedHearing::Silent { silent, last, probes } => {
                if let Some(edge) = book.edges.get_mut(reporter) {
                    let silence = Silence { since: now.back(*silent), last: *last, told: now };
                    edge.silent(number, silence, probes);
                }
            }
            CheckedHearing::Heard { beacon, ago } => {
                let brought = book.brings(reporter, beacon, now.back(*ago));
                let known_since = book.silences().map(|s| s.since).max();
                let Some(edge) = book.edges.get_mut(reporter) else { return };
                match brought {
                    Brought::Newer(at) | Brought::Again(at) => edge.heard(number, at, now),
                    Brought::Old => edge.heard_old(number, known_since.unwrap_or_default(), now),
                    Brought::LeftBoot => {}
                }
            }
        }
    }

    fn snapshot(&mut self, now: Mono, reporter: &NodeName, batch: &CheckedBatch) {
        let named: BTreeSet<&NodeName> =
            batch.reports.iter().filter_map(|r| self.names.get(&r.subject)).collect();
        let subjects = self.books.get(reporter).map(|b| b.subjects.clone()).unwrap_or_default();
        for subject in subjects.iter().filter(|s| !named.contains(s)) {
            if let Some(edge) = self.books.get_mut(subject).and_then(|b| b.edges.get_mut(reporter)) {
                edge.not_in_snapshot(batch.number, now);
            }
        }
    }
}

// === helpers ===

/// Whether the log waits for a proof of life of this node: it is not Alive, or something stands that one would end.
fn is_awaited(node: &Node) -> bool {
    !matches!(node.phase, Phase::Alive)
        || node.goodbye.is_some()
        || node.in_storm
        || node.would_condemn_said.is_some()
        || node.member.as_ref().is_some_and(|m| m.old_key.is_some())
}
