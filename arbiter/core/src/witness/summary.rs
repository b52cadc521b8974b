//! What a replica tells the leader, and the leader's own replica tells itself: everything it holds about every member
//! that is not plainly well. All times are ages at the moment of sending.
//!
//! A member that is not listed was heard by that replica within S and is accused by nobody there. So a calm cluster of
//! any size costs a few bytes, and the leader still knows whom each replica hears.
//!
//! Of a proof of life, and of an observer's last beacon, two ages are told. Whoever was paused takes its pause off every age, so that it does not call
//! silent whom it could not hear. The same makes an old proof look young: what a proof is to *show* (that somebody lives
//! now, that a silence ended) is asked of the age by the clock.

use coroner_shared::beacon::{ProbeOutcome, SelfDoubt};
use coroner_shared::health::HealthSummary;
use coroner_shared::id::{BootId, NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::PublicKey;
use coroner_shared::time::Span;
use serde::{Deserialize, Serialize};

use crate::phase::Phase;
use crate::state::State;

/// A status comes once a second; one may be late.
const LATELY: Span = Span::from_ms(1250);

/// One replica's hearing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Summary {
    /// Whose.
    pub replica: ReplicaId,
    /// Changes with each start of the replica.
    pub life: u64,
    /// Rises with each summary of that life.
    pub number: u64,
    /// The membership it knows: of members that joined later it says nothing by not listing them.
    pub membership: u64,
    /// How long it has been listening.
    pub listening: Span,
    /// Members that are accused, not heard within S, ill, twofold, or were probed.
    pub nodes: Vec<NodeSummary>,
    /// The observers of those.
    pub reporters: Vec<ReporterSummary>,
}

/// One member that is not plainly well.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeSummary {
    /// Who.
    pub node: NodeName,
    /// Which Node: a new one under the old name is another member.
    pub uid: NodeUid,
    /// Proofs of life, newest of each source.
    pub proofs: Vec<Proof>,
    /// What its observers say.
    pub edges: Vec<EdgeSummary>,
    /// What probers found.
    pub probes: Vec<ProbeSummary>,
    /// What its newest beacon says of its health.
    pub health: HealthSummary,
    /// Two machines use this identity.
    pub duplicate: bool,
    /// The keys that signed its beacons lately.
    pub keys: Vec<(PublicKey, Span)>,
}

/// A proof of life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Proof {
    /// How it came.
    pub source: Source,
    /// How long ago it was first received, less the pauses of who counts: for what silence is to show.
    pub ago: Span,
    /// The same by the clock, never less: for what the proof is to show.
    pub clock_ago: Span,
}

/// How a proof of life came to a replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Source {
    /// Its beacon, to the replica itself.
    Beacon {
        /// Of which boot.
        boot: BootId,
        /// Its sequence number.
        seq: u64,
    },
    /// Its beacon, brought by an observer or prober.
    Brought {
        /// By whom.
        by: NodeName,
        /// Of which boot.
        boot: BootId,
        /// Its sequence number.
        seq: u64,
    },
    /// It registered.
    Registration {
        /// This boot.
        boot: BootId,
    },
    /// The replica that runs on it spoke. Names no boot.
    ReplicaTraffic,
    /// Not listed by the replica, so heard there within S. Names no boot; never sent, only concluded.
    Calm,
}

/// What one observer says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EdgeSummary {
    /// Who says it.
    pub observer: NodeName,
    /// Number of the newest statement; the same at every replica.
    pub number: u64,
    /// Its accusation, if it stands.
    pub silence: Option<SilenceSummary>,
    /// How long ago it last claimed to hear the subject.
    pub hears_ago: Option<Span>,
    /// Whether it ever heard the subject since it was assigned.
    pub heard_once: bool,
    /// How long ago any path last answered.
    pub worked_ago: Option<Span>,
    /// Its probes.
    pub probes: Vec<ProbeOutcome>,
}

/// An accusation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct SilenceSummary {
    /// Since how long by now.
    pub silent: Span,
    /// The last beacon it had: a claim.
    pub last: Option<(BootId, u64)>,
    /// How long ago it said so.
    pub told_ago: Span,
    /// Since how long by the clock, never less.
    pub clock_silent: Span,
    /// How long ago it said so by the clock.
    pub clock_told_ago: Span,
}

/// What one prober found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProbeSummary {
    /// Who probed.
    pub prober: NodeName,
    /// The number it was asked with.
    pub number: u64,
    /// What came back, earlier answers included.
    pub outcomes: Vec<ProbeOutcome>,
}

/// What an observer says of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ReporterSummary {
    /// Who.
    pub node: NodeName,
    /// The boot that speaks: one that is not registered yet may veto and not accuse.
    pub boot: BootId,
    /// Reasons of its own not to be counted.
    pub doubts: Vec<SelfDoubt>,
    /// How long ago it last spoke.
    pub told_ago: Span,
}

// === impl Summary ===

impl Summary {
    /// Whether the leader wants to know at once: anybody is accused or was not heard lately. Of a node that is released
    /// that is no news, and may stay so for days; that it is heard is.
    pub fn is_urgent(&self, state: &State) -> bool {
        let released = |n: &NodeSummary| {
            state.nodes.get(&n.node).is_some_and(|node| matches!(node.phase, Phase::Released { .. }))
        };
        let accused = |n: &NodeSummary| n.edges.iter().any(|e| e.silence.is_some());
        let heard = |n: &NodeSummary| n.proofs.iter().any(|p| p.ago <= LATELY);
        self.nodes
            .iter()
            .any(|n| if released(n) { heard(n) } else { accused(n) || !heard(n) || !n.probes.is_empty() })
    }
}

// === impl Source ===

impl Source {
    /// The boot it proves, if it names one.
    pub const fn boot(&self) -> Option<BootId> {
        match self {
            Self::Beacon { boot, .. } | Self::Brought { boot, .. } | Self::Registration { boot } => {
                Some(*boot)
            }
            Self::ReplicaTraffic | Self::Calm => None,
        }
    }

    /// Boot and number of the beacon, if it is one.
    pub const fn beacon(&self) -> Option<(BootId, u64)> {
        match self {
            Self::Beacon { boot, seq } | Self::Brought { boot, seq, .. } => Some((*boot, *seq)),
            Self::Registration { .. } | Self::ReplicaTraffic | Self::Calm => None,
        }
    }
}
