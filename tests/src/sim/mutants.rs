//! Planted bugs: each is played with seeds and stories until an invariant finds it. A simulator that finds none proves
//! nothing.
//!
//! ```text
//!   seed --> known plain? --+-- never asked for this bug: goes the same way with it, not played
//!                           +-- else: played with the bug --> violated, and not so without it: a kill
//! ```
//!
//! A panic of the cores is no kill: it is no verdict of a judge. Exists only where bugs can be planted at all
//! (`--cfg coroner_mutants`, which `hack/sim --mutants` sets).

use std::collections::BTreeMap;
use std::panic::catch_unwind;
use std::sync::{Mutex, PoisonError};

use coroner_shared::mutant::{Asked, Mutant, asked, plant};
use serde::Serialize;

use super::stories::{self, Story};
use super::swarm::{Panicked, draws_one_of, first_violation};

/// How long a bug is hunted.
#[derive(Clone, Debug)]
pub struct Limits {
    /// Only seeds that draw a class whose name contains one of these; empty: all.
    pub classes: Vec<String>,
    /// The first seed.
    pub first: u64,
    /// So many at most.
    pub seeds: u64,
    /// Enough once so many seeds have found it.
    pub kills: u64,
    /// Whether stories are played with it as well.
    pub stories: bool,
}

/// What became of one planted bug.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Fate {
    /// Its name.
    pub name: &'static str,
    /// What it breaks.
    pub breaks: &'static str,
    /// Seeds looked at, those that say nothing left out.
    pub seeds: u64,
    /// Of those, the ones in which the code asked for it at all.
    pub asked: u64,
    /// Seeds that found it.
    pub kills: u64,
    /// Seeds in which the cores panicked instead.
    pub panics: u64,
    /// Seeds by the invariant that spoke first.
    pub by: BTreeMap<String, u64>,
    /// The first seed that found it, and what was violated.
    pub first: Option<(u64, String)>,
    /// Stories that fail with it, and how.
    pub stories: BTreeMap<&'static str, String>,
}

/// What the runs are like without any bug.
#[derive(Default)]
pub struct Plain {
    seeds: Mutex<BTreeMap<u64, Sound>>,
    stories: Mutex<BTreeMap<&'static str, Sound>>,
}

/// A run without any bug.
#[derive(Clone, Copy)]
struct Sound {
    passes: bool,
    asked: Asked,
}

// === impl Plain ===

impl Plain {
    fn seed(&self, seed: u64) -> Sound {
        Self::known(&self.seeds, seed, || matches!(first_violation(seed), Ok(None)))
    }

    fn known_seed(&self, seed: u64) -> Option<Sound> {
        self.seeds.lock().unwrap_or_else(PoisonError::into_inner).get(&seed).copied()
    }

    fn story(&self, story: &'static Story) -> Sound {
        Self::known(&self.stories, story.name, || matches!(told(story), Ok(None)))
    }

    fn known<K: Ord + Copy>(
        runs: &Mutex<BTreeMap<K, Sound>>,
        key: K,
        passes: impl FnOnce() -> bool,
    ) -> Sound {
        let lock = || runs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sound) = lock().get(&key) {
            return *sound;
        }
        plant(None);
        let _ = asked();
        let passes = passes();
        let sound = Sound { passes, asked: asked() };
        lock().insert(key, sound);
        sound
    }

    /// Seeds and stories that are violated without any bug.
    #[must_use]
    pub fn unsound(&self) -> Vec<String> {
        fn bad<K: ToString>(runs: &Mutex<BTreeMap<K, Sound>>) -> Vec<String> {
            let runs = runs.lock().unwrap_or_else(PoisonError::into_inner);
            runs.iter().filter(|(_, sound)| !sound.passes).map(|(key, _)| key.to_string()).collect()
        }
        [bad(&self.seeds), bad(&self.stories)].concat()
    }
}

/// Plays with this bug planted.
#[must_use]
pub fn hunt(mutant: Mutant, plain: &Plain, limits: &Limits) -> Fate {
    let mut fate = Fate { name: mutant.name(), breaks: mutant.breaks(), ..Fate::default() };
    for story in stories::all().filter(|_| limits.stories) {
        let sound = plain.story(story);
        if sound.passes && sound.asked.has(mutant) {
            plant(Some(mutant));
            fate.stories.extend(told(story).ok().flatten().map(|why| (story.name, why)));
        }
    }
    let seeds = limits.first..limits.first + limits.seeds;
    for seed in seeds.filter(|seed| draws_one_of(*seed, &limits.classes)) {
        fate.play(mutant, plain, seed);
        if fate.kills >= limits.kills {
            break;
        }
    }
    plant(None);
    fate
}

/// How a story fails, in its first line; `None`: it does not.
fn told(story: &Story) -> Result<Option<String>, Panicked> {
    let ended = catch_unwind(|| (story.play)()).map_err(|_| Panicked)?;
    Ok(ended.err().map(|why| why.lines().next().unwrap_or_default().to_owned()))
}

// === impl Fate ===

impl Fate {
    /// Plays one seed with the bug; without it only where that says something.
    fn play(&mut self, mutant: Mutant, plain: &Plain, seed: u64) {
        self.seeds += 1;
        if plain.known_seed(seed).is_some_and(|sound| !sound.asked.has(mutant)) {
            return;
        }
        let _ = asked();
        plant(Some(mutant));
        let played = first_violation(seed);
        self.asked += u64::from(asked().has(mutant));
        match played {
            Ok(None) => {}
            Ok(Some(_)) if !plain.seed(seed).passes => self.seeds -= 1,
            Ok(Some(violation)) => {
                self.kills += 1;
                self.first
                    .get_or_insert_with(|| (seed, format!("{}: {}", violation.invariant, violation.what)));
                *self.by.entry(violation.invariant).or_default() += 1;
            }
            Err(_) => self.panics += 1,
        }
    }

    /// Whether anything found it.
    #[must_use]
    pub fn is_killed(&self) -> bool {
        self.kills > 0 || !self.stories.is_empty()
    }

    /// A row of [`HEADS`].
    #[must_use]
    pub fn row(&self) -> String {
        let by: Vec<String> = self.by.iter().map(|(what, seeds)| format!("{what} {seeds}")).collect();
        let first = self.first.as_ref().map_or_else(|| "-".to_owned(), |(seed, _)| seed.to_string());
        let (name, kills, seeds, asked) = (self.name, self.kills, self.seeds, self.asked);
        let breaks = self.breaks.trim_end_matches('.');
        let by = if by.is_empty() { "-".to_owned() } else { by.join(", ") };
        format!(
            "| `{name}` | {breaks} | {by} | {kills} of {seeds} ({asked}) | {first} | {} |",
            self.stories.len()
        )
    }
}

/// The heads of a table of fates.
pub const HEADS: &str = "| planted | what it breaks | found by, in seeds | seeds that found it, of how many (in how many \
                         the code came to it) | first seed | stories |\n|---|---|---|---|---|---|";
