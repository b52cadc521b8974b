//! The lab's CA and the certificates of its BMCs. The CA and each BMC's key are files, so that a pin or a CA bundle
//! outlives a restart of the emulator; the odd certificates (expired, wrong name, ...) are made when asked for.
//!
//! TLS 1.2 and 1.3, no client certificates. Keys are P-256: ring makes no RSA keys, so weak ones are not shown here.

use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, PublicKeyData, date_time_ymd,
};
use rustls::version::{TLS12, TLS13};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};

use super::knobs::{Certificate, Versions};
use crate::lab::writer::boottime_ns;

/// The CA of the lab.
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: PathBuf,
}

/// A certificate with its key, ready to serve, and its fingerprints.
#[derive(Clone, Debug)]
pub struct Identity {
    /// What a server needs.
    pub config: Arc<rustls::ServerConfig>,
    /// SHA-256 of the SubjectPublicKeyInfo, hex.
    pub key_sha256: String,
    /// SHA-256 of the certificate, hex.
    pub certificate_sha256: String,
}

// === impl Authority ===

impl Authority {
    /// Reads the CA of this folder (`ca.pem`, `ca.key`), or makes one.
    ///
    /// # Errors
    /// If the files cannot be read, written or understood.
    pub fn open(folder: &Path) -> anyhow::Result<Self> {
        fs::create_dir_all(folder.join("tls")).context("make the folder of the certificates")?;
        let key = key_file(&folder.join("ca.key"))?;
        let path = folder.join("ca.pem");
        if !path.exists() {
            let mut params = CertificateParams::default();
            // A name of its own: two CAs of one name would fail by their signature, not as unknown.
            let name = format!("Coroner lab CA {:x}", boottime_ns());
            params.distinguished_name.push(DnType::CommonName, name);
            params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
            params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
            let certificate = params.self_signed(&key).context("sign the CA")?;
            fs::write(&path, certificate.pem()).context("write ca.pem")?;
        }
        let pem = fs::read_to_string(&path).context("read ca.pem")?;
        let issuer = Issuer::from_ca_cert_pem(&pem, key).context("understand ca.pem")?;
        Ok(Self { issuer, folder: folder.to_owned() })
    }

    /// The CA's certificate, PEM: what a client is to trust.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// A certificate for `name`.bmc.lab and `address`, of the kind asked for. The good one is also written to
    /// `tls/NAME.crt`.
    ///
    /// # Errors
    /// If the key cannot be read or made, or a file not written.
    pub fn issue(
        &self,
        (name, address): (&str, &str),
        kind: Certificate,
        versions: Versions,
    ) -> anyhow::Result<Identity> {
        let (key, key_path) = match kind {
            Certificate::NewKey => (KeyPair::generate().context("make a key")?, None),
            Certificate::Good
            | Certificate::Expired
            | Certificate::WrongName
            | Certificate::SelfSigned
            | Certificate::SelfSignedCa => {
                let path = self.folder.join("tls").join(format!("{name}.key"));
                (key_file(&path)?, Some(path))
            }
        };
        let names = match kind {
            Certificate::WrongName => vec!["other.bmc.lab".to_owned(), "192.0.2.1".to_owned()],
            Certificate::Good
            | Certificate::Expired
            | Certificate::SelfSigned
            | Certificate::SelfSignedCa
            | Certificate::NewKey => {
                vec![dns_name(name), address.to_owned()]
            }
        };
        let mut params = CertificateParams::new(names).context("name the certificate")?;
        params.distinguished_name.push(DnType::CommonName, dns_name(name));
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        (params.not_before, params.not_after) = (date_time_ymd(2024, 1, 1), date_time_ymd(2124, 1, 1));
        if kind == Certificate::Expired {
            (params.not_before, params.not_after) = (date_time_ymd(2019, 1, 1), date_time_ymd(2020, 1, 1));
        }
        if kind == Certificate::SelfSignedCa {
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        }
        let certificate = match kind {
            Certificate::SelfSigned | Certificate::SelfSignedCa => params.self_signed(&key),
            Certificate::Good | Certificate::Expired | Certificate::WrongName | Certificate::NewKey => {
                params.signed_by(&key, &self.issuer)
            }
        };
        let certificate = certificate.context("sign the certificate")?;
        if let (Certificate::Good, Some(path)) = (kind, key_path) {
            fs::write(path.with_extension("crt"), certificate.pem()).context("write the certificate")?;
        }
        identity(&key, certificate.der().clone(), versions)
    }
}

/// The DNS name in a BMC's certificate.
#[must_use]
pub fn dns_name(name: &str) -> String {
    format!("{name}.bmc.lab")
}

// === helpers ===

fn identity(
    key: &KeyPair,
    certificate: CertificateDer<'static>,
    versions: Versions,
) -> anyhow::Result<Identity> {
    let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let (key_sha256, certificate_sha256) = (hex(&key.subject_public_key_info()), hex(&certificate));
    let versions: &[&rustls::SupportedProtocolVersion] = match versions {
        Versions::Both => &[&TLS13, &TLS12],
        Versions::Only12 => &[&TLS12],
        Versions::Only13 => &[&TLS13],
    };
    let mut config = rustls::ServerConfig::builder_with_protocol_versions(versions)
        .with_no_client_auth()
        .with_single_cert(vec![certificate], private)
        .context("use the certificate")?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Identity { config: Arc::new(config), key_sha256, certificate_sha256 })
}

fn hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The key in this file (PEM, readable by its owner only), made if there is none.
fn key_file(path: &Path) -> anyhow::Result<KeyPair> {
    if !path.exists() {
        let key = KeyPair::generate().context("make a key")?;
        let mut file = fs::OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("create {}", path.display()))?;
        file.write_all(key.serialize_pem().as_bytes()).context("write a key")?;
    }
    let pem = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    KeyPair::from_pem(&pem).with_context(|| format!("understand {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_and_the_ca_outlive_a_restart_and_only_a_new_key_is_new() {
        rustls::crypto::ring::default_provider().install_default().ok();
        let folder = tempfile::tempdir().unwrap();
        let first = Authority::open(folder.path()).unwrap();
        let ca = fs::read(first.ca_file()).unwrap();
        let issue = |from: &Authority, name, kind| {
            from.issue((name, "127.0.0.1"), kind, Versions::Both).unwrap().key_sha256
        };
        let good = issue(&first, "n1", Certificate::Good);
        let again = Authority::open(folder.path()).unwrap();
        assert_eq!(ca, fs::read(again.ca_file()).unwrap());
        let same = |kind| issue(&again, "n1", kind) == good;
        assert!(same(Certificate::Good) && same(Certificate::Expired) && same(Certificate::SelfSigned));
        assert!(!same(Certificate::NewKey));
        assert_ne!(issue(&again, "n2", Certificate::Good), good);
    }
}
