//! One call of gRPC at a time over HTTP/2 without TLS: as much of it as asking etcd needs, so that etcd is measured
//! through its own door and not through the JSON gateway in front of it.

use std::net::SocketAddr;

use anyhow::{Context, Result, bail, ensure};
use http_body_util::{BodyExt, Full};
use hyper::body::Bytes;
use hyper::client::conn::http2;
use hyper::{Method, Request};
use hyper_util::rt::{TokioExecutor, TokioIo};

/// A connection; clones share it.
#[derive(Clone)]
pub struct Grpc {
    send: http2::SendRequest<Full<Bytes>>,
    address: SocketAddr,
}

// === impl Grpc ===

impl Grpc {
    /// Connects.
    ///
    /// # Errors
    /// Nobody listens, or they do not speak HTTP/2.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream =
            tokio::net::TcpStream::connect(address).await.with_context(|| format!("connect to {address}"))?;
        stream.set_nodelay(true)?;
        let shaken = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
        let (send, connection) = shaken.with_context(|| format!("speak HTTP/2 with {address}"))?;
        tokio::spawn(connection);
        Ok(Self { send, address })
    }

    /// Calls `service/method` with one message and returns the answer's.
    ///
    /// # Errors
    /// The call fails, or its status is not 0.
    pub async fn call(&mut self, method: &str, message: &[u8]) -> Result<Bytes> {
        let length = u32::try_from(message.len())?;
        let body = [&[0][..], &length.to_be_bytes(), message].concat();
        let request = Request::builder()
            .method(Method::POST)
            .uri(format!("http://{}/{method}", self.address))
            .header("content-type", "application/grpc")
            .header("te", "trailers")
            .body(Full::new(Bytes::from(body)))?;
        self.send.ready().await?;
        let answer = self.send.send_request(request).await?;
        let early = answer.headers().get("grpc-status").cloned();
        let collected = answer.into_body().collect().await?;
        let status = collected.trailers().and_then(|t| t.get("grpc-status")).cloned().or(early);
        let status = status.context("an answer without a status")?;
        if status != "0" {
            bail!("{method}: gRPC status {status:?}, {:?}", collected.trailers());
        }
        let bytes = collected.to_bytes();
        ensure!(bytes.len() >= 5, "an answer of {} bytes", bytes.len());
        Ok(bytes.slice(5..))
    }
}

/// A field of a message whose value is bytes.
#[must_use]
pub fn field(number: u8, value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2];
    let mut length = value.len();
    while length >= 0x80 {
        bytes.push(u8::try_from(length & 0x7f).unwrap_or(0) | 0x80);
        length >>= 7;
    }
    bytes.push(u8::try_from(length).unwrap_or(0));
    bytes.extend_from_slice(value);
    bytes
}

/// The first field `number` of a message: a number, or bytes.
///
/// # Errors
/// The message is none.
pub fn find(message: &[u8], number: u64) -> Result<Option<Found<'_>>> {
    let mut rest = message;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let found = match key & 7 {
            0 => Found::Number(varint(&mut rest)?),
            2 => {
                let length = usize::try_from(varint(&mut rest)?)?;
                let (value, after) = rest.split_at_checked(length).context("a message is cut short")?;
                rest = after;
                Found::Bytes(value)
            }
            other => bail!("a field of kind {other}"),
        };
        if key >> 3 == number {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

/// A field's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<'a> {
    /// A number.
    Number(u64),
    /// Text, bytes, or a message.
    Bytes(&'a [u8]),
}

fn varint(rest: &mut &[u8]) -> Result<u64> {
    let mut value = 0_u64;
    for shift in (0..64).step_by(7) {
        let (byte, after) = rest.split_first().context("a message is cut short")?;
        *rest = after;
        value |= u64::from(byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Ok(value);
        }
    }
    bail!("a number is too long")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_again() {
        let long = vec![7; 300];
        let mut message = [field(1, b"key"), field(2, &long)].concat();
        message.extend([3 << 3, 0xac, 0x02]);
        assert_eq!(find(&message, 1).unwrap(), Some(Found::Bytes(b"key")));
        assert_eq!(find(&message, 2).unwrap(), Some(Found::Bytes(&long)));
        assert_eq!(find(&message, 3).unwrap(), Some(Found::Number(300)));
        assert_eq!(find(&message, 4).unwrap(), None);
        assert!(find(&message[..message.len() - 1], 3).is_err());
    }
}
