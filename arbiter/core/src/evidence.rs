//! What a decision rests on, as it was when it was taken: enough to judge it again with the same function.
//!
//! ```text
//!   view, rules, verdict, brakes before --> Evidence --> digest --> chain = SHA-256(previous chain, digest)
//! ```
//!
//! The chain runs over all decisions of the log, so an export shows whether a record is missing. Only canonical JSON
//! of our own types is hashed: ordered maps, fields in the order of the type.

use coroner_shared::id::NodeName;
use coroner_shared::time::Mono;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::phase::{Confirmation, EvidenceClass, HeldReason, OffReadings};
use crate::policy::Rules;
use crate::view::{Verdict, View};

/// One record of the chain.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Evidence {
    /// Entry of the log.
    pub index: u64,
    /// Log time.
    pub at: Mono,
    /// Level of the rules that judged.
    pub level: u32,
    /// About whom.
    pub node: NodeName,
    /// What was looked at.
    pub looked_at: LookedAt,
    /// What was decided.
    pub decided: Decided,
    /// Name and hash of the policy, if one selects the node.
    pub policy: Option<(String, String)>,
    /// What the brakes counted just before.
    pub brakes_before: BrakeCounts,
    /// What they counted just after.
    pub brakes_after: BrakeCounts,
}

/// What was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LookedAt {
    /// A view, judged with these rules.
    View {
        /// The view.
        view: Box<View>,
        /// The rules.
        rules: Rules,
        /// What the decision rule said of it, before brakes and policy.
        verdict: Verdict,
    },
    /// A person's or a policy's order.
    Order {
        /// Who.
        who: String,
        /// Why.
        why: String,
    },
    /// A person's confirmation.
    Confirmation(Confirmation),
    /// Readings of a BMC.
    Readings(Box<OffReadings>),
}

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Decided {
    /// Power-off is wanted.
    Condemned(EvidenceClass),
    /// It would have been condemned; nothing is done in Observe.
    WouldCondemn(EvidenceClass),
    /// Held, and why.
    Held(HeldReason),
    /// Off is proven.
    ProvenOff,
}

/// What the brakes count, over the whole cluster.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BrakeCounts {
    /// Registered members.
    pub members: u32,
    /// Condemned or Fencing, not Stalled.
    pub in_flight: u32,
    /// Machines down by our hand.
    pub down: u32,
    /// Intents that the rolling budget still has.
    pub budget_left: u32,
    /// Whether a storm is on.
    pub storm: bool,
}

// === impl Evidence ===

impl Evidence {
    /// SHA-256 of the record, 64 hex digits.
    pub fn digest(&self) -> String {
        // Our own types always serialise; an empty text would only make a digest that fits no record.
        let json = serde_json::to_vec(self).unwrap_or_default();
        hex(&Sha256::digest(&json))
    }
}

/// The chain after one more record.
pub fn chained(previous: &str, digest: &str) -> String {
    let mut hash = Sha256::new();
    hash.update(previous.as_bytes());
    hash.update(b"\n");
    hash.update(digest.as_bytes());
    hex(&hash.finalize())
}

/// Bytes as lower-case digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    coroner_shared::hex::Hex(bytes).to_string()
}
