//! Certificates of the replicas: signed by the CA that `coroner arbiter init` made, checked by it on both ends.
//!
//! A replica's certificate names it (`replica-<id>.coroner`) and its address. Agents check the address; replicas
//! check each other's name, so that a message of Raft can only come from the replica it claims to come from.

use std::net::IpAddr;
use std::sync::Arc;

use coroner_shared::id::ReplicaId;
use rcgen::{
    CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, Issuer, KeyPair, KeyUsagePurpose,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use thiserror::Error;
use zeroize::Zeroizing;

/// What is wrong with a key or certificate. Keys are never shown.
#[derive(Debug, Error)]
pub enum PkiError {
    /// rcgen cannot make or read it.
    #[error("cannot {what}")]
    Make {
        /// A verb.
        what: &'static str,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// A PEM text is none.
    #[error("{what} is not PEM")]
    Pem {
        /// Which.
        what: &'static str,
    },
    /// rustls refuses it.
    #[error("cannot use {what} for TLS")]
    Tls {
        /// Which.
        what: &'static str,
        /// Why.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
}

/// A replica's key and certificate, PEM.
#[derive(Clone)]
pub struct ReplicaCertificate {
    /// The certificate.
    pub certificate: String,
    /// Its key.
    pub key: Zeroizing<String>,
}

/// The name in a replica's certificate.
pub fn replica_name(id: ReplicaId) -> String {
    format!("replica-{id}.coroner")
}

/// Makes a key for a replica and signs its certificate with the CA.
///
/// # Errors
/// The CA's texts are none, or signing fails.
pub fn issue(
    ca_certificate: &str,
    ca_key: &str,
    id: ReplicaId,
    address: IpAddr,
) -> Result<ReplicaCertificate, PkiError> {
    let make = |what| move |source| PkiError::Make { what, source };
    let ca_key = KeyPair::from_pem(ca_key).map_err(make("read the CA's key"))?;
    let issuer =
        Issuer::from_ca_cert_pem(ca_certificate, ca_key).map_err(make("read the CA's certificate"))?;
    let key = KeyPair::generate().map_err(make("make a key"))?;
    let names = vec![replica_name(id), address.to_string(), "localhost".to_owned()];
    let mut params = CertificateParams::new(names).map_err(make("name a certificate"))?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, replica_name(id));
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages =
        vec![ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth];
    let certificate = params.signed_by(&key, &issuer).map_err(make("sign a certificate"))?;
    Ok(ReplicaCertificate { certificate: certificate.pem(), key: Zeroizing::new(key.serialize_pem()) })
}

/// Roots holding the CA only.
///
/// # Errors
/// The text is no certificate.
pub fn roots(ca_certificate: &str) -> Result<Arc<RootCertStore>, PkiError> {
    let mut roots = RootCertStore::empty();
    let ca = CertificateDer::from_pem_slice(ca_certificate.as_bytes())
        .map_err(|_| PkiError::Pem { what: "the CA's certificate" })?;
    roots.add(ca).map_err(|e| PkiError::Tls { what: "the CA's certificate", source: e.into() })?;
    Ok(Arc::new(roots))
}

/// TLS of a replica's servers: a client's certificate is asked for and checked, and may be absent (agents have none).
///
/// # Errors
/// A text is not PEM, or rustls refuses the pair.
pub fn server(ca_certificate: &str, own: &ReplicaCertificate) -> Result<Arc<ServerConfig>, PkiError> {
    let verifier = WebPkiClientVerifier::builder(roots(ca_certificate)?)
        .allow_unauthenticated()
        .build()
        .map_err(|e| PkiError::Tls { what: "the CA's certificate", source: e.into() })?;
    let (certificates, key) = chain(own)?;
    let mut config = ServerConfig::builder()
        .with_client_cert_verifier(verifier)
        .with_single_cert(certificates, key)
        .map_err(|e| PkiError::Tls { what: "the replica's certificate", source: e.into() })?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// TLS of a replica towards the others: shows its own certificate, believes the CA only.
///
/// # Errors
/// As [`server`].
pub fn client(ca_certificate: &str, own: &ReplicaCertificate) -> Result<ClientConfig, PkiError> {
    let (certificates, key) = chain(own)?;
    ClientConfig::builder()
        .with_root_certificates(roots(ca_certificate)?)
        .with_client_auth_cert(certificates, key)
        .map_err(|e| PkiError::Tls { what: "the replica's certificate", source: e.into() })
}

/// Which replica a verified certificate names.
pub fn peer_of(certificate: &CertificateDer<'_>) -> Option<ReplicaId> {
    let (_, parsed) = x509_parser::parse_x509_certificate(certificate).ok()?;
    let name = parsed.subject().iter_common_name().next()?.as_str().ok()?;
    let id = name.strip_prefix("replica-")?.strip_suffix(".coroner")?;
    id.parse().ok().and_then(|id| ReplicaId::new(id).ok())
}

fn chain(
    own: &ReplicaCertificate,
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), PkiError> {
    let certificate = CertificateDer::from_pem_slice(own.certificate.as_bytes())
        .map_err(|_| PkiError::Pem { what: "the replica's certificate" })?;
    let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes())
        .map_err(|_| PkiError::Pem { what: "the replica's key" })?;
    Ok((vec![certificate], key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::{BasicConstraints, CertifiedIssuer, IsCa};

    fn ca() -> (String, String) {
        let mut params = CertificateParams::new(Vec::<String>::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        let key = KeyPair::generate().unwrap();
        let key_text = key.serialize_pem();
        (CertifiedIssuer::self_signed(params, key).unwrap().pem(), key_text)
    }

    #[test]
    fn a_certificate_names_its_replica() {
        crate::testing::provider();
        let (ca_certificate, ca_key) = ca();
        let id = ReplicaId::new(3).unwrap();
        let own = issue(&ca_certificate, &ca_key, id, "10.0.0.3".parse().unwrap()).unwrap();
        let der = CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap();
        assert_eq!(peer_of(&der), Some(id));
        assert!(server(&ca_certificate, &own).is_ok());
        assert!(client(&ca_certificate, &own).is_ok());
    }

    #[test]
    fn texts_that_are_no_pem_are_named_without_showing_them() {
        let (ca_certificate, ca_key) = ca();
        let id = ReplicaId::new(1).unwrap();
        let address = "10.0.0.3".parse().unwrap();
        let error = issue(&ca_certificate, "s3cret", id, address).err().unwrap().to_string();
        assert!(error.contains("CA's key") && !error.contains("s3cret"), "{error}");
        assert!(issue("x", &ca_key, id, address).err().unwrap().to_string().contains("CA's certificate"));
        assert!(roots("x").is_err());
    }
}
