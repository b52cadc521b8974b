//! Connections: the address that listens while its BMC lives, TLS, one request after the other, and the faults that
//! happen on the way. Each request is in the ledger before a byte of its answer leaves.
//!
//! A connection ends with a reset, not with a farewell, when its BMC restarts or its cable is moved.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, Limited, StreamBody};
use hyper::body::{Bytes, Frame, Incoming};
use hyper::header::{AUTHORIZATION, CONTENT_LENGTH, CONTENT_TYPE, IF_MATCH};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use nix::libc;
use nix::sys::socket::{setsockopt, sockopt};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;

use super::Fleet;
use super::faults::{self, Delivery, Output};
use super::knobs::Connect;
use super::ledger::{Entry, Ledger, redacted};
use super::redfish::{Answer, Asked, Desk};
use super::state::Bmc;
use crate::lab::writer::boottime_ns;

/// A request's body may not be longer: 64 KiB, far above any that a client of ours sends.
const BODY_MAX: usize = 64 * 1024;

/// How often a listener that could not bind tries again: the old connections' end frees the address.
const BIND_AGAIN: Duration = Duration::from_millis(50);

type Body = UnsyncBoxBody<Bytes, io::Error>;

/// An address, and who answers at it.
pub struct Seat {
    /// The name of the BMC that belongs there.
    pub name: String,
    /// Where it listens.
    pub address: SocketAddr,
    /// Who sits there now.
    pub placed: watch::Sender<Placed>,
    /// All BMCs.
    pub fleet: Arc<Fleet>,
    /// Where requests are noted.
    pub ledger: Arc<Ledger>,
}

/// Who answers at an address, with whose certificate and whose account. All three are one BMC until cables are
/// swapped.
#[derive(Clone)]
pub struct Placed {
    /// The BMC that answers.
    pub bmc: Arc<Bmc>,
    /// The BMC whose certificate is shown.
    pub certificate: Arc<Bmc>,
    /// The BMC whose account counts.
    pub account: Arc<Bmc>,
}

/// A second handle on a connection's socket, to end it with a reset.
struct Raw(OwnedFd);

/// What one connection needs.
#[derive(Clone)]
struct Connection {
    seat: Arc<Seat>,
    placed: Placed,
    raw: Arc<Raw>,
}

/// Binds an address again and again, also right after connections there were cut.
///
/// # Errors
/// If the address is not there or taken.
pub fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(128)
}

// === impl Seat ===

impl Seat {
    /// Serves until dropped.
    pub async fn run(self: Arc<Self>, first: TcpListener) {
        let mut listener = Some(first);
        let mut moved = self.placed.subscribe();
        let mut connections = JoinSet::new();
        loop {
            let placed = moved.borrow_and_update().clone();
            let mut life = placed.bmc.life();
            let up = life.borrow_and_update().up;
            if !up {
                listener = None;
            } else if listener.is_none() {
                listener = bind(self.address).ok();
                if listener.is_none() {
                    tokio::time::sleep(BIND_AGAIN).await;
                    continue;
                }
            }
            tokio::select! {
                stream = accept(listener.as_ref()) => {
                    let seat = Arc::clone(&self);
                    connections.spawn(seat.connection(placed, stream, life.clone(), moved.clone()));
                }
                _ = life.changed() => {}
                _ = moved.changed() => {}
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn connection(
        self: Arc<Self>,
        placed: Placed,
        stream: TcpStream,
        mut life: watch::Receiver<super::state::Life>,
        mut moved: watch::Receiver<Placed>,
    ) {
        let Ok(raw) = stream.as_fd().try_clone_to_owned() else { return };
        let connection = Connection { seat: self, placed, raw: Arc::new(Raw(raw)) };
        let raw = Arc::clone(&connection.raw);
        let mut talk = std::pin::pin!(connection.talk(stream));
        tokio::select! {
            () = &mut talk => {}
            _ = life.changed() => raw.reset_at_close(),
            _ = moved.changed() => raw.reset_at_close(),
        }
    }
}

/// The next connection; never, without a listener.
async fn accept(listener: Option<&TcpListener>) -> TcpStream {
    let Some(listener) = listener else { return std::future::pending().await };
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return stream,
            // A client that has gone already, or no file descriptor left for a moment.
            Err(_) => tokio::time::sleep(BIND_AGAIN).await,
        }
    }
}

// === impl Raw ===

impl Raw {
    /// The last close of this socket sends a reset.
    fn reset_at_close(&self) {
        let at_once = libc::linger { l_onoff: 1, l_linger: 0 };
        // A socket that is gone already needs no reset.
        setsockopt(&self.0, sockopt::Linger, &at_once).ok();
    }
}

// === impl Connection ===

impl Connection {
    async fn talk(self, stream: TcpStream) {
        let knobs = self.placed.bmc.knobs();
        match knobs.connect {
            Connect::Serve => {}
            Connect::Hang => std::future::pending().await,
            Connect::Reset => return self.raw.reset_at_close(),
        }
        let Ok(identity) = self.placed.certificate.identity(knobs.certificate, knobs.tls) else { return };
        let Ok(stream) = TlsAcceptor::from(identity.config).accept(stream).await else { return };
        let service = service_fn(|request| self.clone().request(request));
        // How a connection ends is the client's business or a fault's; the ledger has what was asked.
        hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await.ok();
    }

    async fn request(self, request: Request<Incoming>) -> io::Result<Response<Body>> {
        let raw = Arc::clone(&self.raw);
        let (parts, body) = request.into_parts();
        let body = Limited::new(body, BODY_MAX).collect().await.map_err(io::Error::other)?.to_bytes();
        let header = |name: &str| parts.headers.get(name).and_then(|v| v.to_str().ok()).map(str::to_owned);
        let asked = Asked {
            method: parts.method.to_string(),
            path: parts.uri.path().to_owned(),
            token: header("x-auth-token"),
            authorization: header(AUTHORIZATION.as_str()),
            content_type: header(CONTENT_TYPE.as_str()),
            if_match: header(IF_MATCH.as_str()),
            odata_version: header("odata-version"),
            body: body.to_vec(),
        };
        let path = parts.uri.path_and_query().map_or_else(|| asked.path.clone(), ToString::to_string);
        // What has reached a BMC is carried out and noted, whether or not the client still waits.
        let output = tokio::spawn(self.carry_out(asked, path)).await.map_err(io::Error::other)?;
        tokio::time::sleep(output.delay).await;
        match output.delivery {
            Delivery::Never => std::future::pending().await,
            Delivery::Reset => {
                raw.reset_at_close();
                Err(io::Error::from(io::ErrorKind::ConnectionReset))
            }
            Delivery::Whole | Delivery::Drip(_) | Delivery::Truncated | Delivery::Endless => respond(output),
        }
    }

    async fn carry_out(self, asked: Asked, path: String) -> Output {
        let Placed { bmc, account, .. } = &self.placed;
        let (t, knobs) = (boottime_ns(), bmc.knobs());
        tokio::time::sleep(Duration::from_millis(knobs.latency_ms)).await;
        let wants_power = knobs.rules.iter().any(|rule| rule.while_power.is_some());
        let power = if wants_power { bmc.desk.truth().await.ok() } else { None };
        let fault = bmc.with_knobs(|knobs| knobs.fault(&asked.method, &asked.path, power));
        let desk = Desk { bmc, account: account.credentials(), fleet: &self.seat.fleet, knobs };
        let carried_out = match &fault {
            Some((fault, acts)) if !acts && faults::replaces(fault) => Answer::default(),
            Some(_) | None => desk.answer(&asked).await,
        };
        let drip = desk.knobs.drip_ms;
        let Answer { session, true_uuid, true_power, .. } = carried_out.clone();
        let output = faults::output(carried_out, fault.map(|(fault, _)| fault), &asked.path, drip);
        let sent = !matches!(output.delivery, Delivery::Never | Delivery::Reset);
        self.seat.ledger.request(&Entry {
            t,
            bmc: bmc.name.clone(),
            address: self.seat.address.to_string(),
            true_uuid: true_uuid.unwrap_or_else(|| bmc.uuid.clone()),
            session,
            method: asked.method,
            path,
            body: redacted(&asked.body),
            status: if sent { output.status } else { 0 },
            shown: output.shown.clone().filter(|_| sent),
            true_power,
        });
        output
    }
}

fn respond(output: Output) -> io::Result<Response<Body>> {
    let Output { status, headers, body, delivery, .. } = output;
    let mut response = Response::builder().status(status).header("OData-Version", "4.0");
    for (name, value) in headers {
        response = response.header(name, value);
    }
    let never = |error: std::convert::Infallible| match error {};
    let body = match delivery {
        Delivery::Drip(pause) => {
            response = response.header(CONTENT_LENGTH, body.len());
            let bytes = stream::iter(body).then(move |byte| async move {
                tokio::time::sleep(pause).await;
                Ok::<_, io::Error>(Frame::data(Bytes::from(vec![byte])))
            });
            StreamBody::new(bytes).boxed_unsync()
        }
        Delivery::Truncated => {
            response = response.header(CONTENT_LENGTH, body.len());
            let half = Bytes::copy_from_slice(&body[..body.len() / 2]);
            let cut = Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            StreamBody::new(stream::iter([Ok(Frame::data(half)), cut])).boxed_unsync()
        }
        Delivery::Endless => {
            let start = Ok(Frame::data(Bytes::from_static(b"{")));
            let more = stream::repeat(Bytes::from(body)).map(|piece| Ok(Frame::data(piece)));
            StreamBody::new(stream::iter([start]).chain(more)).boxed_unsync()
        }
        Delivery::Whole | Delivery::Never | Delivery::Reset => {
            Full::new(Bytes::from(body)).map_err(never).boxed_unsync()
        }
    };
    response.body(body).map_err(io::Error::other)
}
