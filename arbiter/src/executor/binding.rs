//! Verifies bindings over the production path: TLS, log-in, identity; read only. Enrols where nothing is pinned yet, and
//! goes round all of them every ten minutes, so that a mapping that became wrong is known before it is needed.

use std::time::Duration;

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::identity;
use coroner_arbiter_core::rounds::{self, Glance, Rounds, Verified};
use coroner_arbiter_replica::Role;
use coroner_shared::id::NodeName;

use super::Tools;
use crate::bmc_pool::{fleet, node_side};
use crate::clock;

/// Verifies one binding and tells the log.
pub(super) async fn verify(tools: &Tools, node: &NodeName) {
    let Some(binding) = tools.proposer.published().state.bindings.get(node).cloned() else { return };
    let result = read(tools, node).await.told_by_job(&binding);
    match &result {
        Ok(pin) => {
            tracing::info!(%node, machine = %pin.machine, transform = %pin.transform, member = pin.member, "BMC verified");
        }
        Err(why) => tracing::warn!(%node, why, "BMC not verified: the node cannot be fenced through it"),
    }
    let good = result.is_ok();
    let command = Command::BindingVerified { node: node.clone(), hash: binding.hash.clone(), result };
    let outcome = tools.commit(command).await.ok();
    tokio::time::sleep(rounds::rest_after(good, outcome.as_ref()).into()).await;
}

/// While this replica leads: every binding every ten minutes. The log hears of changes only.
pub(super) async fn rounds(tools: Tools) {
    let mut rounds: Option<Rounds> = None;
    let mut every = tokio::time::interval(Duration::from_secs(5));
    loop {
        every.tick().await;
        let published = tools.proposer.published();
        if published.role != Role::Leader {
            rounds = None;
            continue;
        }
        let rounds = rounds.get_or_insert_with(|| Rounds::new(clock::now()));
        let now = clock::now();
        let glance = |node: &NodeName| {
            let says_off = tools.bmcs.entry(node)?.with_track(|track| track.says_off(now))?;
            let spoke_ago = says_off.then(|| tools.hearing.spoke_ago(node)).flatten();
            Some(Glance { says_off, spoke_ago })
        };
        for node in rounds.due(now, &published.state, glance) {
            one_round(&tools, &node, rounds).await;
        }
    }
}

async fn one_round(tools: &Tools, node: &NodeName, rounds: &mut Rounds) {
    let Some(binding) = tools.proposer.published().state.bindings.get(node).cloned() else { return };
    let verified = read(tools, node).await;
    if let Verified::NotRead(why) = &verified {
        tracing::warn!(%node, why, "BMC not read in this round; it is tried again in ten minutes");
    }
    if let Some(command) = rounds.command(clock::now(), node, &binding, verified) {
        // Not committed: the next round finds the same difference.
        let _ = tools.commit(command).await;
    }
}

/// Reads identity over a session of its own and judges it, and whether the machine contradicts what its BMC says.
async fn read(tools: &Tools, node: &NodeName) -> Verified {
    let state = tools.proposer.published().state;
    let Some(binding) = state.bindings.get(node) else {
        return Verified::NotRead("the binding is gone".to_owned());
    };
    let mut driver = match tools.bmcs.open(node).await {
        Ok(driver) => driver,
        Err(why) => return Verified::NotRead(why),
    };
    let read = driver.identify().await;
    let (side, fleet) = (node_side(&state, node), fleet(&state));
    let judged = read.map(|facts| {
        let verdict = binding.pin.as_ref().map(|pin| identity::check(pin, &side, &facts, &fleet));
        if let Some(entry) = tools.bmcs.entry(node) {
            // Another session's identity says nothing of the warm session's readings, so only people are told.
            entry.show_identity(&facts, verdict.as_ref(), clock::now());
        }
        identity::verify(binding.pin.as_ref(), &side, &facts, &fleet)
    });
    // The pool reads power all the time; here it says something of whose BMC this is.
    let power = match &judged {
        Ok(Ok(pin)) => driver.power_state(&pin.member).await.ok().map(|reading| reading.power),
        Ok(Err(_)) | Err(_) => None,
    };
    let read_at = clock::now();
    // Best effort: a session left behind dies by its own time-out.
    let _ = driver.close().await;
    let verified = match judged {
        Ok(result) => Verified::Judged(result),
        Err(error) => return Verified::NotRead(error.full()),
    };
    tokio::time::sleep(rounds::wait_after(power.as_ref()).into()).await;
    let ago = clock::now().since(read_at);
    let power = power.as_ref().map(|power| (power, ago));
    verified.with_power(power, tools.hearing.spoke_ago(node), binding.disabled.as_deref())
}
