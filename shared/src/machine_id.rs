//! The SMBIOS UUID of a computer: one internal form, a strict parser, and the named byte orders.
//!
//! The internal form is 16 bytes in RFC 9562 order, the order in which the canonical text is written. SMBIOS 2.6
//! (DSP0134, 7.2.1) stores the first three fields little-endian, older firmware does not, and BMCs send every order
//! there is. So the order is never derived from vendor, protocol or standard: at enrolment all [`Transform`]s are
//! tried and the one that equals the node's value is pinned (`coroner-arbiter-core`, `identity.rs`).

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use thiserror::Error;

/// SMBIOS UUID of a machine, 16 bytes in RFC order. Never a placeholder: [`MachineId::from_str`] refuses those.
///
/// Serialised as text where people read it (JSON) and as 16 bytes in datagrams.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MachineId([u8; 16]);

/// Why a text or value identifies no machine. Each is a reason not to fence.
#[derive(Debug, Error, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoIdentity {
    /// Nothing there.
    #[error("no UUID is given")]
    Missing,
    /// Not 8-4-4-4-12 hexadecimal.
    #[error("{0:?} is not a UUID in 8-4-4-4-12 hexadecimal form")]
    Malformed(String),
    /// A value that many machines share because nobody wrote a real one.
    #[error("{0} is a placeholder that many machines share")]
    Placeholder(String),
}

/// A named way to turn the bytes that a BMC gives into RFC order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transform {
    /// As they stand (text form: `id`).
    Rfc,
    /// First three fields byte-reversed: SMBIOS memory order (text form: `swap`).
    Wire,
    /// All 16 bytes reversed: the order of the IPMI specification, 20.8.
    Rev,
    /// All 16 reversed, then as [`Transform::Wire`].
    RevWire,
}

// === impl MachineId ===

impl MachineId {
    /// The id of these RFC-order bytes.
    ///
    /// # Errors
    /// [`NoIdentity::Placeholder`] if the value, under any transform, is one that many machines share.
    pub fn from_bytes(bytes: [u8; 16]) -> Result<Self, NoIdentity> {
        let id = Self(bytes);
        if Transform::ALL.iter().any(|t| is_placeholder(&t.apply(bytes))) {
            return Err(NoIdentity::Placeholder(id.to_string()));
        }
        Ok(id)
    }

    /// The bytes in RFC order.
    pub const fn bytes(&self) -> [u8; 16] {
        self.0
    }

    /// Every value under which this machine might appear, with the transform that leads back to it.
    pub fn appearances(&self) -> [(Transform, [u8; 16]); 4] {
        // rfc, wire and rev undo themselves; revwire is undone by wire, then rev.
        Transform::ALL.map(|t| (t, t.unapply(self.0)))
    }
}

impl FromStr for MachineId {
    type Err = NoIdentity;

    /// Strict: blanks, newlines and NULs at the ends, braces and `urn:uuid:` are allowed around 8-4-4-4-12 hex of
    /// any case; everything else identifies nothing. Empty never equals empty.
    fn from_str(text: &str) -> Result<Self, NoIdentity> {
        let shown = || text.chars().take(64).collect::<String>();
        let trimmed = text.trim_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
        if trimmed.is_empty() {
            return Err(NoIdentity::Missing);
        }
        let inner = trimmed.strip_prefix("urn:uuid:").unwrap_or(trimmed);
        let inner = inner.strip_prefix('{').and_then(|s| s.strip_suffix('}')).unwrap_or(inner);
        let bytes = parse_hyphenated(inner).ok_or_else(|| NoIdentity::Malformed(shown()))?;
        Self::from_bytes(bytes)
    }
}

impl Serialize for MachineId {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        serialize_uuid(&self.0, self, to)
    }
}

impl<'de> Deserialize<'de> for MachineId {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        if from.is_human_readable() {
            String::deserialize(from)?.parse().map_err(D::Error::custom)
        } else {
            Self::from_bytes(<[u8; 16]>::deserialize(from)?).map_err(D::Error::custom)
        }
    }
}

impl fmt::Display for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_hyphenated(&self.0, f)
    }
}

impl fmt::Debug for MachineId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MachineId({self})")
    }
}

// === impl Transform ===

impl Transform {
    /// All of them, simplest first.
    pub const ALL: [Self; 4] = [Self::Rfc, Self::Wire, Self::Rev, Self::RevWire];

    /// From the bytes as given to RFC order.
    pub fn apply(self, mut bytes: [u8; 16]) -> [u8; 16] {
        match self {
            Self::Rfc => {}
            Self::Wire => swap_fields(&mut bytes),
            Self::Rev => bytes.reverse(),
            Self::RevWire => {
                bytes.reverse();
                swap_fields(&mut bytes);
            }
        }
        bytes
    }

    /// From RFC order to the bytes as such a BMC would give them.
    pub fn unapply(self, mut bytes: [u8; 16]) -> [u8; 16] {
        match self {
            Self::Rfc | Self::Wire | Self::Rev => self.apply(bytes),
            Self::RevWire => {
                swap_fields(&mut bytes);
                bytes.reverse();
                bytes
            }
        }
    }
}

impl fmt::Display for Transform {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Rfc => "rfc",
            Self::Wire => "wire",
            Self::Rev => "rev",
            Self::RevWire => "revwire",
        })
    }
}

// === helpers ===

/// Byte-reverses the first three fields (4, 2 and 2 bytes).
fn swap_fields(bytes: &mut [u8; 16]) {
    bytes[0..4].reverse();
    bytes[4..6].reverse();
    bytes[6..8].reverse();
}

/// 16 bytes from exactly 8-4-4-4-12 hexadecimal digits.
pub(crate) fn parse_hyphenated(text: &str) -> Option<[u8; 16]> {
    let raw = text.as_bytes();
    if raw.len() != 36 {
        return None;
    }
    let mut out = [0_u8; 16];
    let mut digits = 0_usize;
    for (at, byte) in raw.iter().enumerate() {
        if matches!(at, 8 | 13 | 18 | 23) {
            if *byte != b'-' {
                return None;
            }
            continue;
        }
        let digit = (*byte as char).to_digit(16)?;
        out[digits / 2] = (out[digits / 2] << 4) | u8::try_from(digit).ok()?;
        digits += 1;
    }
    Some(out)
}

/// Writes lower-case 8-4-4-4-12.
pub(crate) fn write_hyphenated(bytes: &[u8; 16], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    for (at, byte) in bytes.iter().enumerate() {
        if matches!(at, 4 | 6 | 8 | 10) {
            f.write_str("-")?;
        }
        write!(f, "{byte:02x}")?;
    }
    Ok(())
}

/// Text for people, 16 bytes for machines.
pub(crate) fn serialize_uuid<S: Serializer>(
    bytes: &[u8; 16],
    text: &dyn fmt::Display,
    to: S,
) -> Result<S::Ok, S::Error> {
    if to.is_human_readable() { to.collect_str(text) } else { bytes.serialize(to) }
}

/// Exact values that boards ship with when nobody wrote a UUID; no entropy or version filter, since Dell's and HPE's
/// values are ASCII and valid.
fn is_placeholder(bytes: &[u8; 16]) -> bool {
    const SHARED: [[u8; 16]; 5] = [
        [0x00; 16],
        [0xff; 16],
        // AMI's sample value, found on many boards.
        [0x03, 0x00, 0x02, 0x00, 0x04, 0x00, 0x05, 0x00, 0x00, 0x06, 0x00, 0x07, 0x00, 0x08, 0x00, 0x09],
        // OpenBMC's canned value.
        [0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d, 0x0e, 0x0f, 0x10],
        // Another sequential sample.
        [0, 0, 0, 0, 0, 0, 0, 0, 0x08, 0x07, 0x06, 0x05, 0x04, 0x03, 0x02, 0x01],
    ];
    // The last one is written 00000000-0000-0000-0807-060504030201.
    SHARED.contains(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> [u8; 16] {
        let clean: String = text.split_whitespace().collect();
        let mut out = [0; 16];
        for (i, o) in out.iter_mut().enumerate() {
            *o = u8::from_str_radix(&clean[2 * i..2 * i + 2], 16).unwrap();
        }
        out
    }

    #[test]
    fn every_order_seen_in_the_field_leads_back_to_the_canonical_value() {
        let rows = [
            (
                "00112233-4455-6677-8899-aabbccddeeff",
                [
                    (Transform::Rfc, "00 11 22 33 44 55 66 77 88 99 aa bb cc dd ee ff"),
                    (Transform::Wire, "33 22 11 00 55 44 77 66 88 99 aa bb cc dd ee ff"),
                    (Transform::Rev, "ff ee dd cc bb aa 99 88 77 66 55 44 33 22 11 00"),
                    (Transform::RevWire, "ff ee dd cc bb aa 99 88 66 77 44 55 00 11 22 33"),
                ],
            ),
            // HPE: the wire bytes are ASCII of product and serial.
            (
                "33323150-3534-5a43-3230-303130414243",
                [
                    (Transform::Rfc, "33 32 31 50 35 34 5a 43 32 30 30 31 30 41 42 43"),
                    (Transform::Wire, "50 31 32 33 34 35 43 5a 32 30 30 31 30 41 42 43"),
                    (Transform::Rev, "43 42 41 30 31 30 30 32 43 5a 34 35 50 31 32 33"),
                    (Transform::RevWire, "43 42 41 30 31 30 30 32 5a 43 35 34 33 32 31 50"),
                ],
            ),
            // Dell: the wire bytes begin with DELL.
            (
                "4c4c4544-0041-4210-8043-b1c04f323334",
                [
                    (Transform::Rfc, "4c 4c 45 44 00 41 42 10 80 43 b1 c0 4f 32 33 34"),
                    (Transform::Wire, "44 45 4c 4c 41 00 10 42 80 43 b1 c0 4f 32 33 34"),
                    (Transform::Rev, "34 33 32 4f c0 b1 43 80 10 42 41 00 44 45 4c 4c"),
                    (Transform::RevWire, "34 33 32 4f c0 b1 43 80 42 10 00 41 4c 4c 45 44"),
                ],
            ),
        ];
        for (canonical, forms) in rows {
            let id: MachineId = canonical.parse().unwrap();
            for (transform, bytes) in forms {
                assert_eq!(transform.apply(hex(bytes)), id.bytes(), "{canonical} {transform}");
                assert_eq!(transform.unapply(id.bytes()), hex(bytes), "{canonical} {transform} back");
            }
        }
    }

    #[test]
    fn the_parser_takes_what_firmware_writes_and_nothing_else() {
        let id: MachineId = "00112233-4455-6677-8899-aabbccddeeff".parse().unwrap();
        for same in [
            "00112233-4455-6677-8899-AABBCCDDEEFF\n",
            " {00112233-4455-6677-8899-aabbccddeeff} ",
            "urn:uuid:00112233-4455-6677-8899-aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeeff\0\0",
        ] {
            assert_eq!(same.parse::<MachineId>().unwrap(), id, "{same:?}");
        }
        assert_eq!("".parse::<MachineId>(), Err(NoIdentity::Missing));
        assert_eq!(" \0".parse::<MachineId>(), Err(NoIdentity::Missing));
        for bad in [
            "Not Settable",
            "Not Present",
            "OpenBmc",
            "00112233445566778899aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeef",
            "00112233-4455-6677-8899-aabbccddeefg",
            "0011223-34455-6677-8899-aabbccddeeff",
            "00112233-4455-6677-8899-aabbccddeeff trailing",
        ] {
            assert!(matches!(bad.parse::<MachineId>(), Err(NoIdentity::Malformed(_))), "{bad:?}");
        }
    }

    #[test]
    fn values_that_many_machines_share_identify_none() {
        for shared in [
            "00000000-0000-0000-0000-000000000000",
            "ffffffff-ffff-ffff-ffff-ffffffffffff",
            "03000200-0400-0500-0006-000700080009",
            "00020003-0004-0005-0006-000700080009",
            "01020304-0506-0708-090a-0b0c0d0e0f10",
            "04030201-0605-0807-090a-0b0c0d0e0f10",
            "100f0e0d-0c0b-0a09-0807-060504030201",
            "00000000-0000-0000-0807-060504030201",
        ] {
            assert!(matches!(shared.parse::<MachineId>(), Err(NoIdentity::Placeholder(_))), "{shared}");
        }
    }

    proptest::proptest! {
        #[test]
        fn unapply_undoes_apply(bytes: [u8; 16]) {
            for t in Transform::ALL {
                proptest::prop_assert_eq!(t.apply(t.unapply(bytes)), bytes);
                proptest::prop_assert_eq!(t.unapply(t.apply(bytes)), bytes);
            }
        }

        #[test]
        fn any_text_gets_an_answer(text in "\\PC{0,80}") {
            let _ = text.parse::<MachineId>();
        }
    }
}
