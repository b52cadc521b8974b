//! The first seeds of the swarm, for `hack/test --long`. `hack/sim` plays thousands in an optimised build, and one alone
//! with its story.

use coroner_tests::sim::{Plays, run_seed};

/// Plays seeds; what fails names the command that replays it.
fn play(seeds: std::ops::Range<u64>) {
    let mut found = Vec::new();
    for seed in seeds {
        let outcome = run_seed(seed);
        for violation in &outcome.violations {
            found.push(format!("{}: {}\n    replay: {}", violation.invariant, violation.what, Plays(seed)));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

macro_rules! parts {
    ($($name:ident $first:literal)*) => {
        $(
            #[test]
            #[ignore = "minutes with unoptimised cores"]
            fn $name() {
                play($first..$first + 5);
            }
        )*
    };
}

parts! {
    seeds_from_1 1
    seeds_from_6 6
    seeds_from_11 11
    seeds_from_16 16
}
