//! Datagrams: who sends, what, and how it is signed and checked.

use serde::{Deserialize, Serialize};
use thiserror::Error;

use super::{BEACON_BYTES_MAX, CURRENT, DATAGRAM_BYTES_MAX, MIN};
use crate::beacon::{Ack, AskProbe, Beacon, ProbeAnswer, ReportBatch, SignedBeacon, Status};
use crate::id::{ClusterId, NodeUid, ReplicaId};
use crate::keys::{PublicKey, Purpose, SecretKey};

/// First bytes of every datagram; the fourth is the version.
const MAGIC: [u8; 3] = *b"CRN";
/// Bytes of the signature at the end.
const SIGNATURE_BYTES: usize = 64;

/// Who signed a datagram.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Sender {
    /// An agent, by its Node.
    Node(NodeUid),
    /// A replica.
    Replica(ReplicaId),
}

/// What a datagram says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Message {
    /// A beacon to an observer. It carries its own signature, which is the one checked.
    Beacon(SignedBeacon),
    /// "I hear you".
    Ack(Ack),
    /// Are you there? Answered by the agent with [`Message::ProbeReply`].
    Probe {
        /// Returned in the reply.
        nonce: u64,
    },
    /// Yes, with a fresh beacon.
    ProbeReply {
        /// From the probe.
        nonce: u64,
        /// The answering host's newest beacon.
        beacon: SignedBeacon,
    },
    /// An agent to a replica, once a second.
    Status(Status),
    /// A replica to an agent: your status came, at this term, from this leader.
    StatusAck {
        /// Raft term; a new one asks for a full snapshot of reports.
        term: u64,
        /// The newest slice version that the replica has for this agent.
        slice: u64,
    },
    /// An agent to a replica.
    Reports(ReportBatch),
    /// A replica to an agent: this batch came.
    ReportsAck {
        /// The batch's number.
        number: u64,
        /// Raft term.
        term: u64,
    },
    /// A replica to an agent.
    AskProbe(AskProbe),
    /// An agent to the replica that asked.
    ProbeAnswer(ProbeAnswer),
}

/// A parsed datagram whose signature has not been checked yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unverified<'a> {
    /// Who claims to have sent it.
    pub sender: Sender,
    /// The signed bytes after the sender, to be decoded once the signature is known to be good.
    body: &'a [u8],
    signed: &'a [u8],
    signature: [u8; SIGNATURE_BYTES],
}

/// Why a datagram is dropped.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum DatagramError {
    /// Longer than [`DATAGRAM_BYTES_MAX`].
    #[error("{0} bytes are more than a datagram may have ({DATAGRAM_BYTES_MAX})")]
    TooLong(usize),
    /// Not one of ours.
    #[error("it does not begin with CRN and a version")]
    NotOurs,
    /// A version that this build does not speak.
    #[error("wire version {found} is not understood here ({MIN} to {CURRENT} are)")]
    Version {
        /// The version found.
        found: u8,
    },
    /// Header or body cannot be decoded.
    #[error("it cannot be decoded")]
    Malformed,
    /// Signed by somebody else, or changed on the way.
    #[error("the signature is not that of {0:?}")]
    Forged(Sender),
}

/// Signs and encodes a message.
///
/// # Errors
/// [`DatagramError::TooLong`] if the message does not fit; callers split batches instead.
pub fn encode(
    sender: &Sender,
    message: &Message,
    key: &SecretKey,
    cluster: ClusterId,
) -> Result<Vec<u8>, DatagramError> {
    let mut out = MAGIC.to_vec();
    out.push(CURRENT);
    out.extend(postcard::to_allocvec(sender).map_err(|_| DatagramError::Malformed)?);
    out.extend(postcard::to_allocvec(message).map_err(|_| DatagramError::Malformed)?);
    let signature = key.sign(Purpose::Datagram, cluster, &out);
    out.extend_from_slice(&signature);
    if out.len() > DATAGRAM_BYTES_MAX { Err(DatagramError::TooLong(out.len())) } else { Ok(out) }
}

/// Bytes of the datagram that [`encode`] would make, for those who split batches; [`usize::MAX`] where it would make none.
pub fn encoded_bytes(sender: &Sender, message: &Message) -> usize {
    let parts = (postcard::to_allocvec(sender), postcard::to_allocvec(message));
    let (Ok(sender), Ok(message)) = parts else { return usize::MAX };
    MAGIC.len() + 1 + sender.len() + message.len() + SIGNATURE_BYTES
}

/// Reads header and sender; nothing behind them is looked at before [`Unverified::verify`].
///
/// # Errors
/// Anything but a well-formed header.
pub fn parse(datagram: &[u8]) -> Result<Unverified<'_>, DatagramError> {
    if datagram.len() > DATAGRAM_BYTES_MAX {
        return Err(DatagramError::TooLong(datagram.len()));
    }
    let Some((signed, signature)) = datagram.split_last_chunk::<SIGNATURE_BYTES>() else {
        return Err(DatagramError::NotOurs);
    };
    let Some((magic, rest)) = signed.split_first_chunk::<4>() else { return Err(DatagramError::NotOurs) };
    if magic[..3] != MAGIC {
        return Err(DatagramError::NotOurs);
    }
    if !(MIN..=CURRENT).contains(&magic[3]) {
        return Err(DatagramError::Version { found: magic[3] });
    }
    let (sender, body) = postcard::take_from_bytes::<Sender>(rest).map_err(|_| DatagramError::Malformed)?;
    Ok(Unverified { sender, body, signed, signature: *signature })
}

impl Unverified<'_> {
    /// What it claims to say, before any signature is checked. Only for a beacon, whose own signature the reader then
    /// checks instead of this one, and for a probe by somebody whose key the reader does not have.
    ///
    /// # Errors
    /// [`DatagramError::Malformed`] (also for bytes left over).
    pub fn claims(&self) -> Result<Message, DatagramError> {
        match postcard::take_from_bytes(self.body) {
            Ok((message, [])) => Ok(message),
            Ok(_) | Err(_) => Err(DatagramError::Malformed),
        }
    }

    /// Checks the signature, then decodes.
    ///
    /// # Errors
    /// [`DatagramError::Forged`] or [`DatagramError::Malformed`] (also for bytes left over).
    pub fn verify(self, key: &PublicKey, cluster: ClusterId) -> Result<Message, DatagramError> {
        if key.verify(Purpose::Datagram, cluster, self.signed, &self.signature).is_err() {
            return Err(DatagramError::Forged(self.sender));
        }
        self.claims()
    }
}

impl SignedBeacon {
    /// Encodes and signs a beacon.
    ///
    /// # Errors
    /// [`DatagramError::TooLong`] if its node uid is absurdly long.
    pub fn sign(beacon: &Beacon, key: &SecretKey, cluster: ClusterId) -> Result<Self, DatagramError> {
        let bytes = postcard::to_allocvec(beacon).map_err(|_| DatagramError::Malformed)?;
        if bytes.len() > BEACON_BYTES_MAX {
            return Err(DatagramError::TooLong(bytes.len()));
        }
        let signature = key.sign(Purpose::Beacon, cluster, &bytes);
        Ok(Self { bytes, signature })
    }

    /// What the beacon claims, before its signature is checked: to find the key by.
    ///
    /// # Errors
    /// [`DatagramError::Malformed`] if it cannot be decoded.
    pub fn claims(&self) -> Result<Beacon, DatagramError> {
        if self.bytes.len() > BEACON_BYTES_MAX {
            return Err(DatagramError::TooLong(self.bytes.len()));
        }
        match postcard::take_from_bytes(&self.bytes) {
            Ok((beacon, [])) => Ok(beacon),
            Ok(_) | Err(_) => Err(DatagramError::Malformed),
        }
    }

    /// Checks the signature and decodes.
    ///
    /// # Errors
    /// [`DatagramError::Forged`] or [`DatagramError::Malformed`].
    pub fn verify(&self, key: &PublicKey, cluster: ClusterId) -> Result<Beacon, DatagramError> {
        let beacon = self.claims()?;
        key.verify(Purpose::Beacon, cluster, &self.bytes, &self.signature)
            .map_err(|_| DatagramError::Forged(Sender::Node(beacon.node.clone())))?;
        Ok(beacon)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health::HealthSummary;

    const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);

    fn beacon() -> Beacon {
        Beacon {
            node: NodeUid::new("8d2c6f3a-1b4e-4c7d-9e0f-0000000000aa").unwrap(),
            machine: "00112233-4455-6677-8899-aabbccddeeff".parse().unwrap(),
            boot: "8d2c6f3a-1b4e-4c7d-9e0f-000000000001".parse().unwrap(),
            seq: 123_456,
            health: HealthSummary::GOOD,
        }
    }

    #[test]
    fn a_datagram_survives_the_wire_and_nothing_else_does() {
        let key = SecretKey::from_seed(&[1; 32]);
        let signed = SignedBeacon::sign(&beacon(), &key, CLUSTER).unwrap();
        let sender = Sender::Node(beacon().node);
        let bytes = encode(&sender, &Message::Beacon(signed.clone()), &key, CLUSTER).unwrap();
        let read = parse(&bytes).unwrap();
        assert_eq!(read.sender, sender);
        assert_eq!(encoded_bytes(&sender, &Message::Beacon(signed.clone())), bytes.len());
        assert_eq!(read.claims(), Ok(Message::Beacon(signed)));
        let Message::Beacon(got) = read.verify(&key.public(), CLUSTER).unwrap() else { panic!() };
        assert_eq!(got.verify(&key.public(), CLUSTER).unwrap(), beacon());
        for at in 0..bytes.len() {
            let mut bent = bytes.clone();
            bent[at] ^= 1;
            let result = parse(&bent).and_then(|d| d.verify(&key.public(), CLUSTER));
            assert!(result.is_err(), "a flipped bit in byte {at} was accepted");
        }
    }

    #[test]
    fn a_beacon_is_small() {
        let key = SecretKey::from_seed(&[1; 32]);
        let signed = SignedBeacon::sign(&beacon(), &key, CLUSTER).unwrap();
        assert!(signed.bytes.len() + 64 < 200, "{} bytes", signed.bytes.len() + 64);
    }

    proptest::proptest! {
        #[test]
        fn any_bytes_get_an_answer(bytes: Vec<u8>) {
            let _ = parse(&bytes).map(|d| d.verify(&SecretKey::from_seed(&[1; 32]).public(), CLUSTER));
            let _ = SignedBeacon { bytes, signature: [0; 64] }.claims();
        }

        #[test]
        fn bytes_behind_a_good_header_get_an_answer(body: Vec<u8>) {
            let key = SecretKey::from_seed(&[1; 32]);
            let mut bytes = b"CRN\x01\x01\x01".to_vec();
            bytes.extend(body);
            let signature = key.sign(Purpose::Datagram, CLUSTER, &bytes);
            bytes.extend_from_slice(&signature);
            let _ = parse(&bytes).map(|d| (d.claims(), d.verify(&key.public(), CLUSTER)));
        }
    }
}
