//! The agents' processes: `coroner-agent-core` with this world as its socket, clock and network. Mirrors
//! `agent/src/heartbeat.rs` and `agent/src/probe.rs`.

use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;

use coroner_agent_core::{Agent, Birth, HostPath, Input, Output, ProbeNumber, Sign, Tick};
use coroner_shared::beacon::{Answer, Beacon, SignedBeacon};
use coroner_shared::id::ClusterId;
use coroner_shared::keys::PublicKey;
use coroner_shared::names::{PORT_PEER, PORT_REPORT};
use coroner_shared::time::{Mono, Span};
use coroner_shared::wire::datagram::{DatagramError, Message, Sender, encoded_bytes};

use super::machine::{AgentProcess, Condition, machine_at};
use super::network::{End, Flow};
use super::uplink;
use super::world::World;

/// A datagram: what it says, and whose key signed it. A signature costs nothing here; that a key is whose it says is
/// what the checks look at, as they do over real ones.
#[derive(Clone, Debug)]
pub(crate) struct Packet {
    pub(crate) sender: Sender,
    pub(crate) key: PublicKey,
    pub(crate) message: Message,
    /// Sent again by somebody who recorded it.
    pub(crate) replayed: bool,
    /// Whether the beacon in it, if there is one, speaks of its sender.
    pub(crate) fits: bool,
}

/// Signs beacons with the key itself in place of a signature.
pub(crate) struct CheapSign(pub(crate) PublicKey);

/// A ping, a segment without data.
const PROBE_BYTES: usize = 64;
/// How long a host probe waits for an answer.
const PROBE_WAITS: Span = Span::from_ms(500);

impl Sign for CheapSign {
    fn sign(&self, beacon: &Beacon, _: ClusterId) -> Result<SignedBeacon, DatagramError> {
        let bytes = postcard::to_allocvec(beacon).map_err(|_| DatagramError::Malformed)?;
        Ok(SignedBeacon { bytes, signature: signature_of(&self.0) })
    }
}

/// What stands for a signature by that key.
fn signature_of(key: &PublicKey) -> [u8; 64] {
    let mut signature = [0; 64];
    signature[..32].copy_from_slice(key.bytes());
    signature[32..].copy_from_slice(key.bytes());
    signature
}

/// Whether that key signed the beacon.
pub(crate) fn signed_by(signed: &SignedBeacon, key: &PublicKey) -> bool {
    signed.signature == signature_of(key)
}

// === impl World ===

impl World {
    pub(crate) fn agent_starts(&mut self, machine: usize) {
        let on = &self.machines[machine];
        let (Some(boot), None) = (on.boot, &on.agent) else { return };
        let birth = Birth {
            boot,
            machine: Some(on.id),
            seed: self.draws.machines.number(),
            sign: Box::new(CheapSign(on.key)),
        };
        let group = self.new_group();
        let wanted = self.reactor.signal();
        let on = &mut self.machines[machine];
        let now = on.host_time(self.now);
        let kept = on.kept_slice.clone();
        on.agent = Some(AgentProcess {
            agent: Agent::new(now, birth),
            start: group.0,
            due: None,
            slice_wanted: (wanted, 0),
            group,
        });
        if let Some(slice) = kept {
            self.agent_feels(machine, Input::Slice(slice));
        }
        self.agent_ticks(machine);
        self.spawn(machine, group, move |shared| Box::pin(uplink::run(shared, machine, boot)));
    }

    /// The agent's process ends; nothing else of the host does.
    pub(crate) fn agent_ends(&mut self, machine: usize) {
        if let Some(process) = self.machines[machine].agent.take() {
            self.killed.push(process.group);
        }
    }

    /// Something comes to the agent; it acts on what is due.
    pub(crate) fn agent_hears(&mut self, machine: usize, input: Input) {
        self.agent_feels(machine, input);
        let on = &self.machines[machine];
        let now = on.host_time(self.now);
        let Some(due) = on.agent.as_ref().map(|p| p.agent.next_wakeup()) else { return };
        if due <= now {
            self.agent_ticks(machine);
        } else {
            self.agent_plans(machine, due);
        }
    }

    fn agent_feels(&mut self, machine: usize, input: Input) {
        let on = &mut self.machines[machine];
        let now = on.host_time(self.now);
        let Some(process) = &mut on.agent else { return };
        for output in process.agent.handle(now, input) {
            self.agent_does(machine, output);
        }
    }

    fn agent_ticks(&mut self, machine: usize) {
        let awake = self.machines[machine].host_time(self.now);
        self.agent_feels(machine, Input::Tick(Tick { awake, drained: true, drops: 0 }));
        if let Some(process) = &self.machines[machine].agent {
            self.agent_plans(machine, process.agent.next_wakeup());
        }
    }

    /// Its next tick, at that time at the soonest a millisecond from now.
    fn agent_plans(&mut self, machine: usize, due: Mono) {
        let on = &mut self.machines[machine];
        let now = on.host_time(self.now);
        let Some(process) = &mut on.agent else { return };
        let due = due.max(now + Span::from_ms(1));
        if process.due.is_some_and(|planned| planned > now && planned <= due) {
            return;
        }
        process.due = Some(due);
        let start = process.start;
        self.on_clock(due.since(now), machine, move |world| {
            let planned = world.machines[machine].agent.as_ref();
            if planned.is_some_and(|p| p.start == start && p.due == Some(due)) {
                world.agent_ticks(machine);
            }
        });
    }

    fn agent_does(&mut self, machine: usize, output: Output) {
        match output {
            Output::Send { to, message } => {
                let Some((sender, _)) = self.machines[machine].agent.as_ref().and_then(|p| p.agent.sender())
                else {
                    return;
                };
                if self.machines[machine].odd.never_reports && matches!(message, Message::Reports(_)) {
                    return;
                }
                let key = self.machines[machine].key;
                let message = self.as_it_says(machine, message);
                let packet = Rc::new(Packet::new(sender, key, message));
                self.record(machine, &packet, &to);
                for address in to {
                    self.send(End::Host(machine), address, &packet);
                }
            }
            Output::Probe { number, path, address } => self.host_probe(machine, number, path, address),
            Output::SliceWanted { version } => {
                if let Some(process) = &mut self.machines[machine].agent {
                    process.slice_wanted.1 = version;
                    process.slice_wanted.0.send();
                }
            }
            Output::Changed(_) => {}
        }
    }

    /// Sends a datagram.
    pub(crate) fn send(&mut self, from: End, to: SocketAddr, packet: &Rc<Packet>) {
        let Some(target) = machine_at(to.ip()).filter(|m| *m < self.machines.len()) else { return };
        let End::Host(source) = from else { return };
        let replica = to.port() == PORT_REPORT || matches!(packet.sender, Sender::Replica(_));
        let flow = if replica { Flow::Report } else { Flow::Peer };
        let by_replica = matches!(packet.sender, Sender::Replica(_));
        if !self.understands(target, to.port(), source, by_replica) {
            return self.coverage.reach("wire: a version that is not understood");
        }
        let narrow = self.network.is_narrow();
        let bytes = if narrow { encoded_bytes(&packet.sender, &packet.message) } else { 0 };
        for passage in self.network.datagram(self.now, (from, End::Host(target)), flow, bytes) {
            let packet = Rc::clone(packet);
            let port = to.port();
            self.on_machine(passage.after, target, move |world| {
                if port == PORT_PEER {
                    world.agent_receives(target, source, &packet, passage.corrupt);
                } else if !passage.corrupt {
                    world.replica_receives(target, source, &packet);
                }
            });
        }
    }

    pub(crate) fn agent_receives(&mut self, machine: usize, source: usize, packet: &Packet, corrupt: bool) {
        let ip = self.machines[source].address;
        let from = SocketAddr::new(ip, PORT_PEER);
        let Some(process) = &self.machines[machine].agent else { return };
        if process.agent.sender().is_none() {
            return;
        }
        let input = match process.agent.known(&packet.sender) {
            None => {
                if let (Message::Probe { nonce }, false) = (&packet.message, corrupt) {
                    Input::Stranger { from, nonce: *nonce }
                } else {
                    Input::Unverified { from: ip }
                }
            }
            Some(known) if !corrupt && packet.is_signed_by(&known.key) => {
                if matches!(packet.message, Message::Beacon(_) | Message::ProbeReply { .. })
                    && !packet.replayed
                {
                    self.beacon_arrives(machine, source);
                }
                let from = SocketAddr::new(ip, reply_port(&packet.sender));
                Input::Heard { sender: packet.sender.clone(), from, message: packet.message.clone() }
            }
            Some(_) => Input::Unverified { from: ip },
        };
        self.agent_hears(machine, input);
    }

    /// A host's kernel is asked.
    fn host_probe(&mut self, machine: usize, number: ProbeNumber, path: HostPath, address: IpAddr) {
        let Some(target) = machine_at(address).filter(|m| *m < self.machines.len()) else { return };
        let flow = match path {
            HostPath::Kubelet => Flow::Kubelet,
            HostPath::Ping => Flow::Ping,
        };
        let (here, host) = (End::Host(machine), End::Host(target));
        let there = self.network.datagram(self.now, (here, host), flow, PROBE_BYTES).next();
        let back = self.network.datagram(self.now, (host, here), flow, PROBE_BYTES).next();
        let start = self.machines[machine].agent.as_ref().map(|p| p.start);
        let answered = move |world: &mut World, answer: Answer| {
            if world.machines[machine].agent.as_ref().map(|p| p.start) == start {
                world.agent_hears(machine, Input::Probed { number, answer });
            }
        };
        match (there, back) {
            (Some(there), Some(back)) => self.after(there.after, move |world| {
                let answer = world.kernel_answers(target, path);
                let wait = if answer == Answer::Nothing { PROBE_WAITS } else { back.after };
                world.on_machine(wait, machine, move |world| answered(world, answer));
            }),
            _ => self.on_machine(PROBE_WAITS, machine, move |world| answered(world, Answer::Nothing)),
        }
    }

    fn kernel_answers(&self, machine: usize, path: HostPath) -> Answer {
        let on = &self.machines[machine];
        match (on.condition, path) {
            (Condition::Runs, HostPath::Kubelet) if on.kubelet => Answer::Accepted,
            // A hung program's listening socket still accepts.
            (Condition::Hung, HostPath::Kubelet) => Answer::Accepted,
            (Condition::Runs, HostPath::Kubelet) => Answer::Reset,
            (Condition::Runs | Condition::Hung | Condition::CrashKernel, HostPath::Ping) => Answer::Answered,
            (Condition::CrashKernel, HostPath::Kubelet)
            | (Condition::Off | Condition::Firmware | Condition::Frozen, _) => Answer::Nothing,
        }
    }
}

// === impl Packet ===

impl Packet {
    pub(crate) fn new(sender: Sender, key: PublicKey, message: Message) -> Self {
        let mut packet = Self { sender, key, message, replayed: false, fits: true };
        // It is read once here, and not by each who gets it.
        if let Some(signed) = packet.beacon() {
            packet.fits = signed.claims().is_ok_and(|beacon| Sender::Node(beacon.node) == packet.sender);
        }
        packet
    }

    fn beacon(&self) -> Option<&SignedBeacon> {
        if let Message::Beacon(signed) | Message::ProbeReply { beacon: signed, .. } = &self.message {
            return Some(signed);
        }
        None
    }

    /// A beacon's own signature counts; everything else is signed as a whole, and a beacon in it as well.
    fn is_signed_by(&self, known: &PublicKey) -> bool {
        let beacon = self.beacon().is_none_or(|signed| self.fits && signed_by(signed, known));
        beacon && (matches!(self.message, Message::Beacon(_)) || self.key == *known)
    }
}

fn reply_port(sender: &Sender) -> u16 {
    match sender {
        Sender::Node(_) => PORT_PEER,
        Sender::Replica(_) => PORT_REPORT,
    }
}
