//! The mounted ConfigMap `coroner-trust`: waits for it, reads it, and reads it again when it changes.
//!
//! Needed for the first contact only; what changes later comes with the slice. So a file that disappears or goes bad
//! changes nothing for an agent that has read a good one.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use coroner_shared::time::Mono;
use coroner_shared::trust::{TRUST_FILE, Trust, TrustError};
use rustls::ClientConfig;
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;
use thiserror::Error;
use tokio::sync::watch;
use tracing::{info, warn};

use crate::clock;

/// How often the file is looked at: the kubelet itself brings changes to a mount about once a minute.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// The same while there is none: an installation that comes up should not wait for us.
const LOOK_EVERY_FIRST: Duration = Duration::from_secs(1);
/// How often the wait is told.
const TELL_EVERY_MS: u64 = 60_000;

/// Whom this host may believe, ready for use.
#[derive(Clone, Debug)]
pub(crate) struct Trusted {
    /// The file.
    pub(crate) trust: Trust,
    /// TLS that takes certificates of the file's CA and no others.
    pub(crate) tls: Arc<ClientConfig>,
}

/// Why there is nothing to trust.
#[derive(Debug, Error)]
enum ReadError {
    #[error("read {path}")]
    Io { path: PathBuf, source: io::Error },
    #[error("read {path}")]
    Form { path: PathBuf, source: TrustError },
    #[error("the field `ca` of {path} holds no certificate that can be used: {why}")]
    Ca { path: PathBuf, why: String },
}

/// Publishes the newest good reading; runs for ever.
pub(crate) async fn watch(folder: PathBuf, out: watch::Sender<Option<Trusted>>) {
    let path = folder.join(TRUST_FILE);
    let started = clock::now();
    let mut told: Option<Mono> = None;
    let mut last_error = String::new();
    loop {
        match read(&path).await {
            Ok(trusted) => {
                last_error.clear();
                publish(&out, trusted);
            }
            Err(error) => {
                let text = crate::journal::chain(&error);
                let now = clock::now();
                let again = told.is_none_or(|at| now.since(at).as_ms() >= TELL_EVERY_MS);
                if out.borrow().is_some() {
                    if text != last_error {
                        warn!(error = %text, "the trust file went bad; the agent goes on with what it read before");
                    }
                } else if again || text != last_error {
                    told = Some(now);
                    warn!(
                        error = %text,
                        waiting_for = %now.since(started),
                        "waits for ConfigMap coroner-trust; until then this host cannot register. \
                         `coroner arbiter init` writes it, --trust-dir says where it is mounted"
                    );
                }
                last_error = text;
            }
        }
        let first = out.borrow().is_none();
        tokio::time::sleep(if first { LOOK_EVERY_FIRST } else { LOOK_EVERY }).await;
    }
}

// === helpers ===

fn publish(out: &watch::Sender<Option<Trusted>>, trusted: Trusted) {
    let known = out.borrow().as_ref().is_some_and(|before| before.trust == trusted.trust);
    if !known {
        info!(cluster = %trusted.trust.cluster, replicas = trusted.trust.replicas.len(), "read ConfigMap coroner-trust");
        out.send_replace(Some(trusted));
    }
}

/// Off the runtime's thread: the mount is on the host's disk, which may hang.
async fn read(path: &Path) -> Result<Trusted, ReadError> {
    let owned = path.to_path_buf();
    let text = tokio::task::spawn_blocking(move || std::fs::read_to_string(owned)).await;
    let text = text.unwrap_or_else(|join| Err(io::Error::other(join)));
    parse(path, &text.map_err(|source| ReadError::Io { path: path.to_path_buf(), source })?)
}

fn parse(path: &Path, text: &str) -> Result<Trusted, ReadError> {
    let owned = || path.to_path_buf();
    let trust = Trust::parse(text).map_err(|source| ReadError::Form { path: owned(), source })?;
    let bad = |why: String| ReadError::Ca { path: owned(), why };
    let mut roots = rustls::RootCertStore::empty();
    for certificate in CertificateDer::pem_slice_iter(trust.ca.as_bytes()) {
        let certificate = certificate.map_err(|error| bad(error.to_string()))?;
        roots.add(certificate).map_err(|error| bad(error.to_string()))?;
    }
    if roots.is_empty() {
        return Err(bad("it is empty".to_owned()));
    }
    let tls = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    Ok(Trusted { trust, tls: Arc::new(tls) })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ca() -> String {
        let key = rcgen::KeyPair::generate().unwrap();
        let mut parameters = rcgen::CertificateParams::default();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters.self_signed(&key).unwrap().pem()
    }

    fn file(ca: &str, replicas: u64) -> String {
        let replica =
            |n: u64| serde_json::json!({"id": n, "host": format!("n{n}"), "address": format!("10.0.0.{n}")});
        let replicas: Vec<_> = (1..=replicas).map(replica).collect();
        let cluster = "8d2c6f3a-1b4e-4c7d-9e0f-000000000001";
        serde_json::json!({"cluster": cluster, "ca": ca, "replicas": replicas}).to_string()
    }

    fn install_ring() {
        let _ = rustls::crypto::ring::default_provider().install_default();
    }

    #[test]
    fn a_good_file_gives_replicas_and_tls() {
        install_ring();
        let trusted = parse(Path::new("/t/cluster.json"), &file(&ca(), 3)).unwrap();
        assert_eq!(trusted.trust.replicas.len(), 3);
        assert!(
            parse(Path::new("/t"), &file(&format!("{}{}", ca(), ca()), 1)).is_ok(),
            "two CAs: a change of CA"
        );
    }

    #[test]
    fn a_bad_file_is_refused_with_its_name() {
        install_ring();
        let broken = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let unended = "-----BEGIN CERTIFICATE-----";
        for text in ["{", &file("x", 1), &file(broken, 1), &file(unended, 1), &file(&ca(), 0)] {
            let error = parse(Path::new("/t/cluster.json"), text).unwrap_err().to_string();
            assert!(error.contains("/t/cluster.json"), "{error}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_file_is_waited_for_and_read_again_when_it_changes() {
        install_ring();
        let folder = tempfile::tempdir().unwrap();
        let (out, mut seen) = watch::channel(None);
        let task = tokio::spawn(watch(folder.path().to_path_buf(), out));
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert!(seen.borrow().is_none());
        for (text, replicas) in [(file(&ca(), 1), 1), (file(&ca(), 3), 3)] {
            std::fs::write(folder.path().join(TRUST_FILE), text).unwrap();
            seen.changed().await.unwrap();
            assert_eq!(seen.borrow_and_update().as_ref().unwrap().trust.replicas.len(), replicas);
        }
        std::fs::remove_file(folder.path().join(TRUST_FILE)).unwrap();
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(seen.borrow().is_some(), "a file that goes away changes nothing");
        task.abort();
    }
}
