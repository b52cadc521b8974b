//! The Redfish resources as JSON, after the schemas of DSP8010: enough of each for a client that finds its way from
//! the service root by links, and every property that identifies a machine or tells its power.
//!
//! No request is judged here and nothing changes.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};

use super::Fleet;
use super::knobs::{Knobs, Listed, Member, Shown, Unreadable};
use super::machine::Power;
use super::power::PowerDesk;
use super::state::Bmc;
use crate::lab::writer::boottime_ns;

/// Where the member's own paths begin.
pub const SYSTEMS: &str = "/redfish/v1/Systems";
/// Where sessions live.
pub const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
/// BMC clocks lie: this one counts from here since the kernel started.
const CLOCK_BEGINS: Duration = Duration::from_secs(1_767_225_600);

/// A member of the Systems collection, resolved.
pub struct System {
    /// The last part of its path.
    pub id: String,
    /// The true UUID of its machine.
    pub true_uuid: String,
    /// Its machine; a decoy has none.
    pub desk: Option<Arc<PowerDesk>>,
    shown_uuid: Option<Value>,
    serial: Option<Value>,
    member: Member,
}

// === impl System ===

impl System {
    /// The members of this BMC, hidden ones too, in order.
    pub fn all(bmc: &Bmc, knobs: &Knobs, fleet: &Fleet) -> Vec<Self> {
        let own = [Member { id: "1".to_owned(), ..Member::default() }];
        let members = if knobs.members.is_empty() { &own[..] } else { &knobs.members };
        members.iter().map(|member| Self::resolve(member, bmc, knobs, fleet)).collect()
    }

    fn resolve(member: &Member, bmc: &Bmc, knobs: &Knobs, fleet: &Fleet) -> Self {
        let other = fleet.get(&member.of).filter(|other| other.name != bmc.name);
        let (true_uuid, desk, default) = match (member.of.as_str(), other) {
            (_, Some(other)) => (other.uuid.clone(), Some(Arc::clone(&other.desk)), Shown::Right),
            ("-", None) => (decoy_uuid(&member.id), None, Shown::Right),
            (_, None) => (bmc.uuid.clone(), Some(Arc::clone(&bmc.desk)), knobs.uuid.clone()),
        };
        let serial_of = other.map_or(bmc.name.as_str(), |other| other.name.as_str());
        Self {
            id: member.id.clone(),
            shown_uuid: member.uuid.as_ref().unwrap_or(&default).of(&true_uuid),
            serial: knobs.serial.of(&format!("SN-{serial_of}")),
            true_uuid,
            desk,
            member: member.clone(),
        }
    }

    /// Its path, byte for byte as it is linked.
    #[must_use]
    pub fn path(&self) -> String {
        format!("{SYSTEMS}/{}", self.id)
    }

    /// Whether a path's part names it, with or without the slash that some ids end in.
    #[must_use]
    pub fn is(&self, id: &str) -> bool {
        self.id.trim_end_matches('/') == id
    }

    /// The true power of its machine; a decoy is on.
    ///
    /// # Errors
    /// If the machine cannot be asked.
    pub async fn truth(&self) -> std::io::Result<Power> {
        match &self.desk {
            Some(desk) => desk.truth().await,
            None => Ok(Power::On),
        }
    }

    /// Whether it answers 503, and whether it is left out of the list.
    pub async fn moods(&self) -> (bool, bool) {
        let wants_power = self.member.unreadable == Unreadable::WhileOff || self.member.hidden_while_off;
        let off = wants_power && matches!(self.truth().await, Ok(Power::Off));
        let unreadable = match self.member.unreadable {
            Unreadable::Never => false,
            Unreadable::WhileOff => off,
            Unreadable::Always => true,
        };
        (unreadable, off && self.member.hidden_while_off)
    }

    /// The target of its reset action.
    #[must_use]
    pub fn reset_target(&self, knobs: &Knobs) -> String {
        let standard = || format!("{}/Actions/ComputerSystem.Reset", self.path().trim_end_matches('/'));
        knobs.reset_target.clone().unwrap_or_else(standard)
    }

    /// The ComputerSystem with this `PowerState` (`None`: no such key).
    #[must_use]
    pub fn resource(&self, knobs: &Knobs, power: Option<Value>, bmc: &Bmc) -> Value {
        let path = self.path();
        let mut reset = json!({ "target": self.reset_target(knobs) });
        match knobs.allowable_in {
            Listed::InAction => reset["ResetType@Redfish.AllowableValues"] = json!(knobs.allowable),
            Listed::InActionInfo => reset["@Redfish.ActionInfo"] = json!(format!("{path}/ResetActionInfo")),
            Listed::Nowhere => {}
        }
        let last_reset = self.desk.as_ref().map_or(bmc.started(), |desk| desk.on_at());
        let mut system = json!({
            "@odata.id": path,
            "@odata.type": "#ComputerSystem.v1_20_0.ComputerSystem",
            "Id": self.id.trim_end_matches('/'),
            "Name": "System",
            "SystemType": "Physical",
            "Manufacturer": "Coroner lab",
            "Model": "namespaces",
            "Status": { "State": "Enabled", "Health": "OK" },
            "Links": {
                "Chassis": [{ "@odata.id": "/redfish/v1/Chassis/1" }],
                "ManagedBy": [{ "@odata.id": "/redfish/v1/Managers/bmc" }],
            },
            "Actions": { "#ComputerSystem.Reset": reset },
        });
        put(&mut system, "UUID", self.shown_uuid.clone());
        put(&mut system, "SerialNumber", self.serial.clone());
        put(&mut system, "PowerState", power);
        put(&mut system, "LastResetTime", knobs.last_reset_time.then(|| json!(date(last_reset))));
        system
    }

    /// The ActionInfo of its reset action.
    #[must_use]
    pub fn action_info(&self, knobs: &Knobs) -> Value {
        json!({
            "@odata.id": format!("{}/ResetActionInfo", self.path()),
            "@odata.type": "#ActionInfo.v1_4_0.ActionInfo",
            "Id": "ResetActionInfo",
            "Name": "Reset",
            "Parameters": [{ "Name": "ResetType", "Required": true, "DataType": "String",
                "AllowableValues": knobs.allowable }],
        })
    }
}

/// The service root; it needs no log-in.
pub fn service_root(bmc: &Bmc, knobs: &Knobs) -> Value {
    let mut root = json!({
        "@odata.id": "/redfish/v1",
        "@odata.type": "#ServiceRoot.v1_15_0.ServiceRoot",
        "Id": "RootService",
        "Name": "Root Service",
        "RedfishVersion": "1.18.0",
        "Vendor": "Coroner lab",
        "Systems": { "@odata.id": SYSTEMS },
        "Chassis": { "@odata.id": "/redfish/v1/Chassis" },
        "Managers": { "@odata.id": "/redfish/v1/Managers" },
        "TaskService": { "@odata.id": "/redfish/v1/TaskService" },
    });
    put(&mut root, "UUID", knobs.manager_uuid.of(&manager_uuid(&bmc.uuid)));
    if knobs.sessions {
        root["SessionService"] = json!({ "@odata.id": "/redfish/v1/SessionService" });
        root["Links"] = json!({ "Sessions": { "@odata.id": SESSIONS } });
    }
    root
}

/// The session service.
pub fn session_service(knobs: &Knobs) -> Value {
    json!({
        "@odata.id": "/redfish/v1/SessionService",
        "@odata.type": "#SessionService.v1_1_9.SessionService",
        "Id": "SessionService",
        "Name": "Session Service",
        "ServiceEnabled": true,
        "SessionTimeout": knobs.session_idle_ms / 1000,
        "Sessions": { "@odata.id": SESSIONS },
    })
}

/// One session.
pub fn session(id: &str, user: &str) -> Value {
    json!({
        "@odata.id": format!("{SESSIONS}/{id}"),
        "@odata.type": "#Session.v1_7_0.Session",
        "Id": id,
        "Name": "User Session",
        "UserName": user,
        "Password": null,
    })
}

/// The manager: the BMC itself. Its UUID is never a machine's.
pub fn manager(bmc: &Bmc, knobs: &Knobs) -> Value {
    let mut manager = json!({
        "@odata.id": "/redfish/v1/Managers/bmc",
        "@odata.type": "#Manager.v1_17_0.Manager",
        "Id": "bmc",
        "Name": "BMC",
        "ManagerType": "BMC",
        "FirmwareVersion": "lab-1",
        "DateTime": date(boottime_ns()),
        "PowerState": "On",
        "Status": { "State": "Enabled", "Health": "OK" },
        "Links": { "ManagerForServers": [{ "@odata.id": format!("{SYSTEMS}/1") }] },
    });
    put(&mut manager, "UUID", knobs.manager_uuid.of(&manager_uuid(&bmc.uuid)));
    put(&mut manager, "LastResetTime", knobs.last_reset_time.then(|| json!(date(bmc.started()))));
    manager
}

/// The chassis with this `PowerState`.
pub fn chassis(bmc: &Bmc, power: Option<Value>) -> Value {
    let mut chassis = json!({
        "@odata.id": "/redfish/v1/Chassis/1",
        "@odata.type": "#Chassis.v1_23_0.Chassis",
        "Id": "1",
        "Name": "Chassis",
        "ChassisType": "RackMount",
        "SerialNumber": format!("CH-{}", bmc.name),
        "Status": { "State": "Enabled", "Health": "OK" },
        "Links": { "ComputerSystems": [{ "@odata.id": format!("{SYSTEMS}/1") }] },
    });
    put(&mut chassis, "PowerState", power);
    chassis
}

/// A collection of these paths.
pub fn collection(path: &str, kind: &str, members: &[String]) -> Value {
    let links: Vec<Value> = members.iter().map(|member| json!({ "@odata.id": member })).collect();
    json!({
        "@odata.id": path,
        "@odata.type": format!("#{kind}Collection.{kind}Collection"),
        "Name": format!("{kind} Collection"),
        "Members@odata.count": links.len(),
        "Members": links,
    })
}

/// A task that says it is completed, whatever the machine does.
pub fn task(id: &str) -> Value {
    json!({
        "@odata.id": format!("/redfish/v1/TaskService/Tasks/{id}"),
        "@odata.type": "#Task.v1_7_2.Task",
        "Id": id,
        "Name": "Reset",
        "TaskState": "Completed",
        "TaskStatus": "OK",
    })
}

/// An error body.
pub fn error(code: &str, message: &str) -> Value {
    json!({ "error": { "code": format!("Base.1.18.{code}"), "message": message, "@Message.ExtendedInfo": [
        { "MessageId": format!("Base.1.18.{code}"), "Message": message, "Severity": "Warning" } ] } })
}

// === impl Shown ===

impl Shown {
    /// What is shown for this true value; `None` is no such key.
    #[must_use]
    pub fn of(&self, right: &str) -> Option<Value> {
        let same_form = |digit: char| -> String {
            right.chars().map(|c| if c.is_ascii_hexdigit() { digit } else { c }).collect()
        };
        Some(match self {
            Self::Right => Value::from(right),
            Self::Upper => Value::from(right.to_ascii_uppercase()),
            Self::Swapped => Value::from(swapped(right)),
            Self::Braced => Value::from(format!("{{{right}}}")),
            Self::Zeros => Value::from(same_form('0')),
            Self::Ones => Value::from(same_form('F')),
            Self::Missing => return None,
            Self::Null => Value::Null,
            Self::Empty => Value::from(""),
            Self::Value(value) => value.clone(),
        })
    }
}

// === helpers ===

fn put(resource: &mut Value, name: &str, value: Option<Value>) {
    if let Some(value) = value {
        resource[name] = value;
    }
}

/// The first three groups of a UUID's text with their bytes in reverse.
fn swapped(uuid: &str) -> String {
    let groups = uuid.split('-').enumerate().map(|(i, group)| {
        if i > 2 || !group.is_ascii() {
            return group.to_owned();
        }
        let bytes: Vec<&str> = (0..group.len()).step_by(2).filter_map(|at| group.get(at..at + 2)).collect();
        bytes.into_iter().rev().collect()
    });
    groups.collect::<Vec<String>>().join("-")
}

/// A UUID of the BMC's own, made from its machine's so that it is never equal to one of a machine.
fn manager_uuid(machine: &str) -> String {
    format!("b3c0{}", machine.get(4..).unwrap_or_default())
}

fn decoy_uuid(id: &str) -> String {
    let sum = id.bytes().fold(0xDEC0_u64, |sum, byte| sum.wrapping_mul(0x100_0000_01b3) ^ u64::from(byte));
    format!("dec0dec0-0000-4000-8000-{:012x}", sum & 0xffff_ffff_ffff)
}

/// An instant of `CLOCK_BOOTTIME` as this BMC's clock shows it.
fn date(ns: u64) -> String {
    let time = SystemTime::UNIX_EPOCH + CLOCK_BEGINS + Duration::from_nanos(ns);
    humantime::format_rfc3339_millis(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_uuid_is_shown_as_the_knob_says() {
        let right = "00112233-4455-6677-8899-aabbccddeeff";
        let table = [
            (Shown::Right, json!(right)),
            (Shown::Upper, json!("00112233-4455-6677-8899-AABBCCDDEEFF")),
            (Shown::Swapped, json!("33221100-5544-7766-8899-aabbccddeeff")),
            (Shown::Braced, json!("{00112233-4455-6677-8899-aabbccddeeff}")),
            (Shown::Zeros, json!("00000000-0000-0000-0000-000000000000")),
            (Shown::Ones, json!("FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF")),
            (Shown::Null, Value::Null),
            (Shown::Empty, json!("")),
            (Shown::Value(json!(7)), json!(7)),
        ];
        for (shown, want) in table {
            assert_eq!(shown.of(right), Some(want), "{shown:?}");
        }
        assert_eq!(Shown::Missing.of(right), None);
        assert_ne!(manager_uuid(right), right);
        assert_ne!(decoy_uuid("2"), decoy_uuid("3"));
    }
}
