//! What the body of a request or of an answer may cost: bytes and seconds. Nobody who is not known yet is given either
//! without end.
//!
//! ```text
//!   request --> only_replicas (where a path is theirs) --> whole: body read, or 413, or 408 --> handler
//!   answer of another replica --> answer / answer_json: at most so many bytes, within the request's own time
//! ```
//!
//! Heads are bounded where connections are served (`serve.rs`).

use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State as Axum};
use axum::http::StatusCode;
use axum::http::header::CONNECTION;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use coroner_shared::wire::http::Refusal;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use thiserror::Error;

use crate::serve::Peer;

/// The limits of a port, or of some of its paths.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// The longest body.
    pub bytes: usize,
    /// From its first byte to its last.
    pub within: Duration,
}

/// Why an answer cannot be used.
#[derive(Debug, Error)]
pub enum AnswerError {
    /// It broke off, or its time is over.
    #[error("the answer broke off")]
    Broken(#[from] reqwest::Error),
    /// It is too long.
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
    /// It is not what it should be.
    #[error("the answer is not what this build knows; versions may differ")]
    Form(#[from] serde_json::Error),
}

/// Reads the body whole before anything looks at it.
pub async fn whole(Axum(limits): Axum<Limits>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let reading = Limited::new(body, limits.bytes).collect();
    let body = match tokio::time::timeout(limits.within, reading).await {
        Ok(Ok(body)) => body.to_bytes(),
        Ok(Err(error)) if error.is::<LengthLimitError>() => {
            let message = format!("the body is longer than {} bytes", limits.bytes);
            return over(StatusCode::PAYLOAD_TOO_LARGE, "BodyTooLong", message);
        }
        Ok(Err(error)) => {
            let message = format!("the body broke off: {error}");
            return over(StatusCode::BAD_REQUEST, "BodyBroken", message);
        }
        Err(_) => {
            let message = format!("the body did not come within {} s", limits.within.as_secs());
            return over(StatusCode::REQUEST_TIMEOUT, "BodyTooSlow", message);
        }
    };
    next.run(Request::from_parts(head, Body::from(body))).await
}

/// Lets only replicas pass, before a body is read: theirs may be long.
pub async fn only_replicas(request: Request, next: Next) -> Response {
    if request.extensions().get::<Peer>().is_some_and(|peer| peer.replica.is_some()) {
        return next.run(request).await;
    }
    let message = "this path is for replicas; show a certificate of the cluster's CA".to_owned();
    over(StatusCode::FORBIDDEN, "NotAReplica", message)
}

/// The whole body of an answer; its time is that of the request ([`reqwest::RequestBuilder::timeout`]).
///
/// # Errors
/// [`AnswerError`].
pub async fn answer(mut answer: reqwest::Response, bytes_max: usize) -> Result<Bytes, AnswerError> {
    let mut bytes = Vec::new();
    while let Some(piece) = answer.chunk().await? {
        if bytes.len() + piece.len() > bytes_max {
            return Err(AnswerError::TooLong(bytes_max));
        }
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.into())
}

/// The same, as JSON.
///
/// # Errors
/// [`AnswerError`].
pub async fn answer_json<T: DeserializeOwned>(
    from: reqwest::Response,
    bytes_max: usize,
) -> Result<T, AnswerError> {
    Ok(serde_json::from_slice(&answer(from, bytes_max).await?)?)
}

// === helpers ===

/// A refusal after which nothing more is read of this connection: the rest of the body may still come.
fn over(status: StatusCode, reason: &str, message: String) -> Response {
    (status, [(CONNECTION, "close")], Json(Refusal { reason: reason.to_owned(), message })).into_response()
}

#[cfg(test)]
mod tests;
