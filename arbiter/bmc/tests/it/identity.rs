//! Certificates as BMCs have them: good ones from an authority, and the kinds that factories make.

use std::sync::Arc;

use coroner_bmc::{Pin, PinOf, Trust};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair, PKCS_ECDSA_P256_SHA256,
    PKCS_RSA_SHA256, PublicKeyData, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls::{ServerConfig, SupportedProtocolVersion};
use rustls_pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use sha2::{Digest, Sha256};

pub const USER: &str = "coroner";
pub const PASSWORD: &str = "canary-Passw0rd";

/// A server's certificate and key, and how to trust them.
#[derive(Clone)]
pub struct Identity {
    pub server: Arc<ServerConfig>,
    pub certificate: CertificateDer<'static>,
    pub key_sha256: [u8; 32],
    pub ca_pem: String,
}

#[derive(Debug)]
struct Always(Arc<CertifiedKey>);

impl ResolvesServerCert for Always {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.0))
    }
}

pub fn key() -> KeyPair {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).unwrap()
}

fn server(
    certificate: CertificateDer<'static>,
    key: &KeyPair,
    versions: &[&'static SupportedProtocolVersion],
) -> Arc<ServerConfig> {
    let der = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(key.serialize_der()));
    let signer = ring::sign::any_supported_type(&der).unwrap();
    let certified = CertifiedKey::new(vec![certificate], signer);
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(Always(Arc::new(certified))));
    Arc::new(config)
}

impl Identity {
    /// Issued by a private authority, for `127.0.0.1` and `n1.bmc.lab`, as `change` leaves it.
    pub fn issued_with(change: impl FnOnce(&mut CertificateParams)) -> Self {
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        ca.distinguished_name.push(DnType::CommonName, "test authority");
        let ca = CertifiedIssuer::self_signed(ca, key()).unwrap();
        let names = ["127.0.0.1".to_owned(), "n1.bmc.lab".to_owned()];
        let mut params = CertificateParams::new(names).unwrap();
        change(&mut params);
        let own = key();
        let certificate = params.signed_by(&own, &ca).unwrap().der().clone();
        Self::assemble(certificate, &own, ca.pem())
    }

    pub fn issued() -> Self {
        Self::issued_with(|_| {})
    }

    /// What a factory makes: self-signed, an authority of its own, common name only, expired long ago.
    pub fn factory() -> Self {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, "BMC default certificate");
        params.not_before = date_time_ymd(2001, 1, 1);
        params.not_after = date_time_ymd(2002, 1, 1);
        Self::self_signed(&params)
    }

    /// What `openssl req -x509` makes: self-signed and CA:TRUE, otherwise in order.
    pub fn authority() -> Self {
        let mut params = CertificateParams::new(["127.0.0.1".to_owned()]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self::self_signed(&params)
    }

    pub fn self_signed(params: &CertificateParams) -> Self {
        let own = key();
        let certificate = params.self_signed(&own).unwrap();
        Self::assemble(certificate.der().clone(), &own, certificate.pem())
    }

    /// X.509 version 1: neither version nor extensions. Its signature is that of the version 3 form and thus wrong,
    /// which pin mode does not care about.
    pub fn version_1() -> Self {
        let own = key();
        let v3 = CertificateParams::default().self_signed(&own).unwrap().der().to_vec();
        let outer = parts(&v3);
        let inner = parts(&outer[0]);
        let kept = inner.iter().filter(|field| !matches!(field[0], 0xa0 | 0xa3)).cloned().collect::<Vec<_>>();
        let v1 =
            sequence(&[&sequence(&kept.iter().map(Vec::as_slice).collect::<Vec<_>>()), &outer[1], &outer[2]]);
        Self::assemble(CertificateDer::from(v1), &own, String::new())
    }

    /// The certificate of another, without its private key.
    pub fn impostor_of(other: &Self) -> Self {
        Self { server: server(other.certificate.clone(), &key(), rustls::ALL_VERSIONS), ..other.clone() }
    }

    /// As most BMCs have it: an RSA key of 2048 bits.
    pub fn rsa() -> Self {
        let pem = include_str!("rsa_2048.pem");
        let own = KeyPair::from_pkcs8_pem_and_sign_algo(pem, &PKCS_RSA_SHA256).unwrap();
        let certificate = CertificateParams::default().self_signed(&own).unwrap().der().clone();
        Self::assemble(certificate, &own, String::new())
    }

    fn assemble(certificate: CertificateDer<'static>, own: &KeyPair, ca_pem: String) -> Self {
        let key_sha256 = Sha256::digest(own.subject_public_key_info()).into();
        Self {
            server: server(certificate.clone(), own, rustls::ALL_VERSIONS),
            certificate,
            key_sha256,
            ca_pem,
        }
    }

    /// The same with TLS 1.2 or 1.3 only.
    pub fn only(mut self, version: &'static SupportedProtocolVersion) -> Self {
        let resolver = Arc::clone(&self.server.cert_resolver);
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_protocol_versions(&[version])
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(resolver);
        self.server = Arc::new(config);
        self
    }

    pub fn pin(&self, of: PinOf) -> Trust {
        let sha256 = match of {
            PinOf::Key => self.key_sha256,
            PinOf::Certificate => Sha256::digest(&self.certificate).into(),
        };
        Trust::Pins(vec![Pin { sha256, of }])
    }

    pub fn ca(&self, server_name: Option<&str>) -> Trust {
        Trust::CaBundle { pem: self.ca_pem.clone(), server_name: server_name.map(str::to_owned) }
    }
}

/// The elements of a DER sequence, each with its header.
fn parts(der: &[u8]) -> Vec<Vec<u8>> {
    let (mut at, end) = content(der, 0);
    let mut out = Vec::new();
    while at < end {
        let (_, next) = content(der, at);
        out.push(der[at..next].to_vec());
        at = next;
    }
    out
}

/// Where the content of the element at `at` begins and ends.
fn content(der: &[u8], at: usize) -> (usize, usize) {
    let first = usize::from(der[at + 1]);
    if first < 0x80 {
        return (at + 2, at + 2 + first);
    }
    let count = first - 0x80;
    let length = der[at + 2..at + 2 + count].iter().fold(0, |n, byte| n * 256 + usize::from(*byte));
    (at + 2 + count, at + 2 + count + length)
}

fn sequence(elements: &[&[u8]]) -> Vec<u8> {
    let body = elements.concat();
    let [high, low] = u16::try_from(body.len()).unwrap().to_be_bytes();
    [&[0x30, 0x82, high, low], body.as_slice()].concat()
}
