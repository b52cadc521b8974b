//! A replica's port for agents, made by hand: TLS of a CA of its own, registration, slices, goodbyes.

use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use coroner_shared::id::ClusterId;
use coroner_shared::keys::{PublicKey, Purpose};
use coroner_shared::names::PORT_REPLICA;
use coroner_shared::slice::Slice;
use coroner_shared::wire::http::{
    BOOT_HEADER, GOODBYE, NODE_HEADER, NUMBER_HEADER, REGISTER, Refusal, Registered, SIGNATURE_HEADER, SLICE,
    request_text,
};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{CLUSTER, Host, now_ms};

/// A CA, as `coroner arbiter init` would make it.
pub struct Authority {
    key: rcgen::KeyPair,
    pub pem: String,
    parameters: rcgen::CertificateParams,
}

/// One request as it came.
#[derive(Clone, Debug)]
pub struct Seen {
    pub at_ms: u64,
    pub method: String,
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
}

/// What the desk answers with, and what it saw.
pub struct Desk {
    pub leads: bool,
    pub knows_host: bool,
    /// Which cluster it says it is.
    pub cluster: ClusterId,
    pub slice: Slice,
    pub seen: Vec<Seen>,
}

/// A running desk.
#[derive(Clone)]
pub struct Open {
    pub address: IpAddr,
    pub desk: Arc<Mutex<Desk>>,
    stop: Arc<tokio::sync::Notify>,
}

impl Authority {
    pub fn new() -> Self {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::default();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let pem = parameters.self_signed(&key).unwrap().pem();
        Self { key, pem, parameters }
    }

    /// Certificate and key for an address.
    fn certify(&self, address: IpAddr) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
        let key = rcgen::KeyPair::generate().unwrap();
        let parameters = rcgen::CertificateParams::new(vec![address.to_string()]).unwrap();
        let issuer = rcgen::Issuer::from_params(&self.parameters, &self.key);
        let certificate = parameters.signed_by(&key, &issuer).unwrap();
        (certificate.der().clone(), PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }

    /// Opens a desk at an address, on a thread of its own.
    pub fn open(&self, address: IpAddr, desk: Desk) -> Open {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (certificate, key) = self.certify(address);
        let tls = rustls::ServerConfig::builder().with_no_client_auth();
        let tls = tls.with_single_cert(vec![certificate], key).unwrap();
        let open = Open { address, desk: Arc::new(Mutex::new(desk)), stop: Arc::default() };
        let serving = open.clone();
        let listener = std::net::TcpListener::bind(SocketAddr::new(address, PORT_REPLICA)).unwrap();
        listener.set_nonblocking(true).unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = TcpListener::from_std(listener).unwrap();
                tokio::select! {
                    () = serve(listener, TlsAcceptor::from(Arc::new(tls)), &serving) => {}
                    () = serving.stop.notified() => {}
                }
            });
        });
        open
    }
}

impl Desk {
    pub fn leader(slice: Slice) -> Self {
        Self { leads: true, knows_host: true, cluster: CLUSTER, slice, seen: Vec::new() }
    }
}

impl Open {
    pub fn close(&self) {
        self.stop.notify_one();
    }

    pub fn with<T>(&self, look: impl FnOnce(&mut Desk) -> T) -> T {
        look(&mut self.desk.lock().unwrap())
    }

    /// Waits until `found` finds something, for at most 10 s.
    #[track_caller]
    pub fn wait<T>(&self, what: &str, found: impl Fn(&mut Desk) -> Option<T>) -> T {
        let start = now_ms();
        while now_ms() < start + 10_000 {
            if let Some(found) = self.with(|desk| found(desk)) {
                return found;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("waited 10 s for {what}; seen: {:?}", self.with(|desk| desk.seen.clone()));
    }

    /// Waits for the `n`th request of this kind.
    #[track_caller]
    pub fn wait_for(&self, method: &str, path: &str, n: usize) -> Seen {
        self.wait(&format!("request {n}: {method} {path}"), |desk| {
            let mut ours = desk.seen.iter().filter(|s| s.method == method && s.path.starts_with(path));
            ours.nth(n - 1).cloned()
        })
    }
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn number(&self) -> u64 {
        self.header(NUMBER_HEADER).unwrap().parse().unwrap()
    }

    /// Whether a host's key signed it, and as whom.
    pub fn is_signed_by(&self, host: &Host, key: &PublicKey) -> bool {
        let Some(signature) = self.header(SIGNATURE_HEADER).and_then(coroner_shared::hex::parse) else {
            return false;
        };
        let boot = self.header(BOOT_HEADER).unwrap().parse().unwrap();
        let text = request_text(&self.method, &self.path, boot, self.number(), &self.body);
        boot == host.boot
            && self.header(NODE_HEADER) == Some(host.node.as_str())
            && key.verify(Purpose::Request, CLUSTER, &text, &signature).is_ok()
    }
}

async fn serve(listener: TcpListener, tls: TlsAcceptor, open: &Open) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (tls, open) = (tls.clone(), open.clone());
        tokio::spawn(async move {
            let Ok(stream) = tls.accept(stream).await else { return };
            let service = service_fn(|request| answer(open.clone(), request));
            let http = hyper::server::conn::http1::Builder::new();
            let _ = http.serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(open: Open, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, hyper::Error> {
    let (head, body) = request.into_parts();
    let text = |value: &hyper::header::HeaderValue| value.to_str().unwrap().to_owned();
    let seen = Seen {
        at_ms: now_ms(),
        method: head.method.to_string(),
        path: head.uri.to_string(),
        headers: head.headers.iter().map(|(name, value)| (name.to_string(), text(value))).collect(),
        body: body.collect().await?.to_bytes().to_vec(),
    };
    let path = seen.path.split('?').next().unwrap().to_owned();
    let have = seen.path.split_once("have=").and_then(|(_, have)| have.parse().ok());
    open.with(|desk| desk.seen.push(seen));
    let (status, body) = match path.as_str() {
        REGISTER | GOODBYE if !open.with(|desk| desk.leads) => refuse(503, "NotLeader"),
        REGISTER => {
            let answer = open.with(|desk| {
                desk.knows_host = true;
                Registered { cluster: desk.cluster, node: desk.slice.node.clone(), slice: desk.slice.clone() }
            });
            (200, serde_json::to_vec(&answer).unwrap())
        }
        GOODBYE => (204, Vec::new()),
        SLICE => poll(&open, have.unwrap()).await,
        _ => refuse(404, "NoSuchPath"),
    };
    let mut response = Response::new(Full::new(Bytes::from(body)));
    *response.status_mut() = hyper::StatusCode::from_u16(status).unwrap();
    Ok(response)
}

/// Answers when there is another version, at most a second later.
async fn poll(open: &Open, have: u64) -> (u16, Vec<u8>) {
    for _ in 0..100 {
        if !open.with(|desk| desk.knows_host) {
            return refuse(403, "UnknownNode");
        }
        if let Some(slice) = open.with(|desk| (desk.slice.version != have).then(|| desk.slice.clone())) {
            return (200, serde_json::to_vec(&slice).unwrap());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    (204, Vec::new())
}

fn refuse(status: u16, reason: &str) -> (u16, Vec<u8>) {
    let refusal = Refusal { reason: reason.to_owned(), message: format!("made by hand: {reason}") };
    (status, serde_json::to_vec(&refusal).unwrap())
}
