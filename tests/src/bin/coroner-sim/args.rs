//! The command line: what is played, and which options mean something to it. Whatever would be ignored is refused.
//!
//! ```text
//!   (nothing)   --seeds --from --nightly --class --jobs --json
//!   --seed N    --json
//!   --mutants   --seeds --from --only --kills --no-stories --class --jobs --json
//!   --model     --trials --large --class --jobs --json
//! ```

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{CommandFactory as _, FromArgMatches as _, Parser};
use coroner_tests::sim::names_a_class;

#[cfg(test)]
mod tests;

/// Plays seeds of the simulator against the shipped cores.
#[derive(Debug, Parser)]
#[command(name = "hack/sim", bin_name = "hack/sim", allow_negative_numbers = true)]
pub(super) struct Args {
    /// How many seeds; with `--mutants` at most so many for each bug.
    #[arg(long, default_value_t = 2_000, value_parser = up_to(0), conflicts_with_all = ["seed", "nightly", "model"])]
    pub(super) seeds: u64,
    /// The first of them: 1 unless said otherwise; with `--nightly` a million for each day since 1970, so that each night
    /// plays seeds of its own.
    #[arg(long, value_parser = up_to(0), conflicts_with_all = ["seed", "model"])]
    pub(super) from: Option<u64>,
    /// Play this one alone, and print its story.
    #[arg(long, value_parser = up_to(0), conflicts_with_all = ["nightly", "mutants", "model", "class", "jobs"])]
    pub(super) seed: Option<u64>,
    /// Play as many as fit into this time (`90s`, `30m`, `8h`); void if it misses anything that a nightly run must reach.
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with_all = ["mutants", "model"])]
    pub(super) nightly: Option<Duration>,
    /// Plant one bug after the other, and play stories and seeds with each until enough seeds have found it, at most so
    /// many as `--seeds` says.
    #[arg(long, conflicts_with = "model")]
    pub(super) mutants: bool,
    /// With `--mutants`: only those whose names contain one of these.
    #[arg(long, value_name = "TEXT")]
    pub(super) only: Vec<String>,
    /// Of those seeds only the ones that draw a class or script whose name contains one of these; with `--model` only rows
    /// whose name does (`death Power Leader Nobody 12 3`, `fault RackCut Power 20`, `many Hang 100`).
    #[arg(long, value_name = "TEXT")]
    pub(super) class: Vec<String>,
    /// With `--mutants`: seeds that must find a bug before the next one's turn.
    #[arg(long, default_value_t = 3, value_parser = up_to(1))]
    pub(super) kills: u64,
    /// With `--mutants`: seeds alone.
    #[arg(long)]
    pub(super) no_stories: bool,
    /// Play the decision rule by itself instead: deaths and faults of the network, in tables.
    #[arg(long)]
    pub(super) model: bool,
    /// With `--model`: how often each.
    #[arg(long, default_value_t = 40, value_parser = clap::value_parser!(u64).range(1..=100_000))]
    pub(super) trials: u64,
    /// With `--model`: sites of 1,000 machines as well, in 23 rows; one death of it took three minutes of processor time.
    #[arg(long)]
    pub(super) large: bool,
    /// Threads; one seed is one thread.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=1_024))]
    pub(super) jobs: u64,
    /// Write what was found to this file.
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,
}

/// Options that mean something with one mode only.
const OF_ONE_MODE: [(&str, &str); 5] = [
    ("only", "mutants"),
    ("kills", "mutants"),
    ("no_stories", "mutants"),
    ("trials", "model"),
    ("large", "model"),
];

// === impl Args ===

impl Args {
    /// What this process was called with; ends it where that makes no sense.
    pub(super) fn of_this_call() -> Self {
        Self::read(std::env::args_os()).unwrap_or_else(|error| error.exit())
    }

    fn read<T: Into<OsString> + Clone>(words: impl IntoIterator<Item = T>) -> Result<Self, clap::Error> {
        let matches = Self::command().try_get_matches_from(words)?;
        // Not clap's `requires`: it lets pass what needs one option where another one excludes that, and its refusal does
        // not name the option that is of no use.
        for (option, mode) in OF_ONE_MODE {
            let given = matches.value_source(option) == Some(ValueSource::CommandLine);
            if given && !matches.get_flag(mode) {
                let option = option.replace('_', "-");
                let why = format!("--{option} means something only with --{mode}, which is not there");
                return Err(Self::command().error(ErrorKind::MissingRequiredArgument, why));
            }
        }
        let args = Self::from_arg_matches(&matches)?;
        if let Some(text) = args.class.iter().find(|text| !args.model && !names_a_class(text)) {
            let why = format!(
                "--class {text:?}: no class and no script has a name with that in it, so that it would choose no seed; \
                 names stand in tests/src/sim/classes/mod.rs and scripts.rs"
            );
            return Err(Self::command().error(ErrorKind::ValueValidation, why));
        }
        Ok(args)
    }
}

/// Numbers from this one on, of seeds and how many: two of them never overflow together.
fn up_to(least: u64) -> clap::builder::RangedU64ValueParser {
    clap::value_parser!(u64).range(least..=1_000_000_000_000)
}

/// A number and its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let right = || format!("{text:?} is no time; write it as 90s, 30m or 8h");
    let unit = text.chars().last().ok_or_else(right)?;
    let number: u64 = text.strip_suffix(unit).and_then(|n| n.parse().ok()).ok_or_else(right)?;
    let seconds = match unit {
        's' => Some(number),
        'm' => number.checked_mul(60),
        'h' => number.checked_mul(3600),
        _ => None,
    };
    seconds.map(Duration::from_secs).ok_or_else(right)
}
