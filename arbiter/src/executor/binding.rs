//! Verifies bindings over the production path: TLS, log-in, identity, power state; read only. Enrols where nothing is
//! pinned yet.

use std::time::Duration;

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::identity;
use coroner_shared::id::NodeName;

use super::Tools;
use crate::bmc_pool::{fleet, node_side};
use crate::clock;

/// Verifies one binding and tells the log what differs from what it knows.
pub(super) async fn verify(tools: &Tools, node: &NodeName) {
    let state = tools.proposer.published().state;
    let Some(binding) = state.bindings.get(node) else { return };
    let result = match tools.bmcs.open(node).await {
        Err(why) => Err(why),
        Ok(mut driver) => {
            let read = driver.identify().await.map_err(|e| e.full());
            let result = match read {
                Err(why) => Err(why),
                Ok(facts) => {
                    let side = node_side(&state, node);
                    let fleet = fleet(&state);
                    let verdict = binding.pin.as_ref().map(|pin| identity::check(pin, &side, &facts, &fleet));
                    if let Some(entry) = tools.bmcs.entry(node) {
                        entry.note_identity(&facts, verdict.as_ref(), clock::now());
                    }
                    identity::verify(binding.pin.as_ref(), &side, &facts, &fleet)
                }
            };
            // Best effort: a session left behind dies by its own time-out.
            let _ = driver.close().await;
            result
        }
    };
    match &result {
        Ok(pin) => {
            tracing::info!(%node, machine = %pin.machine, transform = %pin.transform, member = pin.member, "BMC verified")
        }
        Err(why) => tracing::warn!(%node, why, "BMC not verified: the node cannot be fenced through it"),
    }
    let failed = result.is_err();
    let command = Command::BindingVerified { node: node.clone(), hash: binding.hash.clone(), result };
    if tools.commit(command).await.is_err() || failed {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}
