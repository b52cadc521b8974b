//! Plays seeds of the simulator: many of them and counts, or one of them aloud. `hack/sim` builds and calls it.

mod args;
mod model;
#[cfg(coroner_mutants)]
mod mutants;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use coroner_tests::sim::{
    Coverage, MUST, Outcome, Plays, Violation, draws_one_of, run_seed, tell, tell_seed,
};
use serde::Serialize;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::flag;

use self::args::Args;
#[cfg(coroner_mutants)]
use self::mutants::hunt;

/// Half of what the cores do between two events is to take and to give back small pieces of memory.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

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
    /// Since the seed's beginning.
    at_ms: u64,
    what: String,
}

impl Violated {
    fn of(seed: u64, violation: Violation) -> Self {
        let Violation { invariant, at, what } = violation;
        Self { seed, invariant, at_ms: at, what }
    }
}

/// What `--json` writes of one seed.
#[derive(Serialize)]
struct One {
    seed: u64,
    /// The same in every run of the seed.
    hash: String,
    nodes: usize,
    simulated_ms: u64,
    violations: Vec<Violated>,
}

fn main() -> ExitCode {
    // What is wrong with a call is said in words, without the path of the program to it.
    run(&Args::of_this_call()).unwrap_or_else(|error| {
        eprintln!("hack/sim: {error:#}");
        ExitCode::FAILURE
    })
}

fn run(args: &Args) -> Result<ExitCode> {
    if let Some(path) = &args.json {
        // Before hours are played for it.
        let opened = std::fs::OpenOptions::new().append(true).create(true).open(path);
        opened.with_context(|| format!("--json {}: it cannot be written", path.display()))?;
    }
    if let Some(seed) = args.seed {
        return one(seed, args.json.as_deref());
    }
    if args.mutants {
        return hunt(args);
    }
    if args.model {
        return model::model(args);
    }
    let (results, stopped) = many(args)?;
    if let Some(path) = &args.json {
        write(path, &results)?;
    }
    let wanted = args.nightly.is_some() || args.seeds > 0;
    anyhow::ensure!(
        results.seeds > 0 || !wanted || stopped,
        "--class {:?}: none of these seeds draws a class or script of such a name, so that nothing was played; give it more \
         seeds",
        args.class
    );
    let void = args.nightly.is_some() && !results.missing.is_empty();
    if void {
        tell("void: never reached");
        results.missing.iter().for_each(|mark| tell(&format!("    {mark}")));
    }
    if stopped {
        tell("stopped before its end");
    }
    let good = results.violations.is_empty() && !void && !stopped;
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn write(path: &Path, what: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(what)?;
    std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))
}

#[cfg(not(coroner_mutants))]
fn hunt(_: &Args) -> Result<ExitCode> {
    anyhow::bail!("bugs can only be planted in a build of their own: `hack/sim --mutants` makes one")
}

fn one(seed: u64, json: Option<&Path>) -> Result<ExitCode> {
    let outcome = tell_seed(seed);
    tell(&format!("hash {} after {} simulated", outcome.hash, outcome.simulated));
    for violation in &outcome.violations {
        let Violation { invariant, at, what } = violation;
        tell(&format!("VIOLATION of {invariant} at {at} ms: {what}"));
    }
    let good = outcome.violations.is_empty();
    if let Some(path) = json {
        let Outcome { hash, nodes, simulated, violations, .. } = outcome;
        let violations = violations.into_iter().map(|violation| Violated::of(seed, violation)).collect();
        write(path, &One { seed, hash, nodes, simulated_ms: simulated.as_ms(), violations })?;
    }
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plays them; the second answer: whether somebody stopped it (SIGINT or SIGTERM; a second one ends it at once).
#[expect(clippy::disallowed_methods, reason = "how long the seeds took; nothing in a seed looks at it")]
fn many(args: &Args) -> Result<(Results, bool)> {
    let began = Instant::now();
    let first = args.from.unwrap_or_else(|| if args.nightly.is_some() { tonight() } else { 1 });
    if args.nightly.is_some() {
        eprintln!("seeds from {first} on");
    }
    let (next, stop) = (AtomicU64::new(first), Arc::new(AtomicBool::new(false)));
    for signal in [SIGINT, SIGTERM] {
        flag::register_conditional_shutdown(signal, 128 + signal, Arc::clone(&stop))?;
        flag::register(signal, Arc::clone(&stop))?;
    }
    let is_over = || args.nightly.is_some_and(|limit| began.elapsed() >= limit);
    let (send, receive) = mpsc::channel::<Outcome>();
    let mut results = Results::default();
    let mut coverage = Coverage::default();
    let mut node_ms = 0_u64;
    std::thread::scope(|scope| {
        for _ in 0..args.jobs {
            let (send, next, stop) = (send.clone(), &next, &stop);
            scope.spawn(move || {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    let last = args.nightly.is_none() && seed >= first + args.seeds;
                    if last || is_over() || stop.load(Ordering::Relaxed) {
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
                tell(&format!("seed {}: {}: {}", outcome.seed, violation.invariant, violation.what));
                tell(&format!("    replay: {}", Plays(outcome.seed)));
                results.violations.push(Violated::of(outcome.seed, violation));
            }
            let every = if std::io::stderr().is_terminal() { 1 } else { 30 };
            if said.elapsed() >= Duration::from_secs(every) {
                said = Instant::now();
                let looked_at = next.load(Ordering::Relaxed).saturating_sub(first);
                let of = if args.nightly.is_some() { looked_at } else { args.seeds };
                bar(&format!(
                    "at seed {} of {of}: {}",
                    looked_at.min(of),
                    progress(results.seeds, node_ms, began.elapsed(), &coverage)
                ));
            }
        }
    });
    if std::io::stderr().is_terminal() {
        bar("");
    }
    tell(&progress(results.seeds, node_ms, began.elapsed(), &coverage));
    tell(&format!("{} violations", results.violations.len()));
    results.seconds = began.elapsed().as_secs_f64();
    results.node_years = node_years(node_ms);
    results.seeds_per_second = per_second(results.seeds, began.elapsed());
    results.missing = coverage.missing().into_iter().map(str::to_owned).collect();
    results.coverage = coverage.counts().clone();
    Ok((results, stop.load(Ordering::Relaxed)))
}

/// Where it is: on a terminal in one line that is written over, else a line each time.
fn bar(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    } else {
        eprintln!("{text}");
    }
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
        "{seeds} seeds, {:.2} a second; {:.4} node-years; {reached} of {} marks that a nightly run must reach",
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
