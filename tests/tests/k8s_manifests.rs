//! What a real API server says to `deploy/`: it takes all of it, refuses the objects that the schemas are there to
//! refuse, with our words, and gives each ServiceAccount the rights it needs and no others.
//!
//! Needs what `hack/control-plane` needs, which builds Kubernetes' programs for minutes the first time.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// Its state; always the same folder, so that what a killed run left is found and removed.
const STATE: &str = "/var/tmp/coroner-k8s-manifests";
/// First of five ports, away from those that `hack/control-plane` takes by itself.
const PORT: &str = "27543";

/// A control plane without nodes; gone with the value.
struct ControlPlane;

// === impl ControlPlane ===

impl ControlPlane {
    fn up() -> Result<Self> {
        let this = Self; // also when it does not come up, something may be there to take down
        Self::say(&["down", "--dir", STATE])?;
        Self::say(&["up", "--dir", STATE, "--port", PORT])?;
        Ok(this)
    }

    fn say(args: &[&str]) -> Result<()> {
        let status = Command::new(root().join("hack/control-plane"))
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .status()
            .context("start hack/control-plane")?;
        ensure!(status.success(), "hack/control-plane {}: {status}", args.join(" "));
        Ok(())
    }

    /// Runs kubectl as administrator with `input`; whether it went well, and what it said.
    fn kubectl(&self, args: &[&str], input: &str) -> Result<(bool, String)> {
        let mut child = Command::new(root().join("hack/control-plane"))
            .args(["kubectl", "--dir", STATE])
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .context("start kubectl")?;
        let mut stdin = child.stdin.take().context("take its standard input")?;
        stdin.write_all(input.as_bytes()).context("give kubectl its input")?;
        drop(stdin);
        let Output { status, stdout, stderr } = child.wait_with_output().context("wait for kubectl")?;
        Ok((
            status.success(),
            [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned()).concat(),
        ))
    }

    /// What the API server says to an object that is sent by `way`, in a few words of its answer.
    #[track_caller]
    fn check(&self, way: &[&str], object: &Value, wanted: &str) -> Result<()> {
        let (_, said) = self.kubectl(&[way, &["-f", "-"]].concat(), &object.to_string())?;
        assert!(said.contains(wanted), "{object}\nwanted: {wanted}\nsaid:   {said}");
        Ok(())
    }

    #[track_caller]
    fn check_right(&self, account: &str, verb: &str, resource: &str, wanted: bool) -> Result<()> {
        let who = format!("--as=system:serviceaccount:coroner:{account}");
        // What follows a slash would be taken for a name.
        let (kind, part) = resource.split_once('/').unwrap_or((resource, ""));
        let part = format!("--subresource={part}");
        let (allowed, said) =
            self.kubectl(&["auth", "can-i", verb, kind, &part, "-n", "coroner", &who], "")?;
        assert_eq!(allowed, wanted, "{account} {verb} {resource}: {said}");
        Ok(())
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        if let Err(error) = Self::say(&["down", "--dir", STATE]) {
            eprintln!("{error:#}");
        }
    }
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn binding(address: &str, tls: &Value) -> Value {
    json!({
        "apiVersion": "coroner.dev/v1alpha1",
        "kind": "MachineBinding",
        "metadata": {"name": "n1"},
        "spec": {"redfish": {"address": address}, "credentials": {"secretName": "bmc"}, "tls": tls},
    })
}

fn incident(boot: &str, phase: &str) -> Value {
    json!({
        "apiVersion": "coroner.dev/v1alpha1",
        "kind": "Incident",
        "metadata": {"name": "i1", "labels": {"phase": phase}},
        "spec": {"nodeName": "n1", "nodeUID": "u", "machineID": "m", "bootID": boot},
    })
}

#[test]
fn a_real_api_server_takes_what_is_deployed_and_refuses_what_the_schemas_refuse() -> Result<()> {
    let control_plane = ControlPlane::up()?;
    for folder in ["deploy/crds", "deploy/init", "deploy/base"] {
        let path = root().join(folder).display().to_string();
        let (taken, said) = control_plane.kubectl(&["apply", "--server-side", "-k", &path], "")?;
        ensure!(taken, "{folder}: {said}");
        let all_new = said.lines().all(|line| line.ends_with(" serverside-applied"));
        ensure!(all_new, "{folder}: {said}");
    }
    let crds = ["wait", "--for=condition=Established", "crd", "--all", "--timeout=60s"];
    let (established, said) = control_plane.kubectl(&crds, "")?;
    ensure!(established, "{said}");
    bindings(&control_plane)?;
    incidents(&control_plane)?;
    rights(&control_plane)
}

fn bindings(control_plane: &ControlPlane) -> Result<()> {
    let create = ["create", "--dry-run=server"];
    let (taken, one_of) = ("created", "exactly one of caBundle and sha256Pin");
    let (needs_of, https) = ("sha256Pin needs `of`", "only https is spoken");
    let bundle = json!({"caBundle": "pem"});
    let rows = [
        ("bmc", bundle.clone(), taken),
        ("bmc:8443", bundle.clone(), taken),
        ("https://bmc", json!({"caBundle": "pem", "serverName": "bmc.lab"}), taken),
        ("bmc", json!({"sha256Pin": "00", "of": "key"}), taken),
        ("bmc", json!({"sha256Pin": "00", "of": "key", "caBundle": null}), taken),
        ("bmc", json!({}), one_of),
        ("bmc", json!({"caBundle": null, "sha256Pin": null}), one_of),
        ("bmc", json!({"caBundle": "pem", "sha256Pin": "00", "of": "key"}), one_of),
        ("bmc", json!({"sha256Pin": "00"}), needs_of),
        ("bmc", json!({"caBundle": "pem", "of": "key"}), needs_of),
        ("bmc", json!({"sha256Pin": "00", "of": "key", "serverName": "x"}), "a pin knows no names"),
        ("bmc", json!({"sha256Pin": "00", "of": "issuer"}), "Unsupported value"),
        ("http://bmc", bundle.clone(), https),
        ("HTTP://bmc", bundle.clone(), https),
        ("ftp://bmc", bundle.clone(), https),
        ("", bundle, "should be at least 1 chars long"),
    ];
    for (address, tls, wanted) in rows {
        control_plane.check(&create, &binding(address, &tls), wanted)?;
    }
    let mut unknown = binding("bmc", &json!({"caBundle": "pem"}));
    unknown["spec"]["insecure"] = true.into();
    control_plane.check(&create, &unknown, "unknown field")
}

fn incidents(control_plane: &ControlPlane) -> Result<()> {
    let apply = ["apply", "--server-side"];
    control_plane.check(&apply, &incident("b1", "Condemned"), "serverside-applied")?;
    control_plane.check(&apply, &incident("b1", "Fencing"), "serverside-applied")?;
    control_plane.check(&apply, &incident("b2", "Fencing"), "its spec does not change")
}

fn rights(control_plane: &ControlPlane) -> Result<()> {
    let (arbiter, agent, init) = ("coroner-arbiter", "coroner-agent", "coroner-init");
    let rows = [
        (arbiter, "patch", "nodes", true),
        (arbiter, "delete", "nodes", false),
        (arbiter, "create", "nodes", false),
        (arbiter, "patch", "nodes/status", true),
        (arbiter, "list", "pods", true),
        (arbiter, "create", "pods", false),
        (arbiter, "watch", "machinebindings.coroner.dev", true),
        (arbiter, "patch", "machinebindings.coroner.dev", false),
        (arbiter, "patch", "machinebindings.coroner.dev/status", true),
        (arbiter, "create", "incidents.coroner.dev", true),
        (arbiter, "create", "tokenreviews.authentication.k8s.io", true),
        (arbiter, "list", "secrets", false),
        (agent, "get", "nodes", false),
        (agent, "get", "secrets", false),
        (agent, "get", "configmaps", false),
        (init, "list", "nodes", true),
        (init, "patch", "nodes", false),
        (init, "list", "secrets", false),
    ];
    for (account, verb, resource, wanted) in rows {
        control_plane.check_right(account, verb, resource, wanted)?;
    }
    Ok(())
}
