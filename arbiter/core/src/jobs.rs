//! The only source of work. What must be done is not a queue but a projection of the state: the leader compares it with
//! what is running, starts what is missing and stops what is no longer wanted. A new leader computes the same set.
//!
//! ```text
//!   State --jobs--> {Job}      each named by (node, life, kind), each safe to repeat
//!   State, Job --wanted--> the last look: is exactly this still asked for?
//!   State --tick_after--> how long the log may stay silent
//! ```
//!
//! A job is a value: when anything in it changes it is another job under the same key, and the executor begins anew.
//! That is why nothing that changes while the work goes on (attempt numbers, pauses, ages) is in it.
//!
//! Deliberately absent: any memory of what was done. Publications carry the version of what they copy; a job that is
//! done disappears because the command that says so changed the state.

mod fencing;
mod publishing;
mod release;
mod ticks;

use std::fmt;

use coroner_shared::id::{Incarnation, IncidentId, NodeName};
use coroner_shared::time::Span;

use crate::phase::{EvidenceClass, FenceProof, Phase, Released};
use crate::policy::{Pin, ReleaseStrategy};
use crate::state::{Node, State};

pub use fencing::{BmcKnown, Signs, again_order, fence_order, last_look};
pub use release::read_before_patch;
pub use ticks::{TICK_FAR, TICK_NEAR, deadline, tick_after};

/// One unit of work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Job {
    /// Make certain that the machine cannot act: `fence.rs` driven by the executor, from Intent to Proven.
    Fence(FenceJob),
    /// Last read, then [`crate::command::Command::ReleaseBegun`].
    Release(ReleaseJob),
    /// The patch: cordon, taint, annotation. Ends with `TaintSeen`.
    WriteRelease(WriteReleaseJob),
    /// After the taint was seen: `Ready=Unknown`, and with `Expedite` the deletion of the recorded pods.
    Expedite(ExpediteJob),
    /// Watch what is left, and the machine's power.
    WatchReleased(WatchReleasedJob),
    /// Propose [`crate::command::Command::PowerOn`]; only its `Done` permits the one sending.
    PowerOn(PowerOnJob),
    /// The way back, one step at a time.
    Return(ReturnJob),
    /// Verify a binding now: it is new, it changed, or it is disabled. (The rounds every 10 minutes are the leader's.)
    Verify {
        /// Whose.
        node: NodeName,
        /// Of which version of the binding.
        hash: String,
    },
    /// Copy an incident to its resource.
    PublishIncident {
        /// Which.
        incident: IncidentId,
        /// Entry of the log that last changed it.
        version: u64,
    },
    /// Copy the state of a binding to its resource.
    PublishBinding {
        /// Whose.
        node: NodeName,
        /// Whether the node could be fenced through it, and why not.
        ready: Result<(), String>,
        /// What is pinned.
        pin: Option<Pin>,
    },
    /// Show on a policy which others select a node that it selects.
    PublishPolicy {
        /// Which policy.
        name: String,
        /// Names of the others.
        conflicts: Vec<String>,
    },
    /// Give a page (Warning kube event, metric), then [`crate::command::Command::Paged`].
    Page {
        /// About whom.
        node: NodeName,
        /// A stable word.
        reason: String,
        /// For people: what happened, and what they can do.
        text: String,
    },
}

/// Which life a job belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life {
    /// The node.
    pub node: NodeName,
    /// The incident.
    pub incident: IncidentId,
    /// Node, machine and boot.
    pub incarnation: Incarnation,
}

/// See [`Job::Fence`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FenceJob {
    /// Whose life.
    pub life: Life,
    /// On what evidence.
    pub class: EvidenceClass,
    /// Our taint stands, the same boot was heard: being heard does not stop it.
    pub re_fence: bool,
    /// Version of the binding.
    pub binding: String,
    /// Its pin.
    pub pin: Pin,
    /// Quirk `cached`.
    pub cached: bool,
    /// The policy's `timings.stalled`.
    pub stalled_after: Span,
}

/// See [`Job::Release`]. Cannot be built without a proof. Where the last read asks for readings made again, they are
/// part of this job and go into `ReleaseBegun`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseJob {
    /// Whose life.
    pub life: Life,
    /// The proof.
    pub proof: FenceProof,
    /// What was recorded when the node was released for the first time, in a re-fence.
    pub kept: Option<Released>,
    /// The binding's pin, for the last read; `None`: there is no BMC to read.
    pub pin: Option<Pin>,
    /// Quirk `cached`.
    pub cached: bool,
}

/// See [`Job::WriteRelease`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteReleaseJob {
    /// Whose life; the patch tests its Node uid and boot id.
    pub life: Life,
    /// The proof that the annotation names.
    pub proof: FenceProof,
    /// What was recorded.
    pub released: Released,
}

/// See [`Job::Expedite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExpediteJob {
    /// Whose life.
    pub life: Life,
    /// The proof that makes writing `Ready=Unknown` honest.
    pub proof: FenceProof,
    /// Whether pods are deleted, or only the condition is set.
    pub strategy: ReleaseStrategy,
    /// What was recorded.
    pub released: Released,
}

/// See [`Job::WatchReleased`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WatchReleasedJob {
    /// Whose life.
    pub life: Life,
    /// Recorded pods and attachments that must go; `None`: they are gone.
    pub leftovers: Option<Released>,
    /// Read the power state every 30 s and tell changes (`PowerAfterRelease`).
    pub power: bool,
}

/// See [`Job::PowerOn`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PowerOnJob {
    /// Whose life.
    pub life: Life,
    /// The binding's pin: identify in the same session.
    pub pin: Pin,
}

/// See [`Job::Return`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReturnJob {
    /// Whose life ended.
    pub life: Life,
    /// What to do now.
    pub step: ReturnStep,
}

/// The steps of a return for which somebody must act; waiting is in [`crate::status`], not here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReturnStep {
    /// Take taint and annotation away, read back that they are gone, then `TaintRemoved`.
    RemoveTaint {
        /// Whether the taint was somebody else's before us: only the annotation goes.
        keep_taint: bool,
        /// Whether the mark names an incident that this group never knew (all replicas were lost once).
        orphaned: bool,
    },
    /// Uncordon if we cordoned, see that nothing of ours is left, then `Returned`.
    Finish {
        /// Whether the cordon is ours to take away.
        uncordon: bool,
    },
}

/// The name of a job.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct JobKey {
    /// Its kind.
    pub kind: &'static str,
    /// Node, incident or policy.
    pub subject: String,
    /// Which life: the incident, the version of a binding, the reason of a page.
    pub life: String,
}

/// Everything that must be done now, nodes in order of their names.
pub fn jobs(state: &State) -> Vec<Job> {
    let mut jobs = Vec::new();
    for (name, node) in &state.nodes {
        of_node(state, name, node, &mut jobs);
    }
    publishing::of_state(state, &mut jobs);
    jobs
}

/// The last look: whether exactly this job is still asked for.
pub fn wanted(state: &State, job: &Job) -> bool {
    let mut jobs = Vec::new();
    match job.node() {
        Some(name) => {
            if let Some(node) = state.nodes.get(name) {
                of_node(state, name, node, &mut jobs);
            }
        }
        None => publishing::of_state(state, &mut jobs),
    }
    jobs.contains(job)
}

/// The jobs of one node.
fn of_node(state: &State, name: &NodeName, node: &Node, jobs: &mut Vec<Job>) {
    publishing::of_node(state, name, node, jobs);
    let Some((incident, record)) = state.open_incident(name) else { return };
    let life =
        Life { node: name.clone(), incident: incident.clone(), incarnation: record.incarnation.clone() };
    match &node.phase {
        Phase::Alive | Phase::Held { .. } => {}
        Phase::Condemned { .. } | Phase::Fencing { .. } => fencing::fence(state, node, record, life, jobs),
        Phase::ProvenOff { proof, released, .. } => {
            release::proven(state, life, proof, released.as_ref(), jobs);
        }
        Phase::Releasing { proof, released, .. } => jobs.push(Job::WriteRelease(WriteReleaseJob {
            life,
            proof: proof.clone(),
            released: released.clone(),
        })),
        Phase::Released { proof, released, .. } => {
            release::released(state, record, &life, proof, released, jobs);
        }
        Phase::Returning { .. } => release::returning(state, node, record, &life, jobs),
    }
}

// === impl Job ===

impl Job {
    /// Whether one that runs is the one that is wanted now. A page goes on in the words that it began with: only its text
    /// may have another age or number in it since, and to begin it anew would be to tell it twice.
    pub fn goes_on_as(&self, wanted: &Self) -> bool {
        match (self, wanted) {
            (Self::Page { .. }, Self::Page { .. }) => self.key() == wanted.key(),
            _ => self == wanted,
        }
    }

    /// Its name: two jobs with one key never run at once.
    pub fn key(&self) -> JobKey {
        let of = |kind, life: &Life| JobKey {
            kind,
            subject: life.node.to_string(),
            life: life.incident.to_string(),
        };
        let key = |kind, subject: String, life: String| JobKey { kind, subject, life };
        match self {
            Self::Fence(job) => of("Fence", &job.life),
            Self::Release(job) => of("Release", &job.life),
            Self::WriteRelease(job) => of("WriteRelease", &job.life),
            Self::Expedite(job) => of("Expedite", &job.life),
            Self::WatchReleased(job) => of("WatchReleased", &job.life),
            Self::PowerOn(job) => of("PowerOn", &job.life),
            Self::Return(job) => of("Return", &job.life),
            Self::Verify { node, hash } => key("Verify", node.to_string(), hash.clone()),
            Self::PublishIncident { incident, .. } => {
                key("PublishIncident", incident.to_string(), String::new())
            }
            Self::PublishBinding { node, .. } => key("PublishBinding", node.to_string(), String::new()),
            Self::PublishPolicy { name, .. } => key("PublishPolicy", name.clone(), String::new()),
            Self::Page { node, reason, .. } => key("Page", node.to_string(), reason.clone()),
        }
    }

    /// The node it is about; `None` for those that are about an incident or a policy.
    pub fn node(&self) -> Option<&NodeName> {
        match self {
            Self::Fence(FenceJob { life, .. })
            | Self::Release(ReleaseJob { life, .. })
            | Self::WriteRelease(WriteReleaseJob { life, .. })
            | Self::Expedite(ExpediteJob { life, .. })
            | Self::WatchReleased(WatchReleasedJob { life, .. })
            | Self::PowerOn(PowerOnJob { life, .. })
            | Self::Return(ReturnJob { life, .. }) => Some(&life.node),
            Self::Verify { node, .. } | Self::PublishBinding { node, .. } | Self::Page { node, .. } => {
                Some(node)
            }
            Self::PublishIncident { .. } | Self::PublishPolicy { .. } => None,
        }
    }
}

impl fmt::Display for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.kind, self.subject)?;
        if self.life.is_empty() { Ok(()) } else { write!(f, "/{}", self.life) }
    }
}

#[cfg(test)]
mod tests;
