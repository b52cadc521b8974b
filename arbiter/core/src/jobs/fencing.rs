//! Fences: from Condemned to the proof, and readings made again for an old one.

use coroner_shared::bmc::Continuity;
use coroner_shared::id::NodeName;
use coroner_shared::machine_id::MachineId;
#[cfg(coroner_mutants)]
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::{Mono, Span};
use std::collections::BTreeMap;

use super::{FenceJob, Job, Life, ReleaseJob, wanted};
use crate::fence::{FenceOrder, Look};
use crate::permit;
use crate::phase::{EvidenceClass, Phase};
use crate::policy::{LifeTimings, Pin, Quirk};
use crate::state::{Incident, Node, State};

/// The fence of a condemned node. Without a pin there is nobody to send a command to; the node then waits in sight.
pub(super) fn fence(state: &State, node: &Node, record: &Incident, life: Life, jobs: &mut Vec<Job>) {
    let Some(binding) = state.bindings.get(&life.node) else { return };
    let Some(pin) = binding.pin.clone() else { return };
    let timings = record.terms.as_deref().map_or(LifeTimings::DEFAULT, |terms| terms.timings);
    #[cfg(coroner_mutants)]
    if planted(Mutant::TaintBeforeProof) {
        let proof = crate::apply::planted::proof(record, &pin, state.now);
        let released = crate::phase::Released::default();
        jobs.push(Job::WriteRelease(super::WriteReleaseJob { life: life.clone(), proof, released }));
    }
    jobs.push(Job::Fence(FenceJob {
        class: record.fenced_as(),
        re_fence: node.phase.out_of_service(),
        binding: binding.hash.clone(),
        pin,
        cached: binding.quirks.contains(&Quirk::Cached),
        stalled_after: timings.stalled,
        life,
    }));
}

/// What this replica's track of the BMC knows when a fence begins.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BmcKnown {
    /// Whether it is steady.
    pub steady: bool,
    /// What it showed last.
    pub shown: Option<Continuity>,
    /// For how long nothing but Off was read.
    pub off_for: Span,
}

/// Everything a [`crate::fence::Fence`] needs to begin. `None`: the job is no longer wanted.
pub fn fence_order(state: &State, job: &FenceJob, known: BmcKnown) -> Option<FenceOrder> {
    let intent_open = match &state.nodes.get(&job.life.node)?.phase {
        Phase::Condemned { .. } => false,
        Phase::Fencing { .. } => true,
        Phase::Alive
        | Phase::Held { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => return None,
    };
    // Numbers rise over the whole incident, whatever intents it had before.
    let last = state.incidents.get(&job.life.incident)?.last_attempt.as_ref();
    let common =
        Common { life: &job.life, pin: &job.pin, cached: job.cached, stalled_after: job.stalled_after };
    let order = common.order(state, job.class.clone(), known)?;
    Some(FenceOrder {
        intent_open,
        last_attempt: last.map_or(0, |attempt| attempt.number),
        previous_login: last.map(|attempt| attempt.login.clone()),
        re_fence: job.re_fence,
        ..order
    })
}

/// The order for readings that a last read asks for again: reads only, proposes nothing.
pub fn again_order(state: &State, job: &ReleaseJob, known: BmcKnown) -> Option<FenceOrder> {
    let class = state.incidents.get(&job.life.incident)?.class.clone().unwrap_or(EvidenceClass::FoundOff);
    let stalled_after = LifeTimings::DEFAULT.stalled;
    let pin = job.pin.as_ref()?;
    let common = Common { life: &job.life, pin, cached: job.cached, stalled_after };
    let order = common.order(state, class, known)?;
    Some(FenceOrder { again: true, intent_open: true, ..order })
}

/// What a replica hears of a node when it takes its last look, dates of its own clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Signs {
    /// The newest proof of life that any replica heard.
    pub heard: Option<Mono>,
    /// When the kubelet's Lease was last seen to have changed.
    pub lease_moved: Option<Mono>,
}

/// The last look of a job: what the state says of it, read linearizably after `at`, and what is heard.
pub fn last_look(state: &State, job: &Job, at: Mono, signs: Signs) -> Look {
    let node = job.node();
    Look {
        at,
        // An opt-out is a pause like the others: what is off may still be proven and released.
        wanted: wanted(state, job),
        paused: node.is_some_and(|node| permit::commands_barred(state, node).is_some()),
        heard: signs.heard,
        lease_moved: signs.lease_moved,
    }
}

/// What both orders share.
struct Common<'a> {
    life: &'a Life,
    pin: &'a Pin,
    cached: bool,
    stalled_after: Span,
}

impl Common<'_> {
    fn order(&self, state: &State, class: EvidenceClass, known: BmcKnown) -> Option<FenceOrder> {
        let BmcKnown { steady, shown, off_for } = known;
        let node = state.nodes.get(&self.life.node)?;
        let facts = node.facts.as_ref()?;
        Some(FenceOrder {
            node: self.life.node.clone(),
            incident: self.life.incident.clone(),
            incarnation: self.life.incarnation.clone(),
            class,
            pin: self.pin.clone(),
            cached: self.cached,
            system_uuid: facts.system_uuid.clone(),
            fleet: fleet(state),
            intent_open: false,
            paused: permit::commands_barred(state, &self.life.node).is_some(),
            re_fence: false,
            again: false,
            last_attempt: 0,
            previous_login: None,
            steady,
            shown,
            off_for,
            stalled_after: self.stalled_after,
        })
    }
}

/// The machines of all registered nodes.
fn fleet(state: &State) -> BTreeMap<NodeName, MachineId> {
    let of = |node: &Node| node.member.as_ref().and_then(|m| m.machine.as_ref().ok()).copied();
    state.nodes.iter().filter_map(|(name, node)| Some((name.clone(), of(node)?))).collect()
}
