//! A row, and all rows as a table and as a file.

use std::fmt::Write as _;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::samples::Samples;
use crate::scenarios::results::Machine;

/// A figure.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured.
    pub name: String,
    /// In what.
    pub unit: &'static str,
    /// How many samples.
    pub n: usize,
    /// Half of them are below.
    pub p50: f64,
    /// 99 of a hundred are below.
    pub p99: f64,
    /// The same of somebody else, measured in turns with it.
    pub peer: Option<Peer>,
    /// Our median by the peer's: below 1 we are the smaller.
    pub ratio: Option<f64>,
}

/// Somebody else.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Peer {
    /// Who, in which version.
    pub name: String,
    /// How many samples.
    pub n: usize,
    /// Half of them are below.
    pub p50: f64,
    /// 99 of a hundred are below.
    pub p99: f64,
}

/// Everything that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct Bench {
    /// On what.
    pub machine: Machine,
    /// The file system that held the logs.
    pub disk: String,
    /// The figures.
    pub rows: Vec<Row>,
    /// What did not go as it should; the figures are then of little worth.
    pub failed: Vec<String>,
}

// === impl Row ===

impl Row {
    /// A figure without a peer.
    #[must_use]
    pub fn new(name: impl Into<String>, unit: &'static str, samples: &Samples) -> Self {
        let Samples { n, p50, p99 } = *samples;
        Self { name: name.into(), unit, n, p50, p99, peer: None, ratio: None }
    }

    /// The same of somebody else beside it.
    #[must_use]
    pub fn beside(mut self, name: &str, samples: &Samples) -> Self {
        let Samples { n, p50, p99 } = *samples;
        self.peer = Some(Peer { name: name.to_owned(), n, p50, p99 });
        self.ratio = (p50 > 0.0).then(|| self.p50 / p50);
        self
    }
}

// === impl Bench ===

impl Bench {
    /// Takes rows, if there are any.
    ///
    /// # Errors
    /// Why there are none.
    pub fn add(&mut self, rows: Result<Vec<Row>>) -> Result<()> {
        self.rows.extend(rows?);
        Ok(())
    }

    /// Takes a row in place of the one of that name, if there is one: whatever takes long says early what it has.
    pub fn put(&mut self, row: Row) {
        match self.rows.iter_mut().find(|known| known.name == row.name) {
            Some(known) => *known = row,
            None => self.rows.push(row),
        }
    }

    /// For people.
    #[must_use]
    pub fn table(&self) -> String {
        let Machine { cpu, cores, memory_mib, kernel, date, commit } = &self.machine;
        let mut text = format!(
            "{cpu}, {cores} cores, {memory_mib} MiB, Linux {kernel}, {}; {date}, commit {commit}\n\n",
            self.disk
        );
        let width = self.rows.iter().map(|row| row.name.len()).max().unwrap_or(0).max(4);
        let head = ["unit", "n", "p50", "p99"].map(|c| format!("{c:>9}")).concat();
        // Writing to a String does not fail.
        let _ = writeln!(text, "{:<width$}{head}   peer", "");
        for Row { name, unit, n, p50, p99, peer, ratio } in &self.rows {
            let _ = write!(text, "{name:<width$}{unit:>9}{n:>9}{:>9}{:>9}", figure(*p50), figure(*p99));
            if let (Some(peer), Some(ratio)) = (peer, ratio) {
                let (p50, p99) = (figure(peer.p50), figure(peer.p99));
                let _ =
                    write!(text, "   {}: n {}, p50 {p50}, p99 {p99}; ratio {ratio:.2}", peer.name, peer.n);
            }
            text.push('\n');
        }
        for what in &self.failed {
            let _ = writeln!(text, "FAILED: {what}");
        }
        text
    }

    /// Writes them as JSON.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, path: &Path) -> Result<()> {
        let text = serde_json::to_string_pretty(self).context("write the rows as JSON")?;
        std::fs::write(path, format!("{text}\n")).with_context(|| format!("write {}", path.display()))
    }
}

/// Three digits that count.
fn figure(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.2}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(p50: f64, p99: f64) -> Samples {
        Samples { n: 7, p50, p99 }
    }

    #[test]
    fn a_row_that_is_put_again_takes_the_place_of_the_first() {
        let (machine, disk) = (Machine::default(), String::new());
        let mut bench = Bench { machine, disk, rows: Vec::new(), failed: Vec::new() };
        for (name, p50) in [("a", 1.0), ("b", 2.0), ("a", 3.0)] {
            bench.put(Row::new(name, "ms", &samples(p50, p50)));
        }
        let short: Vec<_> = bench.rows.iter().map(|row| (row.name.as_str(), row.p50)).collect();
        assert_eq!(short, [("a", 3.0), ("b", 2.0)]);
    }

    #[test]
    fn the_table_names_the_machine_and_shows_a_peer_beside_its_row() {
        let rows = vec![
            Row::new("alone", "us", &samples(0.5, 123.4)),
            Row::new("compared", "ms", &samples(3.0, 40.0)).beside("etcd 9", &samples(2.0, 30.0)),
        ];
        let machine = Machine { cpu: "a cpu".to_owned(), cores: 2, ..Machine::default() };
        let bench = Bench { machine, disk: "ext4".to_owned(), rows, failed: vec!["why".to_owned()] };
        let table = bench.table();
        assert!(table.starts_with("a cpu, 2 cores"), "{table}");
        assert!(table.contains("alone          us        7     0.50      123\n"), "{table}");
        assert!(table.contains("etcd 9: n 7, p50 2.00, p99 30.0; ratio 1.50"), "{table}");
        assert!(table.ends_with("\nFAILED: why\n"), "{table}");
        let json = serde_json::to_value(&bench).unwrap();
        assert_eq!(json["rows"][0]["peer"], serde_json::Value::Null);
        assert_eq!(json["rows"][1]["ratio"], 1.5);
    }
}
