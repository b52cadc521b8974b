//! How this host speaks to a replica: who it is, how it signs a request, what a refusal is, how it says goodbye.
//!
//! It does not know when to speak; `uplink` and `run` do.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::hex::Hex;
use coroner_shared::id::{BootId, ClusterId, NodeName};
use coroner_shared::keys::{Purpose, SecretKey};
use coroner_shared::machine_id::MachineId;
use coroner_shared::slice::Slice;
use coroner_shared::wire::http::{
    BOOT_HEADER, GOODBYE, Goodbye, NODE_HEADER, NUMBER_HEADER, Refusal, SIGNATURE_HEADER, request_text,
};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use thiserror::Error;
use tokio::time::timeout;

use crate::clock;
use crate::https::{Call, HttpsError, Link};
use crate::trust_config::Trusted;

const GOODBYE_WITHIN: Duration = Duration::from_secs(2);

/// Why a replica did not do what was asked.
#[derive(Debug, Error)]
pub(crate) enum UplinkError {
    /// No answer.
    #[error(transparent)]
    Https(#[from] HttpsError),
    /// It refused.
    #[error("{address} refused with {}: {}", refusal.reason, refusal.message)]
    Refused {
        /// Which replica.
        address: IpAddr,
        /// Its words.
        refusal: Refusal,
    },
    /// The answer is not what it should be.
    #[error("understand the answer of {address}")]
    Form {
        /// Which replica.
        address: IpAddr,
        /// What is wrong.
        source: serde_json::Error,
    },
    /// It answers for somebody else.
    #[error(
        "{address} answers for cluster {theirs}, but this host belongs to {ours} (ConfigMap coroner-trust)"
    )]
    OtherCluster {
        /// Which replica.
        address: IpAddr,
        /// Its cluster.
        theirs: ClusterId,
        /// Ours.
        ours: ClusterId,
    },
    /// It knows less than this host has already.
    #[error(
        "{address} has slice {theirs}, this host has {ours}; the replica is behind, or was restored from a backup"
    )]
    Older {
        /// Which replica.
        address: IpAddr,
        /// Its version.
        theirs: u64,
        /// Ours.
        ours: u64,
    },
    /// The token cannot be read.
    #[error("read the ServiceAccount token {path} (a projected volume, audience `coroner`)")]
    Token {
        /// Where it should be.
        path: PathBuf,
        /// Why not.
        source: std::io::Error,
    },
}

/// Who this host is, and how it signs requests.
pub(crate) struct Caller {
    pub(crate) node: NodeName,
    pub(crate) address: IpAddr,
    pub(crate) machine: Result<MachineId, String>,
    pub(crate) boot: BootId,
    pub(crate) key: SecretKey,
    pub(crate) token_file: PathBuf,
    number: AtomicU64,
}

// === impl Caller ===

impl Caller {
    pub(crate) fn new(
        node: NodeName,
        address: IpAddr,
        machine: Result<MachineId, String>,
        boot: BootId,
        key: SecretKey,
        token_file: PathBuf,
    ) -> Self {
        Self { node, address, machine, boot, key, token_file, number: AtomicU64::new(0) }
    }

    /// The headers by which a replica knows this host, once it has a Node uid.
    pub(crate) fn signature(
        &self,
        slice: &Slice,
        method: &Method,
        path: &str,
        body: &[u8],
    ) -> Vec<(&'static str, String)> {
        let now = clock::now().as_ms();
        let before = self.number.fetch_max(now, Ordering::Relaxed);
        let number = if before >= now { self.number.fetch_add(1, Ordering::Relaxed) + 1 } else { now };
        let text = request_text(method.as_str(), path, self.boot, number, body);
        let signature = self.key.sign(Purpose::Request, slice.cluster, &text);
        vec![
            (NODE_HEADER, slice.node.to_string()),
            (BOOT_HEADER, self.boot.to_string()),
            (NUMBER_HEADER, number.to_string()),
            (SIGNATURE_HEADER, Hex(&signature).to_string()),
        ]
    }

    /// Says goodbye to whichever replica takes it. Beacons sent until now do not end it.
    ///
    /// # Errors
    /// Of the last replica tried.
    pub(crate) async fn goodbye(
        &self,
        kind: GoodbyeKind,
        trusted: &Trusted,
        slice: &Slice,
    ) -> Result<IpAddr, Option<UplinkError>> {
        let body = serde_json::to_vec(&Goodbye { kind, boot: self.boot, seq: clock::now().as_ms() })
            .unwrap_or_default();
        let mut last = None;
        for address in addresses(trusted, Some(slice)) {
            let saying = async {
                let mut link = Link::open(address, trusted.tls.clone()).await?;
                let headers = self.signature(slice, &Method::POST, GOODBYE, &body);
                let (body, within) = (body.clone(), GOODBYE_WITHIN);
                let call = Call { method: Method::POST, path: GOODBYE, headers, body, within };
                let (status, text) = link.ask(call).await?;
                if status.is_success() { Ok(()) } else { Err(refused(address, status, &text)) }
            };
            match timeout(GOODBYE_WITHIN, saying).await {
                Ok(Ok(())) => return Ok(address),
                Ok(Err(error)) => last = Some(error),
                Err(_) => last = Some(HttpsError::Slow(address, GOODBYE_WITHIN).into()),
            }
        }
        Err(last)
    }
}

// === helpers ===

/// Replicas of the slice first, which is newer, then those of the trust file.
pub(crate) fn addresses(trusted: &Trusted, slice: Option<&Slice>) -> Vec<IpAddr> {
    let newer = slice.into_iter().flat_map(|slice| slice.replicas.iter().map(|r| r.address));
    let mut all = Vec::new();
    for address in newer.chain(trusted.trust.replicas.iter().map(|r| r.address)) {
        if !all.contains(&address) {
            all.push(address);
        }
    }
    all
}

pub(crate) fn refused(address: IpAddr, status: StatusCode, body: &Bytes) -> UplinkError {
    let refusal = serde_json::from_slice(body).unwrap_or_else(|_| Refusal {
        reason: format!("HTTP {}", status.as_u16()),
        message: String::from_utf8_lossy(body).chars().take(200).collect(),
    });
    UplinkError::Refused { address, refusal }
}

pub(crate) fn own_cluster(address: IpAddr, trusted: &Trusted, theirs: ClusterId) -> Result<(), UplinkError> {
    let ours = trusted.trust.cluster;
    if theirs == ours { Ok(()) } else { Err(UplinkError::OtherCluster { address, theirs, ours }) }
}

/// The kubelet renews it; so it is read for each attempt.
pub(crate) async fn read_token(path: &Path) -> Result<String, UplinkError> {
    let owned = path.to_path_buf();
    let read = tokio::task::spawn_blocking(move || std::fs::read_to_string(owned)).await;
    let read = read.unwrap_or_else(|join| Err(std::io::Error::other(join)));
    let text = read.map_err(|source| UplinkError::Token { path: path.to_path_buf(), source })?;
    Ok(text.trim().to_owned())
}
