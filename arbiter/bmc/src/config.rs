//! The settings of one BMC, checked once. Everything after this file may rely on them.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls_pki_types::{DnsName, ServerName};
use thiserror::Error;
use zeroize::Zeroizing;

use crate::error::printable;
use crate::profile::{Quirks, Timeouts};
use crate::tls::{CheckedTrust, Trust};

/// Settings as an owner gives them; [`RedfishConfig::new`] checks them as a set.
#[derive(Clone, Debug)]
pub struct RedfishSettings {
    /// `host`, `host:port`, `[v6]:port` or `https://host[:port]`; port 443 if none is given. Never `http`.
    pub address: String,
    /// The `@odata.id` of the System that is expected to be the machine, if known. A hint: which member it really is
    /// is judged by UUID. It only chooses whose Manager stands in [`coroner_shared::bmc::IdentityFacts`].
    pub system_hint: Option<String>,
    /// The account, 1 to 64 bytes, no control characters, no colon (Basic cannot carry one).
    pub username: String,
    /// Its password, 1 to 256 bytes, no control characters.
    pub password: Secret,
    /// Whom to trust to be this BMC.
    pub trust: Trust,
    /// In which ways it differs.
    pub quirks: Quirks,
    /// How long to wait for it.
    pub timeouts: Timeouts,
}

/// Checked settings of one BMC.
#[derive(Clone, Debug)]
pub struct RedfishConfig {
    pub(crate) address: Address,
    pub(crate) system_hint: Option<String>,
    pub(crate) username: String,
    pub(crate) password: Secret,
    /// `Basic ...`, ready for the header.
    pub(crate) basic: Secret,
    pub(crate) trust: CheckedTrust,
    pub(crate) server_name: ServerName<'static>,
    pub(crate) quirks: Quirks,
    pub(crate) timeouts: Timeouts,
}

/// A text that is never shown and is overwritten when dropped. Copies that hyper and rustls make while sending it
/// are out of reach.
#[derive(Clone)]
pub struct Secret(Zeroizing<String>);

/// Where a BMC is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Address {
    /// Lower case; an IPv6 address without brackets.
    pub(crate) host: String,
    pub(crate) port: u16,
}

/// A setting that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{field} is {value}: must be {wanted}")]
pub struct ConfigError {
    field: &'static str,
    value: String,
    wanted: String,
}

// === impl RedfishConfig ===

impl RedfishConfig {
    /// Checks `settings`. The error names the field, its value (never a secret's) and what would be right.
    pub fn new(settings: RedfishSettings) -> Result<Self, ConfigError> {
        let RedfishSettings { address, system_hint, username, password, trust, quirks, timeouts } = settings;
        let address = Address::parse(&address)?;
        if let Some(hint) = &system_hint
            && !(hint.starts_with("/redfish/")
                && hint.len() <= 256
                && hint.bytes().all(|b| b.is_ascii_graphic()))
        {
            let wanted = "the @odata.id of a member of Systems, such as /redfish/v1/Systems/1, or nothing";
            return Err(ConfigError::new("system_hint", hint, wanted));
        }
        if username.is_empty()
            || username.len() > 64
            || username.chars().any(|c| c.is_control() || c == ':' || (c.is_whitespace() && c != ' '))
        {
            let wanted = "1 to 64 bytes without control characters and colons";
            return Err(ConfigError::new("username", &username, wanted));
        }
        password.check()?;
        quirks.check()?;
        timeouts.check()?;
        let server_name = address.server_name(&trust)?;
        let trust = trust.check()?;
        let basic = basic_header(&username, &password);
        Ok(Self { address, system_hint, username, password, basic, trust, server_name, quirks, timeouts })
    }
}

impl RedfishConfig {
    /// Where log-ins will be sent to: the host, in lower case, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.address.host
    }
}

// === impl Secret ===

impl Secret {
    /// Takes the text over. A caller that read it from elsewhere overwrites its own copy.
    pub fn new(text: String) -> Self {
        Self(Zeroizing::new(text))
    }

    pub(crate) fn expose(&self) -> &str {
        &self.0
    }

    fn check(&self) -> Result<(), ConfigError> {
        let text = self.expose();
        let (value, wanted) = if text.is_empty() {
            ("(empty)", "1 to 256 bytes")
        } else if text.len() > 256 {
            ("(longer than 256 bytes)", "1 to 256 bytes")
        } else if text.ends_with(['\n', '\r']) {
            (
                "(ends with a line break)",
                "the password alone; write the Secret without a line break at its end",
            )
        } else if text.chars().any(char::is_control) {
            ("(contains control characters)", "printable")
        } else {
            return Ok(());
        };
        Err(ConfigError::new("password", value, wanted))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(withheld)")
    }
}

// === impl Address ===

impl Address {
    pub(crate) fn parse(text: &str) -> Result<Self, ConfigError> {
        // A URL with user information holds a password, so it is not repeated.
        let shown = if text.contains('@') { "(withheld: contains '@')" } else { text };
        let bad = || ConfigError::new("address", shown, "host, host:port, [v6]:port or https://host[:port]");
        let rest = match text.split_once("://") {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case("https") => {
                rest.strip_suffix('/').unwrap_or(rest)
            }
            Some(_) => return Err(bad()),
            None => text,
        };
        Self::from_authority(rest).ok_or_else(bad)
    }

    /// Reads `host[:port]`, `[v6][:port]` or a bare IPv6 address.
    pub(crate) fn from_authority(text: &str) -> Option<Self> {
        if let Ok(v6) = text.parse::<Ipv6Addr>() {
            return Some(Self { host: v6.to_string(), port: 443 });
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                let host = host.parse::<Ipv6Addr>().ok()?.to_string();
                (host, if port.is_empty() { None } else { Some(port.strip_prefix(':')?) })
            }
            None => {
                let (host, port) = text.split_once(':').map_or((text, None), |(h, p)| (h, Some(p)));
                let host = host.to_ascii_lowercase();
                if host.parse::<IpAddr>().is_err() && DnsName::try_from(host.as_str()).is_err() {
                    return None;
                }
                (host, port)
            }
        };
        let port = match port {
            None => 443,
            Some(digits) if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => {
                digits.parse().ok().filter(|port| *port != 0)?
            }
            Some(_) => return None,
        };
        Some(Self { host, port })
    }

    fn server_name(&self, trust: &Trust) -> Result<ServerName<'static>, ConfigError> {
        let (field, name) = match trust {
            Trust::CaBundle { server_name: Some(name), pem: _ } => ("trust.server_name", name.as_str()),
            Trust::CaBundle { server_name: None, pem: _ } | Trust::Pins(_) => ("address", self.host.as_str()),
        };
        ServerName::try_from(name.to_owned())
            .map_err(|_| ConfigError::new(field, name, "a DNS name or an IP address, without a port"))
    }
}

impl fmt::Display for Address {
    /// As it stands in a `Host` header, the port left out where it is 443.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]", self.host)?;
        } else {
            f.write_str(&self.host)?;
        }
        if self.port == 443 { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

// === impl ConfigError ===

impl ConfigError {
    pub(crate) fn new(field: &'static str, value: impl fmt::Display, wanted: impl Into<String>) -> Self {
        let value = printable(&format!("{value}"));
        let value = if value.is_empty() { "(empty)".to_owned() } else { value };
        Self { field, value, wanted: wanted.into() }
    }

    /// The setting's name.
    pub const fn field(&self) -> &'static str {
        self.field
    }
}

// === helpers ===

/// RFC 7617, section 2.
fn basic_header(username: &str, password: &Secret) -> Secret {
    let mut pair = Zeroizing::new(String::with_capacity(username.len() + 1 + password.expose().len()));
    pair.push_str(username);
    pair.push(':');
    pair.push_str(password.expose());
    let mut header = String::with_capacity(6 + pair.len() * 4 / 3 + 4);
    header.push_str("Basic ");
    STANDARD.encode_string(pair.as_bytes(), &mut header);
    Secret::new(header)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::Quirk;
    use crate::tls::{Pin, PinOf};

    fn settings() -> RedfishSettings {
        RedfishSettings {
            address: "192.0.2.7".to_owned(),
            system_hint: None,
            username: "coroner".to_owned(),
            password: Secret::new("hunter2hunter2".to_owned()),
            trust: Trust::Pins(vec![Pin { sha256: [7; 32], of: PinOf::Key }]),
            quirks: Quirks::default(),
            timeouts: Timeouts::default(),
        }
    }

    #[test]
    fn an_address_is_read_in_its_usual_forms() {
        for (text, shown) in [
            ("192.0.2.7", "192.0.2.7"),
            ("192.0.2.7:8443", "192.0.2.7:8443"),
            ("BMC-7.example.net:443", "bmc-7.example.net"),
            ("https://bmc.example.net/", "bmc.example.net"),
            ("HTTPS://bmc.example.net:444", "bmc.example.net:444"),
            ("fd00:0::1", "[fd00::1]"),
            ("[fd00::1]:444", "[fd00::1]:444"),
            ("[FD00::1]", "[fd00::1]"),
        ] {
            assert_eq!(Address::parse(text).unwrap().to_string(), shown, "{text}");
        }
        for text in [
            "",
            ":443",
            "http://bmc",
            "bmc:0",
            "bmc:65536",
            "bmc:+1",
            "bmc:",
            "https://bmc/redfish",
            "https://",
            "a b",
            "[fd00::1",
            "[bmc]",
            "https://u:secretpw@bmc",
            "u:secretpw@bmc",
            "bmc?x",
            "bmc#x",
            "ftp://bmc",
            "[::1]x",
        ] {
            let error = Address::parse(text).unwrap_err();
            assert_eq!(error.field(), "address", "{text}");
            assert!(!error.to_string().contains("secretpw"), "{error}");
        }
    }

    #[test]
    fn each_bad_setting_is_refused_by_its_own_name_and_secrets_are_not_shown() {
        let check = |change: &dyn Fn(&mut RedfishSettings), field: &str| {
            let mut settings = settings();
            change(&mut settings);
            let error = RedfishConfig::new(settings).unwrap_err();
            assert_eq!(error.field(), field, "{error}");
            assert!(!error.to_string().contains("hunter2"), "{error}");
        };
        assert!(RedfishConfig::new(settings()).is_ok());
        check(&|s| s.address = "http://bmc".to_owned(), "address");
        check(&|s| s.system_hint = Some("1".to_owned()), "system_hint");
        check(&|s| s.username = String::new(), "username");
        check(&|s| s.username = "a:b".to_owned(), "username");
        check(&|s| s.password = Secret::new(String::new()), "password");
        check(&|s| s.password = Secret::new("hunter2\n".to_owned()), "password");
        check(&|s| s.password = Secret::new("hunter2".repeat(60)), "password");
        check(&|s| s.quirks = Quirks::from_iter([Quirk::BasicOnly, Quirk::NoBasic]), "quirks");
        check(&|s| s.timeouts.connect = coroner_shared::time::Span::ZERO, "timeouts.connect");
        check(&|s| s.trust = Trust::Pins(Vec::new()), "trust.pins");
        check(
            &|s| s.trust = Trust::CaBundle { pem: String::new(), server_name: Some("a b".to_owned()) },
            "trust.server_name",
        );
    }

    #[test]
    fn debug_shows_no_secret() {
        let settings = settings();
        let config = RedfishConfig::new(settings.clone()).unwrap();
        let text = format!("{settings:?} {config:?}");
        assert!(
            !text.contains("hunter2") && !text.contains(&STANDARD.encode("coroner:hunter2hunter2")),
            "{text}"
        );
        assert_eq!(config.basic.expose(), "Basic Y29yb25lcjpodW50ZXIyaHVudGVyMg==");
    }
}
