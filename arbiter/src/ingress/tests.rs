//! Both ports over real sockets, with a real replica behind them and an API server that counts: what a stranger can make
//! them do.

use std::net::SocketAddr;
use std::sync::atomic::Ordering;

use coroner_shared::api;
use coroner_shared::keys::PublicKey;

use super::*;
use crate::testing::{Site, http, serve, talk};

const FLOOD: usize = 300;

fn registration() -> Vec<u8> {
    let wanted = Register {
        node: "n1".parse().unwrap(),
        machine: Err("none".to_owned()),
        boot: BootId::from_bytes([1; 16]),
        key: PublicKey::from_bytes([1; 32]),
        address: [10, 0, 0, 1].into(),
        version: "test".to_owned(),
    };
    serde_json::to_vec(&wanted).unwrap()
}

/// Sends this request often, over one connection; counts the answers of each status.
async fn flood(url: String, body: Option<Vec<u8>>) -> BTreeMap<u16, usize> {
    let client = http();
    let mut statuses = BTreeMap::new();
    for n in 0..FLOOD {
        let request = match &body {
            Some(body) => client.post(&url).body(body.clone()),
            None => client.get(&url),
        };
        let answer = request.bearer_auth(format!("token-{n}")).send().await.unwrap();
        let status = answer.status().as_u16();
        if status == 429 {
            let text = answer.text().await.unwrap();
            assert!(text.contains("TooManyTokens") && text.contains("ask again in 1 s"), "{text}");
        }
        *statuses.entry(status).or_default() += 1;
    }
    statuses
}

#[tokio::test]
async fn a_flood_of_registrations_does_not_flood_the_api_server() {
    let site = Site::new().await;
    let to = serve(router(site.ingress.clone()), None).await;
    let began = crate::clock::now();
    let statuses = flood(format!("http://{to}{REGISTER}"), Some(registration())).await;
    let seconds = usize::try_from(crate::clock::now().since(began).as_ms() / 1000).unwrap();
    let reviewed = site.api.reviewed.load(Ordering::SeqCst);
    assert_eq!(statuses.get(&403), Some(&reviewed), "{statuses:?}");
    assert_eq!(statuses.get(&429), Some(&(FLOOD - reviewed)), "{statuses:?}");
    assert!((64..=66 + 2 * seconds).contains(&reviewed), "{reviewed} in {seconds} s");
}

#[tokio::test]
async fn a_flood_of_peoples_tokens_does_not_flood_the_api_server() {
    let site = Site::new().await;
    let to = serve(crate::people::router(site.people.clone()), None).await;
    let began = crate::clock::now();
    let statuses = flood(format!("http://{to}{}", api::STATUS), None).await;
    let seconds = usize::try_from(crate::clock::now().since(began).as_ms() / 1000).unwrap();
    let reviewed = site.api.reviewed.load(Ordering::SeqCst);
    assert_eq!(statuses.get(&401), Some(&reviewed), "{statuses:?}");
    assert_eq!(statuses.get(&429), Some(&(FLOOD - reviewed)), "{statuses:?}");
    assert!((100..=120 + 20 * seconds).contains(&reviewed), "{reviewed} in {seconds} s");
}

fn head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
}

/// A body that drips, and one that is too long.
async fn slow_and_long(to: SocketAddr, path: &str) -> (String, String) {
    let (dripping, long) = (head(path, 1000), head(path, 1024 * 1024));
    let slow = talk(to, &dripping, b"{", Duration::from_millis(500), 1000);
    let block = vec![b' '; 64 * 1024];
    let long = talk(to, &long, &block, Duration::ZERO, 16);
    let (slow, long) = tokio::join!(slow, long);
    (slow.0, long.0)
}

#[tokio::test]
async fn every_path_that_takes_a_body_gives_up_slow_and_long_ones() {
    let site = Site::new().await;
    let agents = serve(router(site.ingress.clone()), None).await;
    let people = serve(crate::people::local_router(site.people.clone()), None).await;
    let fence = format!("{}/n1/fence", api::NODES);
    let paths = [
        (agents, REGISTER),
        (agents, GOODBYE),
        (people, api::PAUSE),
        (people, api::RESUME),
        (people, &*fence),
    ];
    let all = futures::future::join_all(paths.map(|(to, path)| slow_and_long(to, path))).await;
    for ((_, path), (slow, long)) in paths.iter().zip(all) {
        assert!(slow.contains("408") && slow.contains("BodyTooSlow"), "{path}: {slow}");
        assert!(long.contains("413") && long.contains("BodyTooLong"), "{path}: {long}");
    }
}

#[tokio::test]
async fn nothing_of_a_strangers_body_is_read_on_a_replicas_path() {
    let site = Site::new().await;
    let to = serve(router(site.ingress.clone()), None).await;
    for path in [STEP, WITNESS, PROPOSE] {
        let (answer, _) = talk(to, &head(path, BODY_BYTES_MAX), b"", Duration::ZERO, 0).await;
        assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("NotAReplica"), "{path}: {answer}");
    }
}
