//! `api.jsonl`: what a watch of the tests' own saw of the cluster. Only what the oracles and the scenarios ask for is
//! kept of each object.

use k8s_openapi::api::core::v1::{Node, Pod};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The taint that releases a node's workloads (Kubernetes, "Non-graceful node shutdown").
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// What the node controller puts on the Node of a silent kubelet, and takes away by itself.
const GIVEN_UP: [&str; 2] = ["node.kubernetes.io/unreachable", "node.kubernetes.io/not-ready"];

/// Of what kind an object is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A Pod; its name is `namespace/name`.
    Pod,
    /// A Node.
    Node,
    /// An Incident.
    Incident,
    /// A MachineBinding.
    Binding,
    /// A Warning event about a Node.
    Page,
}

/// What became of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is there, and this is what it says now.
    Applied,
    /// It is gone; found out at the latest now.
    Gone,
}

/// One line of the file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Seen {
    /// When the watch heard of it, `CLOCK_BOOTTIME` in ns.
    pub t: u64,
    /// Its kind.
    pub kind: Kind,
    /// Its name.
    pub name: String,
    /// Its uid.
    pub uid: String,
    /// What became of it.
    pub change: Change,
    /// What is kept of it; null when it is gone.
    #[serde(default)]
    pub object: Value,
}

/// What is kept of a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PodSeen {
    /// Where it is bound.
    pub node: String,
    /// Its phase.
    pub phase: String,
    /// Whether it is Ready.
    pub ready: bool,
    /// Whether its deletion was asked for.
    pub deleting: bool,
    /// Whether a release of its node does not concern it: mirror and DaemonSet pods, and pods that tolerate the taint.
    pub stays: bool,
}

/// What is kept of a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeSeen {
    /// The kubelet's.
    pub boot_id: String,
    /// Status of the Ready condition.
    pub ready: String,
    /// Whether it is cordoned.
    pub unschedulable: bool,
    /// Whether it carries the out-of-service taint.
    pub out_of_service: bool,
    /// Whether the node controller's own taints of a silent kubelet are still there.
    #[serde(default)]
    pub given_up: bool,
}

// === impl Seen ===

impl Seen {
    /// It as a Pod.
    #[must_use]
    pub fn pod(&self) -> Option<PodSeen> {
        (self.kind == Kind::Pod).then(|| serde_json::from_value(self.object.clone()).ok()).flatten()
    }

    /// It as a Node.
    #[must_use]
    pub fn node(&self) -> Option<NodeSeen> {
        (self.kind == Kind::Node).then(|| serde_json::from_value(self.object.clone()).ok()).flatten()
    }
}

// === impl PodSeen, NodeSeen ===

impl PodSeen {
    /// Of the API's Pod.
    #[must_use]
    pub fn of(pod: &Pod) -> Self {
        let spec = pod.spec.as_ref();
        let status = pod.status.as_ref();
        let owners = pod.metadata.owner_references.iter().flatten();
        let mirror = pod
            .metadata
            .annotations
            .as_ref()
            .is_some_and(|annotations| annotations.contains_key("kubernetes.io/config.mirror"));
        let tolerates =
            spec.and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default().iter().any(|t| {
                t.key.as_deref().is_none_or(|key| key == OUT_OF_SERVICE)
                    && t.effect.as_deref().is_none_or(|effect| effect == "NoExecute")
            });
        Self {
            node: spec.and_then(|spec| spec.node_name.clone()).unwrap_or_default(),
            phase: status.and_then(|status| status.phase.clone()).unwrap_or_default(),
            ready: status
                .and_then(|status| status.conditions.as_deref())
                .unwrap_or_default()
                .iter()
                .any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            deleting: pod.metadata.deletion_timestamp.is_some(),
            stays: mirror || tolerates || owners.into_iter().any(|owner| owner.kind == "DaemonSet"),
        }
    }

    /// As a line keeps it.
    #[must_use]
    pub fn kept(&self) -> Value {
        json!(self)
    }
}

impl NodeSeen {
    /// Of the API's Node.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        let spec = node.spec.as_ref();
        let status = node.status.as_ref();
        let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
        let taints = spec.and_then(|spec| spec.taints.as_deref()).unwrap_or_default();
        Self {
            boot_id: status
                .and_then(|status| status.node_info.as_ref())
                .map(|node| node.boot_id.clone())
                .unwrap_or_default(),
            ready: conditions
                .iter()
                .find(|condition| condition.type_ == "Ready")
                .map(|condition| condition.status.clone())
                .unwrap_or_default(),
            unschedulable: spec.and_then(|spec| spec.unschedulable).unwrap_or(false),
            out_of_service: taints.iter().any(|taint| taint.key == OUT_OF_SERVICE),
            given_up: taints.iter().any(|taint| GIVEN_UP.contains(&taint.key.as_str())),
        }
    }

    /// As a line keeps it.
    #[must_use]
    pub fn kept(&self) -> Value {
        json!(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_release_does_not_concern_is_told_from_what_it_does() {
        let pod = |extra: Value| -> Pod {
            let mut object = json!({
                "metadata": { "name": "p" },
                "spec": { "containers": [], "nodeName": "n1" },
                "status": { "phase": "Running", "conditions": [{ "type": "Ready", "status": "True" }] },
            });
            for (key, value) in extra.as_object().unwrap() {
                let into = object[key].as_object_mut().unwrap();
                into.extend(value.as_object().unwrap().clone());
            }
            serde_json::from_value(object).unwrap()
        };
        let tolerating = |toleration: Value| json!({ "spec": { "tolerations": [toleration] } });
        let table = [
            ("plain", json!({}), false),
            (
                "mirror",
                json!({ "metadata": { "annotations": { "kubernetes.io/config.mirror": "x" } } }),
                true,
            ),
            (
                "daemon",
                json!({ "metadata": { "ownerReferences": [
                    { "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "u" }] } }),
                true,
            ),
            ("tolerates all", tolerating(json!({ "operator": "Exists" })), true),
            ("tolerates ours", tolerating(json!({ "key": OUT_OF_SERVICE, "operator": "Exists" })), true),
            (
                "tolerates another",
                tolerating(json!({ "key": "node.kubernetes.io/not-ready", "operator": "Exists" })),
                false,
            ),
            (
                "tolerates no scheduling",
                tolerating(json!({ "operator": "Exists", "effect": "NoSchedule" })),
                false,
            ),
        ];
        for (name, extra, stays) in table {
            let seen = PodSeen::of(&pod(extra));
            assert_eq!(seen.stays, stays, "{name}");
            assert!(seen.ready && seen.node == "n1" && !seen.deleting);
        }
    }
}
