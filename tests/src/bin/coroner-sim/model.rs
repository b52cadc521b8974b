//! `hack/sim --model`: the decision rule by itself, as tables.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use coroner_shared::time::Span;
use coroner_tests::sim::model::{
    Blow, Case, Deaths, Fault, Faults, Kind, Many, Role, Struck, deaths, faults, many,
};

use super::Args;

/// Every size from the smallest on, then sites with more members than an observer listens to.
const LONE: [usize; 10] = [3, 4, 5, 6, 7, 8, 9, 12, 20, 100];
const TORN: [usize; 6] = [3, 6, 9, 12, 20, 100];
const FAULTS: [Fault; 14] = [
    Fault::DeafHost,
    Fault::MuteHost,
    Fault::BlackHoles(12),
    Fault::BlackHoles(25),
    Fault::BlackHoles(50),
    Fault::RackCut,
    Fault::RackHalf,
    Fault::RackMute,
    Fault::RackDeaf,
    Fault::DeafReplica,
    Fault::MuteReplica,
    Fault::ReplicaCutOff,
    Fault::ArbiterCutOff,
    Fault::Loss(20),
];
/// So many machines are as much work as all trials of a small site.
const LARGE: u64 = 20;
/// What is rare needs more trials: a fault is played so many times as often as a death.
const FAULTS_MORE: u64 = 4;
/// A rack of 20 at one decision a second, and a second for each proof.
const WATCHED: Span = Span::from_secs(100);

enum Row {
    Deaths(Deaths),
    Faults(Faults),
    Many(Many),
}

type Play = Box<dyn Fn() -> Row + Send + Sync>;

/// Plays all of it; fails if a machine that somebody could hear was condemned, if one that was on was among many that
/// fell silent at once, or if a death alone found no name.
pub(super) fn model(args: &Args) -> Result<ExitCode> {
    let rows = played(args.jobs, &plays(args.trials));
    let (mut lone, mut torn, mut blows) = (Vec::new(), Vec::new(), Vec::new());
    for row in rows {
        match row {
            Row::Deaths(row) => lone.push(row),
            Row::Faults(row) => torn.push(row),
            Row::Many(row) => blows.push(row),
        }
    }
    println!("| machines | racks | death | on it | trials | decided, p50 / p99 / worst | held | neither |");
    println!("|---|---|---|---|---|---|---|---|");
    lone.iter().for_each(|row| println!("{}", death_row(row)));
    println!(
        "\n| fault for 60 s | machines | episodes | condemned though somebody could hear it | condemned, on and unheard | the one that lost power 20 s into it: decided / held / neither |"
    );
    println!("|---|---|---|---|---|---|");
    torn.iter().for_each(|row| println!("{}", fault_row(row)));
    println!("\n| machines, racks | struck | trials | condemned | on | first .. last | held | neither |");
    println!("|---|---|---|---|---|---|---|---|");
    blows.iter().for_each(|row| println!("{}", many_row(row)));
    if let Some(path) = &args.json {
        let all = serde_json::json!({ "deaths": lone, "faults": torn, "many": blows });
        let text = serde_json::to_string_pretty(&all)?;
        std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))?;
    }
    let wrong: u64 =
        torn.iter().map(|row| row.wrong).sum::<u64>() + blows.iter().map(|row| row.on).sum::<u64>();
    let nothing: u64 = lone.iter().map(|row| row.nothing).sum();
    println!("\n{wrong} wrongly condemned; {nothing} lone deaths neither decided nor held");
    Ok(if wrong == 0 && nothing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All rows, with fewer trials where the site is large.
fn plays(trials: u64) -> Vec<Play> {
    let of = move |nodes: usize| (trials * LARGE / (nodes as u64).max(LARGE)).max(1);
    let mut plays: Vec<Play> = Vec::new();
    for nodes in LONE {
        for racks in if nodes <= 12 { vec![0, 1, 3] } else { vec![3] } {
            for kind in [Kind::Power, Kind::Hang, Kind::Cord] {
                for role in [Role::None, Role::Follower, Role::Leader] {
                    if nodes > 3 || role != Role::None {
                        plays
                            .push(Box::new(move || Row::Deaths(deaths(nodes, racks, kind, role, of(nodes)))));
                    }
                }
            }
        }
    }
    for fault in FAULTS {
        for nodes in TORN {
            plays.push(Box::new(move || Row::Faults(faults(nodes, fault, of(nodes) * FAULTS_MORE))));
        }
    }
    for (nodes, racks, struck) in
        [(10, 5, Struck::Rack), (25, 5, Struck::Rack), (100, 5, Struck::Rack), (100, 10, Struck::Random(20))]
    {
        for blow in [Blow::Power, Blow::Hang, Blow::Cord, Blow::CutOff] {
            let case = Case { nodes, racks, struck, blow };
            plays.push(Box::new(move || Row::Many(many(case, of(nodes), WATCHED))));
        }
    }
    plays
}

/// Plays them on so many threads; in their order. Says how far it is.
fn played(jobs: u64, plays: &[Play]) -> Vec<Row> {
    let (next, done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let rows: Mutex<BTreeMap<usize, Row>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..jobs.max(1) {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    let Some(play) = plays.get(index) else { return };
                    let row = play();
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
    let at = |percent: usize| {
        let index = (row.decided.len() * percent).div_ceil(100).saturating_sub(1);
        row.decided.get(index).map_or_else(|| "-".to_owned(), |ms| seconds(*ms))
    };
    let Deaths { nodes, racks, kind, role, trials, nothing, .. } = row;
    let (decided, held) = (row.decided.len(), list(&row.held));
    let times = format!("{} / {} / {} s", at(50), at(99), at(100));
    format!(
        "| {nodes} | {racks} | {kind:?} | {role:?} | {trials} | {decided}: {times} | {held} | {nothing} |"
    )
}

fn fault_row(row: &Faults) -> String {
    let Faults { nodes, fault, trials, wrong, unheard, decided, nothing, .. } = row;
    let held = list(&row.held);
    format!("| {fault:?} | {nodes} | {trials} | {wrong} | {unheard} | {decided} / {held} / {nothing} |")
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
