//! The people's port of the replicas: asked over HTTPS with an operator's token, as the page does, and through the
//! shipped `coroner` command where a person would type it.

use std::{
    path::{Path, PathBuf},
    process::Stdio,
    sync::Mutex,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use coroner_shared::{
    api::{ApiError, Explanation, IncidentSummary, NodeSummary, Status},
    names::PORT_PEOPLE,
    trust::{Trust, TrustedReplica},
};
use serde::de::DeserializeOwned;
use tokio::process::Command;

use super::cluster::Kubectl;

/// A replica whose host has no power answers nobody, and the next one is asked.
const ANSWER_WITHIN: Duration = Duration::from_millis(1500);

/// An operator's access.
#[derive(Debug)]
pub struct People {
    client: reqwest::Client,
    token: String,
    replicas: Vec<TrustedReplica>,
    program: PathBuf,
    token_file: PathBuf,
    trust_file: PathBuf,
    /// The replica that answered last is asked first.
    last: Mutex<usize>,
}

/// What the `coroner` command said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Said {
    /// Exit code: 0 done, 1 failed, 2 wrong command line, 3 refused.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

// === impl People ===

impl People {
    /// Makes an operator `name`, whose token and trust file are kept in `folder`; `program` is the `coroner` command.
    ///
    /// # Errors
    /// When the API server refuses, or the trust file is none.
    pub async fn new(kubectl: &Kubectl, program: &Path, folder: &Path, name: &str) -> Result<Self> {
        kubectl.apply(&super::objects::operator(name)).await?;
        let token = kubectl.run(&["create", "token", name, "--duration=24h"]).await?.trim().to_owned();
        let path = r"jsonpath={.data.cluster\.json}";
        let trust = kubectl.run(&["-n", "coroner", "get", "configmap", "coroner-trust", "-o", path]).await?;
        let (token_file, trust_file) = (folder.join(format!("{name}.token")), folder.join("cluster.json"));
        std::fs::write(&token_file, &token).context("keep the operator's token")?;
        std::fs::write(&trust_file, &trust).context("keep the trust file")?;
        let trust = Trust::parse(&trust).context("understand the trust file")?;
        let ca =
            reqwest::Certificate::from_pem(trust.ca.as_bytes()).context("read the CA of the replicas")?;
        let client = reqwest::Client::builder()
            .tls_certs_only([ca])
            .no_proxy()
            .https_only(true)
            .connect_timeout(Duration::from_millis(800))
            .timeout(ANSWER_WITHIN)
            .build()
            .context("make the client of the people's port")?;
        Ok(Self {
            client,
            token,
            replicas: trust.replicas,
            program: program.to_owned(),
            token_file,
            trust_file,
            last: Mutex::new(0),
        })
    }

    /// The replicas.
    #[must_use]
    pub fn replicas(&self) -> &[TrustedReplica] {
        &self.replicas
    }

    /// The `coroner` command.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Words that lead the `coroner` command to the replicas, for a person's shell.
    #[must_use]
    pub fn flags(&self) -> [String; 4] {
        [
            "--trust-file".to_owned(),
            self.trust_file.display().to_string(),
            "--token-file".to_owned(),
            self.token_file.display().to_string(),
        ]
    }

    /// The cluster, as any replica sees it.
    ///
    /// # Errors
    /// As every question here: no replica answers, or it refuses.
    pub async fn status(&self) -> Result<Status> {
        self.get("/v1/status").await
    }

    /// The cluster, as this replica sees it.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub async fn status_of(&self, replica: &TrustedReplica) -> Result<Status> {
        self.ask(replica, "/v1/status").await
    }

    /// Every node, as this replica sees it: the readings of BMCs are its own.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub async fn nodes_of(&self, replica: &TrustedReplica) -> Result<Vec<NodeSummary>> {
        self.ask(replica, "/v1/nodes").await
    }

    /// Every node.
    ///
    /// # Errors
    /// See [`People::status`].
    pub async fn nodes(&self) -> Result<Vec<NodeSummary>> {
        self.get("/v1/nodes").await
    }

    /// One node, as the leader sees it: only the leader knows when it was heard, and what was found.
    ///
    /// # Errors
    /// See [`People::status`]; there is no leader.
    pub async fn node(&self, name: &str) -> Result<NodeSummary> {
        self.ask(self.wanted_leader().await?, &format!("/v1/nodes/{name}")).await
    }

    /// Why a node is what it is, as the leader sees it.
    ///
    /// # Errors
    /// See [`People::node`].
    pub async fn explain(&self, name: &str) -> Result<Explanation> {
        self.ask(self.wanted_leader().await?, &format!("/v1/nodes/{name}/explain")).await
    }

    /// All incidents, newest first.
    ///
    /// # Errors
    /// See [`People::status`].
    pub async fn incidents(&self) -> Result<Vec<IncidentSummary>> {
        self.get("/v1/incidents").await
    }

    /// The replica that leads, if anybody knows one.
    ///
    /// # Errors
    /// See [`People::status`].
    pub async fn leader(&self) -> Result<Option<&TrustedReplica>> {
        let leader = self.status().await?.leader;
        Ok(self.replicas.iter().find(|replica| Some(replica.id) == leader))
    }

    /// Runs the `coroner` command as that operator.
    ///
    /// # Errors
    /// When it cannot be started or does not end within half a minute.
    pub async fn command(&self, words: &[&str]) -> Result<Said> {
        let run = Command::new(&self.program)
            .args(words)
            .args(self.flags())
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output();
        let output = tokio::time::timeout(Duration::from_secs(30), run)
            .await
            .with_context(|| format!("wait for coroner {}", words.join(" ")))?
            .with_context(|| format!("start {}", self.program.display()))?;
        Ok(Said {
            code: output.status.code().unwrap_or(-1),
            out: String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            err: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }

    async fn wanted_leader(&self) -> Result<&TrustedReplica> {
        self.leader().await?.context("no replica leads now")
    }

    async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T> {
        let first = *self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let mut failures = Vec::new();
        for step in 0..self.replicas.len() {
            let at = (first + step) % self.replicas.len();
            let replica = &self.replicas[at];
            match self.ask(replica, path).await {
                Ok(answer) => {
                    *self.last.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = at;
                    return Ok(answer);
                }
                Err(error) => failures.push(format!("{}: {error:#}", replica.host)),
            }
        }
        bail!("no replica answers {path}: {}", failures.join("; "))
    }

    async fn ask<T: DeserializeOwned>(&self, replica: &TrustedReplica, path: &str) -> Result<T> {
        let url = format!("https://{}:{PORT_PEOPLE}{path}", replica.address);
        let answer = self.client.get(&url).bearer_auth(&self.token).send().await.context("ask it")?;
        let status = answer.status();
        let body = answer.bytes().await.context("read its answer")?;
        if !status.is_success() {
            match serde_json::from_slice::<ApiError>(&body) {
                Ok(error) => bail!("{}: {}", error.reason, error.message),
                Err(_) => bail!("{status}"),
            }
        }
        serde_json::from_slice(&body).with_context(|| format!("understand its answer to {path}"))
    }
}
