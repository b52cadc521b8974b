//! Somebody mixes up two rows of a spreadsheet: the BMC addresses in the bindings of two nodes are exchanged. Then one
//! of the two loses power. What fences by address alone would turn off the other one, which is well, hear `Off`, and
//! release workloads that still run. Coroner compares identities first: nothing is commanded, both UUIDs are shown.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use super::{Told, returns::Return, story::Story};
use crate::{
    lab::site::{Site, objects, tell::Look},
    oracles::{stages::Stages, watched::Kind},
};

const NOTICED: Duration = Duration::from_secs(60);
const HELD: Duration = Duration::from_secs(60);
const AND_THEN: Duration = Duration::from_secs(5);

/// Plays it on two machines without a replica, or on one of each kind.
///
/// # Errors
/// What did not go as it should.
pub async fn play(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let other = site.bystander(&[&victim], true).await?;
    let back = Return::of(site, &victim).await?;
    let begin = crate::lab::truth::now_ns()?;
    let mut story = Story::begin(site, &victim).await?;
    let seen = watch(site, &mut story, &victim, &other, begin).await;
    // Put right whatever was seen.
    let ca = std::fs::read_to_string(&site.bmcs.ca_file).context("read the CA of the BMCs")?;
    let machines = [site.plan().machine(&victim)?, site.plan().machine(&other)?];
    let right = machines.map(|machine| objects::binding(machine, machine.bmc_address, &ca));
    site.kubectl.apply(&right).await?;
    let why = seen?;
    site.tell.note(&format!("the bindings are put right, and somebody gives {victim} power again"));
    site.power.on(&victim).await?;
    Ok(Told { why, ms: Stages::default(), returns: vec![back] })
}

async fn watch(site: &Site, story: &mut Story<'_>, victim: &str, other: &str, begin: u64) -> Result<String> {
    site.tell.line(&format!("  the BMC addresses of {victim} and {other} are exchanged in their bindings"));
    exchange(site, victim, other).await?;
    site.tell
        .until("the exchange to be noticed", NOTICED, async || {
            let verdicts = [victim, other].map(|name| identity(site, name));
            let noticed = verdicts.iter().all(|(verdict, _)| verdict != "Match");
            Ok(if noticed { Look::There(()) } else { Look::Missing(format!("{verdicts:?}")) })
        })
        .await?;
    for name in [victim, other] {
        let (verdict, both) = identity(site, name);
        site.tell.line(&format!("  {name}: identity {verdict}, {both}"));
    }
    story.harm("its power is cut", async |site, victim| site.power.off(victim).await.map(drop)).await?;
    let held = story
        .until("held by name", HELD, |story| {
            let held = story.says("phase") == Some("Held");
            held.then(|| story.says("heldReason").unwrap_or_default().to_owned())
        })
        .await?;
    story.nothing_for(AND_THEN, |story| story.tainted().then(|| "it was tainted".to_owned())).await?;
    for sentence in site.people.explain(victim).await?.sentences {
        site.tell.note(&sentence);
    }
    let shown = format!("{:?} {}", site.people.node(victim).await?, identity(site, victim).1);
    for name in [victim, other] {
        let uuid = &site.plan().machine(name)?.uuid;
        ensure!(
            shown.to_lowercase().contains(uuid.as_str()),
            "the UUID {uuid} of {name} is not shown: {shown}"
        );
    }
    let ledger = site.record().await?.ledger;
    let sent = ledger.iter().find(|entry| entry.t >= begin && entry.path.contains("ComputerSystem.Reset"));
    ensure!(sent.is_none(), "a power command was sent: {sent:?}");
    Ok(format!("{victim} is held ({held}), both UUIDs are shown, no command went to either BMC"))
}

/// Only the address: the certificate is the one of the BMC that answers there, as with BMCs of one CA and one name.
async fn exchange(site: &Site, one: &str, other: &str) -> Result<()> {
    let ca = std::fs::read_to_string(&site.bmcs.ca_file).context("read the CA of the BMCs")?;
    let (one, other) = (site.plan().machine(one)?, site.plan().machine(other)?);
    let mut exchanged =
        [objects::binding(one, other.bmc_address, &ca), objects::binding(other, one.bmc_address, &ca)];
    for (binding, answers) in exchanged.iter_mut().zip([other, one]) {
        binding["spec"]["tls"]["serverName"] = Value::String(answers.bmc_name.clone());
    }
    site.kubectl.apply(&exchanged).await
}

/// The verdict on a node's BMC, and both UUIDs, from the binding's status.
fn identity(site: &Site, node: &str) -> (String, String) {
    let binding = site.watch.present(Kind::Binding).into_iter().find(|seen| seen.name == node);
    let object = binding.map(|seen| seen.object).unwrap_or_default();
    let identity = &object["status"]["identity"];
    let text = |key: &str| identity[key].as_str().unwrap_or("none").to_owned();
    (text("verdict"), format!("node {}, BMC {}", text("nodeUUID"), text("bmcUUID")))
}
