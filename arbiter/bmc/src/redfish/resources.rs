//! Redfish documents and the facts in them (schemas ServiceRoot, ComputerSystem, Manager). Each field that is used is
//! read leniently on its own, so that one odd value does not hide the others; a field given twice is an error, because
//! then nobody knows which one counts.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use coroner_shared::bmc::{Continuity, IdentityFacts, MemberFacts, MemberRead, Power, PowerReading};
use coroner_shared::time::Span;
use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;

use super::exchange::Ask;
use super::link;
use super::reset::ResetAction;
use super::{Redfish, WITHHELD};
use crate::error::BmcError;
use crate::profile::Quirk;

/// A chassis has a dozen; one service for a whole rack some forty.
const MEMBERS_MAX: usize = 64;
/// Pages of a collection (`Members@odata.nextLink`).
const PAGES_MAX: usize = 8;
/// Longest text that is kept as a fact; a UUID has 36 characters, serials up to 64.
const FACT_CHARS_MAX: usize = 128;
/// A secret this long is withheld even from facts; a shorter one could be part of any serial.
const SECRET_BYTES_MIN: usize = 8;
/// How long a Manager's reset time stands for readings over the very connection it was read over, which shows by
/// itself that there was no restart.
const RESET_TIME_FRESH: Span = Span::from_secs(30);

/// What the service root says.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(crate) struct Root {
    systems: Option<Value>,
    managers: Option<Value>,
    session_service: Option<Value>,
    links: Option<Value>,
    #[serde(rename = "UUID")]
    uuid: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Collection {
    #[serde(rename = "Members")]
    members: Vec<Value>,
    #[serde(rename = "Members@odata.nextLink")]
    next: Option<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct System {
    #[serde(rename = "@odata.id")]
    id: Option<Value>,
    #[serde(rename = "UUID")]
    uuid: Option<Value>,
    serial_number: Option<Value>,
    power_state: Option<Value>,
    links: Option<Value>,
    actions: Option<Value>,
}

#[derive(Debug, Deserialize)]
struct Manager {
    #[serde(rename = "UUID")]
    uuid: Option<Value>,
    #[serde(rename = "LastResetTime")]
    last_reset_time: Option<Value>,
}

/// A member as it was last read, and over what.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    pub(crate) uuid: Option<String>,
    pub(crate) reset: Option<ResetAction>,
    pub(crate) session: Option<u64>,
    pub(crate) connection: u64,
}

/// What a Manager said about its last restart.
#[derive(Clone, Debug)]
pub(crate) struct ManagerSeen {
    reset_time: Option<String>,
    connection: u64,
    at: Instant,
}

// === impl Root ===

impl Root {
    /// The links by the standard's own paths, for a service whose root is closed.
    pub(crate) fn standard(sessions: &str) -> Self {
        let link = |path: &str| Some(serde_json::json!({ "@odata.id": path }));
        Self {
            systems: link("/redfish/v1/Systems"),
            managers: link("/redfish/v1/Managers"),
            session_service: None,
            links: Some(serde_json::json!({ "Sessions": { "@odata.id": sessions } })),
            uuid: None,
        }
    }

    /// Where to log in; `None` where the root speaks of no session service.
    pub(crate) fn sessions(&self) -> Option<String> {
        let linked = self.links.as_ref().and_then(|links| link_in(links.get("Sessions")));
        let service = || link_in(self.session_service.as_ref()).map(|service| below(service, "Sessions"));
        linked.map(str::to_owned).or_else(service)
    }
}

// === impl Redfish ===

impl Redfish {
    /// Everything that identity is judged by, over one session: if that is lost on the way, all is read again, once.
    pub(crate) async fn read_identity(&mut self) -> Result<IdentityFacts, BmcError> {
        for _ in 0..2 {
            self.connect().await?;
            self.log_in().await?;
            let session = self.session_number();
            let facts = self.read_all().await?;
            if self.session_number() == session {
                return Ok(facts);
            }
        }
        let what = "the session was lost twice while it was read".to_owned();
        Err(BmcError::Changed { member: "Systems".to_owned(), what })
    }

    async fn read_all(&mut self) -> Result<IdentityFacts, BmcError> {
        let root = self.root().await?;
        let no_systems = || BmcError::Malformed {
            request: "GET /redfish/v1/".to_owned(),
            why: "no link to Systems".to_owned(),
        };
        let systems = link_in(root.systems.as_ref()).ok_or_else(no_systems)?;
        let paths = self.collection(systems).await.inspect_err(|_| self.root = None)?;
        let mut members = Vec::new();
        let mut managers = BTreeMap::new();
        for path in paths {
            let read = match self.read_member(&path).await {
                Ok((system, _)) => {
                    managers.insert(path.clone(), manager_of(&system));
                    let (uuid, serial) =
                        (self.fact(system.uuid.as_ref()), self.fact(system.serial_number.as_ref()));
                    MemberRead::Read { uuid, serial }
                }
                Err(error) if is_about_one_resource(&error) => MemberRead::Unreadable { why: error.full() },
                Err(error) => return Err(error),
            };
            members.push(MemberFacts { path, read });
        }
        let manager_uuid = self.manager_uuid(&root, &managers).await?;
        let tls_key_sha256 = self.certificate.as_ref().and_then(|seen| seen.key_sha256.clone());
        Ok(IdentityFacts { members, manager_uuid, tls_key_sha256 })
    }

    /// The links in a collection, whatever its count says. What is expanded in it is not used.
    async fn collection(&mut self, first: &str) -> Result<Vec<String>, BmcError> {
        let mut paths = Vec::new();
        let mut next = Some(first.to_owned());
        for _ in 0..PAGES_MAX {
            let Some(page) = next.take() else { break };
            let ask = Ask::get(self.local(&page)?);
            let (Collection { members, next: more }, _) = self.document(&ask).await?;
            if paths.len() + members.len() > MEMBERS_MAX {
                return Err(BmcError::TooLarge { what: "collection", limit: "64 members" });
            }
            paths.extend(members.iter().map(|member| self.listed(member)));
            next = more.as_ref().and_then(Value::as_str).map(str::to_owned);
        }
        match next {
            None => Ok(paths),
            Some(_) => Err(BmcError::TooLarge { what: "collection", limit: "8 pages" }),
        }
    }

    /// A member's link as it is listed. One without a link, or with one that cannot be, stays in the list as a member
    /// that cannot be read.
    fn listed(&self, member: &Value) -> String {
        let path = link_in(Some(member)).unwrap_or_default();
        if path.len() > link::BYTES_MAX {
            return "(longer than 512 bytes)".to_owned();
        }
        if self.repeats_a_secret(path, SECRET_BYTES_MIN) { WITHHELD.to_owned() } else { path.to_owned() }
    }

    /// Reads one member of Systems, and remembers over what. Its body must say that it is that very resource.
    async fn read_member(&mut self, member: &str) -> Result<(System, u64), BmcError> {
        let path = self.local(member)?;
        let ask = Ask::get(path.clone());
        let (system, connection): (System, u64) = self.document(&ask).await?;
        let got = system.id.as_ref().and_then(Value::as_str).unwrap_or_default();
        if !self.local(got).is_ok_and(|got| link::same_resource(&got, &path)) {
            return Err(BmcError::WrongResource { asked: self.shown(&path), got: self.shown(got) });
        }
        if self.members.len() >= MEMBERS_MAX && !self.members.contains_key(member) {
            self.members.clear();
        }
        let known = Known {
            uuid: self.fact(system.uuid.as_ref()),
            reset: ResetAction::of(system.actions.as_ref()),
            session: self.session_number(),
            connection,
        };
        self.members.insert(member.to_owned(), known);
        Ok((system, connection))
    }

    /// Reads a member again, for a command: what is remembered of it afterwards is what it says now.
    pub(crate) async fn reread(&mut self, member: &str) -> Result<(), BmcError> {
        self.read_member(member).await.map(|_| ())
    }

    pub(crate) async fn read_power(&mut self, member: &str) -> Result<PowerReading, BmcError> {
        let begun = Instant::now();
        let (system, connection) = self.read_member(member).await?;
        let took = Span::from_ms(u64::try_from(begun.elapsed().as_millis()).unwrap_or(u64::MAX));
        let manager = manager_of(&system).or_else(|| self.manager.clone());
        let continuity = self.continuity(manager, connection).await;
        let power = Power::from_text(self.fact(system.power_state.as_ref()).as_deref());
        Ok(PowerReading { power, uuid: self.fact(system.uuid.as_ref()), took, continuity })
    }

    /// What a reading over `connection` rests on.
    async fn continuity(&mut self, manager: Option<String>, connection: u64) -> Continuity {
        let survives = self.config.quirks.has(Quirk::SessionsSurviveRestart);
        let session = self.session_number().filter(|_| !survives);
        let plain = Continuity { session, connection: Some(connection), reset_time: None };
        let Some(manager) = manager else { return plain };
        let before = self.managers.get(&manager).cloned();
        match &before {
            // It has none; looked for again by `identify`.
            Some(ManagerSeen { reset_time: None, .. }) => return plain,
            Some(seen)
                if seen.connection == connection && seen.at.elapsed() <= Duration::from(RESET_TIME_FRESH) =>
            {
                return Continuity { reset_time: seen.reset_time.clone(), ..plain };
            }
            Some(_) | None => {}
        }
        match self.read_manager(&manager).await {
            Ok(_) => {
                let reset_time = self.managers.get(&manager).and_then(|seen| seen.reset_time.clone());
                Continuity { reset_time, ..plain }
            }
            // A Manager that had a reset time and now says nothing may just have restarted. A token that is still
            // good does not speak against that (some survive it), the same connection does.
            Err(_) if before.is_some() => Continuity { session: None, ..plain },
            Err(_) => plain,
        }
    }

    async fn read_manager(&mut self, manager: &str) -> Result<Manager, BmcError> {
        let ask = Ask::get(self.local(manager)?);
        let (body, connection): (Manager, u64) = self.document(&ask).await?;
        if self.managers.len() >= MEMBERS_MAX {
            self.managers.clear();
        }
        let reset_time = self.fact(body.last_reset_time.as_ref());
        let seen = ManagerSeen { reset_time, connection, at: Instant::now() };
        self.managers.insert(manager.to_owned(), seen);
        Ok(body)
    }

    /// The UUID of the Manager of the hinted member, or of the one Manager there is; the service's own where there is
    /// no such Manager or it has none. `None` where the Manager exists but cannot be read: another value in its place
    /// would look like a change.
    async fn manager_uuid(
        &mut self,
        root: &Root,
        by_member: &BTreeMap<String, Option<String>>,
    ) -> Result<Option<String>, BmcError> {
        let hinted = self.config.system_hint.as_ref().and_then(|hint| by_member.get(hint)).cloned().flatten();
        let all: BTreeSet<&String> = by_member.values().flatten().collect();
        let manager = match (hinted, all.first(), link_in(root.managers.as_ref())) {
            (Some(hinted), _, _) => Some(hinted),
            (None, Some(one), _) if all.len() == 1 => Some((*one).clone()),
            (None, None, Some(managers)) => match self.collection(managers).await {
                Ok(found) if found.len() == 1 => found.into_iter().next(),
                Ok(_) => None,
                Err(error) if is_about_one_resource(&error) => return Ok(None),
                Err(error) => return Err(error),
            },
            (None, _, _) => None,
        };
        self.manager = manager.clone();
        let Some(manager) = manager else { return Ok(self.fact(root.uuid.as_ref())) };
        match self.read_manager(&manager).await {
            Ok(body) => Ok(self.fact(body.uuid.as_ref()).or_else(|| self.fact(root.uuid.as_ref()))),
            Err(error) if is_about_one_resource(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// A text as a fact: exactly as given, or `None` if it is none. One that is too long, or that repeats a secret,
    /// is replaced whole, since a piece of it could pass for something else.
    pub(crate) fn fact(&self, value: Option<&Value>) -> Option<String> {
        let text = value?.as_str()?;
        if text.chars().count() > FACT_CHARS_MAX {
            return Some("(longer than 128 characters)".to_owned());
        }
        if self.repeats_a_secret(text, SECRET_BYTES_MIN) {
            return Some(WITHHELD.to_owned());
        }
        Some(text.to_owned())
    }
}

// === helpers ===

/// The `@odata.id` in a reference.
pub(crate) fn link_in(reference: Option<&Value>) -> Option<&str> {
    reference?.get("@odata.id")?.as_str()
}

fn below(parent: &str, name: &str) -> String {
    format!("{}/{name}", parent.strip_suffix('/').unwrap_or(parent))
}

/// The Manager that a System names. Of several the first by name, since their order may change from read to read.
fn manager_of(system: &System) -> Option<String> {
    let managers = system.links.as_ref()?.get("ManagedBy")?.as_array()?;
    let links = managers.iter().take(MEMBERS_MAX).filter_map(|manager| link_in(Some(manager)));
    links.filter(|link| link.len() <= link::BYTES_MAX).min().map(str::to_owned)
}

/// Whether an error says something about the resource asked for, rather than about the BMC as a whole.
fn is_about_one_resource(error: &BmcError) -> bool {
    match error {
        BmcError::Status { .. }
        | BmcError::Malformed { .. }
        | BmcError::TooLarge { .. }
        | BmcError::TooDeep { .. }
        | BmcError::CrossOrigin { .. }
        | BmcError::Redirect { .. }
        | BmcError::WrongResource { .. } => true,
        BmcError::Resolve { .. }
        | BmcError::ConnectionRefused { .. }
        | BmcError::Unreachable { .. }
        | BmcError::Timeout { .. }
        | BmcError::Broken { .. }
        | BmcError::UnknownIssuer { .. }
        | BmcError::WrongPin { .. }
        | BmcError::WrongName { .. }
        | BmcError::WrongDate { .. }
        | BmcError::BadCertificate { .. }
        | BmcError::TooOld { .. }
        | BmcError::Handshake { .. }
        | BmcError::KeyChanged { .. }
        | BmcError::AuthRejected { .. }
        | BmcError::NoSessions
        | BmcError::NotRead { .. }
        | BmcError::Changed { .. }
        | BmcError::NoTarget { .. }
        | BmcError::TooLate => false,
    }
}
