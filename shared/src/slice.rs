//! What the arbiter tells one agent: whom it hears, who hears it, and where the replicas are. An agent knows nothing
//! of the rest of the cluster.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};

use crate::id::{ClusterId, NodeName, NodeUid, ReplicaId};
use crate::keys::PublicKey;
use crate::machine_id::MachineId;
use crate::time::Span;

/// One agent's part of the membership.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Slice {
    /// Rises with every change of this agent's part.
    pub version: u64,
    /// The installation.
    pub cluster: ClusterId,
    /// The agent's own Node.
    pub node: NodeUid,
    /// Hosts that send their beacons to this agent; at most 9.
    pub subjects: Vec<Peer>,
    /// Hosts that this agent sends its beacons to; at most 9.
    pub observers: Vec<Peer>,
    /// The replicas.
    pub replicas: Vec<ReplicaPeer>,
    /// The times to work with.
    pub timings: Timings,
}

/// Another host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its Node's name, for logs.
    pub name: NodeName,
    /// Its Node.
    pub node: NodeUid,
    /// Its machine.
    pub machine: MachineId,
    /// Where its agent listens.
    pub address: IpAddr,
    /// Its committed key.
    pub key: PublicKey,
}

/// A replica as agents know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplicaPeer {
    /// Its Raft id.
    pub id: ReplicaId,
    /// The node it runs on.
    pub host: NodeName,
    /// Its address.
    pub address: IpAddr,
    /// The key its datagrams are signed with.
    pub key: PublicKey,
}

/// The times of detection, from the policy of the fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Timings {
    /// T: a beacon to each observer this often, +-5 %.
    pub beacon: Span,
    /// How often a status goes to each replica.
    pub status: Span,
    /// S: silence longer than this is probed and reported; at least 4 T.
    pub suspect: Span,
    /// How often each path to each subject is tried in calm times.
    pub path_probe: Span,
    /// How often a full snapshot of the reports is sent.
    pub snapshot: Span,
}

impl Timings {
    /// The values of the balanced profile.
    pub const BALANCED: Self = Self {
        beacon: Span::from_ms(250),
        status: Span::from_secs(1),
        suspect: Span::from_ms(1250),
        path_probe: Span::from_secs(60),
        snapshot: Span::from_secs(30),
    };
}
