//! The leader's desk: who is suspect, what is asked about them, and what is proposed to the log.
//!
//! ```text
//!   State, Pool, BmcBook, LeaseBook, now --> Judge::step --> commands: Judge{view}, Heard, SilentAgain, LeaseMoved
//!                                                        --> probes to ask for, BMCs to read, findings, step down?
//! ```
//!
//! Soft state of one leader in one term; a new one starts with an empty desk and learns everything again within
//! seconds. The desk decides nothing that binds: it proposes views, and `apply` judges them again.

use std::collections::BTreeMap;
use std::fmt;

use coroner_shared::beacon::AskProbe;
use coroner_shared::id::{NodeName, ReplicaId};
use coroner_shared::time::{Mono, Span};
use serde::{Deserialize, Serialize};

use crate::command::Command;
use crate::state::State;
use crate::view::{BmcView, Verdict, View};
use crate::witness::Pool;

/// What each replica last read of each BMC, ages as of now.
pub type BmcBook = BTreeMap<NodeName, Vec<BmcView>>;

/// The kubelets' Leases as the leader's watch saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseBook {
    /// Whether the API server can be read now.
    pub readable: bool,
    /// Since when they have been watched without a gap.
    pub watched_since: Option<Mono>,
    /// By node.
    pub leases: BTreeMap<NodeName, LeaseSeen>,
}

/// One Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSeen {
    /// When it was last seen to change; `None`: it did not, since it is watched.
    pub changed: Option<Mono>,
    /// The learned interval between renewals.
    pub interval: Span,
}

/// Everything that the leader looks at in one step.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    /// What the log has made.
    pub state: &'a State,
    /// What all replicas hear.
    pub pool: &'a Pool,
    /// What all replicas read of BMCs.
    pub bmc: &'a BmcBook,
    /// Whether another BMC on the same network answered any replica within 10 s; absent: there is none.
    pub siblings: &'a BTreeMap<NodeName, bool>,
    /// What the kubelets do.
    pub leases: &'a LeaseBook,
    /// Who leads.
    pub me: ReplicaId,
    /// In which term.
    pub term: u64,
    /// Whether a majority of the replicas answers.
    pub quorum: bool,
    /// How long this group of replicas has been running.
    pub group_age: Span,
}

/// A probe to ask for, through any replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Whom to ask.
    pub prober: NodeName,
    /// What.
    pub ask: AskProbe,
}

/// A BMC to read every 500 ms, by every replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whose.
    pub node: NodeName,
    /// Only readings after this count.
    pub failure_date: Mono,
}

/// Why a leader should give up leading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepDown {
    /// Another replica hears far more of the cluster.
    HearsLess,
}

/// Something noticed that is not a verdict; recomputed at each step, so it ends by itself.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    node: Option<NodeName>,
    what: FindingKind,
}

/// What was noticed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Beacons stopped, the kubelet lives.
    AgentDown,
}

/// What a step wants.
#[derive(Clone, Debug, Default)]
pub struct JudgeOutput {
    /// To be proposed, in this order.
    pub commands: Vec<Command>,
    /// To be asked.
    pub ask_probes: Vec<Ask>,
    /// To be read, by every replica.
    pub read_bmc: Vec<Wanted>,
    /// What was noticed.
    pub findings: Vec<Finding>,
    /// Whether this leader should give up leading.
    pub step_down: Option<StepDown>,
    /// Every suspect with the verdict of this moment.
    pub judged: BTreeMap<NodeName, (View, Verdict)>,
}

/// One leader's desk.
#[derive(Debug)]
pub struct Judge {
    since: Mono,
}

impl Judge {
    /// An empty desk, at every election.
    pub fn new(now: Mono) -> Self {
        Self { since: now }
    }

    /// One look at everything; every 50 ms.
    pub fn step(&mut self, now: Mono, sight: &Sight<'_>) -> JudgeOutput {
        let _ = (now, sight, self.since);
        JudgeOutput::default()
    }
}

impl Finding {
    /// About which node; `None`: about the cluster.
    pub const fn node(&self) -> Option<&NodeName> {
        self.node.as_ref()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.what)
    }
}
