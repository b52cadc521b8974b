//! What an agent costs a host: nine of them in a full mesh, three replicas that answer, for half a minute.
//!
//! `cargo test --release -p coroner-agent --test footprint -- --ignored --nocapture`

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::collections::BTreeMap;

use coroner_shared::slice::{ReplicaPeer, Slice};
use coroner_shared::wire::datagram::{Message, encode};
use coroner_shared::wire::http::SLICE;
use world::desk::{Authority, Desk, Open};
use world::{CLUSTER, Host, Running, Voice, now_ms};

/// The promise (page 1 of the design): RSS at most 12 MiB, 0.2 % of a core, 10 KB/s.
const RSS_KIB_MAX: u64 = 12 * 1024;

fn rss_kib(running: &Running) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", running.0.id())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// Run time of all threads in nanoseconds, finer than clock ticks.
fn cpu_ns(running: &Running) -> u64 {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", running.0.id())).unwrap();
    let one = |task: std::fs::DirEntry| {
        let text = std::fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0)
    };
    tasks.map(|task| one(task.unwrap())).sum()
}

/// Answers for `ms`; counts bytes by kind, as UDP over IPv4 carries them.
fn serve(replicas: &[(Voice, ReplicaPeer)], hosts: &[&Host], ms: u64) -> BTreeMap<&'static str, u64> {
    let mut bytes = BTreeMap::new();
    let start = now_ms();
    while now_ms() < start + ms {
        for (voice, _) in replicas {
            voice.socket.set_nonblocking(true).unwrap();
            while let Some((_, message)) = voice.serve(hosts) {
                let kind = if matches!(message, Message::Status(_)) { "status" } else { "report" };
                let length = encode(&voice.sender, &message, &voice.key, CLUSTER).unwrap().len() + 28 + 36;
                *bytes.entry(kind).or_default() += length as u64;
            }
        }
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    bytes
}

#[test]
#[ignore = "half a minute of measuring, of use in a release build only"]
fn an_agent_of_nine_in_a_full_mesh() {
    let hosts: Vec<Host> = (50..59).map(Host::new).collect();
    let replicas: Vec<(Voice, ReplicaPeer)> = (1..=3).map(Voice::replica).collect();
    let peers: Vec<ReplicaPeer> = replicas.iter().map(|(_, peer)| peer.clone()).collect();
    let all: Vec<&Host> = hosts.iter().collect();
    for host in &hosts {
        let others: Vec<&Host> = hosts.iter().filter(|h| h.node != host.node).collect();
        host.remember(&host.slice(1, &others, &peers));
    }
    let desk = registered(&hosts[0], hosts[0].slice(1, &all[1..], &peers));
    let running: Vec<Running> = hosts.iter().map(Host::start).collect();
    serve(&replicas, &all, 5000);
    desk.wait_for("GET", SLICE, 1);
    let before: Vec<u64> = running.iter().map(cpu_ns).collect();
    let start = now_ms();
    let bytes = serve(&replicas, &all, 30_000);
    let wall_ns = (now_ms() - start) * 1_000_000;
    let mut worst = (0, 0.0_f64);
    for (running, before) in running.iter().zip(before) {
        #[expect(clippy::cast_precision_loss, reason = "a share for people")]
        let percent = (cpu_ns(running) - before) as f64 * 100.0 / wall_ns as f64;
        worst = (worst.0.max(rss_kib(running)), worst.1.max(percent));
    }
    println!("worst of nine: RSS {} KiB, {:.3} % of a core", worst.0, worst.1);
    println!("bytes a second from one agent to one replica: {:?}", per_second(&bytes));
    assert!(worst.0 <= RSS_KIB_MAX, "RSS {} KiB", worst.0);
}

/// Has a host register over TLS, as all do: its connection costs memory too.
fn registered(host: &Host, slice: Slice) -> Open {
    let authority = Authority::new();
    let desk = authority.open(slice.replicas[0].address, Desk::leader(slice));
    let replica = serde_json::json!({"id": 1, "host": "r1", "address": desk.address});
    let trust = serde_json::json!({"cluster": CLUSTER, "ca": authority.pem, "replicas": [replica]});
    host.write("trust/cluster.json", &trust.to_string());
    host.write("token", "token");
    desk
}

fn per_second(bytes: &BTreeMap<&'static str, u64>) -> BTreeMap<&'static str, u64> {
    bytes.iter().map(|(kind, n)| (*kind, n / 30 / 9 / 3)).collect()
}
