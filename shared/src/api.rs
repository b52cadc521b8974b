//! The JSON of the people's port (TCP 7463, and the root-only socket of a replica's host): what `coroner` and the page
//! show, and what operators may ask for.
//!
//! Spans are milliseconds. Every answer says which replica gave it and how old its view is.

use serde::{Deserialize, Serialize};

use crate::id::{BootId, ClusterId, IncidentId, NodeName, NodeUid, ReplicaId};
use crate::time::Span;

/// `GET` here: [`Status`].
pub const STATUS: &str = "/v1/status";
/// `GET` here: a list of [`NodeSummary`]; with `/NAME` one; with `/NAME/explain` an [`Explanation`].
pub const NODES: &str = "/v1/nodes";
/// `GET` here: a list of [`IncidentSummary`].
pub const INCIDENTS: &str = "/v1/incidents";
/// `POST` an [`Act`] here to stop all power commands.
pub const PAUSE: &str = "/v1/pause";
/// `POST` an [`Act`] here to end that.
pub const RESUME: &str = "/v1/resume";
/// Where the socket lies below the state folder of a replica.
pub const SOCKET: &str = "coroner.sock";

/// The cluster in one answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Status {
    /// The installation.
    pub cluster: ClusterId,
    /// One line: whether everything is well, and if not what is the matter.
    pub verdict: String,
    /// Who answered.
    pub answered_by: ReplicaId,
    /// How old the answer is: since this replica last heard of a commit or heartbeat of the leader.
    pub age: Span,
    /// Who leads.
    pub leader: Option<ReplicaId>,
    /// Raft term.
    pub term: u64,
    /// Entries applied here.
    pub applied: u64,
    /// Level of the rules in force.
    pub level: u32,
    /// A pause of everything.
    pub paused: Option<PauseSummary>,
    /// Whether a storm holds everything but machines found off.
    pub storm: bool,
    /// Nodes by phase.
    pub phases: std::collections::BTreeMap<String, u32>,
    /// Nodes that are not plainly alive and well, worst first.
    pub attention: Vec<NodeSummary>,
    /// The replicas.
    pub replicas: Vec<ReplicaSummary>,
    /// What would stop us tonight, in sentences.
    pub problems: Vec<String>,
}

/// A stop of power commands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PauseSummary {
    /// Who.
    pub who: String,
    /// Why.
    pub why: String,
    /// For how long by now.
    pub age: Span,
}

/// A replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ReplicaSummary {
    /// Its id.
    pub id: ReplicaId,
    /// The node it runs on.
    pub host: Option<NodeName>,
    /// Whether it leads.
    pub leader: bool,
    /// Entries that its log is behind the leader's; known on the leader only.
    pub lag: Option<u64>,
}

/// A node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeSummary {
    /// Its name.
    pub node: NodeName,
    /// Its phase, or `Unregistered`.
    pub phase: String,
    /// Why it is in that phase, for people.
    pub reason: Option<String>,
    /// For how long at least: the log's time, which runs behind the clock while nothing happens.
    pub age: Span,
    /// What Coroner does next.
    pub next: String,
    /// What the operator can do, as a command where there is one.
    pub advice: Option<String>,
    /// The open incident.
    pub incident: Option<IncidentId>,
    /// Uid of the Node object.
    pub uid: Option<NodeUid>,
    /// The current boot.
    pub boot: Option<BootId>,
    /// SMBIOS UUID, or why there is none.
    pub machine: Option<String>,
    /// Failure domain.
    pub domain: String,
    /// `Enforce`, `Observe`, or the conflict.
    pub mode: String,
    /// Name of the policy.
    pub policy: Option<String>,
    /// How long ago any replica this one hears of had a sign of life; known on the leader.
    pub heard_ago: Option<Span>,
    /// The BMC.
    pub bmc: Option<BmcSummary>,
    /// Findings, recomputed: `AgentDown`, `Partial`, ...
    pub findings: Vec<String>,
}

/// A node's BMC, as the answering replica knows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BmcSummary {
    /// `On`, `Off`, or what was read or went wrong.
    pub power: String,
    /// Age of that.
    pub power_age: Option<Span>,
    /// For how long it has been read without a gap and without a sign of a restart.
    pub steady_for: Option<Span>,
    /// Identity: `Match ...`, or why not.
    pub identity: String,
    /// Age of the last verification.
    pub verified_ago: Option<Span>,
    /// Whether the node could be fenced now, and why not.
    pub fence_ready: Result<(), String>,
}

/// An incident.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct IncidentSummary {
    /// Its name.
    pub incident: IncidentId,
    /// About whom.
    pub node: NodeName,
    /// Phase of the node, or `Closed`.
    pub phase: String,
    /// The class, once condemned.
    pub class: Option<String>,
    /// Why it is held.
    pub held: Option<String>,
    /// Seen in Observe: nothing was done.
    pub observed: bool,
    /// How long ago it was opened.
    pub opened_ago: Span,
    /// How long ago it was closed, and how.
    pub closed: Option<(Span, String)>,
    /// What it waits for.
    pub waiting_for: Option<String>,
    /// Digest of the evidence.
    pub evidence: Option<String>,
    /// What happened: how long ago, what, details.
    pub timeline: Vec<(Span, String, String)>,
}

/// Why a node is what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The node.
    pub summary: NodeSummary,
    /// The chain of evidence in sentences.
    pub sentences: Vec<String>,
    /// The verdict that the same function gives on the recorded evidence.
    pub verdict: Option<String>,
}

/// What an operator asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Act {
    /// Why, in their own words; never empty.
    pub why: String,
    /// Drawn by the caller: the same key sent twice is done once.
    pub key: String,
    /// What they looked at, for acts that are bound to it (`confirm-off`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bound: Option<Bound>,
    /// Only the root-only socket reads it: the name the person typed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

/// The incident, Node and boot that an operator looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Bound {
    /// The incident; absent for `fence`, which opens one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub incident: Option<IncidentId>,
    /// The Node object.
    pub uid: NodeUid,
    /// The boot.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub boot: Option<BootId>,
}

/// What became of an act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ActAnswer {
    /// `Done`, `Unchanged`, or the refusal's word.
    pub result: String,
    /// What happened and what follows.
    pub message: String,
}

/// Any refusal of the port itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ApiError {
    /// A stable word: `Unauthenticated`, `Forbidden`, `NotFound`, `NoLeader`, `BadRequest`, ...
    pub reason: String,
    /// What happened and what would be right.
    pub message: String,
}
