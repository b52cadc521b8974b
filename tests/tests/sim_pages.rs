//! People are told of one thing once, however often it comes and goes, by whatever makes it do so.

use coroner_shared::time::Span;
use coroner_tests::sim::{Sim, Site};

fn site(seed: u64) -> Sim {
    let mut sim = Sim::new(Site::plain(seed, 5, 0));
    sim.warm_up();
    sim
}

/// For twelve minutes something is done and undone by turns, each for so many seconds.
fn by_turns(sim: &mut Sim, seconds: u64, mut turn: impl FnMut(&mut Sim, bool)) {
    for round in 0..(12 * 60 / seconds) {
        turn(sim, round % 2 == 0);
        sim.run_for(Span::from_secs(seconds));
    }
}

/// n4 hangs, its BMC takes commands and does nothing, and the first one was sent.
fn fenced_in_vain(seed: u64) -> Sim {
    let mut sim = site(seed);
    sim.ignores_commands("n4", true);
    sim.freeze("n4");
    assert!(sim.run_until(Span::from_secs(60), |sim| !sim.ledger().is_empty()), "{}", sim.story());
    sim
}

#[track_caller]
fn told_once(sim: &Sim, node: &str, what: &str) {
    let (most, of) = sim.told_most(node);
    assert!(most <= 1, "{of} was told {most} times: {}", sim.story());
    assert!(sim.pages_about(node).iter().any(|reason| reason == what), "{}", sim.story());
}

#[test]
fn a_machine_that_is_off_behind_a_bmc_that_comes_and_goes() {
    let mut sim = site(9001);
    sim.bmc_dead("n4", true);
    sim.cut_power("n4");
    // A reading of Off now and then proves nothing.
    by_turns(&mut sim, 20, |sim, dead| sim.bmc_dead("n4", dead));
    told_once(&sim, "n4", "HeldBmcSilent");
}

#[test]
fn a_bmc_that_is_silent_and_answers_nonsense_by_turns() {
    let mut sim = site(9003);
    sim.bmc_dead("n4", true);
    sim.cut_power("n4");
    sim.run_for(Span::from_secs(30));
    sim.bmc_errors("n4", 100);
    by_turns(&mut sim, 20, |sim, answers| sim.bmc_dead("n4", !answers));
    told_once(&sim, "n4", "HeldBmcSilent");
}

#[test]
fn a_fence_whose_bmc_was_silent_before_the_first_command() {
    let mut sim = site(9006);
    sim.ignores_commands("n4", true);
    sim.freeze("n4");
    let is_decided = |sim: &Sim| matches!(sim.phase("n4"), "Condemned" | "Fencing");
    assert!(sim.run_until(Span::from_secs(60), is_decided), "{}", sim.story());
    sim.bmc_dead("n4", true);
    sim.run_for(Span::from_secs(110));
    sim.bmc_dead("n4", false);
    sim.run_for(Span::from_mins(9));
    told_once(&sim, "n4", "Stalled");
}

#[test]
fn a_bmc_that_is_another_machines_in_the_middle_of_a_fence() {
    let mut sim = fenced_in_vain(9007);
    sim.swap_bmcs("n3", "n4");
    sim.run_for(Span::from_mins(14));
    told_once(&sim, "n4", "BindingDisabled");
}

#[test]
fn bmcs_that_are_swapped_and_back_in_the_middle_of_a_fence() {
    let mut sim = fenced_in_vain(9013);
    by_turns(&mut sim, 45, |sim, _| sim.swap_bmcs("n3", "n4"));
    told_once(&sim, "n4", "BindingDisabled");
}

#[test]
fn a_refused_binding_of_a_node_whose_link_comes_and_goes() {
    let mut sim = site(9012);
    sim.swap_bmcs("n3", "n4");
    sim.run_for(Span::from_mins(12));
    let mut cuts = Vec::new();
    by_turns(&mut sim, 30, |sim, cut| {
        if cut {
            cuts = sim.isolate(&["n4"]);
        } else {
            sim.heal(&cuts);
        }
    });
    told_once(&sim, "n4", "BindingRefused");
}

#[test]
fn a_stalled_fence_whose_leader_changes_each_minute() {
    let mut sim = fenced_in_vain(9005);
    by_turns(&mut sim, 60, |sim, _| sim.kill_leader(Span::from_secs(15)));
    told_once(&sim, "n4", "Stalled");
}

#[test]
fn an_api_server_that_gives_no_answer_before_a_release() {
    let mut sim = site(9009);
    sim.cut_power("n4");
    assert!(sim.run_until(Span::from_secs(60), |sim| sim.phase("n4") == "ProvenOff"), "{}", sim.story());
    sim.api_down(true);
    sim.run_for(Span::from_mins(9));
    assert_eq!(sim.phase("n4"), "ProvenOff", "{}", sim.story());
    told_once(&sim, "n4", "ReleaseWaits");
    sim.api_down(false);
    assert!(sim.run_until(Span::from_mins(2), |sim| sim.phase("n4") == "Released"), "{}", sim.story());
}
