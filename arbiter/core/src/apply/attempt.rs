//! One committed sending of a power command, and what the BMC answered.

use coroner_shared::bmc::CommandAnswer;
use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::mutant::{Mutant, planted};

use super::fencing::{is_current, may_command, rebooted};
use super::refusal::{FencingRefusal, HoldRefusal, Refuses};
use super::{At, ledger};
use crate::brake::{self, Asking, Stage};
use crate::command::{Command, Outcome};
use crate::phase::{Attempt, EvidenceClass, HeldReason, Phase};
use crate::state::{Incident, State};

/// A power command is about to be sent.
pub(crate) fn attempt(state: &mut State, at: At<'_>) -> Outcome {
    let Command::Attempt { node: name, incident, number, login, was_on } = &at.entry.command else {
        return Outcome::Unchanged;
    };
    if !is_current(state, name, incident) {
        return Outcome::Stale;
    }
    let Some(Phase::Fencing { intent, attempt, released, .. }) = state.nodes.get(name).map(|n| &n.phase)
    else {
        return Outcome::Stale;
    };
    if *number != intent.attempts.saturating_add(1) {
        return Outcome::Stale;
    }
    let (first, read_only, re_fence) =
        (attempt.is_none() && released.is_none(), intent.read_only, released.is_some());
    if let Err(refusal) = admit(state, name, incident, *was_on, read_only, first, re_fence) {
        return refusal.refuse(name);
    }
    if let Some(why) = forbidden(state, name, incident, first, re_fence, *was_on) {
        // Whatever else stops an intent has closed it by now, but for a pause of what was found off: that goes on, and
        // is proven by reading alone.
        if first && matches!(why, HeldReason::Brake(_)) {
            ledger::hold(state, at, name, why.clone());
        }
        return HoldRefusal::Held(why).refuse(name);
    }
    let sending = Attempt {
        number: *number,
        replica: at.entry.leader,
        term: at.entry.term,
        login: login.clone(),
        at: state.now,
        answer: None,
        was_on: *was_on,
    };
    if !re_fence && unpaid_harm(state, incident, *was_on) {
        brake::spend(state);
    }
    let now = state.now;
    if let Some(record) = state.incidents.get_mut(incident) {
        record.last_attempt = Some(sending.clone());
        record.sent_while_on |= *was_on;
    }
    if let Some(Phase::Fencing { intent, attempt, .. }) = state.nodes.get_mut(name).map(|n| &mut n.phase) {
        if first {
            // Only the first sending is progress: a BMC that accepts and does nothing makes none, however often.
            intent.progress = now;
        }
        intent.attempts = *number;
        intent.stalled = None;
        *attempt = Some(sending);
    }
    let text = format!("{number}, the machine {}", if *was_on { "was read On" } else { "was not read On" });
    ledger::note(state, at, incident, "Attempt", &text);
    Outcome::Done
}

/// What speaks against the sending in the life itself.
fn admit(
    state: &State,
    name: &NodeName,
    incident: &IncidentId,
    was_on: bool,
    read_only: bool,
    first: bool,
    re_fence: bool,
) -> Result<(), FencingRefusal> {
    let Some(record) = state.incidents.get(incident) else { return Ok(()) };
    let ordered = matches!(record.class, Some(EvidenceClass::Ordered { .. }));
    if rebooted(state, name) {
        return Err(FencingRefusal::NewBootSeen);
    }
    let heard = state.nodes.get(name).is_some_and(|n| n.heard_since.is_some());
    let retried = planted(Mutant::RetryHeard) && !first;
    if heard && !ordered && !re_fence && !retried {
        return Err(FencingRefusal::Heard);
    }
    if read_only {
        return Err(FencingRefusal::ReadOnlyIntent);
    }
    // Once it was proven off in this incident, On means that somebody turned it on: then off is what is wanted.
    let found_off = record.class == Some(EvidenceClass::FoundOff) && record.proven.is_none();
    if found_off && first && was_on {
        return Err(FencingRefusal::FoundOn);
    }
    Ok(())
}

/// What forbids it from outside: pause, policy, opt-out, binding, and the brakes. A re-fence was paid for when its node
/// was first condemned. A machine found off that came on again was not: to turn it off is new harm, as if it had been
/// found silent and On.
fn forbidden(
    state: &State,
    name: &NodeName,
    incident: &IncidentId,
    first: bool,
    re_fence: bool,
    was_on: bool,
) -> Option<HeldReason> {
    match may_command(state, name) {
        Err(HeldReason::Paused { .. }) if planted(Mutant::PauseIgnored) && !first => {}
        Err(why) => return Some(why),
        Ok(()) => {}
    }
    let class = state.incidents.get(incident)?.fenced_as();
    if re_fence {
        return None;
    }
    let stage = if unpaid_harm(state, incident, was_on) { Stage::Intent } else { Stage::Attempt };
    let class = match class {
        EvidenceClass::FoundOff if was_on => EvidenceClass::HostSilentBmcOn,
        EvidenceClass::FoundOff | EvidenceClass::HostSilentBmcOn | EvidenceClass::Ordered { .. } => class,
    };
    let asking = Asking { node: name, incident: Some(incident), class: &class, stage };
    brake::ask(state, asking).err().map(HeldReason::Brake)
}

/// Whether this sending turns off a machine that no budget was asked for: it was found off, and is On.
fn unpaid_harm(state: &State, incident: &IncidentId, was_on: bool) -> bool {
    let unpaid = |record: &Incident| record.class == Some(EvidenceClass::FoundOff) && !record.sent_while_on;
    was_on && state.incidents.get(incident).is_some_and(unpaid)
}

/// What the BMC answered to the current attempt.
pub(crate) fn answered(
    state: &mut State,
    at: At<'_>,
    name: &NodeName,
    incident: &IncidentId,
    number: u32,
    answer: &CommandAnswer,
) -> Outcome {
    if !is_current(state, name, incident) && !planted(Mutant::LateReply) {
        return Outcome::Stale;
    }
    let Some(Phase::Fencing { attempt: Some(attempt), .. }) = state.nodes.get_mut(name).map(|n| &mut n.phase)
    else {
        return Outcome::Stale;
    };
    if attempt.number != number && !planted(Mutant::LateReply) {
        return Outcome::Stale;
    }
    if attempt.answer.is_some() {
        return Outcome::Unchanged;
    }
    attempt.answer = Some(answer.clone());
    if let Some(record) = state.incidents.get_mut(incident)
        && let Some(last) = record.last_attempt.as_mut().filter(|last| last.number == number)
    {
        last.answer = Some(answer.clone());
    }
    let text = match answer {
        CommandAnswer::Accepted => "accepted".to_owned(),
        CommandAnswer::Refused { why } => format!("refused: {why}"),
        CommandAnswer::Unknown { why } => format!("unknown: {why}"),
    };
    ledger::note(state, at, incident, "AttemptAnswered", &text);
    Outcome::Done
}
