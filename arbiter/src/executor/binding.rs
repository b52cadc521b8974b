//! Verifies bindings over the production path: TLS, log-in, identity; read only. Enrols where nothing is pinned yet, and
//! goes round all of them every ten minutes, so that a mapping that became wrong is known before it is needed.

use std::collections::BTreeMap;
use std::time::Duration;

use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_core::identity;
use coroner_arbiter_core::policy::Pin;
use coroner_arbiter_replica::Role;
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use super::Tools;
use crate::bmc_pool::{fleet, node_side};
use crate::clock;

/// Between two verifications of one binding; spread over the nodes so that they do not come in a burst.
const ROUND: Span = Span::from_mins(10);
/// A binding without a good verification for so long is stale: the node cannot be fenced through it.
const STALE: Span = Span::from_mins(30);

/// What a verification gave.
enum Verified {
    /// An identity was read and judged.
    Judged(Result<Pin, String>),
    /// The BMC could not be read: says nothing about whose it is.
    NotRead(String),
}

/// Verifies one binding and tells the log.
pub(super) async fn verify(tools: &Tools, node: &NodeName) {
    let Some(binding) = tools.proposer.published().state.bindings.get(node).cloned() else { return };
    let result = match read(tools, node).await {
        Verified::Judged(result) => result,
        Verified::NotRead(why) => Err(why),
    };
    match &result {
        Ok(pin) => {
            tracing::info!(%node, machine = %pin.machine, transform = %pin.transform, member = pin.member, "BMC verified");
        }
        Err(why) => tracing::warn!(%node, why, "BMC not verified: the node cannot be fenced through it"),
    }
    let good = result.is_ok();
    let command = Command::BindingVerified { node: node.clone(), hash: binding.hash.clone(), result };
    // Also where the log refuses the pin, as it does until the node's agent has registered: each try is a log-in.
    if !(matches!(tools.commit(command).await, Ok(Outcome::Done)) && good) {
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
}

/// While this replica leads: every binding every ten minutes. The log hears of changes only.
pub(super) async fn rounds(tools: Tools) {
    let began = clock::now();
    let mut good: BTreeMap<NodeName, Mono> = BTreeMap::new();
    let mut next: BTreeMap<NodeName, Mono> = BTreeMap::new();
    let mut every = tokio::time::interval(Duration::from_secs(5));
    loop {
        every.tick().await;
        let published = tools.proposer.published();
        if published.role != Role::Leader {
            // A new leader has verified nothing yet and knows of nothing that is stale.
            (good, next) = (BTreeMap::new(), BTreeMap::new());
            continue;
        }
        let now = clock::now();
        let due: Vec<NodeName> = published
            .state
            .bindings
            .iter()
            .filter(|(node, binding)| {
                let first = || now + Span::from_ms(spread(node) % ROUND.as_ms());
                binding.pin.is_some() && *next.entry((*node).clone()).or_insert_with(first) <= now
            })
            .map(|(node, _)| node.clone())
            .collect();
        for node in due {
            next.insert(node.clone(), clock::now() + ROUND);
            one_round(&tools, &node, &mut good, began).await;
        }
    }
}

async fn one_round(tools: &Tools, node: &NodeName, good: &mut BTreeMap<NodeName, Mono>, began: Mono) {
    let Some(binding) = tools.proposer.published().state.bindings.get(node).cloned() else { return };
    let read = read(tools, node).await;
    let now = clock::now();
    let result = match read {
        Verified::Judged(Ok(pin)) => {
            good.insert(node.clone(), now);
            Ok(pin)
        }
        Verified::Judged(Err(why)) => Err(why),
        Verified::NotRead(why) => {
            let since = good.get(node).copied().unwrap_or(began);
            if now.since(since) < STALE {
                tracing::warn!(%node, why, "BMC not read in this round; it is tried again in ten minutes");
                return;
            }
            Err(format!("stale: not verified for {}: {why}", now.since(since)))
        }
    };
    if result.is_ok() == binding.disabled.is_none() {
        return;
    }
    let command = Command::BindingVerified { node: node.clone(), hash: binding.hash, result };
    // Not committed: the next round finds the same difference.
    let _ = tools.commit(command).await;
}

/// Reads identity over a session of its own and judges it.
async fn read(tools: &Tools, node: &NodeName) -> Verified {
    let state = tools.proposer.published().state;
    let Some(binding) = state.bindings.get(node) else {
        return Verified::NotRead("the binding is gone".to_owned());
    };
    let mut driver = match tools.bmcs.open(node).await {
        Ok(driver) => driver,
        Err(why) => return Verified::NotRead(why),
    };
    let facts = driver.identify().await;
    // Best effort: a session left behind dies by its own time-out.
    let _ = driver.close().await;
    let facts = match facts {
        Ok(facts) => facts,
        Err(error) => return Verified::NotRead(error.full()),
    };
    let (side, fleet) = (node_side(&state, node), fleet(&state));
    let verdict = binding.pin.as_ref().map(|pin| identity::check(pin, &side, &facts, &fleet));
    if let Some(entry) = tools.bmcs.entry(node) {
        // Another session's identity says nothing of the warm session's readings, so only people are told.
        entry.show_identity(&facts, verdict.as_ref(), clock::now());
    }
    Verified::Judged(identity::verify(binding.pin.as_ref(), &side, &facts, &fleet))
}

/// A number of the name: the same on every replica, different for most nodes.
fn spread(node: &NodeName) -> u64 {
    node.as_str()
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verifications_are_spread_over_the_round() {
        let at = |n: u32| spread(&NodeName::new(format!("node-{n}")).unwrap()) % ROUND.as_ms();
        let early = (0..1000).filter(|n| at(*n) < ROUND.as_ms() / 2).count();
        assert!((400..600).contains(&early), "{early} of 1000 in the first half");
    }
}
