//! One BMC as it stands: its account, sessions, knobs, certificates and life. The power of its machine is in
//! `power.rs`; what it answers is in `redfish.rs`.

use std::collections::HashMap;
use std::fs::File;
use std::io::Read;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::Context;
use serde_json::Value;
use tokio::sync::watch;

use super::knobs::{Certificate, Knobs, Versions};
use super::power::PowerDesk;
use super::session::{Credentials, Sessions};
use super::tls::{Authority, Identity};
use crate::lab::writer::boottime_ns;

/// Whether a BMC runs, and in which life; every change of it cuts all its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Life {
    /// Whether its address listens.
    pub up: bool,
    /// Counts restarts and deaths.
    pub count: u64,
}

/// One BMC.
pub struct Bmc {
    /// Its name; also in its certificate, NAME.bmc.lab.
    pub name: String,
    /// The true UUID of its machine.
    pub uuid: String,
    /// The power of its machine.
    pub desk: Arc<PowerDesk>,
    address: String,
    authority: Arc<Authority>,
    life: watch::Sender<Life>,
    inner: Mutex<Inner>,
}

struct Inner {
    credentials: Credentials,
    knobs: Knobs,
    sessions: Sessions,
    identities: HashMap<(Certificate, Versions), Identity>,
    started: u64,
}

// === impl Bmc ===

impl Bmc {
    /// A BMC that runs, with all knobs at their default.
    #[must_use]
    pub fn new(
        (name, uuid, address): (&str, &str, &str),
        credentials: Credentials,
        desk: Arc<PowerDesk>,
        authority: Arc<Authority>,
    ) -> Self {
        let inner = Inner {
            credentials,
            knobs: Knobs::default(),
            sessions: Sessions::default(),
            identities: HashMap::new(),
            started: boottime_ns(),
        };
        Self {
            name: name.to_owned(),
            uuid: uuid.to_owned(),
            desk,
            address: address.to_owned(),
            authority,
            life: watch::Sender::new(Life { up: true, count: 0 }),
            inner: Mutex::new(inner),
        }
    }

    /// A copy of the knobs.
    #[must_use]
    pub fn knobs(&self) -> Knobs {
        self.lock().knobs.clone()
    }

    /// Sets the knobs that `change` names.
    ///
    /// # Errors
    /// If it names none that exists, or a value does not fit.
    pub fn set(&self, change: &Value) -> serde_json::Result<()> {
        {
            let mut inner = self.lock();
            inner.knobs = inner.knobs.merge(change)?;
        }
        self.desk.knobs_set();
        Ok(())
    }

    /// Sets all knobs, those that are not named in `knobs` to their default.
    pub fn replace(&self, knobs: Knobs) {
        self.lock().knobs = knobs;
        self.desk.knobs_set();
    }

    /// Works on the knobs in place, as rules do that count.
    pub fn with_knobs<T>(&self, work: impl FnOnce(&mut Knobs) -> T) -> T {
        work(&mut self.lock().knobs)
    }

    /// Works on the sessions, with a copy of the knobs.
    pub fn with_sessions<T>(&self, work: impl FnOnce(&mut Sessions, &Knobs) -> T) -> T {
        let mut inner = self.lock();
        let Inner { sessions, knobs, .. } = &mut *inner;
        work(sessions, knobs)
    }

    /// The account.
    #[must_use]
    pub fn credentials(&self) -> Credentials {
        self.lock().credentials.clone()
    }

    /// Changes the account. Sessions stay: many BMCs keep them.
    pub fn set_credentials(&self, credentials: Credentials) {
        let mut inner = self.lock();
        inner.credentials = credentials;
        inner.sessions.unlock();
    }

    /// The certificate and TLS versions that the knobs ask for, made when first needed.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn identity(&self, kind: Certificate, versions: Versions) -> anyhow::Result<Identity> {
        let mut inner = self.lock();
        if let Some(identity) = inner.identities.get(&(kind, versions)) {
            return Ok(identity.clone());
        }
        let identity = self.authority.issue((&self.name, &self.address), kind, versions)?;
        inner.identities.insert((kind, versions), identity.clone());
        Ok(identity)
    }

    /// The good certificate, whatever the knobs say.
    ///
    /// # Errors
    /// If it cannot be made.
    pub fn good_identity(&self) -> anyhow::Result<Identity> {
        self.identity(Certificate::Good, Versions::Both)
    }

    /// When it last started, `CLOCK_BOOTTIME` in ns.
    #[must_use]
    pub fn started(&self) -> u64 {
        self.lock().started
    }

    /// Its life, to be watched.
    #[must_use]
    pub fn life(&self) -> watch::Receiver<Life> {
        self.life.subscribe()
    }

    /// It is gone: no sessions, no connections, nothing listens.
    pub fn die(&self) {
        self.lock().forget();
        self.life.send_modify(|life| *life = Life { up: false, count: life.count + 1 });
    }

    /// It starts, and says Off for this long, whatever is true.
    pub fn live(&self, says_off: Duration) {
        {
            let mut inner = self.lock();
            inner.forget();
            inner.sessions.unlock();
            inner.started = boottime_ns();
        }
        self.desk.says_off_for(says_off);
        self.life.send_modify(|life| *life = Life { up: true, count: life.count + 1 });
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Inner ===

impl Inner {
    /// What a BMC holds in its memory only is gone.
    fn forget(&mut self) {
        if !self.knobs.sessions_survive {
            self.sessions.clear();
        }
    }
}

/// A fresh token: 32 hex digits of the kernel's randomness.
///
/// # Errors
/// If the kernel gives none.
pub fn token() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 16];
    File::open("/dev/urandom")
        .and_then(|mut file| file.read_exact(&mut bytes))
        .context("read /dev/urandom")?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
