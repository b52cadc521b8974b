//! What operators allow: policies and bindings, already checked, as the log holds them. The Kubernetes types and
//! their parsing are at the edge (`coroner-arbiter`, `k8s/`).
//!
//! [`select`] says which policy speaks for a node, [`check`] refuses what cannot be meant.

pub mod check;
pub mod select;

use std::collections::BTreeMap;

use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::machine_id::{MachineId, Transform};
use coroner_shared::slice::Timings;
use coroner_shared::time::Span;
use serde::{Deserialize, Serialize};

/// One `FencingPolicy`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Policy {
    /// `metadata.name`.
    pub name: String,
    /// SHA-256 of the spec: what an incident keeps from Condemned on.
    pub hash: String,
    /// Labels a node must carry, all of them; empty selects every node.
    pub node_selector: BTreeMap<String, String>,
    /// Whether anything may be done.
    pub mode: Mode,
    /// Deadlines and thresholds of detection.
    pub rules: Rules,
    /// Limits.
    pub brakes: Brakes,
    /// Durations that are not safety spans.
    pub timings: LifeTimings,
    /// How workloads are released.
    pub release: ReleaseStrategy,
    /// What happens to the machine afterwards.
    pub after_release: AfterRelease,
    /// How often the power state of every enforced machine is read; zero: never in calm times.
    pub power_poll: Span,
    /// No power command for the nodes of this policy.
    pub paused: bool,
    /// Why it stands as Observe whatever its resource says: values that cannot be meant. Its nodes are not left to
    /// another policy meanwhile.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unusable: Option<String>,
}

/// Whether anything may be done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mode {
    /// Say what would be done, do nothing.
    #[default]
    Observe,
    /// Fence and release.
    Enforce,
}

/// How workloads are released.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum ReleaseStrategy {
    /// Taint, and delete the pods ourselves with UID precondition and grace 0.
    #[default]
    Expedite,
    /// Only taint; pod garbage collection takes up to 20 s and needs `Ready=Unknown`.
    Taint,
}

/// What happens to a machine that our attempt turned off, once its leftovers are gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum AfterRelease {
    /// One committed power-on.
    #[default]
    PowerOn,
    /// It stays off.
    StayOff,
}

/// Deadlines and thresholds of the decision rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rules {
    /// Beacon times.
    pub beacons: Timings,
    /// E2: host silent, BMC On, counted from the failure date; at least 4 S.
    pub silent_bmc_on: Span,
    /// E3: how long a correlated set is held before its members are judged one by one for being found off.
    pub correlated_hold: Span,
    /// How long a BMC must be silent or unclear before that is the reason of a hold.
    pub bmc_silent: Span,
    /// A sign of life is "now" when younger than this.
    pub heard: Span,
    /// A node not heard since the group started is `NotSeenYet` for so long.
    pub not_seen_yet: Span,
    /// How long a goodbye Reboot or Shutdown suspends E2.
    pub goodbye: Span,
    /// The longest `AgentRestart`.
    pub agent_restart: Span,
}

/// Limits on how many nodes may be acted on. `None` takes the size-dependent default of `brake`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Brakes {
    /// Condemned or Fencing and not Stalled at once: 1 below 20 nodes, 2 below 200, else min(5, 1 %).
    pub in_flight: Option<u32>,
    /// The same, per failure domain.
    pub per_domain: u32,
    /// Per failure domain within 10 minutes.
    pub per_domain_10m: u32,
    /// Intents in a burst: max(2, 0.5 % of N).
    pub budget: Option<u32>,
    /// One more intent becomes available this often.
    pub budget_refill: Span,
    /// Machines down by our hand: floor((N-1)/2) below 10 nodes, else max(4, floor(0.3 N)).
    pub floor: Option<u32>,
    /// Between two decisions.
    pub pace: Span,
    /// Between two decisions in a storm.
    pub storm_pace: Span,
    /// More members than this that met rule 1 within 10 s, in `storm_domains`, are a storm: max(3, 2 % of N).
    pub storm_members: Option<u32>,
    /// Domains of a storm.
    pub storm_domains: u32,
    /// Deaths of one node in 24 h after which it is `RepeatOffender`.
    pub deaths_per_day: u32,
}

/// Durations that are not safety spans, so that a lab can shorten them and say so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct LifeTimings {
    /// No progress for so long is a stall.
    pub stalled: Span,
    /// Heard for so long with the same boot id after an attempt is Averted.
    pub averted: Span,
    /// On without a boot id for so long after a release is `OnButUnknown`.
    pub booting: Span,
    /// How long a returning Node must be Ready.
    pub return_ready: Span,
    /// Margin between taking away the taint and uncordoning.
    pub return_margin: Span,
}

/// One `MachineBinding`, without its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Binding {
    /// SHA-256 of the spec: a change is verified at once against the old pin.
    pub hash: String,
    /// The BMC's network: siblings on it show whether it is the network that is silent.
    pub network: String,
    /// Named ways in which this BMC differs.
    pub quirks: Vec<Quirk>,
    /// The pin, made at enrolment.
    pub pin: Option<Pin>,
    /// Why no command may go through it until it verifies again.
    pub disabled: Option<String>,
}

/// A named way in which a BMC differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Quirk {
    /// Its power state may be up to a minute old.
    Cached,
    /// It has few sessions: only the leader polls.
    FewSessions,
}

/// What was pinned at enrolment, while the node was healthy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Pin {
    /// The machine.
    pub machine: MachineId,
    /// From the BMC's value to the machine's.
    pub transform: Transform,
    /// From `status.nodeInfo.systemUUID` to the machine's, as seen at enrolment.
    pub system_transform: Transform,
    /// The Systems member.
    pub member: String,
    /// Secondary facts that may refuse: serial, manager UUID, TLS key.
    pub serial: Option<String>,
    /// `UUID` of the Manager.
    pub manager: Option<String>,
    /// SHA-256 of the certificate's public key.
    pub tls_key: Option<String>,
}

impl Rules {
    /// How long a planned silence may last.
    pub const fn planned(&self, kind: GoodbyeKind) -> Span {
        match kind {
            GoodbyeKind::AgentRestart => self.agent_restart,
            GoodbyeKind::Reboot | GoodbyeKind::Shutdown => self.goodbye,
        }
    }

    /// The balanced profile: S 1.25 s, E2 8 s.
    pub const BALANCED: Self = Self {
        beacons: Timings::BALANCED,
        silent_bmc_on: Span::from_secs(8),
        correlated_hold: Span::from_secs(30),
        bmc_silent: Span::from_secs(5),
        heard: Span::from_secs(3),
        not_seen_yet: Span::from_mins(15),
        goodbye: Span::from_mins(20),
        agent_restart: Span::from_secs(120),
    };
    /// The fast profile: beacons each 200 ms, so that S is 1 s and E2's 4 s are still 4 S.
    pub const FAST: Self = Self {
        beacons: Timings { beacon: Span::from_ms(200), suspect: Span::from_secs(1), ..Timings::BALANCED },
        silent_bmc_on: Span::from_secs(4),
        ..Self::BALANCED
    };
    /// The conservative profile.
    pub const CONSERVATIVE: Self = Self { silent_bmc_on: Span::from_secs(20), ..Self::BALANCED };
}

impl Brakes {
    /// The defaults of the product.
    pub const DEFAULT: Self = Self {
        in_flight: None,
        per_domain: 1,
        per_domain_10m: 2,
        budget: None,
        budget_refill: Span::from_secs(60),
        floor: None,
        pace: Span::from_secs(1),
        storm_pace: Span::from_secs(10),
        storm_members: None,
        storm_domains: 2,
        deaths_per_day: 3,
    };
}

impl LifeTimings {
    /// The defaults of the product.
    pub const DEFAULT: Self = Self {
        stalled: Span::from_mins(3),
        averted: Span::from_secs(60),
        booting: Span::from_mins(20),
        return_ready: Span::from_secs(30),
        return_margin: Span::from_secs(10),
    };
}
