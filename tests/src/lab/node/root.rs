//! A machine's own root: the host's programs, read-only; its own disk; everything else in memory, gone at power-off.
//!
//! Files that all machines would share, because they share a kernel, are covered by the machine's own: boot id, and
//! the sysctls that a kubelet would change for the whole host.

use std::{
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};
use nix::{
    mount::{MntFlags, MsFlags, mount, umount2},
    unistd::{chdir, pivot_root},
};

use super::{
    super::cgroup::{Hierarchy, Layout},
    Spec,
};

/// The host's programs and libraries.
const HOST_DIRS: [&str; 7] = ["usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"];
/// What programs look up in /etc and may as well find.
const HOST_ETC: [&str; 6] = ["alternatives", "group", "ld.so.cache", "nsswitch.conf", "passwd", "ssl"];
/// What a kubelet insists on, shown to it so that it does not write it to the host's kernel.
const SYSCTLS: [(&str, &str); 4] = [
    ("vm/overcommit_memory", "1"),
    ("vm/panic_on_oom", "0"),
    ("kernel/panic", "10"),
    ("kernel/panic_on_oops", "1"),
];

/// Builds the root in the machine's mount namespace and moves into it.
///
/// # Errors
/// When a mount fails; the error names it.
pub(super) fn build(spec: &Spec) -> Result<()> {
    let layout = Layout::detect()?;
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_PRIVATE, None::<&str>)
        .context("keep mounts from the host")?;
    let root = spec.dir.join("root");
    make(&root)?;
    fresh("tmpfs", &root, "mode=755")?;
    host_programs(&root)?;
    etc(spec, &root)?;
    for (source, target) in [
        (spec.dir.join("disk/containerd"), "var/lib/containerd"),
        (spec.dir.join("disk/kubelet"), "var/lib/kubelet"),
        (spec.dir.join("disk/log"), "var/log"),
        (spec.dir.join("log"), "lab/log"),
        (spec.dir.join("manifests"), "etc/kubernetes/manifests"),
        (spec.dir.join("images"), "lab/own-images"),
        (spec.dir.join("host"), "lab-host"),
        (spec.volumes.clone(), "lab/volumes"),
    ] {
        make(&source)?;
        bind(&source, &root.join(target))?;
    }
    for (source, target) in [
        (&spec.programs, "lab/bin"),
        (&spec.images, "lab/images"),
        (&spec.dir.join("pki"), "etc/kubernetes/pki"),
    ] {
        bind_read_only(source, &root.join(target))?;
    }
    for dir in
        ["root", "tmp", "opt", "mnt", "run/containerd", "run/netns", "var/lib/cni", "lab/old", "lab/covers"]
    {
        make(&root.join(dir))?;
    }
    kernel_trees(&layout, &root)?;
    cover(spec, &root)?;
    pivot_root(&root, &root.join("lab/old")).context("move into the own root")?;
    chdir("/").context("go to the own root")?;
    umount2("/lab/old", MntFlags::MNT_DETACH).context("leave the host's root")?;
    // A kubelet shares mounts with its pods.
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_REC | MsFlags::MS_SHARED, None::<&str>)
        .context("share mounts inside the machine")?;
    fs::write("/proc/sys/kernel/hostname", &spec.name).context("set the host name")
}

fn host_programs(root: &Path) -> Result<()> {
    for name in HOST_DIRS {
        let source = Path::new("/").join(name);
        let Ok(kind) = fs::symlink_metadata(&source) else { continue };
        if kind.is_symlink() {
            let target = fs::read_link(&source).with_context(|| format!("read link {}", source.display()))?;
            symlink(target, root.join(name)).with_context(|| format!("link /{name}"))?;
        } else {
            bind_read_only(&source, &root.join(name))?;
        }
    }
    Ok(())
}

/// An own /etc: who the machine is, its CNI network, and the few host files that programs expect.
fn etc(spec: &Spec, root: &Path) -> Result<()> {
    let etc = root.join("etc");
    make(&etc.join("cni/net.d"))?;
    for name in HOST_ETC {
        let (source, target) = (Path::new("/etc").join(name), etc.join(name));
        match fs::metadata(&source) {
            Ok(kind) if kind.is_dir() => bind_read_only(&source, &target)?,
            Ok(_) => drop(fs::copy(&source, &target).with_context(|| format!("copy /etc/{name}"))?),
            Err(_) => {}
        }
    }
    let network = serde_json::json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": false,
            "ipam": {
                "type": "host-local",
                "ranges": [[{"subnet": spec.pod_range}]],
                "routes": [{"dst": "0.0.0.0/0"}],
            },
        }],
    });
    for (name, text) in [
        ("hostname", format!("{}\n", spec.name)),
        ("hosts", format!("127.0.0.1 localhost\n{} {}\n", spec.address, spec.name)),
        // With hyphens the kubelet reports it as systemUUID just as it stands, since there is no DMI.
        ("machine-id", format!("{}\n", spec.uuid)),
        ("resolv.conf", String::new()),
        ("cni/net.d/10-pods.conflist", network.to_string()),
    ] {
        fs::write(etc.join(name), text).with_context(|| format!("write /etc/{name}"))?;
    }
    Ok(())
}

/// /dev, and /proc, /sys and control groups as seen from the machine's own namespaces.
fn kernel_trees(layout: &Layout, root: &Path) -> Result<()> {
    bind(Path::new("/dev"), &root.join("dev"))?;
    fresh("tmpfs", &root.join("dev/shm"), "mode=1777")?;
    fresh("proc", &root.join("proc"), "")?;
    fresh("sysfs", &root.join("sys"), "")?;
    let groups = root.join("sys/fs/cgroup");
    match layout {
        Layout::V1(hierarchies) => {
            fresh("tmpfs", &groups, "mode=755")?;
            for hierarchy in hierarchies {
                mount_hierarchy(hierarchy, &groups)?;
            }
        }
        Layout::V2(_) => {
            fresh("cgroup2", &groups, "")?;
            let offered =
                fs::read_to_string(groups.join("cgroup.controllers")).context("read the controllers")?;
            for controller in offered.split_whitespace() {
                fs::write(groups.join("cgroup.subtree_control"), format!("+{controller}"))
                    .with_context(|| format!("pass controller {controller} on"))?;
            }
        }
    }
    Ok(())
}

fn mount_hierarchy(hierarchy: &Hierarchy, groups: &Path) -> Result<()> {
    let name = hierarchy.mount.file_name().context("read the name of a control group mount")?;
    let options = if hierarchy.options.starts_with("name=") {
        format!("none,{}", hierarchy.options)
    } else {
        hierarchy.options.clone()
    };
    fresh("cgroup", &groups.join(name), &options)?;
    // `cpu,cpuacct` is also looked for under each of its names.
    for controller in hierarchy.options.split(',').filter(|controller| *controller != name) {
        if !controller.starts_with("name=") {
            let _ = symlink(name, groups.join(controller));
        }
    }
    Ok(())
}

fn cover(spec: &Spec, root: &Path) -> Result<()> {
    let boot_id = root.join("lab-host/proc/sys/kernel/random/boot_id");
    bind_file(&boot_id, &root.join("proc/sys/kernel/random/boot_id"))?;
    for (name, value) in SYSCTLS {
        let file = root.join("lab/covers").join(name.replace('/', "."));
        fs::write(&file, format!("{value}\n"))
            .with_context(|| format!("{}: write {}", spec.name, file.display()))?;
        bind_file(&file, &root.join("proc/sys").join(name))?;
    }
    Ok(())
}

fn make(dir: &Path) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| format!("make {}", dir.display()))
}

fn fresh(kind: &str, target: &Path, options: &str) -> Result<()> {
    make(target)?;
    mount(Some(kind), target, Some(kind), MsFlags::empty(), Some(options))
        .with_context(|| format!("mount {kind} {options} at {}", target.display()))
}

fn bind(source: &Path, target: &Path) -> Result<()> {
    make(target)?;
    bind_file(source, target)
}

fn bind_file(source: &Path, target: &Path) -> Result<()> {
    mount(Some(source), target, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>)
        .with_context(|| format!("show {} at {}", source.display(), target.display()))
}

fn bind_read_only(source: &Path, target: &Path) -> Result<()> {
    bind(source, target)?;
    let flags = MsFlags::MS_BIND | MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY;
    mount(None::<&PathBuf>, target, None::<&str>, flags, None::<&str>)
        .with_context(|| format!("make {} read-only", target.display()))
}
