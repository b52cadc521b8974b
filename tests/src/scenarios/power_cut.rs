//! A host loses power; its BMC lives on standby power and says Off. Found off, proven, released: without any command
//! that could turn off anything that runs.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::{Told, returns::Return, story::Story};
use crate::lab::site::Site;

/// Page of targets: 15 s; a busy host gets more before it counts as broken.
const PATIENCE: Duration = Duration::from_secs(90);

/// Plays it on a machine without a replica.
///
/// # Errors
/// What did not go as it should.
pub async fn play(site: &Site) -> Result<Told> {
    let victim = site.victim(&[], false).await?;
    on(site, &victim).await
}

/// Plays it on that machine.
///
/// # Errors
/// What did not go as it should.
pub async fn on(site: &Site, victim: &str) -> Result<Told> {
    let back = Return::of(site, victim).await?;
    let mut story = Story::begin(site, victim).await?;
    story.harm("its power is cut", async |site, victim| site.power.off(victim).await.map(drop)).await?;
    let ms = story.until_running(PATIENCE).await?;
    let class = story.says("class").unwrap_or_default().to_owned();
    ensure!(class == "FoundOff", "it was condemned as {class:?}, not as FoundOff");
    site.tell
        .note(&format!("somebody gives {victim} power again; its return goes on beside the next scenario"));
    site.power.on(victim).await?;
    Ok(Told { why: format!("{victim} was found off and released"), ms, returns: vec![back] })
}
