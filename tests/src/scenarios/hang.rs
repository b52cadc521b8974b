//! A host hangs: nothing of it runs or answers, but its BMC says On, and it may go on at any moment. It must be turned
//! off, and proven off, before anything is released; then it is turned on again.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Told, returns::Return, story::Story};
use crate::{
    lab::{emulator::ledger::PowerStep, site::Site},
    oracles::stages::Stages,
};

const PATIENCE: Duration = Duration::from_secs(120);

/// Plays it on a machine without a replica.
///
/// # Errors
/// What did not go as it should.
pub async fn play(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    let back = Return::of(site, &victim).await?;
    let mut story = Story::begin(site, &victim).await?;
    story.harm("it hangs", async |site, victim| site.power.freeze(victim).await.map(drop)).await?;
    let ms: Stages = story.until_running(PATIENCE).await?;
    let class = story.says("class").unwrap_or_default().to_owned();
    ensure!(class == "HostSilentBmcOn", "it was condemned as {class:?}, not as HostSilentBmcOn");
    let power = site.record().await?.power;
    let uuid = &site.plan().machine(&victim)?.uuid;
    let turned_off = power.iter().any(|step| {
        step.true_uuid == *uuid && step.event == PowerStep::OffDone && step.t >= story.death.silent
    });
    ensure!(turned_off, "its workload runs elsewhere, but its BMC never turned it off");
    Ok(Told { why: format!("{victim} was turned off and released"), ms, returns: vec![back] })
}
