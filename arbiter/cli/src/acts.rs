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
    /// Forget which machine is pinned.
    Repin,
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
    if let Some(why) = pointless(verb, &summary) {
        eprintln!("{why}");
        return Ok(ExitCode::from(REFUSED));
    }
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
        Verb::Fence | Verb::ConfirmOff | Verb::Return | Verb::Repin | Verb::ClearHeld => {
            bail!("this act needs a node")
        }
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

/// Why there is nothing to ask for, where that shows already: nobody is made to vouch for what would be refused.
fn pointless(verb: Verb, summary: &NodeSummary) -> Option<String> {
    let NodeSummary { node, phase, incident, boot, .. } = summary;
    let dead = format!(
        "If it is dead all the same, see with `coroner explain {node}` why it does not count as dead; `coroner fence {node} --reason WHY` powers it off, proves that, and releases its workloads."
    );
    match (verb, incident, boot) {
        (Verb::ConfirmOff, None, _) => Some(format!(
            "NothingToConfirm: {node} is {phase} and no incident is open for it. Nothing was done. {dead}"
        )),
        (Verb::ConfirmOff, Some(_), None) => Some(format!(
            "NothingToConfirm: {node} is {phase}, and no boot of it is known that a confirmation could hold for. Nothing was done. {dead}"
        )),
        (Verb::Return, None, _) => Some(format!(
            "NotReturning: {node} is {phase} and no incident is open for it, so there is no return to end. Nothing was done."
        )),
        (Verb::ConfirmOff | Verb::Return, Some(_), _)
        | (Verb::Fence | Verb::Repin | Verb::ClearHeld | Verb::Pause | Verb::Resume, _, _) => None,
    }
}

fn path(verb: Verb) -> &'static str {
    match verb {
        Verb::Fence => "fence",
        Verb::ConfirmOff => "confirm-off",
        Verb::Return => "return",
        Verb::Repin => "repin",
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
        Verb::Repin => format!(
            "The machine pinned for {node} is forgotten. Nothing can power it off until its MachineBinding is verified again while it is well; the machine found then is pinned."
        ),
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

#[cfg(test)]
mod tests;
