//! The verifier that `rustls` asks: pins, or the bundle; and a record of the certificate that was shown, so that an
//! error can name its fingerprints.
//!
//! In pin mode the handshake's signature is checked with the pinned key itself, taken from the certificate by
//! `x509-parser`, because webpki refuses certificates it does not like (X.509 v1) before it looks at the key.

use std::sync::{Arc, OnceLock};

use coroner_shared::hex::Hex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls13_signature_with_raw_key};
use rustls::{
    AlertDescription, CertificateError, DigitallySignedStruct, Error, PeerMisbehaved, SignatureScheme,
};
use rustls_pki_types::{CertificateDer, ServerName, SubjectPublicKeyInfoDer, UnixTime};
use x509_parser::asn1_rs::Any;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::{CheckedTrust, Pin, PinOf, SeenCertificate, provider};
use crate::error::BmcError;

/// The verifier of one connection.
#[derive(Debug)]
pub(crate) struct Verifier {
    trust: CheckedTrust,
    algorithms: WebPkiSupportedAlgorithms,
    seen: OnceLock<SeenCertificate>,
}

// === impl Verifier ===

impl Verifier {
    pub(crate) fn new(trust: CheckedTrust) -> Arc<Self> {
        let algorithms = provider().signature_verification_algorithms;
        Arc::new(Self { trust, algorithms, seen: OnceLock::new() })
    }

    /// The certificate shown in this handshake.
    pub(crate) fn seen(&self) -> Option<&SeenCertificate> {
        self.seen.get()
    }

    /// Our name for what `rustls` refused, with the certificate that was seen.
    pub(crate) fn explain(&self, error: &Error, expected_name: &str) -> BmcError {
        let Some(seen) = self.seen.get().cloned().map(Box::new) else {
            return explain_handshake(error);
        };
        let Error::InvalidCertificate(what) = error else {
            return explain_handshake(error);
        };
        let expected = expected_name.to_owned();
        #[expect(clippy::wildcard_enum_match_arm, reason = "rustls's enum is non-exhaustive")]
        match what {
            CertificateError::ApplicationVerificationFailure => {
                BmcError::WrongPin { wanted: self.trust.wanted(), seen }
            }
            CertificateError::UnknownIssuer => BmcError::UnknownIssuer { seen },
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                BmcError::WrongName { expected, seen }
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                BmcError::WrongDate { expired: true, seen }
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                BmcError::WrongDate { expired: false, seen }
            }
            CertificateError::BadSignature if seen.is_weak() => BmcError::TooOld { why: format!("{seen}") },
            CertificateError::BadSignature => {
                let why = "the peer did not prove that it holds the certificate's key".to_owned();
                BmcError::BadCertificate { why, seen }
            }
            other => BmcError::BadCertificate { why: explain_certificate(other), seen },
        }
    }

    fn signed_with_pinned_key(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let bad = || Error::InvalidCertificate(CertificateError::BadEncoding);
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(|_| bad())?;
        // SubjectPublicKeyInfo ::= SEQUENCE { SEQUENCE { algorithm }, BIT STRING } (RFC 5280, 4.1)
        let (_, whole) = Any::from_der(parsed.public_key().raw).map_err(|_| bad())?;
        let (_, algorithm) = Any::from_der(whole.data).map_err(|_| bad())?;
        let key = &parsed.public_key().subject_public_key.data;
        let offered = self.algorithms.mapping.iter().find(|(scheme, _)| *scheme == signed.scheme);
        let (_, possible) = offered.ok_or(PeerMisbehaved::SignedHandshakeWithUnadvertisedSigScheme)?;
        possible
            .iter()
            .find(|possible| *possible.public_key_alg_id() == *algorithm.data)
            .ok_or(Error::InvalidCertificate(CertificateError::BadSignature))?
            .verify_signature(key, message, signed.signature())
            .map(|()| HandshakeSignatureValid::assertion())
            .map_err(|_| Error::InvalidCertificate(CertificateError::BadSignature))
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        server_name: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let seen = self.seen.get_or_init(|| SeenCertificate::of(end_entity));
        match &self.trust {
            CheckedTrust::Ca(verifier) => {
                let outcome =
                    verifier.verify_server_cert(end_entity, intermediates, server_name, ocsp_response, now);
                outcome.map_err(|error| if seen.is_weak() { error } else { by_another_issuer(error) })
            }
            CheckedTrust::Pins(pins) if pins.iter().any(|pin| pin.matches(seen)) => {
                Ok(ServerCertVerified::assertion())
            }
            CheckedTrust::Pins(_) => {
                Err(Error::InvalidCertificate(CertificateError::ApplicationVerificationFailure))
            }
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match &self.trust {
            CheckedTrust::Ca(verifier) => verifier.verify_tls12_signature(message, certificate, signed),
            CheckedTrust::Pins(_) => self.signed_with_pinned_key(message, certificate, signed),
        }
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        match &self.trust {
            CheckedTrust::Ca(verifier) => verifier.verify_tls13_signature(message, certificate, signed),
            CheckedTrust::Pins(_) => {
                let bad = |_| Error::InvalidCertificate(CertificateError::BadEncoding);
                let (_, parsed) = X509Certificate::from_der(certificate).map_err(bad)?;
                let key = SubjectPublicKeyInfoDer::from(parsed.public_key().raw);
                verify_tls13_signature_with_raw_key(message, &key, signed, &self.algorithms)
            }
        }
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

// === impl CheckedTrust ===

impl CheckedTrust {
    fn wanted(&self) -> String {
        match self {
            Self::Ca(_) => "a certificate of the bundle".to_owned(),
            Self::Pins(pins) => pins.iter().map(Pin::to_string).collect::<Vec<_>>().join(" or "),
        }
    }
}

impl Pin {
    fn matches(&self, seen: &SeenCertificate) -> bool {
        let wanted = Hex(&self.sha256).to_string();
        match self.of {
            PinOf::Key => seen.key_sha256.as_deref() == Some(wanted.as_str()),
            PinOf::Certificate => seen.certificate_sha256 == wanted,
        }
    }
}

// === helpers ===

/// A chain whose signature does not hold ends at an authority that has the name of a known one, but another key: one
/// that was made anew, mostly.
fn by_another_issuer(error: Error) -> Error {
    if error == Error::InvalidCertificate(CertificateError::BadSignature) {
        return Error::InvalidCertificate(CertificateError::UnknownIssuer);
    }
    error
}

/// What a failed handshake means that did not fail on the certificate itself.
#[expect(clippy::wildcard_enum_match_arm, reason = "rustls's enums are non-exhaustive")]
fn explain_handshake(error: &Error) -> BmcError {
    match error {
        Error::PeerIncompatible(what) => BmcError::TooOld { why: format!("{what:?}") },
        Error::AlertReceived(
            alert @ (AlertDescription::HandshakeFailure
            | AlertDescription::ProtocolVersion
            | AlertDescription::InsufficientSecurity),
        ) => BmcError::TooOld { why: format!("the BMC answered with alert {alert:?}") },
        Error::InvalidMessage(_) => BmcError::Handshake { why: format!("not TLS: {error}") },
        other => BmcError::Handshake { why: other.to_string() },
    }
}

#[expect(clippy::wildcard_enum_match_arm, reason = "rustls's enum is non-exhaustive")]
fn explain_certificate(error: &CertificateError) -> String {
    match error {
        CertificateError::BadEncoding => "the certificate cannot be parsed".to_owned(),
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            "the certificate is not for servers".to_owned()
        }
        CertificateError::Other(what) if what.to_string().contains("CaUsedAsEndEntity") => {
            "the certificate is an authority's own (CA:TRUE), as factories make them: pin its key instead"
                .to_owned()
        }
        other => format!("certificate refused: {other}"),
    }
}
