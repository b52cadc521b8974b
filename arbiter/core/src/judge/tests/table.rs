//! The whole rule in one table: every size from 2 to 12, every topology, one or two dead, each kind of death, replicas'
//! hosts or not. The expected verdicts are written by hand as rules; the first one that fits a case holds.
//!
//! Nothing is applied: each victim is judged by what the leader sees, as if no brake existed.

use super::world::{World, name};
use crate::phase::{EvidenceClass, HeldReason};
use crate::view::Verdict;

/// How a host dies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// Power lost: its BMC says Off.
    E0,
    /// The cord is pulled: its BMC is silent too.
    E1,
    /// It hangs: its BMC says On.
    E2,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Topology {
    OneRack,
    TwoRacks,
    ThreeRacks,
    /// All but one, and one.
    LastAlone,
    /// All but two, and two.
    LastTwo,
    /// No labels.
    Hosts,
}

const TOPOLOGIES: [Topology; 6] = [
    Topology::OneRack,
    Topology::TwoRacks,
    Topology::ThreeRacks,
    Topology::LastAlone,
    Topology::LastTwo,
    Topology::Hosts,
];

#[derive(Debug)]
struct Case {
    n: usize,
    topology: Topology,
    dead: Vec<usize>,
}

impl Case {
    fn domain(&self, i: usize) -> String {
        match self.topology {
            Topology::OneRack => "rack/0".into(),
            Topology::TwoRacks => format!("rack/{}", i % 2),
            Topology::ThreeRacks => format!("rack/{}", i % 3),
            Topology::LastAlone => format!("rack/{}", usize::from(i + 1 == self.n)),
            Topology::LastTwo => format!("rack/{}", usize::from(i + 2 >= self.n)),
            Topology::Hosts => format!("host/n{i:02}"),
        }
    }

    fn replicas(&self) -> usize {
        if self.n < 3 { 1 } else { 3 }
    }

    /// Whether a majority of the replicas is left.
    fn has_quorum(&self) -> bool {
        let lost = self.dead.iter().filter(|i| **i < self.replicas()).count();
        (self.replicas() - lost) * 2 > self.replicas()
    }

    /// Whether the dead are a domain of two, both of them.
    fn fills_a_domain_of_two(&self) -> bool {
        let [a, b] = self.dead[..] else { return false };
        let same = (0..self.n).filter(|i| self.domain(*i) == self.domain(a)).count();
        self.domain(a) == self.domain(b) && same == 2
    }
}

/// A row of the table: whom it fits, and what follows from E0, E1 and E2. None: nobody leads, so nothing is judged.
type Row = (&'static str, fn(&Case) -> bool, Option<[Verdict; 3]>);

fn rows() -> [Row; 5] {
    use HeldReason::{BmcSilent, DomainDown, TooFewObservers, TwoNodes};
    let off = || Verdict::Dead(EvidenceClass::FoundOff);
    let dead = || Verdict::Dead(EvidenceClass::HostSilentBmcOn);
    let held = Verdict::Held;
    [
        ("no quorum is left", |c| !c.has_quorum(), None),
        ("two nodes", |c| c.n == 2, Some([held(TwoNodes), held(TwoNodes), held(TwoNodes)])),
        (
            "two of four: two observers of three are left",
            |c| c.n == 4 && c.dead.len() == 2,
            Some([off(), held(TooFewObservers), held(TooFewObservers)]),
        ),
        (
            "two that fill a domain of two",
            Case::fills_a_domain_of_two,
            Some([off(), held(DomainDown), held(DomainDown)]),
        ),
        ("any other", |_| true, Some([off(), held(BmcSilent), dead()])),
    ]
}

/// One death each of the leader's host, a follower's and a worker; two of each mixture, in one domain and in two.
fn deaths(n: usize) -> Vec<Vec<usize>> {
    let pairs: &[[usize; 2]] = match n {
        0..3 => &[],
        3 => &[[0, 1], [1, 2]],
        4 => &[[0, 1], [0, 3], [1, 3], [2, 3]],
        _ => &[[0, 1], [0, n - 1], [1, 4], [2, 3], [3, n - 1], [n - 2, n - 1]],
    };
    let mut deaths: Vec<Vec<usize>> = [0, 1, n - 1].map(|i| vec![i]).to_vec();
    deaths.extend(pairs.iter().filter(|[a, b]| a != b).map(|pair| pair.to_vec()));
    deaths.sort();
    deaths.dedup();
    deaths
}

/// Lets them die and runs until each is Dead or Held.
fn judged(mut world: World, case: &Case, kind: Kind, for_ms: u64) -> Vec<Option<Verdict>> {
    for i in &case.dead {
        match kind {
            Kind::E0 => world.power_off(*i),
            Kind::E1 => world.pull_cord(*i),
            Kind::E2 => world.hang(*i),
        }
    }
    let mut first: Vec<Option<Verdict>> = vec![None; case.dead.len()];
    world.run_until(for_ms, |world| {
        for (i, first) in case.dead.iter().zip(&mut first) {
            match world.verdict_on(*i) {
                Some(verdict @ (Verdict::Dead(_) | Verdict::Held(_))) if first.is_none() => {
                    *first = Some(verdict.clone());
                }
                Some(_) | None => {}
            }
        }
        first.iter().all(Option::is_some)
    });
    let wrong = world.last.judged.keys().find(|n| !case.dead.iter().any(|i| name(*i) == **n));
    assert_eq!(wrong, None, "somebody else is judged: {case:?} {kind:?}");
    first
}

fn check_size(n: usize) {
    let mut cells = 0;
    for topology in TOPOLOGIES {
        let of = |dead| Case { n, topology, dead };
        let layout = of(Vec::new());
        let mut calm = World::new(n, |i| layout.domain(i));
        calm.every = 250;
        calm.run(6000);
        for dead in deaths(n) {
            let case = of(dead);
            let (why, _, want) = rows().into_iter().find(|(_, fits, _)| fits(&case)).unwrap();
            for (column, kind) in [Kind::E0, Kind::E1, Kind::E2].into_iter().enumerate() {
                // Without a leader there is nothing to wait for.
                if want.is_none() && kind != Kind::E0 {
                    continue;
                }
                let for_ms = if want.is_none() { 10_000 } else { 40_000 };
                let got = judged(calm.clone(), &case, kind, for_ms);
                let want = want.as_ref().map(|columns| columns[column].clone());
                assert!(got.iter().all(|g| *g == want), "{case:?} {kind:?} ({why}): {got:?}, not {want:?}");
                cells += case.dead.len();
            }
        }
    }
    println!("{n} nodes: {cells} verdicts");
}

macro_rules! sizes {
    ($($name:ident: $n:literal)*) => {
        $(#[test]
        fn $name() {
            check_size($n);
        })*
    };
}

sizes! {
    two_nodes: 2
    three_nodes: 3
    four_nodes: 4
    five_nodes: 5
    six_nodes: 6
    seven_nodes: 7
    eight_nodes: 8
    nine_nodes: 9
    ten_nodes: 10
    eleven_nodes: 11
    twelve_nodes: 12
}
