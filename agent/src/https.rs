//! One kept connection to one replica: TLS by our CA, HTTP/1.1, small bodies. No pool, no resolver, no redirect.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use coroner_shared::names::PORT_REPLICA;
use coroner_shared::wire::HTTP_BODY_BYTES_MAX;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{Connection, SendRequest, handshake};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use thiserror::Error;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

/// Replicas are a few hops away; a slower one is as good as none, and there are others.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);

/// Why there is no answer.
#[derive(Debug, Error)]
pub(crate) enum HttpsError {
    /// No TCP connection.
    #[error("connect to {0}, port {PORT_REPLICA}")]
    Connect(IpAddr, #[source] std::io::Error),
    /// Not a replica of this installation, or no TLS at all.
    #[error("check that {0} is a replica of this installation (its certificate and the CA of coroner-trust)")]
    Tls(IpAddr, #[source] std::io::Error),
    /// It took too long.
    #[error("wait for {0}: nothing within {1:?}")]
    Slow(IpAddr, Duration),
    /// The connection broke, or it is not HTTP.
    #[error("talk HTTP with {0}")]
    Http(IpAddr, #[source] hyper::Error),
    /// The answer cannot be read to its end.
    #[error("read the answer of {0} (at most {HTTP_BODY_BYTES_MAX} bytes)")]
    Body(IpAddr, #[source] Box<dyn std::error::Error + Send + Sync>),
    /// The request cannot be written; a header holds what it may not.
    #[error("write a request")]
    Request(#[from] hyper::http::Error),
}

/// A request.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    pub(crate) headers: Vec<(&'static str, String)>,
    pub(crate) body: Vec<u8>,
    pub(crate) within: Duration,
}

type Tls = TokioIo<TlsStream<TcpStream>>;

/// A connection.
pub(crate) struct Link {
    address: IpAddr,
    sender: SendRequest<Full<Bytes>>,
    /// Driven only while a request is under way; `None` once the other side has closed it.
    connection: Option<Connection<Tls, Full<Bytes>>>,
}

// === impl Link ===

impl Link {
    /// Connects and checks the replica's certificate, which names its address.
    ///
    /// # Errors
    /// [`HttpsError::Connect`], [`HttpsError::Tls`], [`HttpsError::Slow`].
    pub(crate) async fn open(address: IpAddr, tls: Arc<ClientConfig>) -> Result<Self, HttpsError> {
        let connecting = async {
            let stream = TcpStream::connect((address, PORT_REPLICA)).await;
            let stream = stream.map_err(|error| HttpsError::Connect(address, error))?;
            let name = ServerName::IpAddress(address.into());
            let stream = TlsConnector::from(tls).connect(name, stream).await;
            let stream = stream.map_err(|error| HttpsError::Tls(address, error))?;
            handshake(TokioIo::new(stream)).await.map_err(|error| HttpsError::Http(address, error))
        };
        let slow = |_| HttpsError::Slow(address, CONNECT_WITHIN);
        let (sender, connection) = timeout(CONNECT_WITHIN, connecting).await.map_err(slow)??;
        Ok(Self { address, sender, connection: Some(connection) })
    }

    /// Asks, and gives status and body.
    ///
    /// # Errors
    /// [`HttpsError`]; the link is of no use after one.
    pub(crate) async fn ask(&mut self, call: Call<'_>) -> Result<(StatusCode, Bytes), HttpsError> {
        let address = self.address;
        let mut request = Request::builder()
            .method(call.method)
            .uri(call.path)
            .header(HOST, host_header(address))
            .header(CONTENT_TYPE, "application/json");
        for (name, value) in call.headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(Bytes::from(call.body)))?;
        let answer = self.sender.send_request(request);
        let reading = async move {
            let answer = answer.await.map_err(|error| HttpsError::Http(address, error))?;
            let (head, body) = answer.into_parts();
            let body = Limited::new(body, HTTP_BODY_BYTES_MAX).collect().await;
            Ok((head.status, body.map_err(|error| HttpsError::Body(address, error))?.to_bytes()))
        };
        let both = drive(&mut self.connection, reading);
        timeout(call.within, both).await.unwrap_or(Err(HttpsError::Slow(address, call.within)))
    }
}

// === helpers ===

/// Waits for `reading` while the connection is served. The other side may close it once it has answered; what was
/// read by then is still there.
async fn drive<T>(
    connection: &mut Option<Connection<Tls, Full<Bytes>>>,
    reading: impl Future<Output = Result<T, HttpsError>>,
) -> Result<T, HttpsError> {
    tokio::pin!(reading);
    if let Some(open) = connection {
        tokio::select! {
            biased;
            done = &mut reading => return done,
            _ = open => *connection = None,
        }
    }
    reading.await
}

fn host_header(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => format!("{v4}:{PORT_REPLICA}"),
        IpAddr::V6(v6) => format!("[{v6}]:{PORT_REPLICA}"),
    }
}
