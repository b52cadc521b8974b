//! Faults of our own cores that the simulator found, each pinned by what showed it. The list is in `tests/README.md`.

use coroner_shared::time::Span;
use coroner_tests::sim::{Sim, Site};

/// Seed 10 of the first swarm: a policy with one value out of range, which `apply` refuses, was told to the log again as
/// soon as the refusal was committed: 180 entries a second, for ever.
#[test]
fn a_policy_that_the_log_refuses_does_not_fill_it() {
    let mut site = Site::plain(10, 3, 0);
    for policy in site.policies.values_mut() {
        policy.brakes.deaths_per_day = 1;
    }
    let mut sim = Sim::new(site);
    sim.warm_up();
    assert!(sim.entries() < 60, "{} entries", sim.entries());
    assert!(sim.story().contains("refused: BadPolicy"), "{}", sim.story());
}

/// Seed 3 of the first swarm: an attempt to a dead BMC takes longer than a reading is good for, so the hold's name changed
/// with each attempt, and each change paged.
#[test]
fn a_hold_by_a_silent_bmc_network_keeps_its_name() {
    let mut sim = Sim::new(Site::plain(3, 3, 0));
    sim.warm_up();
    sim.cut_bmc_network();
    sim.cut_power("n2");
    assert!(
        sim.run_until(Span::from_secs(60), |sim| sim.held("n2") == "BmcNetworkSilent"),
        "{}",
        sim.story()
    );
    let pages = sim.pages();
    sim.run_for(Span::from_mins(3));
    assert_eq!((sim.held("n2"), sim.pages()), ("BmcNetworkSilent", pages), "{}", sim.story());
}

/// Seeds 395 and 63: a replica on a host that had just booted took the last beacon before a goodbye, which observers
/// brought it, for as young as its own uptime, and the goodbye was over: the planned reboot was a death.
#[test]
fn a_freshly_booted_replica_ends_no_goodbye() {
    let mut sim = Sim::new(Site::plain(395, 6, 0));
    sim.warm_up();
    sim.planned_reboot("n4", Span::from_mins(9));
    sim.run_for(Span::from_secs(10));
    sim.reboot("n2");
    let judged = |sim: &Sim| sim.phase("n4") != "Alive" || !sim.pages_about("n4").is_empty();
    assert!(!sim.run_until(Span::from_secs(525), judged), "{}", sim.story());
    sim.run_for(Span::from_mins(3));
    sim.finish();
    assert!(sim.violations().is_empty(), "{:?}\n{}", sim.violations(), sim.story());
}
