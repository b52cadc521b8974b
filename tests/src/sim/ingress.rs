//! What replicas answer to agents, to each other and to people. Mirrors `arbiter/src/ingress.rs`,
//! `arbiter/src/datagrams.rs` and `arbiter/src/propose.rs`.

use std::net::SocketAddr;
use std::rc::Rc;

use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_core::hears::Hears;
use coroner_arbiter_core::judge::LISTENS_AT_MOST;
use coroner_arbiter_core::observers;
use coroner_arbiter_core::policy::select::rules_for;
use coroner_arbiter_core::witness::checked::{CheckedAnswer, CheckedBatch, Proven};
use coroner_arbiter_replica::Role;
use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::id::{BootId, NodeName};
use coroner_shared::names::PORT_PEER;
use coroner_shared::slice::Slice;
use coroner_shared::time::Span;
use coroner_shared::wire::datagram::{Message, Sender};

use super::agents::{Packet, signed_by};
use super::network::{End, Flow};
use super::uplink::{Sliced, call};
use super::world::{Shared, World};

/// A long poll is answered without a slice after this.
const LONG_POLL: Span = Span::from_secs(25);
/// How long a person's confirmation waits for a leader that has only just been elected.
const LISTEN: Span = Span::from_secs(4);
const HAND_OVER: Span = Span::from_secs(6);

// === agents, over TCP ===

pub(crate) async fn register(shared: &Shared, index: usize, machine: usize, boot: BootId) -> Option<Slice> {
    let state = shared.published(index)?.state;
    let (node, id, key, address) = {
        let world = shared.world.borrow();
        let m = &world.machines[machine];
        (world.machines[world.speaks_for(machine)].name.clone(), m.id, m.key, m.address)
    };
    let known = state.nodes.get(&node).and_then(|n| n.member.as_ref()).filter(|m| m.key == key);
    let (uid, by_token) = match known {
        Some(member) => (member.uid.clone(), false),
        None => (review(shared, index, &node).await?, true),
    };
    let command = Command::Register {
        node: node.clone(),
        uid: uid.clone(),
        machine: Ok(id),
        boot,
        key,
        address,
        by_token,
    };
    let outcome = anywhere(shared, index, None, command).await.ok()?;
    if !matches!(outcome, Outcome::Done | Outcome::Unchanged) {
        return None;
    }
    let now = shared.host_now(index);
    if let Some(process) = shared.world.borrow_mut().replicas[index].process.as_deref_mut() {
        process.witness.registered(now, &uid, boot);
    }
    shared.reactor.within(Span::from_secs(3), slice_of(shared, index, &node, None)).await?
}

/// The token's node, as the API server gives it.
async fn review(shared: &Shared, index: usize, node: &NodeName) -> Option<coroner_shared::id::NodeUid> {
    let node = node.clone();
    shared.api(index, move |world| world.api.nodes.get(&node).map(|n| n.uid.clone())).await.ok()?
}

async fn slice_of(shared: &Shared, index: usize, node: &NodeName, have: Option<u64>) -> Option<Slice> {
    loop {
        let (state, signal) = {
            let world = shared.world.borrow();
            let process = world.replicas[index].process.as_ref()?;
            (process.published.state.clone(), process.changed.clone())
        };
        let seen = signal.version();
        let cluster = shared.world.borrow().site.cluster;
        let changed = have.is_none() || state.observers.slice_version(node) != have;
        if changed && let Some(slice) = observers::slice_for(&state, cluster, node) {
            return Some(slice);
        }
        signal.after(seen).await;
    }
}

pub(crate) async fn slice(shared: &Shared, index: usize, machine: usize, have: u64) -> Sliced {
    let Some(published) = shared.published(index) else { return Sliced::Refused };
    let (node, key) = {
        let world = shared.world.borrow();
        (world.machines[world.speaks_for(machine)].name.clone(), world.machines[machine].key)
    };
    let member = published.state.nodes.get(&node).and_then(|n| n.member.as_ref());
    if member.is_none_or(|m| m.key != key && m.old_key != Some(key)) {
        return Sliced::Refused;
    }
    match shared.reactor.within(LONG_POLL, slice_of(shared, index, &node, Some(have))).await {
        Some(Some(slice)) => Sliced::Newer(Box::new(slice)),
        Some(None) | None => Sliced::Same,
    }
}

pub(crate) async fn goodbye(
    shared: &Shared,
    index: usize,
    machine: usize,
    boot: BootId,
    (kind, seq): (GoodbyeKind, u64),
) -> bool {
    let node = {
        let world = shared.world.borrow();
        world.machines[world.speaks_for(machine)].name.clone()
    };
    let command = Command::Goodbye { node, boot, kind, seq };
    matches!(anywhere(shared, index, None, command).await, Ok(Outcome::Done | Outcome::Unchanged))
}

/// Proposes wherever the leader is.
pub(crate) async fn anywhere(
    shared: &Shared,
    index: usize,
    key: Option<String>,
    command: Command,
) -> Result<Outcome, String> {
    let published = shared.published(index).ok_or("this replica does not run")?;
    let leader = match published.role {
        Role::Leader => return propose(shared, index, key, command).await,
        Role::Follower { leader: None } => return Err("no leader is known".to_owned()),
        Role::Follower { leader: Some(leader) } => leader,
    };
    let (host, target) = {
        let world = shared.world.borrow();
        let target = world.replicas.iter().position(|r| r.id == leader).ok_or("no such replica")?;
        (world.site.replicas[index], target)
    };
    let answer = call(shared, host, target, move |shared| {
        Box::pin(async move { propose(&shared, target, key, command).await })
    });
    let answer = shared.reactor.within(HAND_OVER, answer).await;
    answer.unwrap_or_else(|| Err("the leader cannot be asked".to_owned()))
}

async fn propose(
    shared: &Shared,
    index: usize,
    key: Option<String>,
    command: Command,
) -> Result<Outcome, String> {
    let confirms = matches!(command, Command::ConfirmOff { .. });
    let settled = !confirms || (shared.leads(index) && shared.settles(index, LISTEN).await);
    let slot = {
        let mut world = shared.world.borrow_mut();
        let command = world.with_what_is_heard(index, command, settled);
        match key {
            Some(key) => world.propose_as(index, key, command),
            None => world.propose(index, command),
        }
    };
    shared.outcome(slot).await
}

// === impl World: datagrams ===

impl World {
    /// A command that must carry what the leader hears when it proposes it.
    fn with_what_is_heard(&mut self, index: usize, command: Command, settled: bool) -> Command {
        let Command::ConfirmOff { node, confirmation, .. } = command else { return command };
        let host = self.site.replicas[index];
        let now = self.machines[host].host_time(self.now);
        let heard = self.replicas[index].process.as_ref().is_some_and(|process| {
            let state = &process.published.state;
            let limit = rules_for(state, &node).beacons.suspect;
            process.ears.pool.as_ref().is_some_and(|pool| pool.heard_within(now, state, &node, limit))
        });
        let pooled = self.replicas[index].process.as_ref().is_some_and(|p| p.ears.pool.is_some());
        let settles_in = (!(settled && pooled)).then_some(LISTENS_AT_MOST);
        let last = self.last_sign(index, &node).map(|(at, _)| at);
        let renews = self.replicas[index].process.as_ref().is_some_and(|p| {
            p.leases.book(now).leases.get(&node).is_some_and(|lease| lease.shows_life(now, last))
        });
        Command::ConfirmOff { node, confirmation, heard: Hears::of(settles_in, heard, renews) }
    }

    pub(crate) fn replica_receives(&mut self, machine: usize, source: usize, packet: &Packet) {
        let Some(index) = self.site.replicas.iter().position(|host| *host == machine) else { return };
        let now = self.machines[machine].host_time(self.now);
        let ip = self.machines[source].address;
        let Some(process) = self.replicas[index].process.as_deref_mut() else { return };
        let state = std::sync::Arc::clone(&process.published.state);
        let Sender::Node(uid) = &packet.sender else { return };
        let found = state
            .nodes
            .iter()
            .find_map(|(name, n)| n.member.as_ref().filter(|m| m.uid == *uid).map(|member| (name, member)));
        let Some((name, member)) = found else { return };
        if packet.key != member.key && member.old_key != Some(packet.key) {
            return;
        }
        let term = process.published.term;
        let answer = match &packet.message {
            Message::Status(status) => {
                let Ok(beacon) = Proven::verify_by(&status.beacon, member, &signed_by) else { return };
                let slice = state.observers.slice_version(name).unwrap_or(0);
                process.witness.beacon(now, &beacon, Some(ip));
                process.witness.status(now, uid, status, &beacon);
                if !packet.replayed {
                    self.beacon_arrives(machine, source);
                }
                Message::StatusAck { term, slice }
            }
            Message::Reports(batch) => {
                let number = batch.number;
                let Ok(batch) = CheckedBatch::verify_by(batch, &state, &signed_by) else { return };
                process.witness.reports(now, uid, &batch);
                Message::ReportsAck { number, term }
            }
            Message::ProbeAnswer(answer) => {
                if let Ok(answer) = CheckedAnswer::verify_by(answer, &state, &signed_by) {
                    process.witness.probe_answer(now, uid, &answer);
                }
                return;
            }
            Message::Beacon(_)
            | Message::Ack(_)
            | Message::Probe { .. }
            | Message::ProbeReply { .. }
            | Message::StatusAck { .. }
            | Message::ReportsAck { .. }
            | Message::AskProbe(_) => return,
        };
        self.replica_says(index, SocketAddr::new(ip, PORT_PEER), answer);
    }

    /// A datagram of a replica.
    pub(crate) fn replica_says(&mut self, index: usize, to: SocketAddr, message: Message) {
        let host = self.site.replicas[index];
        let (id, key) = (self.replicas[index].id, self.replicas[index].key);
        let packet = Rc::new(Packet::new(Sender::Replica(id), key, message));
        self.send(End::Host(host), to, &packet);
    }
}

impl Shared {
    /// A request to the API server from a replica's host: its effect there, and the answer.
    pub(crate) async fn api<T: 'static>(
        &self,
        index: usize,
        work: impl FnOnce(&mut World) -> T + 'static,
    ) -> Result<T, String> {
        let slot = self.reactor.slot();
        let answer = slot.clone();
        {
            let mut world = self.world.borrow_mut();
            let host = world.site.replicas[index];
            if let Some(there) = world.network.stream(End::Host(host), End::Api, Flow::Api) {
                // A request that is under way arrives, whatever becomes of who sent it.
                world.after(there, move |world| {
                    if world.api.down {
                        return;
                    }
                    let value = work(world);
                    if let Some(back) = world.network.stream(End::Api, End::Host(host), Flow::Api) {
                        world.on_machine(back, host, move |_| answer.fill(value));
                    }
                });
            }
        }
        let answer = self.reactor.within(Span::from_secs(10), slot.take()).await;
        answer.ok_or_else(|| "the API server does not answer".to_owned())
    }
}
