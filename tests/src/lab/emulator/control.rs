//! The control socket: one command per line of JSON in, one answer per line out; and its client. Everything that a
//! test or a person does to a BMC while it runs comes through `Command`, in process or over the socket.
//!
//! It is a tool of the lab on a unix socket, without log-in: whoever may open the file may use it.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::task::JoinSet;

use super::Emulator;

/// What can be done to the emulator. `bmc` names one BMC, or all with `*`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Command {
    /// All BMCs: address, seat, life, sessions, fingerprints, true power.
    Status,
    /// The knobs as they are now.
    Knobs {
        /// The BMC.
        bmc: String,
    },
    /// Sets the knobs that are named, leaves the others.
    Set {
        /// The BMC.
        bmc: String,
        /// Names and values, see `knobs.rs`.
        knobs: Value,
    },
    /// Sets all knobs to their default.
    Clear {
        /// The BMC.
        bmc: String,
    },
    /// The BMC restarts: connections and sessions are cut, nothing listens for `down_ms`, then it may say Off.
    Restart {
        /// The BMC.
        bmc: String,
        /// How long nothing listens; ms.
        #[serde(default)]
        down_ms: u64,
        /// How long it says Off after that, whatever is true; ms.
        #[serde(default)]
        says_off_ms: u64,
    },
    /// The BMC is gone until `live`.
    Die {
        /// The BMC.
        bmc: String,
    },
    /// A BMC that is gone starts.
    Live {
        /// The BMC.
        bmc: String,
        /// How long it says Off, whatever is true; ms.
        #[serde(default)]
        says_off_ms: u64,
    },
    /// All sessions of the BMC end, after so long; connections stay.
    DropSessions {
        /// The BMC.
        bmc: String,
        /// When; ms from now.
        #[serde(default)]
        after_ms: u64,
    },
    /// The account changes. Open sessions stay.
    Password {
        /// The BMC.
        bmc: String,
        /// The new user; `None` is as before.
        #[serde(default)]
        username: Option<String>,
        /// The new password.
        password: String,
    },
    /// The addresses of two BMCs are exchanged: at A's address B's BMC answers, and the other way round.
    Swap {
        /// One BMC.
        a: String,
        /// The other.
        b: String,
        /// Whether the certificates move with the BMCs; else only the machine behind the address is another.
        #[serde(default)]
        certificates: bool,
        /// Whether the accounts move with the BMCs.
        #[serde(default)]
        accounts: bool,
    },
    /// Every BMC is back at its own address.
    Unswap,
}

/// A client of the control socket.
#[derive(Clone, Debug)]
pub struct Control {
    socket: PathBuf,
}

// === impl Control ===

impl Control {
    /// A client of this socket; it connects for each command.
    #[must_use]
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.to_owned() }
    }

    /// Does a command and returns the answer's `result`.
    ///
    /// # Errors
    /// If the emulator cannot be reached, or refuses.
    pub async fn command(&self, command: &Command) -> anyhow::Result<Value> {
        self.line(&serde_json::to_string(command)?).await
    }

    /// Sets knobs of one BMC, or of all with `*`.
    ///
    /// # Errors
    /// As `command`.
    pub async fn set(&self, bmc: &str, knobs: Value) -> anyhow::Result<()> {
        self.command(&Command::Set { bmc: bmc.to_owned(), knobs }).await.map(drop)
    }

    /// Sends one line of JSON as it is.
    ///
    /// # Errors
    /// As `command`.
    pub async fn line(&self, line: &str) -> anyhow::Result<Value> {
        let mut stream = UnixStream::connect(&self.socket)
            .await
            .with_context(|| format!("connect to {}", self.socket.display()))?;
        stream.write_all(format!("{}\n", line.trim()).as_bytes()).await.context("send the command")?;
        let mut answer = String::new();
        BufReader::new(stream).read_line(&mut answer).await.context("read the answer")?;
        let mut answer: Value = serde_json::from_str(&answer).context("understand the answer")?;
        match answer["error"].as_str() {
            Some(error) => Err(anyhow::anyhow!("the emulator refuses: {error}")),
            None => Ok(answer["result"].take()),
        }
    }
}

/// Serves the control socket until dropped.
///
/// # Errors
/// If the socket can take no more connections.
pub async fn serve(listener: UnixListener, emulator: Arc<Emulator>) -> std::io::Result<()> {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        let emulator = Arc::clone(&emulator);
        connections.spawn(async move {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let done = match serde_json::from_str::<Command>(&line) {
                    Ok(command) => emulator.command(command).await,
                    Err(error) => Err(error.into()),
                };
                let answer = match done {
                    Ok(result) => json!({ "ok": true, "result": result }),
                    Err(error) => json!({ "ok": false, "error": format!("{error:#}") }),
                };
                if write.write_all(format!("{answer}\n").as_bytes()).await.is_err() {
                    break;
                }
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

/// A span of so many milliseconds.
pub(super) fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[cfg(test)]
mod tests {
    use super::super::BmcConfig;
    use super::super::machine::SimMachine;
    use super::*;

    #[tokio::test]
    async fn knobs_and_commands_go_over_the_socket_and_wrong_ones_are_refused_by_name() {
        rustls::crypto::ring::default_provider().install_default().ok();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("password"), "canary\n").unwrap();
        let config = |name: &str| BmcConfig {
            name: name.to_owned(),
            address: "127.0.0.1:0".parse().unwrap(),
            uuid: format!("uuid-{name}"),
            machine: name.to_owned(),
            username: "u".to_owned(),
            password_file: folder.path().join("password"),
        };
        let configs = [config("n1"), config("n2")];
        let emulator = Emulator::start(&configs, folder.path(), |_| Arc::new(SimMachine::new())).unwrap();
        let socket = folder.path().join("control.sock");
        let _serving = tokio::spawn(serve(UnixListener::bind(&socket).unwrap(), Arc::new(emulator)));
        let control = Control::new(&socket);

        control.set("n1", json!({ "uuid": "zeros" })).await.unwrap();
        let knobs = control.command(&Command::Knobs { bmc: "n1".to_owned() }).await.unwrap();
        assert_eq!((&knobs["uuid"], &knobs["basic"]), (&json!("zeros"), &json!(true)));
        for (line, word) in [
            (r#"{"op":"set","bmc":"n1","knobs":{"uuuid":"zeros"}}"#, "uuuid"),
            (r#"{"op":"set","bmc":"n3","knobs":{}}"#, "n3"),
            (r#"{"op":"explode"}"#, "explode"),
            ("hello", "expected"),
        ] {
            let error = control.line(line).await.unwrap_err().to_string();
            assert!(error.contains(word), "{line}: {error}");
        }
        control.line(r#"{"op":"swap","a":"n1","b":"n2"}"#).await.unwrap();
        control.line(r#"{"op":"die","bmc":"n2"}"#).await.unwrap();
        let status = control.command(&Command::Status).await.unwrap();
        let of = |name: &str| {
            let all = status["bmcs"].as_array().unwrap();
            let one = all.iter().find(|bmc| bmc["name"] == name).unwrap();
            (one["seated"].clone(), one["up"].clone(), one["power"].clone())
        };
        assert_eq!(of("n1"), (json!("n2"), json!(true), json!("On")));
        assert_eq!(of("n2"), (json!("n1"), json!(false), json!("On")));
        assert!(!status.to_string().contains("canary"));
        control.line(r#"{"op":"clear","bmc":"*"}"#).await.unwrap();
        let knobs = control.command(&Command::Knobs { bmc: "n1".to_owned() }).await.unwrap();
        assert_eq!(knobs["uuid"], json!("right"));
    }

    #[test]
    fn every_command_survives_its_way_over_the_socket() {
        let bmc = || "n1".to_owned();
        for command in [
            Command::Status,
            Command::Restart { bmc: bmc(), down_ms: 1, says_off_ms: 2 },
            Command::Live { bmc: bmc(), says_off_ms: 3 },
            Command::DropSessions { bmc: bmc(), after_ms: 4 },
            Command::Password { bmc: bmc(), username: None, password: "p".to_owned() },
            Command::Swap { a: bmc(), b: bmc(), certificates: true, accounts: false },
            Command::Unswap,
        ] {
            let line = serde_json::to_string(&command).unwrap();
            assert_eq!(serde_json::from_str::<Command>(&line).unwrap(), command, "{line}");
        }
    }
}
