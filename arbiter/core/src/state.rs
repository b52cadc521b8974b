//! What the log has made: everything that all replicas know alike. Ordered maps only, so that equal logs give equal
//! bytes.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;

use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::id::{BootId, Incarnation, IncidentId, NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::PublicKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::time::Mono;
use serde::{Deserialize, Serialize};

use crate::command::NodeFacts;
use crate::phase::{EvidenceClass, HeldReason, Phase};
use crate::policy::{Binding, Policy};

/// The state of the arbiter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct State {
    /// Level of the rules in force.
    pub level: u32,
    /// Entries applied.
    pub applied: u64,
    /// Log time: the sum of all spans.
    pub now: Mono,
    /// Every Node known, registered or not.
    pub nodes: BTreeMap<NodeName, Node>,
    /// Policies by name.
    pub policies: BTreeMap<String, Policy>,
    /// Bindings by node.
    pub bindings: BTreeMap<NodeName, Binding>,
    /// Open incidents and the last closed ones.
    pub incidents: BTreeMap<IncidentId, Incident>,
    /// The replicas.
    pub replicas: BTreeMap<ReplicaId, Replica>,
    /// A pause of everything.
    pub pause: Option<Pause>,
    /// What the brakes count.
    pub brakes: BrakeBook,
    /// Hash over all evidence so far: SHA-256 of (previous, record), hex.
    pub evidence_chain: String,
    /// Rises whenever membership, addresses, keys or domains change: versions of the slices.
    pub membership: u64,
    /// Keys of the last operators' acts, so that one sent twice is done once.
    pub acts: VecDeque<String>,
}

/// One node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Node {
    /// What its Node object says; `None` until it was seen.
    pub facts: Option<NodeFacts>,
    /// Its registration; a node without one is `Unregistered`: shown, cannot accuse, is never condemned.
    pub member: Option<Member>,
    /// Where it stands.
    pub phase: Phase,
    /// Log time of the last change of phase.
    pub phase_since: Mono,
    /// A planned silence that has not ended.
    pub goodbye: Option<Goodbye>,
    /// A pause of this node alone.
    pub pause: Option<Pause>,
    /// Log times of its deaths in the last 24 h.
    pub deaths: VecDeque<Mono>,
    /// `RepeatOffender` until a person clears it.
    pub repeat_offender: bool,
    /// Silent already when its policy became Enforce, until heard or cleared.
    pub silent_before_enforce: bool,
    /// Caught in a storm: held until heard, found off or ordered.
    pub in_storm: bool,
    /// Failure domain that counts, with the one before and until when both count.
    pub domain: String,
    /// The domain before a change of labels, counted with the new one until the given log time.
    pub domain_before: Option<(String, Mono)>,
    /// In Observe: the boot for which `WouldCondemn` was already said.
    pub would_condemn_said: Option<BootId>,
    /// Findings that a page was given for.
    pub paged: BTreeMap<String, Mono>,
}

/// A registered host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Member {
    /// The Node it registered for.
    pub uid: NodeUid,
    /// The machine, or why it has no identity.
    pub machine: Result<MachineId, String>,
    /// The key that speaks for it.
    pub key: PublicKey,
    /// An older key of the same boot, valid until it was silent for 60 s.
    pub old_key: Option<PublicKey>,
    /// The current boot.
    pub boot: BootId,
    /// Boots once left, newest last; they never come back. At most 64.
    pub left_boots: VecDeque<BootId>,
    /// Where its agent listens.
    pub address: IpAddr,
    /// Log time of the registration.
    pub since: Mono,
}

/// A replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Replica {
    /// The node it runs on.
    pub host: NodeName,
    /// Its address.
    pub address: IpAddr,
    /// The key of its datagrams.
    pub key: PublicKey,
    /// Highest level it knows.
    pub level: u32,
}

/// A planned silence.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Goodbye {
    /// What is planned.
    pub kind: GoodbyeKind,
    /// Of which boot.
    pub boot: BootId,
    /// Log time.
    pub at: Mono,
}

/// A stop of power commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pause {
    /// Who.
    pub who: String,
    /// Why.
    pub why: String,
    /// Log time.
    pub at: Mono,
}

/// One death or hold.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Incident {
    /// About whom.
    pub node: NodeName,
    /// Which life.
    pub incarnation: Incarnation,
    /// The class, once condemned.
    pub class: Option<EvidenceClass>,
    /// The last reason of a hold.
    pub held: Option<HeldReason>,
    /// Only said, in Observe.
    pub observed: bool,
    /// Policy hash that binds it, once condemned.
    pub policy: Option<(String, String)>,
    /// Failure domain that counts for it, once condemned.
    pub domain: String,
    /// Digest of the evidence it was decided on.
    pub evidence: Option<String>,
    /// Whether an attempt of ours turned the machine from On to Off.
    pub turned_off_by_us: bool,
    /// Whether power-on was tried (one per incident).
    pub powered_on: bool,
    /// Recorded pods and attachments are gone.
    pub leftovers_gone: bool,
    /// Log times of what happened, oldest first; at most 64.
    pub timeline: VecDeque<Moment>,
    /// Log time at which it was opened.
    pub opened: Mono,
    /// Log time at which it was closed, and how.
    pub closed: Option<(Mono, String)>,
    /// What the node waits for now, for people.
    pub waiting_for: Option<String>,
}

/// A line of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Moment {
    /// Log time.
    pub at: Mono,
    /// Entry of the log.
    pub index: u64,
    /// A stable word: `Condemned`, `Intent`, `Attempt`, `Proven`, `ReleaseBegun`, `Released`, ...
    pub what: String,
    /// Details for people.
    pub detail: String,
}

/// What the brakes count.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BrakeBook {
    /// Intents of the rolling budget, log times.
    pub intents: VecDeque<Mono>,
    /// Decisions on each domain within 10 minutes, log times.
    pub by_domain: BTreeMap<String, VecDeque<Mono>>,
    /// The last decision.
    pub last_decision: Option<Mono>,
    /// Since when a storm is on, and when it was last seen.
    pub storm: Option<(Mono, Mono)>,
}
