//! The state as bytes: a line with version and hash, then a line with the state, so that a snapshot is whole and known,
//! or an error.
//!
//! ```text
//!   {"version":1,"sha256":"..."}\n
//!   {"level":1,"applied":...}
//! ```
//!
//! JSON, because a snapshot is small, is read by people in exports, and may gain fields without a migration.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use thiserror::Error;

use crate::evidence::hex;
use crate::state::State;

/// The version of the envelope and of the state inside that this build writes and reads.
pub const VERSION: u32 = 1;

/// Why bytes are not a snapshot.
#[derive(Debug, Error)]
pub enum SnapshotError {
    /// There is no first line.
    #[error("the snapshot does not begin with a line of its version")]
    NoHeader,
    /// The first line is none of ours.
    #[error("read the first line of the snapshot")]
    Header(#[source] serde_json::Error),
    /// Written by another build.
    #[error("the snapshot has version {found}, this build reads {VERSION}")]
    UnknownVersion {
        /// Its version.
        found: u32,
    },
    /// Torn or altered.
    #[error("the snapshot's hash is {written}, its content hashes to {found}")]
    Torn {
        /// As written.
        written: String,
        /// As computed.
        found: String,
    },
    /// It is whole, and not a state of this version.
    #[error("read the state in the snapshot")]
    State(#[source] serde_json::Error),
    /// Our own state did not become JSON; never seen.
    #[error("write the state")]
    Write(#[source] serde_json::Error),
}

/// The first line.
#[derive(Serialize, Deserialize)]
struct Header {
    version: u32,
    sha256: String,
}

/// What is read of the first line whatever its version.
#[derive(Deserialize)]
struct Version {
    version: u32,
}

/// The state as bytes.
///
/// # Errors
/// [`SnapshotError::Write`] if the state cannot be written as JSON.
pub fn to_bytes(state: &State) -> Result<Vec<u8>, SnapshotError> {
    let body = serde_json::to_vec(state).map_err(SnapshotError::Write)?;
    let header = Header { version: VERSION, sha256: hex(&Sha256::digest(&body)) };
    let mut bytes = serde_json::to_vec(&header).map_err(SnapshotError::Write)?;
    bytes.push(b'\n');
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// The state in these bytes.
///
/// # Errors
/// Anything but a whole snapshot of the version that this build knows.
pub fn from_bytes(bytes: &[u8]) -> Result<State, SnapshotError> {
    let end = bytes.iter().position(|byte| *byte == b'\n').ok_or(SnapshotError::NoHeader)?;
    let (header, body) = (&bytes[..end], &bytes[end + 1..]);
    let Version { version } = serde_json::from_slice(header).map_err(SnapshotError::Header)?;
    if version != VERSION {
        return Err(SnapshotError::UnknownVersion { found: version });
    }
    let Header { sha256, .. } = serde_json::from_slice(header).map_err(SnapshotError::Header)?;
    let found = hex(&Sha256::digest(body));
    if found != sha256 {
        return Err(SnapshotError::Torn { written: sha256, found });
    }
    serde_json::from_slice(body).map_err(SnapshotError::State)
}

/// SHA-256 of the state, 64 hex digits: equal on replicas that applied the same log.
///
/// # Errors
/// [`SnapshotError::Write`] if the state cannot be written as JSON.
pub fn hash(state: &State) -> Result<String, SnapshotError> {
    let json = serde_json::to_vec(state).map_err(SnapshotError::Write)?;
    Ok(hex(&Sha256::digest(&json)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use coroner_shared::time::Mono;

    fn state() -> State {
        State { now: Mono::from_ms(77), applied: 9, ..State::default() }
    }

    #[test]
    fn a_snapshot_gives_back_the_state() {
        let bytes = to_bytes(&state()).unwrap();
        assert_eq!(from_bytes(&bytes).unwrap(), state());
        assert_eq!(hash(&from_bytes(&bytes).unwrap()).unwrap(), hash(&state()).unwrap());
    }

    #[test]
    fn an_unknown_version_is_an_error_whatever_follows() {
        let bytes = b"{\"version\":2,\"other\":[]}\nwhatever";
        assert!(matches!(from_bytes(bytes), Err(SnapshotError::UnknownVersion { found: 2 })));
    }

    #[test]
    fn any_changed_byte_of_the_state_is_noticed() {
        let bytes = to_bytes(&state()).unwrap();
        let body = bytes.iter().position(|b| *b == b'\n').unwrap() + 1;
        for at in [body, body + 20, bytes.len() - 1] {
            let mut torn = bytes.clone();
            torn[at] ^= 1;
            assert!(matches!(from_bytes(&torn), Err(SnapshotError::Torn { .. })), "byte {at}");
        }
        assert!(matches!(from_bytes(&bytes[..bytes.len() - 2]), Err(SnapshotError::Torn { .. })));
    }

    #[test]
    fn something_else_is_named() {
        assert!(matches!(from_bytes(b""), Err(SnapshotError::NoHeader)));
        assert!(matches!(from_bytes(b"nonsense\n{}"), Err(SnapshotError::Header(_))));
    }
}
