//! Many at once: what strikes a rack, or machines at random, and how many machines that are on are condemned for it.
//!
//! ```text
//!   Blow (to a rack | at random) x trials --> condemned when, held why    --> 0 machines that are on
//! ```

use std::collections::BTreeMap;

use coroner_shared::time::Span;
use serde::Serialize;

use super::{Answers, LOOK, Racks, SEEDS, count, warm};
use crate::sim::Sim;
use crate::sim::chance::{Chance, Purpose};

/// What happens to all of them in the same moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Blow {
    /// No power; the BMCs live.
    Power,
    /// Nothing moves, power is on.
    Hang,
    /// No power, and no BMC.
    Cord,
    /// They run, and nobody outside hears them nor they anybody; their BMCs answer.
    CutOff,
}

/// Whom it strikes; never the host of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Struck {
    /// A whole rack.
    Rack,
    /// So many, anywhere.
    Random(usize),
}

/// A site and what strikes it.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Case {
    /// Machines.
    pub nodes: usize,
    /// Racks, all of one size.
    pub racks: usize,
    /// Whom it strikes.
    pub struck: Struck,
    /// What it is.
    pub blow: Blow,
}

/// What came of it.
#[derive(Clone, Debug, Serialize)]
pub struct Many {
    /// Of what.
    pub case: Case,
    /// How often.
    pub trials: u64,
    /// Machines struck, over all trials.
    pub struck: u64,
    /// Condemned of those.
    pub condemned: u64,
    /// Condemned, of any, that were on.
    pub on: u64,
    /// From the blow to the first and to the last decision, milliseconds.
    pub span: Option<(u64, u64)>,
    /// Held in the end, by reason.
    pub held: BTreeMap<String, u64>,
    /// Neither condemned nor held.
    pub nothing: u64,
}

/// Plays one case so often, each time for so long.
#[must_use]
pub fn many(case: Case, trials: u64, watched: Span) -> Many {
    let mut row =
        Many { case, trials, struck: 0, condemned: 0, on: 0, span: None, held: BTreeMap::new(), nothing: 0 };
    for trial in 0..trials {
        let mut sim = warm(case.nodes, Racks::Even(case.racks), Answers::AtOnce, trial);
        let struck = sim.strikes(case, trial);
        row.struck += struck.len() as u64;
        let began = sim.elapsed();
        let mut known = std::collections::BTreeSet::new();
        while sim.elapsed().saturating_sub(began) < watched {
            sim.run_for(LOOK);
            let before = known.len();
            let (wrong, unheard) = sim.newly_condemned(&mut known);
            row.on += wrong + unheard;
            if known.len() > before {
                let now = sim.elapsed().saturating_sub(began).as_ms();
                let (first, last) = row.span.unwrap_or((now, now));
                row.span = Some((first.min(now), last.max(now)));
            }
        }
        for machine in struck {
            if known.contains(&machine) {
                row.condemned += 1;
            } else {
                count(&mut row.held, &mut row.nothing, sim.held(&format!("n{machine}")));
            }
        }
    }
    row
}

impl Sim {
    fn strikes(&mut self, case: Case, trial: u64) -> Vec<usize> {
        let free: Vec<usize> = {
            let world = self.shared.world.borrow();
            (0..case.nodes).filter(|machine| !world.site.replicas.contains(machine)).collect()
        };
        let struck: Vec<usize> = match case.struck {
            Struck::Rack => {
                free.into_iter().filter(|machine| machine % case.racks == case.racks - 1).collect()
            }
            Struck::Random(wanted) => {
                let mut chance = Chance::new(SEEDS + trial, Purpose::Faults);
                let mut free = free;
                (0..wanted.min(free.len())).map(|_| free.swap_remove(chance.index(free.len()))).collect()
            }
        };
        let names: Vec<String> = struck.iter().map(|machine| format!("n{machine}")).collect();
        for name in &names {
            match case.blow {
                Blow::Power => self.cut_power(name),
                Blow::Hang => self.freeze(name),
                Blow::Cord => self.pull_cord(name),
                Blow::CutOff => {}
            }
        }
        if case.blow == Blow::CutOff {
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            // Machines of a rack still hear each other.
            let together = if case.struck == Struck::Rack { names.len() } else { 1 };
            for part in names.chunks(together.max(1)) {
                self.isolate(part);
            }
        }
        struck
    }
}
