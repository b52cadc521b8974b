//! Asks a running lab: for tests, the demo, the BMC emulator and the command line.

use std::{
    io::{BufRead, BufReader, Write},
    net::Shutdown,
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt};

use super::{
    cuts::{Cut, Target},
    protocol::{Listing, MachineState, Output, Request},
};

/// A client of `lab.sock`; each request has its own connection, so it may be cloned and used from anywhere.
#[derive(Clone, Debug)]
pub struct LabClient {
    socket: PathBuf,
}

// === impl LabClient ===

impl LabClient {
    /// A client of the lab whose socket that is. Nothing is asked yet.
    #[must_use]
    pub fn new(socket: impl Into<PathBuf>) -> Self {
        Self { socket: socket.into() }
    }

    /// Switches a machine on; returns as soon as it runs, long before its node is Ready.
    ///
    /// # Errors
    /// As every method here: when the lab is gone, or says why not.
    pub async fn on(&self, machine: &str) -> Result<MachineState> {
        self.ask(&Request::On { machine: machine.into() }).await
    }

    /// Cuts its power; returns when nothing of it can run any more.
    ///
    /// # Errors
    /// See [`LabClient::on`].
    pub async fn off(&self, machine: &str) -> Result<MachineState> {
        self.ask(&Request::Off { machine: machine.into() }).await
    }

    /// Presses its power button.
    ///
    /// # Errors
    /// See [`LabClient::on`].
    pub async fn shutdown(&self, machine: &str) -> Result<MachineState> {
        self.ask(&Request::Shutdown { machine: machine.into() }).await
    }

    /// Makes it hang.
    ///
    /// # Errors
    /// See [`LabClient::on`].
    pub async fn freeze(&self, machine: &str) -> Result<MachineState> {
        self.ask(&Request::Freeze { machine: machine.into() }).await
    }

    /// Ends its hang.
    ///
    /// # Errors
    /// See [`LabClient::on`].
    pub async fn thaw(&self, machine: &str) -> Result<MachineState> {
        self.ask(&Request::Thaw { machine: machine.into() }).await
    }

    /// What is true of it.
    ///
    /// # Errors
    /// See [`LabClient::on`].
    pub async fn state(&self, machine: &str) -> Result<MachineState> {
        self.ask(&Request::State { machine: machine.into() }).await
    }

    /// All machines and cuts.
    ///
    /// # Errors
    /// See [`LabClient::on`].
    pub async fn list(&self) -> Result<Listing> {
        self.ask(&Request::List).await
    }

    /// Lets something pass no more.
    ///
    /// # Errors
    /// See [`LabClient::on`].
    pub async fn cut(&self, cut: Cut) -> Result<()> {
        self.ask::<Value>(&Request::Cut(cut)).await.map(drop)
    }

    /// Lets it pass again; without a target, everything.
    ///
    /// # Errors
    /// See [`LabClient::on`].
    pub async fn heal(&self, target: Option<Target>) -> Result<()> {
        self.ask::<Value>(&Request::Heal { target }).await.map(drop)
    }

    /// Runs a command inside a machine, to its end.
    ///
    /// # Errors
    /// See [`LabClient::on`]. A command that fails is no error here.
    pub async fn exec<S: Into<String>>(
        &self,
        machine: &str,
        argv: impl IntoIterator<Item = S>,
    ) -> Result<Output> {
        let argv = argv.into_iter().map(Into::into).collect();
        self.ask(&Request::Exec { machine: machine.into(), argv }).await
    }

    /// Gives an OCI archive to a machine, or to all.
    ///
    /// # Errors
    /// See [`LabClient::on`].
    pub async fn import(&self, machine: Option<&str>, archive: &Path) -> Result<()> {
        let request = Request::Import { machine: machine.map(Into::into), archive: archive.to_owned() };
        self.ask::<Value>(&request).await.map(drop)
    }

    /// Takes a BMC's address away, or gives it back.
    ///
    /// # Errors
    /// See [`LabClient::on`].
    pub async fn bmc_address(&self, machine: &str, present: bool) -> Result<()> {
        self.ask::<Value>(&Request::BmcAddress { machine: machine.into(), present }).await.map(drop)
    }

    async fn ask<T: DeserializeOwned>(&self, request: &Request) -> Result<T> {
        let stream = tokio::net::UnixStream::connect(&self.socket);
        let mut stream =
            stream.await.with_context(|| format!("reach the lab at {}", self.socket.display()))?;
        stream.write_all(line(request)?.as_bytes()).await.context("ask the lab")?;
        let mut answer = String::new();
        tokio::io::BufReader::new(stream).read_line(&mut answer).await.context("hear the lab's answer")?;
        understand(&answer)
    }
}

/// As the client, for programs without an async runtime.
///
/// # Errors
/// See [`LabClient::on`].
pub fn ask_blocking<T: DeserializeOwned>(socket: &Path, request: &Request) -> Result<T> {
    let mut stream =
        UnixStream::connect(socket).with_context(|| format!("reach the lab at {}", socket.display()))?;
    stream.write_all(line(request)?.as_bytes()).context("ask the lab")?;
    stream.shutdown(Shutdown::Write).context("end the question")?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer).context("hear the lab's answer")?;
    understand(&answer)
}

fn line(request: &Request) -> Result<String> {
    let mut text = serde_json::to_string(request).context("write the request as JSON")?;
    text.push('\n');
    Ok(text)
}

fn understand<T: DeserializeOwned>(answer: &str) -> Result<T> {
    if answer.is_empty() {
        bail!("the lab ended before it answered");
    }
    let answer: Value = serde_json::from_str(answer).with_context(|| format!("understand {answer:?}"))?;
    if answer["ok"] != true {
        bail!("the lab says: {}", answer["error"].as_str().unwrap_or("no"));
    }
    serde_json::from_value(answer).context("understand the lab's answer")
}
