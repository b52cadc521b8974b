//! What replicas send each other over TCP 7462: batches of Raft messages, mutually authenticated.
//!
//! One task per peer posts what has piled up; a peer that cannot be reached is reported to raft, which sends again. A
//! batch is a sequence of (length as 4 bytes big-endian, message).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use coroner_arbiter_replica::is_snapshot;
use coroner_arbiter_replica::replica::MESSAGE_BYTES_MAX;
use coroner_shared::id::ReplicaId;
use coroner_shared::names::PORT_REPLICA;
use rustls::ClientConfig;
use tokio::sync::mpsc;

use crate::replica::ReplicaHandle;

/// Where batches are posted.
pub const STEP: &str = "/raft/step";
/// A batch is closed at this size; one message may be larger (a snapshot).
const BATCH_BYTES: usize = 1024 * 1024;
/// Messages that wait for a peer; more are dropped, as the network might.
const QUEUE: usize = 1024;

/// Makes the HTTP client that replicas use towards each other.
///
/// # Errors
/// reqwest refuses the TLS configuration.
pub fn client(tls: ClientConfig) -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .tls_backend_preconfigured(tls)
        .no_proxy()
        .https_only(true)
        .tcp_nodelay(true)
        // A peer whose host lost power answers nothing: let the connection go well within an election.
        .connect_timeout(Duration::from_millis(500))
        .tcp_user_timeout(Duration::from_secs(2))
        .pool_idle_timeout(Duration::from_secs(60))
        .redirect(reqwest::redirect::Policy::none())
        .build()
}

/// Sends messages to the peers until the replica's thread ends.
pub async fn run(
    handle: ReplicaHandle,
    client: reqwest::Client,
    peers: BTreeMap<ReplicaId, IpAddr>,
    mut messages: mpsc::Receiver<(ReplicaId, Vec<u8>)>,
) {
    let mut senders = BTreeMap::new();
    let mut tasks = tokio::task::JoinSet::new();
    for (id, address) in peers.into_iter().filter(|(id, _)| *id != handle.id()) {
        let (send, receive) = mpsc::channel(QUEUE);
        senders.insert(id, send);
        tasks.spawn(to_peer(handle.clone(), client.clone(), id, address, receive));
    }
    while let Some((to, bytes)) = messages.recv().await {
        if senders.get(&to).is_some_and(|sender| sender.try_send(bytes).is_err()) {
            // Full: the peer cannot be reached. Raft sends again, also a snapshot, once it knows.
            handle.unreachable(to).await;
            handle.snapshot_sent(to, false).await;
        }
    }
    drop(senders);
    while tasks.join_next().await.is_some() {}
}

async fn to_peer(
    handle: ReplicaHandle,
    client: reqwest::Client,
    id: ReplicaId,
    address: IpAddr,
    mut messages: mpsc::Receiver<Vec<u8>>,
) {
    let url = format!("https://{}{STEP}", SocketAddr::new(address, PORT_REPLICA));
    let mut reached: Option<bool> = None;
    while let Some(first) = messages.recv().await {
        let (batch, large) = collect(first, &mut messages);
        let limit = if large { Duration::from_secs(60) } else { Duration::from_secs(2) };
        let sent = client.post(&url).timeout(limit).body(batch).send().await;
        let good = matches!(&sent, Ok(answer) if answer.status().is_success());
        if reached != Some(good) {
            match &sent {
                Ok(answer) if good => {
                    tracing::info!(replica = %id, %address, status = %answer.status(), "replica reached");
                }
                Ok(answer) => {
                    tracing::warn!(replica = %id, %address, status = %answer.status(), "a replica refuses our messages");
                }
                Err(error) => {
                    tracing::warn!(replica = %id, %address, error = %chain(error), "a replica cannot be reached; trying on");
                }
            }
            reached = Some(good);
        }
        if !good {
            handle.unreachable(id).await;
        }
        if large {
            handle.snapshot_sent(id, good).await;
        }
    }
}

/// The error with its causes in one line.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text.push_str(": ");
        text.push_str(&next.to_string());
        cause = next.source();
    }
    text
}

/// Joins what is waiting into one body; says whether it holds a message so large that it must be a snapshot.
fn collect(first: Vec<u8>, messages: &mut mpsc::Receiver<Vec<u8>>) -> (Vec<u8>, bool) {
    let mut body = Vec::with_capacity(first.len() + 4);
    let mut large = false;
    let mut next = Some(first);
    while let Some(message) = next {
        large |= is_snapshot(&message);
        let length = u32::try_from(message.len()).unwrap_or(u32::MAX);
        body.extend_from_slice(&length.to_be_bytes());
        body.extend_from_slice(&message);
        next = if body.len() < BATCH_BYTES { messages.try_recv().ok() } else { None };
    }
    (body, large)
}

/// The messages of a batch.
///
/// # Errors
/// A length that does not fit the body.
pub fn split(mut body: &[u8]) -> Result<Vec<&[u8]>, BadBatch> {
    let mut messages = Vec::new();
    while !body.is_empty() {
        let (length, rest) = body.split_first_chunk::<4>().ok_or(BadBatch)?;
        let length = usize::try_from(u32::from_be_bytes(*length)).map_err(|_| BadBatch)?;
        let (message, rest) = rest.split_at_checked(length).ok_or(BadBatch)?;
        messages.push(message);
        body = rest;
    }
    Ok(messages)
}

/// A batch whose lengths do not add up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the batch's lengths do not add up")]
pub struct BadBatch;

/// Longest batch that is read.
pub const BODY_BYTES_MAX: usize = MESSAGE_BYTES_MAX + BATCH_BYTES;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_survives_the_wire_and_a_cut_one_is_refused() {
        let (send, mut receive) = mpsc::channel(8);
        send.try_send(vec![2; 3]).unwrap();
        send.try_send(Vec::new()).unwrap();
        let (body, large) = collect(vec![1; 2], &mut receive);
        assert!(!large);
        assert_eq!(split(&body), Ok(vec![&[1, 1][..], &[2, 2, 2], &[]]));
        for cut in 1..body.len() {
            let cut = split(&body[..cut]);
            assert!(cut.is_err() || cut.unwrap().len() < 3);
        }
    }
}
