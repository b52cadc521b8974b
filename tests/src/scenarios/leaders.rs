//! The leader dies in the middle: a new one must finish what was begun, and turn nothing off twice.

use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Told, gate, power_cut, returns::Return, story::Story};
use crate::{
    lab::site::{Site, tell::Look},
    oracles::{stages::Stages, watched::Kind},
};

const ENOUGH: Duration = Duration::from_secs(120);

/// Killed after the first command went out, before the proof.
///
/// # Errors
/// What did not go as it should.
pub async fn killed_before_proof(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?;
    let mut story = Story::begin(site, &victim).await?;
    story.harm("it hangs", async |site, victim| site.power.freeze(victim).await.map(drop)).await?;
    story.until("the first attempt", ENOUGH, |story| story.has("Attempt").then_some(())).await?;
    let killed = kill_leader(site).await?;
    story.hear();
    ensure!(story.says("provenAt").is_none(), "the proof was faster than the kill; nothing is shown");
    let ms = story.until_running(ENOUGH).await?;
    one_incident(site, &story)?;
    Ok(Told {
        why: format!("the leader on {killed} was killed before the proof; the next one released {victim}"),
        ms,
        returns: vec![back],
    })
}

/// Killed after the proof, before the taint.
///
/// # Errors
/// What did not go as it should.
pub async fn killed_before_taint(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?;
    gate::close(site).await?;
    let mut story = Story::begin(site, &victim).await?;
    story
        .harm("it hangs; no taint passes the API server", async |site, victim| {
            site.power.freeze(victim).await.map(drop)
        })
        .await?;
    story.until("the proof", ENOUGH, |story| story.says("provenAt").map(|_| ())).await?;
    let killed = kill_leader(site).await?;
    ensure!(!story.tainted(), "the taint passed a closed gate");
    gate::open(site).await?;
    let ms: Stages = story.until_running(ENOUGH).await?;
    one_incident(site, &story)?;
    Ok(Told {
        why: format!("the leader on {killed} was killed before the taint; the next one released {victim}"),
        ms,
        returns: vec![back],
    })
}

/// The leader's own host loses power.
///
/// # Errors
/// What did not go as it should.
pub async fn own_host(site: &Site) -> Result<Told> {
    let leader = site.people.leader().await?.context("a leader")?.host.to_string();
    ensure!(!site.placed_on(&leader).is_empty(), "no writer runs on the leader's host {leader}");
    // Whoever leads next goes by its own readings of that BMC.
    let others: Vec<&str> = site.plan().machines.iter().map(|machine| machine.name.as_str()).collect();
    let others: Vec<&str> = others.into_iter().filter(|name| *name != leader).collect();
    site.wait_steady(&others).await?;
    let told = power_cut::on(site, &leader).await?;
    let next = site.people.leader().await?.context("a new leader")?.host.to_string();
    Ok(Told { why: format!("{leader} led and lost power; {next} leads now, and released it"), ..told })
}

// === helpers ===

/// Kills the replica that leads, and waits until another one does. Its kubelet starts it again.
async fn kill_leader(site: &Site) -> Result<String> {
    let old = site.people.leader().await?.context("a leader to kill")?.clone();
    let host = old.host.to_string();
    let done = site.power.exec(&host, ["sh", "-c", "kill -9 $(pidof coroner-arbiter)"]).await?;
    ensure!(done.code == 0, "kill the replica on {host}: {}", done.stderr);
    site.tell.line(&format!("  the leader, on {host}, is killed"));
    site.tell
        .until("another leader", Duration::from_secs(30), async || {
            let mut said = Vec::new();
            for replica in site.people.replicas().iter().filter(|replica| replica.id != old.id) {
                let status = site.people.status_of(replica).await?;
                said.push(status.leader);
            }
            let other = said.iter().flatten().any(|leader| *leader != old.id);
            Ok(if other { Look::There(()) } else { Look::Missing(format!("the others say {said:?}")) })
        })
        .await?;
    Ok(host)
}

/// One death is one incident, however many leaders saw to it.
fn one_incident(site: &Site, story: &Story<'_>) -> Result<()> {
    let incidents = site.watch.present(Kind::Incident);
    let about = incidents.iter().filter(|seen| seen.object["spec"]["bootID"] == story.death.boot_id.as_str());
    let count = about.count();
    ensure!(count == 1, "there are {count} incidents about one death");
    Ok(())
}
