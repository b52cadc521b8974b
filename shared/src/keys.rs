//! Ed25519 keys and signatures (RFC 8032), and what exactly is signed.
//!
//! Every signed text begins with a context and the cluster id, so that a signature made for one purpose or one
//! installation is worth nothing for another. Verification is strict: no small-order keys, no malleable signatures.
//! Keys are made at the edge, where randomness is; this module only computes.

use std::fmt;

use ed25519_dalek::{Signature, Signer, SigningKey, VerifyingKey};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

use crate::id::ClusterId;

/// A host's or replica's public key, 32 bytes; 64 hex digits as text.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey([u8; 32]);

/// A host's or replica's secret key. Wiped when dropped, never shown.
#[derive(Clone)]
pub struct SecretKey(SigningKey);

/// What a signature is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// A datagram between agents and replicas.
    Datagram,
    /// A beacon, which stays valid as evidence whoever forwards it.
    Beacon,
    /// An agent's HTTP request to a replica.
    Request,
}

/// The signature is not this key's over these bytes.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("the signature does not fit the key")]
pub struct BadSignature;

// === impl PublicKey ===

impl PublicKey {
    /// Wraps 32 bytes; whether they are a usable key shows at verification.
    pub const fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// The 32 bytes.
    pub const fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Checks a signature over `body` for this cluster and purpose.
    ///
    /// # Errors
    /// [`BadSignature`] for a wrong signature or an unusable key.
    pub fn verify(
        &self,
        purpose: Purpose,
        cluster: ClusterId,
        body: &[u8],
        signature: &[u8; 64],
    ) -> Result<(), BadSignature> {
        let key = VerifyingKey::from_bytes(&self.0).map_err(|_| BadSignature)?;
        let text = signed_text(purpose, cluster, body);
        key.verify_strict(&text, &Signature::from_bytes(signature)).map_err(|_| BadSignature)
    }
}

impl std::str::FromStr for PublicKey {
    type Err = BadKeyText;
    fn from_str(text: &str) -> Result<Self, BadKeyText> {
        crate::hex::parse(text).map(Self).ok_or(BadKeyText)
    }
}

/// A public key is written as 64 hexadecimal digits.
#[derive(Debug, Error, Clone, Copy, PartialEq, Eq)]
#[error("a public key is 64 hexadecimal digits")]
pub struct BadKeyText;

impl Serialize for PublicKey {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() { to.collect_str(self) } else { self.0.serialize(to) }
    }
}

impl<'de> Deserialize<'de> for PublicKey {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            String::deserialize(from)?.parse().map_err(D::Error::custom)
        } else {
            <[u8; 32]>::deserialize(from).map(Self)
        }
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::hex::Hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

// === impl SecretKey ===

impl SecretKey {
    /// The key of this 32-byte seed, which the caller drew from the system's random source.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(SigningKey::from_bytes(seed))
    }

    /// The seed, to be kept on the host's disk and nowhere else.
    pub fn seed(&self) -> [u8; 32] {
        self.0.to_bytes()
    }

    /// The public half.
    pub fn public(&self) -> PublicKey {
        PublicKey(self.0.verifying_key().to_bytes())
    }

    /// Signs `body` for this cluster and purpose.
    pub fn sign(&self, purpose: Purpose, cluster: ClusterId, body: &[u8]) -> [u8; 64] {
        self.0.sign(&signed_text(purpose, cluster, body)).to_bytes()
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecretKey(of {})", self.public())
    }
}

/// Context, cluster, body: what a signature covers.
fn signed_text(purpose: Purpose, cluster: ClusterId, body: &[u8]) -> Vec<u8> {
    let context: &[u8] = match purpose {
        Purpose::Datagram => b"coroner datagram v1\0",
        Purpose::Beacon => b"coroner beacon v1\0",
        Purpose::Request => b"coroner request v1\0",
    };
    [context, cluster.bytes(), body].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);

    #[test]
    fn a_signature_is_worth_nothing_elsewhere() {
        let key = SecretKey::from_seed(&[1; 32]);
        let signature = key.sign(Purpose::Beacon, CLUSTER, b"alive");
        let public = key.public();
        assert_eq!(public.verify(Purpose::Beacon, CLUSTER, b"alive", &signature), Ok(()));
        let other = ClusterId::from_bytes([8; 16]);
        for (purpose, cluster, body) in [
            (Purpose::Datagram, CLUSTER, &b"alive"[..]),
            (Purpose::Beacon, other, b"alive"),
            (Purpose::Beacon, CLUSTER, b"alivf"),
        ] {
            assert_eq!(public.verify(purpose, cluster, body, &signature), Err(BadSignature));
        }
        assert_eq!(
            SecretKey::from_seed(&[2; 32]).public().verify(Purpose::Beacon, CLUSTER, b"alive", &signature),
            Err(BadSignature)
        );
    }

    #[test]
    fn secrets_are_not_shown() {
        let key = SecretKey::from_seed(&[0xab; 32]);
        assert!(!format!("{key:?}").contains("abab"));
    }

    #[test]
    fn keys_survive_their_text() {
        let key = SecretKey::from_seed(&[3; 32]).public();
        assert_eq!(key.to_string().parse(), Ok(key));
        assert_eq!("zz".parse::<PublicKey>(), Err(BadKeyText));
        assert_eq!("+1".repeat(32).parse::<PublicKey>(), Err(BadKeyText));
    }
}
