//! What a replica's process does by itself. Mirrors the parts of `arbiter/src/run.rs` that keep time and tell facts.

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::facts::Refused;
use coroner_arbiter_core::{apply, jobs};
use coroner_arbiter_replica::Role;
use coroner_shared::time::Span;

use super::world::Shared;

/// Commands proposed at once when much of what Kubernetes shows is new to the log.
const FACTS_AT_ONCE: usize = 64;

/// While this replica leads: what Kubernetes shows and the log does not know becomes commands.
pub(super) async fn tell_facts(shared: Shared, index: usize) {
    let signals = {
        let world = shared.world.borrow();
        world.replicas[index].process.as_ref().map(|p| (p.changed.clone(), p.shown_changed.clone()))
    };
    let Some((changed, shown_changed)) = signals else { return };
    let mut refused = Refused::default();
    loop {
        let seen = (changed.version(), shown_changed.version());
        if shared.leads(index) {
            let commands = {
                let world = shared.world.borrow();
                let Some(process) = &world.replicas[index].process else { return };
                refused.differences(&process.published.state, &process.shown, FACTS_AT_ONCE)
            };
            for command in commands {
                match shared.commit(index, command.clone()).await {
                    Ok(outcome) => refused.note(command, &outcome),
                    Err(_) => break,
                }
            }
        } else {
            refused.clear();
        }
        super::task::either(changed.after(seen.0), shown_changed.after(seen.1)).await;
    }
}

/// This replica's own record in the log, and the passing of time while anything in the state has a deadline.
pub(super) async fn keep_time(shared: Shared, index: usize) {
    loop {
        shared.reactor.sleep(Span::from_ms(250)).await;
        let Some(published) = shared.published(index) else { return };
        let (id, host, address, key) = {
            let world = shared.world.borrow();
            let machine = &world.machines[world.site.replicas[index]];
            (world.replicas[index].id, machine.name.clone(), machine.address, world.replicas[index].key)
        };
        let own = published.state.replicas.get(&id);
        let level = shared.world.borrow().replicas[index].level.unwrap_or(apply::LEVEL);
        let same =
            own.is_some_and(|r| r.host == host && r.address == address && r.key == key && r.level == level);
        if !same {
            let command = Command::ReplicaKnows { replica: id, host, address, key, level };
            if super::ingress::anywhere(&shared, index, None, command).await.is_err() {
                shared.reactor.sleep(Span::from_secs(1)).await;
            }
            continue;
        }
        if published.role == Role::Leader {
            let quiet = shared.host_now(index).since(published.at);
            if jobs::tick_after(&published.state).is_some_and(|after| quiet >= after) {
                // A tick that is lost is followed by another.
                let _ = shared.commit(index, Command::Tick).await;
            }
        }
    }
}
