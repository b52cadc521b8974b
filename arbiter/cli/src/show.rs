//! Answers as a tired person wants to read them: what needs attention first, one line each, with the next step.

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
    let status: Status = port.get(STATUS).await?.taken()?;
    if output == Output::Json {
        return json(&status);
    }
    println!("{}", status.verdict);
    let leader = status.leader.map_or("nobody".to_owned(), |l| format!("replica {l}"));
    println!(
        "replica {} says so ({} old); {leader} leads in term {}",
        status.answered_by, status.age, status.term
    );
    if let Some(pause) = &status.paused {
        println!("PAUSED for {} by {}: {}", pause.age, pause.who, pause.why);
    }
    if status.storm {
        println!("STORM: many nodes fell silent at once; only machines found off are acted on");
    }
    for problem in &status.problems {
        println!("! {problem}");
    }
    let counts: Vec<String> = status.phases.iter().map(|(phase, n)| format!("{n} {phase}")).collect();
    println!("nodes: {}", counts.join(", "));
    for node in &status.attention {
        print_attention(node);
    }
    let rows = status.replicas.iter().map(|r| {
        vec![
            format!("replica {}", r.id),
            r.host.as_ref().map_or("?".to_owned(), ToString::to_string),
            if r.leader { "leader" } else { "" }.to_owned(),
            r.lag.map_or(String::new(), |l| format!("{l} entries behind")),
        ]
    });
    table(&["REPLICA", "HOST", "ROLE", "LAG"], rows);
    Ok(ExitCode::SUCCESS)
}

/// `coroner nodes`.
///
/// # Errors
/// No replica answers.
pub(crate) async fn nodes(port: &Port, output: Output) -> anyhow::Result<ExitCode> {
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
    table(&["NODE", "PHASE", "AGE", "DOMAIN", "MODE", "BMC", "REASON"], rows);
    Ok(ExitCode::SUCCESS)
}

/// `coroner explain NODE`.
///
/// # Errors
/// No replica answers, or there is no such node.
pub(crate) async fn explain(port: &Port, output: Output, node: &NodeName) -> anyhow::Result<ExitCode> {
    let explanation: Explanation = port.get(&format!("{NODES}/{node}/explain")).await?.taken()?;
    if output == Output::Json {
        return json(&explanation);
    }
    print_attention(&explanation.summary);
    for sentence in &explanation.sentences {
        println!("- {sentence}");
    }
    if let Some(verdict) = &explanation.verdict {
        println!("The same rule, asked again with this evidence, says: {verdict}");
    }
    Ok(ExitCode::SUCCESS)
}

/// `coroner incidents`.
///
/// # Errors
/// No replica answers.
pub(crate) async fn incidents(port: &Port, output: Output) -> anyhow::Result<ExitCode> {
    let incidents: Vec<IncidentSummary> = port.get(INCIDENTS).await?.taken()?;
    if output == Output::Json {
        return json(&incidents);
    }
    for incident in &incidents {
        let ended =
            incident.closed.as_ref().map_or(String::new(), |(ago, how)| format!(", closed {ago} ago: {how}"));
        println!(
            "{} {} {}{}{}, opened {} ago{ended}",
            incident.incident,
            incident.phase,
            incident.class.as_deref().or(incident.held.as_deref()).unwrap_or(""),
            if incident.observed { " (observed only)" } else { "" },
            incident.waiting_for.as_ref().map_or(String::new(), |w| format!(", waits for {w}")),
            incident.opened_ago,
        );
        for (ago, what, detail) in &incident.timeline {
            println!("    {:>8} ago  {what}  {detail}", ago.to_string());
        }
    }
    if incidents.is_empty() {
        println!("no incidents");
    }
    Ok(ExitCode::SUCCESS)
}

// === helpers ===

fn print_attention(node: &NodeSummary) {
    let reason = node.reason.as_ref().map_or(String::new(), |r| format!(": {r}"));
    println!("{} {} for {}{reason}", node.node, node.phase, node.age);
    println!("    next: {}", node.next);
    if let Some(advice) = &node.advice {
        println!("    you can: {advice}");
    }
    if !node.findings.is_empty() {
        println!("    findings: {}", node.findings.join(", "));
    }
}

fn json(value: &impl Serialize) -> anyhow::Result<ExitCode> {
    println!("{}", serde_json::to_string_pretty(value)?);
    Ok(ExitCode::SUCCESS)
}

/// Columns as wide as their widest cell; the last one as it comes.
fn table(head: &[&str], rows: impl Iterator<Item = Vec<String>>) {
    let mut lines = vec![head.iter().map(|h| (*h).to_owned()).collect::<Vec<_>>()];
    lines.extend(rows);
    let widths: Vec<usize> = (0..head.len())
        .map(|at| lines.iter().filter_map(|l| l.get(at)).map(|c| c.chars().count()).max().unwrap_or(0))
        .collect();
    for line in lines {
        let cells: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        println!("{}", cells.join("  ").trim_end());
    }
}
