//! What a BMC answers: finds the resource, checks who asks, carries out commands. One request in, one answer out;
//! faults and time are added by `serve.rs`, the resources' contents are in `resources.rs`.

use serde_json::{Value, json};

use super::Fleet;
use super::knobs::Knobs;
use super::machine::Power;
use super::resources::{self, SESSIONS, SYSTEMS, System};
use super::session::{Credentials, Refused};
use super::state::{Bmc, token};
use crate::lab::writer::boottime_ns;

/// A request as read from the connection.
#[derive(Clone, Debug, Default)]
pub struct Asked {
    /// The method.
    pub method: String,
    /// The path without its query.
    pub path: String,
    /// `X-Auth-Token`.
    pub token: Option<String>,
    /// `Authorization`.
    pub authorization: Option<String>,
    /// `Content-Type`.
    pub content_type: Option<String>,
    /// `If-Match`.
    pub if_match: Option<String>,
    /// `OData-Version`.
    pub odata_version: Option<String>,
    /// The body.
    pub body: Vec<u8>,
}

/// The answer, and what the ledger is to know about it.
#[derive(Clone, Debug, Default)]
pub struct Answer {
    /// The status.
    pub status: u16,
    /// Headers besides those of every answer.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Option<Value>,
    /// Who asked: a session's id or `basic`.
    pub session: Option<String>,
    /// The true UUID of the machine that it is about, if it is about one.
    pub true_uuid: Option<String>,
    /// The true power when a command came.
    pub true_power: Option<Power>,
}

/// What a BMC needs to answer: itself, the account that counts at this address, and its neighbours.
pub struct Desk<'a> {
    /// The BMC.
    pub bmc: &'a Bmc,
    /// The account; another BMC's after a swap that left it behind.
    pub account: Credentials,
    /// All BMCs, for members that are another's machine.
    pub fleet: &'a Fleet,
    /// The knobs at this moment.
    pub knobs: Knobs,
}

// === impl Answer ===

impl Answer {
    /// An answer without a body.
    #[must_use]
    pub fn empty(status: u16) -> Self {
        Self { status, ..Self::default() }
    }

    fn ok(body: Value) -> Self {
        Self { status: 200, body: Some(body), ..Self::default() }
    }

    /// An answer with a Redfish error body.
    #[must_use]
    pub fn error(status: u16, code: &str, message: &str) -> Self {
        Self { status, body: Some(resources::error(code, message)), ..Self::default() }
    }

    fn refused(why: Refused, knobs: &Knobs) -> Self {
        match why {
            Refused::Nothing | Refused::Wrong | Refused::Locked => {
                let mut answer = Self::error(401, "NoValidSession", "There is no valid session.");
                answer.headers.push(("WWW-Authenticate".to_owned(), "Basic realm=\"Redfish\"".to_owned()));
                answer
            }
            Refused::Full => {
                let text = "The maximum number of user sessions is reached.";
                Self::error(knobs.session_full_status, "SessionLimitExceeded", text)
            }
            Refused::NotOffered => {
                Self::error(401, "InsufficientPrivilege", "This authentication is not enabled.")
            }
        }
    }

    fn not_found() -> Self {
        Self::error(404, "ResourceMissingAtURI", "There is no such resource.")
    }

    fn not_allowed() -> Self {
        Self::error(405, "OperationNotAllowed", "The resource does not take this method.")
    }
}

// === impl Desk ===

impl Desk<'_> {
    /// Answers one request.
    pub async fn answer(&self, asked: &Asked) -> Answer {
        if let Some(answer) = Some(asked).filter(|_| self.knobs.strict_headers).and_then(picky) {
            return answer;
        }
        let parts: Vec<&str> = asked.path.split('/').filter(|part| !part.is_empty()).collect();
        let open = match (asked.method.as_str(), parts.as_slice()) {
            ("GET", ["redfish"]) => Some(Answer::ok(json!({ "v1": "/redfish/v1/" }))),
            ("GET", ["redfish", "v1"]) => Some(Answer::ok(resources::service_root(self.bmc, &self.knobs))),
            ("POST", ["redfish", "v1", "SessionService", "Sessions"]) => Some(self.log_in(&asked.body)),
            _ => None,
        };
        if let Some(answer) = open {
            return answer;
        }
        let credentials = (asked.token.as_deref(), asked.authorization.as_deref());
        let now = boottime_ns();
        let who =
            self.bmc.with_sessions(|sessions, knobs| sessions.who(credentials, &self.account, knobs, now));
        let who = match who {
            Ok(who) => who,
            Err(why) => return Answer::refused(why, &self.knobs),
        };
        let answer = match parts.as_slice() {
            ["redfish", "v1", rest @ ..] => self.inside(asked, rest, &who).await,
            _ => Answer::not_found(),
        };
        Answer { session: Some(who), ..answer }
    }

    /// Below `/redfish/v1`, logged in.
    async fn inside(&self, asked: &Asked, parts: &[&str], who: &str) -> Answer {
        let knobs = &self.knobs;
        let systems = System::all(self.bmc, knobs, self.fleet);
        let target = asked.path.trim_end_matches('/');
        if let Some(system) = systems.iter().find(|system| system.reset_target(knobs) == target) {
            return if asked.method == "POST" {
                self.reset(system, &asked.body, who).await
            } else {
                Answer::not_allowed()
            };
        }
        match (asked.method.as_str(), parts) {
            ("DELETE", ["SessionService", "Sessions", id]) => {
                let done = self.bmc.with_sessions(|sessions, _| sessions.log_out(id));
                if done { Answer::empty(204) } else { Answer::not_found() }
            }
            ("GET", ["SessionService", rest @ ..]) if knobs.sessions => self.sessions(rest),
            ("GET", ["Systems"]) => {
                let mut paths = Vec::new();
                for system in &systems {
                    if !system.moods().await.1 {
                        paths.push(system.path());
                    }
                }
                Answer::ok(resources::collection(SYSTEMS, "ComputerSystem", &paths))
            }
            ("GET", ["Systems", id, rest @ ..]) => match systems.iter().find(|system| system.is(id)) {
                Some(system) => self.system(system, rest).await,
                None => Answer::not_found(),
            },
            ("GET", ["Managers"]) => one("/redfish/v1/Managers", "Manager", "/bmc"),
            ("GET", ["Managers", "bmc"]) => Answer::ok(resources::manager(self.bmc, knobs)),
            ("GET", ["Chassis"]) => one("/redfish/v1/Chassis", "Chassis", "/1"),
            ("GET", ["Chassis", "1"]) => match self.bmc.desk.shown(&knobs.chassis_power, knobs).await {
                Ok(power) => Answer::ok(resources::chassis(self.bmc, power)),
                Err(error) => Answer::error(503, "ServiceTemporarilyUnavailable", &error.to_string()),
            },
            ("GET", ["TaskService", "Tasks", id]) => Answer::ok(resources::task(id)),
            ("GET", _) => Answer::not_found(),
            _ => Answer::not_allowed(),
        }
    }

    fn log_in(&self, body: &[u8]) -> Answer {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let (Some(username), Some(password)) = (body["UserName"].as_str(), body["Password"].as_str()) else {
            return Answer::error(400, "PropertyMissing", "UserName and Password are needed.");
        };
        let given = Credentials { username: username.to_owned(), password: password.to_owned() };
        let Ok(token) = token() else {
            return Answer::error(500, "InternalError", "No randomness.");
        };
        let pair = (&given, &self.account);
        let opened =
            self.bmc.with_sessions(|sessions, knobs| sessions.log_in(pair, token, knobs, boottime_ns()));
        match opened {
            Ok(opened) => Answer {
                status: 201,
                headers: vec![
                    ("X-Auth-Token".to_owned(), opened.token),
                    ("Location".to_owned(), format!("{SESSIONS}/{}", opened.id)),
                ],
                body: Some(resources::session(&opened.id, username)),
                session: Some(opened.id),
                ..Answer::default()
            },
            Err(Refused::NotOffered) => Answer::not_found(),
            Err(why) => Answer::refused(why, &self.knobs),
        }
    }

    fn sessions(&self, parts: &[&str]) -> Answer {
        let open = self.bmc.with_sessions(|sessions, knobs| sessions.list(knobs, boottime_ns()));
        match parts {
            [] => Answer::ok(resources::session_service(&self.knobs)),
            ["Sessions"] => {
                let paths: Vec<String> = open.iter().map(|(id, _)| format!("{SESSIONS}/{id}")).collect();
                Answer::ok(resources::collection(SESSIONS, "Session", &paths))
            }
            ["Sessions", id] => open
                .iter()
                .find(|(open, _)| open == id)
                .map_or_else(Answer::not_found, |(id, user)| Answer::ok(resources::session(id, user))),
            _ => Answer::not_found(),
        }
    }

    async fn system(&self, system: &System, parts: &[&str]) -> Answer {
        let about = Some(system.true_uuid.clone());
        if system.moods().await.0 {
            let answer =
                Answer::error(503, "ServiceTemporarilyUnavailable", "The resource is not available now.");
            return Answer { true_uuid: about, ..answer };
        }
        let answer = match parts {
            [] => {
                let power = match &system.desk {
                    Some(desk) => desk.shown(&self.knobs.power, &self.knobs).await,
                    None => Ok(Some(Value::from("On"))),
                };
                match power {
                    Ok(power) => Answer::ok(system.resource(&self.knobs, power, self.bmc)),
                    Err(error) => Answer::error(503, "ServiceTemporarilyUnavailable", &error.to_string()),
                }
            }
            ["ResetActionInfo"] => Answer::ok(system.action_info(&self.knobs)),
            _ => Answer::not_found(),
        };
        Answer { true_uuid: about, ..answer }
    }

    async fn reset(&self, system: &System, body: &[u8], who: &str) -> Answer {
        let true_power = system.truth().await.ok();
        let answer = self.command(system, body, true_power, who);
        Answer { true_uuid: Some(system.true_uuid.clone()), true_power, ..answer }
    }

    fn command(&self, system: &System, body: &[u8], power: Option<Power>, who: &str) -> Answer {
        let knobs = &self.knobs;
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        let kind = match body.as_object().map(|fields| (fields.len(), &body["ResetType"])) {
            Some((1, Value::String(kind))) => kind.as_str(),
            Some(_) | None => {
                return Answer::error(400, "ActionParameterUnknown", "Exactly ResetType is taken.");
            }
        };
        if !knobs.allowable.iter().any(|allowed| allowed == kind) {
            return Answer::error(400, "ActionParameterNotSupported", "The reset type is not supported.");
        }
        let towards_off = matches!(kind, "ForceOff" | "GracefulShutdown");
        if let (Some(status), true, Some(Power::Off)) = (knobs.off_when_off, towards_off, power) {
            return Answer::error(status, "InvalidOperationForSystemState", "The power is off.");
        }
        let steps: &[Power] = match kind {
            "On" | "ForceOn" => &[Power::On],
            "ForceOff" | "GracefulShutdown" => &[Power::Off],
            "ForceRestart" | "GracefulRestart" | "PowerCycle" | "FullPowerCycle" => &[Power::Off, Power::On],
            // The button toggles: a client that uses it as off turns an off machine on.
            "PushPowerButton" if power == Some(Power::Off) => &[Power::On],
            "PushPowerButton" => &[Power::Off],
            _ => &[],
        };
        if let Some(desk) = system.desk.as_ref().filter(|_| !steps.is_empty()) {
            desk.command(steps, knobs, who);
        }
        let mut answer = Answer::empty(knobs.command_status);
        if knobs.command_status == 202 && knobs.task {
            let location = "/redfish/v1/TaskService/Tasks/1".to_owned();
            answer.headers.push(("Location".to_owned(), location));
            answer.body = Some(resources::task("1"));
        }
        answer
    }
}

/// What the pickiest services of the field refuse.
fn picky(asked: &Asked) -> Option<Answer> {
    let posts = asked.method == "POST";
    if asked.odata_version.as_deref() != Some("4.0") {
        return Some(Answer::error(412, "PreconditionFailed", "OData-Version: 4.0 is needed."));
    }
    if posts && asked.content_type.as_deref() != Some("application/json") {
        return Some(Answer::error(415, "UnsupportedMediaType", "Content-Type: application/json is needed."));
    }
    if posts && asked.if_match.is_some() {
        return Some(Answer::error(400, "HeaderInvalid", "If-Match is not taken here."));
    }
    None
}

fn one(path: &str, kind: &str, member: &str) -> Answer {
    Answer::ok(resources::collection(path, kind, &[format!("{path}{member}")]))
}
