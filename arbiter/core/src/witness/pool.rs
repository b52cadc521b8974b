//! The hearing of every replica that the leader reaches, as if it were its own.
//!
//! ```text
//!   Summary of each replica (the own one each step) --> Pool --at(now, State)--> Pooled: who was heard when, by whom;
//!                                                                               who accuses whom; what probes found
//! ```
//!
//! With its own view alone a leader condemned a node that an observer heard and had told only a follower. A letter that
//! stops coming keeps its dates; they age. Only what a replica says *now* needs it to be reached. A replica that starts
//! anew has heard nobody yet, so what its last life had told is kept beside what it tells now.

mod pooled;

use coroner_shared::mutant::{Mutant, planted};

use std::collections::{BTreeMap, VecDeque};

use coroner_shared::beacon::ProbeOutcome;
use coroner_shared::id::{NodeName, ReplicaId};
use coroner_shared::time::{Mono, Span};

use super::attention::{Attention, Tick};
use super::summary::{NodeSummary, ReporterSummary, SilenceSummary, Source, Summary};
use crate::state::State;
use crate::view::Sign;

/// A replica whose letters stopped for longer than this is not reached: three heartbeats of an election timeout.
pub const REACHED_WITHIN: Span = Span::from_secs(3);

/// Lives of a replica that are remembered. A kubelet waits 10 s, then 20 and 40 (CrashLoopBackOff), so that these last
/// longer than any deadline.
const LIVES_BEFORE: usize = 4;

/// The letters of all replicas.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    me: Option<ReplicaId>,
    attention: Attention,
    /// When the first letter came, its own: since then nothing is lost.
    since: Option<Mono>,
    letters: BTreeMap<ReplicaId, Letter>,
    /// The last ones of the lives before, the newest last.
    earlier: BTreeMap<ReplicaId, VecDeque<Letter>>,
}

/// The newest summary of one replica.
#[derive(Clone, Debug)]
struct Letter {
    received: Mono,
    life: u64,
    number: u64,
    membership: u64,
    listening: Span,
    nodes: BTreeMap<NodeName, NodeSummary>,
    reporters: BTreeMap<NodeName, ReporterSummary>,
}

/// The pool as of one moment, beside the state that says who is a member.
#[derive(Clone, Copy)]
pub struct Pooled<'a> {
    pub(super) pool: &'a Pool,
    pub(super) now: Mono,
    pub(super) state: &'a State,
}

/// A proof of life, and which replica holds it; ages as of now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeldProof<'a> {
    /// Which.
    pub replica: ReplicaId,
    /// How it came.
    pub source: &'a Source,
    /// Its age less the pauses of who holds it, and of the leader.
    pub ago: Span,
    /// Its age by the clock.
    pub clock_ago: Span,
}

impl HeldProof<'_> {
    /// How long ago by the clock the sign itself may have been: a letter that does not list a node says that it was heard
    /// within S (`suspect`) of it.
    pub fn at_most(&self, suspect: Span) -> Span {
        match self.source {
            Source::Calm => self.clock_ago + suspect,
            Source::Beacon { .. }
            | Source::Brought { .. }
            | Source::Registration { .. }
            | Source::ReplicaTraffic => self.clock_ago,
        }
    }
}

/// What one observer says of one subject, over all replicas.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EdgeNow {
    /// Its accusation, if it stands: told again within 70 s, and no claim to hear the subject since.
    pub silent: Option<SilenceSummary>,
    /// How long ago it last claimed to hear it.
    pub hears_ago: Option<Span>,
    /// Whether it ever heard it since it was assigned.
    pub heard_once: bool,
    /// How long ago any path last answered.
    pub worked_ago: Option<Span>,
}

/// What one prober found, over all replicas.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeNow {
    /// The number it was asked with.
    pub number: u64,
    /// Ages as of now.
    pub outcomes: Vec<ProbeOutcome>,
}

// === impl Pool ===

impl Pool {
    /// A new leader's, before any letter came.
    pub fn new(me: ReplicaId) -> Self {
        Self { me: Some(me), ..Self::default() }
    }

    /// To be called every 50 ms, before anything is asked.
    pub fn tick(&mut self, now: Mono) -> Tick {
        self.attention.tick(now)
    }

    /// Takes a summary; one that was overtaken on the way changes nothing.
    pub fn absorb(&mut self, now: Mono, summary: Summary) {
        let Summary { replica, life, number, membership, listening, nodes, reporters } = summary;
        let overtaken = |l: &Letter| l.life == life && l.number >= number;
        let dropped = planted(Mutant::LeaderAlone) && self.me.is_some_and(|me| me != replica);
        if dropped || self.letters.get(&replica).is_some_and(overtaken) {
            return;
        }
        self.since.get_or_insert(now);
        let nodes = nodes.into_iter().map(|n| (n.node.clone(), n)).collect();
        let reporters = reporters.into_iter().map(|r| (r.node.clone(), r)).collect();
        let letter = Letter { received: now, life, number, membership, listening, nodes, reporters };
        let last = self.letters.insert(replica, letter);
        if let Some(last) = last.filter(|last| last.life != life) {
            let earlier = self.earlier.entry(replica).or_default();
            earlier.push_back(last);
            if earlier.len() > LIVES_BEFORE {
                earlier.pop_front();
            }
        }
    }

    /// Those of now and of the lives before: every date that anybody has told.
    fn all(&self) -> impl Iterator<Item = (&ReplicaId, &Letter)> {
        let earlier =
            self.earlier.iter().flat_map(|(id, letters)| letters.iter().map(move |letter| (id, letter)));
        self.letters.iter().chain(earlier)
    }

    /// The pool as of now.
    pub const fn at<'a>(&'a self, now: Mono, state: &'a State) -> Pooled<'a> {
        Pooled { pool: self, now, state }
    }

    /// The latest sign of life of a node that anybody holds, its age by the clock: for last looks, which ask what came
    /// after something, and for people.
    pub fn last_sign(&self, now: Mono, state: &State, node: &NodeName) -> Option<Sign> {
        self.at(now, state).last_sign_by_clock(node)
    }

    /// How long ago at most, by the clock, the machine itself spoke last.
    pub fn spoke_ago(&self, now: Mono, state: &State, node: &NodeName) -> Option<Span> {
        self.at(now, state).spoke_ago(node)
    }

    /// Whether any replica holds a proof of life of a node at most this old.
    pub fn heard_within(&self, now: Mono, state: &State, node: &NodeName, within: Span) -> bool {
        self.at(now, state).heard_within(node, within)
    }

    /// The age of a stamp of this process, less its pauses.
    pub fn age(&self, now: Mono, stamp: Mono) -> Span {
        self.attention.age(now, stamp)
    }
}
