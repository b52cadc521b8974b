//! Verifies bindings: on demand, and all of them every ten minutes. Mirrors `arbiter/src/executor/binding.rs`.

use std::collections::BTreeMap;

use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_core::identity;
use coroner_arbiter_core::policy::Pin;
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use crate::sim::pool::{fleet, node_side};
use crate::sim::world::Shared;

const ROUND: Span = Span::from_mins(10);
const STALE: Span = Span::from_mins(30);

enum Verified {
    Judged(Result<Pin, String>),
    NotRead(String),
}

pub(crate) async fn verify(shared: &Shared, index: usize, node: &NodeName) {
    let Some(published) = shared.published(index) else { return };
    let Some(binding) = published.state.bindings.get(node).cloned() else { return };
    let result = match read(shared, index, node).await {
        Verified::Judged(result) => result,
        Verified::NotRead(why) => Err(why),
    };
    let good = result.is_ok();
    let command = Command::BindingVerified { node: node.clone(), hash: binding.hash, result };
    if !(matches!(shared.commit(index, command).await, Ok(Outcome::Done)) && good) {
        shared.reactor.sleep(Span::from_secs(5)).await;
    }
}

/// While this replica leads: every binding every ten minutes. The log hears of changes only.
pub(crate) async fn rounds(shared: Shared, index: usize) {
    let began = shared.host_now(index);
    let mut good: BTreeMap<NodeName, Mono> = BTreeMap::new();
    let mut next: BTreeMap<NodeName, Mono> = BTreeMap::new();
    loop {
        shared.reactor.sleep(Span::from_secs(5)).await;
        if !shared.leads(index) {
            (good, next) = (BTreeMap::new(), BTreeMap::new());
            continue;
        }
        let Some(published) = shared.published(index) else { return };
        let now = shared.host_now(index);
        let mut due = Vec::new();
        for (node, binding) in &published.state.bindings {
            let first = || now + Span::from_ms(spread(node) % ROUND.as_ms());
            if binding.pin.is_some() && *next.entry(node.clone()).or_insert_with(first) <= now {
                due.push(node.clone());
            }
        }
        for node in due {
            next.insert(node.clone(), shared.host_now(index) + ROUND);
            one_round(&shared, index, &node, &mut good, began).await;
        }
    }
}

async fn one_round(
    shared: &Shared,
    index: usize,
    node: &NodeName,
    good: &mut BTreeMap<NodeName, Mono>,
    began: Mono,
) {
    let Some(published) = shared.published(index) else { return };
    let Some(binding) = published.state.bindings.get(node).cloned() else { return };
    let read = read(shared, index, node).await;
    let now = shared.host_now(index);
    let result = match read {
        Verified::Judged(Ok(pin)) => {
            good.insert(node.clone(), now);
            Ok(pin)
        }
        Verified::Judged(Err(why)) => Err(why),
        Verified::NotRead(why) => {
            let since = good.get(node).copied().unwrap_or(began);
            if now.since(since) < STALE {
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
    let _ = shared.commit(index, command).await;
}

async fn read(shared: &Shared, index: usize, node: &NodeName) -> Verified {
    let mut driver = match shared.open(index, node) {
        Ok(driver) => driver,
        Err(why) => return Verified::NotRead(why),
    };
    let facts = driver.identify(shared).await;
    driver.close(shared).await;
    let facts = match facts {
        Ok(facts) => facts,
        Err(failed) => return Verified::NotRead(failed.why),
    };
    let Some(published) = shared.published(index) else {
        return Verified::NotRead("this replica ends".to_owned());
    };
    let state = published.state;
    let pin = state.bindings.get(node).and_then(|b| b.pin.as_ref());
    Verified::Judged(identity::verify(pin, &node_side(&state, node), &facts, &fleet(&state)))
}

fn spread(node: &NodeName) -> u64 {
    let bytes = node.as_str().bytes();
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
