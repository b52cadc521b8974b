//! Verifies bindings: on demand, and all of them every ten minutes. Mirrors `arbiter/src/executor/binding.rs`.

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::identity;
use coroner_arbiter_core::rounds::{self, Glance, Rounds, Verified};
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use crate::sim::pool::{fleet, node_side};
use crate::sim::world::Shared;

pub(crate) async fn verify(shared: &Shared, index: usize, node: &NodeName) {
    let Some(published) = shared.published(index) else { return };
    let Some(binding) = published.state.bindings.get(node).cloned() else { return };
    let result = read(shared, index, node).await.told_by_job(&binding);
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
        let glance = |node: &NodeName| shared.glance(index, node, now);
        for node in rounds.due(now, &published.state, glance) {
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
    let binding = state.bindings.get(node);
    let judged = facts.map(|facts| {
        let pin = binding.and_then(|b| b.pin.as_ref());
        identity::verify(pin, &node_side(&state, node), &facts, &fleet(&state))
    });
    let power = match &judged {
        Ok(Ok(_)) => driver.power_state(shared).await.ok().map(|reading| reading.power),
        Ok(Err(_)) | Err(_) => None,
    };
    let read_at = shared.host_now(index);
    driver.close(shared).await;
    let verified = match judged {
        Ok(result) => Verified::Judged(result),
        Err(failed) => return Verified::NotRead(failed.why),
    };
    shared.reactor.sleep(rounds::wait_after(power.as_ref())).await;
    let ago = shared.host_now(index).since(read_at);
    let power = power.as_ref().map(|power| (power, ago));
    let disabled = binding.and_then(|b| b.disabled.as_deref());
    verified.with_power(power, shared.spoke_ago(index, node), disabled)
}

impl Shared {
    fn glance(&self, index: usize, node: &NodeName, now: Mono) -> Option<Glance> {
        let entry = self.world.borrow().replicas[index].process.as_ref()?.entry(node)?;
        let says_off = entry.with_track(|track| track.says_off(now))?;
        let spoke_ago = says_off.then(|| self.spoke_ago(index, node)).flatten();
        Some(Glance { says_off, spoke_ago })
    }

    fn spoke_ago(&self, index: usize, node: &NodeName) -> Option<Span> {
        let now = self.host_now(index);
        let world = self.world.borrow();
        let process = world.replicas[index].process.as_ref()?;
        process.ears.pool.as_ref()?.spoke_ago(now, &process.published.state, node)
    }
}
