//! The log: what may enter it. Everything that binds us, and everything that `apply` reads, is a command.
//!
//! Entries are JSON: they are few, they are read by people in exports, and fields can be added without breaking old
//! logs. A field is never renamed or given another meaning; a new rule is a new level ([`Command::SetLevel`]).

use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::bmc::{CommandAnswer, Login};
use coroner_shared::id::{BootId, Incarnation, IncidentId, NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::PublicKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::time::Span;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;

use crate::hears::Hears;
use crate::phase::{Confirmation, OffReadings, Released};
use crate::policy::{Binding, Pin, Policy};
use crate::view::View;

/// One entry of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Entry {
    /// Time since the previous entry as the proposing leader measured it on its monotonic clock, at most 60 s.
    pub span: Span,
    /// Who proposed it.
    pub leader: ReplicaId,
    /// In which Raft term.
    pub term: u64,
    /// Unique per proposal, so that the proposer knows its own; also what makes an operator's act idempotent.
    pub key: String,
    /// What.
    pub command: Command,
}

/// What an entry says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "do", content = "with")]
pub enum Command {
    /// Time passes; logged every 5 s while anything in the state has a deadline.
    Tick,
    /// The rules of this level are used from here on.
    SetLevel(u32),
    /// A replica says which levels it knows, and where it is.
    ReplicaKnows {
        /// Which replica.
        replica: ReplicaId,
        /// The node it runs on.
        host: NodeName,
        /// Its address.
        address: IpAddr,
        /// The key of its datagrams.
        key: PublicKey,
        /// Highest level it knows.
        level: u32,
    },
    /// A replica left the group: it is asked no more which levels it knows.
    ReplicaGone {
        /// Which replica.
        replica: ReplicaId,
    },

    // --- facts, as commands of the leader ---
    /// What the Node object says. Sent whenever any of it changes.
    NodeFacts(NodeFacts),
    /// The Node object is gone.
    NodeGone {
        /// Its name.
        node: NodeName,
        /// Its uid.
        uid: NodeUid,
    },
    /// A policy was made or changed.
    PolicySet(Box<Policy>),
    /// A policy is gone.
    PolicyGone {
        /// Its name.
        name: String,
    },
    /// A binding was made or changed (its pin and `disabled` are kept by `apply`, not taken from here).
    BindingSet {
        /// Whose.
        node: NodeName,
        /// The binding.
        binding: Binding,
    },
    /// A binding is gone.
    BindingGone {
        /// Whose.
        node: NodeName,
    },
    /// A verification over the production path gave this identity; enrols when there is no pin yet.
    BindingVerified {
        /// Whose.
        node: NodeName,
        /// Of which version of the binding.
        hash: String,
        /// The pin it leads to, or why it refuses.
        result: Result<Pin, String>,
    },

    /// A person says that the machine or its board was changed on purpose: the pin is forgotten, and the next good
    /// verification enrols anew.
    Repin {
        /// Whose.
        node: NodeName,
        /// Who.
        who: String,
        /// Why.
        why: String,
    },

    // --- agents ---
    /// A host registered its key with a reviewed token, or a known key registered a boot.
    Register {
        /// The Node in the token.
        node: NodeName,
        /// Its uid in the token.
        uid: NodeUid,
        /// SMBIOS UUID, or why there is none.
        machine: Result<MachineId, String>,
        /// The boot.
        boot: BootId,
        /// The key.
        key: PublicKey,
        /// Where the agent listens.
        address: IpAddr,
        /// Whether a token was reviewed for this; without one only the committed key may register.
        by_token: bool,
    },
    /// An older key of the same boot was silent for 60 s: it speaks for the host no longer.
    OldKeySilent {
        /// Whose.
        node: NodeName,
        /// Which key.
        key: PublicKey,
    },
    /// A planned silence.
    Goodbye {
        /// Who.
        node: NodeName,
        /// Of which boot.
        boot: BootId,
        /// What is planned.
        kind: GoodbyeKind,
        /// Only beacons with a higher number were sent after it: CLOCK_BOOTTIME in milliseconds when it was said.
        seq: u64,
    },
    /// A proof of life that matters: to an open incident, to a standing goodbye, to a `WouldCondemn` that was said, to
    /// `in_storm`, or to a node that was not heard since its policy became Enforce.
    Heard {
        /// Who.
        node: NodeName,
        /// The boot that was heard.
        boot: BootId,
        /// Sequence number of the beacon; 0 for other proofs.
        seq: u64,
    },
    /// The node under incident fell silent again after [`Command::Heard`].
    SilentAgain {
        /// Who.
        node: NodeName,
    },
    /// The kubelet's Lease changed while an incident was open.
    LeaseMoved {
        /// Who.
        node: NodeName,
    },

    // --- decisions ---
    /// Judge a node by this view: moves it between Alive, Held and Condemned.
    Judge(Box<View>),
    /// A person or policy orders a node off.
    Order {
        /// Whom.
        node: NodeName,
        /// The Node they looked at.
        uid: NodeUid,
        /// Who orders.
        who: String,
        /// Why.
        why: String,
    },
    /// A person says that the machine is off.
    ConfirmOff {
        /// Whom.
        node: NodeName,
        /// What they looked at, and what they say.
        confirmation: Confirmation,
        /// What speaks for the node, as the leader saw when it proposed.
        heard: Hears,
    },
    /// No power command, for everything or one node.
    Pause {
        /// Whom; everything if absent.
        node: Option<NodeName>,
        /// Who.
        who: String,
        /// Why.
        why: String,
    },
    /// The end of a pause.
    Resume {
        /// Whom; everything if absent.
        node: Option<NodeName>,
        /// Who.
        who: String,
        /// Why.
        why: String,
    },
    /// A person ends an incident that waits for its return.
    Return {
        /// Whom.
        node: NodeName,
        /// Who.
        who: String,
        /// Why.
        why: String,
    },
    /// A person clears `RepeatOffender` or `SilentBeforeEnforce`.
    ClearHeld {
        /// Whom.
        node: NodeName,
        /// Who.
        who: String,
        /// Why.
        why: String,
    },

    // --- fencing; every one names the incident it belongs to ---
    /// The last look was good: permission to send power commands.
    Intent {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
        /// Whether the BMC is to be read only (a machine found off on a BMC that is not steady, or a pause).
        read_only: bool,
    },
    /// A power command is about to be sent.
    Attempt {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
        /// One more than the last.
        number: u32,
        /// Over which log-in.
        login: Login,
        /// Whether the machine was read On just before.
        was_on: bool,
    },
    /// What the BMC answered.
    AttemptAnswered {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
        /// Which attempt.
        number: u32,
        /// The answer.
        answer: CommandAnswer,
    },
    /// The intent makes no progress.
    Stalled {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
        /// Why, for people.
        why: String,
        /// Whether the binding is disabled until it verifies again (identity refused, or Off while heard).
        disable_binding: bool,
    },
    /// Found off, but On was read: the intent closes, the node is judged again.
    FoundOnAgain {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
    },
    /// The BMC says On, or nothing, after an attempt; decides `Averted` together with being heard.
    StillOn {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
        /// `true`: On was read; `false`: the BMC has said nothing for 10 minutes.
        read: bool,
    },
    /// Off was proven.
    Proven {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
        /// Of which life.
        incarnation: Incarnation,
        /// The attempt whose command the readings follow; 0: none was sent.
        attempt: u32,
        /// The readings.
        readings: Box<OffReadings>,
    },

    // --- release and return ---
    /// The last read could not be made.
    LastReadFailed {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
        /// Why.
        why: String,
    },
    /// The last read said On.
    LastReadOn {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
    },
    /// The last read was good: the release begins.
    ReleaseBegun {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
        /// What the Node was like and what must go (kept from the first time in a re-fence).
        before: Released,
        /// Readings made again for the last read, where the proof was older than 60 s or something spoke against it
        /// since.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        again: Option<Box<OffReadings>>,
    },
    /// The taint was seen on the Node.
    TaintSeen {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
    },
    /// None of the recorded pods and attachments is left.
    LeftoversGone {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
    },
    /// The BMC was read On, or Off again, after the release.
    PowerAfterRelease {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
        /// Whether it is on.
        on: bool,
    },
    /// One committed attempt to power the machine on.
    PowerOn {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
    },
    /// The taint and the annotation were taken away and read back as gone.
    TaintRemoved {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
    },
    /// Everything of ours is gone from the Node.
    Returned {
        /// Whom.
        node: NodeName,
        /// Which death.
        incident: IncidentId,
    },
    /// A page was given (kube event and metric), so that a new leader does not give it again.
    Paged {
        /// About whom.
        node: NodeName,
        /// For what.
        reason: String,
    },
}

/// What `apply` needs to know of a Node object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NodeFacts {
    /// `metadata.name`.
    pub node: NodeName,
    /// `metadata.uid`.
    pub uid: NodeUid,
    /// `status.nodeInfo.systemUUID` as the kubelet gives it.
    pub system_uuid: String,
    /// `status.nodeInfo.bootID`, if it is one.
    pub boot: Option<BootId>,
    /// `Ready=True` now.
    pub ready: bool,
    /// Labels that policies and domains use (all labels of the Node, at most 64 KiB).
    pub labels: std::collections::BTreeMap<String, String>,
    /// Control-plane node (role label, or a static pod of one of its programs).
    pub control_plane: bool,
    /// An etcd voter, as far as known.
    pub etcd_voter: bool,
    /// Whether our out-of-service taint stands on it.
    pub tainted_by_us: bool,
}

/// What became of an entry. Told to its proposer, and the same on every replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    /// It changed the state.
    Done,
    /// It was right and nothing had to change.
    Unchanged,
    /// It is not permitted, and why.
    Refused(Refusal),
    /// It belongs to an attempt, incident or life that is over.
    Stale,
}

/// A named refusal: not an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Refusal {
    /// A stable word.
    pub reason: String,
    /// What happened, to which node, and what the operator can do.
    pub message: String,
}
