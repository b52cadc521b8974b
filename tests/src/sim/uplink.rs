//! What an agent says to replicas over TCP: registration, slices, goodbyes. Mirrors `agent/src/uplink.rs`.

use coroner_agent_core::Input;
use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::id::BootId;
use coroner_shared::slice::Slice;
use coroner_shared::time::Span;

use super::ingress;
use super::network::{End, Flow};
use super::task::{Either, either};
use super::world::Shared;

const POLL_WITHIN: Span = Span::from_secs(35);
const REGISTER_WITHIN: Span = Span::from_secs(5);
const RETRY_FIRST: Span = Span::from_ms(500);
const RETRY_LAST: Span = Span::from_secs(30);

/// How following ended.
enum Followed {
    /// A replica no longer knows this host.
    Refused,
    /// No replica answers any more.
    Lost,
}

/// What a replica answers to a question for a slice.
#[derive(Clone, Debug)]
pub(crate) enum Sliced {
    /// A newer one.
    Newer(Box<Slice>),
    /// None for now.
    Same,
    /// Not known, or not by this key.
    Refused,
}

/// Registers, follows, begins again.
pub(crate) async fn run(shared: Shared, machine: usize, boot: BootId) {
    let replicas = shared.world.borrow().site.replicas.len();
    let first = shared.world.borrow_mut().draws.machines.index(replicas);
    let mut registered = false;
    let mut delay = RETRY_FIRST;
    loop {
        if !registered {
            for n in 0..replicas {
                if let Some(slice) = register(&shared, machine, boot, (first + n) % replicas).await {
                    take(&shared, machine, slice);
                    (registered, delay) = (true, RETRY_FIRST);
                    break;
                }
            }
        }
        if shared.world.borrow().machines[machine].kept_slice.is_some() {
            let until = if registered { Span::MAX } else { jitter(&shared, delay) };
            match either(follow(&shared, machine, first), forever_or(&shared, until)).await {
                Either::First(Followed::Refused) => registered = false,
                Either::First(Followed::Lost) => delay = RETRY_FIRST,
                Either::Second(()) => {}
            }
        }
        let wait = jitter(&shared, delay);
        shared.reactor.sleep(wait).await;
        delay = (delay + delay).min(RETRY_LAST);
    }
}

async fn forever_or(shared: &Shared, span: Span) {
    if span == Span::MAX { std::future::pending().await } else { shared.reactor.sleep(span).await }
}

fn jitter(shared: &Shared, delay: Span) -> Span {
    let share = shared.world.borrow_mut().draws.machines.range(50, 100);
    Span::from_ms(delay.as_ms() * share / 100)
}

async fn register(shared: &Shared, machine: usize, boot: BootId, replica: usize) -> Option<Slice> {
    let answer = call(shared, machine, replica, move |shared| {
        Box::pin(async move { ingress::register(&shared, replica, machine, boot).await })
    });
    shared.reactor.within(REGISTER_WITHIN, answer).await?
}

async fn follow(shared: &Shared, machine: usize, first: usize) -> Followed {
    let replicas = shared.world.borrow().site.replicas.len();
    let (mut next, mut failures) = (first, 0);
    loop {
        if failures >= replicas {
            return Followed::Lost;
        }
        let replica = next % replicas;
        let have = {
            let world = shared.world.borrow();
            world.machines[machine].kept_slice.as_ref().map_or(0, |slice| slice.version)
        };
        let answer = call(shared, machine, replica, move |shared| {
            Box::pin(async move { ingress::slice(&shared, replica, machine, have).await })
        });
        match either(shared.reactor.within(POLL_WITHIN, answer), newer_elsewhere(shared, machine, have)).await
        {
            Either::First(Some(Sliced::Newer(slice))) if slice.version >= have => {
                failures = 0;
                take(shared, machine, *slice);
            }
            Either::First(Some(Sliced::Same)) => failures = 0,
            Either::First(Some(Sliced::Refused)) => return Followed::Refused,
            Either::First(Some(Sliced::Newer(_)) | None) => {
                failures += 1;
                next += 1;
                shared.reactor.sleep(Span::from_ms(100)).await;
            }
            Either::Second(()) => {
                failures = 0;
                next += 1;
            }
        }
    }
}

/// A status' answer tells of a version that the replica asked seems not to have.
async fn newer_elsewhere(shared: &Shared, machine: usize, have: u64) {
    loop {
        let Some((signal, wanted)) =
            shared.world.borrow().machines[machine].agent.as_ref().map(|p| p.slice_wanted.clone())
        else {
            return std::future::pending().await;
        };
        if wanted > have {
            // The replica that has it is asked in its turn.
            return shared.reactor.sleep(Span::from_secs(1)).await;
        }
        signal.after(signal.version()).await;
    }
}

fn take(shared: &Shared, machine: usize, slice: Slice) {
    let mut world = shared.world.borrow_mut();
    if world.machines[machine].kept_slice.as_ref() != Some(&slice) {
        world.machines[machine].kept_slice = Some(slice.clone());
        world.agent_hears(machine, Input::Slice(slice));
    }
}

/// Says goodbye, to one replica after the other; beacons of before do not end it.
pub(crate) async fn goodbye(shared: Shared, machine: usize, boot: BootId, kind: GoodbyeKind) {
    let (replicas, seq) = {
        let world = shared.world.borrow();
        (world.site.replicas.len(), world.machines[machine].host_time(world.now).as_ms())
    };
    for replica in 0..replicas {
        let answer = call(&shared, machine, replica, move |shared| {
            Box::pin(async move { ingress::goodbye(&shared, replica, machine, boot, (kind, seq)).await })
        });
        if shared.reactor.within(Span::from_ms(1500), answer).await == Some(true) {
            return;
        }
    }
}

/// A request to a replica: its handler runs there as a task of its process.
pub(crate) async fn call<T: 'static>(
    shared: &Shared,
    machine: usize,
    replica: usize,
    handler: impl FnOnce(Shared) -> super::task::Work<T> + 'static,
) -> T {
    let slot = shared.reactor.slot();
    let answer = slot.clone();
    {
        let mut world = shared.world.borrow_mut();
        let host = world.site.replicas[replica];
        if let Some(after) = world.network.stream(End::Host(machine), End::Host(host), Flow::Replica) {
            world.on_machine(after, host, move |world| {
                let Some(group) = world.replicas[replica].process.as_ref().map(|p| p.group) else { return };
                world.spawn(host, group, move |shared| {
                    Box::pin(async move {
                        let value = handler(shared.clone()).await;
                        let mut world = shared.world.borrow_mut();
                        let way = world.network.stream(End::Host(host), End::Host(machine), Flow::Replica);
                        if let Some(after) = way {
                            world.on_machine(after, machine, move |_| answer.fill(value));
                        }
                    })
                });
            });
        }
    }
    slot.take().await
}
