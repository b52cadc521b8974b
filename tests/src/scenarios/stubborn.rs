//! Fences that do not go as they should: BMCs that do nothing, machines that come back in the middle, pauses.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{Told, gate, returns::Return, story::Story};
use crate::{
    lab::{emulator::ledger::Entry, site::Site, truth},
    oracles::{stages::Stages, watched::Kind},
};

const DECIDED: Duration = Duration::from_secs(60);
const ENOUGH: Duration = Duration::from_secs(90);

/// The BMC answers 204 to ForceOff and does nothing: no release, a page, its slot goes to another machine that dies
/// meanwhile, and further attempts until it obeys.
///
/// # Errors
/// What did not go as it should.
pub async fn bmc_does_nothing(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?;
    site.bmcs.control.set(&victim, json!({ "command": "nothing" })).await?;
    let mut story = hang(site, &victim).await?;
    story.until("the fence to be called stalled", ENOUGH, |story| story.has("Stalled").then_some(())).await?;
    let sent = force_offs(site, &victim, story.death.silent).await?.len();
    ensure!(!story.tainted() && !story.has("Proven"), "it was released though its BMC did nothing");
    story.until("a page", ENOUGH, |_| paged(site, &victim, "Stalled").then_some(())).await?;
    // Until then Kubernetes may place what is released elsewhere on this very machine.
    story
        .until("Kubernetes to give it up", ENOUGH, |_| {
            let nodes = site.watch.present(Kind::Node).into_iter();
            let seen = nodes.filter(|seen| seen.name == victim).find_map(|seen| seen.node())?;
            seen.given_up.then_some(())
        })
        .await?;
    let (second, beside) = fenced_beside(site, &victim).await?;
    story.hear();
    ensure!(!story.tainted() && !story.has("Proven"), "it was released though its BMC did nothing");
    let again = story.until("another attempt", ENOUGH, |_| site_attempts(site, &victim, sent)).await;
    site.tell.line("  the BMC obeys from here on");
    site.bmcs.control.set(&victim, json!({ "command": "acts" })).await?;
    again?;
    let ms = story.until_running(ENOUGH).await?;
    Ok(Told {
        why: format!(
            "stalled after {sent} attempts, {second} was fenced beside it, and more until the BMC obeyed"
        ),
        ms,
        returns: vec![back, beside],
    })
}

/// Paused while it retries: nothing is sent; resumed, it ends well.
///
/// # Errors
/// What did not go as it should.
pub async fn pause_while_retrying(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?;
    site.bmcs.control.set(&victim, json!({ "command": "nothing" })).await?;
    let mut story = hang(site, &victim).await?;
    story.until("the first attempt", DECIDED, |story| story.has("Attempt").then_some(())).await?;
    site.tell.line("  $ coroner pause --reason \"somebody works on the BMCs\" --yes");
    let said = site.people.command(&["pause", "--reason", "somebody works on the BMCs", "--yes"]).await?;
    ensure!(said.code == 0, "coroner pause ended with {}: {}", said.code, said.err);
    // What was on its way when the pause was committed may still arrive.
    tokio::time::sleep(Duration::from_secs(2)).await;
    let from = truth::now_ns()?;
    story
        .nothing_for(Duration::from_secs(25), |story| story.tainted().then(|| "it was tainted".to_owned()))
        .await?;
    let sent = force_offs(site, &victim, from).await?;
    ensure!(sent.is_empty(), "{} power commands were sent while paused", sent.len());
    site.bmcs.control.set(&victim, json!({ "command": "acts" })).await?;
    let said = site.people.command(&["resume", "--reason", "done", "--yes"]).await?;
    ensure!(said.code == 0, "coroner resume ended with {}: {}", said.code, said.err);
    let ms = story.until_running(ENOUGH).await?;
    Ok(Told {
        why: "nothing was sent in 25 s of pause; released after it".to_owned(),
        ms,
        returns: vec![back],
    })
}

/// The machine goes on by itself after it was condemned and before any command: a reprieve.
///
/// # Errors
/// What did not go as it should.
pub async fn back_before_attempt(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?.same_life();
    let mut story = hang(site, &victim).await?;
    // Only now, so that it does not delay the decision: identity and power take two requests or more each.
    story.until("the decision to be near", DECIDED, |story| near(story).then_some(())).await?;
    site.bmcs.control.set(&victim, json!({ "latency_ms": 2500 })).await?;
    let condemned =
        story.until("it to be condemned", DECIDED, |story| story.says("decidedAt").map(str::to_owned)).await;
    site.tell.line(&format!("  {victim} goes on"));
    site.power.thaw(&victim).await?;
    condemned?;
    let ended =
        story.until("its incident to end", ENOUGH, |story| story.says("ended").map(str::to_owned)).await?;
    site.bmcs.control.set(&victim, json!({ "latency_ms": 0 })).await?;
    let sent = force_offs(site, &victim, story.death.silent).await?;
    ensure!(sent.is_empty(), "it was heard again, and {} commands were sent", sent.len());
    ensure!(ended == "Reprieve" && !story.tainted(), "it ended as {ended}, not as a Reprieve");
    Ok(Told {
        why: format!("{victim}: {ended}, and nothing was sent"),
        returns: vec![back],
        ..Told::default()
    })
}

/// The machine goes on by itself after a command that did nothing: averted, and back in service.
///
/// # Errors
/// What did not go as it should.
pub async fn back_after_attempt(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?.same_life();
    site.bmcs.control.set(&victim, json!({ "command": "nothing" })).await?;
    let mut story = hang(site, &victim).await?;
    let sent = story.until("the first attempt", DECIDED, |story| story.has("Attempt").then_some(())).await;
    site.tell.line(&format!("  {victim} goes on"));
    site.power.thaw(&victim).await?;
    sent?;
    let ended = ends_unharmed(site, &victim, &mut story).await?;
    ensure!(ended == "Averted" && !story.tainted(), "it ended as {ended}, not as Averted");
    Ok(Told {
        why: format!("{victim}: {ended}, nothing more was sent"),
        returns: vec![back],
        ..Told::default()
    })
}

/// Proven off, and somebody gives it power again before the taint is written: no taint.
///
/// # Errors
/// What did not go as it should.
pub async fn on_before_taint(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?;
    gate::close(site).await?;
    let mut story = Story::begin(site, &victim).await?;
    story
        .harm("its power is cut; no taint passes the API server", async |site, victim| {
            site.power.off(victim).await.map(drop)
        })
        .await?;
    story.until("the proof", ENOUGH, |story| story.says("provenAt").map(|_| ())).await?;
    site.tell.line(&format!("  somebody gives {victim} power again; then taints pass again"));
    site.power.on(&victim).await?;
    gate::open(site).await?;
    let ended = story
        .until("its incident to end", Duration::from_secs(120), |story| {
            story.says("ended").map(str::to_owned)
        })
        .await?;
    let record = site.record().await?;
    let tainted = record.tainted.iter().any(|t| t.node == victim && t.received >= story.death.silent);
    ensure!(!tainted, "the taint was written though the machine had power again");
    let ms = Stages::of(&record, &story.death);
    Ok(Told { why: format!("proven, never tainted, ended as {ended}"), ms, returns: vec![back] })
}

// === helpers ===

/// Another machine hangs while one fence stalls: where only one may be in flight, the stalled one does not count.
async fn fenced_beside(site: &Site, stalled: &str) -> Result<(String, Return)> {
    let second = site.victim(&[stalled], false).await?;
    let back = Return::of(site, &second).await?;
    hang(site, &second).await?.until_running(ENOUGH).await?;
    Ok((second, back))
}

/// Whether the node was paged for that reason.
pub(super) fn paged(site: &Site, node: &str, reason: &str) -> bool {
    let pages = site.watch.present(Kind::Page);
    pages.iter().any(|seen| seen.object["node"] == node && seen.object["reason"] == reason)
}

/// A story of a machine that hangs from now on.
pub(super) async fn hang<'a>(site: &'a Site, victim: &str) -> Result<Story<'a>> {
    let mut story = Story::begin(site, victim).await?;
    story.harm("it hangs", async |site, victim| site.power.freeze(victim).await.map(drop)).await?;
    Ok(story)
}

/// Six seconds of silence: the decision takes eight at the least.
fn near(story: &Story<'_>) -> bool {
    truth::now_ns().is_ok_and(|now| now.saturating_sub(story.death.silent) > 6_000_000_000)
}

/// The end of an incident of a node that is heard: from here on nothing more may be sent to its BMC.
pub(super) async fn ends_unharmed(site: &Site, victim: &str, story: &mut Story<'_>) -> Result<String> {
    // A moment for what is on its way, and for its first beacons.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let from = truth::now_ns()?;
    let ended =
        story.until("its incident to end", ENOUGH, |story| story.says("ended").map(str::to_owned)).await?;
    site.bmcs.control.set(victim, json!({ "command": "acts" })).await?;
    let again = force_offs(site, victim, from).await?;
    ensure!(again.is_empty(), "{victim} was heard, and {} more commands were sent", again.len());
    Ok(ended)
}

/// The power commands that the victim's BMC was sent since then.
async fn force_offs(site: &Site, victim: &str, from: u64) -> Result<Vec<Entry>> {
    let mut ledger = site.record().await?.ledger;
    ledger.retain(|entry| {
        entry.bmc == victim && entry.t >= from && entry.path.contains("ComputerSystem.Reset")
    });
    Ok(ledger)
}

/// There when the BMC was sent more than `before` commands; looks at the file alone, which is cheap.
fn site_attempts(site: &Site, victim: &str, before: usize) -> Option<()> {
    let text = std::fs::read_to_string(&site.bmcs.ledger).context("read the ledger").ok()?;
    let mark = format!("\"bmc\":\"{victim}\"");
    let sent =
        text.lines().filter(|line| line.contains(&mark) && line.contains("ComputerSystem.Reset")).count();
    (sent > before).then_some(())
}
