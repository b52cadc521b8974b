//! The decision rule by itself, on sites and faults that seeds draw rarely: who is condemned, when, and whether rightly.
//!
//! ```text
//!   Death (size, spread, kind, role)  --> decided when, by which class; held why         --> 0 without a decision or name
//!   Fault (of the network, or liars)  --> who is condemned, and whether anybody could hear it --> 0 wrongly; of who
//!                                         dies in it: decided or held, else why not yet, and when after it --> 0 never
//! ```
//!
//! Wrongly: the machine runs, and a way leads from it to somebody honest whose word reaches a replica that the leader
//! reaches.

mod deaths;
mod faults;
mod many;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use coroner_shared::time::Span;
use serde::{Serialize, Serializer};

use super::network::{End, Flow};
use super::set_up::WARM_UP;
use super::world::World;
use super::{Sim, Site};

pub use deaths::{Also, Death, Deaths, Kind, Role, deaths};
pub use faults::{Beside, Fault, Faults, Lying, faults};
pub use many::{Blow, Case, Many, Struck, many};

/// How closely a decision is timed.
const LOOK: Span = Span::from_ms(10);
/// Seeds that no swarm plays.
const SEEDS: u64 = 1 << 40;

/// How the machines of a site are spread over racks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Racks {
    /// So many, one machine after the other; 0: no labels.
    Even(usize),
    /// Two: all but so few in the first, and those alone in the second.
    Apart {
        /// In the first.
        most: usize,
        /// In the second.
        few: usize,
        /// Whether a replica's host is the first of those few, and not the last to be taken for them.
        replica: bool,
    },
}

/// How long a BMC takes for each answer: log-in, identity and power are one each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub enum Answers {
    /// 20 to 80 ms.
    AtOnce,
    /// 2 s.
    In2s,
    /// 4 s.
    In4s,
    /// 8 s, which is longer than the driver waits for an answer to begin.
    In8s,
}

fn count(held: &mut BTreeMap<String, u64>, nothing: &mut u64, why: &str) {
    if why.is_empty() {
        *nothing += 1;
    } else {
        *held.entry(why.to_owned()).or_default() += 1;
    }
}

/// A site at work, at some moment between two beacons.
fn warm(nodes: usize, racks: Racks, bmcs: Answers, trial: u64) -> Sim {
    let mut site = Site::plain(SEEDS + trial, nodes, racks.even());
    if let Racks::Apart { .. } = racks {
        site.racks = vec![Some(0); nodes];
        racks.apart(nodes).into_iter().for_each(|machine| site.racks[machine] = Some(1));
    }
    for bmc in &mut site.bmcs {
        bmc.change = match bmcs {
            Answers::AtOnce => continue,
            Answers::In2s => |traits| traits.takes = (Span::from_secs(2), Span::from_secs(2)),
            Answers::In4s => |traits| traits.takes = (Span::from_secs(4), Span::from_secs(4)),
            Answers::In8s => |traits| traits.takes = (Span::from_secs(8), Span::from_secs(8)),
        };
    }
    let mut sim = Sim::quiet(site);
    sim.warm_up();
    if bmcs != Answers::AtOnce {
        // Steadiness is a question of readings, and those take longer.
        sim.run_for(WARM_UP);
    }
    sim.run_for(Span::from_ms(37 * trial % 1000));
    sim
}

// === impl Racks ===

impl Racks {
    fn even(self) -> usize {
        match self {
            Self::Even(racks) => racks,
            Self::Apart { .. } => 2,
        }
    }

    /// Who is alone in the second rack: a machine without a replica and the last one first, or a replica's host first.
    fn apart(self, nodes: usize) -> Vec<usize> {
        let Self::Apart { few, replica, .. } = self else { return Vec::new() };
        let order = if replica { [2, 3, 1, 0] } else { [3, nodes - 1, 2, 1] };
        let mut apart: Vec<usize> = Vec::new();
        for machine in order {
            if machine < nodes && apart.len() < few && !apart.contains(&machine) {
                apart.push(machine);
            }
        }
        apart
    }
}

impl fmt::Display for Racks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Even(racks) => write!(f, "{racks}"),
            Self::Apart { most, few, replica } => {
                write!(f, "{most}+{few}{}", if *replica { "R" } else { "" })
            }
        }
    }
}

impl Serialize for Racks {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

// === impl Sim ===

impl Sim {
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

/// Whether a way leads from that machine to somebody honest who reaches a replica that the leader reaches.
fn can_be_heard(world: &World, machine: usize) -> bool {
    let way = |from: usize, to: usize, flow| world.network.loss(End::Host(from), End::Host(to), flow) < 100;
    let Some(leader) = world.leader().map(|index| world.site.replicas[index]) else { return false };
    let both = |a: usize, b: usize| way(a, b, Flow::Replica) && way(b, a, Flow::Replica);
    let reached =
        |host: &&usize| world.machines[**host].is_up() && (**host == leader || both(**host, leader));
    let replicas: Vec<usize> = world.site.replicas.iter().filter(reached).copied().collect();
    let direct = replicas.iter().any(|host| *host != machine && way(machine, *host, Flow::Report));
    direct
        || (0..world.machines.len())
            .filter(|via| *via != machine && world.machines[*via].is_up())
            .filter(|via| world.machines[*via].odd.lie.is_none())
            .any(|via| {
                way(machine, via, Flow::Peer)
                    && replicas.iter().any(|host| via == *host || way(via, *host, Flow::Report))
            })
}
