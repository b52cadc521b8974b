//! A real agent and replicas' ports made by hand, over real TLS: registration, slices, refusals, goodbye.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod world;

use std::net::IpAddr;
use std::time::Duration;

use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::id::ClusterId;
use coroner_shared::keys::SecretKey;
use coroner_shared::slice::{ReplicaPeer, Slice};
use coroner_shared::wire::http::{GOODBYE, Goodbye, REGISTER, Register, SIGNATURE_HEADER, SLICE};
use nix::sys::signal::Signal;
use world::desk::{Authority, Desk, Open, Seen};
use world::{CLUSTER, Host, fresh_address, now_ms};

/// The `n`th request of this kind at whichever desk gets it, with the desk's place.
#[track_caller]
fn wait_for_any(desks: &[Open], path: &str, n: usize) -> (usize, Seen) {
    for _ in 0..1000 {
        for (place, desk) in desks.iter().enumerate() {
            let seen =
                desk.with(|desk| desk.seen.iter().filter(|s| s.path.starts_with(path)).nth(n - 1).cloned());
            if let Some(seen) = seen {
                return (place, seen);
            }
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited 10 s for request {n} of {path} at any replica");
}

/// A host with trust file and token, and `count` desks of which the last leads.
fn installation(n: u8, count: u8) -> (Host, Authority, Vec<Open>) {
    let (host, authority) = (Host::new(n), Authority::new());
    let addresses: Vec<IpAddr> = (0..count).map(|_| fresh_address()).collect();
    let replicas: Vec<ReplicaPeer> = addresses.iter().zip(1..).map(|(a, n)| replica(*a, n)).collect();
    let slice = host.slice(1, &[], &replicas);
    let open = |(index, address): (usize, &IpAddr)| {
        let leads = index + 1 == usize::from(count);
        authority.open(*address, Desk { leads, ..Desk::leader(slice.clone()) })
    };
    let desks = addresses.iter().enumerate().map(open).collect();
    trust(&host, &authority, &addresses);
    host.write("token", "the-token\n");
    (host, authority, desks)
}

fn replica(address: IpAddr, n: u8) -> ReplicaPeer {
    let key = SecretKey::from_seed(&[100 + n; 32]).public();
    let (id, host) = (u64::from(n).try_into().unwrap(), format!("r{n}").parse().unwrap());
    ReplicaPeer { id, host, address, key }
}

fn trust(host: &Host, authority: &Authority, addresses: &[IpAddr]) {
    let replicas: Vec<_> = addresses
        .iter()
        .zip(1..)
        .map(|(address, n)| serde_json::json!({"id": n, "host": format!("r{n}"), "address": address}))
        .collect();
    let text = serde_json::json!({"cluster": CLUSTER, "ca": authority.pem, "replicas": replicas});
    host.write("trust/cluster.json", &text.to_string());
}

fn registration(seen: &Seen) -> Register {
    serde_json::from_slice(&seen.body).unwrap()
}

fn kept(host: &Host) -> Option<Slice> {
    let text = std::fs::read_to_string(host.root().join("var/lib/coroner/agent-slice.json")).ok()?;
    serde_json::from_str(&text).ok()
}

#[track_caller]
fn eventually(what: &str, holds: impl Fn() -> bool) {
    for _ in 0..1000 {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("waited 10 s until {what}");
}

#[test]
fn it_registers_with_whoever_leads_follows_its_slice_and_says_goodbye() {
    let (host, _authority, desks) = installation(30, 3);
    let mut running = host.start();
    let leader = &desks[2];
    let seen = leader.wait_for("POST", REGISTER, 1);
    assert_eq!(seen.header("authorization"), Some("Bearer the-token"));
    assert_eq!(seen.header(SIGNATURE_HEADER), None, "nobody knows its key yet");
    let said = registration(&seen);
    assert_eq!((said.node, said.machine, said.boot), (host.name.clone(), Ok(host.machine), host.boot));
    assert_eq!((said.key, said.address), (host.key.public(), host.address));

    let (place, polled) = wait_for_any(&desks, SLICE, 1);
    assert_eq!(polled.path, "/v1/slice?have=1");
    assert!(polled.is_signed_by(&host, &host.key.public()));
    let again = desks[place].wait_for("GET", SLICE, 2);
    assert!(again.number() > polled.number());
    eventually("the slice is on the disk", || kept(&host).is_some_and(|slice| slice.version == 1));

    for desk in &desks {
        desk.with(|desk| desk.slice.version = 2);
    }
    eventually("the newer slice is used", || host.log().contains("works with a new slice version=2"));
    eventually("and kept", || kept(&host).is_some_and(|slice| slice.version == 2));

    let before = now_ms();
    running.signal(Signal::SIGTERM);
    let seen = leader.wait_for("POST", GOODBYE, 1);
    let said: Goodbye = serde_json::from_slice(&seen.body).unwrap();
    assert_eq!((said.kind, said.boot), (GoodbyeKind::AgentRestart, host.boot));
    assert!((before..=now_ms()).contains(&said.seq), "{}: no beacon before it has a higher number", said.seq);
    assert!(seen.is_signed_by(&host, &host.key.public()));
    assert_eq!(running.exit_code(), Some(0));
    assert!(host.log().contains("said goodbye"), "{}", host.log());
    assert!(!host.log().contains("the-token"), "no secret in the log");
}

#[test]
fn a_key_made_at_the_first_start_is_the_key_of_the_second() {
    let (host, _authority, desks) = installation(31, 1);
    std::fs::remove_file(host.root().join("var/lib/coroner/agent.key")).unwrap();
    let running = host.start();
    let first = registration(&desks[0].wait_for("POST", REGISTER, 1));
    assert_ne!(first.key, host.key.public());
    eventually("the slice is on the disk", || kept(&host).is_some());
    drop(running);
    let _running = host.start();
    let seen = desks[0].wait_for("POST", REGISTER, 2);
    assert_eq!(registration(&seen).key, first.key);
    assert!(
        seen.is_signed_by(&host, &first.key),
        "the known key speaks for the host where no token can be reviewed"
    );
}

#[test]
fn a_replica_of_another_ca_is_not_spoken_to() {
    let (host, _authority, desks) = installation(32, 1);
    trust(&host, &Authority::new(), &[desks[0].address]);
    let _running = host.start();
    eventually("it says why", || host.log().contains("check that") && host.log().contains("its certificate"));
    assert!(desks[0].with(|desk| desk.seen.is_empty()), "not a byte of the token left");
}

#[test]
fn a_replica_of_another_cluster_is_not_believed() {
    let (host, _authority, desks) = installation(33, 1);
    desks[0].with(|desk| desk.cluster = ClusterId::from_bytes([8; 16]));
    let _running = host.start();
    eventually("it says so", || host.log().contains("but this host belongs to"));
    assert_eq!(kept(&host), None);
}

#[test]
fn a_host_that_is_forgotten_registers_again() {
    let (host, _authority, desks) = installation(34, 1);
    let _running = host.start();
    desks[0].wait_for("GET", SLICE, 1);
    desks[0].with(|desk| desk.knows_host = false);
    let seen = desks[0].wait_for("POST", REGISTER, 2);
    assert!(seen.is_signed_by(&host, &host.key.public()));
    assert!(host.log().contains("no longer knows this host"), "{}", host.log());
}

#[test]
fn a_slice_older_than_its_own_comes_only_with_a_registration() {
    let (host, _authority, desks) = installation(35, 1);
    desks[0].with(|desk| desk.slice.version = 7);
    let _running = host.start();
    desks[0].wait_for("GET", SLICE, 1);
    desks[0].with(|desk| desk.slice.version = 3);
    desks[0].wait_for("POST", REGISTER, 2);
    eventually("it is taken", || kept(&host).is_some_and(|slice| slice.version == 3));
    let polls = desks[0].with(|desk| desk.seen.iter().filter(|s| s.path.ends_with("have=7")).count());
    assert!(polls <= 3, "{polls} polls: it must not ask a replica that is behind again and again");
}

#[test]
fn without_a_token_it_waits_says_so_and_goes_on() {
    let (host, _authority, desks) = installation(36, 1);
    std::fs::remove_file(host.root().join("token")).unwrap();
    let _running = host.start();
    eventually("it says so", || host.log().contains("ServiceAccount token"));
    host.write("token", "late");
    assert_eq!(desks[0].wait_for("POST", REGISTER, 1).header("authorization"), Some("Bearer late"));
}

#[test]
fn without_trust_it_waits_and_says_for_how_long() {
    let (host, authority, desks) = installation(37, 1);
    std::fs::remove_file(host.root().join("trust/cluster.json")).unwrap();
    let _running = host.start();
    eventually("it says so", || host.log().contains("waits for ConfigMap coroner-trust"));
    assert!(host.log().contains("waiting_for="), "{}", host.log());
    trust(&host, &authority, &[desks[0].address]);
    desks[0].wait_for("POST", REGISTER, 1);
}

#[test]
fn when_its_replica_dies_it_polls_the_next() {
    let (host, _authority, desks) = installation(38, 3);
    let _running = host.start();
    let (place, _) = wait_for_any(&desks, SLICE, 1);
    desks[place].close();
    desks[(place + 1) % 3].wait_for("GET", SLICE, 1);
}

#[test]
fn a_host_without_machine_id_registers_with_the_reason() {
    let (host, _authority, desks) = installation(39, 1);
    host.write("sys/class/dmi/id/product_uuid", "03000200-0400-0500-0006-000700080009\n");
    let _running = host.start();
    let said = registration(&desks[0].wait_for("POST", REGISTER, 1));
    let why = said.machine.unwrap_err();
    assert!(why.starts_with("not fenceable, because ") && why.contains("placeholder"), "{why}");
}

#[test]
fn a_slice_kept_from_another_cluster_is_left_for_a_new_registration() {
    let (host, _authority, desks) = installation(40, 1);
    host.remember(&Slice {
        cluster: ClusterId::from_bytes([8; 16]),
        version: 50,
        ..host.slice(50, &[], &[])
    });
    let _running = host.start();
    assert_eq!(desks[0].wait_for("POST", REGISTER, 1).header(SIGNATURE_HEADER), None);
    eventually("the right one is kept", || kept(&host).is_some_and(|slice| slice.cluster == CLUSTER));
    assert!(host.log().contains("is of another cluster"), "{}", host.log());
}

#[test]
fn the_kubelets_questions_are_answered() {
    let (host, _authority, desks) = installation(41, 1);
    desks[0].with(|desk| desk.leads = false);
    let _running = host.start();
    eventually("it is alive", || get(&host, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(&host, "/readyz").starts_with("HTTP/1.1 503"));
    desks[0].with(|desk| desk.leads = true);
    eventually("it is ready", || get(&host, "/readyz").starts_with("HTTP/1.1 200"));
    eventually("metrics tell the slice", || {
        get(&host, "/metrics").contains("coroner_agent_slice_version 1\n")
    });
}

fn get(host: &Host, path: &str) -> String {
    use std::io::{Read, Write};
    let Ok(mut stream) = std::net::TcpStream::connect((host.address, 7464)) else { return String::new() };
    let mut answer = String::new();
    write!(stream, "GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").unwrap();
    stream.read_to_string(&mut answer).unwrap();
    answer
}
