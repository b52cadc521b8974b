//! TCP 7462: what replicas and agents say over TLS. Replicas show a certificate of our CA; agents sign their requests
//! with the key that they registered with a token.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Bytes;
use axum::extract::{DefaultBodyLimit, Path, Query, State as Axum};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::middleware::{from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_core::observers;
use coroner_arbiter_core::state::{Member, State};
use coroner_shared::api::Explanation;
use coroner_shared::id::{BootId, ClusterId, NodeName, NodeUid};
use coroner_shared::keys::Purpose;
use coroner_shared::slice::Slice;
use coroner_shared::wire::HTTP_BODY_BYTES_MAX;
use coroner_shared::wire::http::{
    BOOT_HEADER, GOODBYE, Goodbye, NODE_HEADER, NUMBER_HEADER, REGISTER, Refusal, Register, Registered,
    SIGNATURE_HEADER, SLICE, request_text,
};
use serde::Deserialize;

use crate::bounds::{Limits, only_replicas, whole};
use crate::hearing::{FromFollower, Hearing, ToFollower, WITNESS};
use crate::k8s::auth::{AuthError, Reviewer};
use crate::propose::{Answer, EXPLAIN, PROPOSE, Proposal, Proposer};
use crate::serve::Peer;
use crate::shown::Shown;
use crate::transport::{BODY_BYTES_MAX, STEP, split};

/// A long poll for a newer slice is answered with 204 after this.
const LONG_POLL: Duration = Duration::from_secs(25);

/// A snapshot of a large cluster may be slow; whoever sends it showed a certificate.
const REPLICAS: Limits = Limits { bytes: BODY_BYTES_MAX, within: Duration::from_secs(60) };
/// An agent's bodies are one or two packets.
const AGENTS: Limits = Limits { bytes: HTTP_BODY_BYTES_MAX, within: Duration::from_secs(5) };

/// What the port needs.
#[derive(Clone)]
pub struct Ingress {
    /// Proposes.
    pub proposer: Proposer,
    /// Reviews agents' tokens.
    pub reviewer: Reviewer,
    /// What this replica has heard.
    pub hearing: Hearing,
    /// Explains to followers.
    pub shown: Arc<Shown>,
    /// The installation.
    pub cluster: ClusterId,
    /// The highest number seen of each node's signed requests.
    pub numbers: Arc<Mutex<BTreeMap<NodeUid, (BootId, u64)>>>,
}

/// A refusal that an agent logs.
struct Refused(StatusCode, Refusal);

/// The routes.
pub fn router(ingress: Ingress) -> Router {
    // Layers added last look first.
    let replicas = Router::new()
        .route(STEP, post(step))
        .route(WITNESS, post(witness))
        .route(PROPOSE, post(propose))
        .route(&format!("{EXPLAIN}/{{node}}"), get(explain))
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(REPLICAS, whole))
        .layer(from_fn(only_replicas));
    let agents = Router::new()
        .route(REGISTER, post(register))
        .route(SLICE, get(slice))
        .route(GOODBYE, post(goodbye))
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(AGENTS, whole));
    replicas.merge(agents).with_state(ingress)
}

// === replicas ===

fn replica(peer: Peer) -> Result<coroner_shared::id::ReplicaId, Refused> {
    peer.replica.ok_or_else(|| {
        refused(
            StatusCode::FORBIDDEN,
            "NotAReplica",
            "this path is for replicas; show a certificate of the cluster's CA",
        )
    })
}

async fn step(
    Axum(ingress): Axum<Ingress>,
    Extension(peer): Extension<Peer>,
    body: Bytes,
) -> Result<StatusCode, Refused> {
    let from = replica(peer)?;
    let messages = split(&body).map_err(|e| refused(StatusCode::BAD_REQUEST, "BadBatch", &e.to_string()))?;
    ingress.hearing.replica_traffic(from).await;
    for message in messages {
        ingress.proposer.handle().step(from, message.to_vec()).await;
    }
    Ok(StatusCode::NO_CONTENT)
}

async fn witness(
    Axum(ingress): Axum<Ingress>,
    Extension(peer): Extension<Peer>,
    Json(from_follower): Json<FromFollower>,
) -> Result<Json<ToFollower>, Refused> {
    let from = replica(peer)?;
    Ok(Json(ingress.hearing.take_follower(from, from_follower).await))
}

async fn propose(
    Axum(ingress): Axum<Ingress>,
    Extension(peer): Extension<Peer>,
    Json(proposal): Json<Proposal>,
) -> Result<Json<Answer>, Refused> {
    replica(peer)?;
    let command = ingress.hearing.with_what_is_heard(proposal.command).await;
    let answer = match ingress.proposer.handle().propose(proposal.key, command).await {
        Ok(outcome) => Answer::Outcome(outcome),
        Err(error) => Answer::Failed(error.to_string()),
    };
    Ok(Json(answer))
}

async fn explain(
    Axum(ingress): Axum<Ingress>,
    Extension(peer): Extension<Peer>,
    Path(node): Path<NodeName>,
) -> Result<Json<Explanation>, Refused> {
    replica(peer)?;
    let explanation = ingress.shown.explain(&node);
    let unknown = || refused(StatusCode::NOT_FOUND, "UnknownNode", &format!("no node {node} is known"));
    explanation.map(Json).ok_or_else(unknown)
}

// === agents ===

async fn register(
    Axum(ingress): Axum<Ingress>,
    Extension(peer): Extension<Peer>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<Json<Registered>, Refused> {
    let wanted: Register = serde_json::from_slice(&body)
        .map_err(|e| refused(StatusCode::BAD_REQUEST, "BadBody", &e.to_string()))?;
    // A known key speaks for its host without the API server; a token is needed for a new key only.
    let state = ingress.proposer.published().state;
    let known = state.nodes.get(&wanted.node).and_then(|n| n.member.as_ref()).filter(|m| m.key == wanted.key);
    let (uid, by_token) = match known
        .map(|m| ingress.check_signature(m, "POST", &uri, &headers, &body).map(|()| m.uid.clone()))
    {
        Some(Ok(uid)) => (uid, false),
        Some(Err(_)) | None => (ingress.by_token(&headers, &wanted, peer).await?, true),
    };
    let Register { node, machine, boot, key, address, version: _ } = wanted;
    let command =
        Command::Register { node: node.clone(), uid: uid.clone(), machine, boot, key, address, by_token };
    ingress.commit(command).await?;
    ingress.hearing.registered(uid.clone(), boot).await;
    let slice = ingress.slice_when_applied(&node).await?;
    Ok(Json(Registered { cluster: ingress.cluster, node: uid, slice }))
}

/// `?have=VERSION`.
#[derive(Deserialize)]
struct Have {
    have: u64,
}

async fn slice(
    Axum(ingress): Axum<Ingress>,
    uri: Uri,
    headers: HeaderMap,
    Query(Have { have }): Query<Have>,
) -> Result<Response, Refused> {
    let node = ingress.signed_by("GET", &uri, &headers, b"")?;
    let mut published = ingress.proposer.handle().watch();
    let until = tokio::time::Instant::now() + LONG_POLL;
    loop {
        let state = Arc::clone(&published.borrow_and_update().state);
        let changed = state.observers.slice_version(&node) != Some(have);
        if changed && let Some(slice) = observers::slice_for(&state, ingress.cluster, &node) {
            return Ok(Json(slice).into_response());
        }
        match tokio::time::timeout_at(until, published.changed()).await {
            Ok(Ok(())) => {}
            Ok(Err(_)) | Err(_) => return Ok(StatusCode::NO_CONTENT.into_response()),
        }
    }
}

async fn goodbye(
    Axum(ingress): Axum<Ingress>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Result<StatusCode, Refused> {
    let node = ingress.signed_by("POST", &uri, &headers, &body)?;
    let said: Goodbye = serde_json::from_slice(&body)
        .map_err(|e| refused(StatusCode::BAD_REQUEST, "BadBody", &e.to_string()))?;
    ingress.commit(Command::Goodbye { node, boot: said.boot, kind: said.kind, seq: said.seq }).await?;
    Ok(StatusCode::NO_CONTENT)
}

// === impl Ingress ===

impl Ingress {
    /// Commits an agent's command through the leader.
    async fn commit(&self, command: Command) -> Result<(), Refused> {
        match self.proposer.anywhere(self.proposer.key(), command).await {
            Ok(Outcome::Done | Outcome::Unchanged) => Ok(()),
            Ok(Outcome::Refused(refusal)) => Err(Refused(
                StatusCode::CONFLICT,
                Refusal { reason: refusal.reason, message: refusal.message },
            )),
            Ok(Outcome::Stale) => {
                Err(refused(StatusCode::CONFLICT, "Stale", "it belongs to a boot or Node that is over"))
            }
            Err(error) => Err(refused(StatusCode::SERVICE_UNAVAILABLE, "NotLeader", &error.to_string())),
        }
    }

    /// Whether the token speaks for the node that wants to register, and for which uid.
    async fn by_token(&self, headers: &HeaderMap, wanted: &Register, peer: Peer) -> Result<NodeUid, Refused> {
        let token = headers
            .get("authorization")
            .and_then(|v| v.to_str().ok())
            .and_then(|v| v.strip_prefix("Bearer "));
        let token = token.ok_or_else(|| {
            refused(
                StatusCode::UNAUTHORIZED,
                "TokenRejected",
                "a first registration needs the pod's projected token",
            )
        })?;
        let from = peer.address.ip();
        let state = self.proposer.published().state;
        let members = state.nodes.values().filter_map(|node| node.member.as_ref());
        let known = members.map(|member| member.address).any(|address| address == from);
        let host = self.reviewer.agent(token, from, known).await.map_err(|error| match error {
            AuthError::TooMany { .. } => {
                refused(StatusCode::TOO_MANY_REQUESTS, "TooManyTokens", &error.to_string())
            }
            AuthError::Api(_) | AuthError::Slow => {
                refused(StatusCode::SERVICE_UNAVAILABLE, "ApiUnreadable", &error.to_string())
            }
            AuthError::Unauthenticated(_) | AuthError::Forbidden { .. } => {
                refused(StatusCode::FORBIDDEN, "TokenRejected", &error.to_string())
            }
        })?;
        if host.node != wanted.node {
            let message = format!(
                "the token is for node {}, the registration for {}; an agent speaks for its own node only",
                host.node, wanted.node
            );
            return Err(refused(StatusCode::FORBIDDEN, "NodeMismatch", &message));
        }
        Ok(host.uid)
    }

    /// The node whose committed key signed this request.
    fn signed_by(
        &self,
        method: &str,
        uri: &Uri,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<NodeName, Refused> {
        let uid = header(headers, NODE_HEADER)?;
        let state = self.proposer.published().state;
        let (name, member) = member_of(&state, &uid).ok_or_else(|| {
            refused(
                StatusCode::FORBIDDEN,
                "UnknownNode",
                "no host is registered for this Node; register first",
            )
        })?;
        self.check_signature(member, method, uri, headers, body)?;
        Ok(name.clone())
    }

    fn check_signature(
        &self,
        member: &Member,
        method: &str,
        uri: &Uri,
        headers: &HeaderMap,
        body: &[u8],
    ) -> Result<(), Refused> {
        let bad = |message: &str| refused(StatusCode::FORBIDDEN, "BadSignature", message);
        let number: u64 = header(headers, NUMBER_HEADER)?.parse().map_err(|_| bad("the number is none"))?;
        let boot: BootId = header(headers, BOOT_HEADER)?.parse().map_err(|_| bad("the boot id is none"))?;
        let signature = coroner_shared::hex::parse::<64>(&header(headers, SIGNATURE_HEADER)?)
            .ok_or_else(|| bad("the signature is not hex"))?;
        let path = uri.path_and_query().map_or("/", |p| p.as_str());
        let text = request_text(method, path, boot, number, body);
        let good = |key: &coroner_shared::keys::PublicKey| {
            key.verify(Purpose::Request, self.cluster, &text, &signature).is_ok()
        };
        if !good(&member.key) && !member.old_key.as_ref().is_some_and(good) {
            return Err(bad("the signature is not that of the node's registered key"));
        }
        let mut numbers = self.numbers.lock().unwrap_or_else(PoisonError::into_inner);
        // Bounded by the number of members: only a registered key gets here.
        match numbers.get(&member.uid) {
            Some((last_boot, last)) if *last_boot == boot && number <= *last => {
                Err(bad("the request was sent before"))
            }
            Some(_) | None => {
                numbers.insert(member.uid.clone(), (boot, number));
                Ok(())
            }
        }
    }

    /// The slice once this replica has applied the registration.
    async fn slice_when_applied(&self, node: &NodeName) -> Result<Slice, Refused> {
        let mut published = self.proposer.handle().watch();
        let until = tokio::time::Instant::now() + Duration::from_secs(3);
        loop {
            let state = Arc::clone(&published.borrow_and_update().state);
            if let Some(slice) = observers::slice_for(&state, self.cluster, node) {
                return Ok(slice);
            }
            let waited = tokio::time::timeout_at(until, published.changed()).await;
            if !matches!(waited, Ok(Ok(()))) {
                let message = "the registration is committed, this replica has not applied it yet; ask again";
                return Err(refused(StatusCode::SERVICE_UNAVAILABLE, "Behind", message));
            }
        }
    }
}

// === helpers ===

fn member_of<'a>(state: &'a State, uid: &str) -> Option<(&'a NodeName, &'a Member)> {
    state
        .nodes
        .iter()
        .find_map(|(name, node)| node.member.as_ref().filter(|m| m.uid.as_str() == uid).map(|m| (name, m)))
}

fn header(headers: &HeaderMap, name: &str) -> Result<String, Refused> {
    let value = headers.get(name).and_then(|v| v.to_str().ok()).filter(|v| v.len() <= 256);
    value
        .map(str::to_owned)
        .ok_or_else(|| refused(StatusCode::UNAUTHORIZED, "NotSigned", &format!("header {name} is missing")))
}

fn refused(status: StatusCode, reason: &str, message: &str) -> Refused {
    Refused(status, Refusal { reason: reason.to_owned(), message: message.to_owned() })
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}

#[cfg(test)]
mod tests;
