//! Copies of the log's truth for people with `kubectl`: Incidents, the status of bindings and policies, and pages as
//! Warning events. Server-side apply with our field manager; nothing here is ever read back for a decision.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::names::{FIELD_MANAGER, GROUP, VERSION};
use k8s_openapi::api::core::v1::{Event, ObjectReference};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde_json::json;

use super::types::{
    FencingPolicy, FencingPolicyStatus, Incident, IncidentSpec, IncidentStatus, MachineBinding,
    MachineBindingStatus,
};

/// Events about cluster-scoped objects live here, and the API server takes them nowhere else.
const EVENT_NAMESPACE: &str = "default";

/// Writes our own resources.
#[derive(Clone)]
pub struct Publisher {
    client: Client,
    /// Status of each condition as last published, and since when: a copy that says the same keeps its time.
    since: Arc<Mutex<BTreeMap<String, (String, String)>>>,
}

impl Publisher {
    /// Over this client.
    pub fn new(client: Client) -> Self {
        Self { client, since: Arc::default() }
    }

    /// Since when a condition has had this status, RFC 3339: `now` if it changed, or if this process says it for the
    /// first time.
    pub fn since(&self, condition: &str, status: &str, now: String) -> String {
        let mut since = self.since.lock().unwrap_or_else(PoisonError::into_inner);
        match since.get(condition) {
            Some((same, at)) if same == status => at.clone(),
            Some(_) | None => {
                since.insert(condition.to_owned(), (status.to_owned(), now.clone()));
                now
            }
        }
    }

    /// Creates or updates an Incident.
    ///
    /// # Errors
    /// The API server.
    pub async fn incident(
        &self,
        id: &IncidentId,
        spec: &IncidentSpec,
        status: &IncidentStatus,
    ) -> Result<(), kube::Error> {
        let all: Api<Incident> = Api::all(self.client.clone());
        let body = json!({ "apiVersion": api_version(), "kind": "Incident", "metadata": { "name": id.as_str() }, "spec": spec });
        all.patch(id.as_str(), &params(), &Patch::Apply(body)).await?;
        let body = json!({ "apiVersion": api_version(), "kind": "Incident", "status": status });
        all.patch_status(id.as_str(), &params(), &Patch::Apply(body)).await.map(|_| ())
    }

    /// Deletes Incidents that the log has forgotten.
    ///
    /// # Errors
    /// The API server.
    pub async fn prune(&self, kept: impl Fn(&str) -> bool) -> Result<u32, kube::Error> {
        let all: Api<Incident> = Api::all(self.client.clone());
        let mut gone = 0;
        for incident in all.list_metadata(&ListParams::default()).await? {
            let Some(name) = incident.metadata.name else { continue };
            if !kept(&name) {
                all.delete(&name, &DeleteParams::default()).await?;
                gone += 1;
            }
        }
        Ok(gone)
    }

    /// Updates a binding's status.
    ///
    /// # Errors
    /// The API server.
    pub async fn binding(&self, node: &NodeName, status: &MachineBindingStatus) -> Result<(), kube::Error> {
        let all: Api<MachineBinding> = Api::all(self.client.clone());
        let body = json!({ "apiVersion": api_version(), "kind": "MachineBinding", "status": status });
        gone_is_fine(all.patch_status(node.as_str(), &params(), &Patch::Apply(body)).await)
    }

    /// Updates a policy's status.
    ///
    /// # Errors
    /// The API server.
    pub async fn policy(&self, name: &str, status: &FencingPolicyStatus) -> Result<(), kube::Error> {
        let all: Api<FencingPolicy> = Api::all(self.client.clone());
        let body = json!({ "apiVersion": api_version(), "kind": "FencingPolicy", "status": status });
        gone_is_fine(all.patch_status(name, &params(), &Patch::Apply(body)).await)
    }

    /// A Warning event about a Node.
    ///
    /// # Errors
    /// The API server.
    pub async fn page(
        &self,
        node: &NodeName,
        uid: &str,
        reason: &str,
        text: &str,
        at: &str,
    ) -> Result<(), kube::Error> {
        let time = json!(at);
        let event = json!({
            "metadata": { "generateName": "coroner-", "namespace": EVENT_NAMESPACE },
            "type": "Warning",
            "reason": reason,
            "message": text.chars().take(1000).collect::<String>(),
            "reportingComponent": FIELD_MANAGER,
            "reportingInstance": FIELD_MANAGER,
            "action": "Page",
            "eventTime": time,
            "involvedObject": ObjectReference {
                api_version: Some("v1".to_owned()),
                kind: Some("Node".to_owned()),
                name: Some(node.to_string()),
                uid: Some(uid.to_owned()),
                namespace: None,
                ..ObjectReference::default()
            },
        });
        let event: Event = serde_json::from_value(event).map_err(kube::Error::SerdeError)?;
        let events: Api<Event> = Api::namespaced(self.client.clone(), EVENT_NAMESPACE);
        events.create(&PostParams::default(), &event).await.map(|_| ())
    }
}

fn api_version() -> String {
    format!("{GROUP}/{VERSION}")
}

fn params() -> PatchParams {
    PatchParams { field_manager: Some(FIELD_MANAGER.to_owned()), force: true, ..PatchParams::default() }
}

/// A resource that was deleted meanwhile needs no status.
fn gone_is_fine<T>(result: Result<T, kube::Error>) -> Result<(), kube::Error> {
    match result {
        Ok(_) => Ok(()),
        Err(kube::Error::Api(e)) if e.code == 404 => Ok(()),
        Err(error) => Err(error),
    }
}
