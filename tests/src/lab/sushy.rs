//! OpenStack's sushy-emulator as a peer: installed once from PyPI into a cache outside the checkout, started over TLS
//! with the driver of `tests/sushy/driver.py`, whose machines are those behind the lab's unix socket. It ends with
//! the value that holds it, also when the whole test process is killed.
//!
//! What it does not have is as useful as what it has: no sessions (Basic only), no `LastResetTime`, no ETags.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde::Serialize;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, ChildStdin, Command};

use super::emulator::knobs::{Certificate, Versions};
use super::emulator::tls::{self, Authority, Identity};

/// The version of sushy-tools; part of the cache's path.
pub const VERSION: &str = "2.2.0";
/// From its start until it listens: Python and Flask take about a second on an idle machine.
const READY_WITHIN: Duration = Duration::from_secs(60);
const DRIVER: &str = include_str!("../../sushy/driver.py");

/// One system that it serves.
#[derive(Clone, Debug, Serialize)]
pub struct System {
    /// Its UUID, which is also the id in its path.
    pub uuid: String,
    /// Its name; asking by name redirects (307) to the UUID.
    pub name: String,
    /// The machine's name on the lab's socket.
    pub machine: String,
}

/// How to start it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where it listens; port 0 is any free one.
    pub address: SocketAddr,
    /// The network namespace to start it in; `None` is the caller's.
    pub netns: Option<PathBuf>,
    /// Folder for the CA, the certificate, the configuration and the ledger. With the folder of an emulator both
    /// have one CA.
    pub folder: PathBuf,
    /// The unix socket of the machines.
    pub socket: PathBuf,
    /// The account's user.
    pub username: String,
    /// The file that holds its password.
    pub password_file: PathBuf,
    /// The systems.
    pub systems: Vec<System>,
}

/// A running sushy-emulator; dropped, it is killed.
#[derive(Debug)]
pub struct Sushy {
    /// Where it listens.
    pub address: SocketAddr,
    /// The CA to trust.
    pub ca_file: PathBuf,
    /// The name in its certificate.
    pub server_name: String,
    /// The fingerprints of its certificate.
    pub identity: Identity,
    /// Its ledger, in the format of our emulator.
    pub ledger: PathBuf,
    _child: Child,
    _stdin: ChildStdin,
}

// === impl Sushy ===

impl Sushy {
    /// Starts it and waits until it listens.
    ///
    /// # Errors
    /// If it is not installed (see `install`), a file cannot be written, or it does not listen within a minute.
    pub async fn start(python: &Path, config: &Config) -> anyhow::Result<Self> {
        let folder = &config.folder;
        let authority = Authority::open(folder)?;
        let identity = authority.issue(
            ("sushy", &config.address.ip().to_string()),
            Certificate::Good,
            Versions::Both,
        )?;
        let (driver, settings, ledger) =
            (folder.join("sushy-driver.py"), folder.join("sushy.json"), folder.join("sushy-ledger.jsonl"));
        fs::write(&driver, DRIVER).context("write the driver")?;
        let text = json!({
            "listen": config.address.ip(),
            "port": config.address.port(),
            "certificate": folder.join("tls/sushy.crt"),
            "key": folder.join("tls/sushy.key"),
            "username": config.username,
            "password_file": config.password_file,
            "socket": config.socket,
            "ledger": ledger,
            "systems": config.systems,
        });
        fs::write(&settings, text.to_string()).context("write the configuration")?;
        let log = fs::File::create(folder.join("sushy.log")).context("create the log")?;
        let mut child = command(python, config.netns.as_deref())
            .arg(&driver)
            .arg(&settings)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("start {}", python.display()))?;
        let stdin = child.stdin.take().context("take its standard input")?;
        let stdout = child.stdout.take().context("take its standard output")?;
        let mut line = String::new();
        let mut stdout = BufReader::new(stdout);
        let read = stdout.read_line(&mut line);
        tokio::time::timeout(READY_WITHIN, read)
            .await
            .context("wait for it to listen")?
            .context("read its output")?;
        let port = line.strip_prefix("ready ").and_then(|port| port.trim().parse().ok());
        let log = folder.join("sushy.log");
        let port = port.with_context(|| format!("it ended before it listened; see {}", log.display()))?;
        Ok(Self {
            address: SocketAddr::new(config.address.ip(), port),
            ca_file: authority.ca_file(),
            server_name: tls::dns_name("sushy"),
            identity,
            ledger,
            _child: child,
            _stdin: stdin,
        })
    }
}

/// The Python of a virtual environment that has sushy-tools; installs it from PyPI if the cache has none, and says so
/// through `say`.
///
/// # Errors
/// If there is no python3 with venv, or PyPI cannot be reached.
pub async fn install(cache: &Path, say: impl Fn(&str)) -> anyhow::Result<PathBuf> {
    let home = cache.join(format!("sushy-tools-{VERSION}"));
    let python = home.join("bin/python");
    if python.exists() {
        return Ok(python);
    }
    say(&format!("installing sushy-tools {VERSION} from PyPI into {}", home.display()));
    fs::create_dir_all(cache).with_context(|| format!("make {}", cache.display()))?;
    // Made beside its place and moved there whole: a half-made environment is never taken for one.
    let draft = tempfile::tempdir_in(cache).context("make a folder in the cache")?;
    let path = draft.path().join("venv");
    let ran = |what: &'static str, command: &mut Command| {
        let run = command.stdin(Stdio::null()).kill_on_drop(true).output();
        async move {
            let output = run.await.with_context(|| what.to_owned())?;
            let errors = String::from_utf8_lossy(&output.stderr).into_owned();
            ensure!(output.status.success(), "{what}: {errors}");
            Ok(())
        }
    };
    ran("make a virtual environment", Command::new("python3").args(["-m", "venv"]).arg(&path)).await?;
    let wanted = format!("sushy-tools=={VERSION}");
    let mut pip = Command::new(path.join("bin/python"));
    pip.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", &wanted]);
    ran("install sushy-tools", &mut pip).await?;
    match fs::rename(&path, &home) {
        Ok(()) => Ok(python),
        // Somebody else was faster.
        Err(_) if python.exists() => Ok(python),
        Err(error) => bail!("move the environment to {}: {error}", home.display()),
    }
}

/// The cache for what is built or fetched once: `$CORONER_CACHE`, else `~/.cache/coroner`.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "tests have no command line; this is their one setting")]
pub fn default_cache() -> PathBuf {
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap_or_default()).join(".cache/coroner");
    std::env::var_os("CORONER_CACHE").map_or_else(home, PathBuf::from)
}

fn command(python: &Path, netns: Option<&Path>) -> Command {
    let Some(netns) = netns else { return Command::new(python) };
    let mut command = Command::new("nsenter");
    command.arg(format!("--net={}", netns.display())).arg(python);
    command
}
