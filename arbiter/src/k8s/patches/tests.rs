//! Patches applied to a Node as the API server would, and what is left of them after the way back.

use super::*;

/// n1 as read, with these taints and annotations.
fn node(taints: &Value, annotations: &Value) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": "n1", "uid": "uid-1", "resourceVersion": "7", "annotations": annotations},
        "spec": {"podCIDR": "10.0.0.0/24", "taints": taints},
        "status": {
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"bootID": "8d2c6f3a-1b4e-4c7d-9001-000000000001"},
        },
    })
}

fn subject() -> Subject {
    Subject {
        node: "n1".parse().unwrap(),
        uid: coroner_shared::id::NodeUid::new("uid-1").unwrap(),
        incident: "n1-00000001".to_owned().into(),
    }
}

fn read(node: &Value) -> Node {
    // Null stands for absent.
    serde_json::from_value(node.clone()).unwrap()
}

/// The Node after a patch, as the API server would make it.
fn patched(node: &Value, patch: Vec<Value>) -> Value {
    let mut node = serde_json::to_value(read(node)).unwrap();
    let patch = json_patch(patch).unwrap();
    json_patch::patch(&mut node, &patch).unwrap();
    node
}

fn ours() -> Value {
    json!({"key": OUT_OF_SERVICE_TAINT, "value": OUT_OF_SERVICE_VALUE, "effect": "NoExecute"})
}

fn foreign() -> Value {
    json!({"key": "example.com/x", "effect": "NoSchedule"})
}

fn mark() -> Value {
    json!({"coroner.dev/incident": "n1-00000001 abc"})
}

#[test]
fn what_was_there_before_a_release_is_there_after_the_return_and_nothing_else() {
    let of_a_person = json!({"key": OUT_OF_SERVICE_TAINT, "value": "by-hand", "effect": "NoExecute"});
    let schedules =
        json!({"key": OUT_OF_SERVICE_TAINT, "value": OUT_OF_SERVICE_VALUE, "effect": "NoSchedule"});
    let note = json!({"example.com/note": "x"});
    for (taints, annotations) in [
        (json!(null), json!(null)),
        (json!([foreign()]), note.clone()),
        // The very taint that ours would be, and one that we could not add beside it.
        (json!([ours()]), json!(null)),
        (json!([foreign(), of_a_person]), note.clone()),
        // Evicts nobody: ours is needed beside it.
        (json!([schedules, foreign()]), note),
    ] {
        let before = node(&taints, &annotations);
        let keep = tainted_by_others(&read(&before));
        let out = patched(&before, taint(&subject(), &read(&before), "abc"));
        assert!(taints_of(&read(&out)).iter().any(Taint::evicts), "{out}");
        assert_eq!(out["spec"]["unschedulable"], json!(true));
        assert!(!tainted_by_others(&read(&out)) && tainted_by_us(&read(&out)), "{out}");
        let again = patched(&out, taint(&subject(), &read(&out), "abc"));
        assert_eq!(again, out, "done twice is done once");
        let back = patched(&out, untaint(&subject(), &read(&out), keep, false).unwrap());
        assert!(!tainted_by_us(&read(&back)), "{back}");
        let mut back = patched(&back, uncordon(&subject(), &read(&back)));
        // The one thing that cannot be told apart: no annotations, and an empty list of them.
        if back["metadata"]["annotations"] == json!({}) {
            back["metadata"].as_object_mut().unwrap().remove("annotations");
        }
        assert_eq!(back, serde_json::to_value(read(&before)).unwrap());
    }
}

#[test]
fn our_taint_goes_although_somebody_took_our_annotation_away() {
    let stripped = node(&json!([ours(), foreign()]), &json!(null));
    let back = patched(&stripped, untaint(&subject(), &read(&stripped), false, false).unwrap());
    assert_eq!(back["spec"]["taints"], json!([foreign()]));
    assert_eq!(untaint(&subject(), &read(&stripped), true, false), None, "it was there before us");
}

#[test]
fn the_mark_of_another_incident_stays_unless_nobody_remembers_that_one() {
    let other = node(&json!([ours()]), &json!({"coroner.dev/incident": "n1-00000009 abc"}));
    assert_eq!(untaint(&subject(), &read(&other), false, false), None, "a later release stands there");
    let back = patched(&other, untaint(&subject(), &read(&other), false, true).unwrap());
    assert!(!tainted_by_us(&read(&back)) && taints_of(&read(&back)).is_empty(), "{back}");
}

#[test]
fn a_node_that_changed_in_between_refuses_every_patch() {
    let seen = node(&json!([ours()]), &mark());
    for at in ["/metadata/uid", "/metadata/resourceVersion"] {
        for patch in [
            taint(&subject(), &read(&seen), "abc"),
            not_ready(&subject(), &read(&seen), "2026-01-01T00:00:00Z").unwrap(),
            untaint(&subject(), &read(&seen), false, false).unwrap(),
            uncordon(&subject(), &read(&seen)),
        ] {
            let mut now = serde_json::to_value(read(&seen)).unwrap();
            *now.pointer_mut(at).unwrap() = json!("another");
            assert!(json_patch::patch(&mut now, &json_patch(patch).unwrap()).is_err(), "{at}");
        }
    }
    // What is true of a machine that is off is not said of one that has booted since.
    for patch in [
        taint(&subject(), &read(&seen), "abc"),
        not_ready(&subject(), &read(&seen), "2026-01-01T00:00:00Z").unwrap(),
    ] {
        let mut now = serde_json::to_value(read(&seen)).unwrap();
        *now.pointer_mut("/status/nodeInfo/bootID").unwrap() = json!("another");
        assert!(json_patch::patch(&mut now, &json_patch(patch).unwrap()).is_err());
    }
}

#[test]
fn a_key_is_escaped_inside_a_pointer() {
    assert_eq!(escape("coroner.dev/incident"), "coroner.dev~1incident");
}

#[test]
fn an_operation_that_is_none_is_an_error_and_never_an_empty_patch() {
    for wrong in [json!({"op": "tset", "path": "/a", "value": 1}), json!({"op": "add", "path": "no-slash"})] {
        assert!(json_patch(vec![test("/metadata/uid", json!("x")), wrong]).is_err());
    }
}
