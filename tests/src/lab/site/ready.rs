//! Until a site is ready: agents registered, bindings fit to fence with, BMCs steady, writers writing.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering,
    time::Duration,
};

use anyhow::{Result, bail};
use coroner_shared::api::NodeSummary;

use super::{Site, tell::Look};
use crate::lab::writer::boottime_ns;

/// How long a BMC must be read without a gap before its word is taken quickly; a rule of the product, for the
/// countdown only.
const STEADY_SECONDS: u64 = 120;

// === impl Site ===

impl Site {
    /// Waits until agents have registered, bindings are enrolled and the writers write: from here on a silent machine
    /// is judged.
    ///
    /// # Errors
    /// When that does not come about within some minutes.
    pub async fn wait_running(&self) -> Result<()> {
        let machines = self.plan().machines.len();
        self.tell
            .until("a leader, and every agent registered", Duration::from_secs(180), || async {
                let status = self.people.status().await?;
                let nodes = self.people.nodes().await?;
                let registered = nodes.iter().filter(|node| node.phase != "Unregistered").count();
                Ok(match status.leader {
                    Some(_) if registered == machines => Look::There(()),
                    Some(_) => Look::Missing(format!("{registered} of {machines} agents")),
                    None => Look::Missing("no leader".to_owned()),
                })
            })
            .await?;
        self.tell.note(&format!("{machines} agents have registered"));
        self.tell
            .until("every BMC enrolled: its UUID is the node's", Duration::from_secs(120), || async {
                let nodes = self.people.nodes().await?;
                let unready: Vec<String> = nodes.iter().filter_map(unready).collect();
                Ok(if unready.is_empty() && nodes.len() == machines {
                    Look::There(())
                } else {
                    Look::Missing(unready.join("; "))
                })
            })
            .await?;
        self.ready.store(boottime_ns(), Ordering::Relaxed);
        self.tell.note("every binding is FenceReady");
        self.wait_writing().await
    }

    /// Waits until every writer runs.
    ///
    /// # Errors
    /// When one does not within two minutes.
    pub async fn wait_writing(&self) -> Result<()> {
        let wanted = usize::from(self.writers.replicas);
        self.tell
            .until("every writer running", Duration::from_secs(120), || async {
                let placed = self.placed();
                let running = placed.iter().filter(|p| p.pod.phase == "Running" && !p.pod.deleting).count();
                Ok(if running == wanted {
                    Look::There(())
                } else {
                    Look::Missing(format!("{running} of {wanted}"))
                })
            })
            .await
    }

    /// Waits until every replica has read every BMC long enough, and counts down. Machines of `except` do not matter.
    ///
    /// # Errors
    /// When that takes much longer than it should.
    pub async fn wait_steady(&self, except: &[&str]) -> Result<()> {
        let patience = Duration::from_secs(STEADY_SECONDS + 120);
        self.tell
            .until("every BMC read for 120 s without a gap, by every replica", patience, || async {
                let missing = self.unsteady(except).await?;
                if missing.is_empty() {
                    return Ok(Look::There(()));
                }
                let gone = boottime_ns().saturating_sub(self.ready.load(Ordering::Relaxed)) / 1_000_000_000;
                let left = STEADY_SECONDS.saturating_sub(gone);
                let parts: Vec<String> =
                    missing.iter().map(|(host, count)| format!("{count} by the one on {host}")).collect();
                let left = match left {
                    0 => "longer than thought: a gap begins it anew".to_owned(),
                    left => format!("about {left} s left"),
                };
                Ok(Look::Missing(format!("{left}; BMCs not yet: {}", parts.join(", "))))
            })
            .await
    }

    /// How many BMCs are not steady yet, for each replica that misses one.
    async fn unsteady(&self, except: &[&str]) -> Result<BTreeMap<String, usize>> {
        let mut missing = BTreeMap::new();
        for (host, nodes) in self.unsteady_nodes().await? {
            let count = nodes.iter().filter(|name| !except.contains(&name.as_str())).count();
            if count > 0 {
                missing.insert(host, count);
            }
        }
        Ok(missing)
    }

    /// The nodes whose BMC is not steady, for each replica: whichever leads next, it goes by its own readings.
    ///
    /// # Errors
    /// When a replica does not answer, or knows no node yet.
    pub async fn unsteady_nodes(&self) -> Result<BTreeMap<String, BTreeSet<String>>> {
        let mut unsteady = BTreeMap::new();
        for replica in self.people.replicas() {
            let nodes = self.people.nodes_of(replica).await?;
            if nodes.is_empty() {
                bail!("{} knows no node yet", replica.host);
            }
            let lacks = |node: &&NodeSummary| node.bmc.as_ref().is_none_or(|bmc| bmc.steady_for.is_none());
            let names = nodes.iter().filter(lacks).map(|node| node.node.to_string()).collect();
            unsteady.insert(replica.host.to_string(), names);
        }
        Ok(unsteady)
    }
}

/// Why a node could not be fenced now.
fn unready(node: &NodeSummary) -> Option<String> {
    match &node.bmc {
        None => Some(format!("{} has no BMC", node.node)),
        Some(bmc) => bmc.fence_ready.as_ref().err().map(|why| format!("{}: {why}", node.node)),
    }
}
