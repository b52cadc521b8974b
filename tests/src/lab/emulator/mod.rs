//! Our Redfish BMC emulator: one process, many BMCs, each with its own address, certificate, account and UUID, in
//! front of true machines. It keeps a ledger of every request and of what was done to the machines, and has a knob
//! for every way in which a BMC was seen to differ from a good one.
//!
//! ```text
//!                control socket ----> commands, knobs
//!                                          |
//!   client --TLS--> seat (address) ----> BMC: account, sessions, answers ----> power desk ----> machine
//!                     serve, faults        state, session, redfish              power           machine
//!                                          |                                      |
//!                                     ledger.jsonl                           power.jsonl
//! ```
//!
//! It shares no code with the driver that it tests. It serves Redfish only; IPMI comes from `ipmi_sim`.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use tokio::task::JoinSet;

pub mod control;
pub mod faults;
pub mod knobs;
pub mod ledger;
pub mod machine;
pub mod power;
pub mod redfish;
pub mod resources;
pub mod serve;
pub mod session;
pub mod state;
pub mod tls;

use self::control::{Command, ms};
use self::knobs::Knobs;
use self::ledger::Ledger;
use self::machine::Machine;
use self::power::PowerDesk;
use self::serve::{Placed, Seat};
use self::session::Credentials;
use self::state::Bmc;
use self::tls::Authority;

/// All BMCs of a process by name.
pub type Fleet = BTreeMap<String, Arc<Bmc>>;

/// One BMC in the configuration file, which is a JSON list of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BmcConfig {
    /// Its name; its certificate says NAME.bmc.lab.
    pub name: String,
    /// Where it listens; port 0 is any free one.
    pub address: SocketAddr,
    /// The UUID of its machine, 8-4-4-4-12.
    pub uuid: String,
    /// The machine's name on the lab's socket.
    pub machine: String,
    /// The account's user.
    pub username: String,
    /// The file that holds the password, and nothing else but one newline at its end.
    pub password_file: PathBuf,
}

/// A running emulator; dropped, it is gone.
pub struct Emulator {
    fleet: Arc<Fleet>,
    seats: BTreeMap<String, Arc<Seat>>,
    authority: Arc<Authority>,
    ledger: Arc<Ledger>,
    /// Everything that runs, so that it ends with the emulator: seats, and what was told to happen later.
    tasks: Mutex<JoinSet<()>>,
}

// === impl Emulator ===

impl Emulator {
    /// Starts these BMCs; `machine` gives each its machine, `folder` holds the CA, the keys and the ledger.
    ///
    /// # Errors
    /// If a file cannot be read or written, a name occurs twice, or an address cannot be bound.
    pub fn start(
        configs: &[BmcConfig],
        folder: &Path,
        machine: impl Fn(&BmcConfig) -> Arc<dyn Machine>,
    ) -> anyhow::Result<Self> {
        std::fs::create_dir_all(folder).context("make the emulator's folder")?;
        let authority = Arc::new(Authority::open(folder)?);
        let ledger = Arc::new(Ledger::open(folder).context("open the ledger")?);
        let mut fleet = Fleet::new();
        for config in configs {
            let password = std::fs::read_to_string(&config.password_file)
                .with_context(|| format!("read {}", config.password_file.display()))?;
            let password = password.strip_suffix('\n').unwrap_or(&password).to_owned();
            let credentials = Credentials { username: config.username.clone(), password };
            let desk = PowerDesk::new(&config.name, &config.uuid, machine(config), Arc::clone(&ledger));
            let address = config.address.ip().to_string();
            let names = (config.name.as_str(), config.uuid.as_str(), address.as_str());
            let bmc = Arc::new(Bmc::new(names, credentials, Arc::new(desk), Arc::clone(&authority)));
            // Made now, so that its files are there for whoever pins them.
            bmc.good_identity()?;
            anyhow::ensure!(
                fleet.insert(config.name.clone(), bmc).is_none(),
                "{} is there twice",
                config.name
            );
        }
        let fleet = Arc::new(fleet);
        let (mut seats, mut tasks) = (BTreeMap::new(), JoinSet::new());
        for config in configs {
            let listener =
                serve::bind(config.address).with_context(|| format!("listen at {}", config.address))?;
            let seat = Arc::new(Seat {
                name: config.name.clone(),
                address: listener.local_addr().context("read the address")?,
                placed: tokio::sync::watch::Sender::new(Placed::own(&fleet[&config.name])),
                fleet: Arc::clone(&fleet),
                ledger: Arc::clone(&ledger),
            });
            tasks.spawn(Arc::clone(&seat).run(listener));
            seats.insert(config.name.clone(), seat);
        }
        Ok(Self { fleet, seats, authority, ledger, tasks: Mutex::new(tasks) })
    }

    /// The address that belongs to this BMC.
    ///
    /// # Errors
    /// If there is no such BMC.
    pub fn address(&self, bmc: &str) -> anyhow::Result<SocketAddr> {
        self.seat(bmc).map(|seat| seat.address)
    }

    /// One BMC.
    ///
    /// # Errors
    /// If there is no such BMC.
    pub fn bmc(&self, name: &str) -> anyhow::Result<&Arc<Bmc>> {
        self.fleet.get(name).with_context(|| format!("no BMC {name}"))
    }

    /// The CA's certificate, PEM.
    #[must_use]
    pub fn ca_file(&self) -> PathBuf {
        self.authority.ca_file()
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Does a command.
    ///
    /// # Errors
    /// If it names a BMC or a knob that does not exist, or a value does not fit.
    pub async fn command(&self, command: Command) -> anyhow::Result<Value> {
        match command {
            Command::Status => return self.status().await,
            Command::Knobs { bmc } => return Ok(serde_json::to_value(self.bmc(&bmc)?.knobs())?),
            Command::Set { bmc, knobs } => {
                for bmc in self.named(&bmc)? {
                    bmc.set(&knobs).with_context(|| format!("set the knobs of {}", bmc.name))?;
                }
            }
            Command::Clear { bmc } => self.named(&bmc)?.iter().for_each(|bmc| bmc.replace(Knobs::default())),
            Command::Restart { bmc, down_ms, says_off_ms } => {
                for bmc in self.named(&bmc)? {
                    bmc.die();
                    self.later(down_ms, move || bmc.live(ms(says_off_ms)));
                }
            }
            Command::Die { bmc } => self.named(&bmc)?.iter().for_each(|bmc| bmc.die()),
            Command::Live { bmc, says_off_ms } => {
                self.named(&bmc)?.iter().for_each(|bmc| bmc.live(ms(says_off_ms)));
            }
            Command::DropSessions { bmc, after_ms } => {
                for bmc in self.named(&bmc)? {
                    self.later(after_ms, move || bmc.with_sessions(|sessions, _| sessions.clear()));
                }
            }
            Command::Password { bmc, username, password } => {
                for bmc in self.named(&bmc)? {
                    let username = username.clone().unwrap_or_else(|| bmc.credentials().username);
                    bmc.set_credentials(Credentials { username, password: password.clone() });
                }
            }
            Command::Swap { a, b, certificates, accounts } => self.swap(&a, &b, certificates, accounts)?,
            Command::Unswap => {
                for (name, seat) in &self.seats {
                    seat.placed.send_replace(Placed::own(self.bmc(name)?));
                }
            }
        }
        Ok(Value::Null)
    }

    fn swap(&self, a: &str, b: &str, certificates: bool, accounts: bool) -> anyhow::Result<()> {
        let (seat_a, seat_b) = (self.seat(a)?, self.seat(b)?);
        let (at_a, at_b) = (seat_a.placed.borrow().clone(), seat_b.placed.borrow().clone());
        let moved = |here: &Placed, there: &Placed| Placed {
            bmc: Arc::clone(&there.bmc),
            certificate: Arc::clone(if certificates { &there.certificate } else { &here.certificate }),
            account: Arc::clone(if accounts { &there.account } else { &here.account }),
        };
        seat_a.placed.send_replace(moved(&at_a, &at_b));
        seat_b.placed.send_replace(moved(&at_b, &at_a));
        Ok(())
    }

    async fn status(&self) -> anyhow::Result<Value> {
        let mut all = Vec::new();
        for (name, seat) in &self.seats {
            let (bmc, placed) = (self.bmc(name)?, seat.placed.borrow().clone());
            let good = bmc.good_identity()?;
            let sessions =
                bmc.with_sessions(|open, knobs| open.list(knobs, crate::lab::writer::boottime_ns()));
            all.push(json!({
                "name": name,
                "address": seat.address,
                "uuid": bmc.uuid,
                "seated": placed.bmc.name,
                "up": bmc.life().borrow().up,
                "power": bmc.desk.truth().await.map_err(|error| error.to_string()).ok(),
                "sessions": sessions.iter().map(|(id, _)| id).collect::<Vec<_>>(),
                "key_sha256": good.key_sha256,
                "certificate_sha256": good.certificate_sha256,
                "server_name": tls::dns_name(name),
            }));
        }
        Ok(json!({ "ca": self.ca_file(), "bmcs": all }))
    }

    fn seat(&self, name: &str) -> anyhow::Result<&Arc<Seat>> {
        self.seats.get(name).with_context(|| format!("no BMC {name}"))
    }

    fn named(&self, name: &str) -> anyhow::Result<Vec<Arc<Bmc>>> {
        match name {
            "*" => Ok(self.fleet.values().cloned().collect()),
            name => Ok(vec![Arc::clone(self.bmc(name)?)]),
        }
    }

    /// Does something at once, or after so many milliseconds.
    fn later(&self, after_ms: u64, work: impl FnOnce() + Send + 'static) {
        if after_ms == 0 {
            return work();
        }
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.spawn(async move {
            tokio::time::sleep(ms(after_ms)).await;
            work();
        });
    }
}

// === impl Placed ===

impl Placed {
    fn own(bmc: &Arc<Bmc>) -> Self {
        Self { bmc: Arc::clone(bmc), certificate: Arc::clone(bmc), account: Arc::clone(bmc) }
    }
}
