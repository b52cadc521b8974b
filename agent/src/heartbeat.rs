//! The beacon's thread: turns `coroner_agent_core::Agent` by hand. UDP 7460 in, UDP 7460 out, and no file, no log, no
//! lock and no wait on the way.
//!
//! ```text
//!   wait for socket, letter or time -> letters -> drain the socket -> tick -> send
//! ```
//!
//! Signatures are checked here, behind the limiter. What the core wants of the slow world (probes of a host's kernel,
//! log lines) goes out through channels that drop when full. It decides nothing.

use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use coroner_agent_core::{Agent, Change, Input, Known, Output, Tick, View};
use coroner_shared::beacon::Answer;
use coroner_shared::id::ClusterId;
use coroner_shared::keys::SecretKey;
use coroner_shared::time::{Mono, Span};
use coroner_shared::wire::datagram::{DatagramError, Message, Sender, Unverified, encode, parse};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use thiserror::Error;
use tokio::sync::{mpsc as channel, oneshot, watch};

use crate::clock;
use crate::limiter::Limiter;
use crate::probe::ProbeRequest;
use crate::socket::{Received, Socket};

/// Datagrams taken in one round. All peers and replicas together send about 60 a second.
const DRAIN_MAX: usize = 256;
/// After a round that did not empty the socket: so a flood costs 256 headers each 20 ms and no more.
const FLOOD_PAUSE: Duration = Duration::from_millis(20);
/// How often the view is published.
const PUBLISH_EVERY: Span = Span::from_secs(1);

/// Why the thread ended by itself.
#[derive(Debug, Error)]
pub(crate) enum HeartbeatError {
    /// The socket, or the wait for it, is broken.
    #[error("use UDP port 7460")]
    Socket(#[from] io::Error),
    /// The thread panicked.
    #[error("the beacon's thread died")]
    Died,
}

/// What the thread shows of itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pulse {
    /// When.
    pub(crate) at: Mono,
    /// What the core knows.
    pub(crate) view: View,
    /// Datagrams sent, one per receiver.
    pub(crate) sent: u64,
    /// Datagrams that the kernel did not take.
    pub(crate) unsent: u64,
    /// Datagrams that were somebody's we know, and signed by them.
    pub(crate) verified: u64,
    /// All others that came.
    pub(crate) dropped: u64,
    /// Datagrams that the kernel dropped at the full socket.
    pub(crate) kernel_drops: u64,
}

/// The way into the thread. Never blocks; the thread wakes up for each letter.
#[derive(Clone)]
pub(crate) struct Mailbox {
    letters: mpsc::Sender<Letter>,
    bell: Arc<UnixStream>,
}

enum Letter {
    Input(Box<Input>),
    Stop,
}

/// The ways out of the thread.
pub(crate) struct Outlets {
    /// Hosts' kernels to be asked.
    pub(crate) probes: channel::Sender<ProbeRequest>,
    /// For the log.
    pub(crate) changes: channel::Sender<Change>,
    /// A slice version that some replica has.
    pub(crate) slice_wanted: watch::Sender<u64>,
    /// For health and metrics.
    pub(crate) pulse: watch::Sender<Pulse>,
}

struct Heartbeat {
    socket: Socket,
    bell: UnixStream,
    letters: mpsc::Receiver<Letter>,
    agent: Agent,
    key: SecretKey,
    limiter: Limiter,
    outlets: Outlets,
    pulse: Pulse,
}

/// Starts the thread. The receiver gives how it ended.
///
/// # Errors
/// No thread or socket pair could be made.
pub(crate) fn start(
    socket: Socket,
    agent: Agent,
    key: SecretKey,
    outlets: Outlets,
) -> io::Result<(Mailbox, oneshot::Receiver<Result<(), HeartbeatError>>)> {
    let (ring, bell) = UnixStream::pair()?;
    ring.set_nonblocking(true)?;
    bell.set_nonblocking(true)?;
    let (sender, letters) = mpsc::channel();
    let (ended, end) = oneshot::channel();
    let heartbeat = Heartbeat {
        socket,
        bell,
        letters,
        agent,
        key,
        limiter: Limiter::default(),
        outlets,
        pulse: Pulse::default(),
    };
    let body = move || {
        let _ = ended.send(heartbeat.run());
    };
    std::thread::Builder::new().name("heartbeat".to_owned()).stack_size(256 * 1024).spawn(body)?;
    Ok((Mailbox { letters: sender, bell: Arc::new(ring) }, end))
}

// === impl Mailbox ===

impl Mailbox {
    /// Hands something in.
    pub(crate) fn send(&self, input: Input) {
        self.post(Letter::Input(Box::new(input)));
    }

    /// Ends the thread: no beacon leaves after this was read.
    pub(crate) fn stop(&self) {
        self.post(Letter::Stop);
    }

    fn post(&self, letter: Letter) {
        // If the thread is gone, its receiver in `run` has said so already; if the bell's buffer is full, it rings.
        let _ = self.letters.send(letter);
        let _ = io::Write::write(&mut &*self.bell, &[1]);
    }
}

// === impl Heartbeat ===

impl Heartbeat {
    fn run(mut self) -> Result<(), HeartbeatError> {
        loop {
            self.wait()?;
            if self.read_letters() {
                return Ok(());
            }
            let drained = self.drain()?;
            let tick = Tick { awake: clock::awake(), drained, drops: self.socket.drops() };
            self.feed(Input::Tick(tick));
            self.publish();
            if !drained {
                std::thread::sleep(FLOOD_PAUSE);
            }
        }
    }

    /// Until something comes or something is due.
    fn wait(&mut self) -> io::Result<()> {
        let ahead = self.agent.next_wakeup().since(clock::now()).as_ms();
        let timeout = PollTimeout::from(u16::try_from(ahead).unwrap_or(u16::MAX));
        let socket = PollFd::new(self.socket.as_fd(), PollFlags::POLLIN);
        let bell = PollFd::new(self.bell.as_fd(), PollFlags::POLLIN);
        match poll(&mut [socket, bell], timeout) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// `true` if the thread is to end.
    fn read_letters(&mut self) -> bool {
        let mut rings = [0; 64];
        while io::Read::read(&mut self.bell, &mut rings).is_ok_and(|n| n == rings.len()) {}
        while let Ok(letter) = self.letters.try_recv() {
            match letter {
                Letter::Input(input) => self.feed(*input),
                Letter::Stop => return true,
            }
        }
        false
    }

    /// Takes in what waits. `false` if there is more.
    fn drain(&mut self) -> io::Result<bool> {
        for _ in 0..DRAIN_MAX {
            match self.socket.receive()? {
                Received::Datagram { length, from } => self.take(length, from),
                Received::Useless => self.pulse.dropped += 1,
                Received::Empty => return Ok(true),
            }
        }
        Ok(false)
    }

    fn take(&mut self, length: usize, from: SocketAddr) {
        match self.read(length, from) {
            Some(input) => self.feed(input),
            None => self.pulse.dropped += 1,
        }
    }

    /// What a datagram is, after header, limiter and signature, in this order.
    fn read(&mut self, length: usize, from: SocketAddr) -> Option<Input> {
        let datagram = parse(self.socket.bytes(length)).ok()?;
        let (_, cluster) = self.agent.sender()?;
        let now = clock::now();
        let Some(known) = self.agent.known(&datagram.sender) else {
            if !self.limiter.allows_elsewhere(now) {
                return None;
            }
            self.pulse.dropped += 1;
            return Some(match datagram.claims() {
                Ok(Message::Probe { nonce }) => Input::Stranger { from, nonce },
                Ok(_) | Err(_) => Input::Unverified { from: from.ip() },
            });
        };
        if !self.limiter.allows(now, &datagram.sender, known, from.ip()) {
            return None;
        }
        let sender = datagram.sender.clone();
        let message = check(datagram, &sender, known, cluster);
        match message {
            Ok(message) => {
                self.pulse.verified += 1;
                Some(Input::Heard { sender, from, message })
            }
            Err(_) => {
                self.pulse.dropped += 1;
                Some(Input::Unverified { from: from.ip() })
            }
        }
    }

    /// Tells the core something, and does what it wants.
    fn feed(&mut self, input: Input) {
        let outputs = self.agent.handle(clock::now(), input);
        for output in outputs {
            self.perform(output);
        }
    }

    fn perform(&mut self, output: Output) {
        match output {
            Output::Send { to, message } => self.send(&to, &message),
            Output::Probe { number, path, address } => {
                let request = ProbeRequest { number, path, address };
                if self.outlets.probes.try_send(request).is_err() {
                    self.feed(Input::Probed { number, answer: Answer::NotSent });
                }
            }
            Output::SliceWanted { version } => {
                self.outlets.slice_wanted.send_replace(version);
            }
            Output::Changed(change) => {
                // A log that cannot keep up loses lines; the metrics still count.
                let _ = self.outlets.changes.try_send(change);
            }
        }
    }

    fn send(&mut self, to: &[SocketAddr], message: &Message) {
        let Some((sender, cluster)) = self.agent.sender() else { return };
        let Ok(bytes) = encode(&sender, message, &self.key, cluster) else {
            self.pulse.unsent += 1;
            return;
        };
        for address in to {
            if self.socket.send(&bytes, *address) {
                self.pulse.sent += 1;
            } else {
                self.pulse.unsent += 1;
            }
        }
    }

    fn publish(&mut self) {
        let now = clock::now();
        if now.since(self.pulse.at) >= PUBLISH_EVERY {
            self.pulse.at = now;
            self.pulse.view = self.agent.view(now);
            self.pulse.kernel_drops = self.socket.drops();
            self.outlets.pulse.send_replace(self.pulse.clone());
        }
    }
}

// === helpers ===

/// The message, if it is its sender's. A beacon carries its own signature, which is the one that counts; everything
/// else is signed as a whole, and a beacon in it by itself as well.
fn check(
    datagram: Unverified<'_>,
    sender: &Sender,
    known: Known,
    cluster: ClusterId,
) -> Result<Message, DatagramError> {
    let claims = datagram.claims()?;
    let beacon = match &claims {
        Message::Beacon(signed) => Some(signed),
        Message::ProbeReply { beacon, .. } => Some(beacon),
        Message::Ack(_)
        | Message::Probe { .. }
        | Message::Status(_)
        | Message::StatusAck { .. }
        | Message::Reports(_)
        | Message::ReportsAck { .. }
        | Message::AskProbe(_)
        | Message::ProbeAnswer(_) => None,
    };
    if let Some(signed) = beacon {
        let beacon = signed.verify(&known.key, cluster)?;
        if Sender::Node(beacon.node) != *sender {
            return Err(DatagramError::Forged(sender.clone()));
        }
    }
    if matches!(claims, Message::Beacon(_)) { Ok(claims) } else { datagram.verify(&known.key, cluster) }
}
