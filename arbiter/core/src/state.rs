//! What the log has made: everything that all replicas know alike. Ordered maps only, so that equal logs give equal
//! bytes.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;

use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::id::{BootId, Incarnation, IncidentId, NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::PublicKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::time::{Mono, Span};
use serde::{Deserialize, Serialize};

use crate::command::NodeFacts;
use crate::evidence::Evidence;
use crate::phase::{Attempt, EvidenceClass, HeldReason, Phase};
use crate::policy::{Binding, Policy};

/// The level of the rules that a fresh group begins with.
pub const FIRST_LEVEL: u32 = 1;

/// The state of the arbiter.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
    /// Who observes whom; [`crate::observers::reseat`] alone changes it.
    #[serde(default)]
    pub observers: crate::observers::Observers,
    /// Rises whenever membership, addresses, keys or domains change: versions of the slices.
    pub membership: u64,
    /// Whose part of the membership the present entry changed; empty between entries.
    #[serde(skip)]
    pub(crate) moved: BTreeSet<NodeName>,
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
    /// Whether a policy in Enforce speaks for it, and whether it was heard since one does.
    pub enforced: Enforced,
    /// Caught in a storm: held until heard, found off or ordered.
    pub in_storm: bool,
    /// Failure domain that counts, with the one before and until when both count.
    pub domain: String,
    /// The domain before a change of labels, counted with the new one until the given log time.
    pub domain_before: Option<(String, Mono)>,
    /// In Observe: the boot for which `WouldCondemn` was already said.
    pub would_condemn_said: Option<BootId>,
    /// Log time since when its Node has been Ready without a break and under the same boot id.
    pub ready_since: Option<Mono>,
    /// Log time since when the boot under incident has been heard, while it is; ended by `SilentAgain`.
    pub heard_since: Option<Mono>,
    /// Log time at which the boot under incident was last heard, never earlier than it really was.
    pub heard: Option<Mono>,
    /// Log time at which the kubelet's Lease was last seen to change during the open incident.
    pub lease_moved: Option<Mono>,
    /// Standing conditions that a page was given for, with its log time; forgotten when the condition ends.
    pub paged: BTreeMap<String, Mono>,
    /// Things that happened once and still are to be paged, by word.
    pub alarms: BTreeMap<String, String>,
}

/// Whether a policy in Enforce speaks for a node: a silence that began before is `SilentBeforeEnforce`.
///
/// What tells before from after is a sign of life in the log. Times cannot: log time stands still while nothing happens,
/// what passes around a change of leader is in no entry, and ages leave out the pauses of those who count them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Enforced {
    /// None does.
    #[default]
    Observe,
    /// One does, and the node was not heard since: a silence is not acted on unasked.
    Unheard,
    /// One does, and the node was heard since, or a person said that its silence may be acted on.
    Cleared,
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
    /// A beacon of that boot with a higher number was sent after it, and ends it. No age can tell: ages of signs leave
    /// out what a process was paused, log time does not.
    pub seq: u64,
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
    /// Name and hash of the policy that binds it, once condemned.
    pub policy: Option<(String, String)>,
    /// That policy as it was then; kept while the incident is open, since a later change can only stop it.
    pub terms: Option<Box<Policy>>,
    /// Failure domain that counts for it, once condemned.
    pub domain: String,
    /// Digest of the evidence it was decided on.
    pub evidence: Option<String>,
    /// That evidence: what `explain` judges again.
    pub record: Option<Box<Evidence>>,
    /// The newest attempt of the incident, whatever came after: what the deadline of a return runs from.
    pub last_attempt: Option<Attempt>,
    /// Whether an attempt went out to a machine that was read On.
    pub sent_while_on: bool,
    /// How it was proven: `BmcOff`, or `PersonConfirmed by <who>`.
    pub proven_by: Option<String>,
    /// Log time of the condemnation (or of a person's confirmation from a hold).
    pub decided: Option<Mono>,
    /// Log time of the newest proof.
    pub proven: Option<Mono>,
    /// Log time at which the taint was seen.
    pub tainted: Option<Mono>,
    /// Our taint was found on a Node of which this group knows nothing.
    pub orphaned: bool,
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
    /// Entry of the log that last changed it: what its Incident resource is a copy of.
    pub version: u64,
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
    /// How much of the rolling budget is used, as the time that refills it, counted at `spent_at`: each intent adds one
    /// `budget_refill`, and it runs down with log time.
    pub spent: Span,
    /// Log time at which `spent` was counted.
    pub spent_at: Mono,
    /// Decisions on each domain within 10 minutes: log times, and which incident (it does not count against itself).
    pub by_domain: BTreeMap<String, VecDeque<(Mono, IncidentId)>>,
    /// The last decision.
    pub last_decision: Option<Mono>,
    /// Since when a storm is on, and when it was last seen.
    pub storm: Option<(Mono, Mono)>,
}

// === impl State ===

impl Default for State {
    /// The state of a group that has applied nothing.
    fn default() -> Self {
        Self {
            level: FIRST_LEVEL,
            applied: 0,
            now: Mono::default(),
            nodes: BTreeMap::new(),
            policies: BTreeMap::new(),
            bindings: BTreeMap::new(),
            incidents: BTreeMap::new(),
            replicas: BTreeMap::new(),
            pause: None,
            brakes: BrakeBook::default(),
            evidence_chain: String::new(),
            observers: crate::observers::Observers::default(),
            membership: 0,
            moved: BTreeSet::new(),
            acts: VecDeque::new(),
        }
    }
}

impl State {
    /// N of the brakes: all registered members, whatever their phase.
    pub fn members(&self) -> u32 {
        u32::try_from(self.nodes.values().filter(|n| n.member.is_some()).count()).unwrap_or(u32::MAX)
    }

    /// The open incident of a node.
    pub fn open_incident(&self, node: &NodeName) -> Option<(&IncidentId, &Incident)> {
        let id = self.nodes.get(node)?.phase.incident()?;
        self.incidents.get_key_value(id)
    }
}

// === impl Node ===

impl Node {
    /// A node of which nothing is known but its name; its host stands for its failure domain.
    pub fn new(name: &NodeName, now: Mono) -> Self {
        Self {
            facts: None,
            member: None,
            phase: Phase::Alive,
            phase_since: now,
            goodbye: None,
            pause: None,
            deaths: VecDeque::new(),
            repeat_offender: false,
            enforced: Enforced::Observe,
            in_storm: false,
            domain: crate::domain::of_host(name),
            domain_before: None,
            would_condemn_said: None,
            ready_since: None,
            heard_since: None,
            heard: None,
            lease_moved: None,
            paged: BTreeMap::new(),
            alarms: BTreeMap::new(),
        }
    }

    /// Whether it waits, held, for somebody to say that a silence from before Enforce may be acted on.
    pub fn is_silent_before_enforce(&self) -> bool {
        self.enforced == Enforced::Unheard && matches!(self.phase, Phase::Held { .. })
    }

    /// The life that its registration speaks of, where the host has an identity.
    pub fn incarnation(&self) -> Option<Incarnation> {
        let member = self.member.as_ref()?;
        let machine = *member.machine.as_ref().ok()?;
        Some(Incarnation { node: member.uid.clone(), machine, boot: member.boot })
    }

    /// The boot that its kubelet speaks of and its agent has not registered, where that is a newer one than the
    /// registered: one that Coroner never heard, and so cannot miss.
    pub fn unregistered_boot(&self) -> Option<BootId> {
        let member = self.member.as_ref()?;
        let boot = self.facts.as_ref().filter(|f| f.uid == member.uid)?.boot?;
        (boot != member.boot && !member.left_boots.contains(&boot)).then_some(boot)
    }

    /// Whether the boot that runs there, as far as anybody knows, has registered: only then is it watched.
    pub fn is_registered(&self) -> bool {
        let stands = self.member.as_ref().is_some_and(|member| !member.boot_is_over());
        stands && self.unregistered_boot().is_none()
    }

    /// The life that a person means who orders the node off: the newer one of its kubelet's word, where its agent has
    /// not registered that, else the registered one.
    pub fn life_to_order(&self) -> Option<Incarnation> {
        let life = self.incarnation()?;
        let stands = self.member.as_ref().filter(|m| !m.boot_is_over()).map(|m| m.boot);
        Some(Incarnation { boot: self.unregistered_boot().or(stands)?, ..life })
    }
}

// === impl Incident ===

impl Incident {
    /// The class that power commands of this incident go by. A node that was only held when a person's word proved it
    /// off has none; heard again after its release it is fenced by the rules of silence.
    pub fn fenced_as(&self) -> EvidenceClass {
        self.class.clone().unwrap_or(EvidenceClass::HostSilentBmcOn)
    }
}

// === impl Member ===

impl Member {
    /// Whether the registered boot is over: the kubelet speaks of a newer one, and the agent has not registered it.
    pub fn boot_is_over(&self) -> bool {
        self.left_boots.contains(&self.boot)
    }
}
