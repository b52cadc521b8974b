//! HTTP bodies between agents and replicas (TCP 7462), and how an agent signs its requests.
//!
//! The first request of a host registers its key with a ServiceAccount token; from then on the key signs: method,
//! path, SHA-256 of the body and a rising number, so that a request can be neither forged nor replayed.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::beacon::GoodbyeKind;
use crate::id::{BootId, ClusterId, NodeName, NodeUid};
use crate::keys::PublicKey;
use crate::machine_id::MachineId;
use crate::slice::Slice;

/// `POST` here to register a key.
pub const REGISTER: &str = "/v1/register";
/// `GET` here, with `?have=VERSION`, for the slice; answers when there is a newer one, or 204 after 25 s.
pub const SLICE: &str = "/v1/slice";
/// `POST` here to announce a planned silence.
pub const GOODBYE: &str = "/v1/goodbye";

/// Header with the sender's Node uid.
pub const NODE_HEADER: &str = "coroner-node";
/// Header with the rising number (milliseconds of CLOCK_BOOTTIME of the named boot).
pub const NUMBER_HEADER: &str = "coroner-number";
/// Header with the sender's boot id.
pub const BOOT_HEADER: &str = "coroner-boot";
/// Header with the hex signature.
pub const SIGNATURE_HEADER: &str = "coroner-signature";

/// Body of [`REGISTER`]; the token goes into `Authorization: Bearer`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Register {
    /// The Node that the agent runs on; must be the one the token names.
    pub node: NodeName,
    /// SMBIOS UUID, or why the host has none.
    pub machine: Result<MachineId, String>,
    /// This boot.
    pub boot: BootId,
    /// The host's public key.
    pub key: PublicKey,
    /// Where its agent listens.
    pub address: IpAddr,
    /// Build of the agent.
    pub version: String,
}

/// Answer to [`REGISTER`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Registered {
    /// The installation.
    pub cluster: ClusterId,
    /// The Node's uid.
    pub node: NodeUid,
    /// The agent's part of the membership.
    pub slice: Slice,
}

/// Body of [`GOODBYE`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goodbye {
    /// What is planned.
    pub kind: GoodbyeKind,
    /// The boot that says so; a newer one ends it.
    pub boot: BootId,
    /// CLOCK_BOOTTIME in milliseconds when it was said, the scale of [`crate::beacon::Beacon::seq`]: a beacon of this
    /// boot with a higher number was sent after it, and ends it.
    pub seq: u64,
}

/// Any refusal of a replica, with a text for the log of the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// A stable word: `NotLeader`, `TokenRejected`, `NodeMismatch`, `UnknownNode`, `OldKeyAlive`, ...
    pub reason: String,
    /// What happened and what would be right.
    pub message: String,
}

/// The bytes that an agent signs for a request.
pub fn request_text(method: &str, path_and_query: &str, boot: BootId, number: u64, body: &[u8]) -> Vec<u8> {
    let hash = Sha256::digest(body);
    let mut text = format!("{method}\n{path_and_query}\n{boot}\n{number}\n").into_bytes();
    text.extend_from_slice(&hash);
    text
}
