//! The agent's talk with the replicas over HTTPS: registration and slices.
//!
//! ```text
//!   trust -> register (token, all replicas in turn) -> long poll for slices (signed) -> register again if refused
//! ```
//!
//! A registration that fails keeps nothing from working: an agent with an old slice beacons with it, and polls with its
//! key, which authenticates the host with the API server down. Nothing here is on the beacon's path.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use coroner_agent_core::Input;
use coroner_shared::slice::Slice;
use coroner_shared::wire::http::{REGISTER, Register, Registered, SLICE};
use hyper::body::Bytes;
use hyper::{Method, StatusCode};
use tokio::sync::watch;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::caller::{Caller, UplinkError, addresses, own_cluster, read_token, refused};
use crate::heartbeat::Mailbox;
use crate::https::{Call, Link};
use crate::journal::chain;
use crate::store::Keeper;
use crate::trust_config::Trusted;

/// A replica answers a poll after 25 s at the latest.
const POLL_WITHIN: Duration = Duration::from_secs(35);
const REGISTER_WITHIN: Duration = Duration::from_secs(5);
/// Between attempts; doubled from the first to the last, so that a fleet does not fall upon a group that comes up.
const RETRY_FIRST: Duration = Duration::from_millis(500);
const RETRY_LAST: Duration = Duration::from_secs(30);

/// The task.
pub(crate) struct Uplink {
    pub(crate) caller: Arc<Caller>,
    pub(crate) trust: watch::Receiver<Option<Trusted>>,
    pub(crate) slice: watch::Sender<Option<Slice>>,
    pub(crate) slice_wanted: watch::Receiver<u64>,
    pub(crate) mailbox: Mailbox,
    pub(crate) keeper: Keeper,
    /// Which replica is asked first.
    pub(crate) first_choice: u32,
    /// For the delays between attempts.
    pub(crate) chance: u64,
}

// === impl Uplink ===

impl Uplink {
    /// Registers and follows the slice, for ever.
    pub(crate) async fn run(mut self) {
        let mut registered = false;
        let mut delay = RETRY_FIRST;
        let mut told = String::new();
        loop {
            let trusted = self.trusted().await;
            self.leave_other_cluster(&trusted);
            if !registered {
                match self.register(&trusted).await {
                    Ok(address) => {
                        info!(replica = %address, "registered");
                        (registered, delay) = (true, RETRY_FIRST);
                        told.clear();
                    }
                    Err(error) => {
                        let text = chain(&error);
                        if text != told {
                            warn!(
                                error = %text,
                                "could not register with any replica; it is tried again until it works. \
                                 What this host has of an earlier registration goes on working"
                            );
                            told = text;
                        }
                    }
                }
            }
            let known = self.slice.borrow().is_some();
            if known {
                // Not registered: poll only until the next attempt.
                let until = if registered { Duration::MAX } else { self.draw(delay) };
                match timeout(until, self.follow(&trusted)).await {
                    Ok(Followed::Refused) => registered = false,
                    Ok(Followed::Lost) => delay = RETRY_FIRST,
                    Ok(Followed::Unanswered) | Err(_) => {}
                }
            }
            tokio::time::sleep(self.draw(delay)).await;
            delay = (delay * 2).min(RETRY_LAST);
        }
    }

    /// The trust file, waited for.
    async fn trusted(&mut self) -> Trusted {
        match self.trust.wait_for(Option::is_some).await.map(|seen| seen.clone()) {
            Ok(Some(trusted)) => trusted,
            // The watching task ended, and with it soon this process.
            Ok(None) | Err(_) => std::future::pending().await,
        }
    }

    /// A slice of another installation than the trusted one is not polled with; registration brings the right one.
    fn leave_other_cluster(&self, trusted: &Trusted) {
        let ours = trusted.trust.cluster;
        self.slice.send_if_modified(|slice| {
            let other = slice.as_ref().is_some_and(|slice| slice.cluster != ours);
            if other {
                warn!(%ours, "the kept slice is of another cluster: this host registers anew");
                *slice = None;
            }
            other
        });
    }

    /// Tries every replica once: only the leader can commit a registration.
    async fn register(&self, trusted: &Trusted) -> Result<IpAddr, UplinkError> {
        let known = self.slice.borrow().clone();
        let caller = &self.caller;
        let token = read_token(&caller.token_file).await?;
        let body = Register {
            node: caller.node.clone(),
            machine: caller.machine.clone(),
            boot: caller.boot,
            key: caller.key.public(),
            address: caller.address,
            version: env!("CARGO_PKG_VERSION").to_owned(),
        };
        let body = serde_json::to_vec(&body).unwrap_or_default();
        let mut worst = None;
        let mut all = addresses(trusted, known.as_ref());
        let first = self.share(all.len());
        all.rotate_left(first);
        for address in all {
            // The token proves which node this is; the signature, where there is one already, proves that it is the
            // same host as before, for the hour in which no token can be reviewed.
            let mut headers = vec![("authorization", format!("Bearer {token}"))];
            if let Some(slice) = &known {
                headers.extend(caller.signature(slice, &Method::POST, REGISTER, &body));
            }
            match self.register_with(trusted, address, headers, body.clone()).await {
                Ok(registered) => {
                    self.take(registered.slice);
                    return Ok(address);
                }
                Err(error) => worst = Some(worse(worst, error)),
            }
        }
        match worst {
            Some(error) => Err(error),
            None => std::future::pending().await,
        }
    }

    async fn register_with(
        &self,
        trusted: &Trusted,
        address: IpAddr,
        headers: Vec<(&'static str, String)>,
        body: Vec<u8>,
    ) -> Result<Registered, UplinkError> {
        let mut link = Link::open(address, trusted.tls.clone()).await?;
        let call = Call { method: Method::POST, path: REGISTER, headers, body, within: REGISTER_WITHIN };
        let (status, text) = link.ask(call).await?;
        if !status.is_success() {
            return Err(refused(address, status, &text));
        }
        let registered: Registered =
            serde_json::from_slice(&text).map_err(|source| UplinkError::Form { address, source })?;
        own_cluster(address, trusted, registered.cluster)?;
        own_cluster(address, trusted, registered.slice.cluster)?;
        Ok(registered)
    }

    /// Polls one replica after the other, until none answers, one refuses, or the trust file changes.
    async fn follow(&mut self, trusted: &Trusted) -> Followed {
        let mut failures = 0;
        let mut next = self.share(addresses(trusted, self.slice.borrow().as_ref()).len());
        let mut ever = false;
        let mut older = false;
        loop {
            let all = addresses(trusted, self.slice.borrow().as_ref());
            if failures >= all.len() || all.is_empty() {
                // Where all that answer know less than we do, the leader's word at a registration counts.
                return match (older, ever) {
                    (true, _) => Followed::Refused,
                    (false, true) => Followed::Lost,
                    (false, false) => Followed::Unanswered,
                };
            }
            let address = all[next % all.len()];
            match self.follow_one(trusted, address).await {
                Ok(Moved::TrustChanged) => return Followed::Lost,
                Ok(Moved::NewerElsewhere) => failures = 0,
                Err((UplinkError::Refused { refusal, .. }, _)) if refusal.reason != "NotLeader" => {
                    warn!(
                        reason = refusal.reason,
                        message = refusal.message,
                        "a replica no longer knows this host"
                    );
                    return Followed::Refused;
                }
                Err((error, answered)) => {
                    older |= matches!(error, UplinkError::Older { .. });
                    ever |= answered;
                    failures = if answered { 1 } else { failures + 1 };
                }
            }
            next += 1;
        }
    }

    /// Polls one replica until it fails. The error says whether it had answered before.
    async fn follow_one(&mut self, trusted: &Trusted, address: IpAddr) -> Result<Moved, (UplinkError, bool)> {
        let mut answered = false;
        let opened = Link::open(address, trusted.tls.clone()).await;
        let mut link = opened.map_err(|error| (error.into(), answered))?;
        loop {
            let Some(slice) = self.slice.borrow().clone() else { return Ok(Moved::TrustChanged) };
            let path = format!("{SLICE}?have={}", slice.version);
            let headers = self.caller.signature(&slice, &Method::GET, &path, &[]);
            let call =
                Call { method: Method::GET, path: &path, headers, body: Vec::new(), within: POLL_WITHIN };
            let got = tokio::select! {
                got = link.ask(call) => got.map_err(|error| (error.into(), answered))?,
                // A status' answer told of a version that this replica seems not to have: it may be cut off.
                () = newer_elsewhere(&mut self.slice_wanted, slice.version) => return Ok(Moved::NewerElsewhere),
                Ok(()) = self.trust.changed() => return Ok(Moved::TrustChanged),
            };
            let newer = read_slice(address, trusted, got).map_err(|error| (error, answered))?;
            if let Some(newer) = newer {
                let (theirs, ours) = (newer.version, slice.version);
                if theirs < ours {
                    return Err((UplinkError::Older { address, theirs, ours }, answered));
                }
                self.take(newer);
            }
            answered = true;
        }
    }

    /// A slice of our cluster's replica: to the beacon's thread, to the disk, to the other tasks.
    fn take(&self, slice: Slice) {
        let known = self.slice.borrow().as_ref() == Some(&slice);
        if !known {
            self.mailbox.send(Input::Slice(slice.clone()));
            self.keeper.keep(slice.clone());
            self.slice.send_replace(Some(slice));
        }
    }

    /// This host's own first choice among `count` replicas: a fleet must not hang on one of them.
    fn share(&self, count: usize) -> usize {
        usize::try_from(self.first_choice).unwrap_or(0) % count.max(1)
    }

    /// Between half of `delay` and all of it, so that hosts that failed together do not come back together.
    fn draw(&mut self, delay: Duration) -> Duration {
        self.chance =
            self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let share = u32::try_from(self.chance >> 33).unwrap_or(0) % 512 + 512;
        delay * share / 1024
    }
}

/// How following ended.
enum Followed {
    /// No replica answers.
    Unanswered,
    /// None does any more, or there is another trust file to begin with.
    Lost,
    /// A replica does not know this host.
    Refused,
}

/// Why one replica is left.
enum Moved {
    NewerElsewhere,
    TrustChanged,
}

// === helpers ===

/// Until some replica names a version that we do not have, from now on: what was named before is being polled for.
async fn newer_elsewhere(wanted: &mut watch::Receiver<u64>, have: u64) {
    while wanted.changed().await.is_ok() {
        if *wanted.borrow_and_update() > have {
            return;
        }
    }
    // The beacon's thread is gone, and with it soon this process.
    std::future::pending::<()>().await;
}

/// Of two failures the one that tells an operator more: the leader's refusal before "not the leader", before silence.
fn worse(known: Option<UplinkError>, new: UplinkError) -> UplinkError {
    let weight = |error: &UplinkError| match error {
        UplinkError::Refused { refusal, .. } if refusal.reason == "NotLeader" => 1,
        UplinkError::Refused { .. } | UplinkError::Form { .. } | UplinkError::OtherCluster { .. } => 2,
        UplinkError::Https(_) | UplinkError::Older { .. } | UplinkError::Token { .. } => 0,
    };
    match known {
        Some(known) if weight(&known) > weight(&new) => known,
        Some(_) | None => new,
    }
}

/// The slice in a poll's answer; `None` where there is no newer one.
fn read_slice(
    address: IpAddr,
    trusted: &Trusted,
    (status, body): (StatusCode, Bytes),
) -> Result<Option<Slice>, UplinkError> {
    if status == StatusCode::NO_CONTENT {
        return Ok(None);
    }
    if !status.is_success() {
        return Err(refused(address, status, &body));
    }
    let slice: Slice =
        serde_json::from_slice(&body).map_err(|source| UplinkError::Form { address, source })?;
    own_cluster(address, trusted, slice.cluster)?;
    Ok(Some(slice))
}
