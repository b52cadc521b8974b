//! How long a death takes on a real cluster, stage by stage, from the instant at which the machine fell silent (its last
//! beacon left up to 250 ms before; see `oracles::stages`). Before each the site is whole again, so that no return of
//! the one before takes processor time from it.
//!
//! The policy is the lab's: its brakes are wider than in a year of a real cluster and its waits after a death are
//! shorter, which the site says when it comes up. No stage that is measured here contains one of those waits.

use anyhow::{Context, Result, ensure};

use super::Asked;
use super::row::{Bench, Row};
use super::samples::{Samples, as_f64};
use crate::lab::site::Site;
use crate::oracles::stages::Stages;
use crate::scenarios::{Case, DEMO, settle::settle};

/// The scenarios that are measured.
const KINDS: [&str; 2] = ["power-cut", "hang"];

/// Measures. A death that goes wrong is no sample, and is told as a failure.
///
/// # Errors
/// There is no site, or it does not come to order any more.
pub async fn measure(asked: &Asked, bench: &mut Bench) -> Result<()> {
    let site = asked.site().await?;
    for name in KINDS {
        let case = DEMO.iter().find(|case| case.name == name);
        let case = case.with_context(|| format!("there is no scenario {name}"))?;
        let mut found = Vec::new();
        for run in 1..=asked.runs {
            site.wait_steady(&[]).await?;
            site.tell.title(&format!("{name}, {run} of {}", asked.runs));
            match one(site, case).await {
                Ok(stages) => {
                    found.push(stages);
                    rows(name, &found).into_iter().for_each(|row| bench.put(row));
                }
                Err(error) => bench.failed.push(format!("{name}, {run} of {}: {error:#}", asked.runs)),
            }
            settle(site).await.with_context(|| format!("after {name}, {run}"))?;
        }
    }
    for finding in site.findings().await? {
        bench.failed.push(format!("{}: {}", finding.oracle, finding.what));
    }
    Ok(())
}

/// One death and its way back.
async fn one(site: &Site, case: &Case) -> Result<Stages> {
    let told = (case.play)(site).await?;
    site.bmcs.check()?;
    for back in &told.returns {
        back.wait(site, case.name).await?;
    }
    let Stages { decided, proven, tainted, running } = told.ms;
    let all = [decided, proven, tainted, running].iter().all(Option::is_some);
    ensure!(all, "a stage is missing: {:?}", told.ms);
    Ok(told.ms)
}

fn rows(name: &str, found: &[Stages]) -> Vec<Row> {
    let stage = |what: &str, of: fn(&Stages) -> Option<u64>| {
        let ms = found.iter().filter_map(of).map(as_f64).collect();
        Row::new(format!("{name}, silence to {what}"), "ms", &Samples::of(ms))
    };
    vec![
        stage("decision", |s| s.decided),
        stage("proof", |s| s.proven),
        stage("taint", |s| s.tainted),
        stage("replacement Running", |s| s.running),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_scenario_that_is_measured_is_there_and_each_stage_is_a_row() {
        assert!(KINDS.iter().all(|name| DEMO.iter().any(|case| case.name == *name)));
        let stages =
            |n| Stages { decided: Some(n), proven: Some(2 * n), tainted: Some(3 * n), running: Some(4 * n) };
        let rows = rows("hang", &[stages(100), stages(300), stages(200)]);
        let short: Vec<_> = rows.iter().map(|row| (row.n, row.p50, row.p99)).collect();
        assert_eq!(short, [(3, 200.0, 300.0), (3, 400.0, 600.0), (3, 600.0, 900.0), (3, 800.0, 1200.0)]);
        assert_eq!(rows[3].name, "hang, silence to replacement Running");
    }
}
