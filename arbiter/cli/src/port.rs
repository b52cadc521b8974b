//! The people's port of a replica: over TLS with a token, or over the root-only socket of its host.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use coroner_shared::api::ApiError;
use coroner_shared::names::{PORT_PEOPLE, TRUST_CONFIGMAP};
use coroner_shared::trust::{TRUST_FILE, Trust};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;
use secrecy::ExposeSecret;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::args::Reach;

/// Longest answer that is read.
const ANSWER_BYTES_MAX: usize = 64 * 1024 * 1024;
/// A request takes no longer, its whole answer included.
const WITHIN: Duration = Duration::from_secs(15);

/// A way to ask a replica.
pub(crate) enum Port {
    /// TLS by our CA and a Kubernetes token.
    Tls {
        /// The HTTP client.
        client: reqwest::Client,
        /// The replicas, tried in this order.
        replicas: Vec<SocketAddr>,
        /// Who the caller is.
        token: String,
    },
    /// The root-only socket.
    Socket {
        /// Where.
        path: PathBuf,
        /// The caller's name, as typed.
        name: String,
    },
}

/// An answer with its HTTP status.
pub(crate) struct Answer<T> {
    /// Whether the port took the request.
    pub(crate) body: Result<T, ApiError>,
}

// === impl Port ===

impl Port {
    /// Finds the replicas.
    ///
    /// # Errors
    /// No way to reach one; says which flag gives another.
    pub(crate) async fn open(reach: &Reach) -> anyhow::Result<Self> {
        if let Some(path) = &reach.socket {
            let name = reach.name.clone().filter(|n| !n.trim().is_empty());
            let name = name.context("--socket needs --name: acts are recorded with the name of a person")?;
            return Ok(Self::Socket { path: path.clone(), name });
        }
        let config = if reach.trust_file.is_some() && reach.token_file.is_some() {
            None
        } else {
            Some(kube_config(reach).await?)
        };
        let trust = match (&reach.trust_file, &config) {
            (Some(file), _) => Trust::parse(&read(file)?)?,
            (None, Some(config)) => trust_of_cluster(config.clone(), &reach.namespace).await?,
            (None, None) => bail!("no --trust-file and no kubeconfig"),
        };
        let token = match (&reach.token_file, &config) {
            (Some(file), _) => read(file)?.trim().to_owned(),
            (None, Some(config)) => token_of(config)?,
            (None, None) => bail!("no --token-file and no kubeconfig"),
        };
        let ca = reqwest::Certificate::from_pem(trust.ca.as_bytes())
            .context("the CA in the trust file is no certificate")?;
        let client = reqwest::Client::builder()
            .tls_certs_only([ca])
            .no_proxy()
            .https_only(true)
            .connect_timeout(Duration::from_secs(2))
            .timeout(WITHIN)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        let replicas = trust.replicas.iter().map(|r| SocketAddr::new(r.address, PORT_PEOPLE)).collect();
        Ok(Self::Tls { client, replicas, token })
    }

    /// The name typed with `--socket`.
    pub(crate) fn typed_name(&self) -> Option<String> {
        match self {
            Self::Tls { .. } => None,
            Self::Socket { name, .. } => Some(name.clone()),
        }
    }

    /// `GET`.
    ///
    /// # Errors
    /// No replica answers, or not as it should.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> anyhow::Result<Answer<T>> {
        self.ask("GET", path, Vec::new()).await
    }

    /// `POST`.
    ///
    /// # Errors
    /// No replica answers, or not as it should.
    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> anyhow::Result<Answer<T>> {
        self.ask("POST", path, serde_json::to_vec(body)?).await
    }

    async fn ask<T: DeserializeOwned>(
        &self,
        method: &str,
        path: &str,
        body: Vec<u8>,
    ) -> anyhow::Result<Answer<T>> {
        let (good, bytes) = match self {
            Self::Tls { client, replicas, token } => {
                ask_tls(client, replicas, token, method, path, body).await?
            }
            Self::Socket { path: socket, .. } => ask_socket(socket, method, path, body).await?,
        };
        let body = if good {
            Ok(serde_json::from_slice(&bytes)
                .context("the replica's answer is not what this build knows; versions may differ")?)
        } else {
            Err(serde_json::from_slice(&bytes).unwrap_or_else(|_| ApiError {
                reason: "Unreadable".to_owned(),
                message: String::from_utf8_lossy(&bytes).chars().take(300).collect(),
            }))
        };
        Ok(Answer { body })
    }
}

impl<T> Answer<T> {
    /// The body, or the refusal as an error.
    ///
    /// # Errors
    /// The port refused.
    pub(crate) fn taken(self) -> anyhow::Result<T> {
        self.body.map_err(|e| anyhow::anyhow!("{}: {}", e.reason, e.message))
    }
}

// === helpers ===

async fn ask_tls(
    client: &reqwest::Client,
    replicas: &[SocketAddr],
    token: &str,
    method: &str,
    path: &str,
    body: Vec<u8>,
) -> anyhow::Result<(bool, Vec<u8>)> {
    let mut failures = Vec::new();
    for replica in replicas {
        let method = reqwest::Method::from_bytes(method.as_bytes())?;
        let request = client
            .request(method, format!("https://{replica}{path}"))
            .bearer_auth(token)
            .header("content-type", "application/json")
            .body(body.clone());
        match request.send().await {
            Ok(answer) => {
                let good = answer.status().is_success();
                return Ok((good, whole(answer).await.with_context(|| format!("{replica} answered"))?));
            }
            Err(error) => failures.push(format!("{replica}: {}", chain(&error))),
        }
    }
    bail!(
        "no replica answers ({}). On a replica's host, root can use --socket /var/lib/coroner-arbiter/coroner.sock --name YOU",
        failures.join("; ")
    )
}

/// A whole answer, within the request's own time.
async fn whole(mut answer: reqwest::Response) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(piece) = answer.chunk().await.context("the answer broke off")? {
        ensure!(
            bytes.len() + piece.len() <= ANSWER_BYTES_MAX,
            "the answer has more than {ANSWER_BYTES_MAX} bytes"
        );
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes)
}

async fn ask_socket(
    socket: &Path,
    method: &str,
    path: &str,
    body: Vec<u8>,
) -> anyhow::Result<(bool, Vec<u8>)> {
    let stream = tokio::net::UnixStream::connect(socket).await.with_context(|| {
        format!("cannot open {}; it belongs to root, on the host of a replica that runs", socket.display())
    })?;
    let (mut send, connection) =
        hyper::client::conn::http1::handshake(hyper_util::rt::TokioIo::new(stream)).await?;
    let driver = tokio::spawn(connection);
    let request = hyper::Request::builder()
        .method(method)
        .uri(path)
        .header("host", "coroner")
        .header("content-type", "application/json")
        .body(Full::new(Bytes::from(body)))?;
    let asking = async {
        let answer = send.send_request(request).await?;
        let good = answer.status().is_success();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
        let bytes = body.map_err(|e| anyhow::anyhow!("the answer cannot be read: {e}"))?.to_bytes();
        anyhow::Ok((good, bytes.to_vec()))
    };
    let answer = tokio::time::timeout(WITHIN, asking).await;
    driver.abort();
    answer.with_context(|| format!("the replica does not answer within {} s", WITHIN.as_secs()))?
}

/// The kubeconfig named by flag or environment, else the usual one, else a pod's.
pub(crate) async fn kube_config(reach: &Reach) -> anyhow::Result<kube::Config> {
    use kube::config::{KubeConfigOptions, Kubeconfig};
    match &reach.kubeconfig {
        Some(path) => {
            let file = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read kubeconfig {}", path.display()))?;
            Ok(kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?)
        }
        None => kube::Config::infer()
            .await
            .context("no kubeconfig: give --kubeconfig, or --trust-file and --token-file"),
    }
}

async fn trust_of_cluster(config: kube::Config, namespace: &str) -> anyhow::Result<Trust> {
    let client = kube::Client::try_from(config)?;
    let maps: Api<ConfigMap> = Api::namespaced(client, namespace);
    let map = maps.get(TRUST_CONFIGMAP).await.with_context(|| {
        format!("cannot read ConfigMap {namespace}/{TRUST_CONFIGMAP}; is Coroner installed there (--namespace), or is the API server down (--trust-file)?")
    })?;
    let text = map.data.as_ref().and_then(|d| d.get(TRUST_FILE));
    Ok(Trust::parse(text.with_context(|| format!("ConfigMap {TRUST_CONFIGMAP} has no {TRUST_FILE}"))?)?)
}

fn token_of(config: &kube::Config) -> anyhow::Result<String> {
    use kube::config::AuthInfo;
    let AuthInfo { token, token_file, .. } = &config.auth_info;
    if let Some(token) = token {
        return Ok(token.expose_secret().to_owned());
    }
    if let Some(file) = token_file {
        return Ok(read(Path::new(file))?.trim().to_owned());
    }
    bail!(
        "the kubeconfig has no token, and a client certificate cannot be shown to a replica: give --token-file with the output of `kubectl create token SERVICEACCOUNT`"
    )
}

fn read(path: &Path) -> anyhow::Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}

fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}
