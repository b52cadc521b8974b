//! What the desk notices that is no verdict. Recomputed at each step, so that each ends by itself.
//!
//! ```text
//!   Scene, Fleet, verdicts --> Vec<Finding>, step down?
//! ```

use std::collections::BTreeMap;
use std::fmt;

use coroner_shared::health::HealthSummary;
use coroner_shared::id::NodeName;
use coroner_shared::time::Span;

use super::StepDown;
use super::fleet::Fleet;
use super::scene::{HEARD, Scene};
use super::signs;
use crate::verdict::{Quorum, is_blind};
use crate::view::{Verdict, View};
use crate::witness::trust::PATH_WORKED_WITHIN;

/// Something noticed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Finding {
    node: Option<NodeName>,
    kind: FindingKind,
}

/// What was noticed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FindingKind {
    /// Beacons stopped, and the kubelet renews its Lease.
    AgentDown,
    /// Some hear it, some do not.
    Partial,
    /// Beacons arrive and say that the kubelet is dead.
    KubeletDead,
    /// No path to it is known to work: probes cannot tell anything.
    ProbeBlind,
    /// Two machines use its identity.
    Duplicate,
    /// A new key speaks for it while the old one is still valid.
    KeyChanged,
    /// Its BMC says Off while its beacons arrive.
    OffWhileHeard,
    /// No other failure domain has an observer that counts: hosts are counted as domains.
    TopologyWeak,
    /// The silence of many is unexplained, or there is no quorum.
    ArbiterBlind,
}

/// All findings of this moment.
pub(super) fn of(
    scene: &Scene<'_>,
    fleet: &Fleet<'_>,
    judged: &BTreeMap<NodeName, (View, Verdict)>,
) -> Vec<Finding> {
    let mut findings: Vec<Finding> =
        fleet.partial().map(|n| Finding::about(n, FindingKind::Partial)).collect();
    for name in &scene.listed {
        let ill = scene.pooled.health(name).has(HealthSummary::KUBELET_DEAD);
        if ill && scene.pooled.heard_within(name, HEARD) {
            findings.push(Finding::about(name, FindingKind::KubeletDead));
        }
        if scene.pooled.is_duplicate(name) {
            findings.push(Finding::about(name, FindingKind::Duplicate));
        }
        let key_changed = |m: &crate::state::Member| m.old_key.is_some();
        if scene.node(name).and_then(|n| n.member.as_ref()).is_some_and(key_changed) {
            findings.push(Finding::about(name, FindingKind::KeyChanged));
        }
    }
    let contradicted = scene.sight.bmc.keys().filter(|name| signs::is_off_while_heard(scene, name));
    findings.extend(contradicted.map(|name| Finding::about(name, FindingKind::OffWhileHeard)));
    for (name, (view, verdict)) in judged {
        findings.extend(of_suspect(scene, name, view, verdict).into_iter().map(|k| Finding::about(name, k)));
    }
    let sees = |(view, _): &(View, Verdict)| is_blind(&view.fleet);
    if !scene.sight.quorum || judged.values().any(sees) {
        findings.push(Finding { node: None, kind: FindingKind::ArbiterBlind });
    }
    findings.sort_unstable();
    findings.dedup();
    findings
}

/// Whether another replica hears far more than this one, which finds the silence of many unexplained.
pub(super) fn step_down(scene: &Scene<'_>, fleet: &Fleet<'_>) -> Option<StepDown> {
    let own = scene.pooled.unheard_by(scene.sight.me, HEARD)?;
    let others = scene.pooled.reached().filter(|r| *r != scene.sight.me);
    let best = others.filter_map(|r| scene.pooled.unheard_by(r, HEARD)).min()?;
    let alive = fleet.alive();
    // More than one and more than a tenth unheard here, at most half of that there.
    let deaf = own > 1 && own * 10 > alive;
    (deaf && best * 2 <= own).then_some(StepDown::HearsLess)
}

fn of_suspect(scene: &Scene<'_>, name: &NodeName, view: &View, verdict: &Verdict) -> Vec<FindingKind> {
    let mut found = Vec::new();
    let silence = view.silence();
    let silent = silence >= scene.rules(name).beacons.suspect;
    if silent && view.lease.changed_ago.is_some_and(|ago| ago < silence && ago < silence_of_a_kubelet(view)) {
        found.push(FindingKind::AgentDown);
    }
    let outcomes = view.probes.iter().flat_map(|p| &p.outcomes);
    let outcomes = outcomes.chain(view.observers.iter().flat_map(|o| &o.probes));
    let works = |ago: &Span| *ago <= silence + PATH_WORKED_WITHIN;
    // An observer's path that worked is known before anybody was asked, or has said anything.
    let by_observers = scene.state().observers.of(name).iter().map(|o| scene.pooled.edge(o, name).worked_ago);
    if silent && !outcomes.map(|o| o.worked_ago).chain(by_observers).flatten().any(|ago| works(&ago)) {
        found.push(FindingKind::ProbeBlind);
    }
    let rules = scene.rules(name);
    let quorum = Quorum::of(view, &rules);
    // Where no observer counts at all, the domains are not what is wrong.
    let weak = quorum.topology_weak && !quorum.eligible.is_empty();
    if weak && *verdict != Verdict::Pending(crate::view::Pending::Heard) {
        found.push(FindingKind::TopologyWeak);
    }
    found
}

/// A kubelet that misses two renewals is not alive.
fn silence_of_a_kubelet(view: &View) -> Span {
    view.lease.interval.times(2)
}

// === impl Finding ===

impl Finding {
    fn about(node: &NodeName, kind: FindingKind) -> Self {
        Self { node: Some(node.clone()), kind }
    }

    /// About which node; `None`: about the cluster.
    pub const fn node(&self) -> Option<&NodeName> {
        self.node.as_ref()
    }

    /// What was noticed.
    pub const fn kind(&self) -> FindingKind {
        self.kind
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.node {
            Some(node) => write!(f, "{node}: {}", self.kind),
            None => write!(f, "{}", self.kind),
        }
    }
}

impl fmt::Display for FindingKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::AgentDown => "AgentDown: no beacons, but its kubelet renews its Lease; it is not fenced",
            Self::Partial => "Partial: some hear it and some do not; it is not fenced",
            Self::KubeletDead => "KubeletDead: its beacons say that its kubelet does not answer",
            Self::ProbeBlind => "ProbeBlind: no path to it is known to work, so probes cannot tell anything",
            Self::Duplicate => "Duplicate: two machines use its identity; neither can be fenced",
            Self::KeyChanged => "KeyChanged: a new key speaks for it while the old one is still valid",
            Self::OffWhileHeard => {
                "OffWhileHeard: its BMC says Off while its beacons arrive; check its MachineBinding"
            }
            Self::TopologyWeak => {
                "TopologyWeak: no other failure domain observes it, so hosts count as domains"
            }
            Self::ArbiterBlind => {
                "ArbiterBlind: too many members are silent without anybody saying why; nothing is decided"
            }
        })
    }
}
