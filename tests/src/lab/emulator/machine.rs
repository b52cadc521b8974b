//! The machine behind a BMC: the only thing in the emulator that is true. Either one of the lab's machines, over
//! the lab's unix socket, or a simulated one for tests of a driver that need no lab; and a small server that puts
//! simulated machines on such a socket, for emulators that are other processes.
//!
//! Nothing here lies, delays or refuses: that is the BMC's part (`power.rs`, `knobs.rs`).

use std::collections::BTreeMap;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::future::BoxFuture;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};

use crate::lab::writer::boottime_ns;

/// Longest wait for the lab's answer to one call; its power-off kills and waits for a whole machine.
const LAB_DEADLINE: Duration = Duration::from_secs(60);

/// Whether the machine runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Power {
    /// It has power; it may be frozen or cut off all the same.
    On,
    /// Nothing of it runs.
    Off,
}

/// What a BMC can ask of its machine. Each call returns when it has been done, with the state after it.
pub trait Machine: Send + Sync {
    /// Whether it runs, from the machine itself.
    fn state(&self) -> BoxFuture<'_, io::Result<Power>>;
    /// Cuts the power; nothing of the machine runs when it returns. Off already is success.
    fn off(&self) -> BoxFuture<'_, io::Result<Power>>;
    /// Gives it power: a new boot. On already is success.
    fn on(&self) -> BoxFuture<'_, io::Result<Power>>;
}

/// A machine of the lab, by its name on the lab's unix socket.
#[derive(Clone, Debug)]
pub struct LabMachine {
    /// The lab's unix socket.
    pub socket: PathBuf,
    /// The machine's name in the lab.
    pub machine: String,
}

/// One call over the lab's socket: a line of JSON.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Call {
    op: String,
    machine: String,
}

/// The answer to a call: a line of JSON.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Reply {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    power: Option<Power>,
    #[serde(skip_serializing_if = "Option::is_none")]
    error: Option<String>,
}

// === impl LabMachine ===

impl LabMachine {
    async fn call(&self, op: &str) -> io::Result<Power> {
        let call = Call { op: op.to_owned(), machine: self.machine.clone() };
        let exchange = async {
            let mut stream = UnixStream::connect(&self.socket).await?;
            stream.write_all(format!("{}\n", serde_json::to_string(&call)?).as_bytes()).await?;
            let mut line = String::new();
            BufReader::new(stream).read_line(&mut line).await?;
            Ok::<Reply, io::Error>(serde_json::from_str(&line)?)
        };
        let reply = tokio::time::timeout(LAB_DEADLINE, exchange).await??;
        match reply {
            Reply { ok: true, power: Some(power), .. } => Ok(power),
            Reply { error, .. } => {
                Err(io::Error::other(error.unwrap_or_else(|| "no power in the answer".to_owned())))
            }
        }
    }
}

impl Machine for LabMachine {
    fn state(&self) -> BoxFuture<'_, io::Result<Power>> {
        Box::pin(self.call("state"))
    }

    fn off(&self) -> BoxFuture<'_, io::Result<Power>> {
        Box::pin(self.call("off"))
    }

    fn on(&self) -> BoxFuture<'_, io::Result<Power>> {
        Box::pin(self.call("on"))
    }
}

/// A machine that is two values and a list: its power, how long a change takes, and every change that was made.
#[derive(Debug)]
pub struct SimMachine {
    inner: Mutex<Sim>,
}

#[derive(Debug)]
struct Sim {
    power: Power,
    off_takes: Duration,
    on_takes: Duration,
    changes: Vec<(u64, Power)>,
    broken: Option<String>,
}

// === impl SimMachine ===

impl Default for SimMachine {
    fn default() -> Self {
        Self::new()
    }
}

impl SimMachine {
    /// A machine that is on and changes at once.
    #[must_use]
    pub fn new() -> Self {
        let (off_takes, on_takes) = (Duration::ZERO, Duration::ZERO);
        Self {
            inner: Mutex::new(Sim { power: Power::On, off_takes, on_takes, changes: vec![], broken: None }),
        }
    }

    /// How long a power-off and a power-on take from now on. A call that is dropped meanwhile changes nothing.
    pub fn takes(&self, off: Duration, on: Duration) {
        let mut sim = self.lock();
        (sim.off_takes, sim.on_takes) = (off, on);
    }

    /// Its power at this moment.
    #[must_use]
    pub fn power(&self) -> Power {
        self.lock().power
    }

    /// Sets the power as a hand at the front panel would: at once, and recorded as a change.
    pub fn set(&self, power: Power) {
        self.lock().change(power);
    }

    /// From now on every call fails with this text, until `None`.
    pub fn breaks(&self, why: Option<String>) {
        self.lock().broken = why;
    }

    /// Every change of the power with its instant (`CLOCK_BOOTTIME`, ns).
    #[must_use]
    pub fn changes(&self) -> Vec<(u64, Power)> {
        self.lock().changes.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Sim> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn turn(&self, power: Power) -> io::Result<Power> {
        let wait = {
            let sim = self.lock();
            match power {
                _ if sim.power == power => Duration::ZERO,
                Power::Off => sim.off_takes,
                Power::On => sim.on_takes,
            }
        };
        tokio::time::sleep(wait).await;
        let mut sim = self.lock();
        sim.works()?;
        sim.change(power);
        Ok(power)
    }
}

impl Sim {
    fn change(&mut self, power: Power) {
        if self.power != power {
            self.power = power;
            self.changes.push((boottime_ns(), power));
        }
    }

    fn works(&self) -> io::Result<()> {
        self.broken.as_ref().map_or(Ok(()), |why| Err(io::Error::other(why.clone())))
    }
}

impl Machine for SimMachine {
    fn state(&self) -> BoxFuture<'_, io::Result<Power>> {
        let sim = self.lock();
        let state = sim.works().map(|()| sim.power);
        Box::pin(std::future::ready(state))
    }

    fn off(&self) -> BoxFuture<'_, io::Result<Power>> {
        Box::pin(self.turn(Power::Off))
    }

    fn on(&self) -> BoxFuture<'_, io::Result<Power>> {
        Box::pin(self.turn(Power::On))
    }
}

/// Serves machines by name over the lab's protocol until the future is dropped.
///
/// # Errors
/// If the socket can take no more connections.
pub async fn serve(listener: UnixListener, machines: BTreeMap<String, Arc<dyn Machine>>) -> io::Result<()> {
    let machines = Arc::new(machines);
    let mut connections = tokio::task::JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        let machines = Arc::clone(&machines);
        connections.spawn(async move {
            let (read, mut write) = stream.into_split();
            let mut lines = BufReader::new(read).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                let reply = answer(&machines, &line).await;
                let text = serde_json::to_string(&reply).unwrap_or_default();
                if write.write_all(format!("{text}\n").as_bytes()).await.is_err() {
                    break;
                }
            }
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(machines: &BTreeMap<String, Arc<dyn Machine>>, line: &str) -> Reply {
    let refuse = |error: String| Reply { error: Some(error), ..Reply::default() };
    let call: Call = match serde_json::from_str(line) {
        Ok(call) => call,
        Err(error) => return refuse(error.to_string()),
    };
    let Some(machine) = machines.get(&call.machine) else {
        return refuse(format!("no machine {}", call.machine));
    };
    let done = match call.op.as_str() {
        "state" => machine.state().await,
        "off" => machine.off().await,
        "on" => machine.on().await,
        other => return refuse(format!("no op {other}")),
    };
    match done {
        Ok(power) => Reply { ok: true, power: Some(power), error: None },
        Err(error) => refuse(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_simulated_machine_behind_a_socket_behaves_as_one_of_the_lab() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("lab.sock");
        let sim = Arc::new(SimMachine::new());
        let machines = BTreeMap::from([("n1".to_owned(), Arc::clone(&sim) as Arc<dyn Machine>)]);
        let _server = tokio::spawn(serve(UnixListener::bind(&socket).unwrap(), machines));
        let client = LabMachine { socket: socket.clone(), machine: "n1".to_owned() };
        assert_eq!(client.state().await.unwrap(), Power::On);
        assert_eq!(client.off().await.unwrap(), Power::Off);
        assert_eq!((sim.power(), client.state().await.unwrap()), (Power::Off, Power::Off));
        assert_eq!(client.on().await.unwrap(), Power::On);
        assert_eq!(sim.changes().iter().map(|c| c.1).collect::<Vec<_>>(), [Power::Off, Power::On]);
        sim.breaks(Some("no fuse".to_owned()));
        assert_eq!(client.off().await.unwrap_err().to_string(), "no fuse");
        let other = LabMachine { socket, machine: "n2".to_owned() };
        assert_eq!(other.state().await.unwrap_err().to_string(), "no machine n2");
    }

    #[tokio::test]
    async fn a_power_off_that_is_dropped_midway_changes_nothing() {
        let sim = SimMachine::new();
        sim.takes(Duration::from_secs(60), Duration::ZERO);
        let cut = tokio::time::timeout(Duration::from_millis(20), sim.off()).await;
        assert!(cut.is_err());
        assert_eq!((sim.power(), sim.changes().len()), (Power::On, 0));
    }
}
