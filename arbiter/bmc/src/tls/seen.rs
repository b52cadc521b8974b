//! What a BMC's certificate says, for a person to compare and approve. Nothing here is believed: in pin mode only the
//! hashes count, in CA mode `rustls` decides.

use std::fmt;

use coroner_shared::hex::Hex;
use rustls_pki_types::CertificateDer;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};
use x509_parser::public_key::PublicKey;

use crate::error::printable;

/// A certificate as a BMC showed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenCertificate {
    /// SHA-256 of the SubjectPublicKeyInfo, 64 hex digits; `None` where the certificate cannot be parsed at all.
    pub key_sha256: Option<String>,
    /// SHA-256 of the whole certificate, 64 hex digits.
    pub certificate_sha256: String,
    /// Its subject, printable ASCII.
    pub subject: String,
    /// The key's kind and size, such as `RSA 2048`.
    pub key: String,
    /// The key's size in bits where it is an RSA key.
    pub(crate) rsa_bits: Option<usize>,
    /// Not valid before, seconds since 1970; as given, for people and for warnings ahead of time.
    pub not_before: i64,
    /// Not valid after, seconds since 1970.
    pub not_after: i64,
}

// === impl SeenCertificate ===

impl SeenCertificate {
    pub(crate) fn of(certificate: &CertificateDer<'_>) -> Self {
        let certificate_sha256 = sha256(certificate);
        let Ok((_, parsed)) = X509Certificate::from_der(certificate) else {
            return Self {
                key_sha256: None,
                certificate_sha256,
                subject: "(cannot be parsed)".to_owned(),
                key: "unknown key".to_owned(),
                rsa_bits: None,
                not_before: 0,
                not_after: 0,
            };
        };
        let (key, rsa_bits) = match parsed.public_key().parsed() {
            Ok(PublicKey::RSA(rsa)) => {
                // A positive DER integer may begin with one zero byte, which is no part of the size.
                let bits = rsa.modulus.iter().skip_while(|byte| **byte == 0).count() * 8;
                (format!("RSA {bits}"), Some(bits))
            }
            Ok(PublicKey::EC(point)) => (format!("EC {}", point.key_size()), None),
            Ok(_) | Err(_) => (format!("algorithm {}", parsed.public_key().algorithm.algorithm), None),
        };
        Self {
            key_sha256: Some(sha256(parsed.public_key().raw)),
            certificate_sha256,
            subject: printable(&parsed.subject().to_string()),
            key,
            rsa_bits,
            not_before: parsed.validity().not_before.timestamp(),
            not_after: parsed.validity().not_after.timestamp(),
        }
    }

    /// ring takes RSA keys of 2048 to 8192 bits; below that no signature holds, whatever it is.
    pub(crate) fn is_weak(&self) -> bool {
        self.rsa_bits.is_some_and(|bits| bits < 2048)
    }

    /// What tells one BMC from another: the key's hash, or the certificate's where the key cannot be read.
    pub(crate) fn identity(&self) -> &str {
        self.key_sha256.as_deref().unwrap_or(&self.certificate_sha256)
    }
}

impl fmt::Display for SeenCertificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let key_sha256 = self.key_sha256.as_deref().unwrap_or("unreadable");
        write!(
            f,
            "\"{}\" ({}; key SHA-256 {key_sha256}; certificate SHA-256 {})",
            self.subject, self.key, self.certificate_sha256
        )
    }
}

// === helpers ===

fn sha256(bytes: &[u8]) -> String {
    Hex(&Sha256::digest(bytes)).to_string()
}
