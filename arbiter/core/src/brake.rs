//! Limits on how many nodes may be acted on. Pure questions, asked by `apply` when a node is condemned, when its intent
//! is committed, and at each attempt.
//!
//! ```text
//!   all Enforce policies --strictest value of each--> Limits
//!   state, who, class, stage ------------------------> Ok | the first Brake that refuses
//! ```
//!
//! A machine that is already off (class FoundOff) harms nobody further, so only the pace holds it; one that came on again
//! meanwhile is asked about as if it had been found silent and On, at the attempt that would turn it off. An incident never
//! counts against itself. A re-fence is not asked for at all: its node was paid for when it was first condemned, and a
//! second writer is worse than one more power-off.

use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::{Mono, Span};

use crate::control_plane;
use crate::evidence::BrakeCounts;
use crate::phase::{Brake, EvidenceClass, Phase};
use crate::policy::{Brakes, Mode, Policy};
use crate::state::{Node, State};
use crate::view::FleetView;

/// Below this many members there is no storm brake: rule 1 is the brake.
pub const STORM_MEMBERS_MIN: u32 = 8;
/// A storm ends when its sign has been gone for so long.
pub const STORM_CALM: Span = Span::from_secs(60);
/// The window of `perDomain10m`, and for how long a changed domain counts twice.
pub const DOMAIN_WINDOW: Span = Span::from_mins(10);
/// The window of `deathsPerDay`.
pub const DEATHS_WINDOW: Span = Span::from_mins(24 * 60);

/// The limits that bind now, in plain numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Condemned or Fencing at once.
    pub in_flight: u32,
    /// The same, per failure domain.
    pub per_domain: u32,
    /// Decisions per failure domain within 10 minutes.
    pub per_domain_10m: u32,
    /// Intents in a burst.
    pub budget: u32,
    /// One more intent this often.
    pub budget_refill: Span,
    /// Machines down by our hand.
    pub floor: u32,
    /// Between two decisions.
    pub pace: Span,
    /// Between two decisions in a storm.
    pub storm_pace: Span,
    /// More members than this are a storm.
    pub storm_members: u32,
    /// In at least so many domains.
    pub storm_domains: u32,
    /// Deaths of one node in 24 h.
    pub deaths_per_day: u32,
}

/// When the brakes are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// The verdict is Dead, or an order came.
    Condemn,
    /// The last look was good.
    Intent,
    /// A power command is about to be sent.
    Attempt,
}

/// Who is asked about.
#[derive(Clone, Copy, Debug)]
pub struct Asking<'a> {
    /// Which node.
    pub node: &'a NodeName,
    /// Its own incident, if one is open: it does not count against itself.
    pub incident: Option<&'a IncidentId>,
    /// On what evidence.
    pub class: &'a EvidenceClass,
    /// At which stage.
    pub stage: Stage,
}

// === limits ===

/// The default of `inFlight` for `n` members.
pub const fn in_flight_default(n: u32) -> u32 {
    match n {
        0..20 => 1,
        20..200 => 2,
        _ => {
            let percent = n / 100;
            if percent < 5 { percent } else { 5 }
        }
    }
}

/// The default of `budget` for `n` members.
pub const fn budget_default(n: u32) -> u32 {
    at_least(2, n / 200)
}

/// The default of `floor` for `n` members.
pub fn floor_default(n: u32) -> u32 {
    let up = u32::from(planted(Mutant::FloorUp));
    match n {
        0 => 0,
        // 64 bits, since three times the largest count does not fit in 32.
        1..10 => (n - 1 + up) / 2,
        _ => at_least(4, n / 10 * 3 + (n % 10 * 3 + 9 * up) / 10),
    }
}

/// The default of `stormMembers` for `n` members.
pub const fn storm_members_default(n: u32) -> u32 {
    at_least(3, n / 50)
}

const fn at_least(least: u32, value: u32) -> u32 {
    if value < least { least } else { value }
}

/// The limits of one set of brakes for `n` members.
pub fn limits_of(brakes: &Brakes, n: u32) -> Limits {
    let Brakes {
        in_flight,
        per_domain,
        per_domain_10m,
        budget,
        budget_refill,
        floor,
        pace,
        storm_pace,
        storm_members,
        storm_domains,
        deaths_per_day,
    } = *brakes;
    Limits {
        in_flight: in_flight.unwrap_or(in_flight_default(n)),
        per_domain,
        per_domain_10m,
        budget: budget.unwrap_or(budget_default(n)),
        budget_refill,
        floor: floor.unwrap_or(floor_default(n)),
        pace,
        storm_pace,
        storm_members: storm_members.unwrap_or(storm_members_default(n)),
        storm_domains,
        deaths_per_day,
    }
}

/// The limits that bind: of each brake the strictest value of all Enforce policies; the defaults where there is none.
pub fn limits(state: &State) -> Limits {
    let n = state.members();
    let enforcing = |policy: &&Policy| policy.mode == Mode::Enforce;
    state
        .policies
        .values()
        .filter(enforcing)
        .map(|policy| limits_of(&policy.brakes, n))
        .reduce(strictest)
        .unwrap_or_else(|| limits_of(&Brakes::DEFAULT, n))
}

/// Of each brake the stricter value.
fn strictest(a: Limits, b: Limits) -> Limits {
    Limits {
        in_flight: a.in_flight.min(b.in_flight),
        per_domain: a.per_domain.min(b.per_domain),
        per_domain_10m: a.per_domain_10m.min(b.per_domain_10m),
        budget: a.budget.min(b.budget),
        budget_refill: a.budget_refill.max(b.budget_refill),
        floor: a.floor.min(b.floor),
        pace: a.pace.max(b.pace),
        storm_pace: a.storm_pace.max(b.storm_pace),
        storm_members: a.storm_members.min(b.storm_members),
        storm_domains: a.storm_domains.min(b.storm_domains),
        deaths_per_day: a.deaths_per_day.min(b.deaths_per_day),
    }
}

// === the question ===

/// Whether the brakes admit it.
///
/// # Errors
/// The first brake that refuses, most telling first.
pub fn ask(state: &State, asking: Asking<'_>) -> Result<(), Brake> {
    let limits = limits(state);
    match asking.class {
        EvidenceClass::FoundOff => match asking.stage {
            Stage::Condemn => paced(state, &limits),
            Stage::Intent | Stage::Attempt => Ok(()),
        },
        EvidenceClass::HostSilentBmcOn | EvidenceClass::Ordered { .. } => {
            if storm_on(state) {
                return Err(Brake::Storm);
            }
            control_plane::ask(state, asking.node, asking.class)?;
            if down_by_us(state, asking.node) >= limits.floor {
                return Err(Brake::Floor);
            }
            domains(state, &limits, &asking)?;
            if in_flight(state, asking.node) >= limits.in_flight {
                return Err(Brake::InFlight);
            }
            match asking.stage {
                Stage::Condemn => {
                    repeated(state, &limits, asking.node)?;
                    budgeted(state, &limits)?;
                    paced(state, &limits)
                }
                Stage::Intent => budgeted(state, &limits),
                Stage::Attempt => Ok(()),
            }
        }
    }
}

/// What the brakes count now.
pub fn counts(state: &State) -> BrakeCounts {
    let limits = limits(state);
    let all = |of: fn(&Node) -> bool| {
        u32::try_from(state.nodes.values().filter(|n| of(n)).count()).unwrap_or(u32::MAX)
    };
    BrakeCounts {
        members: state.members(),
        in_flight: all(is_in_flight),
        down: u32::try_from(state.nodes.values().filter(|n| is_down_by_us(state, n)).count())
            .unwrap_or(u32::MAX),
        budget_left: budget_left(state, &limits),
        storm: storm_on(state),
    }
}

/// Condemned or Fencing, and not Stalled.
pub fn is_in_flight(node: &Node) -> bool {
    match &node.phase {
        Phase::Condemned { .. } => true,
        Phase::Fencing { intent, .. } => intent.stalled.is_none(),
        Phase::Alive
        | Phase::Held { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => false,
    }
}

/// An attempt was sent, and the node is not on its way back.
fn is_down_by_us(state: &State, node: &Node) -> bool {
    let sent = |id: &IncidentId| state.incidents.get(id).is_some_and(|i| i.last_attempt.is_some());
    match &node.phase {
        Phase::Fencing { incident, .. }
        | Phase::ProvenOff { incident, .. }
        | Phase::Releasing { incident, .. }
        | Phase::Released { incident, .. } => sent(incident),
        Phase::Alive | Phase::Held { .. } | Phase::Condemned { .. } | Phase::Returning { .. } => false,
    }
}

fn others<'a>(state: &'a State, but: &'a NodeName) -> impl Iterator<Item = &'a Node> {
    state.nodes.iter().filter(move |(name, _)| *name != but).map(|(_, node)| node)
}

fn in_flight(state: &State, but: &NodeName) -> u32 {
    u32::try_from(others(state, but).filter(|n| is_in_flight(n)).count()).unwrap_or(u32::MAX)
}

fn down_by_us(state: &State, but: &NodeName) -> u32 {
    u32::try_from(others(state, but).filter(|n| is_down_by_us(state, n)).count()).unwrap_or(u32::MAX)
}

// === domains ===

/// The domains in which a node counts now: its own, and for 10 minutes the one it had before its labels changed.
pub fn domains_of(node: &Node, now: Mono) -> Vec<&str> {
    let before = node.domain_before.as_ref().filter(|(_, until)| now < *until).map(|(d, _)| d.as_str());
    std::iter::once(node.domain.as_str()).chain(before).collect()
}

fn domains(state: &State, limits: &Limits, asking: &Asking<'_>) -> Result<(), Brake> {
    let Some(node) = state.nodes.get(asking.node) else { return Ok(()) };
    for domain in domains_of(node, state.now) {
        let here = others(state, asking.node)
            .filter(|n| is_in_flight(n) && domains_of(n, state.now).contains(&domain))
            .count();
        if here >= limits.per_domain as usize {
            return Err(Brake::PerDomain);
        }
        let lately = state.brakes.by_domain.get(domain).map_or(0, |decisions| {
            decisions
                .iter()
                .filter(|(at, of)| state.now.since(*at) < DOMAIN_WINDOW && Some(of) != asking.incident)
                .count()
        });
        if lately >= limits.per_domain_10m as usize {
            return Err(Brake::PerDomain10m);
        }
    }
    Ok(())
}

// === storm, pace, budget, repeat ===

/// Whether a storm is on: it was seen, and not yet gone for a minute.
pub fn storm_on(state: &State) -> bool {
    state.brakes.storm.is_some_and(|(_, seen)| state.now.since(seen) < STORM_CALM)
}

/// Whether these counts are a storm.
pub fn is_storm(fleet: &FleetView, limits: &Limits, members: u32) -> bool {
    !planted(Mutant::StormOff)
        && members >= STORM_MEMBERS_MIN
        && fleet.storm_members > limits.storm_members
        && fleet.storm_domains >= limits.storm_domains
}

/// How long until the pace admits the next decision.
pub fn pace_left(state: &State, limits: &Limits) -> Span {
    let between = if storm_on(state) { limits.storm_pace.max(limits.pace) } else { limits.pace };
    match state.brakes.last_decision {
        Some(last) => between.saturating_sub(state.now.since(last)),
        None => Span::ZERO,
    }
}

fn paced(state: &State, limits: &Limits) -> Result<(), Brake> {
    if pace_left(state, limits) == Span::ZERO { Ok(()) } else { Err(Brake::Pace) }
}

/// How much of the budget is used at this moment, as the time that refills it.
pub fn budget_spent(state: &State) -> Span {
    state.brakes.spent.saturating_sub(state.now.since(state.brakes.spent_at))
}

/// Takes one intent out of the budget.
pub(crate) fn spend(state: &mut State) {
    let refill = limits(state).budget_refill;
    state.brakes.spent = budget_spent(state) + refill;
    state.brakes.spent_at = state.now;
}

/// Whole intents that the budget still has.
pub fn budget_left(state: &State, limits: &Limits) -> u32 {
    let refill = limits.budget_refill.as_ms().max(1);
    let used = budget_spent(state).as_ms().div_ceil(refill);
    u64::from(limits.budget).saturating_sub(used).try_into().unwrap_or(u32::MAX)
}

fn budgeted(state: &State, limits: &Limits) -> Result<(), Brake> {
    if budget_left(state, limits) > 0 { Ok(()) } else { Err(Brake::Budget) }
}

/// Whether one more death makes a node a repeat offender.
pub fn would_repeat(state: &State, limits: &Limits, node: &Node) -> bool {
    let lately = node.deaths.iter().filter(|at| state.now.since(**at) < DEATHS_WINDOW).count();
    node.repeat_offender || lately + 1 >= limits.deaths_per_day as usize
}

fn repeated(state: &State, limits: &Limits, node: &NodeName) -> Result<(), Brake> {
    match state.nodes.get(node) {
        Some(known) if would_repeat(state, limits, known) => Err(Brake::RepeatOffender),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests;
