//! Puts a site back in order after a scenario, however it went: nothing is cut, every BMC tells the truth, every
//! machine has power, bindings and policy are what they were, and nobody has paused anything.

use std::time::Duration;

use anyhow::{Context, Result};

use crate::lab::{
    Power,
    emulator::control::Command,
    site::{Site, objects, tell::Look},
};

/// Boots, returns, holds that end by themselves; a re-enrolled binding takes a moment.
const PATIENCE: Duration = Duration::from_secs(240);

/// Undoes what a scenario may have left, and waits until every machine is at home.
///
/// # Errors
/// When the site does not come to order; then it is of no use to the next scenario.
pub async fn settle(site: &Site) -> Result<()> {
    undo(site).await?;
    site.tell
        .until("every machine at home", PATIENCE, async || {
            let away = site.not_at_home().await?;
            let missing: Vec<String> = away.iter().map(|(name, what)| format!("{name}: {what}")).collect();
            Ok(if missing.is_empty() { Look::There(()) } else { Look::Missing(missing.join("; ")) })
        })
        .await?;
    site.wait_writing().await
}

async fn undo(site: &Site) -> Result<()> {
    site.power.heal(None).await?;
    site.bmcs.control.command(&Command::Unswap).await?;
    site.bmcs.control.command(&Command::Clear { bmc: "*".to_owned() }).await?;
    for machine in &site.plan().machines {
        let state = site.power.state(&machine.name).await?;
        if state.frozen {
            site.power.thaw(&machine.name).await?;
        }
        if state.power == Power::Off {
            site.power.on(&machine.name).await?;
        }
        site.power.bmc_address(&machine.name, true).await?;
    }
    for gate in ["validatingadmissionpolicybinding", "validatingadmissionpolicy"] {
        site.kubectl.run(&["delete", "--ignore-not-found", gate, super::gate::NAME]).await?;
    }
    site.kubectl.run(&["delete", "--ignore-not-found", "fencingpolicy", super::policies::SECOND]).await?;
    let ca = std::fs::read_to_string(&site.bmcs.ca_file).context("read the CA of the BMCs")?;
    site.kubectl.apply(&objects::bindings(site.plan(), &ca)).await?;
    site.kubectl.apply(&[objects::policy()]).await?;
    if site.people.status().await.is_ok_and(|status| status.paused.is_some()) {
        site.people.command(&["resume", "--reason", "the scenario is over", "--yes"]).await?;
    }
    Ok(())
}
