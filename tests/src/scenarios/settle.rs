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

/// Undoes what a scenario may have left, and waits until every node is Alive and at home.
///
/// # Errors
/// When the site does not come to order; then it is of no use to the next scenario.
pub async fn settle(site: &Site) -> Result<()> {
    undo(site).await?;
    site.tell
        .until("every node Alive and in service", PATIENCE, async || {
            let nodes = site.people.nodes().await?;
            let mut missing: Vec<String> = nodes
                .iter()
                .filter(|node| node.phase != "Alive")
                .map(|node| format!("{} is {}: {}", node.node, node.phase, node.next))
                .collect();
            if nodes.len() < site.plan().machines.len() {
                missing.push(format!("{} nodes only", nodes.len()));
            }
            for seen in site.watch.present(crate::oracles::watched::Kind::Node) {
                let Some(node) = seen.node() else { continue };
                if node.ready != "True" || node.unschedulable || node.out_of_service || node.given_up {
                    missing.push(format!("{} is not in service", seen.name));
                }
            }
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
