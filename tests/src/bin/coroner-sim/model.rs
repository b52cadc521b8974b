//! `hack/sim --model`: the decision rule by itself, as tables.

use std::collections::BTreeMap;
use std::io::IsTerminal as _;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use anyhow::{Context, Result};
use coroner_shared::time::Span;
use coroner_tests::sim::model::{
    Also, Blow, Case, Death, Deaths, Fault, Faults, Kind, Many, Role, Struck, deaths, faults, many,
};

use super::Args;

/// Every size from the smallest on, then sites with more members than an observer listens to.
const LONE: [usize; 11] = [3, 4, 5, 6, 7, 8, 9, 12, 20, 50, 100];
const TORN: [usize; 6] = [3, 6, 9, 12, 20, 100];
/// With `--large` only: three minutes of processor time for one death, most of it until all is warm.
const HUGE: usize = 1000;
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
        plays.retain(|play| args.class.iter().any(|class| play.name.contains(class.as_str())));
        anyhow::ensure!(
            !plays.is_empty(),
            "--class {:?}: no row of the model has a name like \"death Power Leader Nobody 12 3\", \"fault RackCut 20\" or \
             \"many Hang 100\" with that in it",
            args.class
        );
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
    println!(
        "| machines | racks | death | on it | with it | trials | decided, p50 / p99 / worst | held | neither |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
    lone.iter().for_each(|row| println!("{}", death_row(row)));
    println!(
        "\n| fault for 60 s | machines | episodes | condemned though somebody could hear it | condemned, on and unheard | the one that lost power 20 s into it: decided / held / not yet | of these, once all is whole: decided, p50 / p99 / worst | held | never |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
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
    let nothing: u64 =
        lone.iter().map(|row| row.nothing).sum::<u64>() + torn.iter().map(|row| row.nothing).sum::<u64>();
    println!("\n{wrong} wrongly condemned; {nothing} deaths neither decided nor held");
    Ok(if wrong == 0 && nothing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// All rows, with fewer trials where the site is large.
fn plays(trials: u64, large: bool) -> Vec<Play> {
    let of = move |nodes: usize| (trials * LARGE / (nodes as u64).max(LARGE)).max(1);
    let mut plays: Vec<Play> = Vec::new();
    let lone = LONE.into_iter().flat_map(every_death);
    let huge = every_death(HUGE).into_iter().filter(|death| large && death.also == Also::Nobody);
    for death in lone.chain(huge) {
        let Death { nodes, racks, kind, role, also } = death;
        let name = format!("death {kind:?} {role:?} {also:?} {nodes} {racks}");
        plays.push(Play::new(name, move || Row::Deaths(deaths(death, of(nodes)))));
    }
    for fault in FAULTS {
        for nodes in TORN.into_iter().chain(large.then_some(HUGE)) {
            let name = format!("fault {fault:?} {nodes}");
            plays.push(Play::new(name, move || {
                Row::Faults(faults(nodes, fault, if nodes < HUGE { of(nodes) * FAULTS_MORE } else { 1 }))
            }));
        }
    }
    for (nodes, racks, struck) in
        [(10, 5, Struck::Rack), (25, 5, Struck::Rack), (100, 5, Struck::Rack), (100, 10, Struck::Random(20))]
    {
        for blow in [Blow::Power, Blow::Hang, Blow::Cord, Blow::CutOff] {
            let case = Case { nodes, racks, struck, blow };
            let name = format!("many {blow:?} {nodes}");
            plays.push(Play::new(name, move || Row::Many(many(case, of(nodes), WATCHED))));
        }
    }
    plays
}

/// Every kind, role and company of a death on a site of one size.
fn every_death(nodes: usize) -> Vec<Death> {
    let mut all = Vec::new();
    for racks in if nodes <= 12 { vec![0, 1, 3] } else { vec![3] } {
        for kind in [Kind::Power, Kind::Hang, Kind::Cord] {
            for role in [Role::None, Role::Follower, Role::Leader] {
                // Two deaths are promised from five machines on.
                let company = if nodes < 5 { 1 } else { 3 };
                let company = [Also::Nobody, Also::OtherDomain, Also::SameRack].into_iter().take(company);
                all.extend(company.map(|also| Death { nodes, racks, kind, role, also }));
            }
        }
    }
    all.retain(|death| {
        let spare = death.nodes > 3 || death.role != Role::None;
        let racks = match death.also {
            Also::Nobody => true,
            Also::OtherDomain => death.racks != 1,
            Also::SameRack => death.racks != 0,
        };
        spare && racks
    });
    all
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
    let Deaths { death: Death { nodes, racks, kind, role, also }, trials, nothing, .. } = row;
    let (decided, held) = (times(&row.decided), list(&row.held));
    format!(
        "| {nodes} | {racks} | {kind:?} | {role:?} | {also:?} | {trials} | {decided} | {held} | {nothing} |"
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
    let Faults { nodes, fault, trials, wrong, unheard, decided, nothing, .. } = row;
    let (held, waits, later_held) = (list(&row.held), list(&row.waits), list(&row.later_held));
    let later = times(&row.later);
    format!(
        "| {fault:?} | {nodes} | {trials} | {wrong} | {unheard} | {decided} / {held} / {waits} | {later} | {later_held} | {nothing} |"
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
