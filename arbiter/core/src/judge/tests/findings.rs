//! What is noticed beside the verdicts, and that it ends by itself.

use coroner_shared::beacon::SelfDoubt;
use coroner_shared::health::HealthSummary;

use super::super::FindingKind;
use super::world::{World, index_of, name};

fn kinds(world: &World, i: usize) -> Vec<FindingKind> {
    world.last.findings.iter().filter(|f| f.node() == Some(&name(i))).map(|f| f.kind()).collect()
}

#[test]
fn a_kubelet_that_its_agent_calls_dead_is_found() {
    let mut world = World::racks(6, 3);
    world.run(12_000);
    world.hosts[5].health = HealthSummary::KUBELET_DEAD;
    world.run(2000);
    assert_eq!(kinds(&world, 5), [FindingKind::KubeletDead]);
    world.hosts[5].health = HealthSummary::GOOD;
    world.run(2000);
    assert_eq!(kinds(&world, 5), []);
}

#[test]
fn a_node_that_some_hear_is_partial_until_all_do() {
    let mut world = World::racks(6, 3);
    world.run(12_000);
    world.cut(|from, to| index_of(&from.name) == 5 && index_of(&to.name) >= 3);
    world.run(4000);
    assert_eq!(kinds(&world, 5), [FindingKind::Partial]);
    assert_eq!(world.verdict_on(5), Some(&crate::view::Verdict::Pending(crate::view::Pending::Heard)));
    world.heal();
    world.run(2000);
    assert_eq!(kinds(&world, 5), []);
}

#[test]
fn a_torn_network_holds_e2_until_it_is_mended() {
    let mut world = World::racks(12, 3);
    world.run(12_000);
    // n09, n10 and n11 are not heard by half of the others: three are partial, of eleven.
    world.cut(|from, to| index_of(&from.name) >= 9 && index_of(&to.name) % 2 == 1 && index_of(&to.name) < 9);
    world.run(4000);
    world.hang(8);
    world.run(22_000);
    let held = crate::view::Verdict::Held(crate::phase::HeldReason::NetworkPartial);
    assert_eq!(world.verdict_on(8), Some(&held));
    assert_eq!(world.view_of(8).unwrap().fleet.partial, 3);
    world.heal();
    world.run(4000);
    assert!(matches!(world.verdict_on(8), Some(crate::view::Verdict::Dead(_))));
}

#[test]
fn without_another_domain_the_topology_is_weak_and_without_a_path_probes_are_blind() {
    let mut world = World::new(5, |_| "rack/0".into());
    world.run(12_000);
    world.hang(4);
    world.run(9000);
    assert_eq!(kinds(&world, 4), [FindingKind::TopologyWeak]);
    let mut world = World::racks(5, 3);
    world.run(12_000);
    world.hang(4);
    world.run(3000);
    assert_eq!(kinds(&world, 4), []);
}

#[test]
fn where_no_observer_may_accuse_neither_topology_nor_paths_are_blamed() {
    let mut world = World::racks(6, 3);
    world.run(12_000);
    for host in &mut world.hosts {
        (host.mute, host.doubts) = (true, vec![SelfDoubt::NoArbiter]);
    }
    world.run(2000);
    world.hang(5);
    assert!(world.run_until(5000, |w| w.verdict_on(5).is_some()), "a suspect");
    for _ in 0..20 {
        assert_eq!(kinds(&world, 5), []);
        world.run(200);
    }
}

#[test]
fn findings_read_as_sentences() {
    let mut world = World::racks(6, 3);
    world.run(12_000);
    world.hosts[5].agent = false;
    world.run(25_000);
    let texts: Vec<String> = world.last.findings.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["n05: AgentDown: no beacons, but its kubelet renews its Lease; it is not fenced"]);
}
