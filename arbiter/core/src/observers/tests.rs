//! Degrees, churn and spread of the graph, over any history of joins, leaves, releases and returns.

mod anew;

use std::collections::BTreeSet;

use coroner_shared::keys::PublicKey;
use coroner_shared::machine_id::MachineId;
use coroner_shared::time::Span;
use proptest::prelude::*;

use super::*;

/// A graph that is changed one step at a time, as `reseat` does.
#[derive(Default)]
struct World {
    graph: Observers,
    members: BTreeMap<NodeName, Seat>,
    membership: u64,
    born: u16,
}

type Edge = (NodeName, NodeName);

impl World {
    /// Nodes `0..n` in the domains that `domain` names, joined one after the other.
    fn of(n: u16, domain: impl Fn(u16) -> u16) -> Self {
        let mut world = Self::default();
        for i in 0..n {
            world.join(domain(i));
        }
        world
    }

    fn join(&mut self, domain: u16) -> NodeName {
        let i = self.born;
        self.born += 1;
        let name: NodeName = format!("n{i:04}").parse().unwrap();
        let mut bytes = [7_u8; 16];
        bytes[14..].copy_from_slice(&i.to_be_bytes());
        let peer = Peer {
            name: name.clone(),
            node: coroner_shared::id::NodeUid::new(format!("uid-{i}")).unwrap(),
            machine: MachineId::from_bytes(bytes).unwrap(),
            address: std::net::Ipv4Addr::from(0x0a00_0000 + u32::from(i)).into(),
            key: PublicKey::from_bytes([1; 32]),
        };
        let seat = Seat {
            peer,
            domain: format!("rack/{domain:03}"),
            in_service: true,
            timings: Timings::BALANCED,
            since: 0,
            version: 0,
            observers: Vec::new(),
            subjects: Vec::new(),
        };
        self.members.insert(name.clone(), seat);
        self.step();
        name
    }

    fn leave(&mut self, name: &NodeName) {
        self.members.remove(name);
        self.step();
    }

    fn serve(&mut self, name: &NodeName, in_service: bool) {
        self.members.get_mut(name).unwrap().in_service = in_service;
        self.step();
    }

    fn step(&mut self) -> bool {
        self.membership += 1;
        let gone = self.graph.seats.keys().filter(|n| !self.members.contains_key(*n));
        let there = self.members.iter().map(|(name, seat)| (name.clone(), Some(seat.clone())));
        let now = gone.map(|n| (n.clone(), None)).chain(there).collect();
        self.graph.take(now, Vec::new(), self.membership)
    }

    /// Makes the step, and deals everybody anew from what was before: both must give the same.
    fn step_as_anew(&mut self) {
        let before = self.graph.seats.clone();
        self.step();
        for (name, (observers, subjects)) in anew::deal(&before, &self.members) {
            let seat = self.graph.seat(&name).unwrap();
            assert_eq!((&seat.observers, &seat.subjects), (&observers, &subjects), "{name}");
        }
        for (name, seat) in &self.graph.seats {
            let old = before.get(name);
            let differs = old.is_none_or(|old| anew::slice_differs(seat, old, &self.graph.seats, &before));
            assert_eq!(seat.version == self.membership, differs, "{name}");
            let same = old.is_some_and(|old| old.is_same_member(seat));
            assert_eq!(seat.since, if same { old.unwrap().since } else { self.membership }, "{name}");
        }
    }

    fn edges(&self) -> BTreeSet<Edge> {
        let of = |(subject, seat): (&NodeName, &Seat)| {
            seat.observers.iter().map(|o| (o.clone(), subject.clone())).collect::<Vec<_>>()
        };
        self.graph.seats().flat_map(of).collect()
    }

    fn serving(&self) -> usize {
        self.members.values().filter(|s| s.in_service).count()
    }

    fn domain(&self, name: &NodeName) -> &str {
        &self.members[name].domain
    }

    #[track_caller]
    fn check_degrees(&self) {
        let k = K_MAX.min(self.serving().saturating_sub(1));
        for (name, seat) in self.graph.seats() {
            let all: BTreeSet<_> = seat.observers.iter().collect();
            assert_eq!(all.len(), seat.observers.len(), "{name} is observed twice by somebody");
            assert!(!all.contains(name), "{name} observes itself");
            assert!(all.iter().all(|o| self.members[*o].in_service), "{name} is observed by a released node");
            if seat.in_service {
                assert_eq!(seat.observers.len(), k, "observers of {name} of {}", self.members.len());
            }
            assert!(seat.observers.len() <= K_MAX);
            assert!(seat.subjects.len() <= k + 1, "{name} observes {}", seat.subjects.len());
        }
        let there: BTreeSet<Edge> = self.edges();
        let back: BTreeSet<Edge> = self
            .graph
            .seats()
            .flat_map(|(o, seat)| seat.subjects.iter().map(|s| (o.clone(), s.clone())).collect::<Vec<_>>())
            .collect();
        assert_eq!(there, back, "both directions say the same");
    }

    /// Observers of a node in other domains, and of how many domains they are.
    fn others(&self, name: &NodeName) -> (usize, usize) {
        let own = self.domain(name);
        let others: Vec<&str> =
            self.graph.of(name).iter().map(|o| self.domain(o)).filter(|d| *d != own).collect();
        (others.len(), others.iter().collect::<BTreeSet<_>>().len())
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Join(u16),
    Leave(usize),
    Release(usize),
    Return(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        5 => (0..6_u16).prop_map(Step::Join),
        2 => (0..1000_usize).prop_map(Step::Leave),
        2 => (0..1000_usize).prop_map(Step::Release),
        2 => (0..1000_usize).prop_map(Step::Return),
    ];
    prop::collection::vec(step, 1..70)
}

fn pick(world: &World, nth: usize, in_service: bool) -> Option<NodeName> {
    let all: Vec<_> = world.members.iter().filter(|(_, s)| s.in_service == in_service).collect();
    (!all.is_empty()).then(|| all[nth % all.len()].0.clone())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn degrees_hold_and_no_step_moves_more_than_16_edges(steps in steps()) {
        let mut world = World::default();
        for step in steps {
            let before = world.edges();
            match step {
                Step::Join(domain) => { world.join(domain); }
                Step::Leave(n) => if let Some(name) = pick(&world, n, true) { world.leave(&name); },
                Step::Release(n) => if let Some(name) = pick(&world, n, true) { world.serve(&name, false); },
                Step::Return(n) => if let Some(name) = pick(&world, n, false) { world.serve(&name, true); },
            }
            world.check_degrees();
            let after = world.edges();
            // What goes with somebody who leaves or is released is gone anyway; what counts is what the others lose.
            let stays = |(o, s): &&Edge| [o, s].iter().all(|n| world.members.get(n).is_some_and(|m| m.in_service));
            let made = after.difference(&before).count();
            let lost = before.difference(&after).filter(stays).count();
            prop_assert!(made <= 16, "{step:?} makes {made} edges");
            prop_assert!(lost <= 16, "{step:?} takes {lost} edges from those who stay");
        }
    }

    #[test]
    fn equal_histories_give_equal_graphs(steps in steps()) {
        let run = || {
            let mut world = World::default();
            for step in &steps {
                match *step {
                    Step::Join(domain) => { world.join(domain); }
                    Step::Leave(n) => if let Some(name) = pick(&world, n, true) { world.leave(&name); },
                    Step::Release(n) => if let Some(name) = pick(&world, n, true) { world.serve(&name, false); },
                    Step::Return(n) => if let Some(name) = pick(&world, n, false) { world.serve(&name, true); },
                }
            }
            serde_json::to_string(&world.graph).unwrap()
        };
        prop_assert_eq!(run(), run());
    }
}

/// Everything that may happen to members, several of them in one step.
#[derive(Clone, Copy, Debug)]
enum Change {
    Join(u16, bool),
    Leave(usize),
    Serve(usize),
    Move(usize, u16),
    Key(usize, u8),
    Address(usize, u32),
    Time(usize, u64),
}

fn changes() -> impl Strategy<Value = Vec<Vec<Change>>> {
    let nth = || 0..1000_usize;
    let change = prop_oneof![
        6 => (0..7_u16, prop::bool::weighted(0.9)).prop_map(|(domain, serves)| Change::Join(domain, serves)),
        2 => nth().prop_map(Change::Leave),
        4 => nth().prop_map(Change::Serve),
        1 => (nth(), 0..9_u16).prop_map(|(n, domain)| Change::Move(n, domain)),
        1 => (nth(), any::<u8>()).prop_map(|(n, key)| Change::Key(n, key)),
        1 => (nth(), any::<u32>()).prop_map(|(n, address)| Change::Address(n, address)),
        1 => (nth(), 0..9000_u64).prop_map(|(n, time)| Change::Time(n, time)),
    ];
    prop::collection::vec(prop::collection::vec(change, 1..4), 1..40)
}

impl World {
    fn befall(&mut self, change: Change) {
        if let Change::Join(domain, serves) = change {
            // Known, but not dealt yet.
            let mut other = Self { born: self.born, ..Self::default() };
            let name = other.join(domain);
            self.born = other.born;
            let seat = Seat { in_service: serves, ..other.members[&name].clone() };
            self.members.insert(name, seat);
            return;
        }
        let nth = change.nth() % self.members.len().max(1);
        let Some((name, seat)) = self.members.iter_mut().nth(nth) else { return };
        match change {
            Change::Join(..) => {}
            Change::Leave(_) => {
                let name = name.clone();
                self.members.remove(&name);
            }
            Change::Serve(_) => seat.in_service = !seat.in_service,
            Change::Move(_, domain) => seat.domain = format!("rack/{domain:03}"),
            Change::Key(_, key) => seat.peer.key = PublicKey::from_bytes([key; 32]),
            Change::Address(_, address) => seat.peer.address = std::net::Ipv4Addr::from(address).into(),
            Change::Time(_, ms) => seat.timings.suspect = Span::from_ms(ms),
        }
    }
}

impl Change {
    fn nth(self) -> usize {
        match self {
            Self::Join(..) => 0,
            Self::Leave(n)
            | Self::Serve(n)
            | Self::Move(n, _)
            | Self::Key(n, _)
            | Self::Address(n, _)
            | Self::Time(n, _) => n,
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(192))]

    #[test]
    fn what_is_changed_in_place_is_what_would_be_dealt_anew(
        steps in changes(),
        forgets in prop::collection::vec(prop::bool::weighted(0.1), 40),
    ) {
        let mut world = World::default();
        for (step, forgets) in steps.iter().zip(forgets) {
            step.iter().for_each(|change| world.befall(*change));
            if forgets {
                // A snapshot was read: the table is made anew from the seats.
                world.graph = serde_json::from_str(&serde_json::to_string(&world.graph).unwrap()).unwrap();
            }
            world.step_as_anew();
        }
    }
}

#[test]
fn a_large_graph_is_changed_in_place_as_it_would_be_dealt_anew() {
    let mut world = World::of(300, |i| i / 20);
    for (n, change) in [
        Change::Join(3, true),
        Change::Join(40, true),
        Change::Serve(17),
        Change::Leave(150),
        Change::Serve(17),
        Change::Move(80, 2),
        Change::Join(3, true),
        Change::Leave(0),
        Change::Leave(298),
    ]
    .into_iter()
    .enumerate()
    {
        world.befall(change);
        world.step_as_anew();
        assert!(world.members.len() > 290, "{n}");
    }
}

/// 5,000 registrations, one after the other: the harness says how long they take. Run with `--release -- --ignored`.
#[test]
#[ignore = "measures; its assertions are those of smaller graphs"]
fn registrations_of_a_large_cluster() {
    let mut all = World::default();
    (0..5000).for_each(|i| all.befall(Change::Join(i % 200, true)));
    for (membership, (name, seat)) in (1..).zip(&all.members) {
        assert!(all.graph.take([(name.clone(), Some(seat.clone()))].into(), Vec::new(), membership));
    }
    all.check_degrees();
}

#[test]
fn up_to_nine_nodes_everybody_hears_everybody() {
    for n in 1..=9 {
        let world = World::of(n, |i| i % 2);
        assert_eq!(world.edges().len(), usize::from(n) * usize::from(n - 1), "{n}");
    }
    assert_eq!(
        World::of(10, |i| i % 2).edges().len(),
        80,
        "with ten nodes somebody is not heard by somebody"
    );
}

/// Least and most observers in other domains, least domains of those, over all nodes.
#[track_caller]
fn check_spread(world: &World, others: std::ops::RangeInclusive<usize>, domains: usize) {
    world.check_degrees();
    for name in world.members.keys() {
        let (got, from) = world.others(name);
        assert!(others.contains(&got), "{name}: {got} others, not {others:?}");
        assert!(from >= domains, "{name}: others from {from} domains, not {domains}");
    }
}

#[test]
fn six_observers_sit_in_other_domains_and_two_in_the_own() {
    // Racks of five that joined in turn, and rack after rack.
    check_spread(&World::of(50, |i| i % 10), 6..=7, 5);
    check_spread(&World::of(50, |i| i / 5), 6..=8, 3);
    check_spread(&World::of(200, |i| i / 5), 6..=8, 3);
    // Two and three racks.
    check_spread(&World::of(40, |i| i % 2), 6..=6, 1);
    check_spread(&World::of(60, |i| i % 3), 6..=6, 2);
    check_spread(&World::of(60, |i| i / 20), 6..=6, 2);
}

#[test]
fn what_other_domains_cannot_supply_comes_from_the_own() {
    check_spread(&World::of(20, |_| 0), 0..=0, 0);
    // Hosts as domains: nobody shares one.
    check_spread(&World::of(20, |i| i), 8..=8, 8);
    // One node in a rack of its own hears at most nine.
    let lone = World::of(20, |i| u16::from(i == 19));
    lone.check_degrees();
    let heard: usize = lone.members.keys().filter(|n| lone.others(n).0 == 1).count();
    assert_eq!(heard, 8, "it takes its share of subjects, no more");
}

#[test]
fn a_row_of_racks_that_dies_together_leaves_everybody_observers() {
    // 40 racks of 5, dealt rack after rack or in turn; any 8 neighbouring racks (a fifth) die.
    for world in [World::of(200, |i| i / 5), World::of(200, |i| i % 40)] {
        let mut least = usize::MAX;
        for first in 0..=32_u16 {
            let row: BTreeSet<String> = (first..first + 8).map(|d| format!("rack/{d:03}")).collect();
            for name in world.members.keys() {
                let alive = world.graph.of(name).iter().filter(|o| !row.contains(world.domain(o))).count();
                least = least.min(alive);
            }
        }
        assert!(least >= 2, "only {least} live observers are left to somebody");
    }
}

#[test]
fn a_released_observer_is_replaced_and_a_held_one_is_not() {
    let mut world = World::of(12, |i| i % 3);
    let name: NodeName = "n0004".parse().unwrap();
    let heard = world.graph.subjects_of(&name).to_vec();
    world.serve(&name, false);
    world.check_degrees();
    assert_eq!(world.graph.subjects_of(&name), []);
    assert!(heard.iter().all(|s| world.graph.of(s).len() == 8 && !world.graph.of(s).contains(&name)));
    assert!(!world.graph.of(&name).is_empty(), "but it is still listened to");
    world.serve(&name, true);
    world.check_degrees();
    assert!(world.graph.subjects_of(&name).len() >= 7);
}

#[test]
fn a_slice_rises_only_when_it_reads_differently() {
    let mut world = World::of(60, |i| i % 6);
    let before: BTreeMap<NodeName, Seat> = world.graph.seats().map(|(n, s)| (n.clone(), s.clone())).collect();
    assert!(!world.step(), "nothing changed");
    let newcomer = world.join(2);
    let mut touched = 0;
    for (name, old) in &before {
        let new = world.graph.seat(name).unwrap();
        let differs = new.observers != old.observers || new.subjects != old.subjects;
        assert_eq!(new.version != old.version, differs, "{name}");
        touched += usize::from(differs);
    }
    assert!((8..=24).contains(&touched), "{touched} of 60 agents are told");
    assert_eq!(world.graph.seat(&newcomer).unwrap().since, world.membership);
    // A new address of one member is told to those who hear it and whom it hears.
    let moved: NodeName = "n0000".parse().unwrap();
    world.members.get_mut(&moved).unwrap().peer.address = "10.9.9.9".parse().unwrap();
    world.step();
    for (name, seat) in world.graph.seats() {
        let near = *name == moved || seat.observers.contains(&moved) || seat.subjects.contains(&moved);
        assert_eq!(seat.version == world.membership, near, "{name}");
    }
    assert_eq!(world.graph.seat(&moved).unwrap().since, 1, "an address does not make a new member");
}

#[test]
fn a_new_key_or_machine_makes_a_new_member() {
    let mut world = World::of(3, |i| i);
    let name: NodeName = "n0001".parse().unwrap();
    world.members.get_mut(&name).unwrap().peer.key = PublicKey::from_bytes([9; 32]);
    world.step();
    assert_eq!(world.graph.seat(&name).unwrap().since, 4);
}

#[test]
fn a_move_to_another_domain_is_a_leave_and_a_join() {
    let mut world = World::of(40, |i| i % 4);
    let name: NodeName = "n0005".parse().unwrap();
    world.members.get_mut(&name).unwrap().domain = "rack/009".into();
    world.step();
    world.check_degrees();
    assert_eq!(world.others(&name), (8, 4), "nobody is left in its own domain");
    assert!(world.graph.subjects_of(&name).len() >= 7);
}
