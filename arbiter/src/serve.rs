//! A TLS server for a router: bounded in connections and in the time a handshake may take, and it tells the router
//! which replica a connection's certificate names.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::Router;
use coroner_shared::id::ReplicaId;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::pki;

/// Open connections: every agent holds one long poll, every replica a few.
const CONNECTIONS_MAX: usize = 20_000;
/// A handshake or the headers of a request take no longer.
const HANDSHAKE: Duration = Duration::from_secs(5);

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// From where.
    pub address: SocketAddr,
    /// The replica that the certificate names, if one was shown.
    pub replica: Option<ReplicaId>,
}

/// Serves until the listener fails.
///
/// # Errors
/// The listener fails for good.
pub async fn tls(listener: TcpListener, config: Arc<ServerConfig>, router: Router) -> std::io::Result<()> {
    let acceptor = TlsAcceptor::from(config);
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        // At the limit new connections wait in the kernel's queue instead of in our memory.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        let (stream, address) = accept(&listener).await?;
        let (acceptor, router) = (acceptor.clone(), router.clone());
        tokio::spawn(async move {
            let _place = place;
            // Nagle would hold back an answer of raft for 40 ms.
            let _ = stream.set_nodelay(true);
            let Ok(Ok(stream)) = tokio::time::timeout(HANDSHAKE, acceptor.accept(stream)).await else {
                return;
            };
            let certificate = stream.get_ref().1.peer_certificates().and_then(|c| c.first());
            let peer = Peer { address, replica: certificate.and_then(pki::peer_of) };
            connection(TokioIo::new(stream), router.layer(Extension(peer))).await;
        });
    }
}

/// Serves a router on a unix socket that only root can open.
///
/// # Errors
/// The listener fails for good.
pub async fn unix(listener: UnixListener, router: Router) -> std::io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let router = router.clone();
        tokio::spawn(async move { connection(TokioIo::new(stream), router).await });
    }
}

async fn connection<I>(io: I, router: Router)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let served = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HANDSHAKE)
        .max_buf_size(64 * 1024)
        .serve_connection(io, TowerToHyperService::new(router))
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Running out of file descriptors is not the listener's end.
async fn accept(listener: &TcpListener) -> std::io::Result<(TcpStream, SocketAddr)> {
    loop {
        match listener.accept().await {
            Ok(accepted) => return Ok(accepted),
            Err(error) if error.kind() == std::io::ErrorKind::InvalidInput => return Err(error),
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection; trying again in 100 ms");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}
