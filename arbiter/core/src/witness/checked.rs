//! What has been checked before it may count: beacons with a good signature of the node's own key, and the statements
//! of agents whose beacons were checked one by one.
//!
//! ```text
//!   SignedBeacon, ReportBatch, ProbeAnswer --(committed keys)--> Proven, CheckedBatch, CheckedAnswer --> Witness
//! ```
//!
//! The datagram around them was checked already; these signatures are the subjects', not the sender's. A beacon that
//! fails is dropped alone: what else the sender says still counts as its own claim.

use coroner_shared::beacon::{
    Beacon, Hearing, ProbeAnswer, ProbeOutcome, ReportBatch, SelfDoubt, SignedBeacon,
};
use coroner_shared::id::{BootId, ClusterId, NodeUid};
use coroner_shared::keys::PublicKey;
use coroner_shared::time::Span;
use coroner_shared::wire::REPORTS_MAX;
use thiserror::Error;

use crate::state::{Member, State};

/// Two probes on each of three paths, and as many again.
const OUTCOMES_MAX: usize = 12;

/// Says whether a key signed a beacon.
pub type Signed<'a> = &'a dyn Fn(&SignedBeacon, &PublicKey) -> bool;

/// A beacon that its node's key signed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proven {
    beacon: Beacon,
    /// The key that signed it, where it was looked at.
    key: Option<PublicKey>,
}

/// A batch of reports whose beacons are proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedBatch {
    /// The reporter's boot.
    pub boot: BootId,
    /// Rises with every change.
    pub number: u64,
    /// Whether every silent subject is named.
    pub snapshot: bool,
    /// The reporter's own doubts.
    pub doubts: Vec<SelfDoubt>,
    /// The statements.
    pub reports: Vec<CheckedReport>,
}

/// One statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedReport {
    /// About whom.
    pub subject: NodeUid,
    /// What is said.
    pub hearing: CheckedHearing,
}

/// What is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckedHearing {
    /// No beacon for so long.
    Silent {
        /// For how long when it was sent.
        silent: Span,
        /// The last one: a claim.
        last: Option<(BootId, u64)>,
        /// Direct probes.
        probes: Vec<ProbeOutcome>,
    },
    /// A beacon came.
    Heard {
        /// The proof.
        beacon: Proven,
        /// How long before it was sent.
        ago: Span,
    },
}

/// An answer to a probe whose beacon, if any, is proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckedAnswer {
    /// The number asked with.
    pub number: u64,
    /// Who was probed.
    pub subject: NodeUid,
    /// What came back.
    pub outcomes: Vec<ProbeOutcome>,
    /// The proof, if it answered with one.
    pub beacon: Option<Proven>,
}

/// Why a beacon proves nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum NotProven {
    /// It speaks for a Node that is not this member's.
    #[error("it speaks for another Node")]
    OtherNode,
    /// It was signed on another machine than the registered one: a disk that moved, or a clone.
    #[error("it comes from another machine than the registered one")]
    OtherMachine,
    /// No committed key of the node signed it, or it cannot be read.
    #[error("no committed key of the node signed it")]
    Forged,
    /// More statements than an agent ever sends.
    #[error("more statements than an agent ever sends")]
    TooMany,
}

// === impl Proven ===

impl Proven {
    /// Checks a beacon against a member's keys; an older key of the same boot is valid until the log says otherwise.
    ///
    /// # Errors
    /// Why it proves nothing.
    pub fn verify(signed: &SignedBeacon, member: &Member, cluster: ClusterId) -> Result<Self, NotProven> {
        Self::verify_by(signed, member, &|signed, key| signed.verify(key, cluster).is_ok())
    }

    /// As [`Proven::verify`], with another way to see whether a key signed a beacon: the simulator's costs nothing.
    ///
    /// # Errors
    /// [`NotProven`].
    pub fn verify_by(signed: &SignedBeacon, member: &Member, good: Signed<'_>) -> Result<Self, NotProven> {
        let claims = signed.claims().map_err(|_| NotProven::Forged)?;
        if claims.node != member.uid {
            return Err(NotProven::OtherNode);
        }
        if member.machine.as_ref() != Ok(&claims.machine) {
            return Err(NotProven::OtherMachine);
        }
        let keys = std::iter::once(&member.key).chain(&member.old_key);
        let key = keys.into_iter().find(|key| good(signed, key)).ok_or(NotProven::Forged)?;
        Ok(Self { beacon: claims, key: Some(*key) })
    }

    /// A beacon that the caller vouches for: the simulator, where "verified by key k" is an input.
    pub const fn trusted(beacon: Beacon) -> Self {
        Self { beacon, key: None }
    }

    /// What it says.
    pub const fn beacon(&self) -> &Beacon {
        &self.beacon
    }

    /// The key that signed it; `None` where the caller vouched for it.
    pub const fn key(&self) -> Option<PublicKey> {
        self.key
    }
}

// === impl CheckedBatch ===

impl CheckedBatch {
    /// Checks every beacon in a batch. A HEARD without proof is dropped, so that the accusation stands; the rest counts.
    ///
    /// # Errors
    /// [`NotProven::TooMany`] for a batch longer than any agent sends.
    pub fn verify(batch: &ReportBatch, state: &State, cluster: ClusterId) -> Result<Self, NotProven> {
        Self::verify_by(batch, state, &|signed, key| signed.verify(key, cluster).is_ok())
    }

    /// As [`CheckedBatch::verify`], with another way to see whether a key signed a beacon.
    ///
    /// # Errors
    /// [`NotProven::TooMany`].
    pub fn verify_by(batch: &ReportBatch, state: &State, good: Signed<'_>) -> Result<Self, NotProven> {
        if batch.reports.len() > REPORTS_MAX {
            return Err(NotProven::TooMany);
        }
        Ok(Self::check(batch, |subject, beacon| prove(subject, beacon, state, good)))
    }

    /// A batch that the caller vouches for: the simulator.
    pub fn trusted(batch: &ReportBatch) -> Self {
        Self::check(batch, |_, beacon| beacon.claims().ok().map(Proven::trusted))
    }

    fn check(batch: &ReportBatch, prove: impl Fn(&NodeUid, &SignedBeacon) -> Option<Proven>) -> Self {
        let reports = batch
            .reports
            .iter()
            .filter_map(|report| {
                let hearing = match &report.hearing {
                    Hearing::Silent { silent, last, probes } => {
                        CheckedHearing::Silent { silent: *silent, last: *last, probes: probes.clone() }
                    }
                    Hearing::Heard { beacon, ago } => {
                        CheckedHearing::Heard { beacon: prove(&report.subject, beacon)?, ago: *ago }
                    }
                };
                Some(CheckedReport { subject: report.subject.clone(), hearing })
            })
            .collect();
        Self {
            boot: batch.boot,
            number: batch.number,
            snapshot: batch.snapshot,
            doubts: batch.doubts.clone(),
            reports,
        }
    }
}

// === impl CheckedAnswer ===

impl CheckedAnswer {
    /// Checks the beacon in an answer. Without proof the rest still counts.
    ///
    /// # Errors
    /// [`NotProven::TooMany`] for an answer longer than any agent sends.
    pub fn verify(answer: &ProbeAnswer, state: &State, cluster: ClusterId) -> Result<Self, NotProven> {
        Self::verify_by(answer, state, &|signed, key| signed.verify(key, cluster).is_ok())
    }

    /// As [`CheckedAnswer::verify`], with another way to see whether a key signed a beacon.
    ///
    /// # Errors
    /// [`NotProven::TooMany`].
    pub fn verify_by(answer: &ProbeAnswer, state: &State, good: Signed<'_>) -> Result<Self, NotProven> {
        if answer.outcomes.len() > OUTCOMES_MAX {
            return Err(NotProven::TooMany);
        }
        Ok(Self::check(answer, |subject, beacon| prove(subject, beacon, state, good)))
    }

    /// An answer that the caller vouches for: the simulator.
    pub fn trusted(answer: &ProbeAnswer) -> Self {
        Self::check(answer, |_, beacon| beacon.claims().ok().map(Proven::trusted))
    }

    fn check(answer: &ProbeAnswer, prove: impl Fn(&NodeUid, &SignedBeacon) -> Option<Proven>) -> Self {
        Self {
            number: answer.number,
            subject: answer.subject.clone(),
            outcomes: answer.outcomes.clone(),
            beacon: answer.beacon.as_ref().and_then(|b| prove(&answer.subject, b)),
        }
    }
}

// === helpers ===

/// Statements with beacons are rare (a subject that was silent is heard), so looking through all nodes is cheap enough.
fn prove(subject: &NodeUid, beacon: &SignedBeacon, state: &State, good: Signed<'_>) -> Option<Proven> {
    let member = state.nodes.values().filter_map(|n| n.member.as_ref()).find(|m| m.uid == *subject)?;
    Proven::verify_by(beacon, member, good).ok()
}
