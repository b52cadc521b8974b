//! Over real sockets: what comes too slowly, too long or without end is given up, on both ends.

use std::net::SocketAddr;

use axum::Router;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::post;
use coroner_shared::id::ReplicaId;
use coroner_shared::time::Span;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::*;
use crate::clock;
use crate::testing::{http, serve, talk};

const LIMITS: Limits = Limits { bytes: 64 * 1024, within: Duration::from_millis(400) };
const NO_PAUSE: Duration = Duration::ZERO;

async fn echo(replica: Option<ReplicaId>) -> SocketAddr {
    let bounded = Router::new()
        .route("/echo", post(|body: Bytes| async move { format!("{} bytes", body.len()) }))
        .layer(from_fn_with_state(LIMITS, whole));
    let theirs = Router::new()
        .route("/theirs", post(|body: Bytes| async move { format!("{} bytes", body.len()) }))
        .layer(from_fn(only_replicas));
    serve(bounded.merge(theirs), replica).await
}

fn head(path: &str, length: usize) -> String {
    format!("POST {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {length}\r\n\r\n")
}

#[tokio::test]
async fn a_whole_body_within_its_limits_passes() {
    let to = echo(None).await;
    let body = vec![b'x'; LIMITS.bytes];
    let (answer, _) = talk(to, &head("/echo", body.len()), &body, NO_PAUSE, 1).await;
    assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("65536 bytes"), "{answer}");
}

#[tokio::test]
async fn a_body_that_drips_is_given_up_in_time_however_steadily_it_drips() {
    let to = echo(None).await;
    let began = clock::now();
    let (answer, _) = talk(to, &head("/echo", 1000), b"x", Duration::from_millis(50), 1000).await;
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("BodyTooSlow"), "{answer}");
    let took = clock::now().since(began);
    assert!(took < Span::from_secs(10), "{took}");
}

#[tokio::test]
async fn a_body_without_end_is_given_up_at_its_limit() {
    let to = echo(None).await;
    let head = "POST /echo HTTP/1.1\r\nhost: x\r\ntransfer-encoding: chunked\r\n\r\n";
    let chunk = [b"1000\r\n".as_slice(), &[b'x'; 4096], b"\r\n"].concat();
    // A gibibyte, if it were taken.
    let (answer, sent) = talk(to, head, &chunk, NO_PAUSE, 262_144).await;
    assert!(answer.contains("413") && answer.contains("BodyTooLong"), "{answer}");
    assert!(sent < 64 * 1024 * 1024, "{sent} bytes went out before it hung up");
}

#[tokio::test]
async fn strangers_are_refused_a_replicas_path_before_their_body_is_read() {
    let length = 100 * 1024 * 1024;
    let (answer, _) = talk(echo(None).await, &head("/theirs", length), b"", NO_PAUSE, 0).await;
    assert!(answer.starts_with("HTTP/1.1 403") && answer.contains("NotAReplica"), "{answer}");
    let to = echo(Some(ReplicaId::new(2).unwrap())).await;
    let (answer, _) = talk(to, &head("/theirs", 3), b"abc", NO_PAUSE, 1).await;
    assert!(answer.ends_with("3 bytes"), "{answer}");
}

/// Answers one request with this head, then with pieces for as long as somebody reads.
async fn answers(head: &'static str, piece: &'static [u8], pause: Duration) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0_u8; 4096];
        let _ = stream.read(&mut request).await;
        if stream.write_all(head.as_bytes()).await.is_err() {
            return;
        }
        while stream.write_all(piece).await.is_ok() {
            tokio::time::sleep(pause).await;
        }
    });
    format!("http://{address}/")
}

async fn get(url: &str) -> reqwest::Response {
    http().get(url).timeout(Duration::from_millis(700)).send().await.unwrap()
}

#[tokio::test]
async fn an_answer_without_end_is_given_up_at_its_limit() {
    let url = answers("HTTP/1.1 200 OK\r\n\r\n", &[b'['; 4096], NO_PAUSE).await;
    let error = answer_json::<Vec<u8>>(get(&url).await, 10_000).await.unwrap_err();
    assert!(matches!(error, AnswerError::TooLong(10_000)), "{error}");
}

#[tokio::test]
async fn an_answer_that_drips_is_given_up_with_its_requests_time() {
    let url =
        answers("HTTP/1.1 200 OK\r\ncontent-length: 5000\r\n\r\n", b"[", Duration::from_millis(50)).await;
    let began = clock::now();
    let error = answer(get(&url).await, 10_000).await.unwrap_err();
    assert!(matches!(&error, AnswerError::Broken(cause) if cause.is_timeout()), "{error}");
    let took = clock::now().since(began);
    assert!(took < Span::from_secs(10), "{took}");
}

#[tokio::test]
async fn an_answer_that_is_not_what_was_asked_for_is_said() {
    let url =
        answers("HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n", b"{}", NO_PAUSE).await;
    let error = answer_json::<Vec<u8>>(get(&url).await, 10_000).await.unwrap_err();
    assert!(matches!(error, AnswerError::Form(_)), "{error}");
}
