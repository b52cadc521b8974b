//! What operators may ask for. Each act says what will follow, asks, and is bound to what the person looked at.

use std::io::{BufRead, IsTerminal, Write};
use std::process::ExitCode;

use anyhow::{Context, bail};
use coroner_shared::api::{Act, ActAnswer, Bound, NODES, NodeSummary, PAUSE, RESUME};
use coroner_shared::id::NodeName;

use crate::args::Consent;
use crate::port::Port;

/// Exit code of a refusal.
const REFUSED: u8 = 3;

/// An act.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    /// Order a node off.
    Fence,
    /// A person vouches that the machine is off.
    ConfirmOff,
    /// End a return that waits.
    Return,
    /// Clear a hold that only a person ends.
    ClearHeld,
    /// Stop all power commands.
    Pause,
    /// End that.
    Resume,
}

/// An act on one node.
///
/// # Errors
/// No replica answers, nobody consents, or there is nothing to act on.
pub(crate) async fn on_node(
    port: &Port,
    verb: Verb,
    node: &NodeName,
    consent: &Consent,
) -> anyhow::Result<ExitCode> {
    let summary: NodeSummary = port.get(&format!("{NODES}/{node}")).await?.taken()?;
    let uid = summary
        .uid
        .clone()
        .with_context(|| format!("node {node} has no Node object yet; there is nothing to act on"))?;
    println!(
        "{node}: {}{}",
        summary.phase,
        summary.reason.as_ref().map_or(String::new(), |r| format!(" ({r})"))
    );
    println!("{}", consequence(verb, node));
    ask(consent)?;
    let bound = Bound { incident: summary.incident, uid, boot: summary.boot };
    send(port, &format!("{NODES}/{node}/{}", path(verb)), consent, Some(bound)).await
}

/// An act on everything.
///
/// # Errors
/// No replica answers, or nobody consents.
pub(crate) async fn on_all(port: &Port, verb: Verb, consent: &Consent) -> anyhow::Result<ExitCode> {
    let path = match verb {
        Verb::Pause => PAUSE,
        Verb::Resume => RESUME,
        Verb::Fence | Verb::ConfirmOff | Verb::Return | Verb::ClearHeld => bail!("this act needs a node"),
    };
    send(port, path, consent, None).await
}

async fn send(port: &Port, path: &str, consent: &Consent, bound: Option<Bound>) -> anyhow::Result<ExitCode> {
    if consent.reason.trim().is_empty() {
        bail!("--reason is empty; say why in your own words, it is recorded with your name");
    }
    let act = Act { why: consent.reason.clone(), key: fresh_key()?, bound, name: port.typed_name() };
    match port.post::<ActAnswer>(path, &act).await?.body {
        Ok(answer) => {
            println!("{}: {}", answer.result, answer.message);
            Ok(ExitCode::SUCCESS)
        }
        Err(refusal) => {
            eprintln!("{}: {}", refusal.reason, refusal.message);
            Ok(ExitCode::from(REFUSED))
        }
    }
}

fn path(verb: Verb) -> &'static str {
    match verb {
        Verb::Fence => "fence",
        Verb::ConfirmOff => "confirm-off",
        Verb::Return => "return",
        Verb::ClearHeld => "clear-held",
        Verb::Pause => "pause",
        Verb::Resume => "resume",
    }
}

fn consequence(verb: Verb, node: &NodeName) -> String {
    match verb {
        Verb::Fence => format!(
            "{node} will be powered off, even if it is well, and its workloads will restart elsewhere once that is proven."
        ),
        Verb::ConfirmOff => format!(
            "You vouch that the machine of {node} is off and stays off. Its workloads restart elsewhere at once. If it still runs, two copies will write to the same volumes."
        ),
        Verb::Return => format!("{node} will be taken back into service: our taint and cordon are removed."),
        Verb::ClearHeld => format!("{node} will be judged as any other node again."),
        Verb::Pause | Verb::Resume => String::new(),
    }
}

/// Asks on a terminal; elsewhere `--yes` must have been given.
fn ask(consent: &Consent) -> anyhow::Result<()> {
    if consent.yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() {
        bail!("nobody to ask: standard input is no terminal; give --yes if you are sure");
    }
    print!("Type yes to go on: ");
    std::io::stdout().flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    if line.trim() == "yes" { Ok(()) } else { bail!("not confirmed; nothing was done") }
}

/// A key that makes this act happen once, however often it is sent.
fn fresh_key() -> anyhow::Result<String> {
    let mut bytes = [0_u8; 16];
    getrandom::fill(&mut bytes).map_err(|e| anyhow::anyhow!("no random bytes: {e}"))?;
    Ok(coroner_shared::hex::Hex(&bytes).to_string())
}
