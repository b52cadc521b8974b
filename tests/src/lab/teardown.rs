//! Takes a lab away, by its name alone: whoever was killed before he could clean up is cleaned up after.
//!
//! Every step is safe to repeat and none stops the next one; what is left at the end is an error that names it.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::{
    mount::{MntFlags, umount2},
    sys::signal::{Signal, kill},
    unistd::Pid,
};

use super::{
    cgroup::{self, Group, Layout},
    plan::{LabConfig, Names},
    shell::run,
    slot,
};

const KILL_PATIENCE: Duration = Duration::from_secs(20);

/// Removes everything of lab `names`: processes, network namespaces, links, mounts, control groups, files.
///
/// # Errors
/// When something of it is still there afterwards.
pub fn remove(names: &Names) -> Result<()> {
    let layout = Layout::detect()?;
    let group = Group::new(&layout, &names.cgroup());
    let mut trouble = Vec::new();
    let mut attempt = |what: &str, done: Result<()>| {
        if let Err(error) = done {
            trouble.push(format!("{what}: {error:#}"));
        }
    };
    attempt("kill its processes", group.kill_all(KILL_PATIENCE));
    attempt("keep its logs", keep_artifacts(names));
    for netns in namespaces(names) {
        attempt("kill who is in its networks", kill_inside(&netns));
        attempt("remove its networks", run("ip", ["netns", "del", &netns]).map(drop));
    }
    if link(names).exists() {
        attempt("remove the host's link", run("ip", ["link", "del", &names.host_link()]).map(drop));
    }
    for mount in mounts(names) {
        attempt("unmount", umount2(&mount, MntFlags::MNT_DETACH).context("unmount").map(drop));
    }
    if !group.existing().is_empty() {
        attempt("leave its control group", cgroup::leave(&layout));
        attempt("remove its control groups", group.remove());
    }
    slot::release(names);
    if names.state().exists() {
        attempt("remove its files", fs::remove_dir_all(names.state()).context("remove"));
    }
    let left = leftovers(names)?;
    ensure!(left.is_empty(), "left of lab {}: {}; {}", names.lab, left.join(", "), trouble.join("; "));
    Ok(())
}

/// Everything of the lab that is on this host, for people and for tests.
///
/// # Errors
/// When the host does not say.
pub fn leftovers(names: &Names) -> Result<Vec<String>> {
    let layout = Layout::detect()?;
    let group = Group::new(&layout, &names.cgroup());
    let myself = i32::try_from(std::process::id()).context("read the own process number")?;
    let mut left: Vec<String> =
        group.pids()?.iter().filter(|pid| **pid != myself).map(|pid| format!("process {pid}")).collect();
    left.extend(group.existing().iter().map(|dir| format!("control group {}", dir.display())));
    left.extend(namespaces(names).iter().map(|netns| format!("network namespace {netns}")));
    left.extend(mounts(names).iter().map(|mount| format!("mount {}", mount.display())));
    left.extend(
        [link(names), names.state()]
            .iter()
            .filter(|path| path.exists())
            .map(|path| path.display().to_string()),
    );
    Ok(left)
}

fn link(names: &Names) -> PathBuf {
    Path::new("/sys/class/net").join(names.host_link())
}

fn namespaces(names: &Names) -> Vec<String> {
    let Ok(entries) = fs::read_dir("/run/netns") else { return Vec::new() };
    let all = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    all.filter(|name| name.starts_with(&names.netns_prefix())).collect()
}

/// Somebody's program in one of our networks, such as the BMC emulator of a test that was killed.
fn kill_inside(netns: &str) -> Result<()> {
    let myself = std::process::id().to_string();
    for pid in run("ip", ["netns", "pids", netns])?.split_whitespace().filter(|pid| *pid != myself) {
        if let Ok(pid) = pid.parse() {
            let _ = kill(Pid::from_raw(pid), Signal::SIGKILL);
        }
    }
    Ok(())
}

/// Mounts below the state folder, the inner ones first.
fn mounts(names: &Names) -> Vec<PathBuf> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let points = text.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut found: Vec<_> = points.filter(|point| point.starts_with(names.state())).collect();
    found.sort();
    found.reverse();
    found
}

/// Copies logs and the oracles' files to where the configuration wants them.
fn keep_artifacts(names: &Names) -> Result<()> {
    let state = names.state();
    let Ok(config) = fs::read(state.join("config.json")) else { return Ok(()) };
    let config: LabConfig = serde_json::from_slice(&config).context("understand the lab's configuration")?;
    let Some(target) = config.artifacts else { return Ok(()) };
    copy_tree(&state.join("control-plane/log"), &target.join("control-plane"))?;
    copy_tree(&names.volumes(), &target.join("volumes"))?;
    let bmcs = ["bmcs/ledger.jsonl", "bmcs/power.jsonl", "bmcs/log"];
    let own = ["truth.jsonl", "audit.jsonl", "serve.log", "plan.json", "config.json"];
    // What a site on the lab adds: its watch, its looks at the clocks, the orders that it gave.
    let site = ["api.jsonl", "clock.jsonl", "orders.jsonl"];
    for file in own.iter().chain(&bmcs).chain(&site) {
        copy_file(&state.join(file), &target.join(file))?;
    }
    let Ok(machines) = fs::read_dir(state.join("machines")) else { return Ok(()) };
    for machine in machines.flatten() {
        let target = target.join(machine.file_name());
        copy_tree(&machine.path().join("log"), &target)?;
        copy_tree(&machine.path().join("disk/log/pods"), &target.join("pods"))?;
    }
    Ok(())
}

fn copy_tree(from: &Path, to: &Path) -> Result<()> {
    let Ok(entries) = fs::read_dir(from) else { return Ok(()) };
    for entry in entries.flatten() {
        let target = to.join(entry.file_name());
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => copy_tree(&entry.path(), &target)?,
            Ok(kind) if kind.is_file() => copy_file(&entry.path(), &target)?,
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

fn copy_file(from: &Path, to: &Path) -> Result<()> {
    if !from.exists() {
        return Ok(());
    }
    let dir = to.parent().context("find the folder of a copy")?;
    fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))?;
    fs::copy(from, to).with_context(|| format!("copy {} to {}", from.display(), to.display())).map(drop)
}
