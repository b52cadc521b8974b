//! A site: how many machines in which racks, what their BMCs are like, where the replicas live, what the policy says.

use coroner_arbiter_core::policy::{
    AfterRelease, Brakes, LifeTimings, Mode, Policy, Quirk, ReleaseStrategy, Rules,
};
use coroner_shared::id::ClusterId;
use coroner_shared::time::Span;
use std::collections::BTreeMap;

use super::bmc::Traits;

/// A site.
#[derive(Clone, Debug)]
pub struct Site {
    /// Of all chance in the run.
    pub seed: u64,
    /// Machines; node `n0` is machine 0.
    pub nodes: usize,
    /// The rack of each machine, where its Node carries a label.
    pub racks: Vec<Option<usize>>,
    /// Control-plane nodes.
    pub control_plane: Vec<bool>,
    /// The machines that host the replicas: one or three.
    pub replicas: Vec<usize>,
    /// Workloads that at most one machine may run.
    pub workloads: usize,
    /// Policies by name.
    pub policies: BTreeMap<String, Policy>,
    /// Whether everything boots at the beginning.
    pub cold: bool,
    /// From power to a system, least and most.
    pub firmware: (Span, Span),
    /// A replica makes a snapshot after so many entries.
    pub snapshot_every: u64,
    /// What each machine's BMC is like; the one at index `i` is bound to node `i`.
    pub(crate) bmcs: Vec<BmcPlan>,
    pub(crate) cluster: ClusterId,
}

/// One BMC.
#[derive(Clone, Debug)]
pub(crate) struct BmcPlan {
    /// The machine whose power it really holds.
    pub(crate) machine: usize,
    /// How it differs from a good one, given the text of its machine's UUID.
    pub(crate) change: fn(&mut Traits),
    pub(crate) quirks: Vec<Quirk>,
    pub(crate) network: usize,
    /// Whether it is bound at all.
    pub(crate) bound: bool,
    /// A machine whose System it shows as well, first: a chassis.
    pub(crate) neighbour: Option<usize>,
}

// === impl Site ===

impl Site {
    /// Nodes in racks one after the other, everything good; replicas on the first nodes of different racks. `racks` 0:
    /// no labels.
    #[must_use]
    pub fn plain(seed: u64, nodes: usize, racks: usize) -> Self {
        let rack = |n: usize| if racks == 0 { None } else { Some(n % racks) };
        Self {
            seed,
            nodes,
            racks: (0..nodes).map(rack).collect(),
            control_plane: (0..nodes).map(|n| n < 3 && nodes > 5).collect(),
            replicas: (0..3).collect(),
            workloads: nodes.min(4),
            policies: BTreeMap::from([("all".to_owned(), policy("all"))]),
            cold: false,
            firmware: (Span::from_secs(40), Span::from_secs(90)),
            snapshot_every: 2_000,
            bmcs: (0..nodes).map(BmcPlan::good).collect(),
            cluster: ClusterId::from_bytes([7; 16]),
        }
    }

    /// The BMC that a binding of that hash names.
    pub(crate) fn bmc_at(&self, hash: &str) -> Option<usize> {
        let index = hash.split('-').nth(1)?.parse().ok()?;
        (index < self.bmcs.len()).then_some(index)
    }
}

impl BmcPlan {
    pub(crate) fn good(machine: usize) -> Self {
        Self { machine, change: |_| {}, quirks: Vec::new(), network: 0, bound: true, neighbour: None }
    }
}

/// A policy in Enforce that selects every node: the balanced profile with the product's defaults.
#[must_use]
pub fn policy(name: &str) -> Policy {
    Policy {
        name: name.to_owned(),
        hash: format!("{name}-1"),
        node_selector: BTreeMap::new(),
        mode: Mode::Enforce,
        rules: Rules::BALANCED,
        brakes: Brakes::DEFAULT,
        timings: LifeTimings::DEFAULT,
        release: ReleaseStrategy::Expedite,
        after_release: AfterRelease::PowerOn,
        power_poll: Span::from_secs(30),
        paused: false,
        unusable: None,
    }
}
