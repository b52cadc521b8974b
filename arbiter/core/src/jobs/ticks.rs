//! How long the log may stay silent. Log time only moves with entries; while anything in the state waits for a time,
//! the leader logs Ticks.

use coroner_shared::time::{Mono, Span};

use crate::apply::{end_waits_for, return_waits_for};
use crate::brake::{self, DEATHS_WINDOW, DOMAIN_WINDOW, STORM_CALM};
use crate::fence::COMMAND_DEADLINE;
use crate::pages;
use crate::phase::Phase;
use crate::policy::select::rules_for;
use crate::state::{Node, State};
use coroner_shared::id::NodeName;

/// Near a deadline a Tick is logged this often.
pub const TICK_NEAR: Span = Span::from_secs(5);
/// Far from one it is enough that no span is cut off at its cap of 60 s.
pub const TICK_FAR: Span = Span::from_secs(50);
/// What is near.
const NEAR: Span = Span::from_secs(60);

/// After how long without another entry the leader logs a Tick; `None`: nothing waits for a time.
pub fn tick_after(state: &State) -> Option<Span> {
    let deadline = deadline(state)?;
    Some(if deadline.since(state.now) <= NEAR { TICK_NEAR } else { TICK_FAR })
}

/// The earliest log time at which anything in the state changes by itself.
pub fn deadline(state: &State) -> Option<Mono> {
    let nodes = state.nodes.iter().flat_map(|(name, node)| of_node(state, name, node));
    let domains = state.brakes.by_domain.values().flatten().map(|(at, _)| *at + DOMAIN_WINDOW);
    let limits = brake::limits(state);
    let storm = state.brakes.storm.map(|(_, seen)| seen + STORM_CALM);
    let pace = state.brakes.last_decision.map(|_| state.now + brake::pace_left(state, &limits));
    let budget = Some(state.brakes.spent_at + state.brakes.spent);
    nodes.chain(domains).chain([storm, pace, budget].into_iter().flatten()).filter(|at| *at > state.now).min()
}

fn of_node(state: &State, name: &NodeName, node: &Node) -> Vec<Mono> {
    let mut times: Vec<Mono> = node.deaths.iter().map(|at| *at + DEATHS_WINDOW).collect();
    times.extend(node.domain_before.as_ref().map(|(_, until)| *until));
    // Its host may never come back, and in a quiet cluster nothing else moves the time that ends it.
    times.extend(node.goodbye.as_ref().map(|said| said.at + rules_for(state, name).planned(said.kind)));
    // Not all pages are about an incident.
    times.extend(pages::due(state, name, node).into_iter().map(|(_, from)| from));
    let Some((_, incident)) = state.open_incident(name) else { return times };
    // A phase with an open incident is always waiting for something that log time measures.
    times.push(state.now + TICK_NEAR);
    let timings = incident.terms.as_deref().map_or(crate::policy::LifeTimings::DEFAULT, |t| t.timings);
    match &node.phase {
        Phase::Fencing { intent, attempt, .. } => {
            times.push(intent.progress + timings.stalled);
            times.extend(attempt.as_ref().map(|a| a.at + COMMAND_DEADLINE));
        }
        Phase::Returning { .. } => {
            let waits = return_waits_for(state, name).into_iter().chain(end_waits_for(state, name));
            times.extend(waits.filter_map(|w| w.until));
        }
        Phase::Alive
        | Phase::Held { .. }
        | Phase::Condemned { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. } => {}
    }
    times
}
