//! Answers as a tired person wants to read them: what needs attention first, one line each, with the next step.

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

use coroner_shared::api::{Explanation, INCIDENTS, IncidentSummary, NODES, NodeSummary, STATUS, Status};
use coroner_shared::id::NodeName;
use serde::Serialize;

use crate::args::Output;
use crate::port::Port;

/// `coroner status`.
///
/// # Errors
/// No replica answers.
pub(crate) async fn status(port: &Port, output: Output) -> anyhow::Result<ExitCode> {
    let mut page = Page::default();
    let status: Status = port.get(STATUS).await?.taken()?;
    if output == Output::Json {
        return json(&status);
    }
    page.line(format_args!("{}", status.verdict));
    let leader = status.leader.map_or("nobody".to_owned(), |l| format!("replica {l}"));
    page.line(format_args!(
        "replica {} says so ({} old); {leader} leads in term {}",
        status.answered_by, status.age, status.term
    ));
    if let Some(pause) = &status.paused {
        page.line(format_args!("PAUSED for {} by {}: {}", pause.age, pause.who, pause.why));
    }
    if status.storm {
        page.line(format_args!(
            "STORM: many nodes fell silent at once; only machines found off are acted on"
        ));
    }
    for problem in &status.problems {
        page.line(format_args!("! {problem}"));
    }
    let counts: Vec<String> = status.phases.iter().map(|(phase, n)| format!("{n} {phase}")).collect();
    page.line(format_args!("nodes: {}", counts.join(", ")));
    for node in &status.attention {
        print_attention(&mut page, node);
    }
    let rows = status.replicas.iter().map(|r| {
        vec![
            format!("replica {}", r.id),
            r.host.as_ref().map_or("?".to_owned(), ToString::to_string),
            if r.leader { "leader" } else { "" }.to_owned(),
            r.lag.map_or(String::new(), |l| format!("{l} entries behind")),
        ]
    });
    table(&mut page, &["REPLICA", "HOST", "ROLE", "LAG"], rows);
    page.print()
}

/// `coroner nodes`.
///
/// # Errors
/// No replica answers.
pub(crate) async fn nodes(port: &Port, output: Output) -> anyhow::Result<ExitCode> {
    let mut page = Page::default();
    let nodes: Vec<NodeSummary> = port.get(NODES).await?.taken()?;
    if output == Output::Json {
        return json(&nodes);
    }
    let rows = nodes.into_iter().map(|n| {
        let bmc = n.bmc.as_ref().map_or("none".to_owned(), |b| match &b.fence_ready {
            Ok(()) => format!("{} ready", b.power),
            Err(why) => format!("{} not ready: {why}", b.power),
        });
        vec![
            n.node.to_string(),
            n.phase,
            n.age.to_string(),
            n.domain,
            n.mode,
            bmc,
            n.reason.unwrap_or_else(|| n.findings.join(" ")),
        ]
    });
    table(&mut page, &["NODE", "PHASE", "AGE AT LEAST", "DOMAIN", "MODE", "BMC", "REASON"], rows);
    page.print()
}

/// `coroner explain NODE`.
///
/// # Errors
/// No replica answers, or there is no such node.
pub(crate) async fn explain(port: &Port, output: Output, node: &NodeName) -> anyhow::Result<ExitCode> {
    let mut page = Page::default();
    let explanation: Explanation = port.get(&format!("{NODES}/{node}/explain")).await?.taken()?;
    if output == Output::Json {
        return json(&explanation);
    }
    print_attention(&mut page, &explanation.summary);
    for sentence in &explanation.sentences {
        page.line(format_args!("- {sentence}"));
    }
    if let Some(verdict) = &explanation.verdict {
        page.line(format_args!("The same rule, asked again with this evidence, says: {verdict}"));
    }
    page.print()
}

/// `coroner incidents`.
///
/// # Errors
/// No replica answers.
pub(crate) async fn incidents(port: &Port, output: Output) -> anyhow::Result<ExitCode> {
    let mut page = Page::default();
    let incidents: Vec<IncidentSummary> = port.get(INCIDENTS).await?.taken()?;
    if output == Output::Json {
        return json(&incidents);
    }
    for incident in &incidents {
        let ended =
            incident.closed.as_ref().map_or(String::new(), |(ago, how)| format!(", closed {ago} ago: {how}"));
        page.line(format_args!(
            "{} {} {}{}{}, opened {} ago{ended}",
            incident.incident,
            incident.phase,
            incident.class.as_deref().or(incident.held.as_deref()).unwrap_or(""),
            if incident.observed { " (observed only)" } else { "" },
            incident.waiting_for.as_ref().map_or(String::new(), |w| format!(", {}", clause(w))),
            incident.opened_ago,
        ));
        for (ago, what, detail) in &incident.timeline {
            page.line(format_args!("    {:>8} ago  {what}  {detail}", ago.to_string()));
        }
    }
    if incidents.is_empty() {
        page.line(format_args!("no incidents"));
    }
    page.print()
}

// === helpers ===

/// What is written at once, so that a reader that goes away (`| head`) ends nothing half-way.
#[derive(Default)]
struct Page(String);

impl Page {
    fn line(&mut self, line: std::fmt::Arguments<'_>) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "{line}");
    }

    fn print(&self) -> anyhow::Result<ExitCode> {
        match std::io::stdout().write_all(self.0.as_bytes()) {
            Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(error.into()),
            Ok(()) | Err(_) => Ok(ExitCode::SUCCESS),
        }
    }
}

fn print_attention(page: &mut Page, node: &NodeSummary) {
    let reason = node.reason.as_ref().map_or(String::new(), |r| format!(": {r}"));
    page.line(format_args!("{} {} for at least {}{reason}", node.node, node.phase, node.age));
    page.line(format_args!("    next: {}", node.next));
    if let Some(advice) = &node.advice {
        page.line(format_args!("    you can: {advice}"));
    }
    if !node.findings.is_empty() {
        page.line(format_args!("    findings: {}", node.findings.join(", ")));
    }
}

/// A sentence as a part of another one.
fn clause(sentence: &str) -> String {
    let mut letters = sentence.trim_end_matches('.').chars();
    letters.next().map_or(String::new(), |first| first.to_lowercase().chain(letters).collect())
}

fn json(value: &impl Serialize) -> anyhow::Result<ExitCode> {
    let mut page = Page::default();
    page.line(format_args!("{}", serde_json::to_string_pretty(value)?));
    page.print()
}

/// Columns as wide as their widest cell; the last one as it comes.
fn table(page: &mut Page, head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut lines = vec![head.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>()];
    lines.extend(rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|at| lines.iter().filter_map(|l| l.get(at)).map(|c| c.chars().count()).max().unwrap_or(0))
        .collect();
    for line in lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        page.line(format_args!("{}", cells.join("  ").trim_end()));
    }
}

#[cfg(test)]
mod tests {
    use super::clause;

    #[test]
    fn a_sentence_goes_on_in_another_one() {
        assert_eq!(clause("A new boot is awaited."), "a new boot is awaited");
        assert_eq!(clause(""), "");
    }
}
