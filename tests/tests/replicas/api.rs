//! As much of an API server as a replica's birth needs: one Secret, and a switch.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use coroner_shared::id::{ClusterId, ReplicaId};
use coroner_shared::trust::{CA_CERTIFICATE, CA_KEY, FOUNDERS, Founder, Founders};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair, KeyUsagePurpose};
use serde_json::{Value, json};

/// What the server knows.
#[derive(Clone, Default)]
pub(crate) struct Api(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    secret: Option<BTreeMap<String, String>>,
    refuses_writes: bool,
    down: bool,
    asked: usize,
}

// === impl Api ===

impl Api {
    /// Serves, and gives a client.
    pub(crate) async fn serve() -> (Self, kube::Client) {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let api = Self::default();
        let secret = get(read).patch(write);
        let path = "/api/v1/namespaces/coroner/secrets/coroner-cluster";
        let router = Router::new().route(path, secret).with_state(api.clone());
        let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        tokio::spawn(async move { axum::serve(listener, router).await });
        let config = kube::Config::new(url.parse().unwrap());
        (api, kube::Client::try_from(config).unwrap())
    }

    /// As `coroner arbiter init` does it: three members, n1 to n3.
    pub(crate) fn init(&self) {
        let (certificate, key) = ca();
        let data = [
            (FOUNDERS, serde_json::to_string(&founders()).unwrap()),
            (CA_CERTIFICATE, certificate),
            (CA_KEY, key),
        ];
        let data = data.map(|(key, value)| (key.to_owned(), BASE64_STANDARD.encode(value)));
        self.0.lock().unwrap().secret = Some(data.into());
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.0.lock().unwrap().secret.as_ref().unwrap().keys().cloned().collect()
    }

    pub(crate) fn refuse_writes(&self, refuses: bool) {
        self.0.lock().unwrap().refuses_writes = refuses;
    }

    pub(crate) fn down(&self, down: bool) {
        self.0.lock().unwrap().down = down;
    }

    pub(crate) fn asked(&self) -> usize {
        self.0.lock().unwrap().asked
    }
}

async fn read(State(api): State<Api>) -> Response {
    let mut inner = api.0.lock().unwrap();
    inner.asked += 1;
    if inner.down {
        return status(StatusCode::FORBIDDEN);
    }
    match &inner.secret {
        Some(data) => shown(data),
        None => status(StatusCode::NOT_FOUND),
    }
}

async fn write(State(api): State<Api>, Json(patch): Json<Value>) -> Response {
    let mut inner = api.0.lock().unwrap();
    inner.asked += 1;
    // kube tries again by itself where a server is unavailable.
    if inner.down || inner.refuses_writes {
        return status(StatusCode::FORBIDDEN);
    }
    let Some(data) = inner.secret.as_mut() else { return status(StatusCode::NOT_FOUND) };
    for (key, value) in patch["stringData"].as_object().unwrap() {
        data.insert(key.clone(), BASE64_STANDARD.encode(value.as_str().unwrap()));
    }
    shown(data)
}

fn shown(data: &BTreeMap<String, String>) -> Response {
    let name = json!({ "name": "coroner-cluster", "namespace": "coroner" });
    Json(json!({ "apiVersion": "v1", "kind": "Secret", "metadata": name, "data": data })).into_response()
}

fn status(code: StatusCode) -> Response {
    let reason = if code == StatusCode::NOT_FOUND { "NotFound" } else { "Forbidden" };
    let body = json!({ "kind": "Status", "apiVersion": "v1", "status": "Failure", "message": "no",
        "reason": reason, "code": code.as_u16() });
    (code, Json(body)).into_response()
}

fn founders() -> Founders {
    let member = |n: u8| Founder {
        id: ReplicaId::new(n.into()).unwrap(),
        node: format!("n{n}").parse().unwrap(),
        address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, n)),
    };
    Founders { cluster: ClusterId::from_bytes([7; 16]), members: (1..=3).map(member).collect() }
}

fn ca() -> (String, String) {
    let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate().unwrap();
    let text = key.serialize_pem();
    (CertifiedIssuer::self_signed(params, key).unwrap().pem(), text)
}
