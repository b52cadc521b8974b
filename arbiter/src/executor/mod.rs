//! The leader's hands: compares the jobs that the state asks for with those that run, starts what is missing and stops
//! what is no longer wanted. What a job does is in the other files of this folder; what must be done is never decided
//! here.

mod binding;
mod fence;
mod publish;
mod release;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use coroner_arbiter_core::command::{Command, Outcome};
use coroner_arbiter_core::jobs::{self, Job, JobKey};
use coroner_arbiter_core::last_read::MadeAgain;
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::told::Told;
use coroner_arbiter_replica::{NotLeader, Role};
use coroner_shared::time::{Mono, Span};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::bmc_pool::BmcPool;
use crate::clock;
use crate::hearing::Hearing;
use crate::k8s::publish::Publisher;
use crate::k8s::release::Writer;
use crate::propose::Proposer;
use crate::replica::{ProposeError, Published};
use crate::telemetry::{Reason, Telemetry};

/// A job that ended while it is still asked for is begun again after this.
const AGAIN: Span = Span::from_ms(500);

/// What jobs work with.
#[derive(Clone)]
pub struct Tools {
    /// Proposes.
    pub proposer: Proposer,
    /// BMCs.
    pub bmcs: BmcPool,
    /// What is heard.
    pub hearing: Hearing,
    /// Writes of release and return.
    pub writer: Writer,
    /// Writes of our own resources.
    pub publisher: Publisher,
    /// Metrics.
    pub telemetry: Arc<Telemetry>,
    /// Readings that were made again; a cache, so losing it costs time only.
    pub made_again: Kept<MadeAgain>,
    /// What people were told lately.
    pub told: Kept<Told>,
}

/// What the leader keeps for itself, beside the log.
#[derive(Default)]
pub struct Kept<T>(Arc<Mutex<T>>);

/// One that runs.
struct Running {
    job: Job,
    cancel: watch::Sender<bool>,
}

/// Runs jobs while this replica leads, for ever.
pub async fn run(tools: Tools) {
    let mut published = tools.proposer.handle().watch();
    let mut running: BTreeMap<JobKey, Running> = BTreeMap::new();
    let mut ended: BTreeMap<JobKey, Mono> = BTreeMap::new();
    let mut tasks: JoinSet<(JobKey, Job)> = JoinSet::new();
    let mut every = tokio::time::interval(Duration::from_millis(250));
    let mut rounds = JoinSet::new();
    rounds.spawn(binding::rounds(tools.clone()));
    loop {
        let snapshot = published.borrow_and_update().clone();
        let now = clock::now();
        // Followers as well: who leads next must know what people were told.
        tools.told.with(|told| told.look(now, &snapshot.state));
        reconcile(&tools, &snapshot, now, &mut running, &mut ended, &mut tasks);
        tokio::select! {
            changed = published.changed() => if changed.is_err() { break },
            Some(done) = tasks.join_next() => match done {
                Ok((key, job)) => {
                    // A job that was replaced while it ended has its successor in the map.
                    if running.get(&key).is_some_and(|r| r.job == job) {
                        running.remove(&key);
                    }
                    ended.insert(key, clock::now());
                }
                Err(error) => tracing::error!(%error, "a job failed in a way that it should not; it is begun again"),
            },
            _ = every.tick() => {}
        }
    }
}

fn reconcile(
    tools: &Tools,
    snapshot: &Published,
    now: Mono,
    running: &mut BTreeMap<JobKey, Running>,
    ended: &mut BTreeMap<JobKey, Mono>,
    tasks: &mut JoinSet<(JobKey, Job)>,
) {
    let wanted: BTreeMap<JobKey, Job> = match snapshot.role {
        Role::Leader => jobs::jobs(&snapshot.state).into_iter().map(|job| (job.key(), job)).collect(),
        Role::Follower { .. } => BTreeMap::new(),
    };
    running.retain(|key, run| {
        let keep = wanted.get(key).is_some_and(|wanted| run.job.goes_on_as(wanted));
        if !keep {
            run.cancel.send_replace(true);
        }
        keep
    });
    ended.retain(|_, at| now.since(*at) < AGAIN);
    for (key, job) in wanted {
        if running.contains_key(&key) || ended.contains_key(&key) {
            continue;
        }
        let (cancel, cancelled) = watch::channel(false);
        let (tools, task_job, task_key) = (tools.clone(), job.clone(), key.clone());
        tasks.spawn(async move {
            perform(&tools, &task_job, cancelled).await;
            (task_key, task_job)
        });
        running.insert(key, Running { job, cancel });
    }
}

/// Does one job until it is done or no longer wanted.
async fn perform(tools: &Tools, job: &Job, mut cancelled: watch::Receiver<bool>) {
    // A fence looks at the cancellation itself: a command under way is never cut off half-way.
    if let Job::Fence(fence) = job {
        return fence::run(tools, job, fence, cancelled).await;
    }
    let work = async {
        match job {
            Job::Fence(_) => {}
            Job::Release(release) => release::release(tools, job, release).await,
            Job::WriteRelease(write) => release::write(tools, job, write).await,
            Job::Expedite(expedite) => release::expedite(tools, expedite).await,
            Job::WatchReleased(watch) => release::watch(tools, watch).await,
            Job::PowerOn(on) => release::power_on(tools, on).await,
            Job::Return(back) => release::give_back(tools, job, back).await,
            Job::Verify { node, .. } => binding::verify(tools, node).await,
            Job::PublishIncident { incident, .. } => publish::incident(tools, incident).await,
            Job::PublishBinding { node, ready, pin } => {
                publish::binding(tools, node, ready, pin.as_ref()).await;
            }
            Job::PublishPolicy { name, conflicts } => publish::policy(tools, name, conflicts).await,
            Job::Page { node, reason, text } => publish::page(tools, node, reason, text).await,
        }
    };
    tokio::select! {
        () = work => {}
        _ = cancelled.wait_for(|stop| *stop) => {}
    }
}

// === impl Kept ===

impl<T> Clone for Kept<T> {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

impl<T> Kept<T> {
    /// Works on what is kept.
    fn with<A>(&self, work: impl FnOnce(&mut T) -> A) -> A {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

// === impl Tools ===

impl Tools {
    /// Proposes a job's result. A refusal is logged and counted: it is an answer, not an error.
    ///
    /// # Errors
    /// This replica leads no more, or the outcome is not known.
    pub async fn commit(&self, command: Command) -> Result<Outcome, ProposeError> {
        let outcome = self.proposer.here(command).await?;
        if let Outcome::Refused(refusal) = &outcome {
            self.telemetry.refusals.get_or_create(&Reason { reason: refusal.reason.clone() }).inc();
        }
        Ok(outcome)
    }

    /// The state by a linearizable read that took at most half a second; only a leader gets one.
    ///
    /// # Errors
    /// The read could not be made, or this replica leads no more.
    pub async fn read_state(&self) -> Result<Arc<State>, ProposeError> {
        self.proposer.handle().read_index(Duration::from_millis(500)).await?;
        let published = self.proposer.published();
        match published.role {
            Role::Leader => Ok(published.state),
            Role::Follower { leader } => Err(NotLeader::Elsewhere { leader }.into()),
        }
    }

    /// The last look of a job that writes to Kubernetes: whether exactly this is still asked for. `false` also where that
    /// cannot be said.
    pub async fn still_wanted(&self, job: &Job) -> bool {
        self.read_state().await.is_ok_and(|state| jobs::wanted(&state, job))
    }
}

#[cfg(test)]
mod tests;
