//! One TCP connection with verified TLS and HTTP/1.1 on it, owned and driven by whoever uses it.
//!
//! Built on hyper's bare connection instead of reqwest, because a pool hides what a proof of death rests on: over
//! *which* connection an answer came (continuity), which key that connection showed, whether a request certainly did
//! not leave (then it may be repeated), and that the socket dies when the attempt does. The pool would also retry and
//! reconnect by itself.
//!
//! The socket is set so that closing it discards what was not sent and resets the connection (SO_LINGER 0): a power
//! command whose caller has given up must not reach the BMC later. Only [`Connection::close`] ends politely.

use std::future::poll_fn;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use coroner_shared::time::Span;
use http_body_util::{BodyExt, Full};
use hyper::body::{Body, Bytes, Incoming};
use hyper::client::conn::http1::{self, SendRequest};
use hyper::{HeaderMap, Request, StatusCode};
use hyper_util::rt::TokioIo;
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use crate::config::RedfishConfig;
use crate::error::{BmcError, Stage};
use crate::tls::{self, SeenCertificate, Verifier};

/// No answer that we ask for comes near it; a System with all its links is some 20 KiB.
pub(crate) const BODY_BYTES_MAX: usize = 1024 * 1024;
const BODY_LIMIT: &str = "1 MiB";
/// Status line and headers together.
const HEAD_BYTES_MAX: usize = 64 * 1024;
/// Redfish services send 10 to 30.
const HEADERS_MAX: usize = 128;
/// For a polite end; nothing depends on it.
const CLOSE_WITHIN: Duration = Duration::from_millis(500);

/// Numbers of connections, never used twice in one process, so that readings of two drivers never seem to share one.
static NEXT: AtomicU64 = AtomicU64::new(1);

type Stream = TlsStream<TcpStream>;

/// One open connection.
pub(crate) struct Connection {
    number: u64,
    sender: SendRequest<Full<Bytes>>,
    driver: http1::Connection<TokioIo<Stream>, Full<Bytes>>,
    /// The driver's future has finished and must not be polled again.
    ended: bool,
    certificate: SeenCertificate,
}

/// An answer as it came, its body whole and bounded.
#[derive(Debug)]
pub(crate) struct Raw {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Vec<u8>,
    pub(crate) connection: u64,
}

/// Why a request has no answer.
#[derive(Debug)]
pub(crate) enum Failure {
    /// Nothing of the request was written: it may be made again.
    NotSent(BmcError),
    /// It may have arrived.
    Sent(BmcError),
}

/// How long one request may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    pub(crate) first_byte: Span,
    pub(crate) whole: Span,
    /// When `whole` ends, connecting included.
    pub(crate) until: Instant,
}

// === impl Connection ===

impl Connection {
    /// Connects and checks whom it is connected to.
    pub(crate) async fn open(config: &RedfishConfig) -> Result<Self, BmcError> {
        let within = config.timeouts.connect;
        let until = Instant::now() + within.into();
        let late = |stage| BmcError::Timeout { stage, after: within };
        let tcp = timeout_at(until, connect(config)).await.map_err(|_| late(Stage::Connect))??;
        let (tls, certificate) =
            timeout_at(until, handshake(config, tcp)).await.map_err(|_| late(Stage::Tls))??;
        let (sender, driver) = http1::Builder::new()
            .max_headers(HEADERS_MAX)
            .max_header_size(HEAD_BYTES_MAX)
            .max_buf_size(HEAD_BYTES_MAX)
            .handshake(TokioIo::new(tls))
            .await
            .map_err(|e| broken(Stage::Tls, &e))?;
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Self { number, sender, driver, ended: false, certificate })
    }

    /// Unique in this process.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    /// Whom it is connected to.
    pub(crate) const fn certificate(&self) -> &SeenCertificate {
        &self.certificate
    }

    /// Whether it can take a request, as far as this side knows.
    pub(crate) async fn is_open(&mut self) -> bool {
        if !self.ended {
            self.ended = poll_fn(|cx| Poll::Ready(Pin::new(&mut self.driver).poll(cx).is_ready())).await;
        }
        !self.ended && !self.sender.is_closed()
    }

    /// Makes one request and reads its whole answer. After an error the connection is of no more use.
    pub(crate) async fn send(
        &mut self,
        request: Request<Full<Bytes>>,
        limits: Limits,
    ) -> Result<Raw, Failure> {
        let first_byte = limits.until.min(Instant::now() + limits.first_byte.into());
        let late = |stage, after| Failure::Sent(BmcError::Timeout { stage, after });
        let reply = self.sender.try_send_request(request);
        let reply = timeout_at(first_byte, drive(&mut self.driver, &mut self.ended, reply))
            .await
            .map_err(|_| late(Stage::FirstByte, limits.first_byte.min(limits.whole)))?
            .map_err(|mut e| match e.take_message() {
                Some(_) => Failure::NotSent(broken(Stage::FirstByte, e.error())),
                None => Failure::Sent(broken(Stage::FirstByte, e.error())),
            })?;
        let (head, body) = reply.into_parts();
        let body = drive(&mut self.driver, &mut self.ended, read_body(body));
        let body = timeout_at(limits.until, body)
            .await
            .map_err(|_| late(Stage::Body, limits.whole))?
            .map_err(Failure::Sent)?;
        Ok(Raw { status: head.status, headers: head.headers, body, connection: self.number })
    }

    /// Ends politely: close_notify, then FIN instead of a reset.
    pub(crate) async fn close(self) {
        let mut stream = self.driver.into_parts().io.into_inner();
        let polite = libc::linger { l_onoff: 0, l_linger: 0 };
        if setsockopt(stream.get_ref().0, sockopt::Linger, &polite).is_ok() {
            // A peer that does not take its farewell is left without.
            let _ = timeout(CLOSE_WITHIN, stream.shutdown()).await;
        }
    }
}

// === helpers ===

async fn connect(config: &RedfishConfig) -> Result<TcpStream, BmcError> {
    let address = config.address.to_string();
    let host = config.address.host.as_str();
    let found = lookup_host((host, config.address.port)).await;
    let candidates: Vec<_> =
        found.map_err(|source| BmcError::Resolve { host: host.to_owned(), source })?.take(8).collect();
    // A dead first address must leave time for the second.
    let share = Duration::from(config.timeouts.connect) / u32::try_from(candidates.len().max(1)).unwrap_or(8);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
    for candidate in candidates {
        match timeout(share, TcpStream::connect(candidate)).await {
            Ok(Ok(tcp)) => {
                let ready = prepare(&tcp, config.timeouts.unacknowledged);
                return ready.map(|()| tcp).map_err(|source| BmcError::Unreachable { address, source });
            }
            Ok(Err(e)) => last = e,
            Err(_) => last = io::ErrorKind::TimedOut.into(),
        }
    }
    let kind = last.kind();
    Err(if kind == io::ErrorKind::ConnectionRefused {
        BmcError::ConnectionRefused { address }
    } else if kind == io::ErrorKind::TimedOut {
        BmcError::Timeout { stage: Stage::Connect, after: config.timeouts.connect }
    } else {
        BmcError::Unreachable { address, source: last }
    })
}

fn prepare(tcp: &TcpStream, unacknowledged: Span) -> io::Result<()> {
    tcp.set_nodelay(true)?;
    tcp.set_zero_linger()?;
    let ms = u32::try_from(unacknowledged.as_ms()).unwrap_or(u32::MAX);
    setsockopt(tcp, sockopt::TcpUserTimeout, &ms).map_err(io::Error::from)
}

async fn handshake(config: &RedfishConfig, tcp: TcpStream) -> Result<(Stream, SeenCertificate), BmcError> {
    let verifier = Verifier::new(config.trust.clone());
    let failed = |e: &rustls::Error| verifier.explain(e, &config.server_name.to_str());
    let tls12_only = config.quirks.has(crate::Quirk::Tls12Only);
    let settings = tls::client_config(Arc::clone(&verifier), tls12_only).map_err(|e| failed(&e))?;
    let connector = TlsConnector::from(Arc::new(settings));
    let tls = connector.connect(config.server_name.clone(), tcp).await.map_err(|e| {
        match e.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
            Some(inner) => failed(inner),
            None => BmcError::Broken { stage: Stage::Tls, why: e.to_string() },
        }
    })?;
    let seen = verifier.seen().cloned();
    let seen = seen.ok_or_else(|| BmcError::Handshake { why: "no certificate was shown".to_owned() })?;
    Ok((tls, seen))
}

/// Waits for `wanted` while turning the connection that it depends on.
async fn drive<F: Future>(
    driver: &mut http1::Connection<TokioIo<Stream>, Full<Bytes>>,
    ended: &mut bool,
    wanted: F,
) -> F::Output {
    let mut wanted = pin!(wanted);
    poll_fn(|cx| {
        if let Poll::Ready(output) = wanted.as_mut().poll(cx) {
            return Poll::Ready(output);
        }
        if !*ended && Pin::new(&mut *driver).poll(cx).is_ready() {
            *ended = true;
        }
        // What the turn brought may be all that is wanted.
        wanted.as_mut().poll(cx)
    })
    .await
}

async fn read_body(mut body: Incoming) -> Result<Vec<u8>, BmcError> {
    let too_large = || BmcError::TooLarge { what: "body", limit: BODY_LIMIT };
    if body.size_hint().lower() > BODY_BYTES_MAX as u64 {
        return Err(too_large());
    }
    let mut bytes = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|e| broken(Stage::Body, &e))?;
        if let Some(piece) = frame.data_ref() {
            if bytes.len() + piece.len() > BODY_BYTES_MAX {
                return Err(too_large());
            }
            bytes.extend_from_slice(piece);
        }
    }
    Ok(bytes)
}

fn broken(stage: Stage, error: &hyper::Error) -> BmcError {
    if error.is_parse_too_large() {
        return BmcError::TooLarge { what: "headers", limit: "64 KiB or 128 fields" };
    }
    let mut why = error.to_string();
    if let Some(cause) = std::error::Error::source(error) {
        why = format!("{why}: {cause}");
    }
    BmcError::Broken { stage, why }
}

#[cfg(test)]
mod tests {
    use nix::sys::socket::getsockopt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn the_socket_discards_what_was_not_sent_and_gives_up_by_itself() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let tcp = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
        prepare(&tcp, Span::from_ms(7500)).unwrap();
        assert_eq!(getsockopt(&tcp, sockopt::TcpUserTimeout).unwrap(), 7500);
        assert_eq!(tcp.linger().unwrap(), Some(Duration::ZERO));
        assert!(tcp.nodelay().unwrap());
    }
}
