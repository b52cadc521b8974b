//! The thread that owns the replica. Others hold a [`ReplicaHandle`] to send commands and a receiver of [`Published`]
//! snapshots; nobody else touches raft, the state or the disk.
//!
//! It is a thread of its own because it waits for the disk. A fatal error or a panic ends it, and with it the process.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_core::state::State;
use coroner_arbiter_replica::{
    Applied, Bootstrap, Fatal, LogStore, NotLeader, Replica, ReplicaConfig, Role, Turn,
};
use coroner_shared::id::ReplicaId;
use coroner_shared::time::{Mono, Span};
use thiserror::Error;
use tokio::sync::{mpsc, oneshot, watch};

use crate::store::{self, StoreKind};
use crate::{begun, clock};

/// Raft's tick.
const TICK: Span = Span::from_ms(50);
/// A leader that slept longer than this steps down before it does anything else.
const SLEPT: Span = Span::from_secs(2);
/// Commands that may wait for the thread; more means that the disk does not keep up.
const QUEUE: usize = 4096;
/// Commands that share one sync at most, so that a flood does not keep the thread from its ticks.
const ASKS_A_TURN: usize = 512;
/// How far behind the members are is published this often while nothing is applied.
const LAG_EVERY: Span = Span::from_secs(1);

/// The disk, whichever it is.
type Store = Box<dyn LogStore>;

/// What all parts of the process may see.
#[derive(Clone, Debug)]
pub struct Published {
    /// The state after the last applied entry.
    pub state: Arc<State>,
    /// This replica's role.
    pub role: Role,
    /// Raft term.
    pub term: u64,
    /// Index of the last applied entry.
    pub applied: u64,
    /// Index up to which the group has committed.
    pub committed: u64,
    /// On a leader: members heard from lately, itself included.
    pub active: Option<usize>,
    /// On a leader: how many entries each member's log is behind.
    pub lag: BTreeMap<ReplicaId, u64>,
    /// When, on our clock, the last entry was applied: the state's log time was reached then.
    pub at: Mono,
}

/// Why a proposal has no outcome.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ProposeError {
    /// Not here.
    #[error(transparent)]
    NotLeader(#[from] NotLeader),
    /// It may have been committed or not: the leader changed, or too much time went by.
    #[error("it is not known whether the command was committed; look at the state before repeating it")]
    Unknown,
    /// The replica's thread has ended.
    #[error("the replica has stopped")]
    Stopped,
}

/// What others may ask of the thread.
enum Ask {
    Step { peer: ReplicaId, bytes: Vec<u8> },
    Propose { key: String, command: Box<Command>, answer: oneshot::Sender<Result<Outcome, ProposeError>> },
    Read { answer: oneshot::Sender<Result<(), ProposeError>> },
    Unreachable(ReplicaId),
    SnapshotSent { to: ReplicaId, sent: bool },
    StepDown,
}

/// A sender of commands and a receiver of snapshots.
#[derive(Clone)]
pub struct ReplicaHandle {
    asks: mpsc::Sender<Ask>,
    published: watch::Receiver<Published>,
    id: ReplicaId,
    /// When the leader was last heard from, milliseconds of our clock.
    contact: Arc<AtomicU64>,
}

/// The other ends, for the transport and for whoever waits for the thread.
pub struct Running {
    /// For everybody.
    pub handle: ReplicaHandle,
    /// Messages for other replicas.
    pub messages: mpsc::Receiver<(ReplicaId, Vec<u8>)>,
    /// Ends when the thread ends.
    pub ended: oneshot::Receiver<Result<(), Fatal>>,
}

// === impl ReplicaHandle ===

impl ReplicaHandle {
    /// Proposes a command and waits for its outcome, at most 5 s.
    ///
    /// # Errors
    /// [`ProposeError`].
    pub async fn propose(&self, key: String, command: Command) -> Result<Outcome, ProposeError> {
        let (answer, wait) = oneshot::channel();
        let ask = Ask::Propose { key, command: Box::new(command), answer };
        self.asks.send(ask).await.map_err(|_| ProposeError::Stopped)?;
        match tokio::time::timeout(Duration::from_secs(5), wait).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(ProposeError::Stopped),
            Err(_) => Err(ProposeError::Unknown),
        }
    }

    /// Waits until a quorum has confirmed the leader and the state holds all that was committed before, at most `limit`.
    ///
    /// # Errors
    /// [`ProposeError`]; [`ProposeError::Unknown`] when the limit is over.
    pub async fn read_index(&self, limit: Duration) -> Result<(), ProposeError> {
        let (answer, wait) = oneshot::channel();
        self.asks.send(Ask::Read { answer }).await.map_err(|_| ProposeError::Stopped)?;
        match tokio::time::timeout(limit, wait).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(ProposeError::Stopped),
            Err(_) => Err(ProposeError::Unknown),
        }
    }

    /// The newest snapshot.
    pub fn published(&self) -> Published {
        self.published.borrow().clone()
    }

    /// A receiver of all further ones.
    pub fn watch(&self) -> watch::Receiver<Published> {
        self.published.clone()
    }

    /// This replica's id.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Whether this replica leads.
    pub fn leads(&self) -> bool {
        self.published.borrow().role == Role::Leader
    }

    /// How old what this replica shows may be: since it last heard from the leader; nothing where it leads itself, since
    /// raft's check of the quorum ends that within an election time-out.
    pub fn age(&self) -> Span {
        match self.published.borrow().role {
            Role::Leader => Span::ZERO,
            Role::Follower { .. } => clock::now().since(Mono::from_ms(self.contact.load(Ordering::Relaxed))),
        }
    }

    /// Hands in a message of another replica.
    pub async fn step(&self, peer: ReplicaId, bytes: Vec<u8>) {
        if self.published.borrow().role == (Role::Follower { leader: Some(peer) }) {
            self.contact.store(clock::now().as_ms(), Ordering::Relaxed);
        }
        // The receiver only goes away when the process ends.
        let _ = self.asks.send(Ask::Step { peer, bytes }).await;
    }

    /// A replica could not be reached.
    pub async fn unreachable(&self, peer: ReplicaId) {
        let _ = self.asks.send(Ask::Unreachable(peer)).await;
    }

    /// How the sending of a snapshot ended.
    pub async fn snapshot_sent(&self, to: ReplicaId, sent: bool) {
        let _ = self.asks.send(Ask::SnapshotSent { to, sent }).await;
    }

    /// Gives up leading.
    pub async fn step_down(&self) {
        let _ = self.asks.send(Ask::StepDown).await;
    }
}

/// Opens the disk and starts the thread.
///
/// # Errors
/// The disk cannot be opened or read, or is not this replica's.
pub fn start(config: ReplicaConfig, path: &Path, bootstrap: &Bootstrap) -> Result<Running, Fatal> {
    start_on(StoreKind::default(), config, path, bootstrap)
}

/// As [`start`], in a store of this kind.
///
/// # Errors
/// As [`start`].
pub fn start_on(
    kind: StoreKind,
    config: ReplicaConfig,
    path: &Path,
    bootstrap: &Bootstrap,
) -> Result<Running, Fatal> {
    let id = config.id;
    let failed = |source| Fatal::Store { id, source };
    let begun = begun::check(path, id, kind).map_err(failed)?;
    let mut store = store::open(kind, path).map_err(failed)?;
    if begun && store.load().map_err(failed)?.is_none() {
        return Err(failed(begun::lost(path, id)));
    }
    let replica = Replica::open(config, store, bootstrap, &raft_logger())?;
    // Before its first word: from here on an empty log is a lost one.
    if !begun {
        begun::note(path, id, kind).map_err(failed)?;
    }
    spawn(replica, path)
}

fn spawn(replica: Replica<Store>, path: &Path) -> Result<Running, Fatal> {
    let (asks, asked) = mpsc::channel(QUEUE);
    let (outgoing, messages) = mpsc::channel(QUEUE);
    let now = clock::now();
    let (publish, published) = watch::channel(publication(&replica, now, None));
    let (end, ended) = oneshot::channel();
    let id = replica.id();
    // Only to wait for the next ask or tick; everything else on this thread may block on the disk.
    let io = |source: std::io::Error| Fatal::Store {
        id,
        source: store::failed("start the replica's thread", path, source),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().map_err(io)?;
    let spawned = std::thread::Builder::new().name("replica".to_owned()).spawn(move || {
        let mut owner = Owner {
            replica,
            outgoing,
            publish,
            waiting: HashMap::new(),
            reads: HashMap::new(),
            next_read: 0,
            applied_at: now,
            published_at: now,
        };
        // Whoever waits for the end is the process's last act; if it is gone there is nobody to tell.
        let _ = end.send(owner.run(&runtime, asked));
    });
    spawned.map_err(io)?;
    let contact = Arc::new(AtomicU64::new(now.as_ms()));
    Ok(Running { handle: ReplicaHandle { asks, published, id, contact }, messages, ended })
}

// === the thread ===

struct Owner {
    replica: Replica<Store>,
    outgoing: mpsc::Sender<(ReplicaId, Vec<u8>)>,
    publish: watch::Sender<Published>,
    /// Proposals without an outcome yet, by key.
    waiting: HashMap<String, oneshot::Sender<Result<Outcome, ProposeError>>>,
    /// Linearizable reads not yet answered, by context.
    reads: HashMap<u64, oneshot::Sender<Result<(), ProposeError>>>,
    next_read: u64,
    applied_at: Mono,
    published_at: Mono,
}

impl Owner {
    fn run(
        &mut self,
        runtime: &tokio::runtime::Runtime,
        mut asked: mpsc::Receiver<Ask>,
    ) -> Result<(), Fatal> {
        let mut last_tick = clock::now();
        loop {
            let received = receive(runtime, &mut asked, (last_tick + TICK).since(clock::now()));
            let now = clock::now();
            let slept = now.since(last_tick);
            if slept > SLEPT {
                tracing::warn!(slept = %slept, "this replica was asleep; it gives up leading, if it did");
                self.replica.step_down();
            }
            match received {
                Received::Ask(ask) => {
                    self.handle(now, ask);
                    // Whatever else has arrived shares the next sync.
                    for _ in 1..ASKS_A_TURN {
                        let Ok(ask) = asked.try_recv() else { break };
                        self.handle(now, ask);
                    }
                }
                Received::Nothing => {}
                Received::Closed => return Ok(()),
            }
            if slept >= TICK {
                // One tick whatever the gap: time that was slept through must not start an election at once.
                self.replica.tick();
                last_tick = now;
            }
            self.turn()?;
        }
    }

    fn handle(&mut self, now: Mono, ask: Ask) {
        match ask {
            Ask::Step { peer, bytes } => {
                if let Err(error) = self.replica.step(peer, &bytes) {
                    tracing::debug!(%peer, %error, "a message of another replica was not taken");
                }
            }
            Ask::Propose { key, command, answer } => match self.replica.propose(now, key.clone(), *command) {
                Ok(()) => {
                    self.waiting.insert(key, answer);
                }
                Err(error) => {
                    let _ = answer.send(Err(error.into()));
                }
            },
            Ask::Read { answer } => {
                self.next_read += 1;
                if self.replica.read_index(self.next_read.to_be_bytes().to_vec()) {
                    self.reads.insert(self.next_read, answer);
                } else {
                    let leader = match self.replica.role().0 {
                        Role::Leader => None,
                        Role::Follower { leader } => leader,
                    };
                    let _ = answer.send(Err(NotLeader::Elsewhere { leader }.into()));
                }
            }
            Ask::Unreachable(peer) => self.replica.report_unreachable(peer),
            Ask::SnapshotSent { to, sent } => self.replica.report_snapshot(to, sent),
            Ask::StepDown => self.replica.step_down(),
        }
    }

    fn turn(&mut self) -> Result<(), Fatal> {
        let Turn { messages, applied, reads, role } = self.replica.turn()?;
        // Published before the proposers hear of it: whoever has an outcome sees a state that holds it.
        self.publish_changes(role.is_some());
        for applied in applied {
            self.answer(applied);
        }
        if let Some((role, term)) = role {
            self.fail_waiting();
            tracing::info!(?role, term, "role changed");
        }
        for context in reads {
            let number = <[u8; 8]>::try_from(context.as_slice()).map(u64::from_be_bytes);
            if let Some(answer) = number.ok().and_then(|n| self.reads.remove(&n)) {
                let _ = answer.send(Ok(()));
            }
        }
        for (to, bytes) in messages {
            if self.outgoing.try_send((to, bytes)).is_err() {
                // Raft sends again, also a snapshot, once it knows that this one did not leave.
                self.replica.report_unreachable(to);
                self.replica.report_snapshot(to, false);
            }
        }
        self.reads.retain(|_, answer| !answer.is_closed());
        self.waiting.retain(|_, answer| !answer.is_closed());
        Ok(())
    }

    /// Also while nothing is applied: who answers is what a leader's judgement and its alarms rest on.
    fn publish_changes(&mut self, role_changed: bool) {
        let now = clock::now();
        let old = self.publish.borrow().clone();
        let applied = old.applied != self.replica.applied();
        let answering = old.active != self.replica.active_members();
        let lag = now.since(self.published_at) >= LAG_EVERY && old.lag != self.replica.lag();
        if !(applied || role_changed || answering || lag) {
            return;
        }
        if applied {
            self.applied_at = now;
        }
        self.published_at = now;
        // The state is large where there are many nodes; it is copied only when it has changed.
        let same = (!applied).then_some(old.state);
        self.publish.send_replace(publication(&self.replica, self.applied_at, same));
    }

    fn answer(&mut self, applied: Applied) {
        log_applied(&applied);
        if let Some(answer) = self.waiting.remove(&applied.entry.key) {
            let _ = answer.send(Ok(applied.outcome));
        }
    }

    /// After a change of role nobody knows what becomes of what was proposed.
    fn fail_waiting(&mut self) {
        for (_, answer) in self.waiting.drain() {
            let _ = answer.send(Err(ProposeError::Unknown));
        }
        for (_, answer) in self.reads.drain() {
            let _ = answer.send(Err(ProposeError::Unknown));
        }
    }
}

enum Received {
    Ask(Ask),
    Nothing,
    Closed,
}

/// Waits for an ask, at most `limit`.
fn receive(runtime: &tokio::runtime::Runtime, asked: &mut mpsc::Receiver<Ask>, limit: Span) -> Received {
    match runtime.block_on(async { tokio::time::timeout(limit.into(), asked.recv()).await }) {
        Ok(Some(ask)) => Received::Ask(ask),
        Ok(None) => Received::Closed,
        Err(_) => Received::Nothing,
    }
}

fn publication(replica: &Replica<Store>, at: Mono, same: Option<Arc<State>>) -> Published {
    let (role, term) = replica.role();
    Published {
        state: same.unwrap_or_else(|| Arc::new(replica.state().clone())),
        role,
        term,
        applied: replica.applied(),
        committed: replica.committed(),
        active: replica.active_members(),
        lag: replica.lag(),
        at,
    }
}

fn log_applied(applied: &Applied) {
    let Applied { index, entry, outcome } = applied;
    match outcome {
        Outcome::Refused(refusal) => tracing::info!(index, reason = refusal.reason, "{}", refusal.message),
        Outcome::Done | Outcome::Unchanged | Outcome::Stale => {
            tracing::debug!(index, key = entry.key, ?outcome, "applied");
        }
    }
}

/// raft-rs speaks slog; its lines become ours.
fn raft_logger() -> slog::Logger {
    struct ToTracing;
    impl slog::Drain for ToTracing {
        type Ok = ();
        type Err = slog::Never;
        fn log(&self, record: &slog::Record<'_>, _: &slog::OwnedKVList) -> Result<(), slog::Never> {
            match record.level() {
                slog::Level::Critical | slog::Level::Error => {
                    tracing::error!(target: "raft", "{}", record.msg());
                }
                slog::Level::Warning => tracing::warn!(target: "raft", "{}", record.msg()),
                slog::Level::Info | slog::Level::Debug | slog::Level::Trace => {
                    tracing::debug!(target: "raft", "{}", record.msg());
                }
            }
            Ok(())
        }
    }
    slog::Logger::root(ToTracing, slog::o!())
}
