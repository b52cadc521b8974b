//! Everything that the verdict on one node looks at. It is taken by the leader from the pooled hearing of all
//! replicas it reaches, committed with the decision, and judged again from there: the record explains itself.
//!
//! All times are ages at the moment the view was taken; nothing in it refers to a clock.

use coroner_shared::beacon::{GoodbyeKind, ProbeOutcome, SelfDoubt};
use coroner_shared::id::{BootId, Incarnation, NodeName, ReplicaId};
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::Span;
use serde::{Deserialize, Serialize};

use crate::phase::{EvidenceClass, HeldReason};

/// One node as the leader saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct View {
    /// Who is judged.
    pub node: NodeName,
    /// Which life.
    pub incarnation: Incarnation,
    /// Who took the view, and in which term.
    pub leader: ReplicaId,
    /// Raft term of the leader.
    pub term: u64,
    /// Whether the subject is the leader's own host (never judged by it).
    pub own_host: bool,
    /// All registered members, whatever their phase.
    pub members: u32,
    /// The latest sign of life that anybody holds: its age is the age of the failure date. `None`: never since this
    /// group started.
    pub last_sign: Option<Sign>,
    /// How long ago a replica may still have heard it of whose hearing nothing is left: it restarted, or died before this
    /// leader began. The deadlines of silence run from there at the earliest. `None`: nothing is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub untold: Option<Span>,
    /// How long this group of replicas has been running; decides between silence and `NotSeenYet`.
    pub group_age: Span,
    /// Every assigned observer, k of them.
    pub observers: Vec<ObserverView>,
    /// Failure domain of the subject.
    pub domain: String,
    /// Probes asked for, by agents that are not among the observers (or are, where there are no others).
    pub probes: Vec<ProbeView>,
    /// What each replica last read from the BMC.
    pub bmc: Vec<BmcView>,
    /// Whether another BMC on the same network answered any replica within 10 s; `None`: there is none.
    pub sibling_answers: Option<bool>,
    /// The kubelet's Lease.
    pub lease: LeaseView,
    /// Counts over the whole membership.
    pub fleet: FleetView,
    /// A goodbye of this boot that no committed sign of life has ended.
    pub goodbye: Option<Planned>,
    /// Two boot ids or addresses use this identity at once.
    pub duplicate: bool,
}

/// A planned silence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Planned {
    /// What is planned.
    pub kind: GoodbyeKind,
    /// How long ago it was said, by log time.
    pub ago: Span,
    /// Beacons of this boot up to this number were sent before it.
    pub seq: u64,
}

/// A sign of life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Sign {
    /// How old it is.
    pub age: Span,
    /// Whose it is: an observer's, a prober's or a replica's beacon, a registration, traffic of a replica's host.
    pub held_by: String,
    /// Boot and sequence number, where it was a beacon.
    pub beacon: Option<(BootId, u64)>,
}

/// One assigned observer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ObserverView {
    /// Who.
    pub node: NodeName,
    /// Its failure domain.
    pub domain: String,
    /// Why its silence does not count, if so.
    pub standing: Standing,
    /// What it said, if anything.
    pub said: Said,
    /// Its own probes on paths that answered within the 10 minutes before the failure date.
    pub probes: Vec<ProbeOutcome>,
}

/// Whether an observer's accusation counts: eligible, or the first reason why not. A veto always counts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Standing {
    /// It counts.
    Eligible,
    /// Not Alive itself.
    NotAlive,
    /// Not heard by any replica lately itself.
    Unheard,
    /// Speaks of a boot that is not the registered one.
    UnregisteredBoot,
    /// Doubts itself.
    Doubts(SelfDoubt),
    /// Too many of its subjects were heard by others after it lost them.
    OutvotedBySubjects,
    /// Has never heard the subject since it was assigned.
    NeverHeardIt,
    /// No path of it to the subject worked in the 10 minutes before.
    NoWorkingPath,
}

/// What an observer last said of the subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Said {
    /// Silent for so long by now.
    Silent {
        /// By now.
        silent: Span,
    },
    /// Hears it (its bitmap, or a withdrawal), so long ago.
    Hears {
        /// Age of that statement.
        ago: Span,
    },
    /// Has said nothing since it was assigned or since its replica changed.
    Nothing,
}

/// One probe that the leader asked for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProbeView {
    /// Who probed.
    pub prober: NodeName,
    /// How long ago it was asked; only answers asked for after the failure date count.
    pub asked_ago: Span,
    /// What came back; empty while it is out.
    pub outcomes: Vec<ProbeOutcome>,
    /// Whether the prober has answered.
    pub answered: bool,
}

/// What one replica last read from the node's BMC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BmcView {
    /// Which replica.
    pub replica: ReplicaId,
    /// What it read.
    pub read: BmcRead,
    /// Whether it knows this BMC as steady.
    pub steady: bool,
    /// How long ago the newest reading or failure was.
    pub age: Span,
}

/// The newest readings of a power state, all of them after the failure date.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum BmcRead {
    /// Off, read this often in a row over this span, of the right machine.
    Off {
        /// Consecutive readings.
        reads: u32,
        /// From the first to the last of them.
        over: Span,
    },
    /// On, of the right machine.
    On,
    /// No answer for so long.
    Silent {
        /// How long.
        since: Span,
    },
    /// Something else for so long: transitional, unknown, refused, identity refuses, not verified, no binding.
    Unclear {
        /// What, for people.
        what: String,
        /// How long.
        since: Span,
    },
    /// Not asked since the failure date.
    NotRead,
}

/// The kubelet's Lease as the leader's watch saw it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LeaseView {
    /// Whether the API server can be read now.
    pub readable: bool,
    /// How long ago the Lease last changed, by the leader's clock; `None`: no change seen yet.
    pub changed_ago: Option<Span>,
    /// How long the leader has watched it without a gap: no change seen in less than an interval shows nothing.
    pub watched_for: Span,
    /// The learned interval between renewals; 10 s where none is known.
    pub interval: Span,
}

/// Counts over the whole membership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FleetView {
    /// Other members that are Alive or held as `ArbiterBlind`, and not under goodbye.
    pub others_alive: u32,
    /// Of those, how many no reachable replica heard for 3 s, that none of their observers claims to hear or reports.
    pub unexplained: u32,
    /// Of those, how many are heard by some and not by others.
    pub partial: u32,
    /// Whether the leader has its quorum.
    pub quorum: bool,
    /// Nodes of the subject's domain (itself included).
    pub domain_members: u32,
    /// Of those, how many met rule 1 within 5 s of each other, the subject among them.
    pub domain_silent: u32,
    /// How long the correlated set has existed, if there is one.
    pub correlated_for: Option<Span>,
    /// Members that met rule 1 within 10 s, or of whom all observers that count say at least that they are silent: what
    /// a storm is judged by.
    pub storm_members: u32,
    /// Domains of those.
    pub storm_domains: u32,
}

/// The answer. Total: every view has one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Verdict {
    /// Not decided, and why; costs nothing.
    Pending(Pending),
    /// It counts as dead.
    Dead(EvidenceClass),
    /// Silent past its deadline, but no.
    Held(HeldReason),
}

/// Why nothing is decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Pending {
    /// It is heard, or was within S.
    Heard,
    /// A leader does not judge its own host.
    OwnHost,
    /// Silent, deadline of the class not reached.
    Deadline {
        /// How much is left.
        left: Span,
    },
    /// E2 waits for one expected renewal of the Lease to be missed.
    Renewal {
        /// How much is left.
        left: Span,
    },
    /// Probes asked for after the failure date have not come back.
    Probes,
    /// The BMC was not read since the failure date.
    Bmc,
    /// A planned silence; E0 waits so long.
    Goodbye {
        /// How much is left.
        left: Span,
    },
}

// === impl View ===

impl View {
    /// The age of the failure date; since this group started, where nobody ever had a sign of life.
    pub fn silence(&self) -> Span {
        #[cfg(coroner_mutants)]
        if planted(Mutant::NoVeto) || planted(Mutant::FailureDateOfReporters) {
            let accusers = self.observers.iter().filter(|o| o.standing == Standing::Eligible);
            let silent = accusers
                .filter_map(|o| if let Said::Silent { silent } = o.said { Some(silent) } else { None });
            return silent.min().unwrap_or(self.group_age);
        }
        self.last_sign.as_ref().map_or(self.group_age, |sign| sign.age)
    }

    /// What the deadlines of silence are compared with: since anybody heard it, or may have.
    pub fn silence_for_deadlines(&self) -> Span {
        let untold = self.untold.filter(|_| !planted(Mutant::LostHearing)).unwrap_or(Span::MAX);
        self.silence().min(untold)
    }
}
