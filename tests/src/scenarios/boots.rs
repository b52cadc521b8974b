//! Boots that nobody ordered: in the middle of a fence, and one that dies before its agent has spoken.

use std::time::Duration;

use anyhow::{Result, ensure};
use serde_json::json;

use super::{
    Told,
    returns::Return,
    story::Story,
    stubborn::{ends_unharmed, hang, paged},
};
use crate::{
    lab::site::{Site, tell::Look},
    oracles::watched::Kind,
};

const ENOUGH: Duration = Duration::from_secs(120);
/// A page of a boot that has not registered comes after a minute.
const PAGED: Duration = Duration::from_secs(100);
/// The agent of a fresh boot is quick now and then.
const TRIES: usize = 5;

/// The BMC did nothing on command; then somebody restarts the machine by hand: nothing is released, it returns.
///
/// # Errors
/// What did not go as it should.
pub async fn new_boot_after_attempt(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?;
    site.bmcs.control.set(&victim, json!({ "command": "nothing" })).await?;
    let mut story = hang(site, &victim).await?;
    story.until("the first attempt", ENOUGH, |story| story.has("Attempt").then_some(())).await?;
    site.tell.line(&format!("  somebody restarts {victim} by hand"));
    site.power.off(&victim).await?;
    site.power.on(&victim).await?;
    story.until("its return", ENOUGH, |story| story.has("Returning").then_some(())).await?;
    let ended = ends_unharmed(site, &victim, &mut story).await?;
    ensure!(!story.tainted() && ended == "Returned", "it ended as {ended}, tainted: {}", story.tainted());
    Ok(Told {
        why: format!("{victim} booted anew after an attempt: never released, ended as {ended}"),
        returns: vec![back],
        ..Told::default()
    })
}

/// Power comes and goes: the kubelet of the new boot has spoken, its agent has not. Coroner cannot miss what it never
/// heard: it says so, pages, and a person orders the fence.
///
/// # Errors
/// What did not go as it should.
pub async fn dies_unheard(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?;
    let mut story = boot_and_die(site, &victim).await?;
    site.tell
        .until("the status to show it", Duration::from_secs(60), async || {
            let node = site.people.node(&victim).await?;
            let status = site.people.status().await?;
            let shown = status.attention.iter().any(|shown| shown.node.as_str() == victim);
            let named = node.reason.as_ref().is_some_and(|reason| reason.contains(&story.death.boot_id));
            Ok(if node.phase == "Unregistered" && shown && named {
                Look::There(())
            } else {
                Look::Missing(format!("{}: {}", node.phase, node.reason.unwrap_or_default()))
            })
        })
        .await?;
    let explained = site.people.explain(&victim).await?.sentences;
    explained.iter().for_each(|sentence| site.tell.note(sentence));
    ensure!(
        explained.iter().any(|sentence| sentence.contains("coroner fence")),
        "explain does not say what can be done: {explained:?}"
    );
    story.until("a page", PAGED, |_| paged(site, &victim, "BootUnregistered").then_some(())).await?;
    ensure!(story.incident.is_none(), "a boot that was never heard was judged: {}", story.stands());
    site.declare_order(&victim)?;
    let words = ["fence", &victim, "--reason", "its console is dark", "--yes"];
    site.tell.line(&format!("  $ coroner fence {victim} --reason \"its console is dark\" --yes"));
    let said = site.people.command(&words).await?;
    ensure!(said.code == 0, "coroner fence ended with {}: {} {}", said.code, said.out, said.err);
    let ms = story.until_running(ENOUGH).await?;
    site.tell.note(&format!("somebody gives {victim} power again"));
    site.power.on(&victim).await?;
    Ok(Told {
        why: format!("{victim} died unheard: said, paged, and released by order"),
        ms,
        returns: vec![back],
    })
}

/// Restarts the machine and cuts its power as soon as its kubelet speaks of the new boot; again if its agent was
/// quicker. The story is that of the boot that nobody heard.
async fn boot_and_die<'a>(site: &'a Site, victim: &str) -> Result<Story<'a>> {
    for _ in 0..TRIES {
        site.tell.line(&format!("  {victim} loses power for a moment, and for good when it has just booted"));
        site.power.off(victim).await?;
        site.power.on(victim).await?;
        let mut story = Story::begin(site, victim).await?;
        let boot = story.death.boot_id.clone();
        story
            .until("its kubelet to speak of the new boot", ENOUGH, |_| {
                let nodes = site.watch.present(Kind::Node).into_iter();
                let seen = nodes.filter(|seen| seen.name == victim).find_map(|seen| seen.node())?;
                (seen.boot_id == boot).then_some(())
            })
            .await?;
        story.harm("its power is cut", async |site, victim| site.power.off(victim).await.map(drop)).await?;
        let known = site.people.node(victim).await?.boot.map(|known| known.to_string());
        if known.as_deref() != Some(boot.as_str()) {
            return Ok(story);
        }
        site.tell.note("its agent was quicker; once more");
        site.power.on(victim).await?;
        site.tell
            .until("it at home", ENOUGH, async || {
                let away = site.not_at_home().await?.remove(victim);
                Ok(away.map_or(Look::There(()), Look::Missing))
            })
            .await?;
    }
    anyhow::bail!("the agent of {victim} was quicker than its kubelet's word {TRIES} times")
}
