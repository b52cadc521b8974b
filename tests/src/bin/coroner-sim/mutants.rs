//! `hack/sim --mutants`: what became of each planted bug.

use std::collections::VecDeque;
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError, mpsc};

use anyhow::Result;
use coroner_shared::mutant::Mutant;
use coroner_tests::sim::mutants::{self, Fate, HEADS, Limits, Plain};
use coroner_tests::sim::tell;

use serde::Serialize;

use super::{Args, write};

/// Hunts all that are asked for; fails if one is found by nothing.
pub(super) fn hunt(args: &Args) -> Result<ExitCode> {
    // A broken rule may break what the cores rely on: that is counted, and no story of its own.
    std::panic::set_hook(Box::new(|_| {}));
    let (first, seeds) = (args.from.unwrap_or(1), args.seeds);
    let (kills, stories, classes) = (args.kills, !args.no_stories, args.class.clone());
    let limits = Limits { classes, first, seeds, kills, stories };
    for text in &args.only {
        let known = Mutant::ALL.iter().any(|mutant| mutant.name().contains(text.as_str()));
        anyhow::ensure!(known, "--only {text:?}: no planted bug has a name with that in it");
    }
    let named = |m: &Mutant| args.only.is_empty() || args.only.iter().any(|text| m.name().contains(text));
    let wanted = Mutant::ALL.iter().copied().filter(named).collect::<VecDeque<_>>();
    let (left, plain) = (Mutex::new(wanted), Plain::default());
    let (send, receive) = mpsc::channel::<Fate>();
    let mut fates: Vec<Fate> = Vec::new();
    std::thread::scope(|scope| -> Result<()> {
        for _ in 0..args.jobs {
            let (send, left, plain, limits) = (send.clone(), &left, &plain, &limits);
            scope.spawn(move || {
                loop {
                    let next = left.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                    let Some(mutant) = next else { return };
                    if send.send(mutants::hunt(mutant, plain, limits)).is_err() {
                        return;
                    }
                }
            });
        }
        drop(send);
        for fate in receive {
            eprintln!("{}", said(&fate));
            fates.push(fate);
            // What is known is kept, should the rest take too long.
            keep(args, &fates)?;
        }
        Ok(())
    })?;
    fates.sort_by_key(|fate| Mutant::named(fate.name));
    tell(HEADS);
    fates.iter().for_each(|fate| tell(&fate.row()));
    let unsound = plain.unsound();
    if !unsound.is_empty() {
        tell(&format!("violated without any bug, so that they say nothing: {}", unsound.join(", ")));
    }
    let found = fates.iter().filter(|fate| fate.is_killed()).count();
    let by_seeds = fates.iter().filter(|fate| fate.kills > 0).count();
    tell(&format!("{} planted, {found} found, {by_seeds} of them by seeds", fates.len()));
    Ok(if found == fates.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn said(fate: &Fate) -> String {
    let end = if fate.is_killed() { "found" } else { "ALIVE" };
    let first = fate.first.as_ref().map_or_else(String::new, |(seed, what)| format!("; seed {seed}: {what}"));
    let stories: Vec<&str> = fate.stories.keys().copied().collect();
    format!(
        "{end} {}: {} of {} seeds ({} asked, {} panics){first}; stories: {}",
        fate.name,
        fate.kills,
        fate.seeds,
        fate.asked,
        fate.panics,
        stories.join(", ")
    )
}

/// A fate, and whether anything found the bug: what a reader would have to work out from the rest.
#[derive(Serialize)]
struct Ended<'a> {
    killed: bool,
    #[serde(flatten)]
    fate: &'a Fate,
}

fn keep(args: &Args, fates: &[Fate]) -> Result<()> {
    let Some(path) = &args.json else { return Ok(()) };
    let ended: Vec<Ended<'_>> = fates.iter().map(|fate| Ended { killed: fate.is_killed(), fate }).collect();
    write(path, &serde_json::json!({ "mutants": ended }))
}
