//! What a run found, for people as a table and for programs as JSON.

use std::{collections::BTreeMap, fs, path::Path, process::Command};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use crate::oracles::{Finding, ORACLES, clock::Sample, stages::Stages, traces::CLEAN_END};

/// A scenario's end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name.
    pub name: String,
    /// Whether everything went as it should, the way back included.
    pub pass: bool,
    /// What was seen, or what was wrong.
    pub why: String,
    /// Milliseconds from silence; see [`Stages`].
    pub ms: Stages,
}

/// On what it ran.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// Model of the processor.
    pub cpu: String,
    /// Cores.
    pub cores: usize,
    /// Memory, MiB.
    pub memory_mib: u64,
    /// Kernel release.
    pub kernel: String,
    /// When the results were written, RFC 3339.
    pub date: String,
    /// Commit of the checkout; `+` where files differ from it.
    pub commit: String,
}

/// Everything that a run found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Results {
    /// On what it ran.
    pub machine: Machine,
    /// The scenarios in the order in which they were played.
    pub scenarios: Vec<Outcome>,
    /// How often each oracle found what must never be.
    pub oracles: BTreeMap<String, usize>,
    /// What they found.
    pub findings: Vec<Finding>,
}

// === impl Results ===

impl Results {
    /// Of these outcomes and findings, on this machine.
    #[must_use]
    pub fn new(scenarios: Vec<Outcome>, findings: Vec<Finding>) -> Self {
        let mut oracles: BTreeMap<String, usize> = ORACLES
            .iter()
            .map(|oracle| oracle.name)
            .chain([CLEAN_END])
            .map(|name| (name.to_owned(), 0))
            .collect();
        for finding in &findings {
            *oracles.entry(finding.oracle.clone()).or_default() += 1;
        }
        Self { machine: Machine::here(), scenarios, oracles, findings }
    }

    /// Whether everything went as it should.
    #[must_use]
    pub fn good(&self) -> bool {
        self.findings.is_empty() && self.scenarios.iter().all(|outcome| outcome.pass)
    }

    /// Writes them as JSON.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("write the results as JSON")?;
        fs::write(path, format!("{text}\n")).with_context(|| format!("write {}", path.display()))
    }

    /// The stages of each scenario, a line each.
    #[must_use]
    pub fn table(&self) -> Vec<String> {
        let row = |name: &str, cells: [String; 4], end: &str| {
            let [decided, proven, tainted, running] = cells;
            format!("  {name:<24}{decided:>9}{proven:>9}{tainted:>9}{running:>9}  {end}")
                .trim_end()
                .to_owned()
        };
        let head = ["decided", "proven", "tainted", "running"].map(str::to_owned);
        let mut lines = vec![row("ms from silence", head, "")];
        for outcome in &self.scenarios {
            let Stages { decided, proven, tainted, running } = outcome.ms;
            let cells =
                [decided, proven, tainted, running].map(|ms| ms.map_or("-".to_owned(), |ms| ms.to_string()));
            lines.push(row(&outcome.name, cells, if outcome.pass { "pass" } else { "FAIL" }));
        }
        lines
    }
}

// === impl Machine ===

impl Machine {
    /// This one, now.
    #[must_use]
    pub fn here() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let field = |text: &str, name: &str| {
            let line = text.lines().find(|line| line.starts_with(name));
            line.and_then(|line| line.split_once(':'))
                .map(|(_, value)| value.trim().to_owned())
                .unwrap_or_default()
        };
        let memory = field(&read("/proc/meminfo"), "MemTotal");
        let kib: u64 = memory.split_whitespace().next().and_then(|kib| kib.parse().ok()).unwrap_or(0);
        let date = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(Sample::now().wall);
        Self {
            cpu: field(&read("/proc/cpuinfo"), "model name"),
            cores: std::thread::available_parallelism().map_or(0, usize::from),
            memory_mib: kib / 1024,
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            date: humantime::format_rfc3339_seconds(date).to_string(),
            commit: commit(),
        }
    }
}

/// Empty outside of a git checkout.
fn commit() -> String {
    let git = |args: &[&str]| {
        // The checkout may be another user's than root's.
        let front = ["-c", "safe.directory=*", "-C", env!("CARGO_MANIFEST_DIR")];
        let output = Command::new("git").args(front).args(args).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(head) = git(&["rev-parse", "--short=12", "HEAD"]) else { return String::new() };
    let clean =
        git(&["status", "--porcelain", "--untracked-files=no"]).is_none_or(|changes| changes.is_empty());
    if clean { head } else { format!("{head}+") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcome(name: &str, pass: bool, ms: Stages) -> Outcome {
        Outcome { name: name.to_owned(), pass, why: "because".to_owned(), ms }
    }

    #[test]
    fn every_oracle_has_its_number_and_one_finding_spoils_the_run() {
        let good = Results::new(vec![outcome("a", true, Stages::default())], Vec::new());
        assert!(
            good.good() && good.oracles.len() == ORACLES.len() + 1 && good.oracles.values().all(|n| *n == 0)
        );
        let finding = Finding { oracle: "live_fenced".into(), t: 1, what: "w".into() };
        let bad = Results::new(vec![outcome("a", true, Stages::default())], vec![finding]);
        assert!(!bad.good() && bad.oracles["live_fenced"] == 1);
        assert!(!Results::new(vec![outcome("a", false, Stages::default())], Vec::new()).good());
    }

    #[test]
    fn the_file_is_as_it_is_documented_and_an_absent_stage_is_null() {
        let ms = Stages { decided: Some(1), ..Stages::default() };
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("demo.json");
        Results::new(vec![outcome("power-cut", true, ms)], Vec::new()).write(&path).unwrap();
        let read: serde_json::Value = serde_json::from_str(&fs::read_to_string(&path).unwrap()).unwrap();
        let first = &read["scenarios"][0];
        assert_eq!((&first["name"], &first["pass"]), (&"power-cut".into(), &true.into()));
        assert_eq!(
            first["ms"],
            serde_json::json!({ "decided": 1, "proven": null, "tainted": null, "running": null })
        );
        for oracle in ["double_writers", "wrong_victims", "released_while_running", "live_fenced"] {
            assert_eq!(read["oracles"][oracle], 0, "{oracle}");
        }
        assert!(read["machine"]["cores"].as_u64().unwrap() > 0);
    }

    #[test]
    fn the_table_has_a_line_for_each_scenario() {
        let ms = Stages { decided: Some(1900), running: Some(12000), ..Stages::default() };
        let results = Results::new(vec![outcome("hang", false, ms)], Vec::new());
        assert_eq!(
            results.table()[1],
            "  hang                         1900        -        -    12000  FAIL"
        );
    }
}
