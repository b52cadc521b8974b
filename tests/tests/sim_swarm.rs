//! The swarm: 2,000 seeds in the optimised build, and a few in this one as well, which must go the same way.

use std::path::Path;
use std::process::{Command, Output};

use coroner_tests::sim::run_seed;

/// Calls `hack/sim`, which builds the simulator if it is not built yet.
fn hack_sim(args: &[&str]) -> Output {
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hack/sim");
    let output = Command::new(&program).args(args).output();
    output.unwrap_or_else(|error| panic!("{} does not start: {error}", program.display()))
}

fn text(output: &Output) -> String {
    let said = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    said.join("\n")
}

/// What fails names the command that replays it.
#[test]
fn two_thousand_seeds_violate_nothing() {
    let output = hack_sim(&["--from", "1", "--seeds", "2000"]);
    assert!(output.status.success(), "{}", text(&output));
    println!("{}", text(&output));
}

/// So few seeds cannot have reached all that a night must.
#[test]
fn a_nightly_run_that_misses_something_is_void() {
    let output = hack_sim(&["--nightly", "1s"]);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("void: never reached\n    "), "{said}");
    assert!(said.contains("\n0 violations"), "it is void, and nothing is wrong: {said}");
}

/// A trace that differs would make a failing seed one that nobody can replay.
#[test]
fn an_optimised_build_and_this_one_play_a_seed_alike() {
    for seed in ALIKE {
        let here = format!("hash {} ", run_seed(seed).hash);
        let there = hack_sim(&["--seed", &seed.to_string()]);
        let there = String::from_utf8_lossy(&there.stdout).into_owned();
        let found = there.lines().find(|line| line.starts_with("hash ")).unwrap_or("no hash");
        assert!(found.starts_with(&here), "seed {seed}: {here}here, and there: {found}");
    }
}

/// Small sites, so that unoptimised cores play them in seconds.
const ALIKE: [u64; 3] = [1, 2, 3];
