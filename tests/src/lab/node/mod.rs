//! What runs as a machine: from the program that becomes one to the process number 1 that keeps its services alive.
//!
//! ```text
//! coroner-lab machine SPEC        joins the machine's control group and network, leaves the host's other namespaces
//!   coroner-lab node-init SPEC    number 1: own root (root.rs), containerd, images, CSI, kubelet (services.rs); reaps
//! ```
//!
//! Both are single-threaded, because namespaces can only be left before the first thread starts. Their stdin is the
//! leash: it ends when the lab's server does, and the machine with it, so that a killed server leaves no machine.
//! Signals are handled and not blocked: a service would inherit what is blocked.

mod enter;
mod root;
mod services;

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
    process::Command,
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::{
    errno::Errno,
    sched::{CloneFlags, setns, unshare},
    sys::{
        signal::{Signal, kill},
        wait::{WaitPidFlag, WaitStatus, waitpid},
    },
    unistd::Pid,
};
use serde::{Deserialize, Serialize};
use tokio::signal::unix::{SignalKind, signal};

use self::services::Services;
use super::{
    cgroup::{Group, Layout},
    end::Leash,
    shell::run_with_input,
};

pub use self::enter::enter;

/// How long a machine that is asked to end may take before it is simply gone.
const SHUTDOWN_GRACE: Duration = Duration::from_secs(2);

/// All that a machine knows about itself at power-on.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Spec {
    /// Node name and host name.
    pub name: String,
    /// Machine identity.
    pub uuid: String,
    /// Network namespace.
    pub netns: String,
    /// Control group.
    pub cgroup: String,
    /// Address of the data link.
    pub address: String,
    /// Where it sends what is for nobody on its link.
    pub gateway: String,
    /// Its network interfaces.
    pub links: Vec<String>,
    /// Range of its pods.
    pub pod_range: String,
    /// Its folder: `host`, `disk`, `log`, `pki`, `images`, `manifests`.
    pub dir: PathBuf,
    /// Folder of shared volumes.
    pub volumes: PathBuf,
    /// Folder of `kubelet` and `lab-csi`.
    pub programs: PathBuf,
    /// Folder of archives that every machine imports.
    pub images: PathBuf,
    /// The pods' sandbox image.
    pub pause_image: String,
    /// From power-on to the first service.
    pub boot_delay_ms: u64,
    /// What is kept from pods, so that the rest is what a machine of this lab has.
    pub reserved_cpu_millis: u64,
    /// As above, in MiB.
    pub reserved_memory_mib: u64,
}

impl Spec {
    /// Reads the file that the server wrote.
    ///
    /// # Errors
    /// When it is not there or not a spec.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read(path).with_context(|| format!("read {}", path.display()))?;
        serde_json::from_slice(&text).with_context(|| format!("understand {}", path.display()))
    }
}

/// Becomes the machine of `spec_path` and returns when its life is over.
///
/// # Errors
/// When a namespace cannot be entered or left. The machine is off then.
pub fn run_machine(spec_path: &Path) -> Result<()> {
    let spec = Spec::read(spec_path)?;
    let layout = Layout::detect()?;
    let group = Group::new(&layout, &spec.cgroup);
    group.join(std::process::id()).with_context(|| format!("{}: enter its control group", spec.name))?;
    let netns = Path::new("/run/netns").join(&spec.netns);
    let netns = File::open(&netns).with_context(|| format!("open {}", netns.display()))?;
    setns(netns, CloneFlags::CLONE_NEWNET).with_context(|| format!("{}: enter its network", spec.name))?;
    let own = CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWCGROUP;
    unshare(own).with_context(|| format!("{}: leave the host's namespaces", spec.name))?;
    if let Layout::V2(_) = layout {
        // The root of the new namespace gives controllers to pods, so it may hold no process itself.
        let leaf = Group::new(&layout, &format!("{}/init", spec.cgroup));
        leaf.create()?;
        leaf.join(std::process::id())?;
    }
    let mut init = Command::new(std::env::current_exe().context("find coroner-lab")?);
    let status =
        init.arg("node-init").arg(spec_path).status().with_context(|| format!("{}: start", spec.name))?;
    eprintln!("{}: number 1 ended: {status}", spec.name);
    Ok(())
}

/// Runs as number 1 of the machine until the leash ends or it is asked to.
///
/// # Errors
/// When the machine cannot come up; what failed is in its log.
pub fn run_init(spec_path: &Path) -> Result<()> {
    ensure!(std::process::id() == 1, "node-init is number 1 of a machine; `coroner-lab machine` starts it");
    let spec = Spec::read(spec_path)?;
    root::build(&spec).with_context(|| format!("{}: build its root", spec.name))?;
    // While its firmware is at work, a machine is on and answers nobody.
    sleep(Duration::from_millis(spec.boot_delay_ms));
    set_links_up(&spec).with_context(|| format!("{}: set its links up", spec.name))?;
    let mut services =
        Services::start(&spec).with_context(|| format!("{}: start its services", spec.name))?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("start a runtime")?;
    runtime.block_on(async {
        let mut children = signal(SignalKind::child()).context("listen for ended children")?;
        let mut term = signal(SignalKind::terminate()).context("listen for the power button")?;
        let mut leash = Leash::of_stdin()?;
        loop {
            // First, for those that ended before anybody listened.
            reap(&mut services)?;
            tokio::select! {
                _ = children.recv() => {}
                _ = term.recv() => return shut_down(),
                () = leash.ends() => {
                    eprintln!("the lab's server is gone");
                    return Ok(());
                }
            }
        }
    })
}

fn set_links_up(spec: &Spec) -> Result<()> {
    let mut commands: String = spec.links.iter().map(|link| format!("link set {link} up\n")).collect();
    commands.push_str(&format!("route add default via {}\n", spec.gateway));
    run_with_input("ip", ["-batch", "-"], &commands).map(drop)
}

/// Takes every child that ended; a service among them is started again, as an init system would.
fn reap(services: &mut Services) -> Result<()> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) | Err(Errno::ECHILD) => return Ok(()),
            Ok(status) => {
                if let Some(pid) = status.pid() {
                    services.ended(pid.as_raw(), &format!("{status:?}"))?;
                }
            }
            Err(Errno::EINTR) => {}
            Err(error) => return Err(error).context("wait for children"),
        }
    }
}

/// The polite end: everybody is asked, and whoever stays goes with number 1.
fn shut_down() -> Result<()> {
    match kill(Pid::from_raw(-1), Signal::SIGTERM) {
        Ok(()) | Err(Errno::ESRCH) => {}
        Err(error) => return Err(error).context("ask everybody to end"),
    }
    let step = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    while waited < SHUTDOWN_GRACE {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Err(Errno::ECHILD) => break,
            Ok(WaitStatus::StillAlive) => {
                sleep(step);
                waited += step;
            }
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}
