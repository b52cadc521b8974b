//! Wires the agent: which tasks there are, and what happens when one ends or the process is told to stop.
//!
//! Every task has a name and is awaited. None ends before the process does; if one does, the process ends and says
//! which. Two threads of their own: the beacon's, and the one that writes to the disk.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use coroner_agent_core::{Agent, Birth, Input};
use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::names::PORT_PEER;
use coroner_shared::slice::Slice;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::args::Config;
use crate::caller::Caller;
use crate::heartbeat::{HeartbeatError, Mailbox, Outlets, Pulse};
use crate::identity::BootError;
use crate::journal::chain;
use crate::socket::Socket;
use crate::store::{Keeper, Kept, StoreError};
use crate::trust_config::Trusted;
use crate::uplink::Uplink;
use crate::{
    clock, goodbye, health, heartbeat, identity, journal, pressure, probe, steady, store, trust_config,
};

/// Log lines that may wait to be written; beyond that they are lost.
const CHANGES_MAX: usize = 256;
/// The beacon's thread stops at its next round.
const STOP_WITHIN: Duration = Duration::from_secs(1);
/// Of the pod's grace period; three replicas, two seconds each at most.
const GOODBYE_WITHIN: Duration = Duration::from_secs(5);

/// Why the agent stops, or does not start.
#[derive(Debug, Error)]
pub(crate) enum RunError {
    /// The boot cannot be told.
    #[error("find out which boot this is")]
    Boot(#[from] BootError),
    /// Nothing can be kept.
    #[error("keep this host's key")]
    Store(#[from] StoreError),
    /// A port is taken, or the address is not this host's.
    #[error("listen on {0}; another agent may be running on this host, or --address is not its own")]
    Bind(SocketAddr, #[source] io::Error),
    /// The system gives no threads, signals or randomness.
    #[error("start the agent's {0}")]
    System(&'static str, #[source] io::Error),
    /// A task ended that should not have.
    #[error("its task `{name}` ended: {why}")]
    Ended {
        /// Which.
        name: &'static str,
        /// Why.
        why: String,
    },
}

/// Runs until told to stop.
///
/// # Errors
/// [`RunError`].
pub(crate) fn start(config: Config) -> Result<(), RunError> {
    // One thread serves all that is not the beacon; blocking reads of files get at most two more.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(2)
        .thread_stack_size(256 * 1024)
        .build();
    let runtime = runtime.map_err(|source| RunError::System("runtime", source))?;
    let result = runtime.block_on(run(config));
    // A read that hangs on a dead disk must not keep the process alive.
    runtime.shutdown_background();
    result
}

/// What the tasks share.
struct Parts {
    caller: Arc<Caller>,
    trust: watch::Receiver<Option<Trusted>>,
    slice: watch::Receiver<Option<Slice>>,
    mailbox: Mailbox,
    heartbeat: Ending,
    store: oneshot::Receiver<()>,
    tasks: JoinSet<&'static str>,
}

/// How the beacon's thread ends.
type Ending = oneshot::Receiver<Result<(), HeartbeatError>>;

async fn run(config: Config) -> Result<(), RunError> {
    let host_root = config.host_root.clone();
    // Before anything can be seen outside: a signal that comes early must not end it in silence.
    let mut terminate = signals(SignalKind::terminate())?;
    let mut interrupt = signals(SignalKind::interrupt())?;
    let mut parts = wire(config).await?;
    let ended = tokio::select! {
        _ = terminate.recv() => None,
        _ = interrupt.recv() => None,
        end = &mut parts.heartbeat => Some(("heartbeat", thread_end(end))),
        _ = &mut parts.store => Some(("store", "its thread died".to_owned())),
        Some(task) = parts.tasks.join_next() => Some(match task {
            Ok(name) => (name, "it returned".to_owned()),
            Err(error) => ("of the runtime", error.to_string()),
        }),
    };
    match ended {
        Some((name, why)) => Err(RunError::Ended { name, why }),
        None => {
            stop(parts, &host_root).await;
            Ok(())
        }
    }
}

/// Reads what is kept, starts the beacon at once, then everything else.
async fn wire(config: Config) -> Result<Parts, RunError> {
    let boot = identity::boot(&config.host_root)?;
    let machine = identity::machine(&config.host_root).map_err(|why| why.to_string());
    match &machine {
        Ok(machine) => info!(node = %config.node, %machine, %boot, address = %config.address, "this host"),
        Err(why) => warn!(
            node = %config.node, %boot, address = %config.address,
            "this host is {why}. It registers and says so, hears its peers and sends no beacons; \
             correct its firmware's SMBIOS UUID to have it protected"
        ),
    }
    let Kept { key, slice } = store::open(&config.host_root, machine.as_ref().ok().copied())?;
    let listen = SocketAddr::new(config.address, PORT_PEER);
    let socket = Socket::bind(listen).map_err(|source| RunError::Bind(listen, source))?;
    let listener =
        health::bind(config.health).await.map_err(|source| RunError::Bind(config.health, source))?;
    let seed = seed()?;
    steady::settle();
    let birth = Birth { boot, machine: machine.as_ref().ok().copied(), seed, sign: Box::new(key.clone()) };
    let agent = Agent::new(clock::now(), birth);
    let (probes, requests) = mpsc::channel(probe::PROBES_MAX);
    let (changes, to_write) = mpsc::channel(CHANGES_MAX);
    let (slice_wanted, wanted) = watch::channel(0);
    let (pulse, seen) = watch::channel(Pulse { at: clock::now(), ..Pulse::default() });
    let outlets = Outlets { probes, changes, slice_wanted, pulse };
    let beating = heartbeat::start(socket, agent, key.clone(), outlets);
    let (mailbox, heartbeat) = beating.map_err(|source| RunError::System("heartbeat", source))?;
    if let Some(slice) = &slice {
        info!(version = slice.version, cluster = %slice.cluster, "beacons at once with the slice of last time");
        mailbox.send(Input::Slice(slice.clone()));
    }
    probe::tell_whether_ping_is_permitted(config.address);
    let kept = store::keeper(&config.host_root);
    let (keeper, store) = kept.map_err(|source| RunError::System("store", source))?;
    let not_fenceable = machine.as_ref().err().cloned().unwrap_or_default();
    let caller = Caller::new(config.node, config.address, machine, boot, key, config.token_file);
    let mut parts = Parts {
        caller: Arc::new(caller),
        trust: watch::channel(None).1,
        slice: watch::channel(None).1,
        mailbox,
        heartbeat,
        store,
        tasks: JoinSet::new(),
    };
    parts.tasks.spawn(named("journal", journal::write(to_write)));
    parts.tasks.spawn(named("probe", probe::serve(requests, parts.mailbox.clone())));
    let (host_root, mailbox) = (config.host_root, parts.mailbox.clone());
    parts.tasks.spawn(named("pressure", async move { pressure::watch(&host_root, mailbox).await }));
    let shown = Shared { pulse: seen, listener, not_fenceable, wanted, keeper, seed, slice };
    spawn_talkers(&mut parts, shown, config.trust_dir);
    Ok(parts)
}

/// What only the talking tasks need.
struct Shared {
    pulse: watch::Receiver<Pulse>,
    listener: TcpListener,
    not_fenceable: String,
    wanted: watch::Receiver<u64>,
    keeper: Keeper,
    seed: u64,
    slice: Option<Slice>,
}

/// The tasks that talk to replicas and to the kubelet.
fn spawn_talkers(parts: &mut Parts, shared: Shared, trust_dir: std::path::PathBuf) {
    let (trust_out, trust) = watch::channel(None);
    let (slice_out, slice) = watch::channel(shared.slice);
    parts.tasks.spawn(named("trust", trust_config::watch(trust_dir, trust_out)));
    let uplink = Uplink {
        caller: parts.caller.clone(),
        trust: trust.clone(),
        slice: slice_out,
        slice_wanted: shared.wanted,
        mailbox: parts.mailbox.clone(),
        keeper: shared.keeper,
        first_choice: u32::try_from(shared.seed >> 32).unwrap_or(0),
        chance: shared.seed,
    };
    parts.tasks.spawn(named("uplink", uplink.run()));
    let shown = health::Shown {
        pulse: shared.pulse,
        slice: slice.clone(),
        not_fenceable: shared.not_fenceable.into(),
    };
    parts.tasks.spawn(named("health", health::serve(shared.listener, shown)));
    (parts.trust, parts.slice) = (trust, slice);
}

/// Silence first, then the goodbye: a beacon or a registration after it would end it.
async fn stop(mut parts: Parts, host_root: &std::path::Path) {
    let goodbye = goodbye::look(host_root, clock::wall_us());
    info!(kind = ?goodbye.kind, because = goodbye.because, "told to stop");
    parts.mailbox.stop();
    if timeout(STOP_WITHIN, &mut parts.heartbeat).await.is_err() {
        warn!("the beacon's thread did not stop in time; its last beacons may end the goodbye");
    }
    // Dropping the tasks drops the last keeper, too; its thread writes what it has and ends.
    if timeout(STOP_WITHIN, parts.tasks.shutdown()).await.is_err() {
        warn!("a task did not stop in time; the goodbye does not wait for it");
    }
    let (trust, slice) = (parts.trust.borrow().clone(), parts.slice.borrow().clone());
    match (trust, slice) {
        (Some(trust), Some(slice)) => say_goodbye(&parts.caller, goodbye.kind, &trust, &slice).await,
        (None, _) | (_, None) => info!("not registered, so there is nobody to say goodbye to"),
    }
    let _ = timeout(STOP_WITHIN, parts.store).await;
}

async fn say_goodbye(caller: &Caller, kind: GoodbyeKind, trust: &Trusted, slice: &Slice) {
    let saying = caller.goodbye(kind, trust, slice);
    match timeout(GOODBYE_WITHIN, saying).await {
        Ok(Ok(replica)) => info!(%replica, "said goodbye"),
        Ok(Err(error)) => warn!(
            error = error.as_ref().map_or("no replica is known".to_owned(), |error| chain(error)),
            "no replica took the goodbye; until an agent speaks again this host counts as silent"
        ),
        Err(_) => warn!(
            "no replica took the goodbye in time; until an agent speaks again this host counts as silent"
        ),
    }
}

// === helpers ===

/// A task that says who it was when it ends.
async fn named(name: &'static str, task: impl Future<Output = ()>) -> &'static str {
    task.await;
    name
}

fn thread_end(end: Result<Result<(), HeartbeatError>, oneshot::error::RecvError>) -> String {
    match end {
        Ok(Ok(())) => "it returned".to_owned(),
        Ok(Err(error)) => chain(&error),
        Err(_) => chain(&HeartbeatError::Died),
    }
}

fn signals(kind: SignalKind) -> Result<tokio::signal::unix::Signal, RunError> {
    signal(kind).map_err(|source| RunError::System("signals", source))
}

fn seed() -> Result<u64, RunError> {
    let mut bytes = [0; 8];
    let filled = getrandom::fill(&mut bytes);
    filled.map_err(|error| RunError::System("random numbers", io::Error::other(error)))?;
    Ok(u64::from_le_bytes(bytes))
}
