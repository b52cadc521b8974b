//! A tiny TLS server for the tests: reads one HTTP/1.1 request after the other, keeps them, and answers with the raw
//! bytes that a test wants. No HTTP library on this side, so that it can be as wrong as a BMC.

use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use rustls::ServerConfig;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::identity::Identity;

/// A request as it arrived.
#[derive(Clone, Debug)]
pub struct Request {
    pub method: String,
    pub path: String,
    /// Names in lower case, in the order of arrival.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, v)| v.as_str())
    }

    pub fn is(&self, method: &str, path: &str) -> bool {
        self.method == method && self.path == path
    }
}

/// Bytes, and what comes after them.
#[derive(Clone, Debug)]
pub struct Reply {
    pub bytes: Vec<u8>,
    pub then: Then,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Then {
    /// The next request.
    Keep,
    /// close_notify and FIN.
    Close,
    /// FIN without close_notify.
    Cut,
    /// Nothing more; waits for the peer to end, and notes how it did.
    Hang,
    /// The last byte again and again, this often.
    Drip(Duration),
    /// The last piece of 1000 bytes again and again.
    Flood,
}

impl Reply {
    pub fn raw(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), then: Then::Keep }
    }

    pub fn json(status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let mut head = format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n");
        for (name, value) in headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        Self::raw(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()))
    }

    pub fn status(status: u16) -> Self {
        Self::raw(format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n"))
    }

    pub fn redirect(status: u16, location: &str) -> Self {
        Self::raw(format!("HTTP/1.1 {status} X\r\nLocation: {location}\r\nContent-Length: 0\r\n\r\n"))
    }

    pub fn then(mut self, then: Then) -> Self {
        self.then = then;
        self
    }
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

#[derive(Default)]
struct Log {
    requests: Vec<Request>,
    endings: Vec<String>,
    connections: usize,
}

/// A running server; it ends with the test's runtime.
pub struct Server {
    pub port: u16,
    log: Arc<Mutex<Log>>,
    settings: Arc<Mutex<Arc<ServerConfig>>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap()
}

impl Server {
    pub async fn start(
        identity: &Identity,
        handler: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let log = Arc::new(Mutex::new(Log::default()));
        let settings = Arc::new(Mutex::new(Arc::clone(&identity.server)));
        let handler: Arc<Handler> = Arc::new(handler);
        let (log2, settings2) = (Arc::clone(&log), Arc::clone(&settings));
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                lock(&log2).connections += 1;
                let acceptor = TlsAcceptor::from(Arc::clone(&lock(&settings2)));
                let (log, handler) = (Arc::clone(&log2), Arc::clone(&handler));
                tokio::spawn(async move {
                    if let Ok(tls) = acceptor.accept(tcp).await {
                        serve(tls, &log, &*handler).await;
                    }
                });
            }
        });
        Self { port, log, settings }
    }

    /// From now on connections show another certificate.
    pub fn become_another(&self, identity: &Identity) {
        *lock(&self.settings) = Arc::clone(&identity.server);
    }

    pub fn requests(&self) -> Vec<Request> {
        lock(&self.log).requests.clone()
    }

    pub fn count(&self, method: &str, path: &str) -> usize {
        lock(&self.log).requests.iter().filter(|r| r.is(method, path)).count()
    }

    pub fn connections(&self) -> usize {
        lock(&self.log).connections
    }

    /// How hung connections ended, once there is one.
    pub async fn ending(&self) -> String {
        for _ in 0..500 {
            if let Some(ending) = lock(&self.log).endings.first() {
                return ending.clone();
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        "none".to_owned()
    }
}

async fn serve(mut tls: TlsStream<TcpStream>, log: &Mutex<Log>, handler: &Handler) {
    let mut buffer = Vec::new();
    while let Some(request) = read_request(&mut tls, &mut buffer).await {
        lock(log).requests.push(request.clone());
        let Reply { bytes, then } = handler(&request);
        if tls.write_all(&bytes).await.is_err() || tls.flush().await.is_err() {
            return;
        }
        match then {
            Then::Keep => {}
            Then::Close => {
                let _ = tls.shutdown().await;
                return;
            }
            Then::Cut => {
                let _ = tls.get_mut().0.shutdown().await;
                return;
            }
            Then::Hang => {
                let ending = match tls.read(&mut [0; 16]).await {
                    Ok(0) => "closed".to_owned(),
                    Ok(_) => "more bytes".to_owned(),
                    Err(e) => format!("{:?}", e.kind()),
                };
                lock(log).endings.push(ending);
                return;
            }
            Then::Drip(every) => {
                let last = bytes.last().copied().unwrap_or(b' ');
                while tls.write_all(&[last]).await.is_ok() && tls.flush().await.is_ok() {
                    tokio::time::sleep(every).await;
                }
                return;
            }
            Then::Flood => {
                let piece = bytes[bytes.len().saturating_sub(1000)..].to_vec();
                while tls.write_all(&piece).await.is_ok() {}
                return;
            }
        }
    }
}

async fn read_request(tls: &mut TlsStream<TcpStream>, buffer: &mut Vec<u8>) -> Option<Request> {
    let head_end = loop {
        if let Some(at) = buffer.windows(4).position(|w| w == b"\r\n\r\n") {
            break at;
        }
        if tls.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8(buffer[..head_end].to_vec()).ok()?;
    let mut lines = head.split("\r\n");
    let mut first = lines.next()?.split(' ');
    let (method, path) = (first.next()?.to_owned(), first.next()?.to_owned());
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let length = headers.iter().find(|(n, _)| n == "content-length").map_or(0, |(_, v)| v.parse().unwrap());
    while buffer.len() < head_end + 4 + length {
        if tls.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    let body = String::from_utf8(buffer[head_end + 4..head_end + 4 + length].to_vec()).ok()?;
    buffer.drain(..head_end + 4 + length);
    Some(Request { method, path, headers, body })
}
