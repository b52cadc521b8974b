//! Seeds: each draws a site, what goes wrong in it, and when ("swarm testing": not every seed has every fault, so that
//! none hides another). Then everything heals, and the invariants are asked whether all ends as it should.
//!
//! ```text
//!   seed --+-- every 16th: a script --------------------------------------> heal, settle --> judged
//!          +-- others: site, 1 to 3 classes --> heal, settle --+----------> judged
//!                                                              +-- a third: a second act --> heal, settle --> judged
//! ```
//!
//! A second act comes when the first is over and all is well again. It is drawn from a stream of its own, so that what
//! is added to it changes no first act; and so are the scripts, which reach what chance reaches too seldom.

use coroner_shared::time::{Mono, Span};

use crate::invariants::what_lasts;

use super::bmc::Traits;
use super::chance::{Chance, Purpose};
use super::classes;
use super::scripts;
use super::site::{BmcPlan, policy};
use super::trace::tell;
use super::trouble::Trouble;
use super::world::START;
use super::{Coverage, Sim, Site, Violation};

/// What a seed draws.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) site: Site,
    /// Since the beginning.
    pub(crate) troubles: Vec<(Span, Trouble)>,
    /// How long things go wrong.
    pub(crate) until: Span,
    /// Names of the classes drawn, for coverage.
    pub(crate) classes: Vec<&'static str>,
    /// What goes wrong once all is well again; its times begin then, and of its site nothing is taken.
    pub(crate) second: Option<Box<Plan>>,
}

/// What came of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Which.
    pub seed: u64,
    /// What must never be, and was.
    pub violations: Vec<Violation>,
    /// What was reached.
    pub coverage: Coverage,
    /// The same in every run of the seed.
    pub hash: String,
    /// Machines.
    pub nodes: usize,
    /// Simulated.
    pub simulated: Span,
}

/// A site in which everything boots at the beginning: of a seed's site, and no class that is drawn.
pub(crate) const COLD: &str = "cold start";
/// After everything healed: at most so long until every node is Alive and nothing noticed is left.
const SETTLES: Span = Span::from_mins(30);
/// So many of a hundred seeds have a second act.
const SECOND_ACTS: u64 = 33;
/// People look after what does not come back by itself, this often.
const TENDS: Span = Span::from_mins(2);

/// Shows the command that plays one seed alone, with its story.
#[derive(Clone, Copy, Debug)]
pub struct Plays(pub u64);

impl std::fmt::Display for Plays {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "hack/sim --seed {}", self.0)
    }
}

/// Whether a seed draws a class or script whose name contains one of these texts, in either act; `true` where there is
/// no text.
#[must_use]
pub fn draws_one_of(seed: u64, texts: &[String]) -> bool {
    let has = |plan: &Plan| plan.classes.iter().any(|name| texts.iter().any(|text| name.contains(text)));
    let plan = if texts.is_empty() { return true } else { Plan::of(seed) };
    has(&plan) || plan.second.as_deref().is_some_and(has)
}

/// Whether any class or script has a name that contains this text: else no seed draws one.
#[must_use]
pub fn names_a_class(text: &str) -> bool {
    classes::names().chain(scripts::names()).any(|name| name.contains(text))
}

/// Plays a seed. A core that panics is a violation like any other, and no reason to lose what others found.
#[must_use]
pub fn run_seed(seed: u64) -> Outcome {
    let plan = Plan::of(seed);
    let nodes = plan.site.nodes;
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut sim = Sim::quiet(plan.site.clone());
        play(&mut sim, plan)
    }));
    played.unwrap_or_else(|panic| panicked(seed, nodes, panic.as_ref()))
}

fn panicked(seed: u64, nodes: usize, panic: &(dyn std::any::Any + Send)) -> Outcome {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    let what = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("a panic without words");
    let violation = Violation { invariant: "no panic".to_owned(), at: 0, what: what.to_owned() };
    Outcome {
        seed,
        violations: vec![violation],
        coverage: Coverage::default(),
        hash: String::new(),
        nodes,
        simulated: Span::ZERO,
    }
}

/// Plays a seed until something is violated, and says what; `Err`: the cores panicked.
///
/// # Errors
/// That it panicked.
#[cfg(coroner_mutants)]
pub(super) fn first_violation(seed: u64) -> Result<Option<Violation>, Panicked> {
    let plan = Plan::of(seed);
    let played = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        let mut sim = Sim::quiet(plan.site.clone());
        sim.shared.world.borrow_mut().truth.stops = true;
        play(&mut sim, plan)
    }));
    match played {
        Ok(_) => Ok(None),
        Err(end) => end.downcast::<Violation>().map(|violation| Some(*violation)).map_err(|_| Panicked),
    }
}

/// The cores panicked.
#[cfg(coroner_mutants)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Panicked;

/// Plays a seed and prints its story as it goes.
#[must_use]
pub fn tell_seed(seed: u64) -> Outcome {
    let plan = Plan::of(seed);
    let rack = |rack: &Option<usize>| rack.map_or("-".to_owned(), |rack| rack.to_string());
    let racks: Vec<String> = plan.site.racks.iter().map(rack).collect();
    let hosts: Vec<String> = plan.site.replicas.iter().map(|host| format!("n{host}")).collect();
    let nodes = plan.site.nodes;
    tell(&format!(
        "seed {seed}: {nodes} nodes in racks {}; replicas on {}",
        racks.join(" "),
        hosts.join(" ")
    ));
    tell(&format!("classes: {}", plan.classes.join(", ")));
    if let Some(second) = &plan.second {
        tell(&format!("second act: {}", second.classes.join(", ")));
    }
    let mut sim = Sim::aloud(plan.site.clone());
    play(&mut sim, plan)
}

fn play(sim: &mut Sim, plan: Plan) -> Outcome {
    let (site, second) = (plan.site.clone(), plan.second.clone());
    act(sim, plan, START);
    if let Some(second) = second {
        let began = sim.shared.reactor.now();
        {
            let mut world = sim.shared.world.borrow_mut();
            world.say("SECOND ACT");
            world.truth.settled = false;
        }
        act(sim, *second, began);
    }
    sim.finish();
    Outcome {
        seed: site.seed,
        violations: sim.violations(),
        coverage: sim.coverage(),
        hash: sim.hash(),
        nodes: site.nodes,
        simulated: sim.elapsed(),
    }
}

/// Plays what goes wrong, and lets everything heal.
fn act(sim: &mut Sim, plan: Plan, began: Mono) {
    {
        let mut world = sim.shared.world.borrow_mut();
        for class in plan.classes.into_iter().chain(plan.site.cold.then_some(COLD)) {
            world.coverage.reach(format!("seed class: {class}"));
        }
        for (at, trouble) in plan.troubles {
            world.at(began + at, move |world| world.begin(trouble));
        }
    }
    sim.run_for(plan.until);
    sim.settle();
}

// === impl Sim ===

impl Sim {
    /// Everything heals; people power on, reboot and clear what waits for them. Ends when all is calm, or when
    /// no more time is left.
    pub fn settle(&mut self) {
        {
            let mut world = self.shared.world.borrow_mut();
            world.heal_world();
            world.truth.settled = true;
        }
        let began = self.shared.reactor.now();
        let mut tended: Option<Mono> = None;
        loop {
            let now = self.shared.reactor.now();
            if now.since(began) >= SETTLES {
                return;
            }
            if tended.is_none_or(|at| now.since(at) >= TENDS) {
                tended = Some(now);
                let mut world = self.shared.world.borrow_mut();
                world.tend_machines();
                world.tend_decisions();
            }
            if self.run_until(TENDS.min(Span::from_secs(20)), Self::is_calm) {
                // What is Alive stays so.
                self.run_for(Span::from_secs(15));
                if self.is_calm() {
                    return;
                }
            }
        }
    }

    /// Every node is Alive, and nothing that was noticed meanwhile is left.
    fn is_calm(&self) -> bool {
        let world = self.shared.world.borrow();
        let nodes = &world.truth.state.nodes;
        nodes.len() == world.site.nodes
            && nodes.values().all(|n| n.phase.name() == "Alive" && n.member.is_some())
            && world.machines.iter().all(super::machine::Machine::is_up)
            && world.api.nodes.values().all(|n| !n.tainted())
            && what_lasts(&world).is_none()
    }
}

// === impl Plan ===

impl Plan {
    /// What the seed draws.
    pub(crate) fn of(seed: u64) -> Self {
        let mut later = Chance::new(seed, Purpose::Later);
        if let Some(script) = scripts::of(seed, &mut later) {
            return script;
        }
        let mut plan = Self::first_act(seed);
        if later.percent(SECOND_ACTS) {
            plan.second = Some(Box::new(plan.second_act(&mut later)));
        }
        plan
    }

    /// Nothing goes wrong there.
    pub(crate) fn quiet(site: Site) -> Self {
        Self { site, troubles: Vec::new(), until: Span::ZERO, classes: Vec::new(), second: None }
    }

    fn second_act(&self, chance: &mut Chance) -> Self {
        let mut second = Self::quiet(self.site.clone());
        let at = if chance.percent(50) { Span::from_secs(130) } else { Span::from_secs(5) };
        classes::draw_later(&mut second, at, chance);
        second.ends_after(chance);
        second
    }

    /// In the order of time; and some time passes after the last.
    pub(crate) fn ends_after(&mut self, chance: &mut Chance) {
        self.troubles.sort_by_key(|(at, _)| *at);
        let last = self.troubles.last().map_or(Span::ZERO, |(at, _)| *at);
        self.until = last + chance.span(Span::from_secs(20), Span::from_secs(100));
    }

    fn first_act(seed: u64) -> Self {
        let mut chance = Chance::new(seed, Purpose::Site);
        let site = draw_site(seed, &mut chance);
        let mut chance = Chance::new(seed, Purpose::Faults);
        let warm = if site.cold { Span::from_secs(20) } else { Span::from_secs(135) };
        let mut plan = Self::quiet(site);
        if !plan.site.cold && chance.percent(15) {
            plan.until = classes::lone_death(&mut plan, warm, &mut chance);
            return plan;
        }
        let count = chance.range(1, 3);
        let mut at = warm + chance.span(Span::ZERO, Span::from_secs(20));
        for _ in 0..count {
            classes::draw(&mut plan, at, &mut chance);
            at += chance.span(Span::from_ms(500), Span::from_secs(40));
        }
        plan.troubles.sort_by_key(|(at, _)| *at);
        let last = plan.troubles.last().map_or(warm, |(at, _)| *at);
        plan.until = last + chance.span(Span::from_secs(20), Span::from_secs(100));
        plan
    }
}

/// Most sites are small, so that many seeds can be played; few are large.
fn draw_site(seed: u64, chance: &mut Chance) -> Site {
    let nodes = match chance.below(100) {
        0..70 => chance.range(3, 7),
        70..96 => chance.range(8, 12),
        96..99 => chance.range(13, 40),
        _ => chance.range(41, 200),
    };
    let nodes = usize::try_from(nodes).unwrap_or(3);
    let racks = match chance.below(4) {
        0 => 0,
        _ => chance.range(1, 8.min(nodes as u64)),
    };
    let mut site = Site::plain(seed, nodes, usize::try_from(racks).unwrap_or(0));
    if racks > 0 && chance.percent(15) {
        // Only some carry the label.
        for rack in &mut site.racks {
            if chance.percent(30) {
                *rack = None;
            }
        }
    }
    site.cold = chance.percent(6);
    if site.cold {
        site.firmware = (Span::from_mins(1), Span::from_mins(10));
    }
    let mut hosts: Vec<usize> = (0..nodes).collect();
    site.replicas = (0..3).map(|_| hosts.swap_remove(chance.index(hosts.len()))).collect();
    site.snapshot_every = if chance.percent(30) { chance.range(5, 60) } else { 2_000 };
    draw_policy(&mut site, chance);
    for bmc in &mut site.bmcs {
        draw_bmc(bmc, chance);
    }
    if chance.percent(4) && nodes > 3 {
        // Two cables were swapped before anybody enrolled.
        let (a, b) = (chance.index(nodes), chance.index(nodes));
        let machine = site.bmcs[a].machine;
        site.bmcs[a].machine = site.bmcs[b].machine;
        site.bmcs[b].machine = machine;
    }
    site
}

fn draw_policy(site: &mut Site, chance: &mut Chance) {
    use coroner_arbiter_core::policy::{AfterRelease, Mode, ReleaseStrategy, Rules};
    let mut all = policy("all");
    all.rules = match chance.below(4) {
        0 => Rules::FAST,
        1 => Rules::CONSERVATIVE,
        _ => Rules::BALANCED,
    };
    if chance.percent(20) {
        all.release = ReleaseStrategy::Taint;
    }
    if chance.percent(25) {
        all.after_release = AfterRelease::StayOff;
    }
    if chance.percent(5) {
        all.mode = Mode::Observe;
    }
    if chance.percent(10) {
        all.brakes.deaths_per_day = 2;
    }
    site.policies = std::collections::BTreeMap::from([("all".to_owned(), all)]);
}

fn draw_bmc(bmc: &mut BmcPlan, chance: &mut Chance) {
    use coroner_arbiter_core::policy::Quirk;
    bmc.network = usize::try_from(chance.below(2)).unwrap_or(0);
    let change: fn(&mut Traits) = match chance.below(24) {
        0 => |t| t.takes = (Span::from_ms(300), Span::from_ms(900)),
        1 => |t| t.off_takes = Span::from_secs(4),
        2 => |t| t.refuses_when_off = true,
        3 => |t| t.says_powering = true,
        4 => |t| t.ignores = true,
        5 => |t| t.reset_time = false,
        6 => |t| {
            t.basic = true;
            t.reset_time = false;
        },
        7 => |t| t.restores = Some(Span::from_secs(20)),
        8 => |t| t.after_restart = Some((coroner_shared::bmc::Power::Off, Span::from_secs(20))),
        9 => |t| t.uuid = swapped(&t.uuid),
        10 => |t| t.other = Some("11111111-2222-3333-4444-555555555555".to_owned()),
        11 => |t| t.errors = 5,
        12 => |t| t.uuid = t.uuid.to_uppercase(),
        13 => |t| {
            t.says_powering = true;
            t.off_takes = Span::from_secs(20);
        },
        _ => |_| {},
    };
    bmc.change = change;
    if chance.percent(4) {
        bmc.quirks = vec![Quirk::Cached];
        bmc.change = |t| t.cached = Span::from_secs(50);
    }
    if chance.percent(2) {
        bmc.bound = false;
    }
}

/// The first three fields byte by byte the other way round, as some BMCs write them.
fn swapped(uuid: &str) -> String {
    let turn = |field: &str| -> String {
        let pairs: Vec<&str> = (0..field.len() / 2).map(|n| &field[2 * n..2 * n + 2]).collect();
        pairs.into_iter().rev().collect()
    };
    let fields: Vec<&str> = uuid.split('-').collect();
    let text: Vec<String> =
        fields.iter().enumerate().map(|(n, f)| if n < 3 { turn(f) } else { (*f).to_owned() }).collect();
    text.join("-")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::sim::{classes, scripts};

    /// How often each class is drawn by the first 2,000 seeds.
    fn drawn() -> BTreeMap<&'static str, u32> {
        let mut counts = BTreeMap::new();
        for seed in 1..=2_000 {
            let plan = Plan::of(seed);
            *counts.entry(COLD).or_default() += u32::from(plan.site.cold);
            let second = plan.second.iter().flat_map(|second| &second.classes);
            for class in plan.classes.iter().chain(second) {
                *counts.entry(*class).or_default() += 1;
            }
        }
        counts
    }

    /// As often as the table in `classes` says.
    #[test]
    fn every_class_is_drawn_within_two_thousand_seeds() {
        let counts = drawn();
        for name in classes::names().chain(scripts::names()).chain([COLD]) {
            let count = counts.get(name).copied().unwrap_or_default();
            assert!(count >= 3, "{name}: {count} times; all: {counts:#?}");
        }
    }

    #[test]
    fn a_second_act_and_a_script_change_no_first_act() {
        let scripts =
            (1..=64).filter(|seed| scripts::of(*seed, &mut Chance::new(*seed, Purpose::Later)).is_some());
        assert_eq!(scripts.collect::<Vec<_>>(), [15, 31, 47, 50, 63]);
        let (with, without) = (Plan::of(2), Plan::first_act(2));
        assert_eq!(format!("{:?}", with.troubles), format!("{:?}", without.troubles));
        assert!((1..40).any(|seed| Plan::of(seed).second.is_some()));
    }

    #[test]
    fn a_panic_is_a_violation_of_the_seed_that_had_it() {
        let caught = std::panic::catch_unwind(|| panic!("index {} of 3", 7)).expect_err("it panics");
        let outcome = panicked(12, 5, caught.as_ref());
        let said = outcome.violations.iter().map(|v| (v.invariant.as_str(), v.what.as_str()));
        assert_eq!((outcome.seed, said.collect::<Vec<_>>()), (12, vec![("no panic", "index 7 of 3")]));
    }
}
