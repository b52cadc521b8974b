//! What agents say to each other and to the replicas, and what replicas ask of agents.
//!
//! A beacon is the same bytes for every receiver, so any receiver can forward it as a veto that cannot be forged and
//! keep it as evidence. Everything else an agent says is a claim of that agent alone.

use serde::{Deserialize, Serialize};

use crate::health::HealthSummary;
use crate::id::{BootId, NodeUid};
use crate::machine_id::MachineId;
use crate::time::Span;

/// "I am alive": signed by the host's key, about 200 bytes on the wire.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Beacon {
    /// The Node object this host speaks for.
    pub node: NodeUid,
    /// SMBIOS UUID as this host's firmware tells it.
    pub machine: MachineId,
    /// This boot.
    pub boot: BootId,
    /// CLOCK_BOOTTIME in milliseconds: rises over restarts of the agent, starts anew with a boot.
    pub seq: u64,
    /// What the agent knows to be ill.
    pub health: HealthSummary,
}

/// A beacon as received: the signed bytes and the signature, kept together so that anyone can check them again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedBeacon {
    /// The encoded [`Beacon`] exactly as signed; at most [`crate::wire::BEACON_BYTES_MAX`].
    pub bytes: Vec<u8>,
    /// Ed25519 over [`crate::keys::Purpose::Beacon`], cluster id and `bytes`.
    #[serde(with = "crate::wire::signature")]
    pub signature: [u8; 64],
}

/// Once a second from an observer to its subject: "I hear you".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ack {
    /// Sequence number of the newest beacon heard.
    pub seq: u64,
    /// How long the observer held that beacon before it sent this; the subject subtracts it to get the round trip.
    pub held: Span,
    /// How long ago the observer itself had an answer from any replica.
    pub arbiter_contact: Span,
}

/// A way on which a host can be asked whether it is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Path {
    /// The agent's own UDP port.
    Agent,
    /// A TCP connection to the kubelet's port: an accept and a reset are both answers.
    Kubelet,
    /// An ICMP echo.
    Ping,
}

/// What a probe on one path saw. Anything from the subject's own address is an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Answer {
    /// The agent or the echo answered.
    Answered,
    /// TCP was accepted.
    Accepted,
    /// TCP was refused with a reset: the port is closed, the host is alive.
    Reset,
    /// Nothing came within the probe's time.
    Nothing,
    /// The probe could not be sent; says nothing about the subject.
    NotSent,
}

/// One path's probe, as told to the arbiter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeOutcome {
    /// Which way.
    pub path: Path,
    /// What came back.
    pub answer: Answer,
    /// How long before this statement was sent the probe went out.
    pub asked_ago: Span,
    /// How long before this statement was sent this path last gave an answer; `None`: never. A path counts only if it
    /// answered within the 10 minutes before the failure date.
    pub worked_ago: Option<Span>,
}

/// What an observer says about one subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Hearing {
    /// No beacon for longer than the suspicion time.
    Silent {
        /// How long before this statement was sent the last beacon came; since assignment where none ever came.
        silent: Span,
        /// Boot and sequence number of that last beacon; `None` if it never heard one since it was assigned.
        last: Option<(BootId, u64)>,
        /// The two direct probes, and those since.
        probes: Vec<ProbeOutcome>,
    },
    /// A beacon came: withdraws an accusation and proves it.
    Heard {
        /// The newest beacon.
        beacon: SignedBeacon,
        /// How long before this statement was sent it came.
        ago: Span,
    },
}

/// An observer's statement about a subject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// About whom.
    pub subject: NodeUid,
    /// What is said.
    pub hearing: Hearing,
}

/// Why an agent says of itself that its accusations should not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum SelfDoubt {
    /// Its own timer came late: it was paused or starved.
    LateTick,
    /// Its socket dropped datagrams.
    ReceiveDrops,
    /// CPU or memory pressure (PSI) is high.
    Pressure,
    /// The host was suspended.
    Suspended,
    /// No replica answered for 3 s.
    NoArbiter,
}

/// Reports of one agent, sent to all replicas and repeated until each has acknowledged them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReportBatch {
    /// The reporter's boot.
    pub boot: BootId,
    /// Rises with every change; what an acknowledgement names.
    pub number: u64,
    /// Whether this tells of every subject that is silent (the others are heard), not only of changes.
    pub snapshot: bool,
    /// Reasons of its own not to be counted.
    pub doubts: Vec<SelfDoubt>,
    /// The statements; at most [`crate::wire::REPORTS_MAX`].
    pub reports: Vec<Report>,
}

/// Once a second from every agent to every replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Status {
    /// Its own beacon.
    pub beacon: SignedBeacon,
    /// The slice it works with.
    pub slice: u64,
    /// Subjects it hears now: a claim, used for trust and to see how torn the network is, never as a proof of life.
    pub hears: Vec<NodeUid>,
    /// Reasons of its own not to be counted.
    pub doubts: Vec<SelfDoubt>,
    /// Paths to its subjects that answered lately.
    pub worked: Vec<WorkedPath>,
}

/// A path of the sender to one of its subjects that has answered before.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkedPath {
    /// To whom.
    pub subject: NodeUid,
    /// Which way.
    pub path: Path,
    /// How long ago it last answered.
    pub ago: Span,
}

/// A replica asks an agent to probe a suspect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AskProbe {
    /// What the answer must name.
    pub number: u64,
    /// Whom to probe.
    pub subject: NodeUid,
    /// Where: the suspect may be no peer of the agent's.
    pub address: std::net::IpAddr,
    /// The suspect's key, to check an answer of its agent.
    pub key: crate::keys::PublicKey,
}

/// An agent's answer to [`AskProbe`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeAnswer {
    /// The number asked with.
    pub number: u64,
    /// Who was probed.
    pub subject: NodeUid,
    /// Every path tried.
    pub outcomes: Vec<ProbeOutcome>,
    /// A beacon of the suspect, if it answered with one.
    pub beacon: Option<SignedBeacon>,
}

/// Why an agent says goodbye: a planned silence is not a death.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum GoodbyeKind {
    /// Only the agent stops (upgrade, restart).
    AgentRestart,
    /// The host reboots.
    Reboot,
    /// The host shuts down.
    Shutdown,
}
