//! The command line, and which command does what.
//!
//! Exit codes: 0 done; 1 something failed; 2 the command line is wrong; 3 Coroner refused, and said why.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args as ClapArgs, Parser, Subcommand, ValueEnum};
use coroner_shared::id::NodeName;

use crate::port::Port;
use crate::{acts, init, show};

/// Proves that a silent Kubernetes node is dead before its workloads restart elsewhere.
#[derive(Parser)]
#[command(
    name = "coroner",
    version,
    after_help = "Exit codes: 0 done, 1 failed, 2 wrong command line, 3 refused."
)]
pub(crate) struct Args {
    #[command(flatten)]
    reach: Reach,
    /// Human text, or JSON as the API gives it.
    #[arg(short, long, global = true, default_value = "text")]
    output: Output,
    #[command(subcommand)]
    command: Command,
}

/// How a replica is reached.
#[derive(ClapArgs, Clone)]
pub(crate) struct Reach {
    /// Kubernetes configuration, to find the replicas and their CA (ConfigMap coroner-trust).
    #[arg(long, global = true, env = "KUBECONFIG")]
    pub(crate) kubeconfig: Option<PathBuf>,
    /// Namespace that Coroner runs in.
    #[arg(long, global = true, default_value = coroner_shared::names::NAMESPACE)]
    pub(crate) namespace: String,
    /// File with a Kubernetes token that shows who you are (`kubectl create token ...`); else the kubeconfig's.
    #[arg(long, global = true, env = "CORONER_TOKEN_FILE")]
    pub(crate) token_file: Option<PathBuf>,
    /// Trust file (cluster.json) instead of the ConfigMap, for when the API server is down.
    #[arg(long, global = true)]
    pub(crate) trust_file: Option<PathBuf>,
    /// Root-only socket of a replica's host: break-glass, needs no API server and no token.
    #[arg(long, global = true, conflicts_with_all = ["token_file", "trust_file"])]
    pub(crate) socket: Option<PathBuf>,
    /// Your name, for the record; required with --socket.
    #[arg(long, global = true, requires = "socket")]
    pub(crate) name: Option<String>,
}

/// How answers are shown.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// For people.
    Text,
    /// For programs.
    Json,
}

#[derive(Subcommand)]
enum Command {
    /// The cluster in one screen: what needs attention first.
    Status,
    /// Every node: phase, reason, age, what comes next.
    Nodes,
    /// Why a node is alive, held or condemned: the evidence in sentences.
    Explain {
        /// Name of the node.
        node: NodeName,
    },
    /// Deaths and holds, newest first.
    Incidents,
    /// Order a node off although it may be well: identity, proof and brakes stay as ever.
    Fence {
        /// Name of the node.
        node: NodeName,
        #[command(flatten)]
        consent: Consent,
    },
    /// Say that you have made sure a held node's machine is off. Its workloads then restart elsewhere.
    ConfirmOff {
        /// Name of the node.
        node: NodeName,
        #[command(flatten)]
        consent: Consent,
    },
    /// End an incident that waits for its node's return.
    Return {
        /// Name of the node.
        node: NodeName,
        #[command(flatten)]
        consent: Consent,
    },
    /// Forget which machine is pinned for a node, after its board was changed on purpose. The next good verification
    /// of its MachineBinding pins the machine that is found.
    Repin {
        /// Name of the node.
        node: NodeName,
        #[command(flatten)]
        consent: Consent,
    },
    /// Clear a hold that only a person ends (RepeatOffender, SilentBeforeEnforce).
    ClearHeld {
        /// Name of the node.
        node: NodeName,
        #[command(flatten)]
        consent: Consent,
    },
    /// Stop all power commands; proofs, releases and returns go on.
    Pause {
        #[command(flatten)]
        consent: Consent,
    },
    /// End a pause.
    Resume {
        #[command(flatten)]
        consent: Consent,
    },
    /// The arbiter itself.
    Arbiter {
        #[command(subcommand)]
        command: ArbiterCommand,
    },
}

#[derive(Subcommand)]
enum ArbiterCommand {
    /// Make the cluster's id, its CA and the list of replicas from the nodes labelled coroner.dev/arbiter. Safe to
    /// run again: what exists is left alone.
    Init(init::InitArgs),
}

/// Why, and whether to ask.
#[derive(ClapArgs, Clone)]
pub(crate) struct Consent {
    /// Why, in your own words; recorded with your name.
    #[arg(long)]
    pub(crate) reason: String,
    /// Do not ask.
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Runs the command.
///
/// # Errors
/// What went wrong, with what to do.
pub(crate) async fn run(args: Args) -> anyhow::Result<ExitCode> {
    let Args { reach, output, command } = args;
    if let Command::Arbiter { command: ArbiterCommand::Init(init) } = command {
        return init::run(&reach, init).await;
    }
    let port = Port::open(&reach).await?;
    match command {
        Command::Status => show::status(&port, output).await,
        Command::Nodes => show::nodes(&port, output).await,
        Command::Explain { node } => show::explain(&port, output, &node).await,
        Command::Incidents => show::incidents(&port, output).await,
        Command::Fence { node, consent } => acts::on_node(&port, acts::Verb::Fence, &node, &consent).await,
        Command::ConfirmOff { node, consent } => {
            acts::on_node(&port, acts::Verb::ConfirmOff, &node, &consent).await
        }
        Command::Return { node, consent } => acts::on_node(&port, acts::Verb::Return, &node, &consent).await,
        Command::Repin { node, consent } => acts::on_node(&port, acts::Verb::Repin, &node, &consent).await,
        Command::ClearHeld { node, consent } => {
            acts::on_node(&port, acts::Verb::ClearHeld, &node, &consent).await
        }
        Command::Pause { consent } => acts::on_all(&port, acts::Verb::Pause, &consent).await,
        Command::Resume { consent } => acts::on_all(&port, acts::Verb::Resume, &consent).await,
        Command::Arbiter { command: ArbiterCommand::Init(init) } => init::run(&reach, init).await,
    }
}

#[cfg(test)]
mod tests;
