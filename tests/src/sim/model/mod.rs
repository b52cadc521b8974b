//! The decision rule by itself, on sites and faults that seeds draw rarely: who is condemned, when, and whether rightly.
//!
//! ```text
//!   Death (size, kind, role) x trials --> decided when, by which class; held why         --> 0 without a decision or name
//!   Fault (of the network) x trials   --> who is condemned, and whether anybody could hear it --> 0 wrongly; of who
//!                                         dies in it: decided or held, else why not yet, and when after it --> 0 never
//! ```
//!
//! Wrongly: the machine runs, and a way leads from it to somebody whose word reaches a replica that the leader reaches.

mod many;

use std::collections::{BTreeMap, BTreeSet};

use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};
use serde::Serialize;

use super::chance::{Chance, Purpose};
use super::network::{Cut, End, Ends, Flow};
use super::trouble::{isolation, one_way};
use super::world::World;
use super::{Sim, Site};

pub use many::{Blow, Case, Many, Struck, many};

/// How closely a decision is timed.
const LOOK: Span = Span::from_ms(10);
/// A death must be decided or held within this: the longest deadline, a renewal, an election.
const DECIDES: Span = Span::from_secs(40);
/// Once a network is whole again, a death must be decided or held within this: an election, a leader that begins cold, the
/// longest deadline.
const DECIDES_AFTER: Span = Span::from_secs(60);
/// A fault lasts so long.
const LASTS: Span = Span::from_secs(60);
/// Into a fault, one machine loses power.
const DIES: Span = Span::from_secs(20);
/// Seeds that no swarm plays.
const SEEDS: u64 = 1 << 40;

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
    /// Racks; 0: no labels.
    pub racks: usize,
    /// How it died.
    pub kind: Kind,
    /// What was on it.
    pub role: Role,
    /// And what else.
    pub also: Also,
}

/// Something wrong with the network.
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
    /// Neither within 40 s.
    pub nothing: u64,
}

/// Episodes of one fault on sites of one size.
#[derive(Clone, Debug, Serialize)]
pub struct Faults {
    /// Machines of the site.
    pub nodes: usize,
    /// What was wrong.
    pub fault: Fault,
    /// How often.
    pub trials: u64,
    /// Machines condemned that somebody could hear.
    pub wrong: u64,
    /// Machines condemned that nobody could hear, and that were on.
    pub unheard: u64,
    /// Of the machines that lost power in the fault: decided by its end.
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

/// Plays one death so often.
#[must_use]
pub fn deaths(death: Death, trials: u64) -> Deaths {
    let mut row = Deaths { death, trials: 0, decided: Vec::new(), held: BTreeMap::new(), nothing: 0 };
    for trial in 0..trials {
        let mut sim = warm(death.nodes, death.racks, trial);
        let Some(victims) = sim.victims(death, trial) else { continue };
        row.trials += 1;
        for name in victims.iter().map(|victim| format!("n{victim}")) {
            match death.kind {
                Kind::Power => sim.cut_power(&name),
                Kind::Hang => sim.freeze(&name),
                Kind::Cord => sim.pull_cord(&name),
            }
        }
        let decided = sim.decides(&victims, DECIDES);
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

/// Plays one fault so often.
#[must_use]
pub fn faults(nodes: usize, fault: Fault, trials: u64) -> Faults {
    let mut row = Faults {
        nodes,
        fault,
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
    let mut sim = warm(row.nodes, 3, trial);
    let victim = sim.begin_fault(row.fault, trial);
    let name = format!("n{victim}");
    let mut known = BTreeSet::new();
    sim.watch(DIES, row, &mut known, |_| false);
    sim.cut_power(&name);
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

fn count(held: &mut BTreeMap<String, u64>, nothing: &mut u64, why: &str) {
    if why.is_empty() {
        *nothing += 1;
    } else {
        *held.entry(why.to_owned()).or_default() += 1;
    }
}

/// A site at work, at some moment between two beacons.
fn warm(nodes: usize, racks: usize, trial: u64) -> Sim {
    let mut sim = Sim::quiet(Site::plain(SEEDS + trial, nodes, racks));
    sim.warm_up();
    sim.run_for(Span::from_ms(37 * trial % 1000));
    sim
}

// === impl Sim ===

impl Sim {
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
        let leader = world.leader().and_then(|index| world.replicas[index].process.as_ref());
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

    fn is_whole_again(&mut self) {
        let mut world = self.shared.world.borrow_mut();
        let now = world.now;
        world.network.heal_all(now);
        world.network.weather.loss = 0;
    }

    /// Begins it; gives a machine outside of it, which will lose power.
    fn begin_fault(&mut self, fault: Fault, trial: u64) -> usize {
        let mut world = self.shared.world.borrow_mut();
        let mut chance = Chance::new(SEEDS + trial, Purpose::Faults);
        let nodes = world.site.nodes;
        let host = chance.index(nodes);
        let replica = world.site.replicas[chance.index(3)];
        let rack: Vec<usize> = (0..nodes).filter(|m| world.site.racks[*m] == Some(0)).collect();
        let only = |hosts: &[usize]| (Ends::Hosts(hosts.to_vec()), Ends::NotHosts(hosts.to_vec()));
        let (cuts, touched): (Vec<Cut>, Vec<usize>) = match fault {
            Fault::DeafHost => (one_way(only(&[host]).1, only(&[host]).0, None, 100), vec![host]),
            Fault::MuteHost => (one_way(only(&[host]).0, only(&[host]).1, None, 100), vec![host]),
            Fault::BlackHoles(percent) => (black_holes(nodes, percent, &mut chance), Vec::new()),
            Fault::RackCut => (isolation(&rack), rack),
            Fault::RackHalf => {
                let halves = isolation(&rack).into_iter().map(|cut| Cut { loss: 50, ..cut });
                (halves.collect(), rack)
            }
            Fault::RackMute => (one_way(only(&rack).0, only(&rack).1, None, 100), rack),
            Fault::RackDeaf => (one_way(only(&rack).1, only(&rack).0, None, 100), rack),
            Fault::MuteReplica => (one_way(only(&[replica]).0, only(&[replica]).1, None, 100), vec![replica]),
            Fault::DeafReplica => {
                let flows = Some(vec![Flow::Report, Flow::Peer]);
                (one_way(only(&[replica]).1, only(&[replica]).0, flows, 100), vec![replica])
            }
            Fault::ReplicaCutOff => (isolation(&[replica]), vec![replica]),
            Fault::ArbiterCutOff => {
                let hosts = world.site.replicas.clone();
                let flows = Some(vec![Flow::Report, Flow::Replica, Flow::Peer]);
                (one_way(only(&hosts).1, only(&hosts).0, flows, 100), hosts)
            }
            Fault::Loss(percent) => {
                world.network.changed = world.now;
                world.network.weather.loss = percent;
                (Vec::new(), Vec::new())
            }
        };
        let now = world.now;
        for cut in cuts {
            world.network.cut(now, cut);
        }
        let outside: Vec<usize> = (0..nodes).filter(|m| !touched.contains(m)).collect();
        outside.get(chance.index(outside.len())).copied().unwrap_or(0)
    }

    /// Machines that were condemned since: wrongly, and on but unheard.
    fn newly_condemned(&self, known: &mut BTreeSet<usize>) -> (u64, u64) {
        let world = self.shared.world.borrow();
        let (mut wrong, mut unheard) = (0, 0);
        for (name, node) in &world.truth.state.nodes {
            let Some(machine) = world.machine_of(name) else { continue };
            if matches!(node.phase.name(), "Alive" | "Held") || !known.insert(machine) {
                continue;
            }
            if world.machines[machine].is_up() {
                if can_be_heard(&world, machine) { wrong += 1 } else { unheard += 1 }
            }
        }
        (wrong, unheard)
    }
}

/// Whether a way leads from that machine to somebody who reaches a replica that the leader reaches.
fn can_be_heard(world: &World, machine: usize) -> bool {
    let way = |from: usize, to: usize, flow| world.network.loss(End::Host(from), End::Host(to), flow) < 100;
    let Some(leader) = world.leader().map(|index| world.site.replicas[index]) else { return false };
    let both = |a: usize, b: usize| way(a, b, Flow::Replica) && way(b, a, Flow::Replica);
    let reached =
        |host: &&usize| world.machines[**host].is_up() && (**host == leader || both(**host, leader));
    let replicas: Vec<usize> = world.site.replicas.iter().filter(reached).copied().collect();
    let direct = replicas.iter().any(|host| *host != machine && way(machine, *host, Flow::Report));
    direct
        || (0..world.machines.len()).filter(|via| *via != machine && world.machines[*via].is_up()).any(
            |via| {
                way(machine, via, Flow::Peer)
                    && replicas.iter().any(|host| via == *host || way(via, *host, Flow::Report))
            },
        )
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
