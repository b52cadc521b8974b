//! Planted bugs: each is played with seeds until an invariant finds it. A simulator that finds none proves nothing.
//!
//! Exists only where bugs can be planted at all (`--cfg coroner_mutants`, which `hack/sim --mutants` sets).

use std::panic::{AssertUnwindSafe, catch_unwind};

use coroner_shared::mutant::{Mutant, plant};
use serde::Serialize;

use super::run_seed;

/// What became of one planted bug.
#[derive(Clone, Debug, Serialize)]
pub struct Fate {
    /// Its name.
    pub name: &'static str,
    /// What it breaks.
    pub breaks: &'static str,
    /// Whether it was found.
    pub killed: bool,
    /// Seeds played until then.
    pub seeds: u64,
    /// What found it.
    pub by: String,
}

/// Plays seeds from `first` on with this bug planted, until it is found, at most so many.
#[must_use]
pub fn hunt(mutant: Mutant, first: u64, most: u64) -> Fate {
    plant(Some(mutant));
    let mut fate =
        Fate { name: mutant.name(), breaks: mutant.breaks(), killed: false, seeds: 0, by: String::new() };
    for seed in first..first + most {
        fate.seeds += 1;
        // A broken rule may also break what the core relies on.
        let by = match catch_unwind(AssertUnwindSafe(|| run_seed(seed))) {
            Ok(outcome) => outcome.violations.first().map(|v| format!("{}: {}", v.invariant, v.what)),
            Err(_) => Some("a panic".to_owned()),
        };
        if let Some(by) = by {
            (fate.killed, fate.by) = (true, format!("seed {seed}: {by}"));
            break;
        }
    }
    plant(None);
    fate
}
