//! How a replica comes to its identity: from the Secret `coroner-cluster` at its first start, from its own disk ever
//! after, so that a restart needs no API server.
//!
//! The Raft id belongs to the disk. Before a replica answers its first message it has synced its disk and set its mark
//! in the Secret; an empty disk beside a mark is a lost disk and never starts under its old id.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use coroner_shared::id::{NodeName, ReplicaId};
use coroner_shared::keys::SecretKey;
use coroner_shared::names::{CLUSTER_SECRET, NAMESPACE};
use coroner_shared::trust::{CA_CERTIFICATE, CA_KEY, FOUNDERS, Founders, mark_of};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::pki::{self, ReplicaCertificate};

/// What a replica knows of itself and its group.
#[derive(Clone)]
pub struct Identity {
    /// Its Raft id.
    pub id: ReplicaId,
    /// The group.
    pub founders: Founders,
    /// The CA's certificate, PEM.
    pub ca: String,
    /// Its own certificate and key.
    pub certificate: ReplicaCertificate,
    /// The key of its datagrams.
    pub key: SecretKey,
}

/// Why a replica does not start.
#[derive(Debug, Error)]
pub enum BirthError {
    /// The disk.
    #[error("cannot {what} {path}")]
    Disk {
        /// A verb.
        what: &'static str,
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// What the disk holds is not what was written.
    #[error(
        "{path} is damaged ({why}); this disk is lost; the other replicas go on without it. This version cannot make a new member of this node"
    )]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The API server, at a first start.
    #[error(
        "cannot read or mark Secret {NAMESPACE}/{CLUSTER_SECRET}, which a first start needs; it is tried again"
    )]
    Api(#[source] Box<kube::Error>),
    /// `coroner arbiter init` has not run.
    #[error(
        "Secret {NAMESPACE}/{CLUSTER_SECRET} is not there yet: the Job coroner-init (`coroner arbiter init`) makes it; waiting for it"
    )]
    NoSecret,
    /// The Secret is not what init writes.
    #[error("Secret {NAMESPACE}/{CLUSTER_SECRET} key {key}: {why}")]
    BadSecret {
        /// Which key.
        key: &'static str,
        /// What is wrong with it.
        why: String,
    },
    /// This node is no member.
    #[error(
        "node {node} is no member of the arbiter (members: {members}); remove the label coroner.dev/arbiter from it; this version cannot add a member"
    )]
    NotAMember {
        /// This node.
        node: NodeName,
        /// The members.
        members: String,
    },
    /// The disk is empty, but this member has lived before.
    #[error(
        "the disk of replica {id} on {node} is empty, yet it has been used before: it is lost. It never starts under its old id, since it may have voted. The other replicas go on without it; this version cannot make a new member, so keep them healthy"
    )]
    LostDisk {
        /// Which replica.
        id: ReplicaId,
        /// On which node.
        node: NodeName,
    },
    /// Certificates.
    #[error("cannot make the replica's certificate")]
    Pki(#[from] pki::PkiError),
    /// No randomness.
    #[error("the system gives no random bytes for a key: {0}")]
    Random(getrandom::Error),
}

/// What a first start leaves on the disk, as one file: all of it or none.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct OnDisk {
    id: ReplicaId,
    founders: Founders,
    ca: String,
    certificate: String,
    tls_key: String,
    key_seed: String,
}

/// File of [`OnDisk`] in the state folder.
const FILE: &str = "identity.json";

/// Reads the identity from the disk; `None` on an empty one.
///
/// # Errors
/// Unreadable or damaged.
pub fn from_disk(state: &Path) -> Result<Option<Identity>, BirthError> {
    let path = state.join(FILE);
    let text = match std::fs::read_to_string(&path) {
        Ok(text) => Zeroizing::new(text),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(BirthError::Disk { what: "read", path, source }),
    };
    let damaged = |why: String| BirthError::Damaged { path: path.clone(), why };
    let disk: OnDisk = serde_json::from_str(&text).map_err(|e| damaged(e.to_string()))?;
    let seed = Zeroizing::new(
        coroner_shared::hex::parse::<32>(&disk.key_seed)
            .ok_or_else(|| damaged("the key is cut short".to_owned()))?,
    );
    Ok(Some(Identity {
        id: disk.id,
        founders: disk.founders,
        ca: disk.ca,
        certificate: ReplicaCertificate { certificate: disk.certificate, key: Zeroizing::new(disk.tls_key) },
        key: SecretKey::from_seed(&seed),
    }))
}

/// Who this replica is: from its own disk, or born now. `begun`: its log is begun, so it may have spoken before.
///
/// # Errors
/// See [`BirthError`]; [`BirthError::NoSecret`] and [`BirthError::Api`] are worth another try.
pub async fn identity(
    client: &Client,
    namespace: &str,
    node: &NodeName,
    state: &Path,
    begun: bool,
) -> Result<Identity, BirthError> {
    let Some(identity) = from_disk(state)? else { return first_start(client, namespace, node, state).await };
    if !begun {
        // A start that ended between its disk and its mark; without the mark nobody would miss this disk.
        set_mark(client, namespace, node, identity.id).await?;
    }
    Ok(identity)
}

/// A first start: finds this node among the founders, makes keys, syncs them, sets the mark.
///
/// # Errors
/// See [`BirthError`]; [`BirthError::NoSecret`] and [`BirthError::Api`] are worth another try.
pub async fn first_start(
    client: &Client,
    namespace: &str,
    node: &NodeName,
    state: &Path,
) -> Result<Identity, BirthError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let secret = secrets
        .get_opt(CLUSTER_SECRET)
        .await
        .map_err(|e| BirthError::Api(Box::new(e)))?
        .ok_or(BirthError::NoSecret)?;
    let founders: Founders = serde_json::from_str(&text_of(&secret, FOUNDERS)?)
        .map_err(|e| BirthError::BadSecret { key: FOUNDERS, why: e.to_string() })?;
    let Some(own) = founders.members.iter().find(|m| m.node == *node).cloned() else {
        let members = founders.members.iter().map(|m| m.node.to_string()).collect::<Vec<_>>().join(", ");
        return Err(BirthError::NotAMember { node: node.clone(), members });
    };
    let mark = mark_of(own.id);
    if secret.data.as_ref().is_some_and(|d| d.contains_key(&mark)) {
        return Err(BirthError::LostDisk { id: own.id, node: node.clone() });
    }
    let ca = text_of(&secret, CA_CERTIFICATE)?;
    let ca_key = text_of(&secret, CA_KEY)?;
    let certificate = pki::issue(&ca, &ca_key, own.id, own.address)?;
    let mut seed = Zeroizing::new([0_u8; 32]);
    getrandom::fill(&mut *seed).map_err(BirthError::Random)?;
    let identity =
        Identity { id: own.id, founders, ca: ca.to_string(), certificate, key: SecretKey::from_seed(&seed) };
    save(state, &identity)?;
    set_mark(client, namespace, node, identity.id).await?;
    Ok(identity)
}

/// The mark says that this member's disk has been used.
async fn set_mark(
    client: &Client,
    namespace: &str,
    node: &NodeName,
    id: ReplicaId,
) -> Result<(), BirthError> {
    let secrets: Api<Secret> = Api::namespaced(client.clone(), namespace);
    let mark = mark_of(id);
    let patch = serde_json::json!({ "stringData": { mark: format!("used by {node}") } });
    secrets
        .patch(CLUSTER_SECRET, &PatchParams::default(), &Patch::Merge(patch))
        .await
        .map_err(|e| BirthError::Api(Box::new(e)))?;
    Ok(())
}

fn text_of(secret: &Secret, key: &'static str) -> Result<Zeroizing<String>, BirthError> {
    let bad = |why: &str| BirthError::BadSecret { key, why: why.to_owned() };
    let bytes = secret
        .data
        .as_ref()
        .and_then(|d| d.get(key))
        .ok_or_else(|| bad("is missing; `coroner arbiter init` writes it"))?;
    String::from_utf8(bytes.0.clone()).map(Zeroizing::new).map_err(|_| bad("is not text"))
}

/// Writes the identity so that it is there whole after a loss of power, or not at all.
fn save(state: &Path, identity: &Identity) -> Result<(), BirthError> {
    let disk = OnDisk {
        id: identity.id,
        founders: identity.founders.clone(),
        ca: identity.ca.clone(),
        certificate: identity.certificate.certificate.clone(),
        tls_key: identity.certificate.key.to_string(),
        key_seed: coroner_shared::hex::Hex(&identity.key.seed()).to_string(),
    };
    let failed = |what, path: &Path| {
        let path = path.to_owned();
        move |source| BirthError::Disk { what, path, source }
    };
    std::fs::create_dir_all(state).map_err(failed("make the folder", state))?;
    let text = Zeroizing::new(
        serde_json::to_string(&disk)
            .map_err(|e| BirthError::Damaged { path: state.to_owned(), why: e.to_string() })?,
    );
    let (path, fresh) = (state.join(FILE), state.join("identity.json.new"));
    let mut file = std::fs::OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(&fresh)
        .map_err(failed("make", &fresh))?;
    file.write_all(text.as_bytes()).and_then(|()| file.sync_all()).map_err(failed("write", &fresh))?;
    std::fs::rename(&fresh, &path).map_err(failed("put in place", &path))?;
    std::fs::File::open(state).and_then(|f| f.sync_all()).map_err(failed("sync the folder of", &path))
}
