//! Opens drivers to BMCs: address and trust from the binding, the log-in from its Secret, read anew at each opening.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coroner_bmc::{
    Bmc, Pin, PinOf, Quirks, Redfish, RedfishConfig, RedfishSettings, Secret, Timeouts, Trust,
};
use coroner_shared::id::NodeName;
use coroner_shared::names::BMC_HOSTS_ANNOTATION;
use coroner_shared::time::Span;
use k8s_openapi::api::core::v1::Secret as KubeSecret;
use kube::{Api, Client};
use tokio::sync::watch;
use zeroize::Zeroizing;

use crate::bmc_guard::Guard;
use crate::clock;
use crate::k8s::convert;
use crate::k8s::types::{self, MachineBindingSpec};

/// The bindings as watched.
pub type Specs = BTreeMap<NodeName, MachineBindingSpec>;
/// The last log-ins read, by the Secret's name.
type LogIns = BTreeMap<String, LogIn>;

/// What a Secret holds.
#[derive(Clone)]
struct LogIn {
    username: String,
    password: Zeroizing<String>,
    /// `resourceVersion`.
    version: String,
    /// The hosts that its writer names; `None`: any that a binding names.
    hosts: Option<String>,
}

/// How long a BMC may take while it is polled. Longer than any healthy answer, short enough that silence is noticed.
const TIMEOUTS: Timeouts = Timeouts {
    connect: Span::from_secs(3),
    first_byte: Span::from_secs(5),
    request: Span::from_secs(8),
    log_out: Span::from_secs(2),
    unacknowledged: Span::from_secs(3),
};

/// Makes drivers.
#[derive(Clone)]
pub struct Opener {
    specs: watch::Receiver<Arc<Specs>>,
    secrets: Api<KubeSecret>,
    /// The last log-in read of each Secret, for when the API server cannot be asked.
    last: Arc<Mutex<LogIns>>,
    guard: Guard,
}

// === impl Opener ===

impl Opener {
    /// An opener over the watched bindings.
    pub fn new(client: Client, namespace: &str, specs: watch::Receiver<Arc<Specs>>) -> Self {
        Self {
            specs,
            secrets: Api::namespaced(client, namespace),
            last: Arc::default(),
            guard: Guard::default(),
        }
    }

    /// Wakes when a binding changes.
    pub fn watch(&self) -> watch::Receiver<Arc<Specs>> {
        self.specs.clone()
    }

    /// Hash of a node's binding, if there is one.
    pub fn spec_hash(&self, node: &NodeName) -> Option<String> {
        self.specs.borrow().get(node).map(convert::hash)
    }

    /// Opens a driver; it connects at its first call.
    ///
    /// # Errors
    /// No binding, a wrong one, or no credentials; in words for people, without secrets.
    pub async fn open(&self, node: &NodeName) -> Result<Box<dyn Bmc>, String> {
        let spec = self
            .specs
            .borrow()
            .get(node)
            .cloned()
            .ok_or_else(|| format!("node {node} has no MachineBinding"))?;
        let secret = &spec.credentials.secret_name;
        let LogIn { username, password, version, hosts } = self.log_in(secret).await?;
        self.guard.permit(secret, &version, node, clock::now())?;
        let config = RedfishConfig::new(RedfishSettings {
            address: spec.redfish.address.clone(),
            system_hint: spec.redfish.system_hint.clone(),
            username,
            password: Secret::new(password.to_string()),
            trust: trust(&spec)?,
            quirks: quirks(&spec),
            timeouts: TIMEOUTS,
        });
        let config = config.map_err(|e| format!("MachineBinding {node}: {e}"))?;
        may_be_sent(secret, hosts.as_deref(), config.host())?;
        Ok(Box::new(self.guard.wrap(Box::new(Redfish::new(config)), secret, node)))
    }

    async fn log_in(&self, name: &str) -> Result<LogIn, String> {
        // A dead API server must not stop a fence that needs none; the last log-in read is used then.
        let read = tokio::time::timeout(Duration::from_secs(2), self.secrets.get(name)).await;
        let secret = match read {
            Ok(Ok(secret)) => secret,
            Ok(Err(kube::Error::Api(e))) if matches!(e.code, 403 | 404) => {
                return Err(format!("Secret {name} with the BMC's log-in cannot be read: {}", e.message));
            }
            Ok(Err(_)) | Err(_) => {
                let last = self.last.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned();
                return last
                    .ok_or_else(|| format!("Secret {name} cannot be read now, and was never read before"));
            }
        };
        let value = |key: &str| -> Result<Zeroizing<String>, String> {
            let bytes = secret
                .data
                .as_ref()
                .and_then(|d| d.get(key))
                .ok_or_else(|| format!("Secret {name} has no key {key}"))?;
            String::from_utf8(bytes.0.clone())
                .map(Zeroizing::new)
                .map_err(|_| format!("key {key} of Secret {name} is not text"))
        };
        let version = secret.metadata.resource_version.clone().unwrap_or_default();
        let annotations = secret.metadata.annotations.as_ref();
        let hosts = annotations.and_then(|a| a.get(BMC_HOSTS_ANNOTATION)).cloned();
        let (username, password) = (value("username")?.to_string(), value("password")?);
        let log_in = LogIn { username, password, version, hosts };
        self.last.lock().unwrap_or_else(PoisonError::into_inner).insert(name.to_owned(), log_in.clone());
        Ok(log_in)
    }
}

/// Whether a log-in may be sent to this host. Whoever may write MachineBindings could otherwise have any log-in of the
/// namespace sent to a host of their own; who writes the Secret can rule that out.
fn may_be_sent(secret: &str, hosts: Option<&str>, host: &str) -> Result<(), String> {
    let Some(hosts) = hosts else { return Ok(()) };
    if hosts.split(',').any(|named| named.trim().eq_ignore_ascii_case(host)) {
        return Ok(());
    }
    Err(format!(
        "the log-in of Secret {secret} is not sent to {host}: its annotation {BMC_HOSTS_ANNOTATION} names only {hosts:?}; \
         correct redfish.address, or have the annotation name this host"
    ))
}

/// Those quirks that are the driver's; the others are the core's.
fn quirks(spec: &MachineBindingSpec) -> Quirks {
    let names = spec.quirks.iter().map(|quirk| match quirk {
        types::QuirkName::Cached => "cached",
        types::QuirkName::FewSessions => "few-sessions",
        types::QuirkName::BasicOnly => "basic-only",
        types::QuirkName::NoBasic => "no-basic",
        types::QuirkName::Tls12Only => "tls12-only",
        types::QuirkName::SessionsSurviveRestart => "sessions-survive-restart",
    });
    names.filter_map(coroner_bmc::Quirk::from_name).collect()
}

fn trust(spec: &MachineBindingSpec) -> Result<Trust, String> {
    let tls = &spec.tls;
    match (&tls.ca_bundle, &tls.sha256_pin, tls.of) {
        (Some(pem), None, _) => {
            Ok(Trust::CaBundle { pem: pem.clone(), server_name: tls.server_name.clone() })
        }
        (None, Some(pin), Some(of)) => {
            let of = match of {
                types::PinOf::Certificate => PinOf::Certificate,
                types::PinOf::Key => PinOf::Key,
            };
            Pin::parse(of, pin).map(|p| Trust::Pins(vec![p])).map_err(|e| format!("tls.sha256Pin: {e}"))
        }
        _ => Err("tls: give either caBundle, or sha256Pin with `of`".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_in_goes_only_to_the_hosts_that_its_secret_names() {
        for (hosts, host, sent) in [
            (None, "10.0.0.1", true),
            (Some("10.0.0.1"), "10.0.0.1", true),
            (Some("bmc-1.example.net, BMC-2.example.net"), "bmc-2.example.net", true),
            (Some("10.0.0.1"), "10.0.0.11", false),
            (Some("bmc.example.net"), "evil.bmc.example.net", false),
            (Some("fd00::1"), "fd00::1", true),
            // Named by nobody: an empty list is not an absent one.
            (Some(""), "10.0.0.1", false),
        ] {
            assert_eq!(may_be_sent("s", hosts, host).is_ok(), sent, "{hosts:?} {host}");
        }
        let refused = may_be_sent("bmc-n1", Some("10.0.0.1"), "10.9.9.9").unwrap_err();
        assert!(refused.contains("bmc-n1") && refused.contains("10.9.9.9"), "{refused}");
    }
}
