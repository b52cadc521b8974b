//! From a configuration to a running lab, step by step: networks, control plane, images, machines, Ready.

use std::{collections::BTreeMap, fs, path::PathBuf, sync::Arc, thread};

use anyhow::{Context, Result, anyhow};
use serde_json::Value;

use super::{
    cgroup::{Group, Layout},
    cluster::ControlPlane,
    cuts::Target,
    gate::Gate,
    images,
    machine::{Hands, Machine},
    net::Net,
    node::Spec,
    plan::{LabConfig, MachinePlan, PAUSE_IMAGE, Plan},
    shell::run,
    slot,
    truth::{Event, Truth, now_ns},
};

/// A running lab, as its server holds it.
#[derive(Debug)]
pub(super) struct Hardware {
    pub(super) plan: Plan,
    pub(super) net: Arc<Net>,
    pub(super) machines: BTreeMap<String, Arc<Machine>>,
    /// `coroner-lab` itself, which machines are made with.
    pub(super) program: PathBuf,
    truth: Arc<Truth>,
}

// === impl Hardware ===

impl Hardware {
    pub(super) fn machine(&self, name: &str) -> Result<&Arc<Machine>> {
        self.plan.machine(name)?;
        self.machines.get(name).with_context(|| format!("no machine {name}"))
    }

    /// Writes down what was done to a cable, with the life of the machine it belongs to.
    pub(super) fn record(&self, target: &Target, event: Event, detail: Value) -> Result<Value> {
        let machine = target.machine();
        let boot_id =
            machine.and_then(|name| self.machines.get(name)).map(|machine| machine.state()).transpose()?;
        self.truth.record(machine, boot_id.and_then(|state| state.boot_id).as_deref(), event, detail)?;
        Ok(Value::Null)
    }
}

/// Builds the lab; `say` hears of each step and how long it took.
///
/// # Errors
/// When a step fails, or the gate closes meanwhile.
pub(super) fn build(
    config: &LabConfig,
    layout: &Layout,
    gate: &Arc<Gate>,
    say: &dyn Fn(&str),
) -> Result<Hardware> {
    let names = super::plan::Names::new(&config.name)?;
    let inside = gate.pass()?;
    let plan = Plan::new(config, slot::claim(&names)?)?;
    let text = serde_json::to_vec_pretty(&plan).context("write the plan as JSON")?;
    fs::write(names.state().join("plan.json"), text).context("write plan.json")?;
    let truth = Arc::new(Truth::open(&names.truth())?);
    let program = std::env::current_exe().context("find coroner-lab")?;
    drop(inside);

    let mut clock = Clock::start(say)?;
    let control_plane = clock.step(gate, "programs found", || ControlPlane::find(config, &plan, say))?;
    let net = clock.step(gate, "networks built", || Net::build(&plan).map(Arc::new))?;
    clock.step(gate, "control plane up", || control_plane.up(say))?;
    clock.step(gate, "images kept", || keep_images(config, &plan))?;
    let machines = clock.step(gate, "machines laid out", || {
        let mut machines = BTreeMap::new();
        for machine in &plan.machines {
            let spec = spec(config, &plan, machine, &control_plane)?;
            control_plane.credentials(&machine.name, &machine.address.to_string(), &spec.dir.join("pki"))?;
            let group = Group::new(layout, &spec.cgroup);
            let made = Machine::new(machine, spec, group, Hands::of(&net, &truth, gate))?;
            machines.insert(machine.name.clone(), Arc::new(made));
        }
        Ok(machines)
    })?;
    let lab = Hardware { plan, net, machines, program, truth };
    clock.step(gate, "machines on", || switch_all_on(&lab))?;
    clock.step(gate, "all nodes Ready", || {
        let mut boot_ids = BTreeMap::new();
        for (name, machine) in &lab.machines {
            boot_ids
                .insert(name.clone(), machine.state()?.boot_id.with_context(|| format!("{name} went off"))?);
        }
        control_plane.wait_ready(&boot_ids, &|| gate.check())?;
        control_plane.label_racks()
    })?;
    Ok(lab)
}

fn spec(
    config: &LabConfig,
    plan: &Plan,
    machine: &MachinePlan,
    control_plane: &ControlPlane,
) -> Result<Spec> {
    let names = &plan.names;
    let (cpu_millis, memory_mib) = host_size()?;
    Ok(Spec {
        name: machine.name.clone(),
        uuid: machine.uuid.clone(),
        netns: names.netns(&machine.name),
        cgroup: names.cgroup_of(&machine.name),
        address: machine.address.to_string(),
        gateway: plan.api_address.to_string(),
        links: std::iter::once("eth0".to_owned())
            .chain(machine.bmc_link_address.map(|_| "bmc0".to_owned()))
            .collect(),
        pod_range: machine.pod_range.clone(),
        dir: names.machine_dir(&machine.name),
        volumes: names.volumes(),
        programs: control_plane.programs().to_owned(),
        images: names.state().join("images"),
        pause_image: PAUSE_IMAGE.into(),
        boot_delay_ms: config.boot_delay_ms,
        reserved_cpu_millis: cpu_millis.saturating_sub(config.node_cpu_millis),
        reserved_memory_mib: memory_mib.saturating_sub(config.node_memory_mib),
    })
}

/// What each kubelet will find: thousandths of a core, and MiB.
fn host_size() -> Result<(u64, u64)> {
    let cores = thread::available_parallelism().context("count the cores")?.get();
    let cores = u64::try_from(cores).context("count the cores")?;
    let memory = fs::read_to_string("/proc/meminfo").context("read the size of memory")?;
    let kib = memory
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:"))
        .and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok())
        .context("find the size of memory")?;
    Ok((cores * 1000, kib / 1024))
}

fn keep_images(config: &LabConfig, plan: &Plan) -> Result<()> {
    let state = plan.names.state();
    let dir = state.join("images");
    let pause = state.join("pause.tar");
    images::from_program(&config.pause_program, &["pause"], PAUSE_IMAGE, &pause, &state.join("image-build"))?;
    for archive in config.images.iter().chain([&pause]) {
        images::keep(archive, &dir)?;
    }
    fs::remove_file(&pause).context("remove the first copy of the pause image")
}

fn switch_all_on(lab: &Hardware) -> Result<()> {
    thread::scope(|scope| {
        let started: Vec<_> =
            lab.machines.values().map(|machine| scope.spawn(|| machine.on(&lab.program))).collect();
        for thread in started {
            thread.join().map_err(|_| anyhow!("a power-on panicked"))??;
        }
        Ok(())
    })
}

/// Says how long each step took.
struct Clock<'a> {
    say: &'a dyn Fn(&str),
    last_ns: u64,
}

impl<'a> Clock<'a> {
    fn start(say: &'a dyn Fn(&str)) -> Result<Self> {
        Ok(Self { say, last_ns: now_ns()? })
    }

    fn step<T>(&mut self, gate: &Gate, done: &str, act: impl FnOnce() -> Result<T>) -> Result<T> {
        let _inside = gate.pass()?;
        let result = act()?;
        let now = now_ns()?;
        (self.say)(&format!("{done}: {} ms", (now - self.last_ns) / 1_000_000));
        self.last_ns = now;
        Ok(result)
    }
}

/// Programs of the host without which there is no lab, and the Debian packages that hold them.
const NEEDED: [(&str, &str); 6] = [
    ("ip", "iproute2"),
    ("nft", "nftables"),
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("buildah", "buildah"),
    ("unshare", "util-linux"),
];

/// Looks for what a lab needs from its host.
///
/// # Errors
/// Says what to install, or that one has to be root.
pub fn check_host() -> Result<()> {
    anyhow::ensure!(
        nix::unistd::geteuid().is_root(),
        "the lab makes namespaces and control groups: run it as root"
    );
    let mut packages = Vec::new();
    for (program, package) in NEEDED {
        if run("sh", ["-c", &format!("command -v {program}")]).is_err() {
            packages.push(package);
        }
    }
    if !std::path::Path::new("/usr/lib/cni/bridge").exists() {
        packages.push("containernetworking-plugins");
    }
    anyhow::ensure!(packages.is_empty(), "missing: apt-get install {}", packages.join(" "));
    Ok(())
}
