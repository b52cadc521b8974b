//! The BMCs of a lab: our emulator as a process in the lab's BMC network, one BMC for each machine, and the files
//! that it writes. What it can be made to do is in `emulator`.
//!
//! The process ends with the value that holds it, also when the whole test is killed.

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use super::emulator::BmcConfig;
use super::emulator::control::Control;
use super::plan::Plan;

/// From its start until every address listens; it makes a key for each BMC, which takes milliseconds.
const READY_WITHIN: Duration = Duration::from_secs(60);

/// The emulator of a lab; dropped, it is killed.
#[derive(Debug)]
pub struct Bmcs {
    /// Sets knobs and gives commands.
    pub control: Control,
    /// The CA to trust.
    pub ca_file: PathBuf,
    /// Every request that a BMC was sent (`emulator::ledger::Entry`).
    pub ledger: PathBuf,
    /// What the BMCs did to their machines (`emulator::ledger::PowerEvent`).
    pub power: PathBuf,
    child: Mutex<Child>,
    _stdin: ChildStdin,
}

// === impl Bmcs ===

impl Bmcs {
    /// Starts `program` (the binary `lab-bmc`) with a BMC for each machine of the lab, all with one account. Its files
    /// are in the folder `bmcs` of the lab's state.
    ///
    /// # Errors
    /// If it cannot be started, or does not listen within a minute; what it said is in `bmcs/log`.
    pub async fn start(program: &Path, plan: &Plan, username: &str, password: &str) -> anyhow::Result<Self> {
        let folder = plan.names.state().join("bmcs");
        std::fs::create_dir_all(&folder).with_context(|| format!("make {}", folder.display()))?;
        let password_file = folder.join("password");
        std::fs::write(&password_file, password).context("write the password")?;
        let configs = configs(plan, username, &password_file);
        let config = folder.join("config.json");
        std::fs::write(&config, serde_json::to_string_pretty(&configs)?)
            .context("write the configuration")?;
        let (socket, log) = (folder.join("control.sock"), folder.join("log"));
        let mut child = Command::new("nsenter")
            .arg(format!("--net=/run/netns/{}", plan.names.bmc_network()))
            .arg(program)
            .args(["serve", "--until-stdin-ends", "--config"])
            .arg(&config)
            .arg("--state")
            .arg(&folder)
            .arg("--control")
            .arg(&socket)
            .arg("--lab-socket")
            .arg(plan.names.socket())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).context("create the log")?)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", program.display()))?;
        let stdin = child.stdin.take().context("take its standard input")?;
        let mut stdout = BufReader::new(child.stdout.take().context("take its standard output")?);
        let mut line = String::new();
        let read = stdout.read_line(&mut line);
        tokio::time::timeout(READY_WITHIN, read)
            .await
            .context("wait for the BMCs")?
            .context("read its output")?;
        anyhow::ensure!(line.trim() == "ready", "the BMCs did not start; see {}", log.display());
        Ok(Self {
            control: Control::new(&socket),
            ca_file: folder.join("ca.pem"),
            ledger: folder.join("ledger.jsonl"),
            power: folder.join("power.jsonl"),
            child: Mutex::new(child),
            _stdin: stdin,
        })
    }

    /// Whether the emulator still runs: what is judged after its end is no BMC's doing.
    ///
    /// # Errors
    /// How it ended.
    pub fn check(&self) -> anyhow::Result<()> {
        let ended = self.child.lock().unwrap_or_else(PoisonError::into_inner).try_wait();
        match ended.context("look at the emulator")? {
            None => Ok(()),
            Some(status) => anyhow::bail!("the emulator of the BMCs ended by itself: {status}"),
        }
    }
}

/// A BMC for each machine of the lab, at port 443 of the address that the plan gives it.
#[must_use]
pub fn configs(plan: &Plan, username: &str, password_file: &Path) -> Vec<BmcConfig> {
    let config = |machine: &super::plan::MachinePlan| BmcConfig {
        name: machine.name.clone(),
        address: SocketAddr::new(IpAddr::V4(machine.bmc_address), 443),
        uuid: machine.uuid.clone(),
        machine: machine.name.clone(),
        username: username.to_owned(),
        password_file: password_file.to_owned(),
    };
    plan.machines.iter().map(config).collect()
}
