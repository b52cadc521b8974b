//! A BMC that behaves, for tests to bend: `Machine::answer` gives the right reply to a request, and a test's handler
//! gives another where it wants to.

use std::sync::{Arc, Mutex, MutexGuard};

use coroner_bmc::{Quirks, Redfish, RedfishConfig, RedfishSettings, Secret, Timeouts, Trust};
use coroner_shared::time::Span;

use crate::identity::{Identity, PASSWORD, USER};
use crate::server::{Reply, Request, Server};

pub const ROOT: &str = "/redfish/v1/";
pub const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
pub const SYSTEMS: &str = "/redfish/v1/Systems";
pub const MEMBER: &str = "/redfish/v1/Systems/1";
pub const RESET: &str = "/redfish/v1/Systems/1/Actions/ComputerSystem.Reset";
pub const MANAGER: &str = "/redfish/v1/Managers/BMC";
pub const UUID: &str = "00112233-4455-6677-8899-aabbccddeeff";
pub const DEADLINE: Span = Span::from_secs(10);

#[derive(Debug)]
pub struct State {
    pub power: String,
    pub uuid: String,
    /// Numbers of the sessions that count.
    pub sessions: Vec<usize>,
    pub logins: usize,
    pub session_limit: usize,
    pub reset_time: Option<String>,
    pub basic: bool,
}

#[derive(Clone)]
pub struct Machine(Arc<Mutex<State>>);

impl Machine {
    pub fn new() -> Self {
        Self(Arc::new(Mutex::new(State {
            power: "On".to_owned(),
            uuid: UUID.to_owned(),
            sessions: Vec::new(),
            logins: 0,
            session_limit: 4,
            reset_time: Some("2024-01-01T00:00:00Z".to_owned()),
            basic: false,
        })))
    }

    pub fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap()
    }

    pub fn system(&self) -> String {
        let State { power, uuid, .. } = &*self.state();
        format!(
            r##"{{"@odata.id":"{MEMBER}","UUID":"{uuid}","SerialNumber":"S1","PowerState":"{power}",
            "Links":{{"ManagedBy":[{{"@odata.id":"{MANAGER}"}}]}},
            "Actions":{{"#ComputerSystem.Reset":{{"target":"{RESET}",
            "ResetType@Redfish.AllowableValues":["On","ForceOff","PushPowerButton"]}}}}}}"##
        )
    }

    pub fn answer(&self, request: &Request) -> Reply {
        let ok = |body: &str| Reply::json(200, &[], body);
        match (request.method.as_str(), request.path.as_str()) {
            ("GET", ROOT) if self.state().basic => {
                ok(&format!(r#"{{"Systems":{{"@odata.id":"{SYSTEMS}"}},"UUID":"root"}}"#))
            }
            ("GET", ROOT) => ok(&format!(
                r#"{{"Systems":{{"@odata.id":"{SYSTEMS}"}},"Managers":{{"@odata.id":"/redfish/v1/Managers"}},
                "Links":{{"Sessions":{{"@odata.id":"{SESSIONS}"}}}},"UUID":"root"}}"#
            )),
            ("POST", SESSIONS) => self.log_in(request),
            _ if !self.knows(request) => Reply::status(401),
            ("GET", SYSTEMS) => ok(&format!(r#"{{"Members":[{{"@odata.id":"{MEMBER}"}}]}}"#)),
            ("GET", MEMBER) => ok(&self.system()),
            ("GET", MANAGER) => {
                let reset = self.state().reset_time.clone();
                let reset = reset.map_or(String::new(), |t| format!(r#","LastResetTime":"{t}""#));
                ok(&format!(r#"{{"@odata.id":"{MANAGER}","UUID":"manager"{reset}}}"#))
            }
            ("POST", RESET) => {
                let to = if request.body.contains("ForceOff") { "Off" } else { "On" };
                self.state().power = to.to_owned();
                Reply::status(204)
            }
            ("GET", path) if session_number(path).is_some() => {
                let known = self.state().sessions.contains(&session_number(path).unwrap());
                if known { ok(&format!(r#"{{"UserName":"{USER}"}}"#)) } else { Reply::status(404) }
            }
            ("DELETE", path) if session_number(path).is_some() => {
                let number = session_number(path).unwrap();
                let mut state = self.state();
                let known = state.sessions.contains(&number);
                state.sessions.retain(|n| *n != number);
                Reply::status(if known { 204 } else { 404 })
            }
            _ => Reply::status(404),
        }
    }

    fn log_in(&self, request: &Request) -> Reply {
        let mut state = self.state();
        state.logins += 1;
        if request.body != format!(r#"{{"UserName":"{USER}","Password":"{PASSWORD}"}}"#) {
            return Reply::status(401);
        }
        if state.sessions.len() >= state.session_limit {
            return Reply::json(503, &[("Retry-After", "99")], r#"{"error":{"code":"Vendor.1.0.RAC0218"}}"#);
        }
        let number = state.logins;
        state.sessions.push(number);
        let location = format!("{SESSIONS}/{number}");
        Reply::json(201, &[("X-Auth-Token", &token(number)), ("Location", &location)], "{}")
    }

    fn knows(&self, request: &Request) -> bool {
        let state = self.state();
        if state.basic {
            return request.header("authorization") == Some("Basic Y29yb25lcjpjYW5hcnktUGFzc3cwcmQ=");
        }
        let given = request.header("x-auth-token").unwrap_or_default();
        state.sessions.iter().any(|number| token(*number) == given)
    }
}

pub fn token(number: usize) -> String {
    format!("canary-token-{number}")
}

fn session_number(path: &str) -> Option<usize> {
    path.strip_prefix(SESSIONS)?.strip_prefix('/')?.parse().ok()
}

/// A machine behind a server, and a driver for it that trusts it.
pub struct Bench {
    pub machine: Machine,
    pub server: Server,
    pub bmc: Redfish,
    pub identity: Identity,
}

/// Limits short enough for tests that wait for them.
pub fn short() -> Timeouts {
    Timeouts {
        connect: Span::from_secs(5),
        first_byte: Span::from_ms(700),
        request: Span::from_secs(5),
        log_out: Span::from_ms(700),
        unacknowledged: Span::from_secs(5),
    }
}

pub fn settings(port: u16, trust: Trust) -> RedfishSettings {
    RedfishSettings {
        address: format!("127.0.0.1:{port}"),
        system_hint: None,
        username: USER.to_owned(),
        password: Secret::new(PASSWORD.to_owned()),
        trust,
        quirks: Quirks::default(),
        timeouts: Timeouts::default(),
    }
}

pub fn driver(settings: RedfishSettings) -> Redfish {
    Redfish::new(RedfishConfig::new(settings).unwrap())
}

/// `bend` may answer instead of the machine.
pub async fn bench_with(
    change: impl FnOnce(&mut RedfishSettings),
    bend: impl Fn(&Machine, &Request) -> Option<Reply> + Send + Sync + 'static,
) -> Bench {
    let (machine, identity) = (Machine::new(), Identity::issued());
    let inside = machine.clone();
    let answer = move |request: &Request| bend(&inside, request).unwrap_or_else(|| inside.answer(request));
    let server = Server::start(&identity, answer).await;
    let mut settings = settings(server.port, identity.ca(None));
    change(&mut settings);
    Bench { machine, server, bmc: driver(settings), identity }
}

pub async fn bench(bend: impl Fn(&Machine, &Request) -> Option<Reply> + Send + Sync + 'static) -> Bench {
    bench_with(|_| {}, bend).await
}
