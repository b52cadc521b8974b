//! Three replicas as the arbiter runs them, in this process: their threads, disks, TLS and transport are the shipped
//! ones. What is left out of the port is what agents say.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use axum::extract::{DefaultBodyLimit, State as Axum};
use axum::http::StatusCode;
use axum::routing::post;
use axum::{Extension, Router, body::Bytes};
use coroner_arbiter::replica::{self, ReplicaHandle, Running};
use coroner_arbiter::store::StoreKind;
use coroner_arbiter::transport::{self, BODY_BYTES_MAX, STEP, split};
use coroner_arbiter::{pki, serve};
use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::state::State;
use coroner_arbiter_replica::{Bootstrap, ReplicaConfig, Role};
use coroner_shared::id::{BootId, ReplicaId};
use coroner_shared::names::PORT_REPLICA;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

/// Where a client proposes, as followers do on `/propose`.
const PROPOSE: &str = "/bench/propose";

/// A leader may change, once or twice; more is no measurement.
const TRIES: usize = 20;

/// A running group.
pub struct Replicas {
    handles: BTreeMap<ReplicaId, (ReplicaHandle, IpAddr)>,
    http: reqwest::Client,
    _tasks: JoinSet<()>,
}

// === impl Replicas ===

impl Replicas {
    /// Starts three replicas with their logs in `folder`, on the loopback network 127.77.`net`.0, and waits until one
    /// leads.
    ///
    /// # Errors
    /// A disk or a port is not to be had.
    pub async fn start(store: StoreKind, folder: &Path, net: u8) -> Result<Self> {
        let (ca, ca_key) = ca()?;
        let address = |n: u8| IpAddr::V4(Ipv4Addr::new(127, 77, net, n));
        let mut members = BTreeMap::new();
        for n in 1..=3 {
            members.insert(ReplicaId::new(n.into())?, address(n));
        }
        let bootstrap = Bootstrap { members: members.keys().copied().collect(), state: State::default() };
        let mut tasks = JoinSet::new();
        let mut handles = BTreeMap::new();
        let mut http = None;
        for (id, address) in &members {
            let path = folder.join(format!("{}-{id}", store.as_str())).join("log");
            let running = replica::start_on(store, ReplicaConfig::new(*id), &path, &bootstrap)?;
            let Running { handle, messages, ended: _ } = running;
            let own = pki::issue(&ca, &ca_key, *id, *address)?;
            let listener = TcpListener::bind((*address, PORT_REPLICA)).await;
            let listener = listener.with_context(|| format!("bind {address}:{PORT_REPLICA}"))?;
            let (tls, router) = (pki::server(&ca, &own)?, router(handle.clone()));
            tasks.spawn(async move {
                if let Err(error) = serve::tls(listener, tls, router).await {
                    tracing::error!(%error, "a replica's port failed");
                }
            });
            let client = transport::client(pki::client(&ca, &own)?)?;
            tasks.spawn(transport::run(handle.clone(), client.clone(), members.clone(), messages));
            http = Some(client);
            handles.insert(*id, (handle, *address));
        }
        let http = http.context("no member")?;
        let group = Self { handles, http, _tasks: tasks };
        let elected = tokio::time::timeout(Duration::from_secs(60), group.leader()).await;
        elected.context("no replica leads")?;
        Ok(group)
    }

    /// Who leads now.
    async fn leader(&self) -> &(ReplicaHandle, IpAddr) {
        loop {
            if let Some(leader) = self.handles.values().find(|(h, _)| h.published().role == Role::Leader) {
                return leader;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    /// Commits one entry, asked in this process. Over a change of leader it is asked again: the time counts.
    ///
    /// # Errors
    /// It fails too often.
    pub async fn commit_here(&self, key: &str) -> Result<()> {
        for _ in 0..TRIES {
            if self.leader().await.0.propose(key.to_owned(), command()).await.is_ok() {
                return Ok(());
            }
        }
        bail!("an entry is not committed in {TRIES} tries")
    }

    /// As [`Self::commit_here`], asked at the leader's port over TLS.
    ///
    /// # Errors
    /// It fails too often.
    pub async fn commit_over_tls(&self, key: &str) -> Result<()> {
        for _ in 0..TRIES {
            let url = format!("https://{}{PROPOSE}", SocketAddr::new(self.leader().await.1, PORT_REPLICA));
            let sent = self.http.post(url).timeout(Duration::from_secs(6)).body(key.to_owned()).send().await;
            if sent.is_ok_and(|answer| answer.status().is_success()) {
                return Ok(());
            }
        }
        bail!("an entry is not committed in {TRIES} tries")
    }
}

/// Something of an ordinary length that changes nothing.
fn command() -> Command {
    let node = "a-node-with-an-ordinary-name".parse();
    node.map_or(Command::Tick, |node| Command::Heard {
        node,
        boot: BootId::from_bytes([7; 16]),
        seq: 1_234_567,
    })
}

fn router(handle: ReplicaHandle) -> Router {
    Router::new()
        .route(STEP, post(step))
        .route(PROPOSE, post(propose))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(handle)
}

async fn step(
    Axum(handle): Axum<ReplicaHandle>,
    Extension(peer): Extension<serve::Peer>,
    body: Bytes,
) -> StatusCode {
    let (Some(from), Ok(messages)) = (peer.replica, split(&body)) else { return StatusCode::BAD_REQUEST };
    for message in messages {
        handle.step(from, message.to_vec()).await;
    }
    StatusCode::NO_CONTENT
}

async fn propose(Axum(handle): Axum<ReplicaHandle>, key: String) -> StatusCode {
    match handle.propose(key, command()).await {
        Ok(_) => StatusCode::NO_CONTENT,
        Err(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

fn ca() -> Result<(String, String)> {
    let mut params = CertificateParams::new(Vec::<String>::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate()?;
    let text = key.serialize_pem();
    Ok((CertifiedIssuer::self_signed(params, key)?.pem(), text))
}
