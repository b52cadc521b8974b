//! The cord is pulled: host and BMC lose power together, so that nothing is left to ask. Nobody but a person can know.
//! The node is held by name and pages; a person looks, says so with their name, and the workload moves.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Told, returns::Return, story::Story};
use crate::{
    lab::{site::Site, truth},
    oracles::{stages::Stages, watched::Kind},
};

/// Page of targets: 15 s.
const HELD: Duration = Duration::from_secs(60);
/// As above: 10 s.
const CONFIRMED: Duration = Duration::from_secs(60);

/// Plays it on a machine without a replica.
///
/// # Errors
/// What did not go as it should.
pub async fn play(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?;
    let mut story = Story::begin(site, &victim).await?;
    story
        .harm("its cord is pulled: host and BMC are without power", async |site, victim| {
            site.power.off(victim).await?;
            site.power.bmc_address(victim, false).await
        })
        .await?;
    let seen = watch(site, &mut story, &victim).await;
    site.tell.note(&format!("{victim} is plugged in again"));
    site.power.bmc_address(&victim, true).await?;
    site.power.on(&victim).await?;
    let (why, ms) = seen?;
    Ok(Told { why, ms, returns: vec![back] })
}

async fn watch(site: &Site, story: &mut Story<'_>, victim: &str) -> Result<(String, Stages)> {
    let held = story
        .until("held by name", HELD, |story| {
            let reason = story.says("heldReason")?.to_owned();
            (story.says("phase") == Some("Held") && reason.contains("Bmc")).then_some(reason)
        })
        .await?;
    let held_ms = truth::now_ns()?.saturating_sub(story.death.silent) / 1_000_000;
    let node = site.people.node(victim).await?;
    site.tell.line(&format!("  held: {}", node.reason.clone().unwrap_or_default()));
    if let Some(advice) = &node.advice {
        site.tell.note(advice);
    }
    let words = ["confirm-off", victim, "--reason", "I stood beside it: the cord is out", "--yes"];
    site.tell.line(&format!(
        "  $ coroner confirm-off {victim} --reason \"I stood beside it: the cord is out\" --yes"
    ));
    let at = truth::now_ns()?;
    let mut said = site.people.command(&words).await?;
    // The API server of a busy host may not answer for a second; a person would type it again, too.
    for _ in 0..5 {
        if !said.err.contains("ApiUnreadable") {
            break;
        }
        site.tell.note(&said.err);
        tokio::time::sleep(Duration::from_secs(1)).await;
        said = site.people.command(&words).await?;
    }
    for line in said.out.lines().chain(said.err.lines()) {
        site.tell.note(line);
    }
    ensure!(said.code == 0, "coroner confirm-off ended with {}: {}", said.code, said.err);
    let ms = story.until_running(CONFIRMED).await?;
    let after = truth::now_ns()?.saturating_sub(at) / 1_000_000;
    let person = story.incident.as_ref().and_then(|(_, object)| object["status"]["proof"]["person"].as_str());
    let person = person.unwrap_or("nobody").to_owned();
    ensure!(person.contains("operator"), "the proof does not name the person, but {person:?}");
    let pages = site.watch.present(Kind::Page);
    let paged = pages.iter().any(|seen| seen.object["node"] == victim);
    ensure!(paged, "nobody was paged");
    Ok((
        format!(
            "{victim} was held after {held_ms} ms ({held}), confirmed by {person}, Running {after} ms after that"
        ),
        ms,
    ))
}
