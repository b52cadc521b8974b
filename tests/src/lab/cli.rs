//! The command line of `coroner-lab`.

use std::{
    ffi::OsString,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
};

use anyhow::{Context, Result, bail};
use clap::{Args, Parser, Subcommand, ValueEnum};
use serde_json::Value;

use super::{
    client::ask_blocking,
    cuts::{Cut, Direction, Target},
    handle::{self, Lab},
    node,
    plan::{LabConfig, Names, Plan},
    protocol::{Listing, MachineState, Power, Request},
    server,
};

/// A real Kubernetes cluster on this machine, whose machines can lose power.
#[derive(Debug, Parser)]
#[command(name = "coroner-lab", version)]
pub struct Cli {
    /// Which lab, 1 to 8 of a-z and 0-9.
    #[arg(long, global = true, default_value = "lab", env = "CORONER_LAB")]
    name: String,
    #[command(subcommand)]
    command: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Bring a lab up; without --keep it goes away at Ctrl-C.
    Up(Up),
    /// Take it down, or what a killed one left.
    Down,
    /// Switch a machine on.
    On(One),
    /// Cut its power.
    Off(One),
    /// Press its power button.
    Shutdown(One),
    /// Make it hang.
    Freeze(One),
    /// End its hang.
    Thaw(One),
    /// What is true of a machine.
    State(One),
    /// All machines and cuts.
    List,
    /// Let something pass no more.
    Cut(CutArgs),
    /// Let it pass again; without a kind, everything.
    Heal(HealArgs),
    /// Run a command inside a machine.
    Exec(Exec),
    /// Give an OCI archive to all machines, or to one.
    Import {
        /// The archive.
        archive: PathBuf,
        /// Only this one.
        #[arg(long)]
        machine: Option<String>,
    },
    /// Exports for a shell that is to reach the cluster: eval "$(coroner-lab env)".
    Env,
    /// kubectl as administrator.
    #[command(trailing_var_arg = true, disable_help_flag = true)]
    Kubectl {
        /// What kubectl is to do.
        #[arg(allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
    /// Own the lab of a configuration file (what `up` starts).
    #[command(hide = true)]
    Serve {
        config: PathBuf,
        /// End when stdin does.
        #[arg(long)]
        leash: bool,
    },
    /// Become a machine (what a power-on starts).
    #[command(hide = true)]
    Machine { spec: PathBuf },
    /// Be number 1 of a machine.
    #[command(hide = true)]
    NodeInit { spec: PathBuf },
    /// Run a command in a machine, by its control group and number 1.
    #[command(hide = true)]
    Enter {
        cgroup: String,
        init: i32,
        #[arg(last = true)]
        argv: Vec<OsString>,
    },
}

#[derive(Debug, Args)]
struct One {
    /// Name of the machine, n1...
    machine: String,
}

#[derive(Debug, Args)]
struct Up {
    /// Racks and machines in each.
    #[arg(long, default_value = "3x2")]
    racks: String,
    /// OCI archive for every machine; may be repeated.
    #[arg(long)]
    image: Vec<PathBuf>,
    /// Machine with a second link, to the BMC network; may be repeated [default: the first of each rack].
    #[arg(long)]
    replica: Vec<String>,
    /// Static program that does nothing when called with `pause` (lab-writer).
    #[arg(long)]
    pause: PathBuf,
    /// From power-on to the first service, in milliseconds.
    #[arg(long, default_value_t = 0)]
    boot_delay_ms: u64,
    /// The program that starts the control plane [default: hack/control-plane of this checkout].
    #[arg(long)]
    control_plane: Option<PathBuf>,
    /// One more word for `hack/control-plane up`; may be repeated.
    #[arg(long, allow_hyphen_values = true)]
    control_plane_arg: Vec<String>,
    /// Where to keep logs and the oracles' files when the lab goes away.
    #[arg(long)]
    artifacts: Option<PathBuf>,
    /// Return when it is up, and leave it there.
    #[arg(long)]
    keep: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    Link,
    Api,
    Pair,
    Rack,
    BmcLink,
    Bmc,
    BmcNetwork,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Way {
    Both,
    Out,
    In,
}

#[derive(Debug, Args)]
struct CutArgs {
    /// What kind of cut.
    kind: Kind,
    /// Of which machine or rack; for a pair, two machines.
    names: Vec<String>,
    /// Which way, seen from the machine, the rack or the BMCs.
    #[arg(long, value_enum, default_value_t = Way::Both)]
    direction: Way,
    /// Percent of packets that are lost by chance, instead of all.
    #[arg(long)]
    loss: Option<u8>,
}

#[derive(Debug, Args)]
struct HealArgs {
    /// As it was cut.
    kind: Option<Kind>,
    /// As it was cut.
    names: Vec<String>,
}

#[derive(Debug, Args)]
struct Exec {
    /// Name of the machine.
    machine: String,
    /// Program and arguments.
    #[arg(last = true, required = true)]
    argv: Vec<OsString>,
}

// === impl Cli ===

impl Cli {
    /// Does what was asked.
    ///
    /// # Errors
    /// With what went wrong, for people.
    pub fn run(self) -> Result<ExitCode> {
        let names = Names::new(&self.name)?;
        let ask = |request: Request| show(&names, &request);
        match self.command {
            Verb::Up(args) => up(&self.name, args)?,
            Verb::Down => handle::down(&self.name)?,
            Verb::On(One { machine }) => ask(Request::On { machine })?,
            Verb::Off(One { machine }) => ask(Request::Off { machine })?,
            Verb::Shutdown(One { machine }) => ask(Request::Shutdown { machine })?,
            Verb::Freeze(One { machine }) => ask(Request::Freeze { machine })?,
            Verb::Thaw(One { machine }) => ask(Request::Thaw { machine })?,
            Verb::State(One { machine }) => ask(Request::State { machine })?,
            Verb::List => list(&names)?,
            Verb::Cut(args) => ask(Request::Cut(cut(&args)?))?,
            Verb::Heal(args) => {
                let target = args.kind.map(|kind| target(kind, &args.names)).transpose()?;
                ask(Request::Heal { target })?;
            }
            Verb::Exec(args) => return exec(&names, &args),
            Verb::Import { archive, machine } => {
                let archive = std::path::absolute(archive).context("find the archive")?;
                ask(Request::Import { machine, archive })?;
            }
            Verb::Env => env(&names)?,
            Verb::Kubectl { args } => return Err(kubectl(&names, &args)),
            Verb::Serve { config, leash } => server::serve(&config, leash)?,
            Verb::Machine { spec } => node::run_machine(&spec)?,
            Verb::NodeInit { spec } => node::run_init(&spec)?,
            Verb::Enter { cgroup, init, argv } => {
                return node::enter(&cgroup, init, &argv).map(ExitCode::from);
            }
        }
        Ok(ExitCode::SUCCESS)
    }
}

fn up(name: &str, args: Up) -> Result<()> {
    let mut config = LabConfig::new(name, &args.racks)?.replicas(args.replica);
    for archive in args.image {
        config = config.image(std::path::absolute(archive).context("find an image archive")?);
    }
    config.pause_program = std::path::absolute(args.pause).context("find the pause program")?;
    config.boot_delay_ms = args.boot_delay_ms;
    config.control_plane_args = args.control_plane_arg;
    if let Some(program) = args.control_plane {
        config.control_plane = std::path::absolute(program).context("find the control plane's program")?;
    }
    config.artifacts =
        args.artifacts.map(std::path::absolute).transpose().context("find the artifacts' folder")?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    runtime.block_on(stay(config, args.keep))
}

async fn stay(config: LabConfig, keep: bool) -> Result<()> {
    let name = config.name.clone();
    let say = |line: &str| eprintln!("{line}");
    let mut term = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate())
        .context("listen for SIGTERM")?;
    let mut end = std::pin::pin!(async {
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = term.recv() => {}
        }
    });
    if keep {
        // Interrupted while it comes up, it goes away like any other.
        let plan = tokio::select! {
            plan = Lab::up_to_stay(config, say) => plan?,
            () = &mut end => bail!("interrupted"),
        };
        eprintln!(
            "lab {name} is up: eval \"$(coroner-lab env --name {name})\"; coroner-lab down --name {name}"
        );
        return shown(&plan);
    }
    let lab = tokio::select! {
        lab = Lab::up(config, say) => lab?,
        () = &mut end => bail!("interrupted"),
    };
    eprintln!("lab {name} is up until Ctrl-C: eval \"$(coroner-lab env --name {name})\"");
    shown(lab.plan())?;
    end.await;
    lab.down().await
}

fn shown(plan: &Plan) -> Result<()> {
    for machine in &plan.machines {
        println!(
            "{} {} {} bmc {} {}",
            machine.name, machine.rack, machine.address, machine.bmc_address, machine.uuid
        );
    }
    println!("kubeconfig {}", plan.names.kubeconfig().display());
    Ok(())
}

fn show(names: &Names, request: &Request) -> Result<()> {
    let answer: Value = ask_blocking(&names.socket(), request)?;
    println!("{answer}");
    Ok(())
}

fn list(names: &Names) -> Result<()> {
    let listing: Listing = ask_blocking(&names.socket(), &Request::List)?;
    for machine in listing.machines {
        let power = match machine.power {
            Power::On if machine.frozen => "hangs",
            Power::On => "on",
            Power::Off => "off",
        };
        let boot_id = machine.boot_id.as_deref().unwrap_or("-");
        println!("{} {power} {} {} {boot_id}", machine.machine, machine.rack, machine.address);
    }
    for cut in listing.cuts {
        println!("cut {}", serde_json::to_string(&cut).context("show a cut")?);
    }
    Ok(())
}

fn cut(args: &CutArgs) -> Result<Cut> {
    let direction = match args.direction {
        Way::Both => Direction::Both,
        Way::Out => Direction::Out,
        Way::In => Direction::In,
    };
    Ok(Cut { target: target(args.kind, &args.names)?, direction, loss: args.loss })
}

fn target(kind: Kind, names: &[String]) -> Result<Target> {
    Ok(match (kind, names) {
        (Kind::Link, [machine]) => Target::Link { machine: machine.clone() },
        (Kind::Api, []) => Target::Api { machine: None },
        (Kind::Api, [machine]) => Target::Api { machine: Some(machine.clone()) },
        (Kind::Pair, [machine, peer]) => Target::Pair { machine: machine.clone(), peer: peer.clone() },
        (Kind::Rack, [rack]) => Target::Rack { rack: rack.clone() },
        (Kind::BmcLink, [machine]) => Target::BmcLink { machine: machine.clone() },
        (Kind::Bmc, [machine]) => Target::Bmc { machine: machine.clone() },
        (Kind::BmcNetwork, []) => Target::BmcNetwork,
        (kind, names) => bail!(
            "{kind:?} does not go with {names:?}: link|bmc-link|bmc MACHINE, api [MACHINE], pair MACHINE PEER, rack RACK, bmc-network"
        ),
    })
}

/// In this process, so that the command has this terminal.
fn exec(names: &Names, args: &Exec) -> Result<ExitCode> {
    let state: MachineState =
        ask_blocking(&names.socket(), &Request::State { machine: args.machine.clone() })?;
    let init = state.init.with_context(|| format!("{} is off", args.machine))?;
    node::enter(&names.cgroup_of(&args.machine), init, &args.argv).map(ExitCode::from)
}

fn env(names: &Names) -> Result<()> {
    let kubeconfig = names.kubeconfig();
    anyhow::ensure!(kubeconfig.exists(), "lab {} is not up", names.lab);
    println!("export CORONER_LAB={}", names.lab);
    println!("export KUBECONFIG={}", kubeconfig.display());
    println!("export PATH={}:\"$PATH\"", kubectl_dir(names).display());
    Ok(())
}

fn kubectl(names: &Names, args: &[OsString]) -> anyhow::Error {
    let program = kubectl_dir(names).join("kubectl");
    let error = Command::new(&program)
        .arg(format!("--kubeconfig={}", names.kubeconfig().display()))
        .args(args)
        .exec();
    anyhow::Error::from(error).context(format!("start {}; is lab {} up?", program.display(), names.lab))
}

fn kubectl_dir(names: &Names) -> PathBuf {
    Path::new(&names.state()).join("control-plane/bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        <Cli as clap::CommandFactory>::command().debug_assert();
    }
}
