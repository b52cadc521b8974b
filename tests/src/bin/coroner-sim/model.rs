//! `hack/sim --model`: the decision rule by itself, as tables.

mod rows;

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use coroner_tests::sim::model::{Answers, Case, Death, Deaths, Faults, Many};
use coroner_tests::sim::tell;

use self::rows::plays;
use super::{Args, write};

enum Row {
    Deaths(Deaths),
    Faults(Faults),
    Many(Many),
}

/// A row: its name, and how it is played.
struct Play {
    name: String,
    row: Box<dyn Fn() -> Row + Send + Sync>,
}

impl Play {
    fn new(name: String, row: impl Fn() -> Row + Send + Sync + 'static) -> Self {
        Self { name, row: Box::new(row) }
    }
}

/// Plays all of it; fails if a machine that somebody could hear was condemned, if one that was on was among many that
/// fell silent at once, or if a death alone found no name.
pub(super) fn model(args: &Args) -> Result<ExitCode> {
    let mut plays = plays(args.trials, args.large);
    if !args.class.is_empty() {
        for text in &args.class {
            anyhow::ensure!(
                plays.iter().any(|play| play.name.contains(text.as_str())),
                "--class {text:?}: no row of the model has a name like \"death Power Leader Nobody 12 3\", \"fault RackCut \
                 Power 20\" or \"many Hang 100\" with that in it"
            );
        }
        plays.retain(|play| args.class.iter().any(|class| play.name.contains(class.as_str())));
    }
    let rows = played(args.jobs, &plays);
    let (mut lone, mut torn, mut blows) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        match row {
            Row::Deaths(row) => lone.push(row),
            Row::Faults(row) => torn.push(row),
            Row::Many(row) => blows.push(row),
        }
    }
    tell(
        "| machines | racks (R: a replica among the few) | death | on it | with it | BMCs answer | trials | decided, p50 / p99 / worst | held | neither |",
    );
    tell("|---|---|---|---|---|---|---|---|---|---|");
    lone.iter().for_each(|row| tell(&death_row(row)));
    tell(
        "\n| fault for 60 s | machine that dies | machines | episodes | condemned though somebody honest could hear it | condemned, on and unheard | the one that died 20 s into it: decided / held / not yet | of these, once all is whole: decided, p50 / p99 / worst | held | never |",
    );
    tell("|---|---|---|---|---|---|---|---|---|---|");
    torn.iter().for_each(|row| tell(&fault_row(row)));
    tell("\n| machines, racks | struck | trials | condemned | on | first .. last | held | neither |");
    tell("|---|---|---|---|---|---|---|---|");
    blows.iter().for_each(|row| tell(&many_row(row)));
    if let Some(path) = &args.json {
        write(path, &serde_json::json!({ "deaths": lone, "faults": torn, "many": blows }))?;
    }
    let wrong: u64 =
        torn.iter().map(|row| row.wrong).sum::<u64>() + blows.iter().map(|row| row.on).sum::<u64>();
    let nothing: u64 =
        lone.iter().map(|row| row.nothing).sum::<u64>() + torn.iter().map(|row| row.nothing).sum::<u64>();
    tell(&format!("\n{wrong} wrongly condemned; {nothing} deaths neither decided nor held"));
    Ok(if wrong == 0 && nothing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Plays them on so many threads; in their order. Says how far it is.
fn played(jobs: u64, plays: &[Play]) -> Vec<Row> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let rows: Mutex<BTreeMap<usize, Row>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(play) = plays.get(index) else { return };
                    let row = (play.row)();
                    rows.lock().unwrap_or_else(PoisonError::into_inner).insert(index, row);
                    let done = done.fetch_add(1, Ordering::Relaxed) + 1;
                    if std::io::stderr().is_terminal() || done.is_multiple_of(20) {
                        eprintln!("{done} of {} rows", plays.len());
                    }
                }
            });
        }
    });
    rows.into_inner().unwrap_or_else(PoisonError::into_inner).into_values().collect()
}

fn death_row(row: &Deaths) -> String {
    let Deaths { death: Death { nodes, racks, kind, role, also, bmcs }, trials, nothing, .. } = row;
    let (decided, held) = (times(&row.decided), list(&row.held));
    let bmcs = match bmcs {
        Answers::AtOnce => "at once",
        Answers::In2s => "in 2 s",
        Answers::In4s => "in 4 s",
        Answers::In8s => "in 8 s",
    };
    format!(
        "| {nodes} | {racks} | {kind:?} | {role:?} | {also:?} | {bmcs} | {trials} | {decided} | {held} | {nothing} |"
    )
}

/// How many, and p50, p99 and the worst of them; ascending milliseconds.
fn times(all: &[u64]) -> String {
    let at = |percent: usize| {
        let index = (all.len() * percent).div_ceil(100).saturating_sub(1);
        all.get(index).map_or_else(|| "-".to_owned(), |ms| seconds(*ms))
    };
    format!("{}: {} / {} / {} s", all.len(), at(50), at(99), at(100))
}

fn fault_row(row: &Faults) -> String {
    let Faults { nodes, fault, dies, trials, wrong, unheard, decided, nothing, .. } = row;
    let (held, waits, later_held) = (list(&row.held), list(&row.waits), list(&row.later_held));
    let later = times(&row.later);
    format!(
        "| {fault} | {dies:?} | {nodes} | {trials} | {wrong} | {unheard} | {decided} / {held} / {waits} | {later} | {later_held} | {nothing} |"
    )
}

fn many_row(row: &Many) -> String {
    let Many { case, trials, struck, condemned, on, nothing, .. } = row;
    let Case { nodes, racks, blow, struck: whom } = case;
    let span =
        row.span.map_or_else(|| "-".to_owned(), |(a, b)| format!("{} .. {} s", seconds(a), seconds(b)));
    let held = list(&row.held);
    format!(
        "| {nodes}, {racks} | {whom:?}: {blow:?}, {struck} | {trials} | {condemned} | {on} | {span} | {held} | {nothing} |"
    )
}

fn seconds(ms: u64) -> String {
    format!("{}.{:02}", ms / 1000, ms % 1000 / 10)
}

fn list(held: &BTreeMap<String, u64>) -> String {
    let all: Vec<String> = held.iter().map(|(why, count)| format!("{why} {count}")).collect();
    if all.is_empty() { "0".to_owned() } else { all.join(", ") }
}
