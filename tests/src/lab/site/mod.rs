//! A site: a lab on which Coroner runs as it ships, with BMCs that it may use and workloads that it may release.
//!
//! ```text
//!   Site::up ── Lab::up            machines, control plane                       (coroner_tests::lab)
//!           ├── Bmcs               a BMC for each machine, over TLS
//!           ├── deploy/crds, deploy/init (or tests/deploy-lab/init-one), tests/deploy-lab/base
//!           ├── objects            log-in, MachineBindings, the lab's FencingPolicy
//!           ├── Attacher, Writers  a StatefulSet whose pods write to volumes that must be attached
//!           ├── Watch              what the cluster says, for the oracles
//!           └── People             an operator's token, the people's port, the `coroner` command
//! ```
//!
//! It judges nothing: scenarios do to it what happens to sites, oracles judge the files it leaves.

pub mod cluster;
pub mod home;
pub mod look;
pub mod objects;
pub mod people;
pub mod programs;
pub mod ready;
pub mod tell;
pub mod watch;

use std::{
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
    sync::atomic::AtomicU64,
    time::Duration,
};

use anyhow::{Context, Result};
use kube::Client;
use serde_json::json;

use self::{
    cluster::Kubectl,
    home::Homes,
    people::People,
    programs::{Programs, in_checkout},
    tell::{Look, Tell},
    watch::Watch,
};
use super::{
    Lab, LabClient, LabConfig, Plan,
    attacher::{Attacher, Writers},
    bmcs::Bmcs,
    truth,
};
use crate::oracles::{
    Finding, Record, findings,
    record::{Limits, Order, files},
};

/// What a site is asked to be.
#[derive(Clone, Debug)]
pub struct SiteConfig {
    /// Name of its lab.
    pub name: String,
    /// Racks and machines, as in `3x2`.
    pub shape: String,
    /// Machines that host a replica: three, or one.
    pub replicas: Vec<String>,
    /// How many writers the StatefulSet `w` has.
    pub writers: u16,
    /// Folder of the images; `None`: see [`Programs::find`].
    pub images: Option<PathBuf>,
    /// Where logs and the oracles' files are kept when it goes away after a failure.
    pub evidence: PathBuf,
}

/// A running site; dropped, everything is gone but what failed left as evidence.
pub struct Site {
    /// Who hears what happens.
    pub tell: Tell,
    /// `kubectl`.
    pub kubectl: Kubectl,
    /// The API, as administrator.
    pub client: Client,
    /// An operator.
    pub people: People,
    /// What the cluster says.
    pub watch: Watch,
    /// The BMCs.
    pub bmcs: Bmcs,
    /// The workload.
    pub writers: Writers,
    /// Attaches volumes.
    pub attacher: Attacher,
    /// The machines' power and cables.
    pub power: LabClient,
    /// When every binding was FenceReady, `CLOCK_BOOTTIME` in ns; for a countdown only.
    ready: AtomicU64,
    homes: Homes,
    config: SiteConfig,
    // Last: the others speak to it until they are gone.
    lab: Lab,
}

// === impl SiteConfig ===

impl SiteConfig {
    /// Six machines in three racks, a replica on the first of each, six writers.
    #[must_use]
    pub fn full(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            shape: "3x2".to_owned(),
            replicas: ["n1", "n3", "n5"].map(str::to_owned).to_vec(),
            writers: 6,
            images: None,
            evidence: PathBuf::from(format!("/var/tmp/coroner-evidence-{name}")),
        }
    }

    /// Three machines in three racks and one replica: quicker to come up, and no leader to lose.
    #[must_use]
    pub fn thin(name: &str) -> Self {
        Self { shape: "3x1".to_owned(), replicas: vec!["n1".to_owned()], writers: 3, ..Self::full(name) }
    }
}

// === impl Site ===

impl Site {
    /// Brings it up, to the point at which Coroner would act on the next death.
    ///
    /// # Errors
    /// When a step fails. Nothing is left then but the evidence, which the error names.
    pub async fn up(config: SiteConfig, tell: Tell) -> Result<Self> {
        let programs = Programs::find(config.images.as_deref(), &tell).await?;
        let evidence = config.evidence.clone();
        let _ = std::fs::remove_dir_all(&evidence);
        let up = Self::build(config, tell, &programs).await;
        up.with_context(|| format!("bring the site up (logs are kept in {})", evidence.display()))
    }

    async fn build(config: SiteConfig, tell: Tell, programs: &Programs) -> Result<Self> {
        tell.line("the lab: machines with a real kubelet and containerd, and a control plane");
        let lab_config = LabConfig::new(&config.name, &config.shape)?
            .replicas(config.replicas.clone())
            .image(&programs.coroner_image)
            .image(&programs.writer_image)
            .pause_program(&programs.pause)
            .artifacts(&config.evidence);
        let lab = Lab::up(lab_config, |line| tell.note(line)).await?;
        let (plan, state) = (lab.plan().clone(), lab.state_dir());
        let kubectl = Kubectl::new(&plan.names);
        let client = client(&lab.kubeconfig()).await?;
        tell.line("a BMC for each machine, over TLS, in a network that only the replicas' machines reach");
        let bmcs = Bmcs::start(&programs.lab_bmc, &plan, objects::USERNAME, objects::PASSWORD).await?;
        tell.line("Coroner, as it ships");
        install(&kubectl, &config, &tell).await?;
        let watch = Watch::start(&client, &state)?;
        let attacher = Attacher::start(client.clone());
        let writers = Writers::new("default", "w", config.writers);
        writers.apply(&client).await?;
        let ca = std::fs::read_to_string(&bmcs.ca_file).context("read the CA of the BMCs")?;
        kubectl.apply(&objects::bindings(&plan, &ca)).await?;
        tell.line("the lab's policy: Enforce, profile balanced, and");
        objects::policy_said().iter().for_each(|line| tell.note(line));
        kubectl.apply(&[objects::policy()]).await?;
        let people = People::new(&kubectl, &programs.coroner, &state, "operator").await?;
        let power = lab.client();
        let (ready, homes) = (AtomicU64::new(0), Homes::default());
        let site = Self {
            tell,
            kubectl,
            client,
            people,
            watch,
            bmcs,
            writers,
            attacher,
            power,
            ready,
            homes,
            config,
            lab,
        };
        site.wait_running().await?;
        Ok(site)
    }

    /// Names and addresses.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        self.lab.plan()
    }

    /// What it was asked to be.
    #[must_use]
    pub fn config(&self) -> &SiteConfig {
        &self.config
    }

    /// Folder of the lab.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.lab.state_dir()
    }

    /// Kubeconfig of the administrator.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.lab.kubeconfig()
    }

    /// Folder of `coroner`, and of `coroner-lab`, for a person's PATH.
    #[must_use]
    pub fn programs_folder(&self) -> String {
        // The command first: beside the lab's own programs may lie one of an older build.
        let me = std::env::current_exe().ok();
        let folders = [self.people.program().parent(), me.as_deref().and_then(Path::parent)];
        folders.into_iter().flatten().map(|folder| folder.display().to_string()).collect::<Vec<_>>().join(":")
    }

    /// What the brakes allow here.
    #[must_use]
    pub fn limits(&self) -> Limits {
        objects::limits(self.plan().machines.len())
    }

    /// Everything that the oracles read, at this moment.
    ///
    /// # Errors
    /// When a file is missing or wrong.
    pub async fn record(&self) -> Result<Record> {
        let (plan, limits) = (self.plan().clone(), self.limits());
        tokio::task::spawn_blocking(move || Record::read(&plan, limits)).await.context("read the record")?
    }

    /// What the oracles find, at this moment.
    ///
    /// # Errors
    /// When a file is missing or wrong.
    pub async fn findings(&self) -> Result<Vec<Finding>> {
        let record = self.record().await?;
        tokio::task::spawn_blocking(move || findings(&record)).await.context("judge the record")
    }

    /// Notes for the oracles that somebody orders this machine off, before it is done.
    ///
    /// # Errors
    /// When it cannot be noted.
    pub fn declare_order(&self, machine: &str) -> Result<()> {
        let path = self.state_dir().join(files::ORDERS);
        let order = Order { t: truth::now_ns()?, machine: machine.to_owned() };
        let mut file =
            OpenOptions::new().create(true).append(true).open(path).context("open orders.jsonl")?;
        writeln!(file, "{}", json!(order)).context("append to orders.jsonl")
    }

    /// Runs a verb of `hack/control-plane`, such as `stop kube-apiserver`.
    ///
    /// # Errors
    /// When it fails.
    pub async fn control_plane(&self, words: &[&str]) -> Result<()> {
        let output = tokio::process::Command::new(in_checkout("hack/control-plane"))
            .args(words)
            .arg("--dir")
            .arg(self.state_dir().join("control-plane"))
            .output()
            .await
            .context("start hack/control-plane")?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        anyhow::ensure!(output.status.success(), "hack/control-plane {}: {}", words.join(" "), said.trim());
        Ok(())
    }

    /// Takes it down. The evidence is kept if `failed`, and removed otherwise.
    ///
    /// # Errors
    /// When something of it is left.
    pub async fn down(self, failed: bool) -> Result<()> {
        let Self { lab, config, bmcs, watch, attacher, .. } = self;
        drop((watch, attacher));
        let down = lab.down().await;
        drop(bmcs);
        if !failed {
            let _ = std::fs::remove_dir_all(&config.evidence);
        }
        down
    }
}

// === helpers ===

/// A client that is not slowed down by its own limits.
async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = kube::config::Kubeconfig::read_from(kubeconfig).context("read the kubeconfig")?;
    let config =
        kube::Config::from_custom_kubeconfig(file, &kube::config::KubeConfigOptions::default()).await;
    Client::try_from(config.context("understand the kubeconfig")?).context("make a client of the API server")
}

/// As the README says it: CRDs, the Job that founds the cluster, the DaemonSets.
async fn install(kubectl: &Kubectl, config: &SiteConfig, tell: &Tell) -> Result<()> {
    let mut label = vec!["label", "--overwrite", "nodes"];
    label.extend(config.replicas.iter().map(String::as_str));
    label.push("coroner.dev/arbiter=true");
    kubectl.run(&label).await?;
    let init = if config.replicas.len() == 1 { "tests/deploy-lab/init-one" } else { "deploy/init" };
    for folder in ["deploy/crds", init] {
        tell.note(&format!("kubectl apply --server-side -k {folder}"));
        kubectl.apply_folder(&in_checkout(folder)).await?;
    }
    tell.until("the init Job", Duration::from_secs(120), || async {
        let job = kubectl.json(&["-n", "coroner", "get", "job", "coroner-init"]).await?;
        let done = job["status"]["succeeded"].as_u64().unwrap_or(0) > 0;
        Ok(if done { Look::There(()) } else { Look::Missing(format!("its status is {}", job["status"])) })
    })
    .await?;
    tell.note("kubectl apply --server-side -k tests/deploy-lab/base");
    kubectl.apply_folder(&in_checkout("tests/deploy-lab/base")).await
}
