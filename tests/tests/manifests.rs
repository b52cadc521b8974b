//! What `deploy/` holds fits together and fits the code: the CRDs are those of the Rust types, every name that one
//! manifest uses is made by another, ports and names are the code's, and the rights are no wider than promised.
//!
//! Whether a real API server takes them is the subject of `k8s_manifests.rs`.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use coroner_shared::names;
use serde_json::Value;

/// Folders that are applied, in that order.
const FOLDERS: [&str; 3] = ["deploy/crds", "deploy/init", "deploy/base"];
/// Roles that are bound to people and programs by whoever installs.
const FOR_OTHERS: [&str; 3] = ["coroner-metrics", "coroner-operator", "coroner-viewer"];
/// Named by the verbs of a role, but no kind of object.
const RIGHTS: &str = "nodes";

#[test]
fn the_crds_are_those_of_the_rust_types() -> Result<()> {
    let made = tempfile::tempdir().context("make a folder")?;
    let status = Command::new(env!("CARGO_BIN_EXE_crds")).arg(made.path()).status().context("start crds")?;
    ensure!(status.success(), "crds: {status}");
    for entry in fs::read_dir(made.path()).context("read the folder")? {
        let name = entry.context("read an entry")?.file_name();
        let read = |folder: &Path| fs::read_to_string(folder.join(&name)).unwrap_or_default();
        let (made, committed) = (read(made.path()), read(&root().join("deploy/crds")));
        ensure!(made == committed, "deploy/crds/{}: not what the types say; run hack/fix", name.display());
    }
    Ok(())
}

#[test]
fn every_file_is_part_of_its_kustomization() -> Result<()> {
    for folder in FOLDERS {
        let path = root().join(folder);
        let kustomization = documents(&path.join("kustomization.yaml"))?;
        let listed: BTreeSet<String> = texts(&kustomization[0], "/resources").into_iter().collect();
        let mut there = BTreeSet::new();
        for entry in fs::read_dir(&path).with_context(|| format!("read {folder}"))? {
            there.insert(entry.context("read an entry")?.file_name().display().to_string());
        }
        there.remove("kustomization.yaml");
        assert_eq!(listed, there, "{folder}");
    }
    Ok(())
}

#[test]
fn every_kustomization_renders() -> Result<()> {
    let Some(kubectl) = kubectl() else {
        eprintln!("no kubectl here: nothing was rendered (hack/test brings one)");
        return Ok(());
    };
    for folder in FOLDERS.iter().chain(&["tests/deploy-lab/base"]) {
        let mut command = Command::new(&kubectl);
        command.args(["kustomize", "--load-restrictor", "LoadRestrictionsNone"]).arg(root().join(folder));
        let output = command.output().with_context(|| format!("start {}", kubectl.display()))?;
        ensure!(output.status.success(), "{folder}: {}", String::from_utf8_lossy(&output.stderr));
        ensure!(!output.stdout.is_empty(), "{folder} renders to nothing");
    }
    Ok(())
}

#[test]
fn one_image_is_named_everywhere() -> Result<()> {
    let all = manifests()?;
    let images: BTreeSet<String> =
        all.iter().flat_map(|manifest| texts(manifest, "/spec/template/spec/containers/*/image")).collect();
    assert_eq!(images.len(), 1, "{images:?}");
    let image = images.first().context("an image is named")?;
    let script = fs::read_to_string(root().join("hack/images")).context("read hack/images")?;
    assert!(script.contains(&format!("{image}\n")), "hack/images builds {image}");
    Ok(())
}

#[test]
fn every_name_that_is_used_is_made() -> Result<()> {
    let all = manifests()?;
    assert_eq!(unmade(&all), Vec::<String>::new());
    // Seen to fail: without its first half each pair is incomplete.
    for kind in ["ServiceAccount", "ClusterRole", "Role", "PriorityClass"] {
        let fewer: Vec<Value> = all.iter().filter(|manifest| manifest["kind"] != kind).cloned().collect();
        assert!(!unmade(&fewer).is_empty(), "{kind} is missed by nobody");
    }
    let fewer: Vec<Value> =
        all.iter().filter(|m| !text(m, "/kind").ends_with("RoleBinding")).cloned().collect();
    assert!(!unmade(&fewer).is_empty(), "nobody notices a role without a binding");
    Ok(())
}

#[test]
fn rights_are_no_wider_than_promised() -> Result<()> {
    let all = manifests()?;
    let crds: BTreeSet<String> = all
        .iter()
        .filter(|manifest| manifest["kind"] == "CustomResourceDefinition")
        .map(|crd| text(crd, "/spec/names/plural"))
        .collect();
    assert_eq!(crds.len(), 3, "{crds:?}");
    for role in all.iter().filter(|manifest| text(manifest, "/kind").ends_with("Role")) {
        let name = text(role, "/metadata/name");
        for rule in role["rules"].as_array().into_iter().flatten() {
            let (groups, resources) = (texts(rule, "/apiGroups"), texts(rule, "/resources"));
            let verbs = texts(rule, "/verbs");
            let wide = groups.iter().chain(&resources).chain(&verbs).any(|word| word == "*");
            assert!(!wide, "{name}: a star is everything, also what is not there yet");
            let node = groups.iter().any(String::is_empty) && resources.iter().any(|name| name == "nodes");
            let deletes = verbs.iter().any(|verb| verb.starts_with("delete"));
            assert!(!(node && deletes), "{name}: nothing of ours deletes a Node");
            for resource in resources.iter().filter(|_| groups.iter().any(|group| group == names::GROUP)) {
                let kind = resource.split('/').next().unwrap_or_default();
                assert!(kind == RIGHTS || crds.contains(kind), "{name}: there is no {resource}");
            }
        }
    }
    let agent = all.iter().any(|m| texts(m, "/subjects/*/name").iter().any(|name| name == "coroner-agent"));
    assert!(!agent, "agents have no right in the API");
    Ok(())
}

#[test]
fn names_and_ports_are_the_codes() -> Result<()> {
    let all = manifests()?;
    let workload = |name: &str| {
        let found = all.iter().find(|m| m["kind"] == "DaemonSet" && text(m, "/metadata/name") == name);
        found.with_context(|| format!("there is no DaemonSet {name}"))
    };
    let (agent, arbiter) = (workload("coroner-agent")?, workload("coroner-arbiter")?);
    for (probes, port) in [(agent, names::PORT_AGENT_HEALTH), (arbiter, names::PORT_PEOPLE)] {
        for probe in ["livenessProbe", "readinessProbe"] {
            let at = format!("/spec/template/spec/containers/0/{probe}/httpGet/port");
            assert_eq!(probes.pointer(&at), Some(&Value::from(port)), "{probe}");
        }
    }
    let affinity = "/spec/template/spec/affinity/nodeAffinity/requiredDuringSchedulingIgnoredDuringExecution\
                    /nodeSelectorTerms/*/matchExpressions/*/key";
    assert_eq!(texts(arbiter, affinity), [names::ARBITER_LABEL]);
    let volumes = "/spec/template/spec/volumes/*";
    assert_eq!(texts(agent, &format!("{volumes}/configMap/name")), [names::TRUST_CONFIGMAP]);
    let audience = format!("{volumes}/projected/sources/*/serviceAccountToken/audience");
    assert_eq!(texts(agent, &audience), [names::AGENT_AUDIENCE]);
    let namespaces: BTreeSet<String> = all.iter().flat_map(|m| texts(m, "/metadata/namespace")).collect();
    let known = BTreeSet::from([names::NAMESPACE, "kube-node-lease", "kube-system"].map(str::to_owned));
    assert_eq!(namespaces, known);
    let group: BTreeSet<String> = all.iter().flat_map(|m| texts(m, "/spec/group")).collect();
    assert_eq!(group, BTreeSet::from([names::GROUP.to_owned()]));
    Ok(())
}

// === the rule of pairs ===

/// What is used and not made, or made and not used.
fn unmade(all: &[Value]) -> Vec<String> {
    let mut made = BTreeSet::new();
    for manifest in all {
        made.insert((text(manifest, "/kind"), namespace(manifest), text(manifest, "/metadata/name")));
    }
    let mut used: BTreeMap<_, String> = BTreeMap::new();
    let mut use_it = |kind: &str, namespace: &str, name: String, by: &Value| {
        let by = format!("{} {}", text(by, "/kind"), text(by, "/metadata/name"));
        used.insert((kind.to_owned(), namespace.to_owned(), name), by);
    };
    for manifest in all {
        let here = namespace(manifest);
        let pods = "/spec/template/spec";
        for name in texts(manifest, &format!("{pods}/serviceAccountName")) {
            use_it("ServiceAccount", &here, name, manifest);
        }
        for name in texts(manifest, &format!("{pods}/priorityClassName")) {
            if !name.starts_with("system-") {
                use_it("PriorityClass", "", name, manifest);
            }
        }
        let role = text(manifest, "/roleRef/kind");
        let role_is_in = if role == "Role" { here.as_str() } else { "" };
        for name in texts(manifest, "/roleRef/name") {
            use_it(&role, role_is_in, name, manifest);
        }
        for subject in manifest["subjects"].as_array().into_iter().flatten() {
            if subject["kind"] == "ServiceAccount" {
                let name = text(subject, "/name");
                use_it("ServiceAccount", &text(subject, "/namespace"), name, manifest);
            }
        }
    }
    let missing = used.iter().filter(|(thing, _)| !made.contains(thing));
    let missing = missing.map(|((kind, _, name), by)| format!("{by} uses {kind} {name}, which nobody makes"));
    let unused = made.iter().filter(|thing| thing.0.ends_with("Role") && !used.contains_key(*thing));
    let unused = unused.filter(|thing| !FOR_OTHERS.contains(&thing.2.as_str()));
    missing.chain(unused.map(|(kind, _, name)| format!("{kind} {name} is bound to nobody"))).collect()
}

/// Where a manifest belongs. Those of `base` get theirs from the kustomization.
fn namespace(manifest: &Value) -> String {
    let global =
        ["ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition", "Namespace", "PriorityClass"];
    let named = text(manifest, "/metadata/namespace");
    match named.as_str() {
        "" if global.contains(&text(manifest, "/kind").as_str()) => named,
        "" => names::NAMESPACE.to_owned(),
        _ => named,
    }
}

// === reading ===

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// All objects of all folders.
fn manifests() -> Result<Vec<Value>> {
    let mut all = Vec::new();
    for folder in FOLDERS {
        for entry in fs::read_dir(root().join(folder)).with_context(|| format!("read {folder}"))? {
            let path = entry.context("read an entry")?.path();
            if !path.ends_with("kustomization.yaml") {
                all.extend(documents(&path)?);
            }
        }
    }
    ensure!(all.len() > 20, "only {} objects were found", all.len());
    Ok(all)
}

fn documents(path: &Path) -> Result<Vec<Value>> {
    let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    serde_yaml::from_multiple(&text).with_context(|| format!("read {} as YAML", path.display()))
}

/// The text at a place; empty if there is none.
fn text(value: &Value, place: &str) -> String {
    value.pointer(place).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// All texts at a place, in which `*` is every element of a list; a list at its end counts as its elements.
fn texts(value: &Value, place: &str) -> Vec<String> {
    let found = |value: Option<&Value>| match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(list)) => list.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    };
    let Some((before, after)) = place.split_once("/*") else { return found(value.pointer(place)) };
    let list = value.pointer(before).and_then(Value::as_array).into_iter().flatten();
    list.flat_map(|element| texts(element, after)).collect()
}

/// The one that `hack/test` names, else that of the machine.
#[expect(clippy::disallowed_methods, reason = "tests have no command line; this is their one setting")]
fn kubectl() -> Option<PathBuf> {
    if let Some(named) = std::env::var_os("CORONER_KUBECTL") {
        return Some(named.into());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("kubectl")).find(|file| file.exists())
}
