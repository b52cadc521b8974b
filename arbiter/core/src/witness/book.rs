//! What a replica knows of one member: its signs of life, what its observers say, what probers found, and what it says
//! of itself.

use coroner_shared::mutant::{Mutant, planted};

use std::collections::{BTreeMap, BTreeSet};

use coroner_shared::beacon::Path;
use coroner_shared::health::HealthSummary;
use coroner_shared::id::{BootId, NodeName, NodeUid};
use coroner_shared::time::{Mono, Span};

use super::attention::Attention;
use super::checked::Proven;
use super::hearing::{Hearing, Mark};
use super::reports::{self, Edge, PathSeen, Reporter, Silence};
use super::summary::{EdgeSummary, NodeSummary, ProbeSummary, Proof, SilenceSummary, Source};
use crate::observers::Seat;
use crate::state::Node;
use crate::verdict::silent_needed;

/// Probers remembered per subject: 3, and 8 more before an E2 deadline, and its observers.
pub(super) const PROBERS_MAX: usize = 24;

/// One member.
#[derive(Clone, Debug)]
pub(super) struct Book {
    pub(super) uid: NodeUid,
    pub(super) left: BTreeSet<BootId>,
    /// S of its agent.
    pub(super) suspect: Span,
    pub(super) hearing: Hearing,
    /// By its observers, as assigned.
    pub(super) edges: BTreeMap<NodeName, Edge>,
    pub(super) probes: BTreeMap<NodeName, ProbeSeen>,
    /// What it says of itself as an observer, and whom it was assigned.
    pub(super) reporter: Reporter,
    pub(super) subjects: Vec<NodeName>,
}

/// What one prober found.
#[derive(Clone, Debug)]
pub(super) struct ProbeSeen {
    pub(super) number: u64,
    pub(super) told: Mono,
    pub(super) paths: BTreeMap<Path, PathSeen>,
}

/// What a beacon was that another agent brought.
pub(super) enum Brought {
    /// A proof of life, first received at this time.
    Newer(Mono),
    /// The same as before, sent again.
    Again(Mono),
    /// Older than what is known.
    Old,
    /// Of a boot that the log has left.
    LeftBoot,
}

// === impl Book ===

impl Book {
    pub(super) fn new(uid: NodeUid) -> Self {
        Self {
            uid,
            left: BTreeSet::new(),
            suspect: Span::ZERO,
            hearing: Hearing::default(),
            edges: BTreeMap::new(),
            probes: BTreeMap::new(),
            reporter: Reporter::default(),
            subjects: Vec::new(),
        }
    }

    pub(super) fn sync(&mut self, node: &Node, seat: &Seat) {
        self.suspect = seat.timings.suspect;
        let left = node.member.iter().flat_map(|m| m.left_boots.iter().copied());
        self.left = left.filter(|_| !planted(Mutant::StaleBoot)).collect();
        let left = &self.left;
        self.hearing.forget(|boot| left.contains(boot));
        if self.reporter.boot.is_some_and(|boot| left.contains(&boot)) {
            self.reporter = Reporter::default();
        }
        self.edges.retain(|observer, _| seat.observers.binary_search(observer).is_ok());
        for observer in &seat.observers {
            self.edges.entry(observer.clone()).or_default();
        }
        self.subjects.clone_from(&seat.subjects);
    }

    pub(super) fn silences(&self) -> impl Iterator<Item = &Silence> {
        self.edges.values().filter_map(|e| e.silence.as_ref())
    }

    /// Newer than what enough observers to condemn say they have already. Fewer than that cannot make it look old,
    /// since each of them only speaks for itself.
    pub(super) fn is_fresh(&self, mark: &Mark) -> bool {
        let needed = silent_needed(self.edges.len());
        let have_it =
            self.silences().filter(|s| s.last.is_some_and(|(b, seq)| b == mark.boot && seq >= mark.seq));
        needed == 0 || have_it.count() < needed || planted(Mutant::ReplayVetoes)
    }

    pub(super) fn brings(&mut self, by: &NodeName, beacon: &Proven, at: Mono) -> Brought {
        let beacon = beacon.beacon();
        if self.left.contains(&beacon.boot) {
            return Brought::LeftBoot;
        }
        let mark = Mark { boot: beacon.boot, seq: beacon.seq, at };
        if !self.is_fresh(&mark) {
            return Brought::Old;
        }
        if self.hearing.brought(by, mark) {
            return Brought::Newer(at);
        }
        let before = self.hearing.brought_marks().find(|(n, _)| *n == by).map(|(_, m)| m);
        match before {
            Some(m) if m.boot == mark.boot && m.seq == mark.seq => Brought::Again(m.at),
            Some(_) | None => Brought::Old,
        }
    }

    /// Heard within S by this replica, by the clock; accused by nobody, and nothing else to tell.
    pub(super) fn is_calm(&self, now: Mono, attention: &Attention) -> bool {
        let heard = self.hearing.latest().is_some_and(|at| now.since(at) <= self.suspect);
        heard
            && !self.edges.values().any(|e| e.matters(|stamp| attention.age(now, stamp)))
            && self.hearing.health == HealthSummary::GOOD
            && self.probes.is_empty()
            && !self.hearing.is_duplicate(now)
    }

    pub(super) fn summary(&self, name: &NodeName, now: Mono, attention: &Attention) -> NodeSummary {
        let age = |stamp| attention.age(now, stamp);
        let own = self.hearing.newest().map(|m| (Source::Beacon { boot: m.boot, seq: m.seq }, m.at));
        let brought = self
            .hearing
            .brought_marks()
            .map(|(by, m)| (Source::Brought { by: by.clone(), boot: m.boot, seq: m.seq }, m.at));
        let registered = self.hearing.registration().map(|(boot, at)| (Source::Registration { boot }, at));
        let traffic = self.hearing.last_traffic().map(|at| (Source::ReplicaTraffic, at));
        let proofs = own
            .into_iter()
            .chain(brought)
            .chain(registered)
            .chain(traffic)
            .map(|(source, at)| Proof { source, ago: age(at), clock_ago: now.since(at) })
            .collect();
        let edges = self.edges.iter().map(|(o, e)| edge_summary(o, e, now, &age)).collect();
        let probes = self
            .probes
            .iter()
            .map(|(prober, p)| ProbeSummary {
                prober: prober.clone(),
                number: p.number,
                outcomes: reports::outcomes(&p.paths, age).collect(),
            })
            .collect();
        NodeSummary {
            node: name.clone(),
            uid: self.uid.clone(),
            proofs,
            edges,
            probes,
            health: self.hearing.health,
            duplicate: self.hearing.is_duplicate(now),
            keys: self.hearing.keys().map(|(key, at)| (key, age(at))).collect(),
        }
    }
}

// === helpers ===

fn edge_summary(observer: &NodeName, edge: &Edge, now: Mono, age: &impl Fn(Mono) -> Span) -> EdgeSummary {
    EdgeSummary {
        observer: observer.clone(),
        number: edge.number,
        silence: edge.silence.filter(|s| age(s.told) <= reports::STANDS_FOR).map(|s| SilenceSummary {
            silent: age(s.since),
            last: s.last,
            told_ago: age(s.told),
            clock_silent: now.since(s.since),
            clock_told_ago: now.since(s.told),
        }),
        hears_ago: edge.hears.map(age),
        heard_once: edge.heard_once,
        worked_ago: edge.paths.values().filter_map(|p| p.worked).max().map(age),
        probes: reports::outcomes(&edge.paths, age).collect(),
    }
}
