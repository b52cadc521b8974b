//! Power commands (schema ComputerSystem, action Reset): exactly `ForceOff` and `On`, to the advertised target, at
//! most once, dead with their deadline.
//!
//! Deliberately absent: every other reset type. `PushPowerButton` toggles, the graceful ones wait for a hung system,
//! restarts and cycles end in On.

use coroner_shared::bmc::CommandAnswer;
use coroner_shared::time::Span;
use hyper::body::Bytes;
use serde_json::Value;
use tokio::time::timeout;

use super::Redfish;
use super::connection::{Failure, Raw};
use super::exchange::Ask;
use super::link;
use crate::MayLeave;
use crate::error::{BmcError, Stage};

/// The longest life of a command, whatever its caller says; TCP_USER_TIMEOUT is no longer than this.
const COMMAND_MAX: Span = Span::from_secs(10);
/// The standard knows a dozen reset types.
const TYPES_MAX: usize = 32;

/// The only commands there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Command {
    ForceOff,
    On,
}

/// `#ComputerSystem.Reset` as a member advertises it; bounded, since it is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ResetAction {
    target: Option<String>,
    info: Option<String>,
    types: Option<Vec<String>>,
}

// === impl ResetAction ===

impl ResetAction {
    /// Reads it from a member's `Actions`.
    pub(crate) fn of(actions: Option<&Value>) -> Option<Self> {
        let reset = actions?.get("#ComputerSystem.Reset")?;
        let link =
            |name| reset.get(name).and_then(Value::as_str).filter(|link| link.len() <= link::BYTES_MAX);
        Some(Self {
            target: link("target").map(str::to_owned),
            info: link("@Redfish.ActionInfo").map(str::to_owned),
            types: reset.get("ResetType@Redfish.AllowableValues").and_then(texts),
        })
    }
}

// === impl Command ===

impl Command {
    const fn body(self) -> &'static str {
        match self {
            Self::ForceOff => r#"{"ResetType":"ForceOff"}"#,
            Self::On => r#"{"ResetType":"On"}"#,
        }
    }
}

// === impl Redfish ===

impl Redfish {
    pub(crate) async fn command(
        &mut self,
        member: &str,
        command: Command,
        may_leave: MayLeave<'_>,
        deadline: Span,
    ) -> Result<CommandAnswer, BmcError> {
        let deadline = deadline.min(COMMAND_MAX);
        self.unanswered = false;
        let outcome = timeout(deadline.into(), self.send_command(member, command, may_leave)).await;
        if let Ok(answer) = outcome {
            return answer;
        }
        // Its connection went with the dropped call; none is to be left that could still carry it.
        self.connection = None;
        if self.unanswered {
            return Ok(CommandAnswer::Unknown { why: format!("no answer within {deadline}") });
        }
        Err(BmcError::Timeout { stage: Stage::BeforeCommand, after: deadline })
    }

    async fn send_command(
        &mut self,
        member: &str,
        command: Command,
        may_leave: MayLeave<'_>,
    ) -> Result<CommandAnswer, BmcError> {
        let mut refused_once = false;
        loop {
            self.bind(member).await?;
            let target = self.target(member)?;
            let body = Bytes::from_static(command.body().as_bytes());
            let mut ask = Ask::post(target, body);
            ask.below = Some(self.local(member)?);
            match self.carry_if(&ask, self.limits(), may_leave).await {
                Err(Failure::NotSent(error)) => return Err(error),
                Err(Failure::Sent(error)) => return Ok(CommandAnswer::Unknown { why: error.full() }),
                // Refused unseen: log in once more, read the member again, and try again.
                Ok(raw) if raw.status.as_u16() == 401 => {
                    self.unauthorized(&ask, refused_once)?;
                    refused_once = true;
                }
                Ok(raw) => return Ok(self.answer(&raw)),
            }
        }
    }

    /// Makes sure that the member is what was read before, in this very session (with Basic: over this connection); else
    /// reads it again, and it must say the same.
    async fn bind(&mut self, member: &str) -> Result<(), BmcError> {
        self.connect().await?;
        let not_read = || BmcError::NotRead { member: self.shown(member) };
        let known = self.members.get(member).cloned().ok_or_else(not_read)?;
        self.log_in().await?;
        let same = match self.session_number() {
            Some(session) => known.session == Some(session),
            None => self.connection.as_ref().map(super::Connection::number) == Some(known.connection),
        };
        if same {
            return Ok(());
        }
        self.reread(member).await?;
        let now = self.members.get(member).and_then(|known| known.uuid.clone());
        if now == known.uuid {
            return Ok(());
        }
        self.members.remove(member);
        let text = |uuid: Option<String>| uuid.map_or("missing".to_owned(), |uuid| self.shown(&uuid));
        let what = format!("UUID was {}, is {}", text(known.uuid), text(now));
        Err(BmcError::Changed { member: self.shown(member), what })
    }

    /// Where the member says that resets go; only below its own path, or a mistake in it would hit a neighbour.
    fn target(&self, member: &str) -> Result<String, BmcError> {
        let refuse = |why: &str| BmcError::NoTarget { member: self.shown(member), why: why.to_owned() };
        let reset = self.members.get(member).and_then(|known| known.reset.as_ref());
        let reset = reset.ok_or_else(|| refuse("no #ComputerSystem.Reset is advertised"))?;
        let target = reset.target.as_deref().ok_or_else(|| refuse("the reset action has no target"))?;
        let target = self.local(target)?;
        if link::is_below(&self.local(member)?, &target) {
            return Ok(target);
        }
        Err(refuse("the advertised reset target lies outside of the member"))
    }

    fn answer(&self, raw: &Raw) -> CommandAnswer {
        let status = raw.status.as_u16();
        let message = self.message(raw).map(|id| format!(" {id}")).unwrap_or_default();
        let why = format!("HTTP {status}{message}");
        let plain =
            raw.body.trim_ascii().is_empty() || super::json::parse::<Value>(&raw.headers, &raw.body).is_ok();
        match status {
            200 | 202 | 204 if plain => CommandAnswer::Accepted,
            200 | 202 | 204 => CommandAnswer::Unknown { why: format!("{why} with a body that is not JSON") },
            408 | 425 | 429 => CommandAnswer::Unknown { why },
            400..=499 => CommandAnswer::Refused { why },
            _ => CommandAnswer::Unknown { why },
        }
    }

    /// The values that the action allows, listed with it or in its `@Redfish.ActionInfo`.
    pub(crate) async fn read_reset_types(&mut self, member: &str) -> Result<Option<Vec<String>>, BmcError> {
        self.reread(member).await?;
        let reset = self.members.get(member).and_then(|known| known.reset.clone());
        let Some(ResetAction { target: _, info, types }) = reset else { return Ok(None) };
        let types = match (types, info) {
            (Some(types), _) => Some(types),
            (None, Some(info)) => {
                let ask = Ask::get(self.local(&info)?);
                let (info, _): (Value, u64) = self.document(&ask).await?;
                let parameters = info.get("Parameters").and_then(Value::as_array);
                let is_ours = |p: &&Value| p.get("Name").and_then(Value::as_str) == Some("ResetType");
                let ours = parameters.into_iter().flatten().find(is_ours);
                ours.and_then(|parameter| parameter.get("AllowableValues")).and_then(texts)
            }
            (None, None) => None,
        };
        Ok(types.map(|types| types.iter().map(|text| self.shown(text)).collect()))
    }
}

// === helpers ===

/// The texts in a list, as many and as long as reset types are.
fn texts(list: &Value) -> Option<Vec<String>> {
    let short = |text: &Value| text.as_str().filter(|text| text.len() <= 64).map(str::to_owned);
    Some(list.as_array()?.iter().take(TYPES_MAX).filter_map(short).collect())
}
