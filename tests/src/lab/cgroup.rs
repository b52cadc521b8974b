//! Control groups: what a machine's processes are found by, killed by and frozen by.
//!
//! Two layouts. v1 (also the hybrid one, where v2 has no controllers): a group is a folder in each hierarchy, and the
//! freezer's is the one that is asked. v2: one folder; a machine's processes live in leaves, because a group with
//! controllers for its children may have no process of its own. The v2 half follows the kernel's page and was not run.
//!
//! Whether a machine is on is read here and nowhere else: a flag would say what we did, not what is.

use std::{
    fs,
    path::{Path, PathBuf},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    errno::Errno,
    sys::signal::{Signal, kill},
    unistd::Pid,
};

/// Controllers a machine's kubelet wants in v2.
const CONTROLLERS: [&str; 5] = ["cpu", "cpuset", "io", "memory", "pids"];
/// Between two looks at a group that is to change.
const LOOK_EVERY: Duration = Duration::from_millis(4);

/// How the host's control groups are laid out.
#[derive(Clone, Debug)]
pub enum Layout {
    /// One folder of a controller (or several) for each hierarchy.
    V1(Vec<Hierarchy>),
    /// The one tree.
    V2(PathBuf),
}

/// One v1 hierarchy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hierarchy {
    /// Mount options that name it: `cpu,cpuacct`, or `name=systemd`.
    pub options: String,
    /// Where it is mounted.
    pub mount: PathBuf,
}

/// A group, by its path below the root.
#[derive(Clone, Debug)]
pub struct Group {
    layout: Layout,
    path: String,
}

// === impl Layout ===

impl Layout {
    /// Reads it from the mounts of this process.
    ///
    /// # Errors
    /// When neither a v2 tree nor a v1 freezer is mounted at the usual place.
    pub fn detect() -> Result<Self> {
        Self::parse(&fs::read_to_string("/proc/self/mountinfo").context("read the mounts")?)
    }

    fn parse(mountinfo: &str) -> Result<Self> {
        let mut hierarchies = Vec::new();
        for line in mountinfo.lines() {
            let Some((front, back)) = line.split_once(" - ") else { continue };
            let (Some(mount), Some(kind)) = (front.split(' ').nth(4), back.split(' ').next()) else {
                continue;
            };
            if kind == "cgroup2" && mount == "/sys/fs/cgroup" {
                return Ok(Self::V2(PathBuf::from(mount)));
            }
            if kind == "cgroup" && mount.starts_with("/sys/fs/cgroup/") {
                let known = ["rw", "ro", "xattr", "nsdelegate", "relatime"];
                let options = back.split(' ').nth(2).unwrap_or_default().split(',');
                let options: Vec<_> = options
                    .filter(|option| !known.contains(option) && !option.starts_with("release_agent"))
                    .collect();
                hierarchies.push(Hierarchy { options: options.join(","), mount: PathBuf::from(mount) });
            }
        }
        ensure!(
            hierarchies.iter().any(|hierarchy| hierarchy.has("freezer")),
            "no control groups at /sys/fs/cgroup: neither v2 nor a v1 freezer (inside `ip netns exec` they are hidden)"
        );
        Ok(Self::V1(hierarchies))
    }
}

impl Hierarchy {
    /// Whether it is the one of that controller.
    #[must_use]
    pub fn has(&self, controller: &str) -> bool {
        self.options.split(',').any(|option| option == controller)
    }
}

// === impl Group ===

impl Group {
    /// The group at `path`, which need not be there.
    #[must_use]
    pub fn new(layout: &Layout, path: &str) -> Self {
        Self { layout: layout.clone(), path: path.to_owned() }
    }

    /// Makes the group and what is above it.
    ///
    /// # Errors
    /// When a folder cannot be made.
    pub fn create(&self) -> Result<()> {
        match &self.layout {
            Layout::V1(hierarchies) => {
                for hierarchy in hierarchies {
                    self.create_v1(hierarchy)?;
                }
            }
            Layout::V2(root) => {
                let mut dir = root.clone();
                for part in self.path.split('/') {
                    for controller in CONTROLLERS {
                        // One that this kernel lacks is missing for the kubelet, which then says so.
                        let _ = fs::write(dir.join("cgroup.subtree_control"), format!("+{controller}"));
                    }
                    dir = dir.join(part);
                    fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
                }
            }
        }
        Ok(())
    }

    /// A cpuset has to be filled before a process may enter it.
    fn create_v1(&self, hierarchy: &Hierarchy) -> Result<()> {
        let mut dir = hierarchy.mount.clone();
        for part in self.path.split('/') {
            let above = dir.clone();
            dir = dir.join(part);
            fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
            if hierarchy.has("cpuset") {
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    let value = fs::read(above.join(file)).with_context(|| format!("read {file}"))?;
                    fs::write(dir.join(file), value)
                        .with_context(|| format!("fill {file} of {}", self.path))?;
                }
                fs::write(dir.join("cgroup.clone_children"), "1").context("pass the cpuset on")?;
            }
        }
        Ok(())
    }

    /// Moves a process into the group, in every hierarchy.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn join(&self, pid: u32) -> Result<()> {
        for dir in self.dirs() {
            self.join_dir(&dir, pid)?;
        }
        Ok(())
    }

    /// As [`Group::join`], but only where processes are found and frozen by: for what is no machine.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn join_to_be_found(&self, pid: u32) -> Result<()> {
        self.join_dir(&self.dir(), pid)
    }

    fn join_dir(&self, dir: &Path, pid: u32) -> Result<()> {
        fs::write(dir.join("cgroup.procs"), pid.to_string())
            .with_context(|| format!("move process {pid} into {}", dir.display()))
    }

    /// Every process in the group and below it. Zombies are not in it: they run nothing.
    ///
    /// # Errors
    /// When the group is there and cannot be read.
    pub fn pids(&self) -> Result<Vec<i32>> {
        let mut pids = Vec::new();
        for dir in tree(&self.dir()) {
            match fs::read_to_string(dir.join("cgroup.procs")) {
                Ok(text) => pids.extend(text.lines().filter_map(|line| line.parse::<i32>().ok())),
                // Gone, or going, between two looks.
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
                Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => {}
                Err(error) => return Err(error).with_context(|| format!("read who is in {}", dir.display())),
            }
        }
        pids.sort_unstable();
        Ok(pids)
    }

    /// Whether anything lives in it.
    ///
    /// # Errors
    /// As [`Group::pids`].
    pub fn is_populated(&self) -> Result<bool> {
        Ok(!self.pids()?.is_empty())
    }

    /// The host's number of the process that is number 1 of the machine in this group.
    ///
    /// # Errors
    /// As [`Group::pids`].
    pub fn init(&self) -> Result<Option<i32>> {
        Ok(self.pids()?.into_iter().find(|pid| is_init_of_a_machine(*pid)))
    }

    /// Kills everything in it, frozen or not, and waits until it is empty. The caller itself is spared.
    ///
    /// # Errors
    /// When something lives after `patience`.
    pub fn kill_all(&self, patience: Duration) -> Result<()> {
        let myself = i32::try_from(std::process::id()).context("read the own process number")?;
        let mut waited = Duration::ZERO;
        loop {
            let mut pids = self.pids()?;
            pids.retain(|pid| *pid != myself);
            if pids.is_empty() {
                return Ok(());
            }
            for pid in &pids {
                match kill(Pid::from_raw(*pid), Signal::SIGKILL) {
                    Ok(()) | Err(Errno::ESRCH) => {}
                    Err(error) => return Err(error).with_context(|| format!("kill process {pid}")),
                }
            }
            // A frozen process dies of the signal that waits for it, before its next instruction.
            self.thaw_all();
            ensure!(waited < patience, "{} processes of {} outlive SIGKILL: {pids:?}", pids.len(), self.path);
            sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
        }
    }

    /// Stops everything in it, and waits until nothing runs.
    ///
    /// # Errors
    /// When that is not so after `patience`.
    pub fn freeze(&self, patience: Duration) -> Result<()> {
        let mut waited = Duration::ZERO;
        loop {
            self.set_frozen(true)?;
            if self.is_frozen()? {
                return Ok(());
            }
            ensure!(waited < patience, "{} does not freeze", self.path);
            sleep(LOOK_EVERY);
            waited += LOOK_EVERY;
        }
    }

    /// Lets it run again.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn thaw(&self) -> Result<()> {
        self.set_frozen(false)
    }

    /// Whether nothing in it runs.
    ///
    /// # Errors
    /// When the kernel does not say.
    pub fn is_frozen(&self) -> Result<bool> {
        let (file, mark) = match &self.layout {
            Layout::V1(_) => ("freezer.state", "FROZEN"),
            Layout::V2(_) => ("cgroup.events", "frozen 1"),
        };
        match fs::read_to_string(self.dir().join(file)) {
            Ok(text) => Ok(text.lines().any(|line| line == mark)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).with_context(|| format!("ask whether {} is frozen", self.path)),
        }
    }

    /// A group below a thawed one stays frozen if it was frozen for itself. One that is gone needs nothing.
    fn thaw_all(&self) {
        let (file, value) = match &self.layout {
            Layout::V1(_) => ("freezer.state", "THAWED"),
            Layout::V2(_) => ("cgroup.freeze", "0"),
        };
        for dir in tree(&self.dir()) {
            let _ = fs::write(dir.join(file), value);
        }
    }

    fn set_frozen(&self, frozen: bool) -> Result<()> {
        let (file, value) = match (&self.layout, frozen) {
            (Layout::V1(_), true) => ("freezer.state", "FROZEN"),
            (Layout::V1(_), false) => ("freezer.state", "THAWED"),
            (Layout::V2(_), true) => ("cgroup.freeze", "1"),
            (Layout::V2(_), false) => ("cgroup.freeze", "0"),
        };
        match fs::write(self.dir().join(file), value) {
            Ok(()) => Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => bail!("{} is not there", self.path),
            Err(error) => Err(error).with_context(|| format!("write {value} to {file} of {}", self.path)),
        }
    }

    /// Removes the groups below it: a machine that was off has no pods. A kubelet that finds some asks its runtime
    /// about each, for seconds.
    ///
    /// # Errors
    /// When one is in use.
    pub fn clear(&self) -> Result<()> {
        for top in self.dirs() {
            for dir in tree(&top).into_iter().rev().filter(|dir| *dir != top) {
                remove_group(&dir)?;
            }
        }
        Ok(())
    }

    /// Removes it and everything below it.
    ///
    /// # Errors
    /// When one is in use.
    pub fn remove(&self) -> Result<()> {
        for top in self.dirs() {
            for dir in tree(&top).into_iter().rev() {
                remove_group(&dir)?;
            }
        }
        Ok(())
    }

    /// The folders of it that are there, in every hierarchy.
    #[must_use]
    pub fn existing(&self) -> Vec<PathBuf> {
        self.dirs().into_iter().filter(|dir| dir.exists()).collect()
    }

    fn dir(&self) -> PathBuf {
        match &self.layout {
            Layout::V1(hierarchies) => hierarchies
                .iter()
                .find(|hierarchy| hierarchy.has("freezer"))
                .map_or_else(PathBuf::new, |hierarchy| hierarchy.mount.join(&self.path)),
            Layout::V2(root) => root.join(&self.path),
        }
    }

    fn dirs(&self) -> Vec<PathBuf> {
        match &self.layout {
            Layout::V1(hierarchies) => {
                hierarchies.iter().map(|hierarchy| hierarchy.mount.join(&self.path)).collect()
            }
            Layout::V2(root) => vec![root.join(&self.path)],
        }
    }
}

/// Puts this process back where every process may be, so that the group it is in can be removed.
///
/// # Errors
/// When the kernel refuses.
pub fn leave(layout: &Layout) -> Result<()> {
    Group::new(layout, "").join_to_be_found(std::process::id())
}

/// The folder and all below it, each before what it holds.
fn tree(top: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut open = vec![top.to_owned()];
    while let Some(dir) = open.pop() {
        let Ok(entries) = fs::read_dir(&dir) else { continue };
        let inside = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()));
        open.extend(inside.map(|entry| entry.path()));
        found.push(dir);
    }
    found
}

/// A group that a dying process still holds says busy for a moment.
fn remove_group(dir: &Path) -> Result<()> {
    for _ in 0..250 {
        match fs::remove_dir(dir) {
            Ok(()) => return Ok(()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(_) => sleep(LOOK_EVERY),
        }
    }
    fs::remove_dir(dir).with_context(|| format!("remove control group {}", dir.display()))
}

/// A process that is number 1 one namespace below ours. Number 1 of a container is one deeper.
fn is_init_of_a_machine(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let numbers = status.lines().find_map(|line| line.strip_prefix("NSpid:")).unwrap_or_default();
    let numbers: Vec<_> = numbers.split_whitespace().collect();
    numbers.len() == 2 && numbers[1] == "1"
}

#[cfg(test)]
mod tests {
    use std::{os::unix::process::ExitStatusExt, process::Command};

    use super::*;

    /// The layouts that this host can show: its own, and the tree of a hybrid host, which has no controllers but can
    /// freeze. None without root.
    fn layouts() -> Vec<Layout> {
        if !nix::unistd::geteuid().is_root() {
            return Vec::new();
        }
        let hybrid = PathBuf::from("/sys/fs/cgroup/unified");
        let tree = hybrid.join("cgroup.procs").exists().then_some(Layout::V2(hybrid));
        Layout::detect().into_iter().chain(tree).collect()
    }

    #[test]
    fn what_is_in_a_group_freezes_and_dies_with_it() {
        for layout in layouts() {
            let group = Group::new(&layout, &format!("coroner-lab-test-{}/n1", std::process::id()));
            let inner = Group::new(&layout, &format!("{}/pod", group.path));
            inner.create().unwrap();
            let patience = Duration::from_secs(5);
            assert!(!group.is_populated().unwrap(), "{layout:?}");

            let mut victim = Command::new("sleep").arg("60").spawn().unwrap();
            inner.join(victim.id()).unwrap();
            assert_eq!(group.pids().unwrap(), [i32::try_from(victim.id()).unwrap()]);
            assert_eq!(group.init().unwrap(), None);
            group.freeze(patience).unwrap();
            assert!(group.is_frozen().unwrap(), "{layout:?}");
            group.thaw().unwrap();
            assert!(!group.is_frozen().unwrap(), "{layout:?}");

            // As a runtime that paused a container and a machine that hangs: both, at once.
            inner.freeze(patience).unwrap();
            group.freeze(patience).unwrap();
            group.kill_all(patience).unwrap();
            assert_eq!(victim.wait().unwrap().signal(), Some(9), "{layout:?}");
            assert!(!group.is_populated().unwrap());

            group.clear().unwrap();
            assert!(inner.existing().is_empty() && !group.existing().is_empty());
            Group::new(&layout, group.path.split('/').next().unwrap()).remove().unwrap();
            assert!(group.existing().is_empty(), "{layout:?}");
        }
    }

    #[test]
    fn both_layouts_are_told_from_the_mounts() {
        let hybrid = "\
30 22 0:26 / /sys/fs/cgroup rw - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/cpu,cpuacct rw,relatime - cgroup cgroup rw,cpu,cpuacct
32 30 0:28 / /sys/fs/cgroup/freezer rw,relatime - cgroup cgroup rw,freezer
33 30 0:29 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,xattr,name=systemd
34 30 0:30 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw";
        let Layout::V1(found) = Layout::parse(hybrid).unwrap() else { panic!("hybrid is v1") };
        let options: Vec<_> = found.iter().map(|hierarchy| hierarchy.options.as_str()).collect();
        assert_eq!(options, ["cpu,cpuacct", "freezer", "name=systemd"]);

        let unified = "34 30 0:30 / /sys/fs/cgroup rw,relatime - cgroup2 cgroup2 rw,nsdelegate";
        assert!(matches!(Layout::parse(unified).unwrap(), Layout::V2(_)));
        assert!(Layout::parse("22 1 254:0 / / rw - ext4 /dev/vda rw").is_err());
    }
}
