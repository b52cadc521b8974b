//! What a policy does not allow is not done: in Observe a death is said and nothing follows, and two policies that
//! speak for one node are as good as none, which both say.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::{Value, json};

use super::{Told, returns::Return, story::Story};
use crate::{
    lab::{
        site::{Site, objects, tell::Look},
        truth,
    },
    oracles::stages::Stages,
};

/// A policy that selects what another one selects too.
pub const SECOND: &str = "lab-second";

const SAID: Duration = Duration::from_secs(60);
const AND_THEN: Duration = Duration::from_secs(20);

/// A death in Observe.
///
/// # Errors
/// What did not go as it should.
pub async fn observe(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let mut policy = objects::policy();
    policy["spec"]["mode"] = json!("Observe");
    site.kubectl.apply(&[policy]).await?;
    wait_mode(site, &victim, "Observe").await?;
    let (back, told) = silent_death(site, &victim, |story| {
        let observed =
            story.incident.as_ref().is_some_and(|(_, object)| object["status"]["observed"] == true);
        (observed && story.has("WouldCondemn")).then(|| "WouldCondemn was said, and nothing else".to_owned())
    })
    .await?;
    site.kubectl.apply(&[objects::policy()]).await?;
    Ok(Told { why: told, ms: Stages::default(), returns: vec![back] })
}

/// A death of a node that two policies select.
///
/// # Errors
/// What did not go as it should.
pub async fn two(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let mut second = objects::policy();
    second["metadata"]["name"] = json!(SECOND);
    second["spec"]["nodeSelector"] = json!({ "kubernetes.io/hostname": victim });
    site.kubectl.apply(&[second]).await?;
    for name in ["lab", SECOND] {
        site.tell
            .until(&format!("policy {name} to say that there is a conflict"), SAID, async || {
                let policy = site.kubectl.json(&["get", "fencingpolicy", name]).await?;
                let conditions = policy["status"]["conditions"].as_array().cloned().unwrap_or_default();
                let conflict = |c: &Value| {
                    c["type"] == "Accepted" && c["status"] == "False" && c["reason"] == "Conflict"
                };
                Ok(if conditions.iter().any(conflict) {
                    Look::There(())
                } else {
                    Look::Missing(format!("it says {conditions:?}"))
                })
            })
            .await?;
    }
    let (back, told) = silent_death(site, &victim, |story| {
        (story.has("WouldCondemn") || story.says("heldReason") == Some("PolicyConflict"))
            .then(|| format!("two policies select it: {}", story.stands()))
    })
    .await?;
    site.kubectl.run(&["delete", "fencingpolicy", SECOND]).await?;
    Ok(Told { why: told, ms: Stages::default(), returns: vec![back] })
}

/// Cuts the power of a machine that may not be fenced; nothing must follow but words.
async fn silent_death(
    site: &Site,
    victim: &str,
    said: impl FnMut(&Story<'_>) -> Option<String>,
) -> Result<(Return, String)> {
    let back = Return::of(site, victim).await?;
    let mut story = Story::begin(site, victim).await?;
    let begin = truth::now_ns()?;
    story.harm("its power is cut", async |site, victim| site.power.off(victim).await.map(drop)).await?;
    let told = story.until("that to be said", SAID, said).await?;
    story
        .nothing_for(AND_THEN, |story| {
            let acted = story.tainted() || story.says("provenAt").is_some();
            acted.then(|| format!("something was done: {}", story.stands()))
        })
        .await?;
    let ledger = site.record().await?.ledger;
    let sent = ledger.iter().find(|entry| entry.t >= begin && entry.path.contains("ComputerSystem.Reset"));
    ensure!(sent.is_none(), "a power command was sent: {sent:?}");
    site.power.on(victim).await?;
    Ok((back, told))
}

async fn wait_mode(site: &Site, node: &str, mode: &str) -> Result<()> {
    site.tell
        .until(&format!("{node} to be in {mode}"), SAID, async || {
            let node = site.people.node(node).await?;
            Ok(if node.mode == mode {
                Look::There(())
            } else {
                Look::Missing(format!("it is in {}", node.mode))
            })
        })
        .await
}
