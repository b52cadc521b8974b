//! Stories: what went wrong in other systems, each with its thread, played on the shipped cores. What must come of it is
//! judged by the true machines, by what BMCs were told, and by every invariant, to the end of a run in which all heals.
//!
//! ```text
//!   Site + what goes wrong --> Play --> until(...), never(...) --> settle, finish --> no violation, everybody Alive
//! ```
//!
//! That a story can fail is seen where a planted bug makes it: `hack/sim --mutants` plays stories with each bug that their
//! code comes to, too. The table in `tests/README.md` is of seeds alone, and not every danger that a story names has a
//! planted bug of its own. Of the stories of 2026-12-01 each but `slow_is_not_dead` and `a_kubelet_that_is_gone...` was seen
//! to fail, with a planted bug or with a line put into the core by hand; of older ones some never were.

mod bmcs;
mod ceph;
mod false_ones;
mod fences;
mod guards;
mod history;
mod medik8s;
mod others;
mod power;
mod signs;
mod waits;

use coroner_shared::id::NodeName;
use coroner_shared::time::Span;

use super::people::Act;
use super::trouble::Trouble;
use super::{Sim, Site};

/// How a story ended: what was not as it must be, and how it came to it.
pub type Told = Result<(), String>;

/// A story.
pub struct Story {
    /// Its name, as the test is called.
    pub name: &'static str,
    /// The thread that told it first; `inferred`: nobody told it yet, and it follows from the others.
    pub thread: &'static str,
    /// What went wrong there, and what is right.
    pub lesson: &'static str,
    /// Plays it.
    pub play: fn() -> Told,
}

/// All of them.
pub fn all() -> impl Iterator<Item = &'static Story> {
    [
        ceph::ALL,
        medik8s::ALL,
        fences::ALL,
        bmcs::ALL,
        power::ALL,
        signs::ALL,
        waits::ALL,
        others::ALL,
        false_ones::ALL,
        guards::ALL,
        history::ALL,
    ]
    .into_iter()
    .flatten()
}

/// Plays the story of this name.
///
/// # Errors
/// What was not as it must be; or that there is no such story.
pub fn tell(name: &str) -> Told {
    let story = all().find(|story| story.name == name);
    story.map_or_else(|| Err(format!("there is no story {name}")), |story| (story.play)())
}

/// One run of a story.
struct Play {
    sim: Sim,
}

// === impl Play ===

impl Play {
    /// A site in which everybody is registered and every BMC steady.
    fn of(site: Site) -> Self {
        let mut sim = Sim::new(site);
        sim.warm_up();
        Self { sim }
    }

    fn begin(&mut self, trouble: Trouble) {
        self.sim.shared.world.borrow_mut().begin(trouble);
    }

    fn person(&mut self, act: Act) {
        self.begin(Trouble::People(act));
    }

    fn wait(&mut self, seconds: u64) {
        self.sim.run_for(Span::from_secs(seconds));
    }

    /// It must come to this within that time.
    fn until(&mut self, seconds: u64, what: &str, is_so: impl Fn(&Sim) -> bool) -> Told {
        let came = self.sim.run_until(Span::from_secs(seconds), is_so);
        self.check(came, &format!("not within {seconds} s: {what}"))
    }

    /// It must not come to this within that time.
    fn never(&mut self, seconds: u64, what: &str, is_so: impl Fn(&Sim) -> bool) -> Told {
        let came = self.sim.run_until(Span::from_secs(seconds), is_so);
        self.check(!came, &format!("it came to this: {what}"))
    }

    /// It must come to this within that time, and never to that on the way.
    fn until_without(
        &mut self,
        (seconds, what, is_so): (u64, &str, impl Fn(&Sim) -> bool),
        (never, is_not): (&str, impl Fn(&Sim) -> bool),
    ) -> Told {
        let came = self.sim.run_until(Span::from_secs(seconds), |sim| is_so(sim) || is_not(sim));
        self.check(!is_not(&self.sim), &format!("it came to this: {never}"))?;
        self.check(came, &format!("not within {seconds} s: {what}"))
    }

    /// It must be so now.
    fn check(&self, holds: bool, why: &str) -> Told {
        if holds { Ok(()) } else { Err(format!("{why}\n{}", self.sim.story())) }
    }

    /// Everything heals; then nothing was violated and everybody is Alive.
    fn end(mut self) -> Told {
        self.sim.settle();
        self.sim.finish();
        let violations = self.sim.violations();
        self.check(violations.is_empty(), &format!("{violations:?}"))?;
        self.check(calm(&self.sim), "not everybody is Alive in the end")
    }
}

// === looks ===

fn name(node: usize) -> String {
    format!("n{node}")
}

/// Whether every node is Alive.
fn calm(sim: &Sim) -> bool {
    (0..sim.nodes()).all(|node| sim.phase(&name(node)) == "Alive")
}

/// Whether anybody but these is anything but Alive.
fn others_touched(sim: &Sim, but: &[usize]) -> bool {
    (0..sim.nodes()).any(|node| !but.contains(&node) && sim.phase(&name(node)) != "Alive")
}

fn is(sim: &Sim, node: usize, phase: &str) -> bool {
    sim.phase(&name(node)) == phase
}

fn held(sim: &Sim, node: usize, why: &str) -> bool {
    sim.held(&name(node)) == why
}

/// Power-offs that reached the BMC of this machine, or of any (`None`).
fn offs(sim: &Sim, node: Option<usize>) -> usize {
    let own = |machine: &str| node.is_none_or(|n| name(n) == machine);
    sim.ledger().iter().filter(|(_, machine, what)| what == "ForceOff" && own(machine)).count()
}

/// Nodes in flight: condemned, or being fenced.
fn in_flight(sim: &Sim) -> usize {
    (0..sim.nodes()).filter(|node| is(sim, *node, "Condemned") || is(sim, *node, "Fencing")).count()
}

/// Whether its workloads were ever released in its open incident or since.
fn released(sim: &Sim, node: usize) -> bool {
    let Ok(node) = NodeName::new(name(node)) else { return false };
    sim.state().incidents.values().any(|incident| incident.node == node && incident.tainted.is_some())
}

/// Whether a page with this word was given about the node.
fn paged(sim: &Sim, node: usize, reason: &str) -> bool {
    sim.pages_about(&name(node)).iter().any(|given| given == reason)
}
