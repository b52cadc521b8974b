//! Versioned datagrams and HTTP bodies, and the limits that every reader keeps.
//!
//! A datagram is `CRN1`, a kind byte, a postcard body and 64 bytes of signature. A reader drops what does not begin
//! so, what is longer than [`DATAGRAM_BYTES_MAX`], and what its sender's key did not sign, in that order, so that an
//! unauthenticated sender costs no more than a header.

pub mod datagram;
pub mod http;

/// Oldest wire version that is understood.
pub const MIN: u8 = 1;
/// Wire version that is sent.
pub const CURRENT: u8 = 1;

/// Longest datagram: fits an IPv6 packet over a 1500-byte link with room for a tunnel.
pub const DATAGRAM_BYTES_MAX: usize = 1400;
/// Longest encoded beacon.
pub const BEACON_BYTES_MAX: usize = 256;
/// Most reports in one batch: two signed beacons with probes each fill a datagram, silences are shorter.
pub const REPORTS_MAX: usize = 16;
/// Most subjects named in a status (out-degree is at most k + 1 = 9).
pub const SUBJECTS_MAX: usize = 16;
/// Longest HTTP body an agent or replica reads from another.
pub const HTTP_BODY_BYTES_MAX: usize = 64 * 1024;

/// Serde for `[u8; 64]`, which serde's arrays do not reach: hex where people read, bytes elsewhere.
pub mod signature {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    /// Hex text for people, two halves of 32 bytes for machines.
    ///
    /// # Errors
    /// What the format says.
    pub fn serialize<S: Serializer>(bytes: &[u8; 64], to: S) -> Result<S::Ok, S::Error> {
        if to.is_human_readable() {
            return to.collect_str(&crate::hex::Hex(bytes));
        }
        let (a, b) = bytes.split_at(32);
        (<&[u8; 32]>::try_from(a).ok(), <&[u8; 32]>::try_from(b).ok()).serialize(to)
    }

    /// The inverse of [`serialize`].
    ///
    /// # Errors
    /// Not 64 bytes, or not hex.
    pub fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<[u8; 64], D::Error> {
        if from.is_human_readable() {
            let text = String::deserialize(from)?;
            return crate::hex::parse(&text)
                .ok_or_else(|| D::Error::custom("a signature is 128 hexadecimal digits"));
        }
        let (a, b) = <(Option<[u8; 32]>, Option<[u8; 32]>)>::deserialize(from)?;
        let (Some(a), Some(b)) = (a, b) else { return Err(D::Error::custom("a signature is 64 bytes")) };
        let mut out = [0_u8; 64];
        out[..32].copy_from_slice(&a);
        out[32..].copy_from_slice(&b);
        Ok(out)
    }
}
