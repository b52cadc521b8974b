//! The life of a node as the arbiter sees it: its phases and what each of them holds.

use coroner_shared::bmc::{CommandAnswer, Login, PowerReading};
use coroner_shared::id::{BootId, IncidentId, NodeUid, ReplicaId};
use coroner_shared::machine_id::Transform;
use coroner_shared::time::{Mono, Span};
use serde::{Deserialize, Serialize};

/// Where a node stands. Each variant holds what is true in it and nothing else; every edge between them is a row of
/// the table in `apply`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "phase", rename_all = "camelCase")]
pub enum Phase {
    /// Nothing is wrong, or nothing is known to be.
    #[default]
    Alive,
    /// Silent past its deadline but not condemned; judged again on every change.
    Held {
        /// The hold's own incident.
        incident: IncidentId,
        /// Why nothing is done.
        why: HeldReason,
    },
    /// The verdict Dead is committed; power-off is wanted, not yet ordered.
    Condemned {
        /// This death.
        incident: IncidentId,
        /// On what evidence.
        class: EvidenceClass,
    },
    /// Power commands are permitted for one incarnation.
    Fencing {
        /// This death.
        incident: IncidentId,
        /// The permission.
        intent: Intent,
        /// The newest committed sending, if any.
        attempt: Option<Attempt>,
        /// Set when this is a re-fence: our taint stands.
        released: Option<Released>,
    },
    /// The machine is proven off; nothing is written to Kubernetes yet (or, in a re-fence, our taint still stands).
    ProvenOff {
        /// This death.
        incident: IncidentId,
        /// The proof.
        proof: FenceProof,
        /// Set when this ends a re-fence.
        released: Option<Released>,
        /// Why the release waits, once a last read could not be made.
        last_read_failed: Option<LastReadFailed>,
    },
    /// The release is being written.
    Releasing {
        /// This death.
        incident: IncidentId,
        /// The proof it rests on.
        proof: FenceProof,
        /// What the Node was like, and what must go.
        released: Released,
    },
    /// The taint was seen on the Node.
    Released {
        /// This death.
        incident: IncidentId,
        /// The proof it rests on.
        proof: FenceProof,
        /// What the Node was like, and what must go.
        released: Released,
        /// Log time since when the BMC has said On; shown as `Booting`, later as `OnButUnknown`.
        on_since: Option<Mono>,
    },
    /// A new boot of the pinned machine was seen.
    Returning {
        /// The incident that ends with this.
        incident: IncidentId,
        /// The new boot.
        boot: BootId,
        /// Set when our taint stands and must be taken away.
        released: Option<Released>,
        /// Log time at which taint and annotation were read back as gone; the margin before uncordoning runs from here.
        taint_removed: Option<Mono>,
        /// Who ordered the return without waiting for Ready and leftovers (`coroner return`).
        waived: Option<String>,
    },
}

/// On what evidence a node counts as dead, read in this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EvidenceClass {
    /// E0: the BMC of the right machine says Off.
    FoundOff,
    /// E2: the host is silent, the BMC says On.
    HostSilentBmcOn,
    /// A person's or a policy's order; no evidence of death is needed.
    Ordered {
        /// Who ordered it: a user name, `policy/<name>` or `local-root@host (name)`.
        who: String,
        /// Why, in their words.
        why: String,
    },
}

/// Why a silent node is not condemned. Every one pages or shows what is waited for; none releases anything.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub enum HeldReason {
    /// Fewer eligible observers than the rule needs are silent or exist.
    TooFewObservers,
    /// The kernel answers (ping, accept or reset), nothing else does.
    HostAnswersOnly,
    /// Too many members are heard by some and not by others.
    NetworkPartial,
    /// A whole failure domain, or a large part of one, fell silent together (E3).
    DomainDown,
    /// The BMC is silent, a sibling on its network answers (E1).
    BmcSilent,
    /// The BMC and its siblings are silent (E1).
    BmcNetworkSilent,
    /// The BMC answers something that is neither On nor Off, or no BMC is bound or verified.
    BmcUnclear(String),
    /// The API server cannot be read, so the kubelet's Lease cannot speak.
    ApiUnreadable,
    /// The kubelet renews its Lease: only our agent is silent.
    KubeletAlive,
    /// The silence of many is unexplained: the arbiter may be the blind one.
    ArbiterBlind,
    /// Not heard since this group of replicas started.
    NotSeenYet,
    /// Two nodes can never judge each other.
    TwoNodes,
    /// Power commands are paused by a person or a policy.
    Paused {
        /// By whom.
        who: String,
    },
    /// A brake refuses.
    Brake(Brake),
    /// Silent already when its policy became Enforce; needs to be heard once, or an order.
    SilentBeforeEnforce,
    /// No policy, or a policy in Observe: nothing may be done.
    Observe,
    /// Two policies select this node.
    PolicyConflict(Vec<String>),
    /// The node carries the opt-out label.
    Excluded,
    /// No binding, or one that is not verified: the machine cannot be fenced.
    NotFenceable(String),
    /// The BMC's identity refuses.
    Identity(String),
    /// Condemned as found off, but On was read.
    FoundOnAgain,
    /// Another machine appeared under the same Node: a security event.
    MachineChanged {
        /// The pinned machine.
        pinned: String,
        /// The one that appeared.
        found: String,
    },
    /// Two machines use one identity.
    Duplicate,
    /// An unsigned answer that probers could not reproduce is disputed.
    Disputed,
}

/// The brakes of `FencingPolicy`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub enum Brake {
    /// Too many nodes are Condemned or Fencing at once.
    InFlight,
    /// Another node of the same failure domain is being acted on.
    PerDomain,
    /// Too many nodes of one failure domain within 10 minutes.
    PerDomain10m,
    /// The rolling budget is used up.
    Budget,
    /// Too many machines are down by our hand.
    Floor,
    /// One decision per second (ten in a storm).
    Pace,
    /// Many members fell silent at once.
    Storm,
    /// The node's loss, or a second one of its kind in flight, would hurt the control plane.
    ControlPlane,
    /// Two hosts of replicas.
    ArbiterHosts,
    /// Three deaths in a day.
    RepeatOffender,
}

/// The committed permission to send power commands for one incarnation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Intent {
    /// Log time at which it was committed.
    pub since: Mono,
    /// When it last made progress; three minutes without one is a stall.
    pub progress: Mono,
    /// Why it makes no progress, if so: it pages and has given its slots back.
    pub stalled: Option<String>,
    /// Number of the last attempt committed. Numbers rise over the whole incident, so that a result that comes late
    /// can never be taken for one of a later intent.
    pub attempts: u32,
    /// No command may be sent for it: a machine found off on a BMC that is not steady, or a pause.
    pub read_only: bool,
}

/// A last read that could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LastReadFailed {
    /// Log time of the first failure; a minute later it pages.
    pub since: Mono,
    /// Why, for people; of the newest failure.
    pub why: String,
}

/// One committed sending of a power command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Attempt {
    /// Rises by one with each attempt of the intent; results of another number change nothing.
    pub number: u32,
    /// Who sends.
    pub replica: ReplicaId,
    /// In which Raft term.
    pub term: u64,
    /// The log-in it is sent over, for a successor to delete.
    pub login: Login,
    /// Log time of the commit; the command's socket dies 10 s later.
    pub at: Mono,
    /// What the BMC answered, once known. Never evidence of off.
    pub answer: Option<CommandAnswer>,
    /// Whether the machine was read On just before: such an attempt turned it off by our hand.
    pub was_on: bool,
}

/// Committed certainty that a machine is off: a closed set. Only `apply` makes one: outside of this crate a variant can
/// be read and not built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", tag = "kind")]
pub enum FenceProof {
    /// The BMC of the right machine said Off, by the table of `proof`.
    #[non_exhaustive]
    BmcOff {
        /// The machine, its boot and Node that the proof speaks of.
        incarnation: coroner_shared::id::Incarnation,
        /// The readings.
        readings: OffReadings,
        /// Log time of the proof.
        at: Mono,
    },
    /// A person confirmed it, bound to incident, Node and boot.
    #[non_exhaustive]
    PersonConfirmed {
        /// The machine, its boot and Node that the proof speaks of.
        incarnation: coroner_shared::id::Incarnation,
        /// Who.
        who: String,
        /// Their words.
        why: String,
        /// Log time of the proof.
        at: Mono,
    },
}

/// The readings of a proof: consecutive, exact Off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct OffReadings {
    /// The readings, oldest first, each with the span from the first one's answer to when this one was asked for.
    pub readings: Vec<(Span, PowerReading)>,
    /// One more reading over the first session after the last one, where only that can show that the BMC did not
    /// restart in between.
    pub closing: Option<PowerReading>,
    /// Whether the reader knew this BMC as steady throughout.
    pub steady: bool,
    /// How a ForceOff sent before them was answered; `None`: none was sent.
    pub command: Option<CommandAnswer>,
    /// The member that was read, as pinned.
    pub member: String,
    /// The transform that matched, as pinned.
    pub transform: Transform,
    /// UUID of the member as the BMC gave it before the command (before the readings, where none was sent).
    pub identity_before: String,
    /// UUID of the member as the BMC gave it in the last reading itself, over the new session in which identity had
    /// matched; where that body has none, as it was read after it.
    pub identity_after: String,
    /// Whether the last reading came over a new session.
    pub last_over_new_session: bool,
    /// Whether the BMC's answers are cached for longer (quirk `cached`).
    pub cached: bool,
}

/// What the Node was like before we touched it, and what must be gone before it may return.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Released {
    /// Whether it was cordoned by somebody else.
    pub was_cordoned: bool,
    /// Whether somebody else's out-of-service taint stood on it, which is then not ours to take away.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_tainted: bool,
    /// Pods that must go, by uid, with namespace/name for people.
    pub pods: Vec<(String, String)>,
    /// VolumeAttachments that must go, by uid, with name.
    pub attachments: Vec<(String, String)>,
}

/// What a person's confirmation is bound to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Confirmation {
    /// The incident they looked at.
    pub incident: IncidentId,
    /// The Node they looked at.
    pub node: NodeUid,
    /// The boot they looked at.
    pub boot: BootId,
    /// Who, as authenticated.
    pub who: String,
    /// Why they are sure, typed.
    pub why: String,
}

// === impl Phase ===

impl Phase {
    /// The open incident, if there is one.
    pub fn incident(&self) -> Option<&IncidentId> {
        match self {
            Self::Alive => None,
            Self::Held { incident, .. }
            | Self::Condemned { incident, .. }
            | Self::Fencing { incident, .. }
            | Self::ProvenOff { incident, .. }
            | Self::Releasing { incident, .. }
            | Self::Released { incident, .. }
            | Self::Returning { incident, .. } => Some(incident),
        }
    }

    /// Whether it counts as dead: condemned or worse, and not on its way back. Held is not yet, and may well live.
    pub const fn is_dead(&self) -> bool {
        match self {
            Self::Condemned { .. }
            | Self::Fencing { .. }
            | Self::ProvenOff { .. }
            | Self::Releasing { .. }
            | Self::Released { .. } => true,
            Self::Alive | Self::Held { .. } | Self::Returning { .. } => false,
        }
    }

    /// Whether our taint stands or is being written: such a node observes nobody.
    pub fn out_of_service(&self) -> bool {
        match self {
            Self::Alive | Self::Held { .. } | Self::Condemned { .. } => false,
            Self::Releasing { .. } | Self::Released { .. } => true,
            Self::Fencing { released, .. }
            | Self::ProvenOff { released, .. }
            | Self::Returning { released, .. } => released.is_some(),
        }
    }

    /// The phase's name as shown everywhere.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Alive => "Alive",
            Self::Held { .. } => "Held",
            Self::Condemned { .. } => "Condemned",
            Self::Fencing { .. } => "Fencing",
            Self::ProvenOff { .. } => "ProvenOff",
            Self::Releasing { .. } => "Releasing",
            Self::Released { .. } => "Released",
            Self::Returning { .. } => "Returning",
        }
    }
}

impl FenceProof {
    /// Which life the proof speaks of.
    pub fn incarnation(&self) -> &coroner_shared::id::Incarnation {
        match self {
            Self::BmcOff { incarnation, .. } | Self::PersonConfirmed { incarnation, .. } => incarnation,
        }
    }

    /// Log time of the proof.
    pub fn at(&self) -> Mono {
        match self {
            Self::BmcOff { at, .. } | Self::PersonConfirmed { at, .. } => *at,
        }
    }
}

impl HeldReason {
    /// The reason as one stable word, without its details.
    pub fn word(&self) -> &'static str {
        match self {
            Self::TooFewObservers => "TooFewObservers",
            Self::HostAnswersOnly => "HostAnswersOnly",
            Self::NetworkPartial => "NetworkPartial",
            Self::DomainDown => "DomainDown",
            Self::BmcSilent => "BmcSilent",
            Self::BmcNetworkSilent => "BmcNetworkSilent",
            Self::BmcUnclear(_) => "BmcUnclear",
            Self::ApiUnreadable => "ApiUnreadable",
            Self::KubeletAlive => "KubeletAlive",
            Self::ArbiterBlind => "ArbiterBlind",
            Self::NotSeenYet => "NotSeenYet",
            Self::TwoNodes => "TwoNodes",
            Self::Paused { .. } => "Paused",
            Self::Brake(brake) => brake.word(),
            Self::SilentBeforeEnforce => "SilentBeforeEnforce",
            Self::Observe => "Observe",
            Self::PolicyConflict(_) => "PolicyConflict",
            Self::Excluded => "Excluded",
            Self::NotFenceable(_) => "NotFenceable",
            Self::Identity(_) => "Identity",
            Self::FoundOnAgain => "FoundOnAgain",
            Self::MachineChanged { .. } => "MachineChanged",
            Self::Duplicate => "Duplicate",
            Self::Disputed => "Disputed",
        }
    }
}

impl Brake {
    /// The brake as one stable word.
    pub fn word(self) -> &'static str {
        match self {
            Self::InFlight => "InFlight",
            Self::PerDomain => "PerDomain",
            Self::PerDomain10m => "PerDomain10m",
            Self::Budget => "Budget",
            Self::Floor => "Floor",
            Self::Pace => "Pace",
            Self::Storm => "Storm",
            Self::ControlPlane => "ControlPlane",
            Self::ArbiterHosts => "ArbiterHosts",
            Self::RepeatOffender => "RepeatOffender",
        }
    }
}

impl EvidenceClass {
    /// The class as one stable word, without its details.
    pub fn word(&self) -> &'static str {
        match self {
            Self::FoundOff => "FoundOff",
            Self::HostSilentBmcOn => "HostSilentBmcOn",
            Self::Ordered { .. } => "Ordered",
        }
    }
}
