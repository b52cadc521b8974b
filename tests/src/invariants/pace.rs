//! The pace holds: on every prefix of the log decisions come no faster than the brakes say, counted anew from the page: the
//! pace, the rolling budget, how many of one domain within ten minutes, and how many deaths of one node in a day.

use std::collections::{BTreeMap, BTreeSet};

use coroner_arbiter_core::brake::storm_on;
use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::phase::EvidenceClass;
use coroner_arbiter_core::policy::{Brakes, Mode};
use coroner_arbiter_core::state::State;
use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::time::{Mono, Span};

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// The window of what one domain may lose.
const DOMAIN_WINDOW: Span = Span::from_mins(10);

/// The window of `deathsPerDay`.
const DEATHS_WINDOW: Span = Span::from_mins(24 * 60);

/// All times are the log's.
#[derive(Default)]
pub(super) struct Pace {
    now: Mono,
    last: Option<Mono>,
    /// How much of the budget is used, as the time that gives it back; counted at the second.
    used: (Span, Mono),
    domains: BTreeMap<String, Vec<(Mono, IncidentId)>>,
    paid: BTreeSet<IncidentId>,
    /// Incidents in which a node was proven off, as long as nobody cleared them, each with the first time.
    deaths: BTreeMap<NodeName, BTreeMap<IncidentId, Mono>>,
}

impl Invariant for Pace {
    fn name(&self) -> &'static str {
        "the pace holds"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Committed { entry, before, after, .. } = fact else { return None };
        if after.now < self.now {
            // A fresh group counts anew.
            *self = Self::default();
        }
        self.now = after.now;
        if let Command::ClearHeld { node, .. } | Command::NodeGone { node, .. } = &entry.command {
            self.deaths.remove(node);
        }
        let brakes: Vec<Brakes> = world.site.policies.values().map(|policy| policy.brakes).collect();
        for (name, node) in &after.nodes {
            let was = before.nodes.get(name).map_or("", |n| n.phase.name());
            let Some((id, incident)) = after.open_incident(name) else { continue };
            let harm = !matches!(incident.class, Some(EvidenceClass::FoundOff) | None);
            let wrong = if node.phase.name() == "Condemned" && was != "Condemned" {
                self.decided(&brakes, before, after)
                    .or_else(|| harm.then(|| self.repeats(before, name, id)).flatten())
                    .or_else(|| harm.then(|| self.of_domain(&brakes, &incident.domain, id)).flatten())
            } else if node.phase.name() == "Fencing" && was == "Condemned" && harm {
                self.paid(&brakes, after, id)
            } else {
                let proven = node.phase.name() == "ProvenOff" && was != "ProvenOff" && was != "Releasing";
                if node.phase.name() == "Held"
                    && let Some(deaths) = self.deaths.get_mut(name)
                {
                    // What was proven no longer holds.
                    deaths.remove(id);
                }
                if proven && incident.proven == Some(after.now) {
                    self.deaths.entry(name.clone()).or_default().entry(id.clone()).or_insert(self.now);
                }
                None
            };
            if let Some(why) = wrong {
                return Some(format!("{name}: {why}"));
            }
        }
        None
    }
}

impl Pace {
    fn decided(&mut self, brakes: &[Brakes], before: &State, after: &State) -> Option<String> {
        // Neither one that this entry shows nor one that is over by it.
        let storm = storm_on(before) && storm_on(after);
        let pace = |b: &Brakes| if storm { b.pace.max(b.storm_pace) } else { b.pace };
        let pace = brakes.iter().map(pace).max()?;
        let since = self.last.replace(self.now).map(|last| self.now.since(last))?;
        (since < pace)
            .then(|| format!("decided {since} after the decision before it, {pace} must be between"))
    }

    /// Whoever died so often within a day is left to a person, by the policies as they stand. An incident never counts
    /// against itself.
    fn repeats(&self, state: &State, name: &NodeName, own: &IncidentId) -> Option<String> {
        let enforcing = state.policies.values().filter(|policy| policy.mode == Mode::Enforce);
        let most = enforcing.map(|policy| policy.brakes.deaths_per_day).min()?;
        let others = self.deaths.get(name)?.iter().filter(|(id, _)| *id != own);
        let lately = others.filter(|(_, at)| self.now.since(**at) < DEATHS_WINDOW).count();
        (lately + 1 >= most as usize)
            .then(|| format!("it died {lately} times within a day, and {most} are left to a person"))
    }

    fn of_domain(&mut self, brakes: &[Brakes], domain: &str, id: &IncidentId) -> Option<String> {
        let now = self.now;
        let most = brakes.iter().map(|b| b.per_domain_10m).min()? as usize;
        let lately = self.domains.entry(domain.to_owned()).or_default();
        lately.retain(|(at, _)| now.since(*at) < DOMAIN_WINDOW);
        if lately.iter().all(|(_, of)| of != id) {
            lately.push((now, id.clone()));
        }
        (lately.len() > most)
            .then(|| format!("{} of {domain} within ten minutes, {most} may be", lately.len()))
    }

    /// An intent is paid for once, whatever becomes of it.
    fn paid(&mut self, brakes: &[Brakes], state: &State, id: &IncidentId) -> Option<String> {
        if !self.paid.insert(id.clone()) {
            return None;
        }
        let default = (state.members() / 200).max(2);
        let most = brakes.iter().map(|b| b.budget.unwrap_or(default)).min()?;
        let refill = brakes.iter().map(|b| b.budget_refill).max()?;
        let (used, at) = self.used;
        let left = used.saturating_sub(self.now.since(at));
        self.used = (left + refill, self.now);
        let all = Span::from_ms(refill.as_ms() * u64::from(most));
        (left + refill > all).then(|| format!("intents use {} of a budget of {all}", left + refill))
    }
}
