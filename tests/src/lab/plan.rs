//! What a lab is asked to be, and what follows from it: names, addresses, identities, paths.
//!
//! ```text
//! LabConfig + slot  ->  Plan { hub, machines: [MachinePlan] }      Names: what is found from the lab's name alone
//! ```
//!
//! Pure: nothing here touches the machine it runs on. Clean-up after a killed run works from [`Names`] only.

use std::{net::Ipv4Addr, path::PathBuf};

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// Racks, and machines in a rack, that one lab can have: each number is one byte of an address.
const MACHINES_MAX: u8 = 200;

/// The image that holds a pod's namespaces, as containerd knows it.
pub const PAUSE_IMAGE: &str = "localhost/coroner-lab/pause:1";

/// The service address of the API server inside a cluster. The hub redirects it, since there is no kube-proxy.
pub const SERVICE_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);

/// What a lab is asked to be.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LabConfig {
    /// 1 to 8 of `[a-z0-9]`; tells labs on one host apart.
    pub name: String,
    /// Number of racks.
    pub racks: u8,
    /// Machines in each rack.
    pub per_rack: u8,
    /// Machines with a second link to the BMC network; none named: the first of each rack.
    pub replicas: Vec<String>,
    /// OCI archives that every machine imports at power-on.
    pub images: Vec<PathBuf>,
    /// A static program that does nothing when it is called with `pause`; the pods' sandbox is built from it.
    pub pause_program: PathBuf,
    /// How long a machine takes from power-on to its first service, as firmware does.
    pub boot_delay_ms: u64,
    /// The program that runs the control plane (`hack/control-plane`).
    pub control_plane: PathBuf,
    /// More words for `hack/control-plane up`.
    pub control_plane_args: Vec<String>,
    /// What one machine offers to pods; all share one kernel, so the rest of it is reserved.
    pub node_cpu_millis: u64,
    /// As above, in MiB.
    pub node_memory_mib: u64,
    /// Where logs and the oracles' files are copied to before the lab goes away.
    pub artifacts: Option<PathBuf>,
}

/// Everything that follows from a [`LabConfig`] and the slot it got on this host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// The lab's name and what is named after it.
    pub names: Names,
    /// Which of the host's address ranges the lab uses, from 0.
    pub slot: u8,
    /// The API server's address: the hub's on the spine.
    pub api_address: Ipv4Addr,
    /// The host's own address on the spine, so that tests outside can talk to machines.
    pub host_address: Ipv4Addr,
    /// The hub's link address.
    pub hub_mac: String,
    /// `r1`, `r2`, ...
    pub racks: Vec<String>,
    /// In order of their numbers.
    pub machines: Vec<MachinePlan>,
}

/// One machine: who it is and where it is found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachinePlan {
    /// Node name, `n1`...
    pub name: String,
    /// Number over the whole lab, from 1.
    pub number: u8,
    /// Its failure domain.
    pub rack: String,
    /// What its firmware says, lower case with hyphens; the kubelet reports it as systemUUID.
    pub uuid: String,
    /// Address of its data link `eth0`.
    pub address: Ipv4Addr,
    /// Link address of `eth0`, the same in every life.
    pub mac: String,
    /// Range of its pods.
    pub pod_range: String,
    /// Name of its BMC, as in the BMC's certificate.
    pub bmc_name: String,
    /// Address of its BMC in the BMC network.
    pub bmc_address: Ipv4Addr,
    /// Address of its second link `bmc0`, for machines that have one.
    pub bmc_link_address: Option<Ipv4Addr>,
    /// Link address of `bmc0`.
    pub bmc_link_mac: String,
}

/// Names of everything that a lab leaves on its host, from the lab's name alone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Names {
    /// The lab's name.
    pub lab: String,
}

// === impl LabConfig ===

impl LabConfig {
    /// A lab `name` of `shape` racks and machines, as in `3x2`.
    ///
    /// # Errors
    /// When the name or the shape is not one.
    pub fn new(name: &str, shape: &str) -> Result<Self> {
        let (racks, per_rack) =
            shape.split_once('x').with_context(|| format!("{shape:?} is not RACKSxMACHINES, as in 3x2"))?;
        let config = Self {
            name: name.to_owned(),
            racks: racks.parse().with_context(|| format!("read the number of racks in {shape:?}"))?,
            per_rack: per_rack
                .parse()
                .with_context(|| format!("read the number of machines in {shape:?}"))?,
            replicas: Vec::new(),
            images: Vec::new(),
            pause_program: PathBuf::new(),
            boot_delay_ms: 0,
            control_plane: PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../hack/control-plane")),
            control_plane_args: Vec::new(),
            node_cpu_millis: 1000,
            node_memory_mib: 2048,
            artifacts: None,
        };
        config.check()?;
        Ok(config)
    }

    /// Gives these machines, instead of the first of each rack, a second link to the BMC network.
    #[must_use]
    pub fn replicas<S: Into<String>>(mut self, names: impl IntoIterator<Item = S>) -> Self {
        self.replicas = names.into_iter().map(Into::into).collect();
        self
    }

    /// Adds an OCI archive that every machine imports at power-on.
    #[must_use]
    pub fn image(mut self, archive: impl Into<PathBuf>) -> Self {
        self.images.push(archive.into());
        self
    }

    /// Sets the static program of which the pods' sandbox is made; it is called with `pause`.
    #[must_use]
    pub fn pause_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.pause_program = program.into();
        self
    }

    /// Keeps logs and the oracles' files in `folder` when the lab goes away.
    #[must_use]
    pub fn artifacts(mut self, folder: impl Into<PathBuf>) -> Self {
        self.artifacts = Some(folder.into());
        self
    }

    /// Refuses what cannot be built.
    ///
    /// # Errors
    /// Names the first thing that is wrong.
    pub fn check(&self) -> Result<()> {
        Names::new(&self.name)?;
        let machines = u16::from(self.racks) * u16::from(self.per_rack);
        ensure!(machines >= 1, "a lab needs a rack and a machine");
        ensure!(machines <= u16::from(MACHINES_MAX), "{machines} machines are more than {MACHINES_MAX}");
        for replica in &self.replicas {
            let known = (1..=machines).any(|number| *replica == format!("n{number}"));
            ensure!(known, "replica {replica} is not a machine of this lab (n1..n{machines})");
        }
        Ok(())
    }
}

// === impl Plan ===

impl Plan {
    /// What follows from `config` in the given slot (0 to 99).
    ///
    /// # Errors
    /// When the configuration is refused.
    pub fn new(config: &LabConfig, slot: u8) -> Result<Self> {
        config.check()?;
        ensure!(slot < 100, "slot {slot} is not below 100");
        let net = 100 + slot;
        let mut machines = Vec::new();
        for number in 1..=config.racks * config.per_rack {
            let rack = (number - 1) / config.per_rack + 1;
            let name = format!("n{number}");
            let first_of_rack = (number - 1) % config.per_rack == 0;
            let replica =
                if config.replicas.is_empty() { first_of_rack } else { config.replicas.contains(&name) };
            machines.push(MachinePlan {
                uuid: uuid_of(&config.name, &name),
                bmc_name: format!("{name}.bmc.lab"),
                name,
                number,
                rack: format!("r{rack}"),
                address: Ipv4Addr::new(10, net, rack, number),
                mac: format!("02:c0:{slot:02x}:01:00:{number:02x}"),
                pod_range: format!("10.244.{number}.0/24"),
                bmc_address: Ipv4Addr::new(172, 30, 1, number),
                bmc_link_address: replica.then(|| Ipv4Addr::new(172, 30, 2, number)),
                bmc_link_mac: format!("02:c0:{slot:02x}:02:00:{number:02x}"),
            });
        }
        Ok(Self {
            names: Names::new(&config.name)?,
            slot,
            api_address: Ipv4Addr::new(10, net, 0, 1),
            host_address: Ipv4Addr::new(10, net, 0, 254),
            hub_mac: format!("02:c0:{slot:02x}:00:00:01"),
            racks: (1..=config.racks).map(|rack| format!("r{rack}")).collect(),
            machines,
        })
    }

    /// The machine of that name.
    ///
    /// # Errors
    /// When there is none; the error lists those there are.
    pub fn machine(&self, name: &str) -> Result<&MachinePlan> {
        self.machines.iter().find(|machine| machine.name == name).with_context(|| {
            let names: Vec<_> = self.machines.iter().map(|machine| machine.name.as_str()).collect();
            format!("lab {} has no machine {name:?}, only {}", self.names.lab, names.join(" "))
        })
    }
}

/// A version-4 shaped UUID that is the same in every run.
fn uuid_of(lab: &str, machine: &str) -> String {
    let mut bytes: [u8; 32] = Sha256::digest(format!("coroner-lab/{lab}/{machine}")).into();
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let hex: String = bytes[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

// === impl Names ===

impl Names {
    /// The names of lab `lab`.
    ///
    /// # Errors
    /// When it is not 1 to 8 of `[a-z0-9]`: it becomes part of interface names, which have 15 bytes.
    pub fn new(lab: &str) -> Result<Self> {
        let fits = (1..=8).contains(&lab.len())
            && lab.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        ensure!(fits, "{lab:?} is not a lab's name: 1 to 8 of a-z and 0-9");
        Ok(Self { lab: lab.to_owned() })
    }

    /// Folder of everything the lab keeps on disk.
    #[must_use]
    pub fn state(&self) -> PathBuf {
        PathBuf::from(format!("/var/tmp/coroner-lab-{}", self.lab))
    }

    /// The socket that `coroner-lab serve` answers on.
    #[must_use]
    pub fn socket(&self) -> PathBuf {
        self.state().join("lab.sock")
    }

    /// Kubeconfig of the cluster's admin.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.state().join("control-plane/kubeconfig/admin")
    }

    /// The API server's audit log: the instant of a taint, by the one who wrote it.
    #[must_use]
    pub fn audit(&self) -> PathBuf {
        self.state().join("audit.jsonl")
    }

    /// What happened to the machines, by the only one who knows.
    #[must_use]
    pub fn truth(&self) -> PathBuf {
        self.state().join("truth.jsonl")
    }

    /// Folder of the shared volumes, one folder for each.
    #[must_use]
    pub fn volumes(&self) -> PathBuf {
        self.state().join("volumes")
    }

    /// Folder of one machine.
    #[must_use]
    pub fn machine_dir(&self, machine: &str) -> PathBuf {
        self.state().join("machines").join(machine)
    }

    /// Every network namespace of the lab begins so.
    #[must_use]
    pub fn netns_prefix(&self) -> String {
        format!("coroner-{}-", self.lab)
    }

    /// Network namespace of the bridges and of the control plane.
    #[must_use]
    pub fn hub(&self) -> String {
        self.netns("hub")
    }

    /// Network namespace of the BMCs and of the only bridge that reaches them.
    #[must_use]
    pub fn bmc_network(&self) -> String {
        self.netns("bmc")
    }

    /// Network namespace of a machine; there while it is On.
    #[must_use]
    pub fn netns(&self, machine: &str) -> String {
        format!("{}{machine}", self.netns_prefix())
    }

    /// The host's own link to the spine.
    #[must_use]
    pub fn host_link(&self) -> String {
        format!("clab-{}", self.lab)
    }

    /// Control group of everything of the lab.
    #[must_use]
    pub fn cgroup(&self) -> String {
        format!("coroner-lab-{}", self.lab)
    }

    /// Control group of one machine, or of the `hub`.
    #[must_use]
    pub fn cgroup_of(&self, machine: &str) -> String {
        format!("{}/{machine}", self.cgroup())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_are_spread_over_racks_in_order() {
        let plan = Plan::new(&LabConfig::new("a", "3x2").unwrap(), 4).unwrap();
        let seen: Vec<_> = plan
            .machines
            .iter()
            .map(|m| format!("{} {} {} {}", m.name, m.rack, m.address, m.bmc_link_address.is_some()))
            .collect();
        assert_eq!(
            seen,
            [
                "n1 r1 10.104.1.1 true",
                "n2 r1 10.104.1.2 false",
                "n3 r2 10.104.2.3 true",
                "n4 r2 10.104.2.4 false",
                "n5 r3 10.104.3.5 true",
                "n6 r3 10.104.3.6 false",
            ]
        );
    }

    #[test]
    fn an_identity_is_a_uuid_and_differs_between_labs_and_machines() {
        let uuid = uuid_of("a", "n1");
        assert_eq!(uuid.len(), 36);
        assert_eq!(uuid.as_bytes()[14], b'4');
        assert_ne!(uuid, uuid_of("a", "n2"));
        assert_ne!(uuid, uuid_of("b", "n1"));
        assert_eq!(uuid, uuid_of("a", "n1"));
    }

    #[test]
    fn what_cannot_be_built_is_refused() {
        for (name, shape) in
            [("", "1x1"), ("longerthan8", "1x1"), ("A", "1x1"), ("a", "3"), ("a", "0x2"), ("a", "20x20")]
        {
            assert!(LabConfig::new(name, shape).is_err(), "{name:?} {shape:?}");
        }
        let config = LabConfig::new("a", "1x2").unwrap().replicas(["n3"]);
        assert!(config.check().unwrap_err().to_string().contains("n3"));
    }
}
