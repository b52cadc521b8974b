//! The power of one machine: on, off, hang, and what is true of it now.
//!
//! Off is what a power cut is to everybody else: first nothing passes on its links, then every process is killed, then
//! its namespace goes with the sockets in it. The answer comes after the last process is gone, and so does `off_done`.

use std::{
    fs::{self, OpenOptions},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::{
    sys::{
        signal::{Signal, kill},
        stat::Mode,
    },
    unistd::{Pid, mkfifo},
};
use serde_json::{Value, json};

use super::{
    cgroup::Group,
    gate::Gate,
    net::Net,
    node::Spec,
    plan::MachinePlan,
    protocol::{MachineState, Power},
    truth::{Event, Truth, now_ns},
};

/// A kill or a freeze that takes longer is a bug of the lab, not of what is tested.
const PATIENCE: Duration = Duration::from_secs(20);

/// One machine, On or Off.
#[derive(Debug)]
pub struct Machine {
    plan: MachinePlan,
    spec: Spec,
    group: Group,
    hands: Hands,
    life: Mutex<Life>,
}

/// What a machine acts with.
#[derive(Clone, Debug)]
pub(super) struct Hands {
    net: Arc<Net>,
    truth: Arc<Truth>,
    gate: Arc<Gate>,
}

/// What is kept about the present life. Whether there is one is asked from the control group.
#[derive(Debug, Default)]
struct Life {
    /// Counts power-ons, so that the end of an old life is not taken for the end of this one.
    number: u64,
    boot_id: Option<String>,
    /// Ends with this process, and the machine with it.
    leash: Option<ChildStdin>,
}

// === impl Hands ===

impl Hands {
    /// Of the lab they belong to.
    pub(super) fn of(net: &Arc<Net>, truth: &Arc<Truth>, gate: &Arc<Gate>) -> Self {
        Self { net: Arc::clone(net), truth: Arc::clone(truth), gate: Arc::clone(gate) }
    }
}

// === impl Machine ===

impl Machine {
    /// A machine that has not been switched on yet. Makes its folders.
    ///
    /// # Errors
    /// When its folders cannot be made.
    pub(super) fn new(plan: &MachinePlan, spec: Spec, group: Group, hands: Hands) -> Result<Self> {
        let machine = Self { plan: plan.clone(), spec, group, hands, life: Mutex::default() };
        machine.lay_out().with_context(|| format!("{}: make its folders", plan.name))?;
        Ok(machine)
    }

    /// Who it is.
    #[must_use]
    pub fn plan(&self) -> &MachinePlan {
        &self.plan
    }

    /// Switches it on. `program` is `coroner-lab`. Returns whether that changed anything.
    ///
    /// # Errors
    /// When it cannot be started; it is off then.
    pub fn on(self: &Arc<Self>, program: &std::path::Path) -> Result<bool> {
        let mut life = self.life();
        if self.group.is_populated()? {
            return Ok(false);
        }
        let result = self.start(&mut life, program);
        if result.is_err() {
            // Half a machine is no machine.
            let _ = match life.boot_id {
                Some(_) => self.end(&mut life, json!({"cause": "power-on failed"})),
                None => self.hands.net.unplug(&self.plan),
            };
        }
        result.with_context(|| format!("{}: switch on", self.plan.name))?;
        Ok(true)
    }

    fn start(self: &Arc<Self>, life: &mut Life, program: &std::path::Path) -> Result<()> {
        self.group.create()?;
        self.group.clear()?;
        let boot_id = fs::read_to_string("/proc/sys/kernel/random/uuid").context("draw a boot id")?;
        let boot_id = boot_id.trim().to_owned();
        fs::write(self.spec.dir.join("host/proc/sys/kernel/random/boot_id"), format!("{boot_id}\n"))
            .context("write the boot id")?;
        self.hands.net.unplug(&self.plan)?;
        self.hands.net.plug(&self.plan)?;
        life.number += 1;
        life.boot_id = Some(boot_id);
        self.hands.truth.record(Some(&self.plan.name), life.boot_id.as_deref(), Event::On, Value::Null)?;
        let mut child = self.spawn(program)?;
        life.leash = child.stdin.take();
        let (machine, number) = (Arc::clone(self), life.number);
        std::thread::Builder::new()
            .name(format!("life of {}", self.plan.name))
            .spawn(move || machine.watch(child, number))
            .context("watch its life")?;
        self.wait_for_init()?;
        self.hands.net.hear(&self.plan.name)
    }

    /// Cuts its power. Returns whether that changed anything.
    ///
    /// # Errors
    /// When something of it lives on.
    pub fn off(&self) -> Result<bool> {
        let mut life = self.life();
        if !self.group.is_populated()? {
            return Ok(false);
        }
        self.end(&mut life, Value::Null)?;
        Ok(true)
    }

    /// Asks it to end by itself, as a power button does. Returns at once; it is off when [`Machine::state`] says so.
    ///
    /// # Errors
    /// When it has no number 1 to ask.
    pub fn shutdown(&self) -> Result<bool> {
        let _life = self.life();
        let Some(init) = self.group.init()? else { return Ok(false) };
        kill(Pid::from_raw(init), Signal::SIGTERM)
            .with_context(|| format!("{}: ask it to end", self.plan.name))?;
        Ok(true)
    }

    /// Makes it hang: nothing runs, nothing answers. Returns whether that changed anything.
    ///
    /// # Errors
    /// When it is off or does not freeze.
    pub fn freeze(&self) -> Result<bool> {
        let life = self.life();
        ensure!(self.group.is_populated()?, "{} is off: what does not run cannot hang", self.plan.name);
        if self.group.is_frozen()? {
            return Ok(false);
        }
        let begin_t = now_ns()?;
        self.hands.net.silence(&self.plan.name)?;
        self.group.freeze(PATIENCE)?;
        self.record(&life, Event::Frozen, json!({"begin_t": begin_t}))?;
        Ok(true)
    }

    /// Lets it go on where it was. Returns whether that changed anything.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn thaw(&self) -> Result<bool> {
        let life = self.life();
        if !self.group.is_frozen()? || !self.group.is_populated()? {
            return Ok(false);
        }
        self.record(&life, Event::Thawed, Value::Null)?;
        self.group.thaw()?;
        self.hands.net.hear(&self.plan.name)?;
        Ok(true)
    }

    /// What is true of it now.
    ///
    /// # Errors
    /// When its control group cannot be read.
    pub fn state(&self) -> Result<MachineState> {
        let life = self.life();
        self.state_of(&life)
    }

    fn state_of(&self, life: &Life) -> Result<MachineState> {
        let populated = self.group.is_populated()?;
        Ok(MachineState {
            machine: self.plan.name.clone(),
            power: if populated { Power::On } else { Power::Off },
            frozen: populated && self.group.is_frozen()?,
            boot_id: life.boot_id.clone().filter(|_| populated),
            init: self.group.init()?,
            uuid: self.plan.uuid.clone(),
            rack: self.plan.rack.clone(),
            address: self.plan.address,
            bmc_address: self.plan.bmc_address,
            changed: false,
        })
    }

    /// The end of a life, whatever its cause: silence, death, truth, in this order.
    fn end(&self, life: &mut Life, detail: Value) -> Result<()> {
        self.record(life, Event::OffBegin, detail.clone())?;
        self.hands.net.silence(&self.plan.name)?;
        self.group.kill_all(PATIENCE).with_context(|| format!("{}: cut its power", self.plan.name))?;
        self.record(life, Event::OffDone, detail)?;
        life.leash = None;
        life.boot_id = None;
        life.number += 1;
        self.hands.net.unplug(&self.plan)
    }

    /// Waits for the end of one life. If nobody asked for it, the machine went down by itself, and that is an end too.
    fn watch(&self, mut child: Child, number: u64) {
        let how = child.wait();
        // A lab that goes away takes its machines along and keeps no record of it.
        let Ok(_inside) = self.hands.gate.pass() else { return };
        let mut life = self.life();
        if life.number != number {
            return;
        }
        let cause = how.map_or_else(|error| error.to_string(), |status| status.to_string());
        if let Err(error) = self.end(&mut life, json!({"cause": format!("ended by itself: {cause}")})) {
            eprintln!("{}: take down after it ended: {error:#}", self.plan.name);
        }
    }

    fn spawn(&self, program: &std::path::Path) -> Result<Child> {
        let log = self.spec.dir.join("log/init.log");
        let log = OpenOptions::new().create(true).append(true).open(log).context("open its log")?;
        let spec = self.spec.dir.join("spec.json");
        Command::new(program)
            .arg("machine")
            .arg(&spec)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(log.try_clone().context("share its log")?)
            .stderr(log)
            .spawn()
            .with_context(|| format!("start {} machine", program.display()))
    }

    fn wait_for_init(&self) -> Result<()> {
        let step = Duration::from_millis(3);
        let mut waited = Duration::ZERO;
        while self.group.init()?.is_none() {
            ensure!(
                waited < PATIENCE,
                "it has no number 1; see {}",
                self.spec.dir.join("log/init.log").display()
            );
            sleep(step);
            waited += step;
        }
        Ok(())
    }

    /// Folders that outlive its lives, and the tree that agents see as their host's root.
    fn lay_out(&self) -> Result<()> {
        let dir = &self.spec.dir;
        let folders: [PathBuf; 10] = [
            "disk",
            "log",
            "pki",
            "images",
            "manifests",
            "host/sys/class/dmi/id",
            "host/proc/sys/kernel/random",
            "host/etc",
            "host/var/lib/coroner",
            "host/dev",
        ]
        .map(PathBuf::from);
        for folder in folders.iter().chain([&PathBuf::from("host/run")]) {
            fs::create_dir_all(dir.join(folder)).with_context(|| format!("make {}", folder.display()))?;
        }
        for (file, text) in [
            ("host/sys/class/dmi/id/product_uuid", &self.plan.uuid),
            ("host/etc/machine-id", &self.plan.uuid),
            ("host/etc/hostname", &self.plan.name),
        ] {
            fs::write(dir.join(file), format!("{text}\n")).with_context(|| format!("write {file}"))?;
        }
        mkfifo(&dir.join("host/dev/kmsg"), Mode::S_IRUSR | Mode::S_IWUSR).context("make its kernel log")?;
        let spec = serde_json::to_vec_pretty(&self.spec).context("write its spec as JSON")?;
        fs::write(dir.join("spec.json"), spec).context("write its spec")
    }

    fn record(&self, life: &Life, event: Event, detail: Value) -> Result<()> {
        self.hands.truth.record(Some(&self.plan.name), life.boot_id.as_deref(), event, detail)
    }

    fn life(&self) -> MutexGuard<'_, Life> {
        self.life.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
