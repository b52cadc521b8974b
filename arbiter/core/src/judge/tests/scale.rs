//! How long a step takes in a large cluster. Prints; asserts what is decided and not how fast.

use super::world::World;
use crate::phase::{EvidenceClass, HeldReason};
use crate::view::Verdict;

/// 1,000 of 5,000 hosts in 200 racks vanish at once. Run with `--release -- --ignored --nocapture`.
#[test]
#[ignore = "takes minutes without optimisation"]
fn a_thousand_vanish_at_once() {
    for off in [false, true] {
        let mut world = World::racks(5000, 200);
        world.run(11_000);
        println!("calm: longest step {} us, {} judged", world.longest_step_us, world.last.judged.len());
        world.longest_step_us = 0;
        for i in (0..5000).filter(|i| i % 5 == 4) {
            if off { world.power_off(i) } else { world.hang(i) }
        }
        world.run(12_000);
        let count = |of: fn(&Verdict) -> bool| world.last.judged.values().filter(|(_, v)| of(v)).count();
        let down = count(|v| matches!(v, Verdict::Held(HeldReason::DomainDown) | Verdict::Pending(_)));
        let dead = count(|v| matches!(v, Verdict::Dead(EvidenceClass::HostSilentBmcOn)));
        let found_off = count(|v| matches!(v, Verdict::Dead(EvidenceClass::FoundOff)));
        println!(
            "1,000 vanish: longest step {} us; of the last {} judged: {found_off} found off, {dead} dead, {down} held or \
             pending; storm of {} in {}",
            world.longest_step_us,
            world.last.judged.len(),
            world.last.judged.values().next().map_or(0, |(v, _)| v.fleet.storm_members),
            world.last.judged.values().next().map_or(0, |(v, _)| v.fleet.storm_domains),
        );
    }
}
