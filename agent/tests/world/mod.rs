//! A small world around real agents: hosts in temporary folders, loopback addresses of their own, peers and replicas
//! made by hand. The agents are the shipped program; their sockets are real.

#![allow(dead_code, reason = "each test file uses its part of the world")]
#![allow(unreachable_pub, missing_docs, reason = "seen by the tests beside it alone")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

pub mod desk;

use std::fs;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use coroner_shared::beacon::{Beacon, SignedBeacon};
use coroner_shared::health::HealthSummary;
use coroner_shared::hex::Hex;
use coroner_shared::id::{BootId, ClusterId, NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::SecretKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::names::{PORT_PEER, PORT_REPORT};
use coroner_shared::slice::{Peer, ReplicaPeer, Slice, Timings};
use coroner_shared::wire::datagram::{Message, Sender, encode, parse};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

pub const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);

/// A host: its files, its address, its key.
pub struct Host {
    pub files: tempfile::TempDir,
    pub address: IpAddr,
    pub key: SecretKey,
    pub name: NodeName,
    pub node: NodeUid,
    pub machine: MachineId,
    pub boot: BootId,
}

/// A running agent; killed when dropped.
pub struct Running(pub Child);

/// A peer or replica made by hand: one UDP socket and a key.
pub struct Voice {
    pub socket: UdpSocket,
    pub key: SecretKey,
    pub sender: Sender,
}

/// Milliseconds of CLOCK_BOOTTIME: the agents' time.
pub fn now_ms() -> u64 {
    let t = clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap();
    u64::try_from(t.tv_sec() * 1000 + t.tv_nsec() / 1_000_000).unwrap()
}

/// A loopback address that no other test and no other process of tests uses.
pub fn fresh_address() -> IpAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    IpAddr::V4(Ipv4Addr::new(127, 64 | (high & 0x3f), low, NEXT.fetch_add(1, Ordering::Relaxed)))
}

// === impl Host ===

impl Host {
    /// Host `n` with everything that a real one has.
    pub fn new(n: u8) -> Self {
        let machine = MachineId::from_bytes([n, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]).unwrap();
        let host = Self {
            files: tempfile::tempdir().unwrap(),
            address: fresh_address(),
            key: SecretKey::from_seed(&[n; 32]),
            name: NodeName::new(format!("n{n}")).unwrap(),
            node: NodeUid::new(format!("8d2c6f3a-1b4e-4c7d-9e0f-0000000000{n:02x}")).unwrap(),
            machine,
            boot: BootId::from_bytes([n; 16]),
        };
        host.write("sys/class/dmi/id/product_uuid", &format!("{machine}\n"));
        host.write("proc/sys/kernel/random/boot_id", &format!("{}\n", host.boot));
        let seed = host.key.seed();
        host.write("var/lib/coroner/agent.key", &format!("{}\n{machine}\n", Hex(&seed)));
        host
    }

    pub fn root(&self) -> &Path {
        self.files.path()
    }

    pub fn write(&self, path: &str, text: &str) {
        let path = self.root().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Leaves a slice on its disk, as an earlier registration would have.
    pub fn remember(&self, slice: &Slice) {
        self.write("var/lib/coroner/agent-slice.json", &serde_json::to_string(slice).unwrap());
    }

    pub fn peer(&self) -> Peer {
        Peer {
            name: self.name.clone(),
            node: self.node.clone(),
            machine: self.machine,
            address: self.address,
            key: self.key.public(),
        }
    }

    /// Its part of a cluster in which `peers` hear it and are heard by it.
    pub fn slice(&self, version: u64, peers: &[&Host], replicas: &[ReplicaPeer]) -> Slice {
        let peers: Vec<Peer> = peers.iter().map(|host| host.peer()).collect();
        Slice {
            version,
            cluster: CLUSTER,
            node: self.node.clone(),
            subjects: peers.clone(),
            observers: peers,
            replicas: replicas.to_vec(),
            timings: Timings::BALANCED,
        }
    }

    pub fn beacon(&self, seq: u64) -> SignedBeacon {
        let (node, machine, boot) = (self.node.clone(), self.machine, self.boot);
        let beacon = Beacon { node, machine, boot, seq, health: HealthSummary::GOOD };
        SignedBeacon::sign(&beacon, &self.key, CLUSTER).unwrap()
    }

    /// The program's command line on this host.
    pub fn command(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_coroner-agent"));
        command
            .env_clear()
            .arg(format!("--host-root={}", self.root().display()))
            .arg(format!("--node-name={}", self.name))
            .arg(format!("--address={}", self.address))
            .arg(format!("--health-address={}:7464", self.address))
            .arg(format!("--trust-dir={}", self.root().join("trust").display()))
            .arg(format!("--token-file={}", self.root().join("token").display()))
            .stdin(Stdio::null());
        command
    }

    /// Starts the program; its log goes to `log` among the host's files.
    pub fn start(&self) -> Running {
        let path = self.root().join("log");
        let log = fs::OpenOptions::new().create(true).append(true).open(path).unwrap();
        Running(self.command().stderr(log).spawn().unwrap())
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.root().join("log")).unwrap_or_default()
    }

    /// This host played by hand: its agent's socket and key.
    pub fn by_hand(&self) -> Voice {
        Voice::new(
            SocketAddr::new(self.address, PORT_PEER),
            self.key.clone(),
            Sender::Node(self.node.clone()),
        )
    }
}

// === impl Running ===

impl Running {
    pub fn signal(&self, signal: Signal) {
        kill(self.pid(), signal).unwrap();
    }

    pub fn pid(&self) -> Pid {
        Pid::from_raw(i32::try_from(self.0.id()).unwrap())
    }

    /// Waits for its end, and gives its exit code.
    pub fn exit_code(&mut self) -> Option<i32> {
        for _ in 0..1000 {
            if let Some(status) = self.0.try_wait().unwrap() {
                return status.code();
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("the agent does not end");
    }

    /// CPU time used so far, in milliseconds (clock ticks are 10 ms on Linux).
    pub fn cpu_ms(&self) -> u64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.0.id())).unwrap();
        let after_name = stat.rsplit_once(')').unwrap().1;
        let field = |n: usize| after_name.split_whitespace().nth(n).unwrap().parse::<u64>().unwrap();
        (field(11) + field(12)) * 10
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

// === impl Voice ===

impl Voice {
    pub fn new(address: SocketAddr, key: SecretKey, sender: Sender) -> Self {
        let socket = UdpSocket::bind(address).unwrap();
        socket.set_read_timeout(Some(Duration::from_millis(20))).unwrap();
        Self { socket, key, sender }
    }

    /// Replica `n` at an address of its own.
    pub fn replica(n: u8) -> (Self, ReplicaPeer) {
        let (address, key) = (fresh_address(), SecretKey::from_seed(&[100 + n; 32]));
        let id = ReplicaId::new(u64::from(n)).unwrap();
        let host = NodeName::new(format!("r{n}")).unwrap();
        let peer = ReplicaPeer { id, host, address, key: key.public() };
        (Self::new(SocketAddr::new(address, PORT_REPORT), key, Sender::Replica(id)), peer)
    }

    pub fn send(&self, to: &Host, message: &Message) {
        let bytes = encode(&self.sender, message, &self.key, CLUSTER).unwrap();
        self.socket.send_to(&bytes, SocketAddr::new(to.address, PORT_PEER)).unwrap();
    }

    /// What came from one of `hosts` within 20 ms, checked; panics if it is not signed by its sender.
    pub fn hear(&self, hosts: &[&Host]) -> Option<(NodeUid, Message)> {
        let mut buffer = [0; 2000];
        let (length, from) = self.socket.recv_from(&mut buffer).ok()?;
        let datagram = parse(&buffer[..length]).expect("an agent sends only what can be parsed");
        let host = hosts.iter().find(|h| Sender::Node(h.node.clone()) == datagram.sender)?;
        assert_eq!(from, SocketAddr::new(host.address, PORT_PEER), "all is sent from port 7460");
        let message = datagram.verify(&host.key.public(), CLUSTER).expect("and signed");
        Some((host.node.clone(), message))
    }

    /// As a replica: hears one thing and acknowledges it.
    pub fn serve(&self, hosts: &[&Host]) -> Option<(NodeUid, Message)> {
        let (node, message) = self.hear(hosts)?;
        let host = hosts.iter().find(|h| h.node == node)?;
        if matches!(message, Message::Status(_)) {
            self.send(host, &Message::StatusAck { term: 3, slice: 1 });
        }
        if let Message::Reports(batch) = &message {
            self.send(host, &Message::ReportsAck { number: batch.number, term: 3 });
        }
        Some((node, message))
    }

    /// Serves until `found` finds something, for at most 10 s.
    #[track_caller]
    pub fn serve_until<T>(
        &self,
        hosts: &[&Host],
        what: &str,
        mut found: impl FnMut(&NodeUid, &Message) -> Option<T>,
    ) -> T {
        let start = now_ms();
        while now_ms() < start + 10_000 {
            if let Some((node, message)) = self.serve(hosts)
                && let Some(found) = found(&node, &message)
            {
                return found;
            }
        }
        panic!("waited 10 s for {what}");
    }
}
