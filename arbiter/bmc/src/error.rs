//! What can go wrong between us and a BMC, one class per thing that a person would do about it.
//!
//! No message ever holds a password, a token or a request's headers. Text that came from the BMC is cut to printable
//! ASCII of at most 120 characters, and withheld whole where it repeats a secret of ours (a BMC may echo what it was
//! sent). Fingerprints of certificates are shown, because a person has to compare and approve them.

use std::fmt;
use std::io;

use coroner_shared::time::Span;
use thiserror::Error;

use crate::tls::SeenCertificate;

/// Why a BMC gave no answer that counts. Never evidence about the machine's power.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BmcError {
    /// The host name has no address.
    #[error("resolve {host}")]
    Resolve {
        /// The name asked for.
        host: String,
        /// What the resolver said.
        #[source]
        source: io::Error,
    },
    /// Nothing listens there.
    #[error("connect to {address}: refused")]
    ConnectionRefused {
        /// Host and port.
        address: String,
    },
    /// The network has no way there, or it broke while connecting.
    #[error("connect to {address}")]
    Unreachable {
        /// Host and port.
        address: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// A deadline passed.
    #[error("{stage}: no answer within {after}")]
    Timeout {
        /// What was under way.
        stage: Stage,
        /// How long it was waited for.
        after: Span,
    },
    /// The connection broke (reset, closed early, an answer cut off).
    #[error("{stage}: connection broke ({why})")]
    Broken {
        /// What was under way.
        stage: Stage,
        /// What happened.
        why: String,
    },
    /// CA mode: no certificate authority of the bundle issued this certificate.
    #[error("TLS: unknown issuer; the BMC showed {seen}")]
    UnknownIssuer {
        /// What it showed.
        seen: Box<SeenCertificate>,
    },
    /// Pin mode: the key or certificate is not the pinned one.
    #[error("TLS: pinned {wanted}, but the BMC showed {seen}")]
    WrongPin {
        /// The configured pins, in words.
        wanted: String,
        /// What it showed.
        seen: Box<SeenCertificate>,
    },
    /// CA mode: the certificate is for another name.
    #[error("TLS: certificate is not for {expected}; the BMC showed {seen}")]
    WrongName {
        /// The name asked for.
        expected: String,
        /// What it showed.
        seen: Box<SeenCertificate>,
    },
    /// CA mode: the certificate is expired or not valid yet.
    #[error("TLS: certificate is {}; the BMC showed {seen}", if *.expired { "expired" } else { "not valid yet" })]
    WrongDate {
        /// Expired, as opposed to not valid yet.
        expired: bool,
        /// What it showed.
        seen: Box<SeenCertificate>,
    },
    /// The certificate, or the proof that the BMC holds its key, is not in order in another way.
    #[error("TLS: {why}; the BMC showed {seen}")]
    BadCertificate {
        /// What is wrong.
        why: String,
        /// What it showed.
        seen: Box<SeenCertificate>,
    },
    /// The BMC offers only what we refuse: TLS below 1.2, RSA key exchange, CBC suites, RSA keys below 2048 bits.
    #[error("TLS: protocol or key too old ({why}); newer firmware, a new key, or another means of fencing")]
    TooOld {
        /// What was offered, as far as it can be told.
        why: String,
    },
    /// What answers does not speak TLS, or speaks it wrongly.
    #[error("TLS: handshake failed ({why})")]
    Handshake {
        /// What rustls said.
        why: String,
    },
    /// A new connection showed another key than the one before it; all that was known of this BMC is forgotten.
    #[error("the key changed between two connections: {was} before, {now} now")]
    KeyChanged {
        /// SHA-256 of the key before, 64 hex digits.
        was: String,
        /// SHA-256 of the key now, 64 hex digits.
        now: String,
    },
    /// The credentials were refused. The driver sends them no more (make a new one with the current secret), so that
    /// retries do not lock the account; the owner tells its [`crate::CredentialBreaker`].
    #[error("authentication rejected ({how})")]
    AuthRejected {
        /// Where and with which status.
        how: String,
    },
    /// The BMC has no session service, and the configuration forbids Basic.
    #[error("no session service, and quirk no-basic forbids Basic authentication")]
    NoSessions,
    /// An HTTP status that is not an answer to the question.
    #[error("{request}: HTTP {status}{}", also(.message.as_deref(), *.retry_after))]
    Status {
        /// Method and path.
        request: String,
        /// The status.
        status: u16,
        /// The BMC's message id, if it gave one; advisory.
        message: Option<String>,
        /// `Retry-After`, at most 30 s.
        retry_after: Option<Span>,
    },
    /// The body is not what it should be (not JSON, cut off, a field of the wrong shape).
    #[error("{request}: malformed answer ({why})")]
    Malformed {
        /// Method and path.
        request: String,
        /// What is wrong.
        why: String,
    },
    /// Larger than the limit.
    #[error("{what} larger than {limit}")]
    TooLarge {
        /// What is too large.
        what: &'static str,
        /// The limit, with its unit.
        limit: &'static str,
    },
    /// JSON nested deeper than 64.
    #[error("{request}: JSON nested deeper than 64")]
    TooDeep {
        /// Method and path.
        request: String,
    },
    /// A link or redirect leads to another origin; it was not followed.
    #[error("link to another origin, not followed: {link}")]
    CrossOrigin {
        /// The link.
        link: String,
    },
    /// More than two redirects, or one that a request of this kind must not follow.
    #[error("{request}: redirect not followed ({why})")]
    Redirect {
        /// Method and path.
        request: String,
        /// Which rule.
        why: String,
    },
    /// The body's own `@odata.id` is not the resource that was asked for.
    #[error("asked for {asked}, but the body says it is {got}")]
    WrongResource {
        /// The link that was requested.
        asked: String,
        /// The body's `@odata.id`.
        got: String,
    },
    /// A power command for a member whose body this driver has not read since it logged in: nothing was sent.
    #[error("{member} was not read in this session; identify first")]
    NotRead {
        /// The member.
        member: String,
    },
    /// Before a power command the member was read again, and it is not what it was: nothing was sent.
    #[error("{member} changed since it was identified ({what}); nothing was sent")]
    Changed {
        /// The member.
        member: String,
        /// What changed.
        what: String,
    },
    /// The member advertises no `#ComputerSystem.Reset`, or one outside its own path: nothing was sent.
    #[error("{member}: {why}; nothing was sent")]
    NoTarget {
        /// The member.
        member: String,
        /// What is wrong with the advertised action.
        why: String,
    },
    /// The caller's permission for a power command had run out by the time that it could have left: nothing was sent.
    #[error("the command could not leave before its permission ran out; nothing was sent")]
    TooLate,
}

/// What was under way when it failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// TCP to the BMC.
    Connect,
    /// The TLS handshake.
    Tls,
    /// Request sent, first byte of the answer awaited.
    FirstByte,
    /// The answer's body.
    Body,
    /// A power command before anything of it was sent.
    BeforeCommand,
}

// === impl BmcError ===

impl BmcError {
    /// A short fixed name of the class, for metrics and conditions.
    pub const fn class(&self) -> &'static str {
        match self {
            Self::Resolve { .. } => "resolve",
            Self::ConnectionRefused { .. } => "connection-refused",
            Self::Unreachable { .. } => "unreachable",
            Self::Timeout { .. } => "timeout",
            Self::Broken { .. } => "connection-broken",
            Self::UnknownIssuer { .. } => "tls-unknown-issuer",
            Self::WrongPin { .. } => "tls-wrong-pin",
            Self::WrongName { .. } => "tls-name",
            Self::WrongDate { .. } => "tls-date",
            Self::BadCertificate { .. } => "tls-certificate",
            Self::TooOld { .. } => "tls-too-old",
            Self::Handshake { .. } => "tls-handshake",
            Self::KeyChanged { .. } => "tls-key-changed",
            Self::AuthRejected { .. } => "auth-rejected",
            Self::NoSessions => "no-sessions",
            Self::Status { .. } => "http-status",
            Self::Malformed { .. } => "malformed",
            Self::TooLarge { .. } => "too-large",
            Self::TooDeep { .. } => "too-deep",
            Self::CrossOrigin { .. } => "cross-origin",
            Self::Redirect { .. } => "redirect",
            Self::WrongResource { .. } => "wrong-resource",
            Self::NotRead { .. } => "not-read",
            Self::Changed { .. } => "changed",
            Self::NoTarget { .. } => "no-target",
            Self::TooLate => "too-late",
        }
    }

    /// Whether nothing answered at all, as opposed to an answer that does not count. Silence is no evidence either way.
    pub const fn no_answer(&self) -> bool {
        match self {
            Self::Resolve { .. }
            | Self::ConnectionRefused { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Broken { .. } => true,
            Self::UnknownIssuer { .. }
            | Self::WrongPin { .. }
            | Self::WrongName { .. }
            | Self::WrongDate { .. }
            | Self::BadCertificate { .. }
            | Self::TooOld { .. }
            | Self::Handshake { .. }
            | Self::KeyChanged { .. }
            | Self::AuthRejected { .. }
            | Self::NoSessions
            | Self::Status { .. }
            | Self::Malformed { .. }
            | Self::TooLarge { .. }
            | Self::TooDeep { .. }
            | Self::CrossOrigin { .. }
            | Self::Redirect { .. }
            | Self::WrongResource { .. }
            | Self::NotRead { .. }
            | Self::Changed { .. }
            | Self::NoTarget { .. }
            | Self::TooLate => false,
        }
    }

    /// The certificate seen, where the error is about one: for a person to compare and approve.
    pub fn certificate(&self) -> Option<&SeenCertificate> {
        match self {
            Self::UnknownIssuer { seen }
            | Self::WrongPin { seen, .. }
            | Self::WrongName { seen, .. }
            | Self::WrongDate { seen, .. }
            | Self::BadCertificate { seen, .. } => Some(seen),
            Self::Resolve { .. }
            | Self::ConnectionRefused { .. }
            | Self::Unreachable { .. }
            | Self::Timeout { .. }
            | Self::Broken { .. }
            | Self::TooOld { .. }
            | Self::Handshake { .. }
            | Self::KeyChanged { .. }
            | Self::AuthRejected { .. }
            | Self::NoSessions
            | Self::Status { .. }
            | Self::Malformed { .. }
            | Self::TooLarge { .. }
            | Self::TooDeep { .. }
            | Self::CrossOrigin { .. }
            | Self::Redirect { .. }
            | Self::WrongResource { .. }
            | Self::NotRead { .. }
            | Self::Changed { .. }
            | Self::NoTarget { .. }
            | Self::TooLate => None,
        }
    }

    /// The whole chain of causes in one line.
    pub fn full(&self) -> String {
        let mut line = self.to_string();
        let mut cause = std::error::Error::source(self);
        while let Some(inner) = cause {
            line = format!("{line}: {inner}");
            cause = inner.source();
        }
        line
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Connect => "connect",
            Self::Tls => "TLS handshake",
            Self::FirstByte => "wait for the answer",
            Self::Body => "read the answer's body",
            Self::BeforeCommand => "prepare the command (nothing was sent)",
        })
    }
}

/// What a BMC added to a status.
fn also(message: Option<&str>, retry_after: Option<Span>) -> String {
    let message = message.map(|id| format!(" {id}")).unwrap_or_default();
    let retry_after = retry_after.map(|span| format!(", retry after {span}")).unwrap_or_default();
    format!("{message}{retry_after}")
}

/// Text from a BMC as it may be shown: printable ASCII, at most 120 characters.
pub(crate) fn printable(text: &str) -> String {
    let mut out: String =
        text.chars().take(120).map(|c| if c == ' ' || c.is_ascii_graphic() { c } else { '?' }).collect();
    if text.chars().nth(120).is_some() {
        out.push_str("...");
    }
    out
}
