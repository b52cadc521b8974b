//! For this crate's tests: one replica of a group of one on a disk of its own, an API server that counts and refuses,
//! and routers behind real sockets.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::{Method, Uri};
use axum::routing::post;
use axum::{Extension, Json, Router};
use coroner_arbiter_core::apply::apply;
use coroner_arbiter_core::command::Entry;
use coroner_arbiter_core::state::State;
use coroner_arbiter_replica::{Bootstrap, ReplicaConfig, Role};
use coroner_shared::id::{ClusterId, ReplicaId};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

use crate::bmc_open::Opener;
use crate::bmc_pool::BmcPool;
use crate::executor::{Kept, Tools};
use crate::hearing;
use crate::ingress::Ingress;
use crate::k8s::auth::Reviewer;
use crate::k8s::publish::Publisher;
use crate::k8s::release::Writer;
use crate::people::People;
use crate::propose::Proposer;
use crate::replica::{self, Running};
use crate::serve::{Peer, connection};
use crate::shown::Shown;
use crate::store::StoreKind;
use crate::telemetry::Telemetry;

pub(crate) const CLUSTER: ClusterId = ClusterId::from_bytes([7; 16]);

/// A replica, and what its ports and its executor are made of.
pub(crate) struct Site {
    pub(crate) ingress: Ingress,
    pub(crate) people: People,
    pub(crate) tools: Tools,
    pub(crate) api: Arc<FakeApi>,
    _running: Running,
    _disk: tempfile::TempDir,
}

/// An API server that takes no token for good, knows one Node and its pods, and remembers what it was asked.
#[derive(Default)]
pub(crate) struct FakeApi {
    /// Tokens that it was asked to review.
    pub(crate) reviewed: AtomicUsize,
    /// Method and path of everything else.
    asked: Mutex<Vec<String>>,
    /// The Node and the pods that it gives.
    objects: Mutex<(Value, Vec<Value>)>,
}

impl FakeApi {
    pub(crate) fn show(&self, node: Value, pods: Vec<Value>) {
        *self.objects.lock().unwrap() = (node, pods);
    }

    /// What it was asked since the last time this was asked.
    pub(crate) fn take_asked(&self) -> Vec<String> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    fn answer(&self, method: &str, path: &str) -> Value {
        let shown = format!("{method} {path}");
        self.asked.lock().unwrap().push(shown);
        let objects = self.objects.lock().unwrap();
        match (method, path) {
            ("DELETE", _) => json!({"kind": "Status", "apiVersion": "v1", "status": "Success"}),
            (_, "/api/v1/pods") => json!({"metadata": {}, "items": objects.1}),
            (_, "/apis/storage.k8s.io/v1/volumeattachments") => json!({"metadata": {}, "items": []}),
            (_, _) => objects.0.clone(),
        }
    }
}

/// Gives the process its cryptography, as `main` does. A test has a process of its own under the runner, so each that
/// comes to a TLS configuration asks for it, and may not lean on a neighbour.
pub(crate) fn provider() {
    // Whoever was first has installed the same one.
    let _ = rustls::crypto::ring::default_provider().install_default();
}

/// A client for plain HTTP. It too builds a TLS configuration.
pub(crate) fn http() -> reqwest::Client {
    provider();
    reqwest::Client::builder().no_proxy().build().unwrap()
}

impl Site {
    /// A replica whose log begins with nothing.
    pub(crate) async fn new() -> Self {
        Self::with(State::default()).await
    }

    /// A replica whose log begins with this state.
    pub(crate) async fn with(state: State) -> Self {
        let disk = tempfile::tempdir().unwrap();
        let id = ReplicaId::new(1).unwrap();
        let bootstrap = Bootstrap { members: vec![id], state };
        let path = disk.path().join("log");
        let running = replica::start_on(StoreKind::Redb, ReplicaConfig::new(id), &path, &bootstrap).unwrap();
        let handle = running.handle.clone();
        let http = http();
        let proposer = Proposer::new(handle.clone(), http, [].into(), "test");
        let api = Arc::new(FakeApi::default());
        let client = api_server(&api).await;
        let reviewer = Reviewer::new(client.clone(), "coroner", "coroner-agent");
        let hearing = hearing::new(handle.watch(), watch::channel(Arc::default()).1).0;
        let opener = Opener::new(client.clone(), "coroner", watch::channel(Arc::default()).1);
        let bmcs = BmcPool::new(handle.clone(), opener);
        let host = "n1".parse().unwrap();
        let telemetry = Arc::new(Telemetry::new());
        let shown = Arc::new(Shown::new(CLUSTER, host, handle, hearing.clone(), bmcs.clone()));
        let people = People {
            proposer: proposer.clone(),
            shown: Arc::clone(&shown),
            hearing: hearing.clone(),
            reviewer: reviewer.clone(),
            telemetry: Arc::clone(&telemetry),
        };
        let tools = Tools {
            proposer: proposer.clone(),
            bmcs,
            hearing: hearing.clone(),
            writer: Writer::new(&client),
            publisher: Publisher::new(client),
            telemetry,
            made_again: Kept::default(),
            told: Kept::default(),
        };
        let ingress =
            Ingress { proposer, reviewer, hearing, shown, cluster: CLUSTER, numbers: Arc::default() };
        Self { ingress, people, tools, api, _running: running, _disk: disk }
    }

    /// Waits until this replica leads.
    pub(crate) async fn leads(&self) {
        let mut published = self.tools.proposer.handle().watch();
        let leads = published.wait_for(|published| published.role == Role::Leader);
        tokio::time::timeout(Duration::from_secs(30), leads).await.unwrap().unwrap();
    }
}

/// The state of the golden log after the first entry for which this holds.
pub(crate) fn golden(until: impl Fn(&State) -> bool) -> State {
    let mut state = State::default();
    for line in include_str!("../core/tests/golden_level_1.jsonl").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        let entry: Entry = serde_json::from_value(line["entry"].clone()).unwrap();
        apply(&mut state, line["index"].as_u64().unwrap(), &entry);
        if until(&state) {
            return state;
        }
    }
    panic!("the golden log comes to no such state")
}

async fn api_server(api: &Arc<FakeApi>) -> kube::Client {
    let count = Arc::clone(api);
    let review = move |Json(mut asked): Json<Value>| {
        count.reviewed.fetch_add(1, Ordering::SeqCst);
        asked["status"] = json!({"authenticated": false, "error": "unknown token"});
        async move { Json(asked) }
    };
    let others = Arc::clone(api);
    let other = move |method: Method, uri: Uri| {
        let answer = others.answer(method.as_str(), uri.path());
        async move { Json(answer) }
    };
    let router =
        Router::new().route("/apis/authentication.k8s.io/v1/tokenreviews", post(review)).fallback(other);
    let address = serve(router, None).await;
    let config = kube::Config::new(format!("http://{address}").parse().unwrap());
    kube::Client::try_from(config).unwrap()
}

/// Serves a router on a socket of its own, as the ports do behind TLS; every peer shows this replica's certificate.
pub(crate) async fn serve(router: Router, replica: Option<ReplicaId>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let here = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, address)) = listener.accept().await {
            let router = router.clone().layer(Extension(Peer { address, replica }));
            tokio::spawn(connection(TokioIo::new(stream), router));
        }
    });
    here
}

/// Writes this head, then body after body until the other side hangs up or has answered; gives its answer, and how many
/// bytes of bodies it took.
pub(crate) async fn talk(
    to: SocketAddr,
    head: &str,
    body: &[u8],
    pause: Duration,
    times: usize,
) -> (String, usize) {
    let stream = TcpStream::connect(to).await.unwrap();
    let (mut read, mut write) = stream.into_split();
    let head = head.to_owned();
    let body = body.to_vec();
    let writing = tokio::spawn(async move {
        let mut sent = 0;
        if write.write_all(head.as_bytes()).await.is_err() {
            return sent;
        }
        for _ in 0..times {
            match write.write_all(&body).await {
                Ok(()) => sent += body.len(),
                Err(_) => return sent,
            }
            tokio::time::sleep(pause).await;
        }
        // Not closed: who waits for more than came must give up by itself.
        tokio::time::sleep(Duration::from_secs(60)).await;
        sent
    });
    let mut answer = Vec::new();
    let mut piece = [0_u8; 4096];
    let deadline = tokio::time::Instant::now() + Duration::from_secs(30);
    let mut sent = 0;
    loop {
        match tokio::time::timeout_at(deadline, read.read(&mut piece)).await {
            Ok(Ok(0) | Err(_)) => break,
            Ok(Ok(length)) => answer.extend_from_slice(&piece[..length]),
            Err(_) => {
                answer.extend_from_slice(b"(no end within 30 s)");
                break;
            }
        }
    }
    if writing.is_finished() {
        sent = writing.await.unwrap_or_default();
    } else {
        writing.abort();
    }
    (String::from_utf8_lossy(&answer).into_owned(), sent)
}
