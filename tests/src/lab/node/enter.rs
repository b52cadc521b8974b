//! Runs a command inside a running machine: in its control group and all its namespaces, so that a power cut ends it
//! like everything else of the machine.

use std::{ffi::OsString, fs::File, os::unix::process::ExitStatusExt, process::Command};

use anyhow::{Context, Result};
use nix::{
    sched::{CloneFlags, setns},
    unistd::chdir,
};

use super::super::cgroup::{Group, Layout};

/// Runs `argv` in the machine whose number 1 is process `init` in group `cgroup`; returns its exit code, 128 + n for
/// signal n.
///
/// # Errors
/// When the machine is gone or the command cannot be started.
pub fn enter(cgroup: &str, init: i32, argv: &[OsString]) -> Result<u8> {
    let (program, args) = argv.split_first().context("no command was given")?;
    let layout = Layout::detect()?;
    let path = match layout {
        Layout::V1(_) => cgroup.to_owned(),
        Layout::V2(_) => format!("{cgroup}/init"),
    };
    Group::new(&layout, &path).join(std::process::id()).context("enter the machine's control group")?;
    // All are opened before the first is entered: the mount namespace hides the host's /proc.
    let mut spaces = Vec::new();
    for (name, kind) in [
        ("net", CloneFlags::CLONE_NEWNET),
        ("uts", CloneFlags::CLONE_NEWUTS),
        ("ipc", CloneFlags::CLONE_NEWIPC),
        ("cgroup", CloneFlags::CLONE_NEWCGROUP),
        ("pid", CloneFlags::CLONE_NEWPID),
        ("mnt", CloneFlags::CLONE_NEWNS),
    ] {
        let path = format!("/proc/{init}/ns/{name}");
        spaces.push((name, kind, File::open(&path).with_context(|| format!("open {path}"))?));
    }
    for (name, kind, space) in spaces {
        setns(space, kind).with_context(|| format!("enter the machine's {name} namespace"))?;
    }
    chdir("/").context("go to the machine's root")?;
    let status = Command::new(program).args(args).status();
    let status = status.with_context(|| format!("start {}", program.to_string_lossy()))?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(255);
    Ok(u8::try_from(code).unwrap_or(255))
}
