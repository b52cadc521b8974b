//! What a program costs a machine: its processor time, by control group, and its resident memory.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail, ensure};

use super::{
    Plan,
    cgroup::{Group, Layout},
};

/// What it has cost so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The host's number of its process: another one is another life, which began at zero.
    pub pid: i32,
    /// Processor time of its control group, ns.
    pub cpu_ns: u64,
    /// Resident memory of the process, KiB.
    pub rss_kib: u64,
}

// === impl Usage ===

impl Usage {
    /// Of the one program of that name on a machine.
    ///
    /// # Errors
    /// It does not run there, or runs twice; the kernel does not say.
    pub fn of(plan: &Plan, machine: &str, program: &str) -> Result<Self> {
        let layout = Layout::detect()?;
        let mut pids = Group::new(&layout, &plan.names.cgroup_of(machine)).pids()?;
        pids.retain(|pid| of_process(*pid, "comm").is_ok_and(|name| name.trim_end() == program));
        let [pid] = pids[..] else { bail!("{} {program} run on {machine}, not one", pids.len()) };
        let file = cpu_file(&layout, &of_process(pid, "cgroup")?)
            .with_context(|| format!("process {pid} is in no group whose time is counted"))?;
        let cpu = fs::read_to_string(&file).with_context(|| format!("read {}", file.display()))?;
        let status = of_process(pid, "status")?;
        let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let rss_kib =
            resident.and_then(|text| text.split_whitespace().next()).and_then(|kib| kib.parse().ok());
        Ok(Self {
            pid,
            cpu_ns: cpu_ns(&layout, &cpu).with_context(|| format!("understand {}", file.display()))?,
            rss_kib: rss_kib.with_context(|| format!("process {pid} has no memory"))?,
        })
    }

    /// Processor time since an earlier look, ns.
    ///
    /// # Errors
    /// It was restarted in between.
    pub fn cpu_since(&self, earlier: &Self) -> Result<u64> {
        ensure!(self.pid == earlier.pid, "process {} was restarted as {}", earlier.pid, self.pid);
        Ok(self.cpu_ns.saturating_sub(earlier.cpu_ns))
    }
}

// === helpers ===

fn of_process(pid: i32, file: &str) -> Result<String> {
    let path = Path::new("/proc").join(pid.to_string()).join(file);
    fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))
}

/// The file that counts the time of the group that a process is in; `cgroups` is its `/proc/PID/cgroup`
/// (cgroups(7)).
fn cpu_file(layout: &Layout, cgroups: &str) -> Option<PathBuf> {
    let group = |wanted: &dyn Fn(&str) -> bool| {
        cgroups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, path) = rest.split_once(':')?;
            wanted(controllers).then(|| path.trim_start_matches('/').to_owned())
        })
    };
    match layout {
        Layout::V1(hierarchies) => {
            let counted = hierarchies.iter().find(|hierarchy| hierarchy.has("cpuacct"))?;
            let path = group(&|names: &str| names.split(',').any(|name| name == "cpuacct"))?;
            Some(counted.mount.join(path).join("cpuacct.usage"))
        }
        Layout::V2(root) => Some(root.join(group(&|names: &str| names.is_empty())?).join("cpu.stat")),
    }
}

/// What such a file says.
fn cpu_ns(layout: &Layout, text: &str) -> Option<u64> {
    match layout {
        Layout::V1(_) => text.trim().parse().ok(),
        Layout::V2(_) => {
            let us: u64 =
                text.lines().find_map(|line| line.strip_prefix("usage_usec "))?.trim().parse().ok()?;
            us.checked_mul(1_000)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lab::cgroup::Hierarchy;

    #[test]
    fn the_time_of_a_group_is_found_in_both_layouts() {
        let cpu = Hierarchy { options: "cpu,cpuacct".to_owned(), mount: PathBuf::from("/sys/fs/cgroup/cpu") };
        let v1 = Layout::V1(vec![cpu]);
        let text = "7:cpu,cpuacct:/lab/n1/pod\n6:cpuset:/lab\n0::/other\n";
        assert_eq!(cpu_file(&v1, text).unwrap(), Path::new("/sys/fs/cgroup/cpu/lab/n1/pod/cpuacct.usage"));
        assert_eq!(cpu_file(&v1, "6:cpuset:/lab\n0::/other\n"), None);
        assert_eq!(cpu_ns(&v1, "123456\n"), Some(123_456));

        let v2 = Layout::V2(PathBuf::from("/sys/fs/cgroup"));
        assert_eq!(
            cpu_file(&v2, "0::/lab/n1/pod\n").unwrap(),
            Path::new("/sys/fs/cgroup/lab/n1/pod/cpu.stat")
        );
        assert_eq!(cpu_ns(&v2, "usage_usec 12\nuser_usec 3\n"), Some(12_000));
        assert_eq!(cpu_ns(&v2, "user_usec 3\n"), None);
    }

    #[test]
    fn a_program_that_was_restarted_has_no_time_since_then() {
        let before = Usage { pid: 7, cpu_ns: 10, rss_kib: 1 };
        assert_eq!(Usage { cpu_ns: 25, ..before }.cpu_since(&before).unwrap(), 15);
        assert!(Usage { pid: 8, cpu_ns: 25, ..before }.cpu_since(&before).is_err());
    }
}
