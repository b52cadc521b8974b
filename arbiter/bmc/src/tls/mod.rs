//! Whom we trust to be a BMC, and the TLS settings that follow. Verification cannot be switched off: there is no such
//! field here, and none of `rustls`'s dangerous shortcuts is used except to put our own, stricter verifier in.
//!
//! * **CA mode** checks everything a browser would (chain, name, dates, usage) against the given bundle and no other
//!   root. The name may differ from the address, since BMCs are often reached by number.
//! * **Pin mode** checks the exact key or certificate and that the peer holds the private key. Name, dates, CA flags
//!   and chain are ignored by design: factory certificates are self-signed, expired, for `localhost`, or all three.
//!
//! TLS 1.2 at least, `ring` only. Sessions are not resumed: each new connection proves the key afresh, because "over
//! a new connection" is part of what a reading is worth.

mod seen;
mod verifier;

use std::fmt;
use std::sync::Arc;

use coroner_shared::hex::{self, Hex};
use rustls::client::{Resumption, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, ring};
use rustls::version::{TLS12, TLS13};
use rustls::{ClientConfig, RootCertStore, SupportedProtocolVersion};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

pub use self::seen::SeenCertificate;
pub(crate) use self::verifier::Verifier;
use crate::config::ConfigError;

/// Whom to trust. Exactly one of the two, per BMC.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trust {
    /// Certificates issued by one of these authorities.
    CaBundle {
        /// One or more PEM certificates, at most 1 MiB.
        pem: String,
        /// The name the certificate must carry; `None`: the host of the address.
        server_name: Option<String>,
    },
    /// One of these exact keys or certificates: one, or two while a key is being replaced.
    Pins(Vec<Pin>),
}

/// One exact key or certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pin {
    /// SHA-256 of the DER.
    pub sha256: [u8; 32],
    /// Of which DER.
    pub of: PinOf,
}

/// What a pin is the SHA-256 of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinOf {
    /// The SubjectPublicKeyInfo (RFC 5280, 4.1): survives a renewed certificate with the same key.
    Key,
    /// The whole certificate.
    Certificate,
}

/// Checked trust, ready to make verifiers.
#[derive(Clone, Debug)]
pub(crate) enum CheckedTrust {
    Ca(Arc<WebPkiServerVerifier>),
    Pins(Vec<Pin>),
}

// === impl Pin ===

impl Pin {
    /// Reads 64 hexadecimal digits of either case, or 32 pairs with colons between as `openssl` prints them.
    pub fn parse(of: PinOf, text: &str) -> Result<Self, ConfigError> {
        let digits = if text.len() == 95 {
            let pairs: Vec<&str> = text.split(':').collect();
            if pairs.iter().all(|pair| pair.len() == 2) { pairs.concat() } else { String::new() }
        } else {
            text.to_owned()
        };
        let wanted = "64 hexadecimal digits of a SHA-256, or 32 pairs with colons between";
        let sha256 = hex::parse::<32>(&digits).ok_or_else(|| ConfigError::new("trust.pin", text, wanted))?;
        Ok(Self { sha256, of })
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = match self.of {
            PinOf::Key => "key",
            PinOf::Certificate => "certificate",
        };
        write!(f, "{of} SHA-256 {}", Hex(&self.sha256))
    }
}

// === impl Trust ===

impl Trust {
    pub(crate) fn check(&self) -> Result<CheckedTrust, ConfigError> {
        match self {
            Self::Pins(pins) => {
                if pins.is_empty() || pins.len() > 2 {
                    let wanted = "one pin, or two while a key is being replaced";
                    return Err(ConfigError::new("trust.pins", format!("{} pins", pins.len()), wanted));
                }
                Ok(CheckedTrust::Pins(pins.clone()))
            }
            Self::CaBundle { pem, server_name: _ } => {
                let bad =
                    |value: String| ConfigError::new("trust.pem", value, "PEM certificates of authorities");
                if pem.len() > 1024 * 1024 {
                    return Err(bad(format!("{} bytes", pem.len())));
                }
                let mut roots = RootCertStore::empty();
                for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
                    let certificate = certificate.map_err(|e| bad(format!("not PEM: {e}")))?;
                    let number = roots.len() + 1;
                    roots.add(certificate).map_err(|e| bad(format!("certificate {number}: {e}")))?;
                }
                WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider())
                    .build()
                    .map(CheckedTrust::Ca)
                    .map_err(|e| bad(e.to_string()))
            }
        }
    }
}

// === helpers ===

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

/// The settings of one connection. They are made anew for each, because the verifier records what it saw.
pub(crate) fn client_config(
    verifier: Arc<Verifier>,
    tls12_only: bool,
) -> Result<ClientConfig, rustls::Error> {
    let both: &[&SupportedProtocolVersion] = &[&TLS13, &TLS12];
    let versions = if tls12_only { &[&TLS12][..] } else { both };
    let mut config = ClientConfig::builder_with_provider(provider())
        .with_protocol_versions(versions)?
        .dangerous()
        .with_custom_certificate_verifier(verifier)
        .with_no_client_auth();
    config.resumption = Resumption::disabled();
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pin_is_read_in_both_usual_forms_and_in_no_other() {
        let plain = "aB".repeat(32);
        let pin = Pin::parse(PinOf::Key, &plain).unwrap();
        assert_eq!(pin.sha256, [0xab; 32]);
        let colons = ["AB"; 32].join(":");
        assert_eq!(Pin::parse(PinOf::Key, &colons).unwrap(), pin);
        let moved = format!("A:{}", &colons[1..94]);
        for bad in ["", "ab", &plain[1..], &colons.replace(':', " "), &moved, &format!("sha256:{plain}")] {
            assert_eq!(Pin::parse(PinOf::Key, bad).unwrap_err().field(), "trust.pin", "{bad}");
        }
        assert_eq!(pin.to_string(), format!("key SHA-256 {}", "ab".repeat(32)));
    }

    #[test]
    fn trust_in_nobody_is_refused() {
        assert_eq!(Trust::Pins(Vec::new()).check().unwrap_err().field(), "trust.pins");
        for pem in ["", "hello", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let trust = Trust::CaBundle { pem: pem.to_owned(), server_name: None };
            assert_eq!(trust.check().unwrap_err().field(), "trust.pem", "{pem:?}");
        }
    }
}
