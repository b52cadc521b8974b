//! What is wrong with a network, or with some of those that observe, for a minute: who is condemned in it, and what
//! becomes of a machine that dies in it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use coroner_shared::id::NodeName;
use coroner_shared::time::Span;
use serde::Serialize;

use super::{Answers, Kind, LOOK, Racks, SEEDS, count, warm};
use crate::sim::Sim;
use crate::sim::chance::{Chance, Purpose};
use crate::sim::network::{Cut, Ends, Flow};
use crate::sim::odd::Odd;
use crate::sim::trouble::{isolation, one_way};
use crate::sim::world::World;

/// Once a network is whole again, a death must be decided or held within this: an election, a leader that begins cold, the
/// longest deadline.
const DECIDES_AFTER: Span = Span::from_secs(60);
/// A fault lasts so long.
const LASTS: Span = Span::from_secs(60);
/// Into a fault, one machine dies.
const DIES: Span = Span::from_secs(20);

/// What a compromised agent says for the whole of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Lying {
    /// That one is silent that lives; another machine dies.
    Accuses,
    /// That the one that dies is heard: some by a claim, some by an answer of its kernel as well.
    Vouches,
    /// Of the one that dies nothing but the claim.
    KeepsQuiet,
}

/// What is wrong besides liars.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Beside {
    /// Nothing.
    Nothing,
    /// Of what the one they speak of sends and gets so much is lost, in percent.
    Loses(u64),
    /// So many of a hundred directed paths between hosts carry nothing.
    BlackHoles(u64),
}

/// Something wrong with the network, or with those that observe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Fault {
    /// A host receives nothing.
    DeafHost,
    /// So many of a hundred directed paths between hosts carry nothing.
    BlackHoles(u64),
    /// A rack's uplink is down.
    RackCut,
    /// Half of what crosses a rack's uplink is lost.
    RackHalf,
    /// A rack sends to nobody outside.
    RackMute,
    /// A rack receives nothing from outside.
    RackDeaf,
    /// One host sends to nobody.
    MuteHost,
    /// A replica's host receives no reports and no beacons.
    DeafReplica,
    /// A replica's host sends to nobody.
    MuteReplica,
    /// A replica's host is cut off.
    ReplicaCutOff,
    /// The replicas' hosts hear nobody else.
    ArbiterCutOff,
    /// So much of everything is lost, in percent.
    Loss(u64),
    /// Nothing: the death alone.
    Nothing,
    /// Two hosts receive nothing.
    TwoDeafHosts,
    /// One observer of the machine that dies sends no reports; beacons, statuses and answers it does.
    NeverReports,
    /// So many observers of one machine are compromised.
    Liars {
        /// What they say of it.
        lying: Lying,
        /// How many.
        count: usize,
        /// What is wrong besides.
        beside: Beside,
    },
}

/// Episodes of one fault on sites of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Faults {
    /// Machines of the site.
    pub nodes: usize,
    /// What was wrong.
    pub fault: Fault,
    /// How the machine died that died in it.
    pub dies: Kind,
    /// How often.
    pub trials: u64,
    /// Machines condemned that somebody honest could hear.
    pub wrong: u64,
    /// Machines condemned that nobody honest could hear, and that were on.
    pub unheard: u64,
    /// Of the machines that died in the fault: decided by its end.
    pub decided: u64,
    /// Held, by reason.
    pub held: BTreeMap<String, u64>,
    /// Neither decided nor held by its end, by what the decision waits for.
    pub waits: BTreeMap<String, u64>,
    /// Of these, decided after the network was whole again: since then, milliseconds, ascending.
    pub later: Vec<u64>,
    /// Of these, held by then, by reason.
    pub later_held: BTreeMap<String, u64>,
    /// Neither decided nor held a minute after the network was whole again.
    pub nothing: u64,
}

/// Plays one fault so often.
#[must_use]
pub fn faults(nodes: usize, fault: Fault, dies: Kind, trials: u64) -> Faults {
    let mut row = Faults {
        nodes,
        fault,
        dies,
        trials,
        wrong: 0,
        unheard: 0,
        decided: 0,
        held: BTreeMap::new(),
        waits: BTreeMap::new(),
        later: Vec::new(),
        later_held: BTreeMap::new(),
        nothing: 0,
    };
    for trial in 0..trials {
        torn(&mut row, trial);
    }
    row.later.sort_unstable();
    row
}

/// One episode: the fault, a death in it, and, where that is not decided by its end, what comes once all is whole.
fn torn(row: &mut Faults, trial: u64) {
    let mut sim = warm(row.nodes, Racks::Even(3), Answers::AtOnce, trial);
    let victim = sim.begin_fault(row.fault, trial);
    let name = format!("n{victim}");
    let mut known = BTreeSet::new();
    sim.watch(DIES, row, &mut known, |_| false);
    sim.dies(&name, row.dies);
    sim.watch(LASTS.saturating_sub(DIES), row, &mut known, |_| false);
    if known.contains(&victim) {
        row.decided += 1;
        return;
    }
    let held = sim.held(&name);
    if !held.is_empty() {
        *row.held.entry(held.to_owned()).or_default() += 1;
        return;
    }
    *row.waits.entry(sim.waits_for(&name)).or_default() += 1;
    sim.is_whole_again();
    let whole = sim.elapsed();
    sim.watch(DECIDES_AFTER, row, &mut known, |known| known.contains(&victim));
    if known.contains(&victim) {
        row.later.push(sim.elapsed().saturating_sub(whole).as_ms());
    } else {
        count(&mut row.later_held, &mut row.nothing, sim.held(&name));
    }
}

// === impl Sim ===

impl Sim {
    /// Runs for so long, or until it is enough, and counts who is condemned.
    fn watch(
        &mut self,
        span: Span,
        row: &mut Faults,
        known: &mut BTreeSet<usize>,
        enough: impl Fn(&BTreeSet<usize>) -> bool,
    ) {
        let until = self.elapsed() + span;
        while self.elapsed() < until && !enough(known) {
            self.run_for(LOOK);
            let (wrong, unheard) = self.newly_condemned(known);
            row.wrong += wrong;
            row.unheard += unheard;
        }
    }

    /// What the decision about a node waits for that is not held.
    fn waits_for(&self, node: &str) -> String {
        let world = self.shared.world.borrow();
        // A frozen host's replica still believes what it was.
        let up = |index: &usize| world.machines[world.site.replicas[*index]].is_up();
        let leader = world.leader().filter(up).and_then(|index| world.replicas[index].process.as_ref());
        let Some(leader) = leader else { return "no replica leads".to_owned() };
        let quorum = leader.published.active.is_some_and(|n| n > world.site.replicas.len() / 2);
        let judged = NodeName::new(node).ok().and_then(|name| leader.ears.judged.get(&name));
        match judged {
            _ if !quorum => "its leader has no quorum".to_owned(),
            _ if !leader.ears.settled => "its leader listens".to_owned(),
            Some((_, verdict)) => format!("{verdict:?}"),
            None => format!(
                "not suspected {:?}",
                leader.ears.findings.iter().map(ToString::to_string).collect::<Vec<_>>()
            ),
        }
    }

    /// The network is whole and every agent reports; liars are installed anew at that time.
    fn is_whole_again(&mut self) {
        let mut world = self.shared.world.borrow_mut();
        let now = world.now;
        world.network.heal_all(now);
        world.network.weather.loss = 0;
        world.machines.iter_mut().for_each(|machine| machine.odd.never_reports = false);
    }

    /// Begins it; gives the machine that will die.
    fn begin_fault(&mut self, fault: Fault, trial: u64) -> usize {
        let mut world = self.shared.world.borrow_mut();
        let mut chance = Chance::new(SEEDS + trial, Purpose::Faults);
        if let Fault::Liars { lying, count, beside } = fault {
            return world.begin_lies(lying, count, beside, &mut chance);
        }
        let (cuts, touched) = world.torn_by(fault, &mut chance);
        let now = world.now;
        cuts.into_iter().for_each(|cut| _ = world.network.cut(now, cut));
        if let Fault::Loss(percent) = fault {
            world.network.changed = now;
            world.network.weather.loss = percent;
        }
        let victim = world.one_but(&touched, &mut chance);
        if fault == Fault::NeverReports
            && let Some(observer) = chance.pick(&world.observers_of(victim))
        {
            world.machines[observer].odd.never_reports = true;
        }
        victim
    }
}

// === impl World ===

impl World {
    /// What does not pass, and whom it touches most.
    fn torn_by(&self, fault: Fault, chance: &mut Chance) -> (Vec<Cut>, Vec<usize>) {
        let nodes = self.site.nodes;
        let host = chance.index(nodes);
        let replica = self.site.replicas[chance.index(3)];
        let rack: Vec<usize> = (0..nodes).filter(|m| self.site.racks[*m] == Some(0)).collect();
        let only = |hosts: &[usize]| (Ends::Hosts(hosts.to_vec()), Ends::NotHosts(hosts.to_vec()));
        let mute = |hosts: &[usize]| one_way(only(hosts).0, only(hosts).1, None, 100);
        let deaf = |hosts: &[usize], flows| one_way(only(hosts).1, only(hosts).0, flows, 100);
        match fault {
            Fault::DeafHost => (deaf(&[host], None), vec![host]),
            Fault::TwoDeafHosts => {
                let both = vec![host, (host + 1) % nodes];
                (both.iter().flat_map(|one| deaf(&[*one], None)).collect(), both)
            }
            Fault::MuteHost => (mute(&[host]), vec![host]),
            Fault::BlackHoles(percent) => (black_holes(nodes, percent, chance), Vec::new()),
            Fault::RackCut => (isolation(&rack), rack),
            Fault::RackHalf => (lossy(&rack, 50), rack),
            Fault::RackMute => (mute(&rack), rack),
            Fault::RackDeaf => (deaf(&rack, None), rack),
            Fault::MuteReplica => (mute(&[replica]), vec![replica]),
            Fault::DeafReplica => (deaf(&[replica], Some(vec![Flow::Report, Flow::Peer])), vec![replica]),
            Fault::ReplicaCutOff => (isolation(&[replica]), vec![replica]),
            Fault::ArbiterCutOff => {
                let hosts = self.site.replicas.clone();
                (deaf(&hosts, Some(vec![Flow::Report, Flow::Replica, Flow::Peer])), hosts)
            }
            Fault::Loss(_) | Fault::Nothing | Fault::NeverReports | Fault::Liars { .. } => {
                (Vec::new(), Vec::new())
            }
        }
    }

    /// Some observers of one machine lie about it for the whole of the fault; gives the machine that will die.
    fn begin_lies(&mut self, lying: Lying, count: usize, beside: Beside, chance: &mut Chance) -> usize {
        let about = chance.index(self.site.nodes);
        let mut honest = self.observers_of(about);
        let drawn = 0..count.min(honest.len());
        let liars: Vec<usize> = drawn.map(|_| honest.swap_remove(chance.index(honest.len()))).collect();
        let (lives, quiet) = match lying {
            Lying::Accuses => (false, false),
            Lying::Vouches => (true, false),
            Lying::KeepsQuiet => (true, true),
        };
        let mut touched = liars.clone();
        touched.push(about);
        self.begin_odd(Odd::Lies { liars, about, lives, quiet, span: LASTS });
        let cuts = match beside {
            Beside::Nothing => Vec::new(),
            Beside::Loses(percent) => lossy(&[about], percent),
            Beside::BlackHoles(percent) => black_holes(self.site.nodes, percent, chance),
        };
        let now = self.now;
        cuts.into_iter().for_each(|cut| _ = self.network.cut(now, cut));
        if lying == Lying::Accuses { self.one_but(&touched, chance) } else { about }
    }

    /// Any machine but these; the first where there is no other.
    fn one_but(&self, these: &[usize], chance: &mut Chance) -> usize {
        let others: Vec<usize> = (0..self.site.nodes).filter(|m| !these.contains(m)).collect();
        others.get(chance.index(others.len())).copied().unwrap_or(0)
    }
}

// === impl Fault ===

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self::Liars { lying, count, beside } = self else { return write!(f, "{self:?}") };
        write!(f, "Liars {lying:?} {count}")?;
        if *beside == Beside::Nothing { Ok(()) } else { write!(f, " {beside:?}") }
    }
}

/// What crosses the border of some machines, with that loss.
fn lossy(hosts: &[usize], percent: u64) -> Vec<Cut> {
    isolation(hosts).into_iter().map(|cut| Cut { loss: percent, ..cut }).collect()
}

/// Each directed path between two hosts, with that chance.
fn black_holes(nodes: usize, percent: u64, chance: &mut Chance) -> Vec<Cut> {
    let mut cuts = Vec::new();
    for from in 0..nodes {
        let to: Vec<usize> = (0..nodes).filter(|to| *to != from && chance.percent(percent)).collect();
        cuts.extend(one_way(Ends::Hosts(vec![from]), Ends::Hosts(to), None, 100));
    }
    cuts
}
