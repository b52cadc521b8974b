//! What grows with the number of nodes, at 5,000: who observes whom, the copy of the state that is published after each
//! entry, and the snapshot of it.

use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};

use anyhow::{Context, Result};
use coroner_arbiter_core::observers;
use coroner_arbiter_core::snapshot;
use coroner_arbiter_core::state::{Member, Node, State};
use coroner_shared::id::{BootId, NodeName, NodeUid};
use coroner_shared::keys::SecretKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::time::Mono;

use super::row::Row;
use super::samples::{Samples, time};

/// How many.
pub const NODES: u32 = 5_000;
const RACKS: u32 = 200;
const MS: f64 = 1_000_000.0;

/// Measures.
///
/// # Errors
/// A name of the sample is none, or the state cannot be written.
pub fn rows() -> Result<Vec<Row>> {
    let mut state = State::default();
    for n in 0..NODES {
        add(&mut state, n)?;
    }
    let row = |name: &str, ns| Row::new(format!("{name}, {NODES} nodes"), "ms", &Samples::of_ns(ns, MS));
    let mut rows = Vec::new();
    let dealt = time(10, 1, || {
        let mut fresh = state.clone();
        black_box(observers::reseat(&mut fresh));
    });
    observers::reseat(&mut state);
    let copied = time(50, 1, || {
        black_box(state.clone());
    });
    rows.push(row("observers dealt anew, with a copy of the state", dealt));
    let mut more = state.clone();
    add(&mut more, NODES)?;
    let joined = time(20, 1, || {
        let mut one_more = more.clone();
        black_box(observers::reseat(&mut one_more));
    });
    rows.push(row("observers when one joins, with a copy of the state", joined));
    rows.push(row("a copy of the state", copied));
    let bytes = snapshot::to_bytes(&state).context("write the state")?;
    rows.push(row(
        "snapshot written",
        time(20, 1, || {
            black_box(snapshot::to_bytes(&state).is_ok());
        }),
    ));
    rows.push(row(
        "snapshot read",
        time(20, 1, || {
            black_box(snapshot::from_bytes(&bytes).is_ok());
        }),
    ));
    let kib = u64::try_from(bytes.len() / 1024)?;
    rows.push(Row::new(format!("snapshot, {NODES} nodes"), "KiB", &Samples::of_ns(vec![kib], 1.0)));
    Ok(rows)
}

/// So many members in racks, and who observes whom.
///
/// # Errors
/// A name of the sample is none.
pub fn state() -> Result<State> {
    let mut state = State::default();
    for n in 0..NODES {
        add(&mut state, n)?;
    }
    observers::reseat(&mut state);
    Ok(state)
}

fn add(state: &mut State, n: u32) -> Result<()> {
    let name: NodeName = format!("node-{n:05}").parse()?;
    let mut bytes = [9; 16];
    bytes[..4].copy_from_slice(&n.to_be_bytes());
    let mut seed = [3; 32];
    seed[..4].copy_from_slice(&n.to_be_bytes());
    let mut node = Node::new(&name, Mono::default());
    node.domain = format!("rack-{:03}", n % RACKS);
    node.member = Some(Member {
        uid: NodeUid::new(format!("5f0c1d2e-0000-4000-8000-{n:012x}"))?,
        machine: Ok(MachineId::from_bytes(bytes)?),
        key: SecretKey::from_seed(&seed).public(),
        old_key: None,
        boot: BootId::from_bytes(bytes),
        left_boots: std::collections::VecDeque::new(),
        address: IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + n)),
        since: Mono::default(),
    });
    state.nodes.insert(name, node);
    Ok(())
}
