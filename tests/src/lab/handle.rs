//! A lab in a test's hand: up with [`Lab::up`], gone when it is dropped, however that comes about.

use std::{
    fs::{self, OpenOptions},
    io::Read,
    path::{Path, PathBuf},
    process::Stdio,
    thread::sleep,
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use nix::{
    sys::signal::{Signal, kill},
    unistd::Pid,
};
use tokio::{
    io::{AsyncBufReadExt, BufReader},
    process::{Child, Command},
};

use super::{
    build::check_host,
    client::LabClient,
    plan::{LabConfig, Names, Plan},
    teardown,
};

/// Removing a lab takes a second or two; copying its logs may take longer.
const END_PATIENCE: Duration = Duration::from_secs(60);

/// A running lab and its server.
#[derive(Debug)]
pub struct Lab {
    plan: Plan,
    server: Server,
}

/// The server's process. Its stdin is the leash: should we be killed, it ends, and cleans up.
#[derive(Debug)]
struct Server {
    names: Names,
    child: Option<Child>,
}

// === impl Lab ===

impl Lab {
    /// Builds a lab and returns when every node is Ready; `say` hears of each step.
    ///
    /// # Errors
    /// When it cannot be built. Nothing is left of it then.
    pub async fn up(config: LabConfig, say: impl Fn(&str)) -> Result<Self> {
        check_host()?;
        let server = Server::start(&config, true)?;
        Self::wait_up(server, say).await
    }

    /// As [`Lab::up`], but the lab stays until somebody takes it down by its name.
    ///
    /// # Errors
    /// As [`Lab::up`].
    pub async fn up_to_stay(config: LabConfig, say: impl Fn(&str)) -> Result<Plan> {
        check_host()?;
        let server = Server::start(&config, false)?;
        let Self { plan, mut server } = Self::wait_up(server, say).await?;
        server.child = None;
        Ok(plan)
    }

    async fn wait_up(mut server: Server, say: impl Fn(&str)) -> Result<Self> {
        let child = server.child.as_mut().context("the server was started")?;
        let stdout = child.stdout.take().context("hear the server")?;
        let mut lines = BufReader::new(stdout).lines();
        while let Some(line) = lines.next_line().await.context("hear the server")? {
            if line == "up" {
                let path = server.names.state().join("plan.json");
                let text = fs::read(&path).with_context(|| format!("read {}", path.display()))?;
                let plan = serde_json::from_slice(&text).context("understand plan.json")?;
                return Ok(Self { plan, server });
            }
            match line.split_once(' ') {
                Some(("progress", text)) => say(text),
                Some(("failed", why)) => {
                    bail!(
                        "lab {} did not come up: {why} (artifacts of the configuration keep its logs)",
                        server.names.lab
                    )
                }
                Some(_) | None => {}
            }
        }
        bail!("the server of lab {} ended before the lab was up", server.names.lab)
    }

    /// Takes it down, and says if anything is left.
    ///
    /// # Errors
    /// When something is.
    pub async fn down(mut self) -> Result<()> {
        tokio::task::spawn_blocking(move || self.server.end()).await.context("wait for the end of the lab")?
    }

    /// Asks the lab.
    #[must_use]
    pub fn client(&self) -> LabClient {
        LabClient::new(self.plan.names.socket())
    }

    /// Names and addresses of everything.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Folder of everything that the lab keeps on disk.
    #[must_use]
    pub fn state_dir(&self) -> PathBuf {
        self.plan.names.state()
    }

    /// Kubeconfig of the administrator; the address in it is reachable from the host.
    #[must_use]
    pub fn kubeconfig(&self) -> PathBuf {
        self.plan.names.kubeconfig()
    }
}

// === impl Server ===

impl Server {
    fn start(config: &LabConfig, leash: bool) -> Result<Self> {
        config.check()?;
        check_pause_program(&config.pause_program)?;
        let names = Names::new(&config.name)?;
        let state = names.state();
        let program = program()?;
        // Made by one only: two labs of one name would take each other's machines.
        fs::create_dir(&state).with_context(|| {
            format!(
                "make {} (a lab of that name is there: coroner-lab down --name {})",
                state.display(),
                names.lab
            )
        })?;
        let mut server = Self { names, child: None };
        let path = state.join("config.json");
        let text = serde_json::to_vec_pretty(config).context("write the configuration as JSON")?;
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        let log = OpenOptions::new().create(true).append(true).open(state.join("serve.log"));
        let mut command = Command::new(&program);
        command.arg("serve").arg(&path).current_dir("/").stdout(Stdio::piped());
        command.stderr(log.context("open serve.log")?);
        if leash {
            command.arg("--leash").stdin(Stdio::piped());
        } else {
            command.stdin(Stdio::null());
        }
        server.child = Some(command.spawn().with_context(|| format!("start {} serve", program.display()))?);
        Ok(server)
    }

    /// Ends the server politely, then makes sure of what it should have done.
    fn end(&mut self) -> Result<()> {
        let Some(mut child) = self.child.take() else { return Ok(()) };
        if let Some(pid) = child.id().and_then(|pid| i32::try_from(pid).ok()) {
            let _ = kill(Pid::from_raw(pid), Signal::SIGTERM);
        }
        let step = Duration::from_millis(20);
        let mut waited = Duration::ZERO;
        while waited < END_PATIENCE && child.try_wait().context("wait for the server")?.is_none() {
            sleep(step);
            waited += step;
        }
        teardown::remove(&self.names)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Err(error) = self.end() {
            eprintln!("{error:#}");
        }
    }
}

/// In an image made FROM scratch there is no loader; a program that wants one would keep every pod from starting.
fn check_pause_program(program: &Path) -> Result<()> {
    let mut start = Vec::new();
    let file =
        fs::File::open(program).with_context(|| format!("open the pause program {}", program.display()))?;
    file.take(16 << 10).read_to_end(&mut start).with_context(|| format!("read {}", program.display()))?;
    ensure!(start.starts_with(b"\x7fELF"), "the pause program {} is no ELF program", program.display());
    let dynamic = [&b"/ld-linux"[..], b"/ld-musl"].iter().any(|loader| contains(&start, loader));
    ensure!(
        !dynamic,
        "the pause program {} is not static (-C target-feature=+crt-static)",
        program.display()
    );
    Ok(())
}

fn contains(text: &[u8], word: &[u8]) -> bool {
    text.windows(word.len()).any(|window| window == word)
}

/// `coroner-lab`, which cargo puts beside a program of ours or one folder above a test.
fn program() -> Result<PathBuf> {
    let me = std::env::current_exe().context("find this program")?;
    let near = me.ancestors().skip(1).take(2).map(|dir| dir.join("coroner-lab"));
    let found = near.into_iter().find(|path| path.exists());
    found.with_context(|| {
        format!("no coroner-lab near {}: cargo build -p coroner-tests --bin coroner-lab", me.display())
    })
}

/// That no other lab has this name; the error says who has it, and what to do about that.
///
/// # Errors
/// When one runs, or was killed so that something of it is left.
pub fn ensure_free(name: &str) -> Result<()> {
    let names = Names::new(name)?;
    let state = names.state();
    if !state.exists() {
        return Ok(());
    }
    // A killed server leaves a socket that refuses; one that begins or ends has none yet, or none any more.
    let runs = std::os::unix::net::UnixStream::connect(names.socket()).is_ok();
    ensure!(!runs, "a lab named {name:?} runs already, in {}: wait for its end", state.display());
    let me = std::env::current_exe().context("find this program")?;
    bail!(
        "of a lab named {name:?} {} is there already: if it runs, wait for its end; else {} down --name {name} removes it",
        state.display(),
        me.with_file_name("coroner-lab").display()
    )
}

/// Takes down whatever is there of lab `name`, by asking its server first.
///
/// # Errors
/// When something of it is left.
pub fn down(name: &str) -> Result<()> {
    let names = Names::new(name)?;
    ensure!(nix::unistd::geteuid().is_root(), "only root can take a lab down");
    let socket = names.socket();
    if super::client::ask_blocking::<serde_json::Value>(&socket, &super::protocol::Request::Down).is_ok() {
        wait_gone(&names.state());
    }
    teardown::remove(&names)
}

fn wait_gone(state: &Path) {
    let step = Duration::from_millis(20);
    let mut waited = Duration::ZERO;
    while state.exists() && waited < END_PATIENCE {
        sleep(step);
        waited += step;
    }
}
