//! Plays seeds, and the stories, with one planted bug after the other until something is violated: what shows that the
//! simulator would find it. `hack/sim --mutants` builds it under the cfg that plants them.

#[cfg(not(coroner_mutants))]
fn main() -> std::process::ExitCode {
    eprintln!("coroner-mutants: this build has no planted bugs; hack/sim --mutants builds one that has");
    std::process::ExitCode::from(2)
}

#[cfg(coroner_mutants)]
fn main() -> anyhow::Result<std::process::ExitCode> {
    hunt::main()
}

#[cfg(coroner_mutants)]
mod hunt {
    use std::panic::catch_unwind;
    use std::path::PathBuf;
    use std::process::ExitCode;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Mutex, PoisonError};

    use anyhow::{Context, Result};
    use clap::Parser;
    use coroner_shared::mutant::{Mutant, plant};
    use coroner_tests::sim::{run_seed, stories};
    use serde::Serialize;

    /// Plants one bug after the other and plays until something is violated.
    #[derive(Parser)]
    #[command(name = "hack/sim --mutants")]
    struct Args {
        /// Only these, by name.
        #[arg(long, value_name = "NAME", value_parser = named)]
        only: Vec<Mutant>,
        /// So many seeds at most for each; 0: stories alone.
        #[arg(long, default_value_t = 2_000)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        from: u64,
        /// Also every story with every bug; without it they are played without any.
        #[arg(long)]
        stories: bool,
        /// Threads; one run is one thread.
        #[arg(long, default_value_t = 2)]
        jobs: usize,
        /// Write what was found to this file.
        #[arg(long, value_name = "FILE")]
        json: Option<PathBuf>,
    }

    /// One planted bug.
    #[derive(Clone, Debug, Default, Serialize)]
    struct Row {
        name: String,
        breaks: String,
        killed: bool,
        /// Seeds played until the first that found it.
        seeds: u64,
        /// What was violated in it.
        by: String,
        /// Stories that fail with it.
        stories: Vec<String>,
    }

    pub(super) fn main() -> Result<ExitCode> {
        let args = Args::parse();
        let wrong: Vec<String> = in_parallel(args.jobs, stories::all().collect(), |story| {
            told(None, story.name).map(|why| format!("{}: {why}", story.name))
        })
        .into_iter()
        .flatten()
        .collect();
        wrong.iter().for_each(|story| println!("WITHOUT ANY BUG {story}"));
        let mutants = if args.only.is_empty() { Mutant::ALL.to_vec() } else { args.only.clone() };
        let mut rows = Vec::new();
        for mutant in mutants {
            let row = hunt(mutant, &args);
            let end = if row.killed { "killed" } else { "SURVIVED" };
            println!(
                "{end} {}: {} seeds, by {}; stories: {}",
                row.name,
                row.seeds,
                row.by,
                row.stories.join(", ")
            );
            rows.push(row);
        }
        if let Some(path) = &args.json {
            let text = serde_json::to_string_pretty(&serde_json::json!({ "mutants": rows }))?;
            std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))?;
        }
        let all = wrong.is_empty() && rows.iter().all(|row| row.killed);
        Ok(if all { ExitCode::SUCCESS } else { ExitCode::FAILURE })
    }

    fn named(name: &str) -> Result<Mutant, String> {
        Mutant::named(name)
            .ok_or_else(|| format!("{name:?} is no planted bug; their names are in shared/src/mutant.rs"))
    }

    fn hunt(mutant: Mutant, args: &Args) -> Row {
        let next = AtomicU64::new(args.from);
        let end = args.from + args.seeds;
        let found: Mutex<Option<(u64, String)>> = Mutex::new(None);
        let lock = || found.lock().unwrap_or_else(PoisonError::into_inner);
        in_parallel(args.jobs, (0..args.jobs).collect(), |_| {
            plant(Some(mutant));
            while lock().is_none() {
                let seed = next.fetch_add(1, Ordering::Relaxed);
                if seed >= end {
                    return;
                }
                let by = match catch_unwind(|| run_seed(seed)) {
                    Ok(outcome) => {
                        outcome.violations.first().map(|v| format!("{} (seed {seed})", v.invariant))
                    }
                    Err(_) => Some(format!("a panic (seed {seed})")),
                };
                if let Some(by) = by {
                    let mut found = lock();
                    if found.as_ref().is_none_or(|(first, _)| seed < *first) {
                        *found = Some((seed, by));
                    }
                }
            }
        });
        let found = lock().take();
        let failed: Vec<String> = if args.stories {
            let fails = |story: &'static stories::Story| {
                told(Some(mutant), story.name).map(|_| story.name.to_owned())
            };
            in_parallel(args.jobs, stories::all().collect(), fails).into_iter().flatten().collect()
        } else {
            Vec::new()
        };
        let seeds = found.as_ref().map_or(args.seeds, |(seed, _)| seed + 1 - args.from);
        Row {
            name: mutant.name().to_owned(),
            breaks: mutant.breaks().to_owned(),
            killed: found.is_some() || (args.seeds == 0 && !failed.is_empty()),
            seeds,
            by: found.map(|(_, by)| by).unwrap_or_default(),
            stories: failed,
        }
    }

    /// Why a story fails with this bug planted, in its first line; `None`: it does not.
    fn told(mutant: Option<Mutant>, name: &str) -> Option<String> {
        plant(mutant);
        let outcome = catch_unwind(|| stories::tell(name));
        plant(None);
        match outcome {
            Ok(Ok(())) => None,
            Ok(Err(why)) => {
                if mutant.is_none() {
                    return Some(why);
                }
                why.lines().next().map(str::to_owned)
            }
            Err(_) => Some("a panic".to_owned()),
        }
    }

    fn in_parallel<T: Send, R: Send>(jobs: usize, work: Vec<T>, each: impl Fn(T) -> R + Sync) -> Vec<R> {
        let work = Mutex::new(work.into_iter().enumerate().rev().collect::<Vec<_>>());
        let done = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for _ in 0..jobs.max(1) {
                scope.spawn(|| {
                    loop {
                        let Some((at, next)) = work.lock().unwrap_or_else(PoisonError::into_inner).pop()
                        else {
                            return;
                        };
                        let result = each(next);
                        done.lock().unwrap_or_else(PoisonError::into_inner).push((at, result));
                    }
                });
            }
        });
        let mut done = done.into_inner().unwrap_or_else(PoisonError::into_inner);
        done.sort_by_key(|(at, _)| *at);
        done.into_iter().map(|(_, result)| result).collect()
    }
}
