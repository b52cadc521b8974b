//! Stories: one site, one thing that went wrong somewhere, and what must come of it.

use coroner_shared::time::Span;
use coroner_tests::sim::{Sim, Site};

/// The main job: a machine loses power, is found off, proven, released, and comes back.
#[test]
fn a_power_cut_is_found_proven_and_released_and_the_node_returns() {
    let mut sim = Sim::new(Site::plain(1, 5, 2));
    sim.warm_up();
    assert!(sim.violations().is_empty(), "{}", sim.story());
    sim.cut_power("n4");
    assert!(sim.run_until(Span::from_secs(30), |sim| sim.phase("n4") == "Released"), "{}", sim.story());
    sim.power_on("n4");
    assert!(sim.run_until(Span::from_mins(10), |sim| sim.phase("n4") == "Alive"), "{}", sim.story());
    sim.finish();
    assert!(sim.violations().is_empty(), "{}", sim.story());
}

#[test]
fn two_runs_of_a_seed_are_equal() {
    let run = || {
        let mut sim = Sim::quiet(Site::plain(2, 5, 2));
        sim.warm_up();
        sim.freeze("n3");
        sim.run_for(Span::from_secs(60));
        sim.hash()
    };
    assert_eq!(run(), run());
}
