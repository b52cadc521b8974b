//! containerd, the images, the CSI node plugin and the kubelet, in the order in which they need each other.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::net::UnixStream,
    path::Path,
    process::{Command, Stdio},
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, ensure};

use super::{super::shell::run, Spec};

const CONTAINERD_SOCKET: &str = "/run/containerd/containerd.sock";
/// Marks of archives that containerd has; beside its content, so that both survive or neither.
const IMPORTED: &str = "/var/lib/containerd/coroner-lab-imported";
const CONTAINERD_PATIENCE: Duration = Duration::from_secs(60);
/// Before an ended service is started again, as systemd's units of these services do.
const RESTART_AFTER: Duration = Duration::from_secs(1);

/// A running service.
struct Service {
    name: &'static str,
    args: Vec<String>,
    pid: i32,
}

/// All of them.
pub(super) struct Services {
    services: Vec<Service>,
}

// === impl Services ===

impl Services {
    /// Starts them; returns when the kubelet has been started.
    ///
    /// # Errors
    /// When one cannot be started, containerd does not answer, or an image is refused.
    pub(super) fn start(spec: &Spec) -> Result<Self> {
        let mut services = Self { services: Vec::new() };
        fs::write("/lab/containerd.toml", containerd_config(&containerd_version()?, &spec.pause_image))
            .context("write containerd's configuration")?;
        fs::write("/lab/kubelet.json", kubelet_config(spec)).context("write the kubelet's configuration")?;
        services.add("containerd", vec!["containerd".into(), "-c".into(), "/lab/containerd.toml".into()])?;
        wait_for_containerd()?;
        for dir in ["/lab/images", "/lab/own-images"] {
            import_new(Path::new(dir))?;
        }
        // Sockets of the last life; a plugin's registration is not something that survives a reboot.
        for dir in ["/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins_registry"] {
            let _ = fs::remove_dir_all(dir);
        }
        if Path::new("/lab/bin/lab-csi").exists() {
            let args = ["/lab/bin/lab-csi", "--node-id", &spec.name, "--volumes", "/lab/volumes"];
            services.add("csi", args.map(String::from).to_vec())?;
        }
        services.add(
            "kubelet",
            vec![
                "/lab/bin/kubelet".into(),
                "--config=/lab/kubelet.json".into(),
                "--kubeconfig=/etc/kubernetes/pki/kubeconfig".into(),
                format!("--hostname-override={}", spec.name),
                format!("--node-ip={}", spec.address),
                "--root-dir=/var/lib/kubelet".into(),
                "--cert-dir=/var/lib/kubelet/pki".into(),
            ],
        )?;
        Ok(services)
    }

    /// Starts the service again that process `pid` was; any other child is nothing to us.
    ///
    /// # Errors
    /// When it cannot be started.
    pub(super) fn ended(&mut self, pid: i32, how: &str) -> Result<()> {
        if let Some(service) = self.services.iter_mut().find(|service| service.pid == pid) {
            eprintln!("{} ended: {how}", service.name);
            sleep(RESTART_AFTER);
            service.pid = spawn(service.name, &service.args)?;
        }
        Ok(())
    }

    fn add(&mut self, name: &'static str, args: Vec<String>) -> Result<()> {
        let pid = spawn(name, &args)?;
        self.services.push(Service { name, args, pid });
        Ok(())
    }
}

fn spawn(name: &str, args: &[String]) -> Result<i32> {
    let log = format!("/lab/log/{name}.log");
    let log =
        OpenOptions::new().create(true).append(true).open(&log).with_context(|| format!("open {log}"))?;
    let errors: File = log.try_clone().context("share the log")?;
    let (program, args) = args.split_first().context("find the program's name")?;
    // Not waited for here: number 1 reaps every child of the machine, this one included.
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(log)
        .stderr(errors)
        .spawn()
        .with_context(|| format!("start {program}"))?;
    i32::try_from(child.id()).with_context(|| format!("read the process number of {name}"))
}

fn wait_for_containerd() -> Result<()> {
    let step = Duration::from_millis(10);
    let mut waited = Duration::ZERO;
    while UnixStream::connect(CONTAINERD_SOCKET).is_err() {
        ensure!(waited < CONTAINERD_PATIENCE, "containerd does not answer; see its log");
        sleep(step);
        waited += step;
    }
    Ok(())
}

/// Imports each archive of a folder that has not been imported as it is now.
fn import_new(dir: &Path) -> Result<()> {
    fs::create_dir_all(IMPORTED).context("make a place for marks")?;
    let mut archives: Vec<_> = fs::read_dir(dir)
        .with_context(|| format!("list {}", dir.display()))?
        .flatten()
        .map(|e| e.path())
        .collect();
    archives.sort();
    for archive in archives.iter().filter(|path| path.extension().is_some_and(|extension| extension == "tar"))
    {
        let name = archive.file_name().context("read an archive's name")?;
        // The lab stores an archive under the digest of its content.
        let mark = Path::new(IMPORTED).join(name);
        if !mark.exists() {
            run("ctr", ["-n", "k8s.io", "images", "import", &archive.to_string_lossy()])?;
            File::create(&mark).with_context(|| format!("mark {} as imported", archive.display()))?;
        }
    }
    Ok(())
}

/// As in `containerd containerd.io 1.7.2 ...`: the first word that begins with a digit, or with v and a digit.
fn containerd_version() -> Result<String> {
    let said = run("containerd", ["--version"])?;
    let number = said
        .split_whitespace()
        .map(|word| word.trim_start_matches('v'))
        .find(|word| word.starts_with(|first: char| first.is_ascii_digit()));
    Ok(number.with_context(|| format!("find a version in {said:?}"))?.to_owned())
}

fn containerd_config(version: &str, pause_image: &str) -> String {
    let old = version.starts_with("1.");
    let cri = if old { "io.containerd.grpc.v1.cri" } else { "io.containerd.cri.v1.runtime" };
    let head = if old {
        format!("version = 2\n[plugins.\"{cri}\"]\n  sandbox_image = \"{pause_image}\"\n")
    } else {
        format!(
            "version = 3\n[plugins.\"io.containerd.cri.v1.images\".pinned_images]\n  sandbox = \"{pause_image}\"\n[plugins.\"{cri}\"]\n"
        )
    };
    // restrict_oom_score_adj: a host may not allow its root to lower it, and then no sandbox would start.
    format!(
        r#"{head}  disable_apparmor = true
  restrict_oom_score_adj = true
  [plugins."{cri}".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."{cri}".containerd.runtimes.runc.options]
      SystemdCgroup = false
  [plugins."{cri}".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
[grpc]
  address = "{CONTAINERD_SOCKET}"
"#
    )
}

/// Lease, status and monitor periods are Kubernetes' defaults, because what is measured here is meant to hold there.
fn kubelet_config(spec: &Spec) -> String {
    serde_json::json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "failCgroupV1": false,
        "cgroupDriver": "cgroupfs",
        "enforceNodeAllocatable": [],
        "containerRuntimeEndpoint": format!("unix://{CONTAINERD_SOCKET}"),
        "tlsCertFile": "/etc/kubernetes/pki/kubelet.crt",
        "tlsPrivateKeyFile": "/etc/kubernetes/pki/kubelet.key",
        "authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": false},
            "x509": {"clientCAFile": "/etc/kubernetes/pki/ca.crt"},
        },
        "authorization": {"mode": "AlwaysAllow"},
        "failSwapOn": false,
        "oomScoreAdj": 0,
        "maxOpenFiles": 20000,
        "maxPods": 30,
        "systemReserved": {
            "cpu": format!("{}m", spec.reserved_cpu_millis),
            "memory": format!("{}Mi", spec.reserved_memory_mib),
        },
        // The host's disk is everybody's: a machine evicts nothing for it.
        "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%", "nodefs.inodesFree": "1%"},
        "imageGCHighThresholdPercent": 100,
        "imageGCLowThresholdPercent": 99,
        "staticPodPath": "/etc/kubernetes/manifests",
        "volumePluginDir": "/var/lib/kubelet/volumeplugins",
        "resolvConf": "/etc/resolv.conf",
        "shutdownGracePeriod": "0s",
    })
    .to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn containerd_is_configured_in_the_words_of_its_version() {
        let old = containerd_config("1.6.20~ds1", "localhost/pause:1");
        assert!(old.starts_with("version = 2\n") && old.contains("sandbox_image = \"localhost/pause:1\""));
        let new = containerd_config("2.1.9", "localhost/pause:1");
        assert!(new.starts_with("version = 3\n") && new.contains("sandbox = \"localhost/pause:1\""));
        assert!(new.contains("[plugins.\"io.containerd.cri.v1.runtime\".cni]"));
    }
}
