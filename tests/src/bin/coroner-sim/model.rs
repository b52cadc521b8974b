//! `hack/sim --model`: the decision rule by itself, as tables.

use std::collections::BTreeMap;
use std::process::ExitCode;

use anyhow::{Context, Result};
use coroner_tests::sim::model::{Deaths, Fault, Faults, Kind, Role, deaths, faults};

use super::Args;

const SIZES: [usize; 5] = [3, 6, 9, 12, 20];
const FAULTS: [Fault; 11] = [
    Fault::DeafHost,
    Fault::MuteHost,
    Fault::BlackHoles(12),
    Fault::BlackHoles(25),
    Fault::BlackHoles(50),
    Fault::RackCut,
    Fault::RackHalf,
    Fault::DeafReplica,
    Fault::ReplicaCutOff,
    Fault::ArbiterCutOff,
    Fault::Loss(20),
];

/// Plays all of it; fails if a machine that somebody could hear was condemned, or a death alone found no name.
pub(super) fn model(args: &Args) -> Result<ExitCode> {
    let trials = args.trials;
    println!("| machines | death | on it | trials | decided, p50 / p99 / worst | held | neither |");
    println!("|---|---|---|---|---|---|---|");
    let mut lone = Vec::new();
    for nodes in SIZES {
        for kind in [Kind::Power, Kind::Hang, Kind::Cord] {
            for role in [Role::None, Role::Follower, Role::Leader] {
                if nodes == 3 && role == Role::None {
                    continue;
                }
                let row = deaths(nodes, kind, role, trials);
                println!("{}", death_row(&row));
                lone.push(row);
            }
        }
    }
    println!(
        "\n| fault for 60 s | machines | episodes | condemned though somebody could hear it | condemned, on and unheard | the one that lost power 20 s into it: decided / held / neither |"
    );
    println!("|---|---|---|---|---|---|");
    let mut torn = Vec::new();
    for fault in FAULTS {
        for nodes in SIZES {
            let row = faults(nodes, fault, trials);
            println!("{}", fault_row(&row));
            torn.push(row);
        }
    }
    if let Some(path) = &args.json {
        let text = serde_json::to_string_pretty(&serde_json::json!({ "deaths": lone, "faults": torn }))?;
        std::fs::write(path, text + "\n").with_context(|| format!("write {}", path.display()))?;
    }
    let wrong: u64 = torn.iter().map(|row| row.wrong).sum();
    let nothing: u64 = lone.iter().map(|row| row.nothing).sum();
    println!("{wrong} wrongly condemned; {nothing} lone deaths neither decided nor held");
    Ok(if wrong == 0 && nothing == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn death_row(row: &Deaths) -> String {
    let at = |percent: usize| {
        let index = (row.decided.len() * percent).div_ceil(100).saturating_sub(1);
        row.decided
            .get(index)
            .map_or_else(|| "-".to_owned(), |ms| format!("{}.{:02}", ms / 1000, ms % 1000 / 10))
    };
    let Deaths { nodes, kind, role, trials, nothing, .. } = row;
    let (decided, held) = (row.decided.len(), list(&row.held));
    let times = format!("{} / {} / {} s", at(50), at(99), at(100));
    format!("| {nodes} | {kind:?} | {role:?} | {trials} | {decided}: {times} | {held} | {nothing} |")
}

fn fault_row(row: &Faults) -> String {
    let Faults { nodes, fault, trials, wrong, unheard, decided, nothing, .. } = row;
    let held = list(&row.held);
    format!("| {fault:?} | {nodes} | {trials} | {wrong} | {unheard} | {decided} / {held} / {nothing} |")
}

fn list(held: &BTreeMap<String, u64>) -> String {
    let all: Vec<String> = held.iter().map(|(why, count)| format!("{why} {count}")).collect();
    if all.is_empty() { "0".to_owned() } else { all.join(", ") }
}
