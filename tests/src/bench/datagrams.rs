//! What a beacon costs who sends it and who hears it, and a status, which carries one, its replica: signing and
//! checking, encoding and parsing.

use std::hint::black_box;

use anyhow::{Result, ensure};
use coroner_shared::beacon::{Beacon, SignedBeacon};
use coroner_shared::health::HealthSummary;
use coroner_shared::id::{BootId, ClusterId, NodeUid};
use coroner_shared::keys::SecretKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::wire::datagram::{Message, Sender, encode, parse};

use super::row::Row;
use super::samples::{Samples, time};

const US: f64 = 1_000.0;

/// Measures.
///
/// # Errors
/// A part of the sample is none.
pub fn rows() -> Result<Vec<Row>> {
    let (key, cluster) = (SecretKey::from_seed(&[5; 32]), ClusterId::from_bytes([7; 16]));
    let public = key.public();
    let beacon = Beacon {
        node: NodeUid::new("5f0c1d2e-0000-4000-8000-000000000001")?,
        machine: MachineId::from_bytes([7; 16])?,
        boot: BootId::from_bytes([1; 16]),
        seq: 123_456_789,
        health: HealthSummary::default(),
    };
    let sender = Sender::Node(beacon.node.clone());
    let signed = SignedBeacon::sign(&beacon, &key, cluster)?;
    let message = Message::Beacon(signed.clone());
    let datagram = encode(&sender, &message, &key, cluster)?;
    ensure!(parse(&datagram)?.verify(&public, cluster)? == message, "it does not survive the wire");

    let row = |name: &str, ns| Row::new(name, "us", &Samples::of_ns(ns, US));
    let bytes = u64::try_from(datagram.len())?;
    Ok(vec![
        row(
            "beacon signed",
            time(300, 50, || {
                black_box(SignedBeacon::sign(black_box(&beacon), &key, cluster).is_ok());
            }),
        ),
        row(
            "beacon checked",
            time(300, 50, || {
                black_box(black_box(&signed).verify(&public, cluster).is_ok());
            }),
        ),
        row(
            "datagram encoded and signed",
            time(300, 50, || {
                black_box(encode(&sender, black_box(&message), &key, cluster).is_ok());
            }),
        ),
        row(
            "datagram parsed and checked",
            time(300, 50, || {
                black_box(parse(black_box(&datagram)).is_ok_and(|d| d.verify(&public, cluster).is_ok()));
            }),
        ),
        Row::new("datagram with a beacon", "bytes", &Samples::of_ns(vec![bytes], 1.0)),
    ])
}
