//! One death or two on a site at work: when each is decided, or as what it is held.

use std::collections::BTreeMap;

use coroner_shared::time::{Mono, Span};
use serde::Serialize;

use super::{Answers, LOOK, Racks, count, warm};
use crate::sim::Sim;

/// A death must be decided or held within this: the longest deadline, a renewal, an election.
const DECIDES: Span = Span::from_secs(40);
/// The same where a BMC takes seconds: two readings, each after a log-in and a look at who it is.
const DECIDES_SLOWLY: Span = Span::from_secs(120);

/// How a machine dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Kind {
    /// No power; the BMC lives.
    Power,
    /// Nothing moves, power is on.
    Hang,
    /// No power, and no BMC.
    Cord,
}

/// What else was on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Role {
    /// No replica.
    None,
    /// One that follows.
    Follower,
    /// The one that leads.
    Leader,
}

/// What dies in the same moment, the same way; never the host of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Also {
    /// Nothing else.
    Nobody,
    /// A machine of another domain.
    OtherDomain,
    /// A machine of the same rack; needs racks.
    SameRack,
}

/// What dies, and where.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Death {
    /// Machines of the site.
    pub nodes: usize,
    /// Its racks.
    pub racks: Racks,
    /// How it died.
    pub kind: Kind,
    /// What was on it.
    pub role: Role,
    /// And what else.
    pub also: Also,
    /// How long BMCs take for an answer.
    pub bmcs: Answers,
}

/// Deaths of one kind on sites of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Deaths {
    /// Which.
    pub death: Death,
    /// How often; sites that have no such machines are not counted.
    pub trials: u64,
    /// Of each dead machine: from the last beacon of it that anybody got to the commit of the decision, milliseconds,
    /// ascending.
    pub decided: Vec<u64>,
    /// Held, by reason.
    pub held: BTreeMap<String, u64>,
    /// Neither within 40 s; 120 s where BMCs take seconds.
    pub nothing: u64,
}

/// Plays one death so often.
#[must_use]
pub fn deaths(death: Death, trials: u64) -> Deaths {
    let limit = if death.bmcs == Answers::AtOnce { DECIDES } else { DECIDES_SLOWLY };
    let mut row = Deaths { death, trials: 0, decided: Vec::new(), held: BTreeMap::new(), nothing: 0 };
    for trial in 0..trials {
        let mut sim = warm(death.nodes, death.racks, death.bmcs, trial);
        let Some(victims) = sim.victims(death, trial) else { continue };
        row.trials += 1;
        victims.iter().for_each(|victim| sim.dies(&format!("n{victim}"), death.kind));
        let decided = sim.decides(&victims, limit);
        for victim in victims {
            match decided.get(&victim) {
                Some(after) => row.decided.push(after.as_ms()),
                None => count(&mut row.held, &mut row.nothing, sim.held(&format!("n{victim}"))),
            }
        }
    }
    row.decided.sort_unstable();
    row
}

// === impl Sim ===

impl Sim {
    pub(super) fn dies(&mut self, node: &str, kind: Kind) {
        match kind {
            Kind::Power => self.cut_power(node),
            Kind::Hang => self.freeze(node),
            Kind::Cord => self.pull_cord(node),
        }
    }

    fn of_role(&self, role: Role, trial: u64) -> Option<usize> {
        let world = self.shared.world.borrow();
        let leader = world.site.replicas[world.leader()?];
        let replicas = &world.site.replicas;
        let fits = |machine: &usize| match role {
            Role::None => !replicas.contains(machine),
            Role::Follower => replicas.contains(machine) && *machine != leader,
            Role::Leader => *machine == leader,
        };
        let all: Vec<usize> = (0..world.site.nodes).filter(fits).collect();
        all.get(usize::try_from(trial).unwrap_or(0) % all.len().max(1)).copied()
    }

    /// Who dies; `None` where the site has no such machines.
    fn victims(&self, death: Death, trial: u64) -> Option<Vec<usize>> {
        let first = self.of_role(death.role, trial)?;
        let world = self.shared.world.borrow();
        let racks = &world.site.racks;
        let fits = |machine: &usize| {
            let together = racks[*machine].is_some() && racks[*machine] == racks[first];
            !world.site.replicas.contains(machine)
                && *machine != first
                && (death.also == Also::SameRack) == together
        };
        let others: Vec<usize> = (0..world.site.nodes).filter(fits).collect();
        match death.also {
            Also::Nobody => Some(vec![first]),
            Also::OtherDomain | Also::SameRack => {
                let second = others.get(usize::try_from(trial).unwrap_or(0) % others.len().max(1))?;
                Some(vec![first, *second])
            }
        }
    }

    /// Of each that is decided: from the last beacon of it that anybody got to the decision.
    fn decides(&mut self, victims: &[usize], limit: Span) -> BTreeMap<usize, Span> {
        let until = self.elapsed() + limit;
        let mut decided = BTreeMap::new();
        while self.elapsed() < until && decided.len() < victims.len() {
            self.run_for(LOOK);
            for victim in victims {
                if matches!(self.phase(&format!("n{victim}")), "Alive" | "Held") {
                    continue;
                }
                let world = self.shared.world.borrow();
                let last = world.truth.hears(*victim).map(|(_, hears)| hears.last).max();
                decided.entry(*victim).or_insert_with(|| world.now.since(last.unwrap_or(Mono::default())));
            }
        }
        decided
    }
}
