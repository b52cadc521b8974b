//! The only place where readings become a proof.

use coroner_shared::bmc::CommandAnswer;
use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::Span;

use super::fencing::{is_current, rebooted};
use super::refusal::{FencingRefusal, Refuses};
use super::{At, ledger};
use crate::brake;
use crate::command::{Command, Outcome};
use crate::evidence::LookedAt;
use crate::phase::{EvidenceClass, FenceProof, OffReadings, Phase};
use crate::policy::Quirk;
use crate::proof::{ProofNeeds, check_off_readings};
use crate::state::State;

/// Fencing -> ProvenOff.
pub(crate) fn proven(state: &mut State, at: At<'_>) -> Outcome {
    let Command::Proven { node: name, incident, incarnation, attempt: named, readings } = &at.entry.command
    else {
        return Outcome::Unchanged;
    };
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    let Some(Phase::Fencing { intent, attempt, released, .. }) = state.nodes.get(name).map(|n| &n.phase)
    else {
        return Outcome::Stale;
    };
    let named = if planted(Mutant::DeposedResult) { &intent.attempts } else { named };
    let right_life = state.incidents.get(incident).is_some_and(|i| i.incarnation == *incarnation);
    if !right_life || (*named != 0 && *named != intent.attempts) {
        return Outcome::Stale;
    }
    // Readings that name a command must follow one of this intent; those that name none rest on nothing but themselves.
    let sent = attempt.as_ref().filter(|a| a.number == *named && a.at >= intent.since);
    if readings.command.is_some() && sent.is_none() {
        return FencingRefusal::AnswerNotRecorded.refuse(name);
    }
    let answer = sent.and_then(|a| a.answer.clone());
    if let Err(refusal) = holds(state, name, incident, readings, answer.as_ref()) {
        return refusal.refuse(name);
    }
    let released = released.clone();
    make(state, at, name, incident, readings, released);
    Outcome::Done
}

/// Whether these readings prove that the life of this incident is off, and nothing speaks against it.
pub(crate) fn holds(
    state: &State,
    name: &NodeName,
    incident: &IncidentId,
    readings: &OffReadings,
    answer: Option<&CommandAnswer>,
) -> Result<(), FencingRefusal> {
    if rebooted(state, name) {
        return Err(FencingRefusal::NewBootSeen);
    }
    let Some(record) = state.incidents.get(incident) else { return Ok(()) };
    let machine = record.incarnation.machine;
    let Some(binding) = state.bindings.get(name) else {
        return Err(FencingRefusal::NoProof("no MachineBinding names its BMC".to_owned()));
    };
    let Some(pin) = &binding.pin else {
        return Err(FencingRefusal::NoProof("no machine is pinned for it".to_owned()));
    };
    if let Some(why) = &binding.disabled {
        return Err(FencingRefusal::NoProof(format!("its binding is disabled: {why}")));
    }
    let cached = binding.quirks.contains(&Quirk::Cached);
    let needs = ProofNeeds { pin, machine, cached, answer };
    check_off_readings(readings, &needs).map_err(|gap| FencingRefusal::NoProof(gap.to_string()))?;
    silent_throughout(state, name, readings)
}

/// No proof of life and no Lease change since the first reading was asked for. Log time at which this is applied is no
/// earlier than the last reading, so the first one lies at least their span back.
fn silent_throughout(state: &State, name: &NodeName, readings: &OffReadings) -> Result<(), FencingRefusal> {
    let Some(node) = state.nodes.get(name) else { return Ok(()) };
    let begun = state.now.back(span_of(readings));
    if node.heard_since.is_some() || node.heard.is_some_and(|heard| heard > begun) {
        return Err(FencingRefusal::Heard);
    }
    if node.lease_moved.is_some_and(|moved| moved > begun) {
        return Err(FencingRefusal::LeaseMoved);
    }
    Ok(())
}

/// The span of the trailing Off readings.
fn span_of(readings: &OffReadings) -> Span {
    let off = |reading: &&(Span, coroner_shared::bmc::PowerReading)| {
        reading.1.power == coroner_shared::bmc::Power::Off
    };
    let run: Vec<_> = readings.readings.iter().rev().take_while(off).collect();
    match (run.last(), run.first()) {
        (Some((first, _)), Some((last, _))) => last.saturating_sub(*first),
        (None, _) | (_, None) => Span::ZERO,
    }
}

fn make(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    id: &IncidentId,
    readings: &OffReadings,
    released: Option<crate::phase::Released>,
) {
    let now = state.now;
    let digest = ledger::chain_proof(state, at, id, LookedAt::Readings(Box::new(readings.clone())));
    let limit = brake::limits(state).deaths_per_day as usize;
    let Some(record) = state.incidents.get_mut(id) else { return };
    record.proven = Some(now);
    record.proven_by = Some("BmcOff".to_owned());
    record.turned_off_by_us |= record.sent_while_on;
    let incarnation = record.incarnation.clone();
    let found_off = record.class == Some(EvidenceClass::FoundOff);
    if let Some(node) = state.nodes.get_mut(name) {
        // Others are refused when they are condemned; a machine found off is released, and stays off.
        node.repeat_offender |= found_off && node.deaths.len() >= limit;
    }
    ledger::note(state, at, id, "Proven", &format!("off, by readings (evidence {digest})"));
    let proof = FenceProof::BmcOff { incarnation, readings: readings.clone(), at: now };
    let phase = Phase::ProvenOff { incident: id.clone(), proof, released, last_read_failed: None };
    ledger::enter(state, name, phase);
}
