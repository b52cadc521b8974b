//! `lab-bmc`: the Redfish BMCs of the lab in one process. What they do is in `lab/emulator`; here are the arguments.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use clap::{Args, Parser};
use coroner_tests::lab::emulator::control::{self, Control};
use coroner_tests::lab::emulator::machine::{LabMachine, Machine, SimMachine};
use coroner_tests::lab::emulator::{BmcConfig, Emulator};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

/// Redfish BMCs with a ledger and knobs, in front of the lab's machines.
#[derive(Parser)]
enum Cli {
    /// Serve the BMCs of a configuration until SIGTERM; prints `ready` when all of them listen.
    Serve(Serve),
    /// Send one command (a line of JSON) to a running emulator and print its answer.
    Control(Line),
}

#[derive(Args)]
struct Serve {
    /// JSON list of {name, address, uuid, machine, username, password_file}.
    #[arg(long)]
    config: PathBuf,
    /// Folder for the CA, the keys and the ledger.
    #[arg(long)]
    state: PathBuf,
    /// The control socket to make.
    #[arg(long)]
    control: PathBuf,
    /// End when standard input does, so as not to outlive a test that was killed.
    #[arg(long)]
    until_stdin_ends: bool,
    #[command(flatten)]
    machines: Machines,
}

#[derive(Args)]
#[group(required = true, multiple = false)]
struct Machines {
    /// The lab's unix socket, which owns the true machines.
    #[arg(long)]
    lab_socket: Option<PathBuf>,
    /// Simulated machines instead: on at the start, and nothing but a flag.
    #[arg(long)]
    simulated: bool,
}

#[derive(Args)]
struct Line {
    /// The control socket of the emulator.
    #[arg(long)]
    control: PathBuf,
    /// The command, such as '{"op":"status"}'.
    command: String,
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    rustls::crypto::ring::default_provider().install_default().ok();
    match Cli::parse() {
        Cli::Serve(serve) => run(serve).await,
        Cli::Control(Line { control, command }) => {
            println!("{}", Control::new(&control).line(&command).await?);
            Ok(())
        }
    }
}

async fn run(serve: Serve) -> anyhow::Result<()> {
    let Serve { config, state, control, until_stdin_ends, machines } = serve;
    let text = std::fs::read_to_string(&config).with_context(|| format!("read {}", config.display()))?;
    let configs: Vec<BmcConfig> = serde_json::from_str(&text).context("understand the configuration")?;
    let emulator = Arc::new(Emulator::start(&configs, &state, |bmc| machines.machine(bmc))?);
    let socket = listen(&control)?;
    let mut terminate = signal(SignalKind::terminate()).context("listen for SIGTERM")?;
    println!("ready");
    tokio::select! {
        ended = control::serve(socket, Arc::clone(&emulator)) => ended.context("serve the control socket"),
        _ = terminate.recv() => Ok(()),
        () = stdin_ends(), if until_stdin_ends => Ok(()),
    }
}

/// Not tokio's stdin: its reading thread would keep the runtime from ending at SIGTERM.
async fn stdin_ends() {
    let (ended, end) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        std::io::copy(&mut std::io::stdin(), &mut std::io::sink()).ok();
        ended.send(())
    });
    end.await.ok();
}

/// A socket file of an emulator that was killed is replaced.
fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    if path.exists() && std::os::unix::net::UnixStream::connect(path).is_err() {
        std::fs::remove_file(path).context("remove the old control socket")?;
    }
    UnixListener::bind(path).with_context(|| format!("listen at {}", path.display()))
}

impl Machines {
    fn machine(&self, bmc: &BmcConfig) -> Arc<dyn Machine> {
        match &self.lab_socket {
            Some(socket) => Arc::new(LabMachine { socket: socket.clone(), machine: bmc.machine.clone() }),
            None => Arc::new(SimMachine::new()),
        }
    }
}
