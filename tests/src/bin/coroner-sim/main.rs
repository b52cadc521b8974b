//! Plays seeds of the simulator: many of them and counts, or one of them aloud. `hack/sim` builds and calls it.

mod model;
#[cfg(coroner_mutants)]
mod mutants;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Parser;
use coroner_tests::sim::{Coverage, MUST, Outcome, Plays, draws_one_of, run_seed, tell_seed};
use serde::Serialize;

#[cfg(coroner_mutants)]
use self::mutants::hunt;

/// Half of what the cores do between two events is to take and to give back small pieces of memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Plays seeds of the simulator against the shipped cores.
#[derive(Parser)]
#[command(name = "hack/sim")]
struct Args {
    /// How many seeds.
    #[arg(long, default_value_t = 2_000)]
    seeds: u64,
    /// The first of them: 1 unless said otherwise; with `--nightly` a million for each day since 1970, so that each night
    /// plays seeds of its own.
    #[arg(long)]
    from: Option<u64>,
    /// Play this one alone, and print its story.
    #[arg(long)]
    seed: Option<u64>,
    /// Play as many as fit into this time (`90s`, `30m`, `8h`); void if it misses anything that a nightly run must reach.
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    nightly: Option<Duration>,
    /// Plant one bug after the other, and play stories and seeds with each until enough seeds have found it, at most so
    /// many as `--seeds` says.
    #[arg(long)]
    mutants: bool,
    /// With `--mutants`: only those whose names contain one of these.
    #[arg(long, value_name = "TEXT")]
    only: Vec<String>,
    /// Of those seeds only the ones that draw a class or script whose name contains one of these; with `--model` only rows
    /// whose name does (`death Power Leader Nobody 12 3`, `fault RackCut 20`, `many Hang 100`).
    #[arg(long, value_name = "TEXT")]
    class: Vec<String>,
    /// With `--mutants`: seeds that must find a bug before the next one's turn.
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..))]
    kills: u64,
    /// With `--mutants`: seeds alone.
    #[arg(long)]
    no_stories: bool,
    /// Play the decision rule by itself instead: deaths and faults of the network, in tables.
    #[arg(long)]
    model: bool,
    /// With `--model`: how often each.
    #[arg(long, default_value_t = 40)]
    trials: u64,
    /// With `--model`: sites of 1,000 machines as well, in 23 rows; one death of it took three minutes of processor time.
    #[arg(long)]
    large: bool,
    /// Threads; one seed is one thread.
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Write what was found to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What `--json` writes.
#[derive(Default, Serialize)]
struct Results {
    seeds: u64,
    node_years: f64,
    seconds: f64,
    seeds_per_second: f64,
    violations: Vec<Violated>,
    coverage: BTreeMap<String, u64>,
    missing: Vec<String>,
}

#[derive(Serialize)]
struct Violated {
    seed: u64,
    invariant: String,
    what: String,
}

fn main() -> Result<ExitCode> {
    let args = Args::parse();
    if let Some(seed) = args.seed {
        return Ok(one(seed));
    }
    if args.mutants {
        return hunt(&args);
    }
    if args.model {
        return model::model(&args);
    }
    let results = many(&args);
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&results)?;
        std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))?;
    }
    let void = args.nightly.is_some() && !results.missing.is_empty();
    if void {
        println!("void: never reached {}", results.missing.join(", "));
    }
    Ok(if results.violations.is_empty() && !void { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

#[cfg(not(coroner_mutants))]
fn hunt(_: &Args) -> Result<ExitCode> {
    anyhow::bail!("bugs can only be planted in a build of their own: `hack/sim --mutants` makes one")
}

fn one(seed: u64) -> ExitCode {
    let outcome = tell_seed(seed);
    println!("hash {} after {} simulated", outcome.hash, outcome.simulated);
    for violation in &outcome.violations {
        println!("VIOLATION of {} at {} ms: {}", violation.invariant, violation.at, violation.what);
    }
    if outcome.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[expect(clippy::disallowed_methods, reason = "how long the seeds took; nothing in a seed looks at it")]
fn many(args: &Args) -> Results {
    let began = Instant::now();
    let first = args.from.unwrap_or_else(|| if args.nightly.is_some() { tonight() } else { 1 });
    if args.nightly.is_some() {
        eprintln!("seeds from {first} on");
    }
    let next = AtomicU64::new(first);
    let over = AtomicBool::new(false);
    let (send, receive) = mpsc::channel::<Outcome>();
    let mut results = Results::default();
    let mut coverage = Coverage::default();
    let mut node_ms = 0_u64;
    std::thread::scope(|scope| {
        for _ in 0..args.jobs.max(1) {
            let (send, next, over) = (send.clone(), &next, &over);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let last = args.nightly.is_none() && seed >= first + args.seeds;
                    if last || over.load(Ordering::Relaxed) {
                        return;
                    }
                    if draws_one_of(seed, &args.class) && send.send(run_seed(seed)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        let mut said = Instant::now();
        for outcome in receive {
            results.seeds += 1;
            node_ms += outcome.simulated.as_ms() * outcome.nodes as u64;
            coverage.add(&outcome.coverage);
            for violation in outcome.violations {
                println!("seed {}: {}: {}", outcome.seed, violation.invariant, violation.what);
                println!("    replay: {}", Plays(outcome.seed));
                let (invariant, what) = (violation.invariant, violation.what);
                results.violations.push(Violated { seed: outcome.seed, invariant, what });
            }
            if args.nightly.is_some_and(|limit| began.elapsed() >= limit) {
                over.store(true, Ordering::Relaxed);
            }
            let every = if std::io::stderr().is_terminal() { 1 } else { 30 };
            if said.elapsed() >= Duration::from_secs(every) {
                said = Instant::now();
                eprintln!("{}", progress(results.seeds, node_ms, began.elapsed(), &coverage));
            }
        }
    });
    println!("{}", progress(results.seeds, node_ms, began.elapsed(), &coverage));
    println!("{} violations", results.violations.len());
    results.seconds = began.elapsed().as_secs_f64();
    results.node_years = node_years(node_ms);
    results.seeds_per_second = per_second(results.seeds, began.elapsed());
    results.missing = coverage.missing().into_iter().map(str::to_owned).collect();
    results.coverage = coverage.counts().clone();
    results
}

/// The first seed of a night: a million for each day.
#[expect(clippy::disallowed_methods, reason = "which night it is; what a seed plays does not depend on it")]
fn tonight() -> u64 {
    let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    since.as_secs() / 86_400 * 1_000_000
}

fn progress(seeds: u64, node_ms: u64, took: Duration, coverage: &Coverage) -> String {
    let reached = MUST.len() - coverage.missing().len();
    format!(
        "{seeds} seeds, {:.2} a second; {:.4} node-years; {reached} of {} that must be reached",
        per_second(seeds, took),
        node_years(node_ms),
        MUST.len()
    )
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn node_years(node_ms: u64) -> f64 {
    node_ms as f64 / (365.25 * 86_400_000.0)
}

#[expect(clippy::cast_precision_loss, reason = "figures for people")]
fn per_second(seeds: u64, took: Duration) -> f64 {
    seeds as f64 / took.as_secs_f64().max(0.001)
}

/// A number and its unit.
fn duration(text: &str) -> Result<Duration, String> {
    let right = || format!("{text:?} is no time; write it as 90s, 30m or 8h");
    let unit = text.chars().last().ok_or_else(right)?;
    let number: u64 = text.strip_suffix(unit).and_then(|n| n.parse().ok()).ok_or_else(right)?;
    let seconds = match unit {
        's' => number,
        'm' => number * 60,
        'h' => number * 3600,
        _ => return Err(right()),
    };
    Ok(Duration::from_secs(seconds))
}
