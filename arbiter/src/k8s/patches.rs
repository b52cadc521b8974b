//! The patches of a Node that a release and a return write, as pure functions of the Node as it was read. Which edits
//! they are is decided in the core (`marks`); here they become operations.
//!
//! Every one is a JSON patch (RFC 6902) with `test` operations: a Node that is another one, has booted again or was
//! changed in between refuses it whole (422), and nothing is ever replaced that somebody else may have written.

use coroner_arbiter_core::marks::{self, Edit, Marked, OUT_OF_SERVICE_EFFECT, Taint};
use coroner_shared::names::{
    INCIDENT_ANNOTATION, OUT_OF_SERVICE_TAINT, OUT_OF_SERVICE_VALUE, PROVEN_OFF_REASON,
};
use k8s_openapi::api::core::v1::Node;
use serde_json::{Value, json};

use super::release::Subject;

/// Cordon, our one taint entry, an annotation: bound to uid, version and boot.
pub fn taint(subject: &Subject, node: &Node, digest: &str) -> Vec<Value> {
    let mut patch = bound(subject, node);
    patch.push(test("/status/nodeInfo/bootID", json!(boot_of(node))));
    let (taints, mark) = (taints_of(node), annotation_of(node));
    let edits = marks::release(&marked(&taints, mark.as_deref()), &subject.incident, digest);
    patch.extend(edits.into_iter().flat_map(|edit| operations(node, edit)));
    patch
}

/// `Ready=Unknown`, bound to uid, version and boot; `None` where Ready is not True.
pub fn not_ready(subject: &Subject, node: &Node, now: &str) -> Option<Vec<Value>> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    let at = conditions.iter().position(|c| c.type_ == "Ready" && c.status == "True")?;
    let path = format!("/status/conditions/{at}");
    let mut patch = bound(subject, node);
    patch.extend([
        test("/status/nodeInfo/bootID", json!(boot_of(node))),
        test(&format!("{path}/type"), json!("Ready")),
        json!({ "op": "replace", "path": format!("{path}/status"), "value": "Unknown" }),
        add(&format!("{path}/reason"), json!(PROVEN_OFF_REASON)),
        add(
            &format!("{path}/message"),
            json!(format!("Coroner has proven that the machine is off (incident {})", subject.incident)),
        ),
        add(&format!("{path}/lastTransitionTime"), json!(now)),
    ]);
    Some(patch)
}

/// Taint and annotation away, bound to uid, version and to what they are; `None` where neither is left. As
/// [`marks::untaint`].
pub fn untaint(subject: &Subject, node: &Node, keep_taint: bool, orphaned: bool) -> Option<Vec<Value>> {
    let (taints, mark) = (taints_of(node), annotation_of(node));
    let edits = marks::untaint(&marked(&taints, mark.as_deref()), &subject.incident, keep_taint, orphaned);
    let operations = edits.into_iter().flat_map(|edit| operations(node, edit));
    let patch: Vec<Value> = bound(subject, node).into_iter().chain(operations).collect();
    (patch.len() > bound(subject, node).len()).then_some(patch)
}

/// Uncordons.
pub fn uncordon(subject: &Subject, node: &Node) -> Vec<Value> {
    let mut patch = bound(subject, node);
    patch.push(remove("/spec/unschedulable"));
    patch
}

/// The operations as a patch.
///
/// # Errors
/// One of them is none of RFC 6902. Never an empty patch in its place: the API server would take that, and a taint that
/// nobody wrote would count as written.
pub(super) fn json_patch(operations: Vec<Value>) -> Result<json_patch::Patch, serde_json::Error> {
    serde_json::from_value(Value::Array(operations))
}

/// Whether somebody else's out-of-service taint stands there.
pub fn tainted_by_others(node: &Node) -> bool {
    let (taints, mark) = (taints_of(node), annotation_of(node));
    marked(&taints, mark.as_deref()).is_anothers()
}

/// Whether the node is out of service by our hand.
pub fn tainted_by_us(node: &Node) -> bool {
    let (taints, mark) = (taints_of(node), annotation_of(node));
    marked(&taints, mark.as_deref()).is_ours()
}

/// The boot that the kubelet reports.
pub fn boot_of(node: &Node) -> String {
    node.status.as_ref().and_then(|s| s.node_info.as_ref()).map(|i| i.boot_id.clone()).unwrap_or_default()
}

// === helpers ===

fn annotation_of(node: &Node) -> Option<String> {
    node.metadata.annotations.as_ref()?.get(INCIDENT_ANNOTATION).cloned()
}

/// All taints, in order.
fn taints_of(node: &Node) -> Vec<Taint> {
    let taints = node.spec.as_ref().and_then(|s| s.taints.as_deref()).unwrap_or_default();
    let taint = |t: &k8s_openapi::api::core::v1::Taint| Taint {
        key: t.key.clone(),
        value: t.value.clone().unwrap_or_default(),
        effect: t.effect.clone(),
    };
    taints.iter().map(taint).collect()
}

fn marked<'a>(taints: &'a [Taint], annotation: Option<&'a str>) -> Marked<'a> {
    Marked { taints, annotation }
}

/// An edit as operations.
fn operations(node: &Node, edit: Edit) -> Vec<Value> {
    let bare = node.metadata.annotations.as_ref().is_none_or(std::collections::BTreeMap::is_empty);
    let is_ours = |at: usize| {
        [("key", OUT_OF_SERVICE_TAINT), ("value", OUT_OF_SERVICE_VALUE), ("effect", OUT_OF_SERVICE_EFFECT)]
            .map(|(field, value)| test(&format!("/spec/taints/{at}/{field}"), json!(value)))
    };
    match edit {
        Edit::AddTaint(Taint { key, value, effect }) => {
            let taint = json!({ "key": key, "value": value, "effect": effect });
            vec![if taints_of(node).is_empty() {
                add("/spec/taints", json!([taint]))
            } else {
                add("/spec/taints/-", taint)
            }]
        }
        Edit::RemoveTaint { at } => {
            is_ours(at).into_iter().chain([remove(&format!("/spec/taints/{at}"))]).collect()
        }
        Edit::RemoveTaints => is_ours(0).into_iter().chain([remove("/spec/taints")]).collect(),
        Edit::Cordon => vec![add("/spec/unschedulable", json!(true))],
        Edit::Annotate(mark) if bare => {
            vec![add("/metadata/annotations", json!({ INCIDENT_ANNOTATION: mark }))]
        }
        Edit::Annotate(mark) => vec![add(&annotation_path(), json!(mark))],
        Edit::RemoveAnnotation(mark) => {
            vec![test(&annotation_path(), json!(mark)), remove(&annotation_path())]
        }
    }
}

/// The Node as it was read, and no other.
fn bound(subject: &Subject, node: &Node) -> Vec<Value> {
    vec![
        test("/metadata/uid", json!(subject.uid)),
        test("/metadata/resourceVersion", json!(node.metadata.resource_version)),
    ]
}

fn annotation_path() -> String {
    format!("/metadata/annotations/{}", escape(INCIDENT_ANNOTATION))
}

#[expect(clippy::needless_pass_by_value, reason = "always made for this call")]
fn test(path: &str, value: Value) -> Value {
    json!({ "op": "test", "path": path, "value": value })
}

#[expect(clippy::needless_pass_by_value, reason = "always made for this call")]
fn add(path: &str, value: Value) -> Value {
    json!({ "op": "add", "path": path, "value": value })
}

fn remove(path: &str) -> Value {
    json!({ "op": "remove", "path": path })
}

/// A key inside a JSON pointer (RFC 6901).
fn escape(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests;
