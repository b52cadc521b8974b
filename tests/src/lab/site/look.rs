//! Questions that scenarios ask a site about its machines, nodes and pods.

use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Site, tell::Look};
use crate::oracles::watched::{Kind, PodSeen};

/// A return that is under way ends within it, and a BMC becomes steady.
const FIT: Duration = Duration::from_secs(240);
/// Detached, attached and mounted again: the kubelet alone may take 10 s.
const MOVED: Duration = Duration::from_secs(60);

/// A writer, where it runs now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placed {
    /// `namespace/name`.
    pub name: String,
    /// Of this pod.
    pub uid: String,
    /// What is known of it.
    pub pod: PodSeen,
}

// === impl Site ===

impl Site {
    /// The writers that are there now, wherever they are.
    #[must_use]
    pub fn placed(&self) -> Vec<Placed> {
        let prefix = format!("{}/{}-", self.writers.namespace, self.writers.name);
        let pods = self.watch.present(Kind::Pod).into_iter().filter(|seen| seen.name.starts_with(&prefix));
        pods.filter_map(|seen| {
            let pod = seen.pod()?;
            Some(Placed { name: seen.name, uid: seen.uid, pod })
        })
        .collect()
    }

    /// The writers that run on that node.
    #[must_use]
    pub fn placed_on(&self, node: &str) -> Vec<Placed> {
        let mut on: Vec<Placed> = self.placed();
        on.retain(|placed| placed.pod.node == node && placed.pod.phase == "Running" && !placed.pod.deleting);
        on
    }

    /// Whether a replica runs on that machine.
    #[must_use]
    pub fn hosts_replica(&self, machine: &str) -> bool {
        self.config().replicas.iter().any(|replica| replica == machine)
    }

    /// A machine for a scenario to harm: at home for a while (see [`Site::not_at_home`]), with a writer on it, its BMC
    /// steady for every replica, none of `except`. Machines without a replica come first; a replica's host is only taken
    /// if `replicas`. A machine that came back empty gets a writer first; where all are on their way back, the first one
    /// is waited for.
    ///
    /// # Errors
    /// When there is none within some minutes, with what is wrong with each.
    pub async fn victim(&self, except: &[&str], replicas: bool) -> Result<String> {
        self.choose(except, replicas, true).await
    }

    /// The same, whatever is known of its BMC.
    ///
    /// # Errors
    /// As there.
    pub async fn bystander(&self, except: &[&str], replicas: bool) -> Result<String> {
        self.choose(except, replicas, false).await
    }

    async fn choose(&self, except: &[&str], replicas: bool, steady: bool) -> Result<String> {
        let may = |name: &str| !except.contains(&name) && (replicas || !self.hosts_replica(name));
        let mut names: Vec<&str> = self.plan().machines.iter().map(|machine| machine.name.as_str()).collect();
        names.retain(|name| may(name));
        names.sort_by_key(|name| self.hosts_replica(name));
        self.tell
            .until("a machine fit to be harmed", FIT, async || {
                let mut unfit = self.not_at_home().await?;
                if steady {
                    for (host, unsteady) in self.unsteady_nodes().await? {
                        let why = format!("{host} has not read its BMC for long enough");
                        for name in unsteady {
                            unfit.entry(name).or_insert_with(|| why.clone());
                        }
                    }
                }
                let fit: Vec<&str> =
                    names.iter().copied().filter(|name| !unfit.contains_key(*name)).collect();
                if let Some(name) = fit.iter().find(|name| !self.placed_on(name).is_empty()) {
                    return Ok(Look::There((*name).to_owned()));
                }
                if !fit.is_empty() {
                    self.move_a_writer().await?;
                }
                let why =
                    unfit.iter().filter(|(name, _)| may(name)).map(|(name, why)| format!("{name}: {why}"));
                Ok(Look::Missing(why.collect::<Vec<_>>().join("; ")))
            })
            .await
    }

    /// Deletes a writer of the most crowded machine; the scheduler likes empty machines, so that its next pod is
    /// likely to come to one.
    async fn move_a_writer(&self) -> Result<()> {
        let mut placed = self.placed();
        placed.retain(|placed| placed.pod.phase == "Running" && !placed.pod.deleting);
        let crowd = |node: &str| placed.iter().filter(|placed| placed.pod.node == node).count();
        let moved = placed.iter().max_by_key(|placed| crowd(&placed.pod.node)).context("a writer to move")?;
        let (namespace, pod) = moved.name.split_once('/').context("the name of a pod")?;
        self.kubectl.run(&["-n", namespace, "delete", "pod", pod, "--wait=false"]).await?;
        let node = self
            .tell
            .until(&format!("{pod} to move away from {}", moved.pod.node), MOVED, async || {
                let now =
                    self.placed().into_iter().find(|now| now.name == moved.name && now.uid != moved.uid);
                Ok(match now {
                    Some(now) if now.pod.phase == "Running" => Look::There(now.pod.node),
                    Some(now) => Look::Missing(format!("it is {} on {:?}", now.pod.phase, now.pod.node)),
                    None => Look::Missing("it is not there".to_owned()),
                })
            })
            .await?;
        self.tell.note(&format!(
            "{pod} was moved to {node}, so that a machine that came back has something to lose"
        ));
        Ok(())
    }

    /// The boot id of a machine that is on.
    ///
    /// # Errors
    /// When it is off.
    pub async fn boot_id(&self, machine: &str) -> Result<String> {
        let state = self.power.state(machine).await?;
        state.boot_id.with_context(|| format!("{machine} is off"))
    }

    /// The Node object.
    ///
    /// # Errors
    /// When the API server does not give it.
    pub async fn node_object(&self, name: &str) -> Result<Value> {
        self.kubectl.json(&["get", "node", name]).await
    }

    /// The Incident about that boot of that node, as the watch saw it last.
    #[must_use]
    pub fn incident_of(&self, node: &str, boot_id: &str) -> Option<(String, Value)> {
        let incidents = self.watch.present(Kind::Incident).into_iter();
        let mut about = incidents.filter(|seen| {
            let spec = &seen.object["spec"];
            spec["nodeName"] == node && spec["bootID"] == boot_id
        });
        about.next_back().map(|seen| (seen.name, seen.object))
    }
}
