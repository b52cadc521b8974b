//! Which rows `hack/sim --model` has: every size, spread, kind and role of a death, what tears a network or lies in it, and
//! what strikes many at once.

use coroner_shared::time::Span;
use coroner_tests::sim::model::{
    Also, Answers, Beside, Blow, Case, Death, Fault, Kind, Lying, Racks, Role, Struck, deaths, faults, many,
};

use super::{Play, Row};

/// Every size from the smallest to the smallest whose members have all the observers that there are, then larger ones.
const LONE: [usize; 13] = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 20, 50, 100];
/// Sites of two racks, one of which has one machine or two.
const APART: [usize; 11] = [3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 20];
/// Sites whose BMCs take seconds.
const SLOW: [usize; 3] = [5, 12, 20];
const TORN: [usize; 6] = [3, 6, 9, 12, 20, 100];
/// Small sites besides, for what is wrong with an observer or some paths.
const TORN_SMALL: [usize; 4] = [4, 5, 7, 8];
const LIED_TO: [usize; 6] = [3, 4, 6, 9, 20, 100];
/// With `--large` only: three minutes of processor time for one death, most of it until all is warm.
const HUGE: usize = 1000;
const FAULTS: [Fault; 14] = [
    Fault::DeafHost,
    Fault::MuteHost,
    Fault::BlackHoles(12),
    Fault::BlackHoles(25),
    Fault::BlackHoles(50),
    Fault::RackCut,
    Fault::RackHalf,
    Fault::RackMute,
    Fault::RackDeaf,
    Fault::DeafReplica,
    Fault::MuteReplica,
    Fault::ReplicaCutOff,
    Fault::ArbiterCutOff,
    Fault::Loss(20),
];
/// These are not played on sites of 1,000.
const FAULTS_OF_OBSERVERS: [Fault; 3] = [Fault::Nothing, Fault::NeverReports, Fault::TwoDeafHosts];
/// So many machines are as much work as all trials of a small site.
const LARGE: u64 = 20;
/// What is rare needs more trials: a fault is played so many times as often as a death.
const FAULTS_MORE: u64 = 4;
/// A rack of 20 at one decision a second, and a second for each proof.
const WATCHED: Span = Span::from_secs(100);

/// All rows, with fewer trials where the site is large.
pub(super) fn plays(trials: u64, large: bool) -> Vec<Play> {
    let of = move |nodes: usize| (trials * LARGE / (nodes as u64).max(LARGE)).max(1);
    let lone = LONE.into_iter().flat_map(every_death);
    let huge = every_death(HUGE).into_iter().filter(|death| large && death.also == Also::Nobody);
    let apart = APART.into_iter().flat_map(apart);
    let slow = SLOW.into_iter().flat_map(slow);
    let mut plays: Vec<Play> = Vec::new();
    for death in lone.chain(huge).chain(apart).chain(slow) {
        let name = death_name(&death);
        plays.push(Play::new(name, move || Row::Deaths(deaths(death, of(death.nodes)))));
    }
    for (fault, dies, nodes) in every_fault(large) {
        let name = format!("fault {fault} {dies:?} {nodes}");
        plays.push(Play::new(name, move || {
            Row::Faults(faults(nodes, fault, dies, if nodes < HUGE { of(nodes) * FAULTS_MORE } else { 1 }))
        }));
    }
    for (nodes, racks, struck) in
        [(10, 5, Struck::Rack), (25, 5, Struck::Rack), (100, 5, Struck::Rack), (100, 10, Struck::Random(20))]
    {
        for blow in [Blow::Power, Blow::Hang, Blow::Cord, Blow::CutOff] {
            let case = Case { nodes, racks, struck, blow };
            let name = format!("many {blow:?} {nodes}");
            plays.push(Play::new(name, move || Row::Many(many(case, of(nodes), WATCHED))));
        }
    }
    plays
}

fn death_name(death: &Death) -> String {
    let Death { nodes, racks, kind, role, also, bmcs } = death;
    let bmcs = match bmcs {
        Answers::AtOnce => "",
        Answers::In2s => " bmc 2s",
        Answers::In4s => " bmc 4s",
        Answers::In8s => " bmc 8s",
    };
    format!("death {kind:?} {role:?} {also:?} {nodes} {racks}{bmcs}")
}

/// Every kind, role and company of a death on a site of one size.
fn every_death(nodes: usize) -> Vec<Death> {
    // Two deaths are promised from five machines on.
    let company: &[Also] = if nodes < 5 { &[Also::Nobody] } else { &COMPANY };
    let racks: &[usize] = if nodes <= 12 { &[0, 1, 3] } else { &[3] };
    racks.iter().flat_map(|racks| deaths_of(nodes, Racks::Even(*racks), Answers::AtOnce, company)).collect()
}

/// The same where one machine or two are alone in a rack.
fn apart(nodes: usize) -> Vec<Death> {
    let company: &[Also] = if (5..=12).contains(&nodes) { &COMPANY } else { &[Also::Nobody] };
    let mut all = Vec::new();
    for few in [1, 2] {
        // On the smallest sites they host a replica either way.
        for replica in if nodes < 5 { vec![true] } else { vec![false, true] } {
            let racks = Racks::Apart { most: nodes - few, few, replica };
            all.extend(deaths_of(nodes, racks, Answers::AtOnce, company));
        }
    }
    all
}

/// One death where BMCs take seconds.
fn slow(nodes: usize) -> Vec<Death> {
    let of = |bmcs| deaths_of(nodes, Racks::Even(3), bmcs, &[Also::Nobody]);
    [Answers::In2s, Answers::In4s, Answers::In8s].into_iter().flat_map(of).collect()
}

const COMPANY: [Also; 3] = [Also::Nobody, Also::OtherDomain, Also::SameRack];

fn deaths_of(nodes: usize, racks: Racks, bmcs: Answers, company: &[Also]) -> Vec<Death> {
    let mut all = Vec::new();
    for kind in [Kind::Power, Kind::Hang, Kind::Cord] {
        for role in [Role::None, Role::Follower, Role::Leader] {
            all.extend(company.iter().map(|also| Death { nodes, racks, kind, role, also: *also, bmcs }));
        }
    }
    all.retain(|death| {
        let spare = death.nodes > 3 || death.role != Role::None;
        let racks = match death.also {
            Also::Nobody => true,
            Also::OtherDomain => death.racks != Racks::Even(1),
            Also::SameRack => death.racks != Racks::Even(0),
        };
        spare && racks
    });
    all
}

/// Every fault, how a machine dies in it, and the sizes it is played on.
fn every_fault(large: bool) -> Vec<(Fault, Kind, usize)> {
    let mut all = Vec::new();
    for fault in FAULTS {
        all.extend(TORN.into_iter().chain(large.then_some(HUGE)).map(|nodes| (fault, Kind::Power, nodes)));
    }
    let paths = [Fault::DeafHost, Fault::BlackHoles(12), Fault::BlackHoles(25), Fault::BlackHoles(50)];
    for fault in paths {
        all.extend(TORN_SMALL.map(|nodes| (fault, Kind::Power, nodes)));
    }
    for fault in FAULTS_OF_OBSERVERS {
        // Of three, two that are deaf leave one observer.
        let least = if fault == Fault::TwoDeafHosts { 4 } else { 3 };
        for nodes in TORN.into_iter().chain(TORN_SMALL).filter(|nodes| *nodes >= least) {
            all.extend([Kind::Power, Kind::Hang].map(|dies| (fault, dies, nodes)));
        }
    }
    for nodes in LIED_TO {
        for lie in every_lie(nodes) {
            all.push((lie, Kind::Power, nodes));
            if matches!(lie, Fault::Liars { beside: Beside::Nothing, .. }) {
                all.push((lie, Kind::Hang, nodes));
            }
        }
    }
    all
}

/// Liars from one to one fewer than the silent observers that a verdict needs; on larger sites only those two numbers.
fn every_lie(nodes: usize) -> Vec<Fault> {
    let observers = (nodes - 1).min(8);
    let most = (3 * observers).div_ceil(4) - 1;
    let mut all = Vec::new();
    for count in (1..=most).filter(|count| nodes <= 9 || *count == 1 || *count == most) {
        for lying in [Lying::Accuses, Lying::Vouches, Lying::KeepsQuiet] {
            let beside: &[Beside] = match lying {
                Lying::Accuses => &[Beside::Nothing, Beside::Loses(80), Beside::BlackHoles(12)],
                Lying::Vouches | Lying::KeepsQuiet => &[Beside::Nothing, Beside::BlackHoles(12)],
            };
            all.extend(beside.iter().map(|beside| Fault::Liars { lying, count, beside: *beside }));
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A name that two rows had would choose both; a size that is left out would be missed by nobody.
    #[test]
    fn every_small_size_and_spread_has_rows_and_each_row_a_name_of_its_own() {
        let plays = plays(1, true);
        let names: BTreeSet<&str> = plays.iter().map(|play| play.name.as_str()).collect();
        // The same blow strikes a rack and, at 100 machines, also any twenty.
        let twice = plays.iter().filter(|play| play.name.starts_with("many") && play.name.ends_with(" 100"));
        assert_eq!(names.len() + twice.count() / 2, plays.len());
        for nodes in 3..=12 {
            for kind in ["Power", "Hang", "Cord"] {
                let apart = format!("{}+1R", nodes - 1);
                for racks in ["0", "1", "3", &apart] {
                    let name = format!("death {kind} Leader Nobody {nodes} {racks}");
                    assert!(names.contains(name.as_str()), "no row {name}");
                }
            }
        }
        let lies: BTreeSet<&str> =
            names.iter().copied().filter(|name| name.contains("Liars Vouches")).collect();
        for (most, nodes) in [(1, 3), (2, 4), (3, 6), (5, 9), (5, 20), (5, 100)] {
            let row = |count: u64| format!("fault Liars Vouches {count} Hang {nodes}");
            assert!(lies.contains(row(most).as_str()), "no row {}", row(most));
            assert!(
                !lies.contains(row(most + 1).as_str()),
                "{nodes}: {most} liars are the most that are promised"
            );
        }
    }
}
