//! Faults of our own cores that the simulator found, each pinned by what showed it. The list is in `tests/README.md`.

use coroner_arbiter_core::policy::AfterRelease;
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
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

/// Seeds 151, 271 and 316 of the second swarm: a young group in which little happens, so that log time hardly moves.
/// Whoever died there was held for a person as `SilentBeforeEnforce`, though it had been heard long after Enforce.
#[test]
fn a_node_that_dies_in_a_calm_young_group_is_fenced() {
    let mut sim = Sim::new(Site::plain(151, 5, 0));
    sim.warm_up();
    sim.freeze("n4");
    assert!(sim.run_until(Span::from_secs(60), |sim| sim.phase("n4") == "Released"), "{}", sim.story());
}

/// The same, where the leader's host is the one that dies.
#[test]
fn the_leaders_host_that_dies_in_a_calm_young_group_is_fenced() {
    let mut sim = Sim::new(Site::plain(271, 7, 0));
    sim.warm_up();
    let leader = sim.leader().expect("somebody leads");
    sim.freeze(&leader);
    assert!(sim.run_until(Span::from_secs(60), |sim| sim.phase(&leader) == "Released"), "{}", sim.story());
}

/// Seeds 40, 77, 109, 145 and 364 of the second swarm: H was counted from the observers in service. With one of four
/// released, two observers condemned the third; with three of five released a single one would have.
#[test]
fn released_nodes_do_not_lower_how_many_observers_must_be_silent() {
    let mut site = Site::plain(40, 4, 0);
    for policy in site.policies.values_mut() {
        policy.after_release = AfterRelease::StayOff;
    }
    let mut sim = Sim::new(site);
    sim.warm_up();
    sim.cut_power("n3");
    assert!(sim.run_until(Span::from_secs(40), |sim| sim.phase("n3") == "Released"), "{}", sim.story());
    sim.run_for(Span::from_secs(30));
    let offs = sim.ledger().len();
    let second = if sim.leader().as_deref() == Some("n2") { "n1" } else { "n2" };
    sim.freeze(second);
    assert!(
        sim.run_until(Span::from_secs(30), |sim| sim.held(second) == "TooFewObservers"),
        "{}",
        sim.story()
    );
    sim.run_for(Span::from_secs(120));
    assert_eq!((sim.held(second), sim.ledger().len()), ("TooFewObservers", offs), "{}", sim.story());
}

/// A replica's host freezes when a node dies, and goes on once that node is released. Ages leave its pause out, so what
/// it heard last looks younger than it is; it is no sign of life of a node that died meanwhile.
#[test]
fn what_a_replica_heard_before_a_pause_is_no_sign_of_life_after_it() {
    let mut sim = Sim::new(Site::plain(395, 6, 0));
    sim.warm_up();
    let leader = sim.leader().expect("somebody leads");
    let follower = ["n0", "n1", "n2"].into_iter().find(|n| *n != leader).expect("there are three");
    sim.freeze(follower);
    sim.run_for(Span::from_ms(100));
    sim.cut_power("n5");
    assert!(sim.run_until(Span::from_secs(20), |sim| sim.phase("n5") == "Released"), "{}", sim.story());
    let offs = sim.ledger().len();
    sim.thaw(follower);
    assert!(!sim.run_until(Span::from_secs(15), |sim| sim.phase("n5") != "Released"), "{}", sim.story());
    assert_eq!(sim.ledger().len(), offs, "{}", sim.story());
    assert!(sim.violations().is_empty(), "{:?}\n{}", sim.violations(), sim.story());
}

/// Seed 3067 of the third swarm: a person ordered the host of a second replica off, and the arbiter obeyed. It had no
/// quorum left, to prove what it had done or to do anything else.
#[test]
fn an_order_never_takes_the_arbiters_quorum() {
    let mut site = Site::plain(3067, 5, 0);
    for policy in site.policies.values_mut() {
        policy.after_release = AfterRelease::StayOff;
    }
    let mut sim = Sim::new(site);
    sim.warm_up();
    sim.freeze("n1");
    assert!(sim.run_until(Span::from_secs(60), |sim| sim.phase("n1") == "Released"), "{}", sim.story());
    sim.run_for(Span::from_secs(30));
    sim.order_off("n2");
    sim.run_for(Span::from_secs(30));
    assert_eq!((sim.phase("n2"), sim.has_power("n2")), ("Alive", true), "{}", sim.story());
    assert!(sim.story().contains("ArbiterHosts"), "the refusal names why: {}", sim.story());
    // With the first one back it is an order like any other. Who leads then has just started, and reads for 30 s.
    sim.power_on("n1");
    assert!(sim.run_until(Span::from_mins(15), |sim| sim.phase("n1") == "Alive"), "{}", sim.story());
    sim.order_off("n2");
    assert!(sim.run_until(Span::from_secs(120), |sim| sim.phase("n2") == "Released"), "{}", sim.story());
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}

/// Seed 7778: all machines of a site start at once, and a follower that had not applied yet who had joined was taken to
/// hear them all: every leader stepped down for it, once a second for 90 s, and nothing could be decided. Here seven led.
#[test]
fn leaders_of_a_site_that_starts_do_not_give_way_to_whom_knows_less() {
    let mut site = Site::plain(5, 30, 0);
    site.cold = true;
    let mut sim = Sim::new(site);
    sim.run_for(Span::from_secs(120));
    let leaders = sim.story().matches("leads in term").count();
    assert!((1..=2).contains(&leaders), "{leaders} led: {}", sim.story());
}

/// Seed 12131: each further attempt of a stalled fence ended its page, which was given anew ten seconds later: eleven times
/// in half an hour about one machine. Here the BMC accepts every command and does nothing.
#[test]
fn a_stalled_fence_that_tries_again_and_again_is_told_once() {
    let mut sim = Sim::new(Site::plain(12131, 5, 0));
    sim.warm_up();
    sim.ignores_commands("n4", true);
    sim.freeze("n4");
    let before = sim.pages();
    sim.run_for(Span::from_mins(30));
    let attempts = sim.ledger().len();
    assert!(attempts >= 4, "it never gives up: {attempts} commands");
    assert_eq!(
        (sim.pages_about("n4").concat(), sim.pages() - before),
        ("Stalled".to_owned(), 1),
        "{}",
        sim.story()
    );
    // The machine is another matter once its BMC obeys.
    sim.ignores_commands("n4", false);
    assert!(sim.run_until(Span::from_mins(15), |sim| sim.phase("n4") == "Released"), "{}", sim.story());
    assert!(sim.violations().is_empty(), "{:?}", sim.violations());
}
