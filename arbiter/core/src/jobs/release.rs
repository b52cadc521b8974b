//! Releases, what is watched after them, and returns.

use coroner_shared::mutant::{Mutant, planted};

use super::{
    ExpediteJob, Job, Life, PowerOnJob, ReleaseJob, ReturnJob, ReturnStep, WatchReleasedJob, WriteReleaseJob,
};
use crate::apply::{confirmation_is_over, end_waits_for, may_power_on, return_waits_for};
use crate::permit;
use crate::phase::{FenceProof, Phase, Released};
use crate::policy::{Pin, Quirk, ReleaseStrategy};
use crate::state::{Incident, Node, State};

/// Proven off: last read, then the release. A person's word that is too old asks for the person, not for work.
pub(super) fn proven(
    state: &State,
    life: Life,
    proof: &FenceProof,
    released: Option<&Released>,
    jobs: &mut Vec<Job>,
) {
    if confirmation_is_over(state, proof) {
        return;
    }
    let binding = state.bindings.get(&life.node);
    jobs.push(Job::Release(ReleaseJob {
        proof: proof.clone(),
        kept: released.filter(|_| !planted(Mutant::OwnCordonForeign)).cloned(),
        pin: pin_of(state, &life),
        cached: binding.is_some_and(|b| b.quirks.contains(&Quirk::Cached)),
        life,
    }));
}

/// The last read once more, right before the patch: between its commit and the patch the leader may have changed.
pub fn read_before_patch(state: &State, write: &WriteReleaseJob) -> ReleaseJob {
    let binding = state.bindings.get(&write.life.node);
    ReleaseJob {
        life: write.life.clone(),
        proof: write.proof.clone(),
        kept: Some(write.released.clone()),
        pin: pin_of(state, &write.life),
        cached: binding.is_some_and(|b| b.quirks.contains(&Quirk::Cached)),
    }
}

fn pin_of(state: &State, life: &Life) -> Option<Pin> {
    let binding = state.bindings.get(&life.node)?;
    binding.pin.clone().filter(|_| binding.disabled.is_none())
}

/// Released: expedite, watch, and power on where that is asked for.
pub(super) fn released(
    state: &State,
    record: &Incident,
    life: &Life,
    proof: &FenceProof,
    released: &Released,
    jobs: &mut Vec<Job>,
) {
    let leftovers = (!record.leftovers_gone).then(|| released.clone());
    if leftovers.is_some() {
        jobs.push(Job::Expedite(ExpediteJob {
            life: life.clone(),
            proof: proof.clone(),
            strategy: record.terms.as_deref().map_or(ReleaseStrategy::Taint, |terms| terms.release),
            released: released.clone(),
        }));
    }
    jobs.push(Job::WatchReleased(WatchReleasedJob {
        life: life.clone(),
        leftovers,
        power: pin_of(state, life).is_some(),
    }));
    let permitted =
        permit::commands_barred(state, &life.node).is_none() && permit::fenceable(state, &life.node).is_ok();
    if permitted
        && may_power_on(state, &life.node, &life.incident).is_ok()
        && let Some(pin) = pin_of(state, life)
    {
        jobs.push(Job::PowerOn(PowerOnJob { life: life.clone(), pin }));
    }
}

/// Returning: watch what is left, then one step at a time.
pub(super) fn returning(state: &State, node: &Node, record: &Incident, life: &Life, jobs: &mut Vec<Job>) {
    let Phase::Returning { released, taint_removed, .. } = &node.phase else { return };
    if let Some(released) = released.as_ref().filter(|_| !record.leftovers_gone) {
        let leftovers = Some(released.clone());
        jobs.push(Job::WatchReleased(WatchReleasedJob { life: life.clone(), leftovers, power: false }));
    }
    let step = match released {
        Some(released) if taint_removed.is_none() => {
            let (keep_taint, orphaned) = (released.was_tainted, record.orphaned);
            let step = ReturnStep::RemoveTaint { keep_taint, orphaned };
            return_waits_for(state, &life.node).is_empty().then_some(step)
        }
        Some(released) => end_waits_for(state, &life.node)
            .is_empty()
            .then_some(ReturnStep::Finish { uncordon: !released.was_cordoned }),
        None => end_waits_for(state, &life.node).is_empty().then_some(ReturnStep::Finish { uncordon: false }),
    };
    if let Some(step) = step {
        jobs.push(Job::Return(ReturnJob { life: life.clone(), step }));
    }
}
