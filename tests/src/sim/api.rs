//! The API server and its controllers: Nodes, Leases, pods, attachments, and who else writes to them.

use std::collections::{BTreeMap, VecDeque};

use coroner_arbiter_core::command::NodeFacts;
use coroner_arbiter_core::marks::{Marked, Taint};
use coroner_arbiter_core::policy::{Binding, Policy};
use coroner_shared::id::{BootId, NodeName, NodeUid};
use coroner_shared::names::INCIDENT_ANNOTATION;
use coroner_shared::time::{Mono, Span};

/// `Ready` of a Node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ready {
    True,
    /// Its kubelet says so.
    False,
    /// Its kubelet has said nothing for long.
    Unknown,
}

/// A Node object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct NodeObject {
    pub(crate) name: NodeName,
    pub(crate) uid: NodeUid,
    pub(crate) version: u64,
    pub(crate) system_uuid: String,
    pub(crate) boot: Option<BootId>,
    pub(crate) ready: Ready,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) taints: Vec<Taint>,
    pub(crate) unschedulable: bool,
    pub(crate) annotations: BTreeMap<String, String>,
    pub(crate) control_plane: bool,
}

/// A pod of a workload: at most one should write at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Pod {
    pub(crate) workload: usize,
    pub(crate) node: NodeName,
    /// Asked to go; its kubelet, or a deletion without grace, ends it.
    pub(crate) terminating: bool,
}

/// A volume on a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attachment {
    pub(crate) workload: usize,
    pub(crate) node: NodeName,
}

/// The API server.
#[derive(Default)]
pub(crate) struct Api {
    pub(crate) nodes: BTreeMap<NodeName, NodeObject>,
    /// Version, and when it was renewed.
    pub(crate) leases: BTreeMap<NodeName, (u64, Mono)>,
    pub(crate) pods: BTreeMap<u64, Pod>,
    pub(crate) attachments: BTreeMap<u64, Attachment>,
    pub(crate) policies: BTreeMap<String, Policy>,
    pub(crate) bindings: BTreeMap<NodeName, Binding>,
    pub(crate) version: u64,
    /// Nodes whose pods somebody's finalizer holds back.
    pub(crate) held_pods: std::collections::BTreeSet<NodeName>,
    /// Answers nobody.
    pub(crate) down: bool,
    /// Who collects pods of Nodes that are out of service sees them as they were so long ago.
    pub(crate) collector_lags: Span,
    /// The Nodes that were out of service, each second of that time.
    pub(crate) past: VecDeque<(Mono, Vec<NodeName>)>,
    /// From a write to the watches of it.
    pub(crate) watch_takes: (Span, Span),
}

// === impl NodeObject ===

impl NodeObject {
    pub(crate) fn tainted(&self) -> bool {
        self.taints.iter().any(Taint::evicts)
    }

    /// As far as our marks go.
    pub(crate) fn marked(&self) -> Marked<'_> {
        let annotation = self.annotations.get(INCIDENT_ANNOTATION).map(String::as_str);
        Marked { taints: &self.taints, annotation }
    }

    pub(crate) fn facts(&self) -> NodeFacts {
        NodeFacts {
            node: self.name.clone(),
            uid: self.uid.clone(),
            system_uuid: self.system_uuid.clone(),
            boot: self.boot,
            ready: self.ready == Ready::True,
            labels: self.labels.clone(),
            control_plane: self.control_plane,
            etcd_voter: self.control_plane,
            tainted_by_us: self.marked().is_ours(),
        }
    }
}

// === impl Api ===

impl Api {
    /// Changes a Node; whether it is there.
    pub(crate) fn change_node(&mut self, name: &NodeName, change: impl FnOnce(&mut NodeObject)) -> bool {
        let Some(node) = self.nodes.get_mut(name) else { return false };
        let before = node.clone();
        change(node);
        if *node != before {
            self.version += 1;
            node.version = self.version;
        }
        true
    }

    /// A kubelet renews.
    pub(crate) fn renew(&mut self, name: &NodeName, now: Mono) -> u64 {
        self.version += 1;
        self.leases.insert(name.clone(), (self.version, now));
        self.version
    }

    /// Deletes pods without grace; those held back only begin to go.
    pub(crate) fn delete_pods(&mut self, which: impl Fn(u64, &Pod) -> bool) {
        let held = &self.held_pods;
        self.pods.retain(|uid, pod| {
            let hit = which(*uid, pod);
            pod.terminating |= hit;
            !hit || held.contains(&pod.node)
        });
    }

    /// The Nodes that a controller which lags takes for out of service.
    pub(crate) fn out_of_service(&mut self, now: Mono) -> Vec<NodeName> {
        let out = self.nodes.values().filter(|n| n.tainted() && n.ready != Ready::True);
        self.past.push_back((now, out.map(|n| n.name.clone()).collect()));
        // The newest of those that are old enough, and all younger ones.
        while self.past.get(1).is_some_and(|(at, _)| now.since(*at) >= self.collector_lags) {
            self.past.pop_front();
        }
        self.past.front().map(|(_, out)| out.clone()).unwrap_or_default()
    }

    /// Makes an object's uid.
    pub(crate) fn uid(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    pub(crate) fn pods_of<'a>(&'a self, node: &'a NodeName) -> impl Iterator<Item = (u64, &'a Pod)> {
        self.pods.iter().filter(move |(_, pod)| pod.node == *node).map(|(uid, pod)| (*uid, pod))
    }

    pub(crate) fn attachments_of<'a>(
        &'a self,
        node: &'a NodeName,
    ) -> impl Iterator<Item = (u64, &'a Attachment)> {
        self.attachments.iter().filter(move |(_, a)| a.node == *node).map(|(uid, a)| (*uid, a))
    }
}
