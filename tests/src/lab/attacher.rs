//! Volumes for the lab's workloads: the attacher that a CSI driver brings along, and the objects a test needs to have
//! a StatefulSet of writers on volumes that must be attached before they are mounted and detached before they move.
//!
//! The attacher does what the external-attacher sidecar does (finalizer, `status.attached`), without a driver to
//! call: a volume of the lab is a shared folder. It has one knob, a detach that does not come to its end. Mounting
//! is the business of `lab-csi` in each machine.

use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::PersistentVolume;
use k8s_openapi::api::storage::v1::{CSIDriver, VolumeAttachment};
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The CSI driver of the lab.
pub const DRIVER: &str = "lab.csi.coroner.dev";
/// The image of the writer in the machines.
pub const WRITER_IMAGE: &str = "localhost/coroner-lab-writer:lab";
/// The finalizer that keeps an attachment until it is detached; named as the external-attacher names its own.
pub const FINALIZER: &str = "external-attacher/lab-csi-coroner-dev";

const MANAGER: &str = "coroner-lab";
/// Everything is looked at this often besides the watch, so that one failed call costs no more.
const AGAIN: Duration = Duration::from_secs(1);
/// Where a machine shows its boot id to pods.
const BOOT_ID_FOLDER: &str = "/lab-host/proc/sys/kernel/random";

/// A running attacher; dropped, it is gone, and attachments hang as they do without a sidecar.
#[derive(Debug)]
pub struct Attacher {
    held: watch::Sender<bool>,
    task: JoinHandle<()>,
}

// === impl Attacher ===

impl Attacher {
    /// Starts to attach and detach.
    #[must_use]
    pub fn start(client: Client) -> Self {
        let held = watch::Sender::new(false);
        let task = tokio::spawn(run(client, held.subscribe()));
        Self { held, task }
    }

    /// While held, no volume is detached: the attachments that are deleted stay, by their finalizer.
    pub fn hold(&self, held: bool) {
        self.held.send_replace(held);
    }
}

impl Drop for Attacher {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn run(client: Client, mut held: watch::Receiver<bool>) {
    let api: Api<VolumeAttachment> = Api::all(client);
    let mut events =
        watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    let mut again = tokio::time::interval(AGAIN);
    loop {
        let objects = tokio::select! {
            Some(Ok(object)) = events.next() => vec![object],
            _ = again.tick() => all(&api).await,
            Ok(()) = held.changed() => all(&api).await,
        };
        let hold = *held.borrow();
        for object in objects {
            if let Err(error) = settle(&api, &object, hold).await {
                tracing::debug!(attachment = object.name_any(), %error, "settle a volume attachment");
            }
        }
    }
}

async fn all(api: &Api<VolumeAttachment>) -> Vec<VolumeAttachment> {
    api.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default()
}

/// One step of an attachment towards attached, or towards its end. A conflict is settled by the next look.
async fn settle(api: &Api<VolumeAttachment>, object: &VolumeAttachment, hold: bool) -> kube::Result<()> {
    let Some(step) = step(object, hold) else { return Ok(()) };
    let (name, params) = (object.name_any(), PatchParams::default());
    match step {
        Step::Finalizers(finalizers) => {
            let version = object.resource_version();
            let change = json!({ "metadata": { "resourceVersion": version, "finalizers": finalizers } });
            api.patch(&name, &params, &Patch::Merge(change)).await.map(drop)
        }
        Step::Attached => {
            let change = json!({ "status": { "attached": true } });
            api.patch_status(&name, &params, &Patch::Merge(change)).await.map(drop)
        }
    }
}

/// What is next for an attachment.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    Finalizers(Vec<String>),
    Attached,
}

fn step(object: &VolumeAttachment, hold: bool) -> Option<Step> {
    if object.spec.attacher != DRIVER {
        return None;
    }
    let finalizers = object.finalizers();
    let ours = finalizers.iter().any(|name| name == FINALIZER);
    let attached = object.status.as_ref().is_some_and(|status| status.attached);
    match (object.metadata.deletion_timestamp.is_some(), ours) {
        (true, true) if !hold => {
            Some(Step::Finalizers(finalizers.iter().filter(|name| *name != FINALIZER).cloned().collect()))
        }
        (true, _) => None,
        (false, false) => {
            Some(Step::Finalizers(finalizers.iter().cloned().chain([FINALIZER.to_owned()]).collect()))
        }
        (false, true) => (!attached).then_some(Step::Attached),
    }
}

/// A StatefulSet of writers, one volume each.
#[derive(Clone, Debug)]
pub struct Writers {
    /// The name; pods are NAME-0, NAME-1, ..., volumes NAMESPACE-NAME-0, ...
    pub name: String,
    /// The namespace; it must exist.
    pub namespace: String,
    /// How many.
    pub replicas: u16,
    /// Seconds that a pod tolerates a node that is not ready or not reachable; `None` is Kubernetes' own 300 s.
    pub tolerate: Option<u32>,
    /// Labels that a node must have; empty is any node.
    pub node_selector: Vec<(String, String)>,
}

// === impl Writers ===

impl Writers {
    /// Writers on any node, with Kubernetes' own tolerations.
    #[must_use]
    pub fn new(namespace: &str, name: &str, replicas: u16) -> Self {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Self { name, namespace, replicas, tolerate: None, node_selector: Vec::new() }
    }

    /// The pods' names.
    #[must_use]
    pub fn pods(&self) -> Vec<String> {
        (0..self.replicas).map(|i| format!("{}-{i}", self.name)).collect()
    }

    /// The volume of a pod: the name of its PersistentVolume, of its volume handle and of its shared folder.
    #[must_use]
    pub fn volume(&self, pod: &str) -> String {
        format!("{}-{pod}", self.namespace)
    }

    /// Creates, or brings into line, the CSIDriver, the volumes and the StatefulSet.
    ///
    /// # Errors
    /// If the API server cannot be reached or refuses an object.
    pub async fn apply(&self, client: &Client) -> anyhow::Result<()> {
        apply_driver(client).await?;
        let volumes: Api<PersistentVolume> = Api::all(client.clone());
        for pod in self.pods() {
            let volume = self.persistent_volume(&pod);
            apply(&volumes, &self.volume(&pod), &volume).await.context("apply a volume")?;
        }
        let sets: Api<StatefulSet> = Api::namespaced(client.clone(), &self.namespace);
        apply(&sets, &self.name, &self.stateful_set()).await.context("apply the writers")
    }

    /// The volume of one pod, bound ahead to the claim that the StatefulSet will make for it.
    #[must_use]
    pub fn persistent_volume(&self, pod: &str) -> Value {
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": { "name": self.volume(pod) },
            "spec": {
                "capacity": { "storage": "1Gi" },
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Retain",
                "storageClassName": "lab",
                "claimRef": { "namespace": self.namespace, "name": format!("volume-{pod}") },
                "csi": { "driver": DRIVER, "volumeHandle": self.volume(pod) },
            },
        })
    }

    /// The StatefulSet.
    #[must_use]
    pub fn stateful_set(&self) -> Value {
        let labels = json!({ "app": self.name });
        let field = |path: &str| json!({ "fieldRef": { "fieldPath": path } });
        let tolerations: Vec<Value> = ["not-ready", "unreachable"]
            .iter()
            .filter_map(|key| self.tolerate.map(|seconds| (key, seconds)))
            .map(|(key, seconds)| {
                json!({ "key": format!("node.kubernetes.io/{key}"), "operator": "Exists", "effect": "NoExecute",
                    "tolerationSeconds": seconds })
            })
            .collect();
        let selector: serde_json::Map<String, Value> =
            self.node_selector.iter().map(|(key, value)| (key.clone(), json!(value))).collect();
        let pod = json!({
            "terminationGracePeriodSeconds": 5,
            "automountServiceAccountToken": false,
            "tolerations": tolerations,
            "nodeSelector": selector,
            "containers": [{
                "name": "writer",
                "image": WRITER_IMAGE,
                "imagePullPolicy": "Never",
                // The volume is a folder that root made.
                "securityContext": { "runAsUser": 0, "runAsGroup": 0 },
                "env": [
                    { "name": "WORKLOAD", "valueFrom": field("metadata.name") },
                    { "name": "MACHINE", "valueFrom": field("spec.nodeName") },
                    { "name": "BOOT_ID_FILE", "value": "/machine/boot_id" },
                ],
                "volumeMounts": [
                    { "name": "volume", "mountPath": "/volume" },
                    { "name": "machine", "mountPath": "/machine", "readOnly": true },
                ],
            }],
            "volumes": [{ "name": "machine", "hostPath": { "path": BOOT_ID_FOLDER, "type": "Directory" } }],
        });
        json!({
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": { "name": self.name, "namespace": self.namespace },
            "spec": {
                "replicas": self.replicas,
                "serviceName": self.name,
                "podManagementPolicy": "Parallel",
                "selector": { "matchLabels": labels },
                "template": { "metadata": { "labels": labels }, "spec": pod },
                "volumeClaimTemplates": [{
                    "metadata": { "name": "volume" },
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "storageClassName": "lab",
                        "resources": { "requests": { "storage": "1Gi" } },
                    },
                }],
            },
        })
    }
}

/// Creates the CSIDriver, whose volumes must be attached.
///
/// # Errors
/// If the API server cannot be reached or refuses it.
pub async fn apply_driver(client: &Client) -> anyhow::Result<()> {
    let driver = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": { "name": DRIVER },
        "spec": { "attachRequired": true, "podInfoOnMount": false, "volumeLifecycleModes": ["Persistent"] },
    });
    apply(&Api::<CSIDriver>::all(client.clone()), DRIVER, &driver).await.context("apply the CSIDriver")
}

async fn apply<K>(api: &Api<K>, name: &str, object: &Value) -> kube::Result<()>
where
    K: Clone + std::fmt::Debug + serde::de::DeserializeOwned,
{
    api.patch(name, &PatchParams::apply(MANAGER).force(), &Patch::Apply(object)).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attachment(attacher: &str, finalizers: &[&str], attached: bool, deleted: bool) -> VolumeAttachment {
        let deleted = deleted.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "metadata": { "name": "a", "finalizers": finalizers, "deletionTimestamp": deleted },
            "spec": { "attacher": attacher, "nodeName": "n1", "source": {} },
            "status": { "attached": attached },
        }))
        .unwrap()
    }

    #[test]
    fn an_attachment_goes_step_by_step_and_a_held_one_stays() {
        let finalizers =
            |names: &[&str]| Some(Step::Finalizers(names.iter().map(|&n| n.to_owned()).collect()));
        let table = [
            ("another driver's", attachment("other", &[], false, false), false, None),
            ("new", attachment(DRIVER, &["x"], false, false), false, finalizers(&["x", FINALIZER])),
            ("guarded", attachment(DRIVER, &[FINALIZER], false, false), false, Some(Step::Attached)),
            ("attached", attachment(DRIVER, &[FINALIZER], true, false), false, None),
            ("deleted", attachment(DRIVER, &[FINALIZER, "x"], true, true), false, finalizers(&["x"])),
            ("deleted, held", attachment(DRIVER, &[FINALIZER], true, true), true, None),
            ("deleted, only another's finalizer", attachment(DRIVER, &["x"], true, true), false, None),
        ];
        for (name, object, hold, want) in table {
            assert_eq!(step(&object, hold), want, "{name}");
        }
    }

    #[test]
    fn the_objects_are_what_their_schemas_say() {
        let writers = Writers { tolerate: Some(3), ..Writers::new("default", "w", 2) };
        let set: StatefulSet = serde_json::from_value(writers.stateful_set()).unwrap();
        let tolerations = set.spec.unwrap().template.spec.unwrap().tolerations.unwrap();
        assert_eq!(tolerations.len(), 2);
        assert!(tolerations.iter().all(|t| t.toleration_seconds == Some(3)), "{tolerations:?}");
        let volume: PersistentVolume = serde_json::from_value(writers.persistent_volume("w-1")).unwrap();
        let spec = volume.spec.unwrap();
        assert_eq!(spec.claim_ref.unwrap().name.as_deref(), Some("volume-w-1"));
        assert_eq!(spec.csi.unwrap().volume_handle, "default-w-1");
    }
}
