//! UDP 7461: statuses, reports and probe answers of agents, and the probes that the leader asks for.
//!
//! A datagram costs a header until its signature is checked, and each source may cost only so many checks a second, so
//! that a flood eats neither memory nor a core.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use coroner_arbiter_core::state::{Member, State};
use coroner_arbiter_core::witness::checked::{CheckedAnswer, CheckedBatch, Proven};
use coroner_shared::beacon::AskProbe;
use coroner_shared::id::{ClusterId, NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::SecretKey;
use coroner_shared::names::PORT_PEER;
use coroner_shared::time::{Mono, Span};
use coroner_shared::wire::DATAGRAM_BYTES_MAX;
use coroner_shared::wire::datagram::{Message, Sender, encode, parse};
use tokio::net::UdpSocket;
use tokio::sync::{mpsc, watch};

use crate::clock;
use crate::hearing::{Heard, Hearing};
use crate::replica::Published;
use crate::telemetry::{Reason, Telemetry};

/// Signature checks a second that one source may cost: a status a second, reports ten times a second to be
/// acknowledged, and as much again for what was lost.
const CHECKS_PER_SECOND: u32 = 40;
/// The same for all together that speak for a host from another address than it registered (several addresses on one
/// host; or forged ones, which cost nothing to make up).
const ELSEWHERE_PER_SECOND: u32 = 2000;
/// Sources that are counted at once; more than any rack of agents behind one address.
const SOURCES_MAX: usize = 65_536;

/// What the task works with.
pub struct Datagrams {
    /// The socket.
    pub socket: Arc<UdpSocket>,
    /// This replica.
    pub id: ReplicaId,
    /// The installation.
    pub cluster: ClusterId,
    /// The key that its datagrams are signed with.
    pub key: SecretKey,
    /// The state.
    pub published: watch::Receiver<Published>,
    /// Where what was heard goes.
    pub hearing: Hearing,
    /// Counts what is dropped.
    pub telemetry: Arc<Telemetry>,
}

/// Checks spent by one source in the running second.
#[derive(Default)]
struct Checks {
    second: HashMap<IpAddr, u32>,
    elsewhere: u32,
    began: Mono,
}

// === impl Datagrams ===

impl Datagrams {
    /// Receives for ever.
    ///
    /// # Errors
    /// The socket fails.
    pub async fn receive(self) -> std::io::Result<()> {
        let mut buffer = vec![0_u8; DATAGRAM_BYTES_MAX + 1];
        let mut checks = Checks::default();
        let mut index: (u64, HashMap<NodeUid, NodeName>) = (u64::MAX, HashMap::new());
        loop {
            let (length, from) = match self.socket.recv_from(&mut buffer).await {
                Ok(received) => received,
                // An ICMP error for something we sent; it says nothing about what comes next.
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionRefused => continue,
                Err(error) => return Err(error),
            };
            let state = Arc::clone(&self.published.borrow().state);
            if index.0 != state.membership {
                let uids = state
                    .nodes
                    .iter()
                    .filter_map(|(name, n)| Some((n.member.as_ref()?.uid.clone(), name.clone())));
                index = (state.membership, uids.collect());
            }
            if let Err(reason) = self.take(&buffer[..length], from, &state, &index.1, &mut checks).await {
                self.telemetry.dropped.get_or_create(&Reason { reason: reason.to_owned() }).inc();
            }
        }
    }

    async fn take(
        &self,
        bytes: &[u8],
        from: SocketAddr,
        state: &State,
        uids: &HashMap<NodeUid, NodeName>,
        checks: &mut Checks,
    ) -> Result<(), &'static str> {
        let datagram = parse(bytes).map_err(|_| "malformed")?;
        let Sender::Node(uid) = datagram.sender.clone() else { return Err("not-an-agent") };
        let member =
            uids.get(&uid).and_then(|name| state.nodes.get(name)?.member.as_ref()).ok_or("unknown-sender")?;
        if !checks.spend(from.ip(), member.address, clock::now()) {
            return Err("rate");
        }
        let message = verify_either(datagram, member, self.cluster)?;
        self.dispatch(message, uid, member, from, state, uids).await
    }

    async fn dispatch(
        &self,
        message: Message,
        uid: NodeUid,
        member: &Member,
        from: SocketAddr,
        state: &State,
        uids: &HashMap<NodeUid, NodeName>,
    ) -> Result<(), &'static str> {
        let term = self.published.borrow().term;
        let heard = match message {
            Message::Status(status) => {
                let beacon = Proven::verify(&status.beacon, member, self.cluster).map_err(|_| "beacon")?;
                let slice = uids.get(&uid).and_then(|name| state.observers.slice_version(name)).unwrap_or(0);
                self.send(from, &Message::StatusAck { term, slice }).await;
                Heard::Status { node: uid, status: Box::new(status), beacon, from: from.ip() }
            }
            Message::Reports(batch) => {
                let number = batch.number;
                let batch = CheckedBatch::verify(&batch, state, self.cluster).map_err(|_| "report")?;
                self.send(from, &Message::ReportsAck { number, term }).await;
                Heard::Reports { node: uid, batch }
            }
            Message::ProbeAnswer(answer) => {
                let answer =
                    CheckedAnswer::verify(&answer, state, self.cluster).map_err(|_| "probe-answer")?;
                Heard::Answer { node: uid, answer }
            }
            Message::Beacon(_)
            | Message::Ack(_)
            | Message::Probe { .. }
            | Message::ProbeReply { .. }
            | Message::StatusAck { .. }
            | Message::ReportsAck { .. }
            | Message::AskProbe(_) => return Err("not-for-a-replica"),
        };
        if self.hearing.take(heard) { Ok(()) } else { Err("queue") }
    }

    async fn send(&self, to: SocketAddr, message: &Message) {
        send(&self.socket, to, &Sender::Replica(self.id), message, &self.key, self.cluster).await;
    }
}

/// Sends the probes that are asked for to the agents' port.
pub async fn ask(
    socket: Arc<UdpSocket>,
    id: ReplicaId,
    cluster: ClusterId,
    key: SecretKey,
    mut asks: mpsc::Receiver<(IpAddr, AskProbe)>,
) {
    while let Some((prober, ask)) = asks.recv().await {
        send(
            &socket,
            SocketAddr::new(prober, PORT_PEER),
            &Sender::Replica(id),
            &Message::AskProbe(ask),
            &key,
            cluster,
        )
        .await;
    }
}

async fn send(
    socket: &UdpSocket,
    to: SocketAddr,
    sender: &Sender,
    message: &Message,
    key: &SecretKey,
    cluster: ClusterId,
) {
    if let Ok(bytes) = encode(sender, message, key, cluster) {
        // Lost or refused: the other end asks again.
        let _ = socket.send_to(&bytes, to).await;
    }
}

/// Checks the signature by the committed key, or by the older one of the same boot.
fn verify_either(
    datagram: coroner_shared::wire::datagram::Unverified<'_>,
    member: &Member,
    cluster: ClusterId,
) -> Result<Message, &'static str> {
    let again = datagram.clone();
    match (datagram.verify(&member.key, cluster), &member.old_key) {
        (Ok(message), _) => Ok(message),
        (Err(_), Some(old)) => again.verify(old, cluster).map_err(|_| "forged"),
        (Err(_), None) => Err("forged"),
    }
}

impl Checks {
    /// Whether this source, which speaks for the host at `home`, may cost one more check in this second.
    fn spend(&mut self, source: IpAddr, home: IpAddr, now: Mono) -> bool {
        if now.since(self.began) >= Span::from_secs(1) {
            self.began = now;
            self.second.clear();
            self.elsewhere = 0;
        }
        if source != home {
            self.elsewhere = self.elsewhere.saturating_add(1);
            if self.elsewhere > ELSEWHERE_PER_SECOND {
                return false;
            }
        }
        if self.second.len() >= SOURCES_MAX && !self.second.contains_key(&source) {
            return false;
        }
        let spent = self.second.entry(source).or_default();
        *spent = spent.saturating_add(1);
        *spent <= CHECKS_PER_SECOND
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_from_one_source_costs_only_so_many_checks_and_others_none() {
        let mut checks = Checks::default();
        let at = Mono::from_ms;
        let (loud, quiet) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let passed = (0..1000).filter(|_| checks.spend(loud, loud, at(5000))).count();
        assert_eq!(passed, 40);
        assert!(checks.spend(quiet, quiet, at(5000)));
        assert!(checks.spend(loud, loud, at(6000)));
    }

    #[test]
    fn forged_sources_cost_so_many_checks_together_and_push_no_host_out() {
        let mut checks = Checks::default();
        let home: IpAddr = "10.0.0.1".parse().unwrap();
        let forged = (0..60_000_u32).filter(|n| {
            checks.spend(IpAddr::from((0x0b00_0000 + n).to_be_bytes()), home, Mono::from_ms(5000))
        });
        assert_eq!(forged.count(), 2000);
        assert!(checks.spend(home, home, Mono::from_ms(5000)));
    }
}
