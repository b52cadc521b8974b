//! The knobs of one BMC: every way in which a BMC was seen to differ from a good one, as plain data that can be set
//! while it runs. The default is a good BMC. What each knob does is in the module that reads it.
//!
//! Knobs say how the BMC *is*; what *happens* to it (restart, death, a swapped cable) are commands in `control.rs`.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::machine::Power;

/// All knobs of one BMC. A change replaces the fields it names and leaves the others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Knobs {
    // --- identity ---
    /// The UUID of the machine's own System.
    pub uuid: Shown,
    /// The serial number of that System.
    pub serial: Shown,
    /// The UUID of the Manager.
    pub manager_uuid: Shown,
    /// The members of the Systems collection in order; empty means one member, the machine's own.
    pub members: Vec<Member>,
    /// Whether System and Manager have a `LastResetTime`.
    pub last_reset_time: bool,

    // --- power ---
    /// What `PowerState` of the System says.
    pub power: PowerShown,
    /// What `PowerState` of the Chassis says.
    pub chassis_power: PowerShown,
    /// What a reset command that was answered well does.
    pub command: CommandDoes,
    /// Time from an accepted command to its effect, towards off; ms.
    pub off_takes_ms: u64,
    /// The same towards on; ms.
    pub on_takes_ms: u64,
    /// Whether `PoweringOff` and `PoweringOn` are shown meanwhile (else the true state).
    pub transitional: bool,
    /// The status of an accepted command: 204, 200 or 202.
    pub command_status: u16,
    /// With 202: whether the answer has a Location and a Task (completed at once, whatever the machine does).
    pub task: bool,
    /// What an off command to a machine that is off gets: `None` is accepted, else this status.
    pub off_when_off: Option<u16>,
    /// The reset types that are listed, and that are taken.
    pub allowable: Vec<String>,
    /// Where they are listed.
    pub allowable_in: Listed,
    /// The advertised target of the reset action; `None` is the standard one. Only this one exists.
    pub reset_target: Option<String>,
    /// The machine is given power again, this long after it went off; ms.
    pub power_restore_ms: Option<u64>,

    // --- log-in ---
    /// Whether Basic is taken.
    pub basic: bool,
    /// Whether there is a SessionService.
    pub sessions: bool,
    /// Most sessions at once.
    pub session_limit: usize,
    /// The status of a log-in when they are all taken.
    pub session_full_status: u16,
    /// A session unused for this long is gone; ms.
    pub session_idle_ms: u64,
    /// Whether sessions outlive a restart of the BMC, as where tokens are kept on flash.
    pub sessions_survive: bool,
    /// Locks the account after some wrong passwords.
    pub lockout: Option<Lockout>,

    // --- transport ---
    /// What happens to a connection before TLS.
    pub connect: Connect,
    /// The certificate that is shown to new connections.
    pub certificate: Certificate,
    /// The TLS versions that new connections are offered.
    pub tls: Versions,
    /// Whether a POST needs `Content-Type: application/json` (else 415) and must not have `If-Match` (else 400), and
    /// every request needs `OData-Version: 4.0` (else 412): the pickiest of the field in one.
    pub strict_headers: bool,
    /// Added to each answer; ms.
    pub latency_ms: u64,
    /// Every body is sent a byte at a time with this pause; ms, 0 is off.
    pub drip_ms: u64,
    /// Faults of single requests; the first rule that fits is used.
    pub rules: Vec<Rule>,
}

/// A text property: the true value, one of the wrong ones seen in the field, or any.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    /// The true value.
    #[default]
    Right,
    /// The true value in upper case.
    Upper,
    /// The true UUID with its first three groups byte-swapped (the plain dump of SMBIOS wire bytes).
    Swapped,
    /// The true value in braces.
    Braced,
    /// All zeros.
    Zeros,
    /// All F.
    Ones,
    /// No such key.
    Missing,
    /// `null`.
    Null,
    /// The empty string.
    Empty,
    /// Any other JSON value: another UUID, a placeholder, a number.
    Value(Value),
}

/// One member of the Systems collection.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Member {
    /// The last part of its path.
    pub id: String,
    /// The BMC (by name, of this process) whose machine it is. Empty is this BMC's own; `-` is a decoy that is
    /// always on and only notes its commands.
    pub of: String,
    /// Its UUID. `None`: as the knob `uuid` for the own machine, true for others; a decoy has one made from its id.
    pub uuid: Option<Shown>,
    /// When it answers 503.
    pub unreadable: Unreadable,
    /// Whether it is in the list while its machine is off.
    pub hidden_while_off: bool,
}

/// When a member cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unreadable {
    /// It always can.
    #[default]
    Never,
    /// While its machine is off.
    WhileOff,
    /// It never can.
    Always,
}

/// What a `PowerState` says.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PowerShown {
    /// The machine's state, or the transition under way.
    #[default]
    Truth,
    /// This value, whatever is true, for so long after the knob was set (`None`: until it is changed).
    Constant {
        /// `On`, `Off`, `PoweringOff`, `Unknown`, ...
        value: String,
        /// How long; ms.
        for_ms: Option<u64>,
    },
    /// These values one after the other, for ever: a flapping reading.
    Sequence(Vec<String>),
    /// The true value as it was up to so long ago; ms.
    Cached(u64),
    /// `null`.
    Null,
    /// No such key.
    Missing,
}

/// What a reset command does once it was accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CommandDoes {
    /// What it says.
    #[default]
    Acts,
    /// Nothing: the machine stays as it is, and `PowerState` shows that.
    Nothing,
    /// Nothing, but `PowerState` says `PoweringOff` from then on.
    StuckPoweringOff,
}

/// Where the reset types are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Listed {
    /// `ResetType@Redfish.AllowableValues` of the action.
    #[default]
    InAction,
    /// In the resource that `@Redfish.ActionInfo` names.
    InActionInfo,
    /// Nowhere.
    Nowhere,
}

/// An account that locks itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Lockout {
    /// So many wrong passwords in a row lock it.
    pub failures: u32,
    /// For so long the right one is refused too; ms.
    pub for_ms: u64,
}

/// What happens to a new connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Connect {
    /// It is served.
    #[default]
    Serve,
    /// It is taken and nothing is ever said, not even TLS.
    Hang,
    /// It is taken and reset.
    Reset,
}

/// The certificate shown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Certificate {
    /// From the lab's CA, for the address and NAME.bmc.lab.
    #[default]
    Good,
    /// The same key, but it ended in 2020.
    Expired,
    /// The same key and CA, for another name and address.
    WrongName,
    /// The same key, signed by itself.
    SelfSigned,
    /// The same, and it says of itself that it is a CA, as factory certificates do.
    SelfSignedCa,
    /// From the lab's CA with the right names, but with another key: a changed board, or somebody in the middle.
    NewKey,
}

/// TLS versions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Versions {
    /// 1.2 and 1.3.
    #[default]
    #[serde(rename = "both")]
    Both,
    /// 1.2 only.
    #[serde(rename = "1.2")]
    Only12,
    /// 1.3 only.
    #[serde(rename = "1.3")]
    Only13,
}

/// A fault of the requests that it fits.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rule {
    /// `GET`, `POST`, ...; `None` is any.
    #[serde(default)]
    pub method: Option<String>,
    /// The path; one `*` stands for anything. `None` is any.
    #[serde(default)]
    pub path: Option<String>,
    /// Only while the machine is so.
    #[serde(default)]
    pub while_power: Option<Power>,
    /// So many fitting requests are served well first.
    #[serde(default)]
    pub skip: u32,
    /// Then so many are not; `None` is for ever.
    #[serde(default)]
    pub times: Option<u32>,
    /// Whether the request is carried out before the fault: an effect whose answer is lost.
    #[serde(default)]
    pub acts: bool,
    /// What happens.
    pub fault: Fault,
}

/// What happens to a request instead of, or to, its answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// This status with a Redfish error body, or with `body`.
    Status {
        /// The status.
        code: u16,
        /// The body, as JSON.
        #[serde(default)]
        body: Option<Value>,
        /// Added headers, such as `Retry-After`.
        #[serde(default)]
        headers: Vec<(String, String)>,
    },
    /// A redirect.
    Redirect {
        /// 301, 302, 303, 307 or 308.
        code: u16,
        /// The Location; `{path}` stands for the path asked for.
        to: String,
    },
    /// Never an answer.
    Hang,
    /// The connection is reset.
    Reset,
    /// Served well, this much later; ms.
    Delay(u64),
    /// Served well, a byte at a time with this pause; ms.
    Drip(u64),
    /// The right status, and the answer cut short within the body.
    Truncated,
    /// 200 and a JSON text of so many bytes.
    Huge(usize),
    /// 200 and a JSON text without a length that never ends.
    Endless,
    /// 200 and so many nested JSON arrays.
    Deep(usize),
    /// 200 and something that only begins like JSON.
    InvalidJson,
    /// 200 and a page of HTML which says Off.
    Html,
    /// The right answer with some properties replaced, or taken out where the value is `null`.
    Patch(serde_json::Map<String, Value>),
}

// === impl Knobs ===

impl Default for Knobs {
    fn default() -> Self {
        let allowable = ["On", "ForceOff", "GracefulShutdown", "ForceRestart", "PushPowerButton", "Nmi"];
        Self {
            uuid: Shown::Right,
            serial: Shown::Right,
            manager_uuid: Shown::Right,
            members: Vec::new(),
            last_reset_time: true,
            power: PowerShown::Truth,
            chassis_power: PowerShown::Truth,
            command: CommandDoes::Acts,
            off_takes_ms: 0,
            on_takes_ms: 0,
            transitional: true,
            command_status: 204,
            task: false,
            off_when_off: None,
            allowable: allowable.map(str::to_owned).to_vec(),
            allowable_in: Listed::InAction,
            reset_target: None,
            power_restore_ms: None,
            basic: true,
            sessions: true,
            session_limit: 8,
            session_full_status: 503,
            session_idle_ms: 300_000,
            sessions_survive: false,
            lockout: None,
            connect: Connect::Serve,
            certificate: Certificate::Good,
            tls: Versions::Both,
            strict_headers: false,
            latency_ms: 0,
            drip_ms: 0,
            rules: Vec::new(),
        }
    }
}

impl Knobs {
    /// Replaces the fields that `change` names.
    ///
    /// # Errors
    /// If `change` is no object, or names a knob that does not exist, or a value does not fit.
    pub fn merge(&self, change: &Value) -> serde_json::Result<Self> {
        let mut all = serde_json::to_value(self)?;
        let fields = change.as_object().ok_or_else(|| serde::de::Error::custom("knobs are a JSON object"))?;
        for (name, value) in fields {
            all[name] = value.clone();
        }
        serde_json::from_value(all)
    }

    /// The fault of a request, if a rule fits it; counts it.
    pub(super) fn fault(&mut self, method: &str, path: &str, power: Option<Power>) -> Option<(Fault, bool)> {
        let at = self.rules.iter().position(|rule| rule.fits(method, path, power))?;
        let rule = &mut self.rules[at];
        if rule.skip > 0 {
            rule.skip -= 1;
            return None;
        }
        let found = (rule.fault.clone(), rule.acts);
        match &mut rule.times {
            Some(times) if *times <= 1 => drop(self.rules.remove(at)),
            Some(times) => *times -= 1,
            None => {}
        }
        Some(found)
    }
}

// === impl Rule ===

impl Rule {
    /// Every request of this method and path.
    #[must_use]
    pub fn every(method: &str, path: &str, fault: Fault) -> Self {
        let (method, path) = (Some(method.to_owned()), Some(path.to_owned()));
        Self { method, path, while_power: None, skip: 0, times: None, acts: false, fault }
    }

    fn fits(&self, method: &str, path: &str, power: Option<Power>) -> bool {
        let same_path = self.path.as_deref().is_none_or(|want| match want.split_once('*') {
            Some((start, end)) => {
                path.len() >= start.len() + end.len() && path.starts_with(start) && path.ends_with(end)
            }
            None => want == path,
        });
        same_path
            && self.method.as_deref().is_none_or(|want| want == method)
            && self.while_power.is_none_or(|want| power == Some(want))
            && self.times != Some(0)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_change_replaces_what_it_names_and_refuses_what_it_does_not_know() {
        let knobs = Knobs::default();
        let changed = knobs.merge(&json!({"uuid": "zeros", "latency_ms": 5})).unwrap();
        assert_eq!(changed, Knobs { uuid: Shown::Zeros, latency_ms: 5, ..Knobs::default() });
        let again = changed.merge(&json!({"power": {"constant": {"value": "Off", "for_ms": 9}}})).unwrap();
        assert_eq!((again.uuid, again.latency_ms), (Shown::Zeros, 5));
        for wrong in
            [json!({"uuuid": "zeros"}), json!({"uuid": "green"}), json!([]), json!({"latency_ms": -1})]
        {
            assert!(knobs.merge(&wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_rule_fits_by_method_path_and_power_and_is_used_up() {
        let rule = json!({"rules": [{"method": "GET", "path": "/a/*/c", "while_power": "Off", "skip": 1, "times": 2,
            "fault": "hang"}]});
        let mut knobs = Knobs::default().merge(&rule).unwrap();
        let asked = [
            ("POST", "/a/b/c", Some(Power::Off), false),
            ("GET", "/a/c", Some(Power::Off), false),
            ("GET", "/a/b/d", Some(Power::Off), false),
            ("GET", "/a/b/c", Some(Power::On), false),
            ("GET", "/a/b/c", None, false),
            ("GET", "/a/b/c", Some(Power::Off), false), // skipped
            ("GET", "/a/b/c", Some(Power::Off), true),
            ("GET", "/a/x/y/c", Some(Power::Off), true),
            ("GET", "/a/b/c", Some(Power::Off), false), // used up
        ];
        for (i, (method, path, power, want)) in asked.into_iter().enumerate() {
            assert_eq!(knobs.fault(method, path, power).is_some(), want, "{i}: {method} {path} {power:?}");
        }
    }
}
