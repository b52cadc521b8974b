//! What happens to every cluster every month, and must worry nobody: agents and replicas are rolled, one of the two is
//! away for a while, the API server is down.

use std::{collections::BTreeSet, time::Duration};

use anyhow::{Result, bail, ensure};

use super::Told;
use crate::{
    lab::{
        site::{Site, tell::Look},
        truth,
    },
    oracles::watched::Kind,
};

const ROLLED: Duration = Duration::from_secs(240);

/// The image by the name that `deploy/` gives it, and by another one, as after a release.
const IMAGE: &str = "coroner.dev/coroner:v0.1.0";
const NEXT_IMAGE: &str = "coroner.dev/coroner:next";

/// All agents get a new image, one after the other.
///
/// # Errors
/// Somebody was suspected of being dead.
pub async fn roll_agents(site: &Site) -> Result<Told> {
    let calm = Calm::begin(site);
    for machine in &site.plan().machines {
        let tag = ["ctr", "-n", "k8s.io", "images", "tag", "--force", IMAGE, NEXT_IMAGE];
        let done = site.power.exec(&machine.name, tag).await?;
        ensure!(done.code == 0, "give the image another name on {}: {}", machine.name, done.stderr);
    }
    let agent = |image: &str| format!("agent={image}");
    let set = ["-n", "coroner", "set", "image", "daemonset/coroner-agent"];
    site.kubectl.run(&[&set[..], &[agent(NEXT_IMAGE).as_str()]].concat()).await?;
    let rolled = calm.until_rolled("coroner-agent").await;
    site.kubectl.run(&[&set[..], &[agent(IMAGE).as_str()]].concat()).await?;
    rolled?;
    calm.until_rolled("coroner-agent").await?;
    calm.for_a_while(Duration::from_secs(15)).await?;
    Ok(Told {
        why: "all agents got a new image, and the old one again; nobody was suspected".to_owned(),
        ..Told::default()
    })
}

/// All replicas are restarted, one after the other.
///
/// # Errors
/// Somebody was suspected of being dead.
pub async fn roll_replicas(site: &Site) -> Result<Told> {
    let calm = Calm::begin(site);
    site.kubectl.run(&["-n", "coroner", "rollout", "restart", "daemonset/coroner-arbiter"]).await?;
    calm.until_rolled("coroner-arbiter").await?;
    calm.for_a_while(Duration::from_secs(15)).await?;
    Ok(Told { why: "all replicas were restarted; nobody was suspected".to_owned(), ..Told::default() })
}

/// The agents are restarted while there is no arbiter to tell.
///
/// # Errors
/// Somebody was suspected of being dead.
pub async fn agents_without_arbiter(site: &Site) -> Result<Told> {
    let calm = Calm::begin(site);
    site.tell.line("  all replicas are taken away");
    place_replicas(site, "add", "nowhere").await?;
    site.tell
        .until("no replica to be left", Duration::from_secs(60), async || {
            let left = arbiter_pods(site);
            Ok(if left == 0 { Look::There(()) } else { Look::Missing(format!("{left} are there")) })
        })
        .await?;
    site.kubectl.run(&["-n", "coroner", "rollout", "restart", "daemonset/coroner-agent"]).await?;
    // An agent that cannot register is not ready, so the rollout would wait: its pods are deleted by hand.
    site.kubectl
        .run(&["-n", "coroner", "delete", "pods", "--wait=false", "-l", "app.kubernetes.io/component=agent"])
        .await?;
    tokio::time::sleep(Duration::from_secs(20)).await;
    site.tell.line("  the replicas come back");
    place_replicas(site, "remove", "nowhere").await?;
    calm.until_rolled("coroner-arbiter").await?;
    calm.until_rolled("coroner-agent").await?;
    calm.for_a_while(Duration::from_secs(30)).await?;
    Ok(Told {
        why: "the agents were restarted without an arbiter; nobody was suspected".to_owned(),
        ..Told::default()
    })
}

/// The API server is down for three minutes.
///
/// # Errors
/// Somebody was fenced or released, or held afterwards.
pub async fn api_down(site: &Site) -> Result<Told> {
    let calm = Calm::begin(site);
    site.tell.line("  the API server is killed; for three minutes");
    site.control_plane(&["stop", "kube-apiserver", "--now"]).await?;
    let ended = truth::now_ns()? + 180_000_000_000;
    while truth::now_ns()? < ended {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    site.control_plane(&["start", "kube-apiserver"]).await?;
    site.tell.line("  the API server is back");
    calm.for_a_while(Duration::from_secs(60)).await?;
    Ok(Told {
        why: "three minutes without an API server; nobody was suspected".to_owned(),
        ..Told::default()
    })
}

// === helpers ===

/// From where on nothing may be seen.
struct Calm<'a> {
    site: &'a Site,
    /// Incidents of earlier scenarios.
    known: BTreeSet<String>,
}

impl<'a> Calm<'a> {
    fn begin(site: &'a Site) -> Self {
        let known = site.watch.present(Kind::Incident).into_iter().map(|seen| seen.name).collect();
        Self { site, known }
    }

    /// No incident since the beginning; the nodes as the people's port shows them must be well, too, where it answers.
    async fn check(&self) -> Result<()> {
        let incidents = self.site.watch.present(Kind::Incident);
        if let Some(seen) = incidents.iter().find(|seen| !self.known.contains(&seen.name)) {
            bail!("somebody was suspected: {} {}", seen.name, seen.object["status"]);
        }
        if let Ok(nodes) = self.site.people.nodes().await
            && let Some(node) = nodes.iter().find(|node| node.phase != "Alive")
        {
            bail!("{} is {}: {:?}", node.node, node.phase, node.reason);
        }
        Ok(())
    }

    async fn for_a_while(&self, span: Duration) -> Result<()> {
        let end = truth::now_ns()? + u64::try_from(span.as_nanos()).unwrap_or(u64::MAX);
        while truth::now_ns()? < end {
            self.check().await?;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
        let status = self.site.people.status().await?;
        ensure!(status.attention.is_empty(), "the status asks for attention: {:?}", status.attention);
        Ok(())
    }

    async fn until_rolled(&self, daemonset: &str) -> Result<()> {
        self.site
            .tell
            .until(&format!("{daemonset} to be rolled out"), ROLLED, async || {
                if let Err(error) = self.check().await {
                    return Ok(Look::There(Err(error)));
                }
                let set = self.site.kubectl.json(&["-n", "coroner", "get", "daemonset", daemonset]).await?;
                let number = |key: &str| set["status"][key].as_u64().unwrap_or(0);
                let wanted = number("desiredNumberScheduled");
                let new = set["status"]["observedGeneration"] == set["metadata"]["generation"];
                let (updated, ready) = (number("updatedNumberScheduled"), number("numberReady"));
                Ok(if new && wanted > 0 && updated == wanted && ready == wanted {
                    Look::There(Ok(()))
                } else {
                    Look::Missing(format!("{updated} of {wanted} are new, {ready} are ready"))
                })
            })
            .await?
    }
}

/// Sends the replicas to nodes that do not exist, or lets them come back.
async fn place_replicas(site: &Site, op: &str, label: &str) -> Result<()> {
    let path = "/spec/template/spec/nodeSelector";
    let patch = match op {
        "add" => format!(r#"[{{"op":"add","path":"{path}","value":{{"{label}":"true"}}}}]"#),
        _ => format!(r#"[{{"op":"remove","path":"{path}"}}]"#),
    };
    let words = ["-n", "coroner", "patch", "daemonset", "coroner-arbiter", "--type=json", "-p", &patch];
    site.kubectl.run(&words).await.map(drop)
}

fn arbiter_pods(site: &Site) -> usize {
    site.watch
        .present(Kind::Pod)
        .iter()
        .filter(|seen| seen.name.starts_with("coroner/coroner-arbiter-"))
        .count()
}
