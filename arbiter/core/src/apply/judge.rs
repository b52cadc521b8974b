//! Judging a node by a view: the decision rule again on the recorded view, then what operators and brakes allow.
//!
//! ```text
//!   view --verdict--> Pending | Held(why) | Dead(class)
//!                                              |
//!              policy, opt-out, binding, silent before Enforce, storm, repeat, pause, brakes
//!                                              v
//!                              WouldCondemn | Hold(why) | Condemn(class) | Wait
//! ```
//!
//! [`decide`] is the whole decision and changes nothing, so a leader asks it before it proposes, and `apply` obeys it.

use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::Span;

use super::refusal::{HoldRefusal, Refuses};
use super::{At, ledger, settle};
use crate::brake::{self, Asking, Stage};
use crate::command::{Outcome, Refusal};
use crate::evidence::{BrakeCounts, Decided, LookedAt};
use crate::permit;
use crate::phase::{Brake, EvidenceClass, HeldReason, Phase};
use crate::policy::select::{Selected, enforcing, policy_for, rules_for};
use crate::state::{Enforced, Node, State};
use crate::verdict::verdict;
use crate::view::{Verdict, View};

/// A hold changes at most once in this time.
pub(crate) const HOLD_CHANGE: Span = Span::from_secs(5);

/// What a view leads to now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The view speaks of a life that is over, or of nobody.
    Stale,
    /// Nothing changes.
    Stay,
    /// The hold ends.
    Alive,
    /// Dead, in Observe: said once per death.
    WouldCondemn(EvidenceClass),
    /// Silent past its deadline, but no.
    Hold(HeldReason),
    /// Dead.
    Condemn(EvidenceClass),
    /// Dead, and a moment of patience is all that is asked for.
    Wait(Refusal),
}

/// What judging this view would do now.
pub fn decide(state: &State, view: &View) -> Decision {
    let Some(node) = state.nodes.get(&view.node) else { return Decision::Stale };
    let registered = node.member.as_ref().is_some_and(|m| !m.boot_is_over());
    let stands = node.facts.as_ref().is_some_and(|f| f.uid == view.incarnation.node);
    if !registered || !stands || node.incarnation().as_ref() != Some(&view.incarnation) {
        return Decision::Stale;
    }
    let held = match &node.phase {
        Phase::Alive | Phase::Returning { released: None, .. } => None,
        Phase::Held { why, .. } => Some(why),
        Phase::Returning { .. }
        | Phase::Condemned { .. }
        | Phase::Fencing { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. } => return Decision::Stay,
    };
    let decision = match verdict(view, &rules_for(state, &view.node)) {
        Verdict::Pending(_) => match held {
            Some(why) if stands_on(state, node, &view.node, why) => Decision::Stay,
            Some(_) => Decision::Alive,
            None => Decision::Stay,
        },
        Verdict::Held(why) => Decision::Hold(why),
        Verdict::Dead(_) if planted(Mutant::StoredReady) && node.facts.as_ref().is_some_and(|f| f.ready) => {
            Decision::Hold(HeldReason::KubeletAlive)
        }
        Verdict::Dead(class) => dead(state, node, view, class, held.is_some()),
    };
    calm(state, node, held, decision)
}

/// Whether a hold outlasts a view that decides nothing.
fn stands_on(state: &State, node: &Node, name: &NodeName, why: &HeldReason) -> bool {
    match why {
        // A person must say which machine this is.
        HeldReason::MachineChanged { .. } => {
            matches!(permit::fenceable(state, name), Err(HeldReason::MachineChanged { .. }))
        }
        // `Heard` ends these, not a view: what a view takes for a sign of life may be a claim, or look young for a pause.
        HeldReason::SilentBeforeEnforce => node.enforced == Enforced::Unheard,
        HeldReason::Brake(Brake::Storm) => node.in_storm,
        HeldReason::TooFewObservers
        | HeldReason::HostAnswersOnly
        | HeldReason::NetworkPartial
        | HeldReason::DomainDown
        | HeldReason::BmcSilent
        | HeldReason::BmcNetworkSilent
        | HeldReason::BmcUnclear(_)
        | HeldReason::ApiUnreadable
        | HeldReason::KubeletAlive
        | HeldReason::ArbiterBlind
        | HeldReason::NotSeenYet
        | HeldReason::TwoNodes
        | HeldReason::Paused { .. }
        | HeldReason::Brake(_)
        | HeldReason::Observe
        | HeldReason::PolicyConflict(_)
        | HeldReason::Excluded
        | HeldReason::NotFenceable(_)
        | HeldReason::Identity(_)
        | HeldReason::FoundOnAgain
        | HeldReason::Duplicate
        | HeldReason::Disputed => false,
    }
}

/// Holds neither flap nor repeat themselves: the same reason is no change, and another one waits for its time. To be
/// condemned never waits for that.
fn calm(state: &State, node: &Node, held: Option<&HeldReason>, decision: Decision) -> Decision {
    let Some(why) = held else { return decision };
    let young = state.now.since(node.phase_since) < HOLD_CHANGE;
    match decision {
        Decision::Hold(new) if young || new.word() == why.word() => Decision::Stay,
        Decision::Alive if young => Decision::Stay,
        Decision::Hold(_)
        | Decision::Alive
        | Decision::Stale
        | Decision::Stay
        | Decision::WouldCondemn(_)
        | Decision::Condemn(_)
        | Decision::Wait(_) => decision,
    }
}

/// The decision rule says Dead: what operators and brakes make of it.
fn dead(state: &State, node: &Node, view: &View, class: EvidenceClass, held: bool) -> Decision {
    let name = &view.node;
    if enforcing(state, name).is_none() {
        let said = node.would_condemn_said == Some(view.incarnation.boot);
        return match (held, policy_for(state, name)) {
            (false, _) if said => Decision::Stay,
            (false, _) => Decision::WouldCondemn(class),
            (true, Selected::Conflict(names)) => Decision::Hold(HeldReason::PolicyConflict(names)),
            (true, Selected::None | Selected::One(_)) => Decision::Hold(HeldReason::Observe),
        };
    }
    if node.enforced == Enforced::Unheard {
        return Decision::Hold(HeldReason::SilentBeforeEnforce);
    }
    if let Some(why) = settle::forbids(state, name, &class) {
        return Decision::Hold(why);
    }
    let asking = Asking { node: name, incident: node.phase.incident(), class: &class, stage: Stage::Condemn };
    let stormy = storms(state, view);
    let asked = match class {
        EvidenceClass::FoundOff => brake::ask(state, asking),
        EvidenceClass::HostSilentBmcOn | EvidenceClass::Ordered { .. } if stormy || node.in_storm => {
            Err(Brake::Storm)
        }
        EvidenceClass::HostSilentBmcOn | EvidenceClass::Ordered { .. } => brake::ask(state, asking),
    };
    match asked {
        Ok(()) => Decision::Condemn(class),
        Err(Brake::Pace) if !stormy => {
            let left = brake::pace_left(state, &brake::limits(state));
            Decision::Wait(HoldRefusal::Brake(Brake::Pace, left).about(name.as_str()))
        }
        Err(brake) => Decision::Hold(HeldReason::Brake(brake)),
    }
}

/// Whether a storm is on, or this view shows one.
fn storms(state: &State, view: &View) -> bool {
    brake::storm_on(state) || brake::is_storm(&view.fleet, &brake::limits(state), state.members())
}

// === doing it ===

/// Judges a node by a view of the leader that proposes it.
pub(crate) fn judge(state: &mut State, at: At<'_>, view: &View) -> Outcome {
    let deposed = view.leader != at.entry.leader || view.term != at.entry.term;
    if deposed && !planted(Mutant::DeposedResult) {
        return Outcome::Stale;
    }
    let decision = decide(state, view);
    if decision == Decision::Stale {
        return Outcome::Stale;
    }
    let before = brake::counts(state);
    let noted = note_storm(state, view);
    let outcome = take(state, at, view, decision, before);
    if noted && outcome == Outcome::Unchanged { Outcome::Done } else { outcome }
}

fn take(state: &mut State, at: At<'_>, view: &View, decision: Decision, before: BrakeCounts) -> Outcome {
    let name = &view.node;
    match decision {
        Decision::Stale => Outcome::Stale,
        Decision::Stay => Outcome::Unchanged,
        Decision::Wait(refusal) => Outcome::Refused(refusal),
        Decision::Alive => {
            ledger::end(state, at, name, "HoldEnded", "nothing holds it any more");
            Outcome::Done
        }
        Decision::WouldCondemn(class) => would_condemn(state, at, view, &class, before),
        Decision::Hold(why) => hold(state, at, view, why, before),
        Decision::Condemn(class) => {
            let Some(policy) = enforcing(state, name).cloned() else { return Outcome::Unchanged };
            let id = incident_of(state, at, view);
            let looked_at = looked_at(state, view);
            ledger::note(state, at, &id, "Condemned", class.word());
            ledger::decide(state, &id, name, policy);
            if let Some(incident) = state.incidents.get_mut(&id) {
                incident.class = Some(class.clone());
            }
            let phase = Phase::Condemned { incident: id.clone(), class: class.clone() };
            ledger::enter(state, name, phase);
            ledger::record(state, at, &id, looked_at, Decided::Condemned(class), before);
            Outcome::Done
        }
    }
}

/// The incident that this view speaks of: the hold's own, or a new one where none of this life is open.
fn incident_of(state: &mut State, at: At<'_>, view: &View) -> IncidentId {
    if let Some((id, incident)) = state.open_incident(&view.node) {
        let id = id.clone();
        let returning =
            state.nodes.get(&view.node).is_some_and(|n| matches!(n.phase, Phase::Returning { .. }));
        if incident.incarnation == view.incarnation && !returning {
            return id;
        }
        let how = if returning { "SilentAgain" } else { "NewBoot" };
        ledger::close(state, at, &id, how, "another life of the node is judged from here on");
    }
    ledger::open(state, at, &view.node, view.incarnation.clone())
}

fn looked_at(state: &State, view: &View) -> LookedAt {
    let rules = rules_for(state, &view.node);
    LookedAt::View { view: Box::new(view.clone()), rules, verdict: verdict(view, &rules) }
}

fn hold(state: &mut State, at: At<'_>, view: &View, why: HeldReason, before: BrakeCounts) -> Outcome {
    let name = &view.node;
    let id = incident_of(state, at, view);
    let looked_at = looked_at(state, view);
    let stormy = brake::storm_on(state);
    let observes = matches!(why, HeldReason::Observe | HeldReason::PolicyConflict(_));
    let observed = if observes { class_of(&looked_at) } else { None };
    if let Some(node) = state.nodes.get_mut(name) {
        node.in_storm |= stormy && !planted(Mutant::StormFrees);
        if observed.is_some() {
            node.would_condemn_said = Some(view.incarnation.boot);
        }
    }
    // An incident that is opened here is not yet the phase's.
    ledger::enter(state, name, Phase::Held { incident: id.clone(), why: why.clone() });
    ledger::hold(state, at, name, why.clone());
    if let Some(class) = observed {
        ledger::note(state, at, &id, "WouldCondemn", class.word());
        if let Some(incident) = state.incidents.get_mut(&id) {
            incident.observed = true;
            incident.class = Some(class);
        }
    }
    ledger::record(state, at, &id, looked_at, Decided::Held(why), before);
    Outcome::Done
}

/// The class of a view that says Dead.
fn class_of(looked_at: &LookedAt) -> Option<EvidenceClass> {
    match looked_at {
        LookedAt::View { verdict: Verdict::Dead(class), .. } => Some(class.clone()),
        LookedAt::View { verdict: Verdict::Pending(_) | Verdict::Held(_), .. }
        | LookedAt::Order { .. }
        | LookedAt::Confirmation(_)
        | LookedAt::Readings(_) => None,
    }
}

/// In Observe: one incident with the full evidence, closed at once, and nothing else.
fn would_condemn(
    state: &mut State,
    at: At<'_>,
    view: &View,
    class: &EvidenceClass,
    before: BrakeCounts,
) -> Outcome {
    let name = &view.node;
    let id = ledger::open(state, at, name, view.incarnation.clone());
    let looked_at = looked_at(state, view);
    if let Some(incident) = state.incidents.get_mut(&id) {
        incident.observed = true;
        incident.class = Some(class.clone());
    }
    if let Some(node) = state.nodes.get_mut(name) {
        node.would_condemn_said = Some(view.incarnation.boot);
    }
    ledger::record(state, at, &id, looked_at, Decided::WouldCondemn(class.clone()), before);
    ledger::note(state, at, &id, "WouldCondemn", class.word());
    ledger::close(state, at, &id, "Observed", "nothing is done in Observe");
    Outcome::Done
}

/// Remembers that a storm was seen.
fn note_storm(state: &mut State, view: &View) -> bool {
    if !brake::is_storm(&view.fleet, &brake::limits(state), state.members()) {
        return false;
    }
    let now = state.now;
    let since = match state.brakes.storm {
        Some((since, _)) if brake::storm_on(state) => since,
        Some(_) | None => now,
    };
    state.brakes.storm = Some((since, now));
    true
}
