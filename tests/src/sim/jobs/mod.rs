//! The leader's hands: starts the jobs that the state asks for and stops those it asks for no longer. Mirrors
//! `arbiter/src/executor`; it performs calls and decides nothing.

pub(crate) mod binding;
mod fence;
mod release;
mod writes;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::jobs::{self, Job, JobKey};
use coroner_arbiter_core::last_read::MadeAgain;
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::told::Told;
use coroner_arbiter_replica::Role;
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use super::process::Published;
use super::task::{Signal, TaskId};
use super::world::{Group, Shared, World};

/// A job that ended while it is still asked for is begun again after this.
const AGAIN: Span = Span::from_ms(500);
const ROUND: Span = Span::from_ms(250);

/// What runs.
#[derive(Default)]
pub(crate) struct Running {
    jobs: BTreeMap<JobKey, Under>,
    ended: BTreeMap<JobKey, Mono>,
    /// What the state asked for when it was looked at last, and how far the log was applied then.
    wanted: Option<(u64, Rc<BTreeMap<JobKey, Job>>)>,
    /// Readings that were made again.
    made_again: MadeAgain,
    /// What people were told lately, and the state that was looked at last for it.
    told: (Told, Option<Arc<State>>),
}

struct Under {
    job: Job,
    task: TaskId,
    cancel: Cancel,
}

/// Tells a job that it is no longer wanted.
#[derive(Clone)]
pub(crate) struct Cancel {
    pub(crate) wanted: Rc<Cell<bool>>,
    pub(crate) changed: Signal,
}

// === impl Running ===

impl Running {
    /// Keeps in mind what people were told. What stood until now is looked at once more when the state changes.
    fn look(&mut self, now: Mono, published: &Published) {
        let (told, seen) = &mut self.told;
        if seen.as_ref().is_some_and(|state| state.applied == published.state.applied) {
            return;
        }
        if let Some(stood_until_now) = seen.replace(Arc::clone(&published.state)) {
            told.look(now, &stood_until_now);
        }
        told.look(now, &published.state);
    }

    /// What the state asks for; it follows from the state alone, so it is found anew only when that has changed.
    fn wanted(&mut self, published: &Published) -> Rc<BTreeMap<JobKey, Job>> {
        if let Some((_, wanted)) = self.wanted.as_ref().filter(|(at, _)| *at == published.applied) {
            return Rc::clone(wanted);
        }
        let wanted: Rc<BTreeMap<JobKey, Job>> =
            Rc::new(jobs::jobs(&published.state).into_iter().map(|job| (job.key(), job)).collect());
        self.wanted = Some((published.applied, Rc::clone(&wanted)));
        wanted
    }
}

// === impl World ===

impl World {
    pub(crate) fn reconcile_round(&mut self, index: usize, group: Group) {
        if self.process(index, group).is_none() {
            return;
        }
        self.reconcile(index);
        let host = self.site.replicas[index];
        self.on_machine(ROUND, host, move |world| world.reconcile_round(index, group));
    }

    pub(crate) fn reconcile(&mut self, index: usize) {
        let host = self.site.replicas[index];
        let now = self.machines[host].host_time(self.now);
        let signal = self.reactor.signal();
        let Some(process) = self.replicas[index].process.as_deref_mut() else { return };
        process.running.look(now, &process.published);
        let leads = process.published.role == Role::Leader;
        if !leads && process.running.jobs.is_empty() {
            return;
        }
        let wanted = if leads { process.running.wanted(&process.published) } else { Rc::default() };
        let group = process.group;
        let mut over = Vec::new();
        process.running.jobs.retain(|key, under| {
            let keep = wanted.get(key).is_some_and(|wanted| under.job.goes_on_as(wanted));
            if !keep {
                under.cancel.wanted.set(false);
                under.cancel.changed.send();
                // A fence looks at this itself: a command under way is never cut off half-way.
                if !matches!(under.job, Job::Fence(_)) {
                    over.push(under.task);
                }
            }
            keep
        });
        process.running.ended.retain(|_, at| now.since(*at) < AGAIN);
        let fresh: Vec<(JobKey, Job)> = wanted
            .iter()
            .filter(|(key, _)| {
                !process.running.jobs.contains_key(key) && !process.running.ended.contains_key(key)
            })
            .map(|(key, job)| (key.clone(), job.clone()))
            .collect();
        self.killed_tasks.extend(over);
        for (key, job) in fresh {
            let cancel = Cancel { wanted: Rc::new(Cell::new(true)), changed: signal.clone() };
            let (task_job, task_key, task_cancel) = (job.clone(), key.clone(), cancel.clone());
            let task = self.spawn(host, group, move |shared| {
                Box::pin(async move {
                    perform(&shared, index, &task_job, task_cancel).await;
                    shared.job_ended(index, group, task_key, &task_job);
                })
            });
            if let Some(process) = self.replicas[index].process.as_deref_mut() {
                process.running.jobs.insert(key, Under { job, task, cancel });
            }
        }
    }
}

impl Shared {
    /// Whether people were not told of that lately.
    fn is_news(&self, index: usize, node: &NodeName, reason: &str) -> bool {
        let now = self.host_now(index);
        let mut world = self.world.borrow_mut();
        let Some(process) = world.replicas[index].process.as_deref_mut() else { return false };
        process.running.told.0.tell(now, &process.published.state, node, reason)
    }

    fn job_ended(&self, index: usize, group: Group, key: JobKey, job: &Job) {
        let now = self.host_now(index);
        let mut world = self.world.borrow_mut();
        let Some(process) = world.process(index, group) else { return };
        // A job that was replaced while it ended has its successor in the map.
        if process.running.jobs.get(&key).is_some_and(|under| under.job == *job) {
            process.running.jobs.remove(&key);
        }
        process.running.ended.insert(key, now);
    }
}

impl Shared {
    /// The last look of a job that writes to Kubernetes.
    async fn still_wanted(&self, index: usize, job: &Job) -> bool {
        if self.read_index(index, Span::from_ms(500)).await.is_err() {
            return false;
        }
        self.published(index).is_some_and(|p| p.role == Role::Leader && jobs::wanted(&p.state, job))
    }
}

async fn perform(shared: &Shared, index: usize, job: &Job, cancel: Cancel) {
    match job {
        Job::Fence(fence) => fence::run(shared, index, job, fence, cancel).await,
        Job::Release(release) => release::release(shared, index, job, release).await,
        Job::WriteRelease(write) => release::write(shared, index, job, write).await,
        Job::Expedite(expedite) => release::expedite(shared, index, expedite).await,
        Job::WatchReleased(watch) => release::watch(shared, index, watch).await,
        Job::PowerOn(on) => release::power_on(shared, index, on).await,
        Job::Return(back) => release::give_back(shared, index, job, back).await,
        Job::Verify { node, .. } => binding::verify(shared, index, node).await,
        // Copies for people: they change nothing that is judged here.
        Job::PublishIncident { .. } | Job::PublishBinding { .. } | Job::PublishPolicy { .. } => {
            std::future::pending::<()>().await;
        }
        Job::Page { node, reason, text } => {
            if shared.is_news(index, node, reason) {
                shared.world.borrow_mut().paged(node, reason, text);
            }
            let command = Command::Paged { node: node.clone(), reason: reason.clone() };
            // Not committed: given again.
            let _ = shared.commit(index, command).await;
            shared.reactor.sleep(Span::from_secs(2)).await;
        }
    }
}
