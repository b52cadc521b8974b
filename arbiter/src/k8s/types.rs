//! The resources we own, as Rust types; the CRDs in `deploy/` are generated from them. Every field says its unit and
//! range; what a schema can check without a clock or another object it checks with CEL.

use std::collections::BTreeMap;

use kube::CustomResource;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A condition as in `metav1.Condition`. (Written out: the original type has no schema for schemars.)
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Condition {
    /// `FenceReady`, `Verified`, `Accepted`.
    #[serde(rename = "type")]
    pub type_: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// A stable word in CamelCase.
    pub reason: String,
    /// What happened and what the operator can do.
    pub message: String,
    /// When the status last changed, RFC 3339.
    pub last_transition_time: String,
    /// `metadata.generation` that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

// === MachineBinding ===

/// Which BMC belongs to a node. The name is the node's. The mapping is checked, not believed: see `status`.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coroner.dev",
    version = "v1alpha1",
    kind = "MachineBinding",
    derive = "PartialEq",
    plural = "machinebindings",
    shortname = "mb",
    status = "MachineBindingStatus",
    printcolumn = r#"{"name":"Ready","type":"string","jsonPath":".status.conditions[?(@.type==\"FenceReady\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"FenceReady\")].reason"}"#,
    printcolumn = r#"{"name":"Identity","type":"string","jsonPath":".status.identity.verdict"}"#,
    printcolumn = r#"{"name":"Power","type":"string","jsonPath":".status.power"}"#,
    printcolumn = r#"{"name":"Verified","type":"date","jsonPath":".status.lastVerified"}"#,
    printcolumn = r#"{"name":"BMC","type":"string","jsonPath":".spec.redfish.address","priority":1}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct MachineBindingSpec {
    /// The Redfish service of the BMC.
    pub redfish: RedfishEndpoint,
    /// The Secret with the log-in, in the arbiter's namespace, keys `username` and `password`.
    pub credentials: Credentials,
    /// How the BMC's certificate is checked. There is no way not to.
    pub tls: Tls,
    /// Named ways in which this BMC differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub quirks: Vec<QuirkName>,
    /// The network the BMC is on: when a BMC is silent, its neighbours on the same network show whether the network is.
    #[serde(default = "default_network")]
    pub network: String,
}

/// Address of a Redfish service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct RedfishEndpoint {
    /// `host`, `host:port` or `https://host[:port]`; never http.
    #[schemars(length(min = 1, max = 300))]
    #[schemars(extend("x-kubernetes-validations" = [{
        "rule": "self.startsWith('https://') || !self.contains('://')",
        "message": "only https is spoken: a host, host:port or https://host[:port]",
    }]))]
    pub address: String,
    /// Path of the Systems member, as a hint for people; the member is chosen by UUID.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub system_hint: Option<String>,
}

/// Where the log-in is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Credentials {
    /// Name of the Secret.
    #[schemars(length(min = 1, max = 253))]
    pub secret_name: String,
}

/// Trust in a BMC's certificate: exactly one of a CA bundle or a pin.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "has(self.caBundle) != has(self.sha256Pin)",
        "message": "exactly one of caBundle and sha256Pin: a BMC is never talked to unverified",
    },
    {
        "rule": "has(self.of) == has(self.sha256Pin)",
        "message": "sha256Pin needs `of` (certificate or key), and nothing else does",
    },
    {
        "rule": "!has(self.serverName) || has(self.caBundle)",
        "message": "serverName is checked with a caBundle only; a pin knows no names",
    },
]))]
pub struct Tls {
    /// PEM certificates of the CA.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ca_bundle: Option<String>,
    /// Name in the certificate, where it is not the address.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub server_name: Option<String>,
    /// SHA-256 in 64 hexadecimal digits (colons are allowed).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sha256_pin: Option<String>,
    /// What the pin is of: `certificate` or `key` (SubjectPublicKeyInfo).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub of: Option<PinOf>,
}

/// What a pin is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum PinOf {
    /// The whole certificate.
    Certificate,
    /// Its public key.
    Key,
}

/// A named way in which a BMC differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum QuirkName {
    /// Its power state may be up to a minute old.
    Cached,
    /// It has few sessions: only the leader polls it.
    FewSessions,
    /// It takes no session log-in: Basic only. A late power command cannot be cut off then.
    BasicOnly,
    /// Never send the password with each request; without a session service the BMC is an error.
    NoBasic,
    /// Its TLS 1.3 is broken: 1.2 only.
    Tls12Only,
    /// Session tokens outlive a restart of the BMC, so they show nothing about one.
    SessionsSurviveRestart,
}

/// What we know of the BMC.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MachineBindingStatus {
    /// Whose BMC it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<IdentityStatus>,
    /// The last power state read by the leader.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power: Option<String>,
    /// Since when the leader has read it without a gap, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steady_since: Option<String>,
    /// When identity was last verified over the production path, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_verified: Option<String>,
    /// `FenceReady`, `Verified`.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// `metadata.generation` that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Whose BMC it is, with both values.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IdentityStatus {
    /// `Match`, `Mismatch`, `Ambiguous`, `NoIdentity` or `NotEnrolled`.
    pub verdict: String,
    /// UUID of the node's machine, as its agent reads it.
    #[serde(default, rename = "nodeUUID", skip_serializing_if = "Option::is_none")]
    pub node_uuid: Option<String>,
    /// UUID that the BMC gives, as it gives it.
    #[serde(default, rename = "bmcUUID", skip_serializing_if = "Option::is_none")]
    pub bmc_uuid: Option<String>,
    /// The pinned transform between the two.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub transform: Option<String>,
    /// The pinned Systems member.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub member: Option<String>,
}

// === FencingPolicy ===

/// What may be done to which nodes. A node without a policy is observed only; two that select one node are a conflict.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coroner.dev",
    version = "v1alpha1",
    kind = "FencingPolicy",
    derive = "PartialEq",
    plural = "fencingpolicies",
    shortname = "fp",
    status = "FencingPolicyStatus",
    printcolumn = r#"{"name":"Mode","type":"string","jsonPath":".spec.mode"}"#,
    printcolumn = r#"{"name":"Profile","type":"string","jsonPath":".spec.profile"}"#,
    printcolumn = r#"{"name":"Release","type":"string","jsonPath":".spec.release"}"#,
    printcolumn = r#"{"name":"Paused","type":"boolean","jsonPath":".spec.paused"}"#,
    printcolumn = r#"{"name":"Nodes","type":"integer","jsonPath":".status.nodes"}"#,
    printcolumn = r#"{"name":"Accepted","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].status"}"#,
    printcolumn = r#"{"name":"Reason","type":"string","jsonPath":".status.conditions[?(@.type==\"Accepted\")].reason"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct FencingPolicySpec {
    /// Labels a node must carry, all of them. Empty selects every node.
    #[serde(default)]
    pub node_selector: BTreeMap<String, String>,
    /// `Observe` says what would be done; `Enforce` does it.
    #[serde(default)]
    pub mode: ModeName,
    /// Deadlines: `fast`, `balanced` or `conservative`.
    #[serde(default)]
    pub profile: ProfileName,
    /// Single values that differ from the profile's.
    #[serde(default)]
    pub overrides: Overrides,
    /// Limits on how many nodes may be acted on.
    #[serde(default)]
    pub brakes: BrakesSpec,
    /// Durations that are not safety spans.
    #[serde(default)]
    pub timings: TimingsSpec,
    /// `Expedite` deletes the pods of a proven-dead node; `Taint` leaves that to Kubernetes.
    #[serde(default)]
    pub release: ReleaseName,
    /// `PowerOn` or `StayOff`, for machines that we turned off.
    #[serde(default)]
    pub after_release: AfterReleaseName,
    /// How often the power state of each machine is read (`30s`); `0s` switches it off and costs 30 s per proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub power_poll: Option<String>,
    /// No power command for the nodes of this policy.
    #[serde(default)]
    pub paused: bool,
}

/// Whether anything may be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ModeName {
    /// Only say.
    #[default]
    Observe,
    /// Do.
    Enforce,
}

/// Deadlines of detection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum ProfileName {
    /// E2 after 4 s.
    Fast,
    /// E2 after 8 s.
    #[default]
    Balanced,
    /// E2 after 20 s.
    Conservative,
}

/// How workloads are released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum ReleaseName {
    /// Taint and delete.
    #[default]
    Expedite,
    /// Taint only.
    Taint,
}

/// What happens to a machine afterwards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub enum AfterReleaseName {
    /// One power-on.
    #[default]
    PowerOn,
    /// Nothing.
    StayOff,
}

/// Single deadlines. Times are written `250ms`, `8s`, `2m`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Overrides {
    /// E2: host silent, BMC says On. At least 4 S (5 s with the balanced profile).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_bmc_on: Option<String>,
    /// How long a goodbye Reboot or Shutdown suspends E2 (`20m`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub goodbye: Option<String>,
}

/// Limits; absent takes the default for the cluster's size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BrakesSpec {
    /// Nodes Condemned or Fencing at once (1 below 20 nodes, 2 below 200, else min(5, 1 %)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_flight: Option<u32>,
    /// The same in one failure domain (1).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub per_domain: Option<u32>,
    /// In one failure domain within 10 minutes (2).
    #[serde(default, skip_serializing_if = "Option::is_none", rename = "perDomain10m")]
    pub per_domain_10m: Option<u32>,
    /// Intents in a burst (max(2, 0.5 %)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<u32>,
    /// One more intent becomes available this often (`1m`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget_refill: Option<String>,
    /// Machines down by our hand (floor((N-1)/2) below 10 nodes, else max(4, 30 %)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub floor: Option<u32>,
    /// Between two decisions (`1s`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pace: Option<String>,
    /// Between two decisions in a storm (`10s`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storm_pace: Option<String>,
    /// More silent members than this within 10 s are a storm (max(3, 2 %)).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storm_members: Option<u32>,
    /// In at least so many domains (2).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storm_domains: Option<u32>,
    /// Deaths of one node in 24 h before it is held as a repeat offender (3).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deaths_per_day: Option<u32>,
}

/// Durations that are not safety spans.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TimingsSpec {
    /// A fence without progress pages after (`3m`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stalled: Option<String>,
    /// Heard for so long after an attempt is Averted (`1m`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub averted: Option<String>,
    /// On without a boot id for so long after a release is an alarm (`20m`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub booting: Option<String>,
    /// A returning Node must be Ready for (`30s`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_ready: Option<String>,
    /// Between taking away the taint and uncordoning (`10s`).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub return_margin: Option<String>,
}

/// What became of a policy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FencingPolicyStatus {
    /// How many nodes it selects.
    #[serde(default)]
    pub nodes: u32,
    /// `Accepted`.
    #[serde(default)]
    pub conditions: Vec<Condition>,
    /// `metadata.generation` that this speaks of.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

// === Incident ===

/// One death or hold. Written by the arbiter only; kept for 30 days.
#[derive(CustomResource, Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "coroner.dev",
    version = "v1alpha1",
    kind = "Incident",
    plural = "incidents",
    shortname = "inc",
    status = "IncidentStatus",
    printcolumn = r#"{"name":"Node","type":"string","jsonPath":".spec.nodeName"}"#,
    printcolumn = r#"{"name":"Phase","type":"string","jsonPath":".status.phase"}"#,
    printcolumn = r#"{"name":"Class","type":"string","jsonPath":".status.class"}"#,
    printcolumn = r#"{"name":"Held","type":"string","jsonPath":".status.heldReason"}"#,
    printcolumn = r#"{"name":"Waiting","type":"string","jsonPath":".status.waitingFor"}"#,
    printcolumn = r#"{"name":"Proof","type":"string","jsonPath":".status.proof.kind"}"#,
    printcolumn = r#"{"name":"Age","type":"date","jsonPath":".metadata.creationTimestamp"}"#
)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
#[schemars(extend("x-kubernetes-validations" = [{
    "rule": "self == oldSelf",
    "message": "an incident is about one death: its spec does not change",
}]))]
pub struct IncidentSpec {
    /// Name of the node.
    pub node_name: String,
    /// Uid of its Node object.
    #[serde(rename = "nodeUID")]
    pub node_uid: String,
    /// SMBIOS UUID of its machine.
    #[serde(rename = "machineID")]
    pub machine_id: String,
    /// The boot that died.
    #[serde(rename = "bootID")]
    pub boot_id: String,
}

/// Where an incident stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IncidentStatus {
    /// Phase of the node: `Held`, `Condemned`, `Fencing`, `ProvenOff`, `Releasing`, `Released`, `Returning`, `Closed`.
    #[serde(default)]
    pub phase: String,
    /// `FoundOff`, `HostSilentBmcOn` or `Ordered`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// Why nothing is done, where it is held.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub held_reason: Option<String>,
    /// Seen in Observe: nothing was done.
    #[serde(default)]
    pub observed: bool,
    /// What it waits for now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub waiting_for: Option<String>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decided_at: Option<String>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proven_at: Option<String>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tainted_at: Option<String>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub released_at: Option<String>,
    /// RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub closed_at: Option<String>,
    /// How it ended: `Returned`, `Reprieve`, `Averted`, `NodeGone`, ...
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ended: Option<String>,
    /// The proof.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proof: Option<ProofStatus>,
    /// SHA-256 over the evidence, as chained in the log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub evidence_digest: Option<String>,
    /// What happened, oldest first.
    #[serde(default)]
    #[schemars(length(max = 64))]
    pub timeline: Vec<TimelineEntry>,
}

/// How it was proven.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProofStatus {
    /// `BmcOff` or `PersonConfirmed`.
    pub kind: String,
    /// Who confirmed, where a person did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
}

/// A line of a timeline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct TimelineEntry {
    /// RFC 3339 with milliseconds, as the leader's wall clock had it when it published: an annotation, not evidence.
    pub at: String,
    /// A stable word.
    pub what: String,
    /// Details.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub detail: String,
}

fn default_network() -> String {
    "default".to_owned()
}
