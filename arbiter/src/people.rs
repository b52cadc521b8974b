//! The people's port (TCP 7463) and the root-only socket: what operators and programs read, and what they may ask for.
//! Any replica answers reads; acts are checked here and handed to the leader.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::{Path, Request, State as Axum};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Json, Router};
use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_core::hears::Hears;
use coroner_arbiter_core::judge::LISTENS_AT_MOST;
use coroner_arbiter_core::phase::Confirmation;
use coroner_shared::api::{self, Act, ActAnswer, ApiError, Bound};
use coroner_shared::id::NodeName;
use k8s_openapi::api::authentication::v1::UserInfo;

use crate::bounds::{Limits, whole};
use crate::hearing::Hearing;
use crate::k8s::auth::{AuthError, Reviewer};
use crate::propose::{HandOverError, Proposer};
use crate::serve::Peer;
use crate::shown::Shown;
use crate::telemetry::Telemetry;

/// What the port needs.
#[derive(Clone)]
pub struct People {
    /// Proposes acts.
    pub proposer: Proposer,
    /// Makes the answers.
    pub shown: Arc<Shown>,
    /// What is heard, for acts that are void on any sign of life.
    pub hearing: Hearing,
    /// Reviews tokens and rights.
    pub reviewer: Reviewer,
    /// Metrics.
    pub telemetry: Arc<Telemetry>,
}

/// Who asks.
#[derive(Clone)]
enum Caller {
    /// Somebody with a token.
    User(Box<UserInfo>),
    /// Root on this host; the name is typed.
    LocalRoot,
}

/// An act is a few words.
const LIMITS: Limits = Limits { bytes: 64 * 1024, within: Duration::from_secs(5) };

type Reply<T> = Result<Json<T>, Refused>;

/// A refusal of the port.
struct Refused(StatusCode, ApiError);

// === routers ===

/// The port: tokens, reviewed.
pub fn router(people: People) -> Router {
    let open = Router::new()
        .route("/healthz", get(|| async { "ok\n" }))
        .route("/readyz", get(ready))
        .with_state(people.clone());
    let metrics = Router::new()
        .route("/metrics", get(metrics))
        .layer(middleware::from_fn_with_state(people.clone(), may_read_metrics))
        .with_state(people.clone());
    let guarded = acts(people.clone()).layer(middleware::from_fn_with_state(people, with_token));
    open.merge(metrics).merge(guarded)
}

/// The socket: only root can open it.
pub fn local_router(people: People) -> Router {
    acts(people).layer(Extension(Caller::LocalRoot))
}

fn acts(people: People) -> Router {
    Router::new()
        .route(api::STATUS, get(status))
        .route(api::NODES, get(nodes))
        .route(&format!("{}/{{node}}", api::NODES), get(node))
        .route(&format!("{}/{{node}}/explain", api::NODES), get(explain))
        .route(&format!("{}/{{node}}/{{verb}}", api::NODES), post(on_node))
        .route(api::INCIDENTS, get(incidents))
        .route(api::PAUSE, post(pause))
        .route(api::RESUME, post(resume))
        .layer(axum::extract::DefaultBodyLimit::disable())
        .layer(middleware::from_fn_with_state(LIMITS, whole))
        .with_state(people)
}

// === reads ===

async fn ready(Axum(people): Axum<People>) -> Response {
    match people.shown.ready() {
        Ok(()) => "ok\n".into_response(),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")).into_response(),
    }
}

async fn metrics(Axum(people): Axum<People>) -> Response {
    let text = people.telemetry.text(&people.shown);
    ([(header::CONTENT_TYPE, "application/openmetrics-text; version=1.0.0; charset=utf-8")], text)
        .into_response()
}

async fn status(Axum(people): Axum<People>, Extension(caller): Extension<Caller>) -> Reply<api::Status> {
    people.may(&caller, "get", None).await?;
    Ok(Json(people.shown.status()))
}

async fn nodes(
    Axum(people): Axum<People>,
    Extension(caller): Extension<Caller>,
) -> Reply<Vec<api::NodeSummary>> {
    people.may(&caller, "get", None).await?;
    Ok(Json(people.shown.nodes()))
}

async fn node(
    Axum(people): Axum<People>,
    Extension(caller): Extension<Caller>,
    Path(node): Path<String>,
) -> Reply<api::NodeSummary> {
    let node = name(&node)?;
    people.may(&caller, "get", Some(&node)).await?;
    people.shown.node(&node).map(Json).ok_or_else(|| not_found(&node))
}

async fn explain(
    Axum(people): Axum<People>,
    Extension(caller): Extension<Caller>,
    Path(node): Path<String>,
) -> Reply<api::Explanation> {
    let node = name(&node)?;
    people.may(&caller, "get", Some(&node)).await?;
    // A follower knows what is committed, and not who was heard when.
    let leaders = people.proposer.explained_by_leader(&node).await;
    leaders.or_else(|| people.shown.explain(&node)).map(Json).ok_or_else(|| not_found(&node))
}

async fn incidents(
    Axum(people): Axum<People>,
    Extension(caller): Extension<Caller>,
) -> Reply<Vec<api::IncidentSummary>> {
    people.may(&caller, "get", None).await?;
    Ok(Json(people.shown.incidents()))
}

// === acts ===

async fn on_node(
    Axum(people): Axum<People>,
    Extension(caller): Extension<Caller>,
    Path((node, verb)): Path<(String, String)>,
    Json(act): Json<Act>,
) -> Reply<ActAnswer> {
    let node = name(&node)?;
    if !matches!(
        verb.as_str(),
        "fence" | "confirm-off" | "return" | "repin" | "clear-held" | "pause" | "resume"
    ) {
        let message = format!(
            "there is no act {verb:?}; fence, confirm-off, return, repin, clear-held, pause and resume are"
        );
        return Err(refused(StatusCode::NOT_FOUND, "NotFound", message));
    }
    people.may(&caller, &verb, Some(&node)).await?;
    let who = people.who(&caller, &act)?;
    let why = reason(&act)?;
    let command = command(&verb, node, who, why, act.bound)?;
    people.act(act.key, command).await
}

async fn pause(
    Axum(people): Axum<People>,
    Extension(caller): Extension<Caller>,
    Json(act): Json<Act>,
) -> Reply<ActAnswer> {
    people.may(&caller, "pause", None).await?;
    let (who, why) = (people.who(&caller, &act)?, reason(&act)?);
    people.act(act.key, Command::Pause { node: None, who, why }).await
}

async fn resume(
    Axum(people): Axum<People>,
    Extension(caller): Extension<Caller>,
    Json(act): Json<Act>,
) -> Reply<ActAnswer> {
    people.may(&caller, "resume", None).await?;
    let (who, why) = (people.who(&caller, &act)?, reason(&act)?);
    people.act(act.key, Command::Resume { node: None, who, why }).await
}

/// The command of an act on a node.
fn command(
    verb: &str,
    node: NodeName,
    who: String,
    why: String,
    bound: Option<Bound>,
) -> Result<Command, Refused> {
    let bad = |message: &str| refused(StatusCode::BAD_REQUEST, "BadRequest", message.to_owned());
    Ok(match verb {
        "fence" => {
            let bound = bound.ok_or_else(|| bad("`bound.uid` must name the Node that you looked at"))?;
            Command::Order { node, uid: bound.uid, who, why }
        }
        "confirm-off" => {
            let message = "`bound` must name incident, uid and boot that you looked at: a confirmation holds for one life only";
            let Some(Bound { incident: Some(incident), uid, boot: Some(boot) }) = bound else {
                return Err(bad(message));
            };
            let confirmation = Confirmation { incident, node: uid, boot, who, why };
            // The leader replaces `heard` by what it knows when it proposes.
            Command::ConfirmOff { node, confirmation, heard: Hears::of(Some(LISTENS_AT_MOST), false, false) }
        }
        "return" => Command::Return { node, who, why },
        "repin" => Command::Repin { node, who, why },
        "clear-held" => Command::ClearHeld { node, who, why },
        "pause" => Command::Pause { node: Some(node), who, why },
        _ => Command::Resume { node: Some(node), who, why },
    })
}

fn reason(act: &Act) -> Result<String, Refused> {
    let why = act.why.trim();
    if why.is_empty() || why.len() > 1024 || act.key.is_empty() || act.key.len() > 128 {
        let message =
            "`why` must say in 1 to 1024 bytes why, and `key` must be 1 to 128 bytes drawn by the caller"
                .to_owned();
        return Err(refused(StatusCode::BAD_REQUEST, "BadRequest", message));
    }
    Ok(why.to_owned())
}

// === impl People ===

impl People {
    async fn may(&self, caller: &Caller, verb: &str, node: Option<&NodeName>) -> Result<(), Refused> {
        match caller {
            Caller::LocalRoot => Ok(()),
            Caller::User(user) => self.reviewer.may(user, verb, node).await.map_err(auth_refused),
        }
    }

    /// The name that is recorded.
    fn who(&self, caller: &Caller, act: &Act) -> Result<String, Refused> {
        match caller {
            Caller::User(user) => Ok(user.username.clone().unwrap_or_default()),
            Caller::LocalRoot => {
                let typed = act.name.as_deref().map(str::trim).filter(|n| !n.is_empty() && n.len() <= 128);
                let typed = typed.ok_or_else(|| {
                    refused(
                        StatusCode::BAD_REQUEST,
                        "BadRequest",
                        "type your name (--name): root alone is nobody".to_owned(),
                    )
                })?;
                Ok(format!("local-root@{} ({typed})", self.shown.host()))
            }
        }
    }

    async fn act(&self, key: String, command: Command) -> Reply<ActAnswer> {
        // Where this replica leads, nobody else will say what is heard; where it follows, the leader says it again.
        let command = self.hearing.with_what_is_heard(command).await;
        match self.proposer.anywhere(format!("act-{key}"), command).await {
            Ok(Outcome::Done) => done("Done", "recorded; `coroner status` shows what follows"),
            Ok(Outcome::Unchanged) => done("Unchanged", "nothing had to change"),
            Ok(Outcome::Stale) => {
                let message = "what you looked at is over; look again with `coroner explain`".to_owned();
                Err(refused(StatusCode::CONFLICT, "Stale", message))
            }
            Ok(Outcome::Refused(refusal)) => Err(Refused(
                StatusCode::CONFLICT,
                ApiError { reason: refusal.reason, message: refusal.message },
            )),
            Err(error) => Err(unavailable(&error)),
        }
    }
}

fn done(result: &str, message: &str) -> Reply<ActAnswer> {
    Ok(Json(ActAnswer { result: result.to_owned(), message: message.to_owned() }))
}

// === who asks ===

async fn with_token(
    Axum(people): Axum<People>,
    mut request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let (token, from) = asker(&request)?;
    let user = people.user(&token, from).await?;
    request.extensions_mut().insert(Caller::User(Box::new(user)));
    Ok(next.run(request).await)
}

async fn may_read_metrics(
    Axum(people): Axum<People>,
    request: Request,
    next: Next,
) -> Result<Response, Refused> {
    let (token, from) = asker(&request)?;
    let user = people.user(&token, from).await?;
    people.reviewer.may_read_path(&user, "/metrics").await.map_err(auth_refused)?;
    Ok(next.run(request).await)
}

impl People {
    async fn user(&self, token: &str, from: IpAddr) -> Result<UserInfo, Refused> {
        self.reviewer.person(token, from).await.map_err(auth_refused)
    }
}

/// The token of a request, and where it comes from.
fn asker(request: &Request) -> Result<(String, IpAddr), Refused> {
    // Every connection of the port has a peer; those that had none would share one share.
    let peer = request.extensions().get::<Peer>();
    Ok((token_of(request)?, peer.map_or(IpAddr::from([0, 0, 0, 0]), |peer| peer.address.ip())))
}

fn token_of(request: &Request) -> Result<String, Refused> {
    let token = request
        .headers()
        .get(header::AUTHORIZATION)
        .and_then(|v| v.to_str().ok())
        .and_then(|v| v.strip_prefix("Bearer "));
    token.map(str::to_owned).ok_or_else(|| {
        let message =
            "send a Kubernetes token as `Authorization: Bearer ...` (`kubectl create token SERVICEACCOUNT`)"
                .to_owned();
        refused(StatusCode::UNAUTHORIZED, "Unauthenticated", message)
    })
}

// === refusals ===

fn name(text: &str) -> Result<NodeName, Refused> {
    NodeName::new(text).map_err(|e| refused(StatusCode::BAD_REQUEST, "BadRequest", e.to_string()))
}

fn not_found(node: &NodeName) -> Refused {
    refused(
        StatusCode::NOT_FOUND,
        "NotFound",
        format!("no node {node} is known; `coroner nodes` lists those that are"),
    )
}

fn refused(status: StatusCode, reason: &str, message: String) -> Refused {
    Refused(status, ApiError { reason: reason.to_owned(), message })
}

fn unavailable(error: &HandOverError) -> Refused {
    let message = format!(
        "{error}. Without a leader nothing can be recorded; `coroner status` on each replica's host shows who is missing"
    );
    refused(StatusCode::SERVICE_UNAVAILABLE, "NoLeader", message)
}

#[expect(clippy::needless_pass_by_value, reason = "it maps an error")]
fn auth_refused(error: AuthError) -> Refused {
    let (status, reason) = match &error {
        AuthError::Unauthenticated(_) => (StatusCode::UNAUTHORIZED, "Unauthenticated"),
        AuthError::Forbidden { .. } => (StatusCode::FORBIDDEN, "Forbidden"),
        AuthError::TooMany { .. } => (StatusCode::TOO_MANY_REQUESTS, "TooManyTokens"),
        AuthError::Api(_) | AuthError::Slow => (StatusCode::SERVICE_UNAVAILABLE, "ApiUnreadable"),
    };
    if status == StatusCode::SERVICE_UNAVAILABLE {
        tracing::warn!(error = %crate::transport::chain(&error), "a token cannot be reviewed");
    }
    refused(status, reason, error.to_string())
}

impl IntoResponse for Refused {
    fn into_response(self) -> Response {
        (self.0, Json(self.1)).into_response()
    }
}
