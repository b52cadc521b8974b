//! Verifies bindings: on demand, and all of them every ten minutes. Mirrors `arbiter/src/executor/binding.rs`.

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::identity;
use coroner_arbiter_core::rounds::{self, Rounds, Verified};
use coroner_shared::bmc::Power;
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use crate::sim::pool::{fleet, node_side};
use crate::sim::world::Shared;

pub(crate) async fn verify(shared: &Shared, index: usize, node: &NodeName) {
    let Some(published) = shared.published(index) else { return };
    let Some(binding) = published.state.bindings.get(node).cloned() else { return };
    let result = read(shared, index, node).await.of_new();
    let good = result.is_ok();
    let command = Command::BindingVerified { node: node.clone(), hash: binding.hash, result };
    let outcome = shared.commit(index, command).await.ok();
    shared.reactor.sleep(rounds::rest_after(good, outcome.as_ref())).await;
}

/// While this replica leads: every binding every ten minutes. The log hears of changes only.
pub(crate) async fn rounds(shared: Shared, index: usize) {
    let mut rounds: Option<Rounds> = None;
    loop {
        shared.reactor.sleep(Span::from_secs(5)).await;
        if !shared.leads(index) {
            rounds = None;
            continue;
        }
        let Some(published) = shared.published(index) else { return };
        let now = shared.host_now(index);
        let rounds = rounds.get_or_insert_with(|| Rounds::new(now));
        let says_off = |node: &NodeName| shared.says_off(index, node, now);
        for node in rounds.due(now, &published.state, says_off) {
            one_round(&shared, index, &node, rounds).await;
        }
    }
}

async fn one_round(shared: &Shared, index: usize, node: &NodeName, rounds: &mut Rounds) {
    let Some(published) = shared.published(index) else { return };
    let Some(binding) = published.state.bindings.get(node).cloned() else { return };
    let verified = read(shared, index, node).await;
    if let Some(command) = rounds.command(shared.host_now(index), node, &binding, verified) {
        // Not committed: the next round finds the same difference.
        let _ = shared.commit(index, command).await;
    }
}

async fn read(shared: &Shared, index: usize, node: &NodeName) -> Verified {
    let mut driver = match shared.open(index, node) {
        Ok(driver) => driver,
        Err(why) => return Verified::NotRead(why),
    };
    let facts = driver.identify(shared).await;
    let Some(published) = shared.published(index) else {
        return Verified::NotRead("this replica ends".to_owned());
    };
    let state = published.state;
    let judged = facts.map(|facts| {
        let pin = state.bindings.get(node).and_then(|b| b.pin.as_ref());
        identity::verify(pin, &node_side(&state, node), &facts, &fleet(&state))
    });
    let off_at = match &judged {
        Ok(Ok(_)) => match driver.power_state(shared).await {
            Ok(reading) if reading.power == Power::Off => Some(shared.host_now(index)),
            Ok(_) | Err(_) => None,
        },
        Ok(Err(_)) | Err(_) => None,
    };
    driver.close(shared).await;
    let verified = match judged {
        Ok(result) => Verified::Judged(result),
        Err(failed) => return Verified::NotRead(failed.why),
    };
    let Some(off_at) = off_at else { return verified };
    shared.reactor.sleep(rounds::AFTER_OFF).await;
    verified.with_off(shared.host_now(index).since(off_at), shared.spoke_ago(index, node))
}

impl Shared {
    fn says_off(&self, index: usize, node: &NodeName, now: Mono) -> bool {
        let world = self.world.borrow();
        let entry = world.replicas[index].process.as_ref().and_then(|process| process.entry(node));
        entry.and_then(|entry| entry.with_track(|track| track.says_off(now))).unwrap_or(false)
    }

    fn spoke_ago(&self, index: usize, node: &NodeName) -> Option<Span> {
        let now = self.host_now(index);
        let world = self.world.borrow();
        let process = world.replicas[index].process.as_ref()?;
        process.ears.pool.as_ref()?.spoke_ago(now, &process.published.state, node)
    }
}
