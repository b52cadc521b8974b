//! The first 2,000 seeds of the swarm, in parts that a test runner can spread over cores. `hack/sim` plays more of them,
//! and one alone with its story.

use coroner_tests::sim::{Plays, run_seed};

/// Plays a hundred seeds; what fails names the command that replays it.
fn play(first: u64) {
    let mut found = Vec::new();
    for seed in first..first + 100 {
        let outcome = run_seed(seed);
        for violation in &outcome.violations {
            found.push(format!("{}: {}\n    replay: {}", violation.invariant, violation.what, Plays(seed)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

macro_rules! hundreds {
    ($($name:ident $first:literal)*) => {
        $(#[test] fn $name() { play($first); })*
    };
}

hundreds! {
    seeds_1_to_100 1
    seeds_101_to_200 101
    seeds_201_to_300 201
    seeds_301_to_400 301
    seeds_401_to_500 401
    seeds_501_to_600 501
    seeds_601_to_700 601
    seeds_701_to_800 701
    seeds_801_to_900 801
    seeds_901_to_1000 901
    seeds_1001_to_1100 1001
    seeds_1101_to_1200 1101
    seeds_1201_to_1300 1201
    seeds_1301_to_1400 1301
    seeds_1401_to_1500 1401
    seeds_1501_to_1600 1501
    seeds_1601_to_1700 1601
    seeds_1701_to_1800 1701
    seeds_1801_to_1900 1801
    seeds_1901_to_2000 1901
}
