//! Names and numbers: newtypes, so that one can never stand where another is meant.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::machine_id::MachineId;
use crate::text::Text;

/// Why a text is not the identifier it should be.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum IdError {
    /// A Kubernetes object name is an RFC 1123 subdomain.
    #[error(
        "{what} {value:?} is not an RFC 1123 subdomain (1 to 253 of a-z 0-9 - . , no edge hyphen or dot)"
    )]
    Name {
        /// Which field.
        what: &'static str,
        /// The text as given.
        value: String,
    },
    /// A UUID in 8-4-4-4-12 hex form was expected.
    #[error("{what} {value:?} is not a UUID in 8-4-4-4-12 hexadecimal form")]
    Uuid {
        /// Which field.
        what: &'static str,
        /// The text as given.
        value: String,
    },
    /// Raft ids are positive.
    #[error("replica id 0 is reserved by Raft; ids start at 1")]
    ReplicaZero,
}

/// Name of a Kubernetes Node: an RFC 1123 subdomain of at most 253 bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeName(Text);

/// `metadata.uid` of a Node: a new Node under an old name has another one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct NodeUid(Text);

/// The kernel's random id of one boot (`/proc/sys/kernel/random/boot_id`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BootId([u8; 16]);

/// Which Coroner installation: drawn once by `coroner arbiter init`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId([u8; 16]);

/// Raft id of a replica. It belongs to the replica's disk, not to its node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct ReplicaId(u64);

/// Name of an Incident resource: `<node>-<8 hex>`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "String")]
pub struct IncidentId(Text);

/// Which life of a node we speak of.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Incarnation {
    /// The Node object.
    pub node: NodeUid,
    /// The computer.
    pub machine: MachineId,
    /// The boot.
    pub boot: BootId,
}

// === impl NodeName ===

impl NodeName {
    /// Checks and wraps a Node's name.
    ///
    /// # Errors
    /// [`IdError::Name`] unless it is an RFC 1123 subdomain.
    pub fn new(name: impl Into<String>) -> Result<Self, IdError> {
        let name = name.into();
        if is_subdomain(&name) {
            Ok(Self(name.into()))
        } else {
            Err(IdError::Name { what: "node name", value: name })
        }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// RFC 1123 subdomain, as Kubernetes checks object names.
fn is_subdomain(name: &str) -> bool {
    !name.is_empty()
        && name.len() <= 253
        && name.split('.').all(|label| {
            !label.is_empty()
                && label.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
                && !label.starts_with('-')
                && !label.ends_with('-')
        })
}

impl TryFrom<String> for NodeName {
    type Error = IdError;
    fn try_from(name: String) -> Result<Self, IdError> {
        Self::new(name)
    }
}

impl FromStr for NodeName {
    type Err = IdError;
    fn from_str(name: &str) -> Result<Self, IdError> {
        Self::new(name)
    }
}

impl From<NodeName> for String {
    fn from(name: NodeName) -> Self {
        name.0.into()
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl NodeUid ===

impl NodeUid {
    /// Wraps a uid. Kubernetes promises no form, so only emptiness, length (128) and spaces are refused.
    ///
    /// # Errors
    /// [`IdError::Uuid`] for an empty, overlong or spaced text.
    pub fn new(uid: impl Into<String>) -> Result<Self, IdError> {
        let uid = uid.into();
        if !uid.is_empty() && uid.len() <= 128 && uid.bytes().all(|b| b.is_ascii_graphic()) {
            Ok(Self(uid.into()))
        } else {
            Err(IdError::Uuid { what: "node uid", value: uid })
        }
    }

    /// The uid as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for NodeUid {
    type Error = IdError;
    fn try_from(uid: String) -> Result<Self, IdError> {
        Self::new(uid)
    }
}

impl From<NodeUid> for String {
    fn from(uid: NodeUid) -> Self {
        uid.0.into()
    }
}

impl fmt::Display for NodeUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// === impl BootId, ClusterId ===

macro_rules! uuid_id {
    ($name:ident, $what:literal) => {
        impl $name {
            /// The id of these 16 bytes, in RFC order.
            pub const fn from_bytes(bytes: [u8; 16]) -> Self {
                Self(bytes)
            }

            /// The 16 bytes, in RFC order.
            pub const fn bytes(&self) -> &[u8; 16] {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = IdError;
            fn from_str(text: &str) -> Result<Self, IdError> {
                crate::machine_id::parse_hyphenated(text.trim())
                    .map(Self)
                    .ok_or_else(|| IdError::Uuid { what: $what, value: text.chars().take(64).collect() })
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
                crate::machine_id::serialize_uuid(&self.0, self, to)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
                if from.is_human_readable() {
                    String::deserialize(from)?.parse().map_err(D::Error::custom)
                } else {
                    <[u8; 16]>::deserialize(from).map(Self)
                }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                crate::machine_id::write_hyphenated(&self.0, f)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}({self})", stringify!($name))
            }
        }
    };
}

uuid_id!(BootId, "boot id");
uuid_id!(ClusterId, "cluster id");

// === impl ReplicaId ===

impl ReplicaId {
    /// Wraps a Raft id.
    ///
    /// # Errors
    /// [`IdError::ReplicaZero`] for 0, which Raft uses for "nobody".
    pub fn new(id: u64) -> Result<Self, IdError> {
        if id == 0 { Err(IdError::ReplicaZero) } else { Ok(Self(id)) }
    }

    /// The id as Raft wants it.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl TryFrom<u64> for ReplicaId {
    type Error = IdError;
    fn try_from(id: u64) -> Result<Self, IdError> {
        Self::new(id)
    }
}

impl From<ReplicaId> for u64 {
    fn from(id: ReplicaId) -> Self {
        id.0
    }
}

impl fmt::Display for ReplicaId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

// === impl IncidentId ===

impl IncidentId {
    /// The id of the incident that the log entry `index` opens for `node`: unique, and the same on every replica.
    pub fn of(node: &NodeName, index: u64) -> Self {
        // Kubernetes names end at 253 bytes; the suffix takes 9.
        let head: String = node.as_str().chars().take(244).collect();
        Self(format!("{}-{:08x}", head.trim_end_matches(['-', '.']), index & 0xffff_ffff).into())
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl From<String> for IncidentId {
    fn from(id: String) -> Self {
        Self(id.into())
    }
}

impl fmt::Display for IncidentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn node_names_are_subdomains() {
        for good in ["n1", "rack-1.node-2", "a", "0"] {
            assert!(NodeName::new(good).is_ok(), "{good}");
        }
        for bad in ["", "N1", "-a", "a-", "a..b", "a_b", &"x".repeat(254)] {
            assert!(NodeName::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn boot_ids_are_read_as_the_kernel_writes_them() {
        let id: BootId = "8d2c6f3a-1b4e-4c7d-9e0f-000000000001\n".parse().unwrap();
        assert_eq!(id.to_string(), "8d2c6f3a-1b4e-4c7d-9e0f-000000000001");
        assert!("8d2c6f3a1b4e4c7d9e0f000000000001".parse::<BootId>().is_err());
    }

    #[test]
    fn incident_names_fit_kubernetes() {
        let node = NodeName::new("x".repeat(253)).unwrap();
        let id = IncidentId::of(&node, 0x1_0000_00ff);
        assert_eq!(id.as_str().len(), 253);
        assert!(id.as_str().ends_with("-000000ff"));
    }
}
