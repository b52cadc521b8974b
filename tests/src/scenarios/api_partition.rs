//! A node is cut off from the API server and from nothing else. Kubernetes calls it NotReady after 40-50 s; a timer
//! would release its workloads, which still write. Coroner hears its beacons and does nothing.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Told, returns::Return, story::Story};
use crate::{
    lab::{Cut, Target, site::Site},
    oracles::stages::Stages,
};

/// Until Kubernetes gives the node up: 50 s of grace, looked at every 5 s.
const GIVEN_UP: Duration = Duration::from_secs(90);
/// And a while longer, in which nothing must happen.
const AND_THEN: Duration = Duration::from_secs(10);

/// Plays it on a machine without a replica.
///
/// # Errors
/// What did not go as it should.
pub async fn play(site: &Site) -> Result<Told> {
    let victim = site.bystander(&[], false).await?;
    let back = Return::of(site, &victim).await?.same_life();
    let mut story = Story::begin(site, &victim).await?;
    let cut = Target::Api { machine: Some(victim.clone()) };
    story
        .harm("it is cut off from the API server, and from nothing else", async |site, _| {
            site.power.cut(Cut::new(cut.clone())).await
        })
        .await?;
    let watched = watch(site, &victim, &mut story).await;
    // Healed whatever was seen: the next scenario needs the node.
    site.power.heal(Some(cut)).await?;
    let why = watched?;
    Ok(Told { why, ms: Stages::default(), returns: vec![back] })
}

async fn watch(site: &Site, victim: &str, story: &mut Story<'_>) -> Result<String> {
    story
        .until(&format!("Kubernetes to give {victim} up"), GIVEN_UP, |_| {
            let seen = site.watch.present(crate::oracles::watched::Kind::Node);
            let node = seen.into_iter().find(|seen| seen.name == victim)?.node()?;
            (node.ready != "True").then_some(())
        })
        .await?;
    story
        .nothing_for(AND_THEN, |story| story.says("decidedAt").map(|_| "it was condemned".to_owned()))
        .await?;
    let node = site.people.node(victim).await?;
    let heard = node.heard_ago.map_or("never".to_owned(), |ago| format!("{ago} ago"));
    let findings = if node.findings.is_empty() { "none".to_owned() } else { node.findings.join(", ") };
    site.tell.line(&format!(
        "  Kubernetes says NotReady; Coroner says {}, heard {heard}, findings: {findings}",
        node.phase
    ));
    for sentence in site.people.explain(victim).await?.sentences {
        site.tell.note(&sentence);
    }
    ensure!(node.phase == "Alive", "it is {} ({:?}), not Alive", node.phase, node.reason);
    ensure!(!story.tainted(), "it was tainted");
    Ok(format!("{victim} is NotReady for Kubernetes, heard {heard}, and was left alone"))
}
