//! A TLS server for a router: bounded in connections and in the time a handshake may take, and it tells the router
//! which replica a connection's certificate names.

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Extension;
use axum::Router;
use coroner_shared::id::ReplicaId;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use nix::sys::socket::{setsockopt, sockopt};
use rustls::ServerConfig;
use tokio::net::{TcpListener, TcpStream, UnixListener};
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::pki;

/// Open connections: every agent holds one long poll, every replica a few.
const CONNECTIONS_MAX: usize = 20_000;
/// Of these so many from one address: a host has one agent, a replica a few, people come through few proxies. So no
/// stranger can take the places of all others, the replicas' own among them.
const FROM_ONE_MAX: usize = 512;
/// A handshake or the headers of a request take no longer.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// Whoever takes nothing of an answer for so long is hung up on: what waits for them takes up room.
const STALLED: Duration = Duration::from_secs(20);

/// Who is at the other end.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// From where.
    pub address: SocketAddr,
    /// The replica that the certificate names, if one was shown.
    pub replica: Option<ReplicaId>,
}

/// How many connections each address has open.
#[derive(Clone, Default)]
struct Sources {
    open: Arc<Mutex<HashMap<IpAddr, usize>>>,
}

/// One of an address' connections.
struct Share {
    sources: Sources,
    address: IpAddr,
}

impl Sources {
    /// A further connection of this address, if it may have one.
    fn take(&self, address: IpAddr) -> Option<Share> {
        let mut open = self.lock();
        let count = open.entry(address).or_default();
        if *count >= FROM_ONE_MAX {
            return None;
        }
        *count += 1;
        Some(Share { sources: self.clone(), address })
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<IpAddr, usize>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        let mut open = self.sources.lock();
        if let Some(count) = open.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.remove(&self.address);
            }
        }
    }
}

/// Serves until the listener fails.
///
/// # Errors
/// The listener fails for good.
pub async fn tls(listener: TcpListener, config: Arc<ServerConfig>, router: Router) -> std::io::Result<()> {
    let acceptor = TlsAcceptor::from(config);
    let room = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let sources = Sources::default();
    loop {
        // At the limit new connections wait in the kernel's queue instead of in our memory.
        let Ok(place) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        let (stream, address) = accept(&listener).await?;
        // Beyond its share an address is hung up on at once: what waits would take up room as well.
        let Some(share) = sources.take(address.ip()) else { continue };
        let (acceptor, router) = (acceptor.clone(), router.clone());
        tokio::spawn(async move {
            let (_place, _share) = (place, share);
            // Nagle would hold back an answer of raft for 40 ms.
            let _ = stream.set_nodelay(true);
            if let Err(error) = hang_up_after(&stream, STALLED) {
                tracing::warn!(%error, "a connection without a limit for answers that nobody takes is not served");
                return;
            }
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

/// Serves one connection to its end.
pub(crate) async fn connection<I>(io: I, router: Router)
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

/// The kernel ends the connection when nothing that was sent is taken for so long, be it that nothing is acknowledged or
/// that the other side's window stays shut (`TCP_USER_TIMEOUT`, tcp(7); RFC 5482). One that has nothing to take is left
/// alone, as a long poll is.
fn hang_up_after(stream: &TcpStream, stalled: Duration) -> std::io::Result<()> {
    let ms = u32::try_from(stalled.as_millis()).unwrap_or(u32::MAX);
    setsockopt(stream, sockopt::TcpUserTimeout, &ms).map_err(std::io::Error::from)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use coroner_shared::time::Span;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    const ANSWER: usize = 64 * 1024 * 1024;

    /// Serves one connection with a long answer that may stall for 1.5 s; gives the address, and later how long it took.
    async fn serving() -> (SocketAddr, impl Future<Output = Span>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new().fallback(|| async { vec![b'x'; ANSWER] });
        let served = async move {
            let (stream, _) = listener.accept().await.unwrap();
            hang_up_after(&stream, Duration::from_millis(1500)).unwrap();
            let began = clock::now();
            let end = connection(TokioIo::new(stream), router);
            tokio::time::timeout(Duration::from_secs(40), end).await.expect("still served after 40 s");
            clock::now().since(began)
        };
        (address, served)
    }

    #[tokio::test]
    async fn an_answer_that_nobody_takes_ends_its_connection() {
        let (address, served) = serving().await;
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(REQUEST).await.unwrap();
        served.await;
    }

    #[tokio::test]
    async fn an_answer_that_is_taken_slowly_is_given_to_its_end() {
        let (address, served) = serving().await;
        let client = tokio::spawn(async move {
            let mut stream = TcpStream::connect(address).await.unwrap();
            stream.write_all(REQUEST).await.unwrap();
            let (mut taken, mut piece) = (0, vec![0_u8; 2 * 1024 * 1024]);
            let began = clock::now();
            while let Ok(length @ 1..) = stream.read(&mut piece).await {
                taken += length;
                if clock::now().since(began) < Span::from_secs(4) {
                    tokio::time::sleep(Duration::from_millis(300)).await;
                }
            }
            taken
        });
        let took = served.await;
        assert!(took > Span::from_secs(3), "{took}");
        assert!(client.await.unwrap() >= ANSWER, "all of it came");
    }

    #[test]
    fn one_address_has_its_share_and_gives_it_back() {
        let sources = Sources::default();
        let (one, other) = ("10.0.0.1".parse().unwrap(), "10.0.0.2".parse().unwrap());
        let mut shares: Vec<Share> = (0..FROM_ONE_MAX).map(|_| sources.take(one).unwrap()).collect();
        assert!(sources.take(one).is_none());
        assert!(sources.take(other).is_some(), "nobody else is held up");
        shares.pop();
        assert!(sources.take(one).is_some());
        shares.clear();
        assert!(sources.lock().is_empty(), "nothing is kept of who is gone");
    }
}
