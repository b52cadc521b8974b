//! What the agent's machine wants done or known. All of it is data; somebody else does it.

use std::net::{IpAddr, SocketAddr};

use coroner_shared::beacon::SelfDoubt;
use coroner_shared::id::{BootId, NodeName};
use coroner_shared::time::Span;
use coroner_shared::wire::datagram::Message;

/// Names one probe; an answer carries it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProbeNumber(pub u64);

/// One thing to do or to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Sign this once and send the same bytes to each address.
    Send {
        /// To whom.
        to: Vec<SocketAddr>,
        /// What.
        message: Message,
    },
    /// Ask a host's kernel whether it is there; what comes back is [`crate::Input::Probed`].
    Probe {
        /// To be carried back.
        number: ProbeNumber,
        /// Which way.
        path: HostPath,
        /// Whom. Only what comes from this address is an answer.
        address: IpAddr,
    },
    /// A replica has a newer slice than this agent.
    SliceWanted {
        /// Its version.
        version: u64,
    },
    /// Something changed that an operator may want to read in the log.
    Changed(Change),
}

/// The ways to ask a host that do not go through its agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum HostPath {
    /// A TCP connection to the kubelet's port.
    Kubelet,
    /// An ICMP echo.
    Ping,
}

/// A change of state of the agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A new slice is in use.
    SliceTaken {
        /// Its version.
        version: u64,
        /// How many it hears.
        subjects: usize,
        /// How many hear it.
        observers: usize,
        /// How many replicas.
        replicas: usize,
    },
    /// No beacon of this subject came for longer than the suspicion time; the replicas are told.
    Silent {
        /// Who.
        subject: NodeName,
        /// For how long.
        silent: Span,
    },
    /// It was reported silent and is heard again; the replicas get the beacon.
    HeardAgain {
        /// Who.
        subject: NodeName,
        /// For how long it was silent.
        silent: Span,
    },
    /// A beacon of another boot came.
    Rebooted {
        /// Who.
        subject: NodeName,
        /// The boot it is in now.
        boot: BootId,
    },
    /// A boot thought to be over answered a fresh question: what had displaced it was an old beacon.
    BootProven {
        /// Who.
        subject: NodeName,
        /// The boot it is in.
        boot: BootId,
    },
    /// From now on this agent asks not to be believed when it accuses.
    Doubts(SelfDoubt),
    /// That reason is over.
    Trusts(SelfDoubt),
    /// None of this host's observers says that it hears it.
    Alone,
    /// Some do again.
    NotAlone,
}
