//! The cluster's side of the lab: the control plane in the hub, kubelets' credentials, Nodes as the API shows them.

use std::{
    collections::BTreeMap,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::{
    net::API_PORT,
    plan::{LabConfig, Plan},
    shell::run,
};

/// Label that names a machine's failure domain.
pub const RACK_LABEL: &str = "topology.kubernetes.io/rack";
/// All machines of a lab boot at once on few cores.
const READY_PATIENCE: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// `hack/control-plane`, and what it started.
#[derive(Clone, Debug)]
pub struct ControlPlane {
    script: PathBuf,
    dir: PathBuf,
    args: Vec<String>,
    kubeconfig: PathBuf,
    plan: Plan,
    programs: PathBuf,
}

// === impl ControlPlane ===

impl ControlPlane {
    /// Finds the programs, or builds them, which takes minutes the first time. `say` hears of it line by line.
    ///
    /// # Errors
    /// When there is no way to get them.
    pub fn find(config: &LabConfig, plan: &Plan, say: &dyn Fn(&str)) -> Result<Self> {
        let script = config.control_plane.clone();
        ensure!(script.exists(), "there is no {}; name it with --control-plane", script.display());
        let printed = told(Command::new(&script).arg("build"), say)?;
        let programs = PathBuf::from(printed.trim());
        ensure!(programs.join("kubelet").exists(), "no kubelet in {}", programs.display());
        let names = &plan.names;
        Ok(Self {
            script,
            dir: names.state().join("control-plane"),
            args: config.control_plane_args.clone(),
            kubeconfig: names.kubeconfig(),
            plan: plan.clone(),
            programs,
        })
    }

    /// Folder of `kubelet`, `kubectl`, `lab-csi`.
    #[must_use]
    pub fn programs(&self) -> &Path {
        &self.programs
    }

    /// Starts it in the hub and waits until it answers.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn up(&self, say: &dyn Fn(&str)) -> Result<()> {
        let audit = self.plan.names.audit();
        let mut up = Command::new("ip");
        up.args(["netns", "exec", &self.plan.names.hub()])
            .arg(&self.script)
            .arg("up")
            .arg("--dir")
            .arg(&self.dir);
        up.args(["--address", &self.plan.api_address.to_string(), "--port", &API_PORT.to_string()]);
        up.arg("--audit-log").arg(audit).args(&self.args);
        told(&mut up, say).map(drop)
    }

    /// Writes the credentials of a machine's kubelet to `out`.
    ///
    /// # Errors
    /// When they cannot be made.
    pub fn credentials(&self, machine: &str, address: &str, out: &Path) -> Result<()> {
        let mut make = Command::new(&self.script);
        make.args(["kubelet-credentials", machine, "--node-ip", address, "--out"])
            .arg(out)
            .arg("--dir")
            .arg(&self.dir);
        told(&mut make, &|_| {})
            .with_context(|| format!("{machine}: make its kubelet's credentials"))
            .map(drop)
    }

    /// Runs kubectl as administrator.
    ///
    /// # Errors
    /// When it fails; the error is what it says.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        let kubeconfig = format!("--kubeconfig={}", self.kubeconfig.display());
        let kubectl = self.programs.join("kubectl");
        let limit = "--request-timeout=10s";
        run(&kubectl.to_string_lossy(), [kubeconfig.as_str(), limit].iter().chain(args))
    }

    /// Waits until the Node of each machine is Ready in the life with the given boot id, with the machine's identity.
    ///
    /// # Errors
    /// When one is not within five minutes or has another identity, or when `go_on` fails.
    pub fn wait_ready(
        &self,
        boot_ids: &BTreeMap<String, String>,
        go_on: &dyn Fn() -> Result<()>,
    ) -> Result<()> {
        let mut waited = Duration::ZERO;
        loop {
            go_on()?;
            let missing = match self.kubectl(&["get", "nodes", "-o", "json"]) {
                Ok(text) => self.not_ready(&text, boot_ids)?,
                Err(error) => vec![format!("{error:#}")],
            };
            if missing.is_empty() {
                return Ok(());
            }
            ensure!(waited < READY_PATIENCE, "not Ready after {READY_PATIENCE:?}: {}", missing.join(" "));
            sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
        }
    }

    fn not_ready(&self, nodes: &str, boot_ids: &BTreeMap<String, String>) -> Result<Vec<String>> {
        let nodes: Value = serde_json::from_str(nodes).context("understand the list of nodes")?;
        let nodes: BTreeMap<&str, &Value> = nodes["items"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|node| Some((node["metadata"]["name"].as_str()?, node)))
            .collect();
        let mut missing = Vec::new();
        for (name, boot_id) in boot_ids {
            let Some(node) = nodes.get(name.as_str()).filter(|node| is_ready(node, boot_id)) else {
                missing.push(name.clone());
                continue;
            };
            let (seen, uuid) = (&node["status"]["nodeInfo"]["systemUUID"], &self.plan.machine(name)?.uuid);
            ensure!(seen == uuid.as_str(), "{name} is {uuid}, but its kubelet reports {seen}");
        }
        Ok(missing)
    }

    /// Tells the cluster which rack each machine is in. A kubelet may not set that label itself.
    ///
    /// # Errors
    /// When the API server refuses.
    pub fn label_racks(&self) -> Result<()> {
        for rack in &self.plan.racks {
            let label = format!("{RACK_LABEL}={rack}");
            let mut args = vec!["label", "--overwrite", "nodes"];
            args.extend(self.plan.machines.iter().filter(|m| m.rack == *rack).map(|m| m.name.as_str()));
            args.push(&label);
            self.kubectl(&args)?;
        }
        Ok(())
    }
}

fn is_ready(node: &Value, boot_id: &str) -> bool {
    let conditions = node["status"]["conditions"].as_array();
    node["status"]["nodeInfo"]["bootID"] == boot_id
        && conditions
            .into_iter()
            .flatten()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
}

/// Runs a program whose stderr says how far it is; returns its stdout.
fn told(command: &mut Command, say: &dyn Fn(&str)) -> Result<String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("start {command:?}"))?;
    let mut last = String::new();
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            say(&line);
            last = line;
        }
    }
    let output = child.wait_with_output().with_context(|| format!("wait for {command:?}"))?;
    if !output.status.success() {
        bail!("{command:?}: {}: {last}", output.status);
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
