//! Commands from any replica: proposed here if it leads, else handed to the leader over the replicas' own port. So
//! agents and people may talk to any replica.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_replica::Role;
use coroner_shared::api::Explanation;
use coroner_shared::id::{NodeName, ReplicaId};
use coroner_shared::names::PORT_REPLICA;
use serde::{Deserialize, Serialize};

use crate::bounds;
use crate::replica::{ProposeError, Published, ReplicaHandle};

/// Where a follower hands over a command.
pub const PROPOSE: &str = "/propose";

/// The longest answer: an outcome is a few sentences.
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// Where a follower asks the leader why a node is what it is; the node's name follows.
pub const EXPLAIN: &str = "/explain";

/// How long the leader may take to explain; the follower's own answer comes after that.
const EXPLAINS_WITHIN: Duration = Duration::from_secs(2);

/// The longest explanation: a sentence for each observer and replica.
const EXPLANATION_BYTES_MAX: usize = 1024 * 1024;

/// A command handed to the leader.
#[derive(Serialize, Deserialize)]
pub struct Proposal {
    /// Its key.
    pub key: String,
    /// What.
    pub command: Command,
}

/// The leader's answer.
#[derive(Serialize, Deserialize)]
pub enum Answer {
    /// What became of it.
    Outcome(Outcome),
    /// Not the leader, or unknown.
    Failed(String),
}

/// Proposes from any replica.
#[derive(Clone)]
pub struct Proposer {
    handle: ReplicaHandle,
    client: reqwest::Client,
    peers: Arc<BTreeMap<ReplicaId, IpAddr>>,
    run: Arc<str>,
    count: Arc<AtomicU64>,
}

/// Why a command has no outcome, for whoever asked.
#[derive(Debug, thiserror::Error)]
pub enum HandOverError {
    /// Here.
    #[error(transparent)]
    Propose(#[from] ProposeError),
    /// The leader could not be asked.
    #[error(
        "replica {leader}, which leads, cannot be asked ({why}); it is not known whether the command was committed"
    )]
    Leader {
        /// Who leads.
        leader: ReplicaId,
        /// What happened.
        why: String,
    },
}

// === impl Proposer ===

impl Proposer {
    /// A proposer; `run` is unique to this run of the process and makes its keys unique.
    pub fn new(
        handle: ReplicaHandle,
        client: reqwest::Client,
        peers: BTreeMap<ReplicaId, IpAddr>,
        run: &str,
    ) -> Self {
        Self { handle, client, peers: Arc::new(peers), run: run.into(), count: Arc::default() }
    }

    /// A key for a command of our own.
    pub fn key(&self) -> String {
        format!("{}-{}-{}", self.handle.id(), self.run, self.count.fetch_add(1, Ordering::Relaxed))
    }

    /// The newest snapshot.
    pub fn published(&self) -> Published {
        self.handle.published()
    }

    /// The replica's handle.
    pub fn handle(&self) -> &ReplicaHandle {
        &self.handle
    }

    /// Where the other replicas are.
    pub fn peers(&self) -> &BTreeMap<ReplicaId, IpAddr> {
        &self.peers
    }

    /// The HTTP client that shows this replica's certificate.
    pub fn client(&self) -> &reqwest::Client {
        &self.client
    }

    /// Proposes here; for the leader's own work, which must end when it leads no more.
    ///
    /// # Errors
    /// [`ProposeError`].
    pub async fn here(&self, command: Command) -> Result<Outcome, ProposeError> {
        self.handle.propose(self.key(), command).await
    }

    /// Proposes wherever the leader is, under the caller's key.
    ///
    /// # Errors
    /// [`HandOverError`].
    pub async fn anywhere(&self, key: String, command: Command) -> Result<Outcome, HandOverError> {
        match self.handle.published().role {
            Role::Leader => Ok(self.handle.propose(key, command).await?),
            Role::Follower { leader: Some(leader) } => {
                self.hand_over(leader, Proposal { key, command }).await
            }
            Role::Follower { leader: None } => {
                Err(ProposeError::NotLeader(coroner_arbiter_replica::NotLeader::Elsewhere { leader: None })
                    .into())
            }
        }
    }

    /// What the leader says of a node, which alone knows who was heard when; `None` where this replica leads or no leader
    /// answers within 2 s.
    pub async fn explained_by_leader(&self, node: &NodeName) -> Option<Explanation> {
        let Role::Follower { leader: Some(leader) } = self.handle.published().role else { return None };
        let address = SocketAddr::new(*self.peers.get(&leader)?, PORT_REPLICA);
        match explanation(&self.client, &format!("https://{address}"), node).await {
            Ok(explanation) => Some(explanation),
            Err(error) => {
                tracing::debug!(%leader, %node, error = %crate::transport::chain(&error), "the leader explains nothing");
                None
            }
        }
    }

    async fn hand_over(&self, leader: ReplicaId, proposal: Proposal) -> Result<Outcome, HandOverError> {
        let failed = |why: String| HandOverError::Leader { leader, why };
        let address = self.peers.get(&leader).ok_or_else(|| failed("its address is not known".to_owned()))?;
        let url = format!("https://{}{PROPOSE}", SocketAddr::new(*address, PORT_REPLICA));
        let sent = self.client.post(url).timeout(Duration::from_secs(6)).json(&proposal).send().await;
        let answer = sent.map_err(|e| failed(crate::transport::chain(&e)))?;
        let answer = bounds::answer_json(answer, ANSWER_BYTES_MAX).await;
        match answer.map_err(|e| failed(crate::transport::chain(&e)))? {
            Answer::Outcome(outcome) => Ok(outcome),
            Answer::Failed(why) => Err(failed(why)),
        }
    }
}

/// Asks the replica at `base` for its own explanation.
async fn explanation(
    client: &reqwest::Client,
    base: &str,
    node: &NodeName,
) -> Result<Explanation, bounds::AnswerError> {
    let sent = client.get(format!("{base}{EXPLAIN}/{node}")).timeout(EXPLAINS_WITHIN).send().await?;
    bounds::answer_json(sent.error_for_status()?, EXPLANATION_BYTES_MAX).await
}

#[cfg(test)]
mod tests;
