//! A BMC with a machine behind it, and drivers for it: what every test of the suite stands on.
//!
//! Machines are simulated, TLS and HTTP are real. Every error that a test looks at goes through `failed`, which
//! holds it to showing no secret.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use coroner_bmc::{
    BmcError, Pin, PinOf, Quirk, Quirks, Redfish, RedfishConfig, RedfishSettings, Secret, Timeouts, Trust,
};
use coroner_shared::time::Span;
use coroner_tests::lab::emulator::control::Command;
use coroner_tests::lab::emulator::knobs::Knobs;
use coroner_tests::lab::emulator::ledger::{self, Entry};
use coroner_tests::lab::emulator::machine::{self, Machine, Power, SimMachine};
use coroner_tests::lab::emulator::{BmcConfig, Emulator};
use coroner_tests::lab::sushy::{self, Sushy};
use serde_json::Value;
use tempfile::TempDir;

pub(crate) const USER: &str = "coroner";
/// Looked for in every error and every ledger.
pub(crate) const PASSWORD: &str = "canary-S3cret";
/// The UUIDs of the machines n1 and n2.
pub(crate) const UUIDS: [&str; 2] =
    ["00112233-4455-6677-8899-aabbccddeeff", "7a3c9e10-b2d4-11ee-8c4f-021122334455"];
/// Long enough for every command that a test does not mean to time out.
pub(crate) const DEADLINE: Span = Span::from_secs(10);

/// Who answers.
enum Peer {
    Ours(Emulator),
    Sushy { sushy: Box<Sushy>, machines: tokio::task::JoinHandle<()> },
}

/// A BMC and its machines n1 and n2.
pub(crate) struct Bench {
    peer: Peer,
    /// n1, which is the machine that tests are about, and n2, its neighbour.
    pub(crate) machines: [Arc<SimMachine>; 2],
    pub(crate) address: SocketAddr,
    pub(crate) server_name: String,
    pub(crate) ca_pem: String,
    pub(crate) key_sha256: String,
    pub(crate) certificate_sha256: String,
    ledger: PathBuf,
    _folder: TempDir,
}

impl Drop for Bench {
    fn drop(&mut self) {
        if let Peer::Sushy { machines, .. } = &self.peer {
            machines.abort();
        }
    }
}

impl Bench {
    /// Our emulator with two BMCs, n1 and n2, at addresses of their own; drivers go to n1.
    pub(crate) fn ours() -> Self {
        let (folder, machines) = prepare();
        let config = |i: usize| BmcConfig {
            name: format!("n{}", i + 1),
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            uuid: UUIDS[i].to_owned(),
            machine: format!("n{}", i + 1),
            username: USER.to_owned(),
            password_file: folder.path().join("password"),
        };
        let of = |config: &BmcConfig| -> Arc<dyn Machine> {
            Arc::clone(&machines[usize::from(config.name == "n2")]) as Arc<dyn Machine>
        };
        let emulator = Emulator::start(&[config(0), config(1)], folder.path(), of).unwrap();
        let identity = emulator.bmc("n1").unwrap().good_identity().unwrap();
        let bench = Self {
            address: emulator.address("n1").unwrap(),
            server_name: "n1.bmc.lab".to_owned(),
            ca_pem: std::fs::read_to_string(emulator.ca_file()).unwrap(),
            key_sha256: identity.key_sha256,
            certificate_sha256: identity.certificate_sha256,
            ledger: folder.path().join("ledger.jsonl"),
            peer: Peer::Ours(emulator),
            machines,
            _folder: folder,
        };
        bench.reset_knobs();
        bench
    }

    /// sushy-emulator with the systems n1 and n2 behind one address.
    pub(crate) async fn sushy() -> Self {
        let (folder, machines) = prepare();
        let python = sushy::install(&sushy::default_cache(), |line| eprintln!("{line}")).await.unwrap();
        let socket = folder.path().join("lab.sock");
        let listener = tokio::net::UnixListener::bind(&socket).unwrap();
        let named = |i: usize| (format!("n{}", i + 1), Arc::clone(&machines[i]) as Arc<dyn Machine>);
        let served = BTreeMap::from([named(0), named(1)]);
        let serving = tokio::spawn(async move { machine::serve(listener, served).await.unwrap() });
        let system = |i: usize| sushy::System {
            uuid: UUIDS[i].to_owned(),
            name: format!("n{}", i + 1),
            machine: format!("n{}", i + 1),
        };
        let config = sushy::Config {
            address: SocketAddr::from(([127, 0, 0, 1], 0)),
            netns: None,
            folder: folder.path().to_owned(),
            socket,
            username: USER.to_owned(),
            password_file: folder.path().join("password"),
            systems: vec![system(0), system(1)],
        };
        let sushy = Sushy::start(&python, &config).await.unwrap();
        Self {
            address: sushy.address,
            server_name: sushy.server_name.clone(),
            ca_pem: std::fs::read_to_string(&sushy.ca_file).unwrap(),
            key_sha256: sushy.identity.key_sha256.clone(),
            certificate_sha256: sushy.identity.certificate_sha256.clone(),
            ledger: sushy.ledger.clone(),
            peer: Peer::Sushy { sushy: Box::new(sushy), machines: serving },
            machines,
            _folder: folder,
        }
    }

    /// Our emulator; a test that turns knobs has one.
    pub(crate) fn emulator(&self) -> &Emulator {
        match &self.peer {
            Peer::Ours(emulator) => emulator,
            Peer::Sushy { sushy, .. } => panic!("{} has no knobs", sushy.address),
        }
    }

    /// Sets knobs of n1.
    pub(crate) fn set(&self, knobs: &Value) {
        self.emulator().bmc("n1").unwrap().set(knobs).unwrap();
    }

    /// All knobs of n1 at their default, but that it is picky about headers.
    pub(crate) fn reset_knobs(&self) {
        let bmc = self.emulator().bmc("n1").unwrap();
        bmc.replace(Knobs { strict_headers: true, ..Knobs::default() });
    }

    pub(crate) async fn command(&self, command: Command) {
        self.emulator().command(command).await.unwrap();
    }

    /// The open sessions of n1.
    pub(crate) fn sessions(&self) -> Vec<String> {
        let now = coroner_tests::lab::writer::boottime_ns();
        let open = self.emulator().bmc("n1").unwrap().with_sessions(|open, knobs| open.list(knobs, now));
        open.into_iter().map(|(id, _)| id).collect()
    }

    /// Every request so far.
    pub(crate) fn requests(&self) -> Vec<Entry> {
        ledger::read(&self.ledger).unwrap()
    }

    /// The reset types of the commands so far, in order.
    pub(crate) fn resets(&self) -> Vec<String> {
        let posts = self.requests().into_iter().filter(|entry| entry.method == "POST");
        posts.filter_map(|entry| Some(entry.body?["ResetType"].as_str()?.to_owned())).collect()
    }

    /// How often somebody tried to log in.
    pub(crate) fn log_ins(&self) -> usize {
        let posts =
            |entry: &&Entry| entry.method == "POST" && entry.path.ends_with("/SessionService/Sessions");
        self.requests().iter().filter(posts).count()
    }

    /// The path of n1's system.
    pub(crate) fn member(&self) -> String {
        match &self.peer {
            Peer::Ours(_) => "/redfish/v1/Systems/1".to_owned(),
            Peer::Sushy { .. } => format!("/redfish/v1/Systems/{}", UUIDS[0]),
        }
    }

    /// Good settings: the lab's CA and the name in the certificate.
    pub(crate) fn settings(&self) -> RedfishSettings {
        RedfishSettings {
            address: self.address.to_string(),
            system_hint: None,
            username: USER.to_owned(),
            password: Secret::new(PASSWORD.to_owned()),
            trust: self.ca(Some(&self.server_name)),
            quirks: Quirks::default(),
            timeouts: Timeouts {
                connect: Span::from_secs(3),
                first_byte: Span::from_secs(3),
                request: Span::from_secs(4),
                log_out: Span::from_secs(2),
                ..Timeouts::default()
            },
        }
    }

    pub(crate) fn ca(&self, server_name: Option<&str>) -> Trust {
        Trust::CaBundle { pem: self.ca_pem.clone(), server_name: server_name.map(str::to_owned) }
    }

    /// A driver with good settings that has not connected.
    pub(crate) fn driver(&self) -> Redfish {
        self.driver_with(|_| {})
    }

    /// A driver whose settings differ from good ones.
    pub(crate) fn driver_with(&self, change: impl FnOnce(&mut RedfishSettings)) -> Redfish {
        let mut settings = self.settings();
        change(&mut settings);
        Redfish::new(RedfishConfig::new(settings).unwrap())
    }

    pub(crate) fn driver_with_quirk(&self, quirk: Quirk) -> Redfish {
        self.driver_with(|settings| settings.quirks = Quirks::from_iter([quirk]))
    }

    /// Waits until n1 is so; a machine that never gets there fails the test.
    pub(crate) async fn until(&self, power: Power) {
        for _ in 0..1000 {
            if self.machines[0].power() == power {
                return;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        panic!("the machine never was {power:?}");
    }
}

/// Two machines that are on, and a folder with the password.
fn prepare() -> (TempDir, [Arc<SimMachine>; 2]) {
    rustls::crypto::ring::default_provider().install_default().ok();
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("password"), format!("{PASSWORD}\n")).unwrap();
    (folder, [Arc::new(SimMachine::new()), Arc::new(SimMachine::new())])
}

pub(crate) fn pin(of: PinOf, sha256: &str) -> Trust {
    Trust::Pins(vec![Pin::parse(of, sha256).unwrap()])
}

/// The error of a call that had to fail, after a look at whether it tells a secret.
pub(crate) fn failed<T: Debug>(result: Result<T, BmcError>, what: impl Debug) -> BmcError {
    let error = match result {
        Ok(value) => panic!("{what:?} should have failed, and gave {value:?}"),
        Err(error) => error,
    };
    no_secret(&format!("{} {error:?}", error.full()));
    error
}

/// The password, and what Basic makes of it, must not be in this text.
pub(crate) fn no_secret(text: &str) {
    // base64 of "coroner:canary-S3cret"
    for secret in [PASSWORD, "Y29yb25lcjpjYW5hcnktUzNjcmV0"] {
        assert!(!text.contains(secret), "a secret is shown: {text}");
    }
}
