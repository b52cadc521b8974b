//! A gate in front of the API server that lets no out-of-service taint through while it is closed: an admission policy.
//! It holds a death between its proof and its release, for as long as a scenario needs.

use std::time::Duration;

use anyhow::Result;
use serde_json::json;

use crate::lab::site::{Site, tell::Look};

/// Name of the policy and of its binding.
pub const NAME: &str = "lab-no-taint";

/// Closes it, and waits until it holds.
///
/// # Errors
/// When the API server refuses it, or does not heed it.
pub async fn close(site: &Site) -> Result<()> {
    let rule = "!has(object.spec.taints) || !object.spec.taints.exists(t, t.key == 'node.kubernetes.io/out-of-service')";
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": { "name": NAME },
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [""], "apiVersions": ["v1"], "operations": ["UPDATE"], "resources": ["nodes"],
            }] },
            "validations": [{ "expression": rule, "message": "the lab's gate is closed" }],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": { "name": NAME },
        "spec": { "policyName": NAME, "validationActions": ["Deny"] },
    });
    site.kubectl.apply(&[policy, binding]).await?;
    let node = site.plan().machines.first().map(|machine| machine.name.clone()).unwrap_or_default();
    // The API server takes a moment to heed a new policy: asked with a taint that is not written.
    site.tell
        .until("the gate to hold", Duration::from_secs(30), async || {
            let taint = "node.kubernetes.io/out-of-service=try:NoSchedule";
            let asked = site.kubectl.run(&["taint", "node", &node, taint, "--dry-run=server"]).await;
            Ok(match asked {
                Err(error) if format!("{error:#}").contains("gate is closed") => Look::There(()),
                Err(error) => Look::Missing(format!("{error:#}")),
                Ok(_) => Look::Missing("it lets the taint through".to_owned()),
            })
        })
        .await
}

/// Opens it.
///
/// # Errors
/// When the API server does not take it away.
pub async fn open(site: &Site) -> Result<()> {
    site.kubectl.run(&["delete", "--ignore-not-found", "validatingadmissionpolicybinding", NAME]).await?;
    site.kubectl.run(&["delete", "--ignore-not-found", "validatingadmissionpolicy", NAME]).await.map(drop)
}
