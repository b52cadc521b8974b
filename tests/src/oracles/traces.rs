//! Leaves no trace: a Node after its return is what it was before, byte for byte, in all that is not the kubelet's
//! report of itself.

use serde_json::{Map, Value};

/// Its name in results, beside those of [`super::ORACLES`].
pub const CLEAN_END: &str = "unclean_ends";

/// Conditions that the kubelet and the node controller keep.
const KUBELETS: [&str; 5] = ["Ready", "MemoryPressure", "DiskPressure", "PIDPressure", "NetworkUnavailable"];

/// What of a Node must be as before.
#[must_use]
pub fn kept(node: &Value) -> Value {
    let conditions = node["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let foreign: Vec<Value> = conditions
        .into_iter()
        .filter(|condition| !KUBELETS.iter().any(|kubelets| condition["type"] == *kubelets))
        .collect();
    let mut kept = Map::new();
    for (name, value) in [
        ("labels", &node["metadata"]["labels"]),
        ("annotations", &node["metadata"]["annotations"]),
        ("finalizers", &node["metadata"]["finalizers"]),
        ("taints", &node["spec"]["taints"]),
        ("unschedulable", &node["spec"]["unschedulable"]),
    ] {
        // An empty list, a missing one and `false` are the same to the API server.
        let nothing = match value {
            Value::Null | Value::Bool(false) => true,
            Value::Array(list) => list.is_empty(),
            Value::Object(fields) => fields.is_empty(),
            Value::Bool(true) | Value::Number(_) | Value::String(_) => false,
        };
        kept.insert(name.to_owned(), if nothing { Value::Null } else { value.clone() });
    }
    kept.insert("conditions".to_owned(), Value::Array(foreign));
    Value::Object(kept)
}

/// What differs, a sentence each.
#[must_use]
pub fn differences(before: &Value, after: &Value) -> Vec<String> {
    let (before, after) = (kept(before), kept(after));
    let names = before.as_object().into_iter().flat_map(Map::keys);
    names
        .filter(|name| before[*name] != after[*name])
        .map(|name| format!("{name} were {} and are {}", before[name], after[name]))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn node() -> Value {
        json!({
            "metadata": {
                "labels": { "a": "1" }, "annotations": { "b": "2" }, "finalizers": ["f"],
                "resourceVersion": "7", "managedFields": [1],
            },
            "spec": { "taints": [{ "key": "x", "effect": "NoSchedule" }, { "key": "y", "effect": "NoExecute" }] },
            "status": { "conditions": [{ "type": "Ready", "status": "True" }, { "type": "Foreign", "status": "False" }] },
        })
    }

    #[test]
    fn the_kubelets_own_report_may_differ() {
        let mut after = node();
        after["metadata"]["resourceVersion"] = json!("8");
        after["status"]["conditions"][0] =
            json!({ "type": "Ready", "status": "True", "lastHeartbeatTime": "now" });
        after["spec"]["unschedulable"] = json!(false);
        after["status"]["nodeInfo"] = json!({ "bootID": "new" });
        assert_eq!(differences(&node(), &after), Vec::<String>::new());
    }

    #[test]
    fn every_mark_that_stays_or_is_lost_is_found() {
        let mut swapped = node();
        swapped["spec"]["taints"].as_array_mut().unwrap().reverse();
        let change = |pointer: &str, value: Value| {
            let mut after = node();
            *after.pointer_mut(pointer).unwrap() = value;
            after
        };
        let mut cordoned = node();
        cordoned["spec"]["unschedulable"] = json!(true);
        let table = [
            ("labels", change("/metadata/labels", json!({ "a": "1", "c": "3" }))),
            (
                "annotations",
                change("/metadata/annotations", json!({ "b": "2", "coroner.dev/incident": "i" })),
            ),
            ("finalizers", change("/metadata/finalizers", json!([]))),
            ("taints", change("/spec/taints", json!([{ "key": "x", "effect": "NoSchedule" }]))),
            ("taints", swapped),
            ("unschedulable", cordoned),
            ("conditions", change("/status/conditions/1/status", json!("True"))),
        ];
        for (name, after) in table {
            let found = differences(&node(), &after);
            assert!(found.len() == 1 && found[0].starts_with(name), "{name}: {found:?}");
        }
    }
}
