//! What a release and a return write to Kubernetes, one function per write. Who may call them, and when, is decided in
//! the core; each is safe to repeat and tells what it found.
//! The patches themselves are in [`super::patches`].

use std::collections::BTreeSet;
use std::time::Duration;

use coroner_arbiter_core::phase::Released;
use coroner_shared::id::{BootId, IncidentId, NodeName, NodeUid};
use coroner_shared::names::{FIELD_MANAGER, OUT_OF_SERVICE_TAINT, OUT_OF_SERVICE_VALUE};
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, Preconditions};
use kube::{Api, Client};
use serde_json::Value;
use thiserror::Error;

use super::patches::{self, boot_of};

/// The longest that a write waits for the API server.
const WRITE_WITHIN: Duration = Duration::from_secs(10);

/// Why a write did not happen.
#[derive(Debug, Error)]
pub enum WriteError {
    /// The Node is gone or is another one now.
    #[error("Node {node} is gone, or another Node has its name")]
    NodeGone {
        /// Which.
        node: NodeName,
    },
    /// The kubelet reports another boot than the one the proof speaks of.
    #[error("Node {node} reports boot {found}, the proof speaks of {proven}: the machine has booted since")]
    BootChanged {
        /// Which.
        node: NodeName,
        /// Boot of the proof.
        proven: BootId,
        /// Boot on the Node.
        found: String,
    },
    /// Somebody changed the Node in between; everything is read again.
    #[error("Node {node} was changed by somebody else in between")]
    Conflict {
        /// Which.
        node: NodeName,
    },
    /// The API server.
    #[error("cannot {what} of node {node}")]
    Api {
        /// A verb and its object.
        what: &'static str,
        /// Which.
        node: NodeName,
        /// What it said.
        #[source]
        source: Box<kube::Error>,
    },
}

/// A Node as read, with what is bound to it.
#[derive(Clone, Debug)]
pub struct Found {
    /// The Node.
    pub node: Node,
    /// What must be gone before it may return.
    pub before: Released,
}

/// The life that a release or return is about.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Name of the Node.
    pub node: NodeName,
    /// Its uid.
    pub uid: NodeUid,
    /// The incident.
    pub incident: IncidentId,
}

/// Writes to Nodes, pods and attachments.
#[derive(Clone)]
pub struct Writer {
    nodes: Api<Node>,
    pods: Api<Pod>,
    attachments: Api<VolumeAttachment>,
    client: Client,
}

// === impl Writer ===

impl Writer {
    /// A writer over this client.
    pub fn new(client: &Client) -> Self {
        Self {
            nodes: Api::all(client.clone()),
            pods: Api::all(client.clone()),
            attachments: Api::all(client.clone()),
            client: client.clone(),
        }
    }

    /// Reads the Node of exactly this uid, live.
    ///
    /// # Errors
    /// [`WriteError::NodeGone`] or the API server.
    pub async fn node(&self, subject: &Subject) -> Result<Node, WriteError> {
        let api = |source| api(subject, "read the Node", source);
        let gone = || WriteError::NodeGone { node: subject.node.clone() };
        let node = self.nodes.get_opt(subject.node.as_str()).await.map_err(api)?.ok_or_else(gone)?;
        if node.metadata.uid.as_deref() == Some(subject.uid.as_str()) { Ok(node) } else { Err(gone()) }
    }

    /// Reads the Node, the pods bound to it that a release concerns, and its attachments.
    ///
    /// # Errors
    /// As [`Writer::node`].
    pub async fn read(&self, subject: &Subject) -> Result<Found, WriteError> {
        let node = self.node(subject).await?;
        let pods = self.pods_of(subject).await?;
        let attachments = self.attachments_of(subject).await?;
        let before = Released {
            was_cordoned: node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false),
            was_tainted: patches::tainted_by_others(&node),
            pods: pods.iter().filter(|p| concerns(p)).filter_map(named_pod).collect(),
            attachments: attachments
                .iter()
                .filter_map(|a| Some((a.metadata.uid.clone()?, a.metadata.name.clone()?)))
                .collect(),
        };
        Ok(Found { node, before })
    }

    /// Step 1: cordon, our one taint, an annotation: in one patch, bound to uid, version and boot.
    ///
    /// # Errors
    /// [`WriteError::BootChanged`] ends the release; [`WriteError::Conflict`] is read and tried again.
    pub async fn taint(
        &self,
        subject: &Subject,
        node: &Node,
        proven: BootId,
        digest: &str,
    ) -> Result<(), WriteError> {
        check_boot(subject, node, proven)?;
        let patch = patches::taint(subject, node, digest);
        self.patch_node(subject, patch, "write the out-of-service taint").await
    }

    /// Step 2: `Ready=Unknown`, if the node controller has not written it yet: pod garbage collection waits for it. Only
    /// while the kubelet reports the boot that was proven off: a later one speaks for itself.
    ///
    /// # Errors
    /// [`WriteError::BootChanged`], the API server, or the Node changed.
    pub async fn not_ready(&self, subject: &Subject, proven: BootId, now: &str) -> Result<(), WriteError> {
        let node = self.node(subject).await?;
        check_boot(subject, &node, proven)?;
        let Some(patch) = patches::not_ready(subject, &node, now) else { return Ok(()) };
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let what = "write Ready=Unknown";
        let patch = as_patch(subject, what, patch)?;
        let (nodes, node) = (self.nodes.clone(), subject.node.clone());
        let result = whole(async move { nodes.patch_status(node.as_str(), &params, &patch).await }).await;
        result.map(|_| ()).map_err(|e| patch_error(subject, what, e))
    }

    /// Step 3, `Expedite`: deletes the recorded pods, each bound to its uid, without grace. Returns what could not be.
    ///
    /// # Errors
    /// The API server refuses to list.
    pub async fn expedite(&self, subject: &Subject, recorded: &Released) -> Result<Vec<String>, WriteError> {
        let wanted: BTreeSet<&str> = recorded.pods.iter().map(|(uid, _)| uid.as_str()).collect();
        let mut failed = Vec::new();
        for pod in self.pods_of(subject).await? {
            let (Some(uid), Some(name)) = (&pod.metadata.uid, &pod.metadata.name) else { continue };
            if !wanted.contains(uid.as_str()) {
                continue;
            }
            let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
            let params = DeleteParams {
                grace_period_seconds: Some(0),
                preconditions: Some(Preconditions { uid: Some(uid.clone()), resource_version: None }),
                ..DeleteParams::default()
            };
            let pods: Api<Pod> = Api::namespaced(self.client.clone(), namespace);
            match pods.delete(name, &params).await {
                Ok(_) => {}
                // Gone, or another pod has its name: as wanted.
                Err(kube::Error::Api(e)) if matches!(e.code, 404 | 409) => {}
                Err(error) => failed.push(format!("{namespace}/{name}: {error}")),
            }
        }
        Ok(failed)
    }

    /// Step 4: which of the recorded pods and attachments are still there, by name.
    ///
    /// # Errors
    /// The API server.
    pub async fn left(&self, subject: &Subject, recorded: &Released) -> Result<Vec<String>, WriteError> {
        let pods: BTreeSet<String> =
            self.pods_of(subject).await?.into_iter().filter_map(|p| p.metadata.uid).collect();
        let attachments: BTreeSet<String> =
            self.attachments_of(subject).await?.into_iter().filter_map(|a| a.metadata.uid).collect();
        let pods =
            recorded.pods.iter().filter(|(uid, _)| pods.contains(uid)).map(|(_, name)| format!("pod {name}"));
        let volumes = recorded.attachments.iter().filter(|(uid, _)| attachments.contains(uid));
        Ok(pods.chain(volumes.map(|(_, name)| format!("VolumeAttachment {name}"))).collect())
    }

    /// The way back: takes away our taint and annotation, bound to both, and reads them back as gone. `keep_taint`: the
    /// taint was somebody else's before us. `orphaned`: the annotation names an incident that nobody knows any more.
    ///
    /// # Errors
    /// As [`Writer::taint`].
    pub async fn untaint(
        &self,
        subject: &Subject,
        keep_taint: bool,
        orphaned: bool,
    ) -> Result<(), WriteError> {
        let node = self.node(subject).await?;
        match patches::untaint(subject, &node, keep_taint, orphaned) {
            Some(patch) => self.patch_node(subject, patch, "take away the out-of-service taint").await,
            None => Ok(()),
        }
    }

    /// The last step back: uncordons, unless somebody else had cordoned it before.
    ///
    /// # Errors
    /// As [`Writer::taint`].
    pub async fn uncordon(&self, subject: &Subject) -> Result<(), WriteError> {
        let node = self.node(subject).await?;
        if !node.spec.as_ref().and_then(|s| s.unschedulable).unwrap_or(false) {
            return Ok(());
        }
        let patch = patches::uncordon(subject, &node);
        self.patch_node(subject, patch, "uncordon the Node").await
    }

    async fn patch_node(
        &self,
        subject: &Subject,
        patch: Vec<Value>,
        what: &'static str,
    ) -> Result<(), WriteError> {
        let params = PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), ..PatchParams::default() };
        let patch = as_patch(subject, what, patch)?;
        let (nodes, node) = (self.nodes.clone(), subject.node.clone());
        let answer = whole(async move { nodes.patch(node.as_str(), &params, &patch).await }).await;
        answer.map(|_| ()).map_err(|e| patch_error(subject, what, e))
    }

    async fn pods_of(&self, subject: &Subject) -> Result<Vec<Pod>, WriteError> {
        let params = ListParams::default().fields(&format!("spec.nodeName={}", subject.node));
        Ok(self.pods.list(&params).await.map_err(|e| api(subject, "list the pods", e))?.items)
    }

    async fn attachments_of(&self, subject: &Subject) -> Result<Vec<VolumeAttachment>, WriteError> {
        // VolumeAttachments cannot be selected by node on the server; there are few more of them than volumes in use.
        let all = self
            .attachments
            .list(&ListParams::default())
            .await
            .map_err(|e| api(subject, "list the attachments", e))?;
        Ok(all.items.into_iter().filter(|a| a.spec.node_name == subject.node.as_str()).collect())
    }
}

// === helpers ===

/// Whether a release concerns this pod: not a DaemonSet's, not a mirror of a static pod, not one that tolerates the
/// taint, not one that has ended.
pub fn concerns(pod: &Pod) -> bool {
    let owned_by_daemon_set = pod
        .metadata
        .owner_references
        .as_ref()
        .is_some_and(|o| o.iter().any(|o| o.kind == "DaemonSet" && o.controller == Some(true)));
    let mirror =
        pod.metadata.annotations.as_ref().is_some_and(|a| a.contains_key("kubernetes.io/config.mirror"));
    let ended = pod
        .status
        .as_ref()
        .and_then(|s| s.phase.as_deref())
        .is_some_and(|p| matches!(p, "Succeeded" | "Failed"));
    !owned_by_daemon_set && !mirror && !ended && !tolerates(pod)
}

/// Whether the pod tolerates the out-of-service taint (Kubernetes, "Taints and Tolerations": an empty key with
/// `Exists` tolerates everything, an empty effect every effect).
fn tolerates(pod: &Pod) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|s| s.tolerations.as_ref());
    tolerations.is_some_and(|all| {
        all.iter().any(|t| {
            let effect = t.effect.as_deref().is_none_or(|e| e.is_empty() || e == "NoExecute");
            let exists = t.operator.as_deref() == Some("Exists");
            let key = match t.key.as_deref() {
                None | Some("") => exists,
                Some(key) => {
                    key == OUT_OF_SERVICE_TAINT
                        && (exists || t.value.as_deref() == Some(OUT_OF_SERVICE_VALUE))
                }
            };
            effect && key && t.toleration_seconds.is_none()
        })
    })
}

fn named_pod(pod: &Pod) -> Option<(String, String)> {
    let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
    Some((pod.metadata.uid.clone()?, format!("{namespace}/{}", pod.metadata.name.as_deref()?)))
}

fn check_boot(subject: &Subject, node: &Node, proven: BootId) -> Result<(), WriteError> {
    let found = boot_of(node);
    if found.parse::<BootId>() == Ok(proven) {
        return Ok(());
    }
    Err(WriteError::BootChanged { node: subject.node.clone(), proven, found })
}

fn api(subject: &Subject, what: &'static str, source: kube::Error) -> WriteError {
    WriteError::Api { what, node: subject.node.clone(), source: Box::new(source) }
}

/// Does all of a write, even if who asked for it stops waiting. A request that is dropped is cut off on the wire; the API
/// server may carry it out nevertheless, and then nobody can tell from its log who wrote what. It has an end of its own,
/// so that it does not come long after the look that permitted it.
async fn whole<T: Send + 'static>(
    write: impl Future<Output = kube::Result<T>> + Send + 'static,
) -> kube::Result<T> {
    let write = async move {
        let answer = tokio::time::timeout(WRITE_WITHIN, write).await;
        answer.unwrap_or_else(|late| Err(kube::Error::Service(Box::new(late))))
    };
    match tokio::spawn(write).await.map_err(tokio::task::JoinError::try_into_panic) {
        Ok(done) => done,
        Err(Ok(panic)) => std::panic::resume_unwind(panic),
        // The runtime ends, and this future with it.
        Err(Err(_)) => std::future::pending().await,
    }
}

fn as_patch(subject: &Subject, what: &'static str, operations: Vec<Value>) -> Result<Patch<()>, WriteError> {
    let patch = patches::json_patch(operations).map_err(kube::Error::SerdeError);
    patch.map(Patch::Json).map_err(|e| api(subject, what, e))
}

fn patch_error(subject: &Subject, what: &'static str, error: kube::Error) -> WriteError {
    let code = if let kube::Error::Api(status) = &error { status.code } else { 0 };
    match code {
        404 => WriteError::NodeGone { node: subject.node.clone() },
        // 422: a `test` failed; 409: the version moved on.
        409 | 422 => WriteError::Conflict { node: subject.node.clone() },
        _ => api(subject, what, error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(value: Value) -> Pod {
        serde_json::from_value(value).unwrap()
    }

    #[tokio::test]
    async fn a_write_goes_to_its_end_when_nobody_waits_for_it_any_more() {
        let (go, gate) = tokio::sync::oneshot::channel::<()>();
        let (done, written) = tokio::sync::oneshot::channel();
        let write = whole(async move {
            let _ = gate.await;
            let _ = done.send(());
            Ok(())
        });
        let cancelled = tokio::time::timeout(Duration::from_millis(20), write).await;
        assert!(cancelled.is_err());
        go.send(()).unwrap();
        written.await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_write_that_the_api_server_does_not_answer_ends() {
        let begun = tokio::time::Instant::now();
        let answer = whole(std::future::pending::<kube::Result<()>>()).await;
        assert!(matches!(answer, Err(kube::Error::Service(_))), "{answer:?}");
        assert_eq!(begun.elapsed(), WRITE_WITHIN);
    }

    #[test]
    fn a_release_leaves_alone_what_is_not_its_own() {
        let plain = json!({"metadata": {"name": "a", "uid": "1"}, "spec": {"containers": []}});
        assert!(concerns(&pod(plain.clone())));
        let with = |at: &str, value: Value| {
            let mut changed = plain.clone();
            *changed.pointer_mut(at).unwrap() = value;
            pod(changed)
        };
        let daemon = json!({"name": "a", "uid": "1", "ownerReferences": [{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "d", "uid": "2", "controller": true}]});
        assert!(!concerns(&with("/metadata", daemon)));
        let mirror = json!({"name": "a", "uid": "1", "annotations": {"kubernetes.io/config.mirror": "x"}});
        assert!(!concerns(&with("/metadata", mirror)));
        let tolerant = |t: Value| with("/spec", json!({"containers": [], "tolerations": [t]}));
        assert!(!concerns(&tolerant(json!({"operator": "Exists"}))));
        assert!(!concerns(&tolerant(
            json!({"key": OUT_OF_SERVICE_TAINT, "operator": "Exists", "effect": "NoExecute"})
        )));
        assert!(!concerns(&tolerant(json!({"key": OUT_OF_SERVICE_TAINT, "value": OUT_OF_SERVICE_VALUE}))));
        // These do not tolerate it: another effect, another value, another key, or only for a while.
        assert!(concerns(&tolerant(
            json!({"key": OUT_OF_SERVICE_TAINT, "operator": "Exists", "effect": "NoSchedule"})
        )));
        assert!(concerns(&tolerant(json!({"key": OUT_OF_SERVICE_TAINT, "value": "other"}))));
        assert!(concerns(&tolerant(json!({"key": "node.kubernetes.io/unreachable", "operator": "Exists"}))));
        assert!(concerns(&tolerant(
            json!({"operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 300})
        )));
    }
}
