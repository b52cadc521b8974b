//! Who we are to the BMC: sessions (DSP0266, session login), Basic where there is no session service, and their end.
//!
//! The password is sent as seldom as can be: once per session, never again after it was refused, and with each
//! request only to a BMC that has no sessions. Sessions are always deleted, since a BMC has room for a handful.

use std::sync::atomic::{AtomicU64, Ordering};

use coroner_shared::bmc::Login;
use coroner_shared::time::Span;
use hyper::body::Bytes;
use hyper::header::LOCATION;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;
use zeroize::Zeroizing;

use super::Redfish;
use super::connection::{Failure, Limits, Raw};
use super::exchange::Ask;
use super::link;
use super::resources::Root;
use crate::Renewal;
use crate::config::Secret;
use crate::error::BmcError;
use crate::profile::Quirk;

/// Where sessions are by standard, for a root that does not link to them (DSP0266, session login).
const SESSIONS: &str = "/redfish/v1/SessionService/Sessions";
/// A longer token would not fit into a request's headers everywhere.
const TOKEN_BYTES_MAX: usize = 4096;

/// Numbers of sessions, never used twice in one process; see the connections' numbers.
static NEXT: AtomicU64 = AtomicU64::new(1);

/// How we are logged in.
#[derive(Debug)]
pub(crate) enum Auth {
    Session(Session),
    /// Name and password with each request.
    Basic,
}

/// A session of ours.
#[derive(Debug)]
pub(crate) struct Session {
    number: u64,
    token: Secret,
    uri: String,
}

#[derive(Serialize)]
#[serde(rename_all = "PascalCase")]
struct Credentials<'a> {
    user_name: &'a str,
    password: &'a str,
}

#[derive(Deserialize)]
struct Created {
    #[serde(rename = "@odata.id")]
    id: Option<Value>,
}

#[derive(Deserialize)]
struct Shown {
    #[serde(rename = "UserName")]
    user_name: Option<Value>,
}

// === impl Auth, Session ===

impl Auth {
    pub(crate) fn login(&self) -> Login {
        match self {
            Self::Session(session) => Login::Session(session.uri.clone()),
            Self::Basic => Login::Basic,
        }
    }

    pub(crate) fn token(&self) -> Option<&str> {
        match self {
            Self::Session(session) => Some(session.token()),
            Self::Basic => None,
        }
    }
}

impl Session {
    pub(crate) fn token(&self) -> &str {
        self.token.expose()
    }
}

// === impl Redfish ===

impl Redfish {
    /// The number of the present session; `None` with Basic.
    pub(crate) fn session_number(&self) -> Option<u64> {
        match &self.auth {
            Some(Auth::Session(session)) => Some(session.number),
            Some(Auth::Basic) | None => None,
        }
    }

    /// Logs in, unless that is done. A password that was refused is not tried again.
    pub(crate) async fn log_in(&mut self) -> Result<(), BmcError> {
        if self.auth.is_some() {
            return Ok(());
        }
        if let Some(how) = &self.rejected {
            let how = format!("{how}; not tried again");
            return Err(BmcError::AuthRejected { how });
        }
        let sessions = self.root().await?.sessions();
        let auth = match sessions {
            _ if self.config.quirks.has(Quirk::BasicOnly) => Auth::Basic,
            Some(sessions) => self.create_session(&sessions).await?,
            None => self.without_sessions()?,
        };
        self.auth = Some(auth);
        Ok(())
    }

    /// The service root, read without credentials (DSP0266: it is open to everyone) once per session. Services differ
    /// on the slash at its end, and a few close it.
    pub(crate) async fn root(&mut self) -> Result<Root, BmcError> {
        if let Some(root) = &self.root {
            return Ok(root.clone());
        }
        let mut outcome = Ok(Root::standard(SESSIONS));
        for path in ["/redfish/v1/", "/redfish/v1"] {
            let ask = Ask::get(path).open();
            let raw = self.carry(&ask, self.limits()).await.map_err(Failure::into_error)?;
            if raw.status.as_u16() == 401 {
                outcome = Ok(Root::standard(SESSIONS));
                break;
            }
            let not_found = raw.status.as_u16() == 404;
            outcome = self.parse(&ask, &raw);
            if !not_found {
                break;
            }
        }
        let root = outcome?;
        self.root = Some(root.clone());
        Ok(root)
    }

    async fn create_session(&mut self, sessions: &str) -> Result<Auth, BmcError> {
        let ask = Ask::post(self.local(sessions)?, self.credentials()).open();
        let raw = self.carry(&ask, self.limits()).await.map_err(Failure::into_error)?;
        match raw.status.as_u16() {
            200 | 201 => self.created(&ask, &raw).map(Auth::Session),
            // Some answer 400 to a wrong password.
            status @ (400 | 401 | 403) => {
                let message = self.message(&raw).map(|id| format!(" {id}")).unwrap_or_default();
                Err(self.reject(format!("session log-in: HTTP {status}{message}")))
            }
            404 | 405 | 501 => self.without_sessions(),
            _ => Err(self.status(&ask, &raw)),
        }
    }

    fn without_sessions(&self) -> Result<Auth, BmcError> {
        if self.config.quirks.has(Quirk::NoBasic) { Err(BmcError::NoSessions) } else { Ok(Auth::Basic) }
    }

    /// The request's body; overwritten when its last copy is dropped.
    fn credentials(&self) -> Bytes {
        let credentials =
            Credentials { user_name: &self.config.username, password: self.config.password.expose() };
        // Large enough that it is never moved, each byte as \u00XX: no copies stay behind in freed memory.
        let room = 64 + 6 * (self.config.username.len() + self.config.password.expose().len());
        let mut body = Zeroizing::new(Vec::with_capacity(room));
        // Writing text into memory cannot fail; an empty body would be refused by the BMC.
        let _ = serde_json::to_writer(&mut *body, &credentials);
        Bytes::from_owner(body)
    }

    fn created(&self, ask: &Ask, raw: &Raw) -> Result<Session, BmcError> {
        let malformed = |why: &str| BmcError::Malformed { request: self.label(ask), why: why.to_owned() };
        let token = raw.headers.get("X-Auth-Token").and_then(|token| token.to_str().ok());
        let token = token
            .filter(|token| !token.is_empty() && token.len() <= TOKEN_BYTES_MAX)
            .ok_or_else(|| malformed("no usable X-Auth-Token"))?;
        let location = raw.headers.get(LOCATION).and_then(|location| location.to_str().ok());
        // Some give an absolute URL under a name of their own; the body then has the path.
        let uri = location.and_then(|location| self.local(location).ok()).or_else(|| {
            let body: Created = super::json::parse(&raw.headers, &raw.body).ok()?;
            self.local(body.id?.as_str()?).ok()
        });
        let uri =
            uri.ok_or_else(|| malformed("the new session has no URI of this BMC, so it could not be ended"))?;
        if uri.contains(token) {
            return Err(malformed("the session's URI contains its token"));
        }
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Ok(Session { number, token: Secret::new(token.to_owned()), uri })
    }

    /// Ends the present session, if there is one; whether the BMC still knew it.
    async fn log_out(&mut self) -> Result<bool, BmcError> {
        let outcome = match &self.auth {
            Some(Auth::Session(session)) => {
                let ask = Ask::delete(session.uri.clone());
                let limits = Limits::new(self.config.timeouts.log_out, self.config.timeouts.log_out);
                match self.carry(&ask, limits).await {
                    Ok(raw) if raw.status.is_success() => Ok(true),
                    // Timed out or restarted: nothing is left to end.
                    Ok(raw) if matches!(raw.status.as_u16(), 401 | 404 | 410) => Ok(false),
                    Ok(raw) => Err(self.status(&ask, &raw)),
                    Err(failure) => Err(failure.into_error()),
                }
            }
            Some(Auth::Basic) | None => Ok(false),
        };
        self.forget();
        outcome
    }

    async fn hang_up(&mut self) {
        if let Some(connection) = self.connection.take() {
            connection.close().await;
        }
    }

    pub(crate) async fn end(&mut self) -> Result<(), BmcError> {
        let outcome = self.log_out().await;
        self.hang_up().await;
        outcome.map(|_known| ())
    }

    pub(crate) async fn renew(&mut self) -> Result<Renewal, BmcError> {
        let known = match self.log_out().await {
            Ok(known) => known,
            Err(error @ BmcError::KeyChanged { .. }) => return Err(error),
            // A session that cannot be ended is left to idle out; what counts is the new one.
            Err(_) => false,
        };
        let since = Instant::now();
        self.hang_up().await;
        self.log_in().await?;
        // With Basic there is nothing to log in to, but the connection is still to be new and up.
        self.connect().await?;
        Ok(Renewal {
            old_session_alive: known && !self.config.quirks.has(Quirk::SessionsSurviveRestart),
            gap: Span::from_ms(u64::try_from(since.elapsed().as_millis()).unwrap_or(u64::MAX)),
        })
    }

    /// Deletes a predecessor's session. Numbers of sessions are used again after a BMC's restart, so a session of that
    /// URI may be ours of now, or another account's: both mean that the predecessor's is gone.
    pub(crate) async fn delete_foreign(&mut self, uri: &str) -> Result<(), BmcError> {
        let path = self.local(uri)?;
        if !path.contains("/Sessions/") {
            let why = "not the URI of a session".to_owned();
            return Err(BmcError::Malformed { request: format!("DELETE {}", self.shown(&path)), why });
        }
        self.log_in().await?;
        if let Some(Auth::Session(own)) = &self.auth
            && link::same_resource(&own.uri, &path)
        {
            return Ok(());
        }
        let look = Ask::get(path.clone());
        let raw = self.ask(&look).await?;
        if matches!(raw.status.as_u16(), 404 | 410) {
            return Ok(());
        }
        if let Ok(Shown { user_name: Some(Value::String(name)) }) = self.parse(&look, &raw)
            && name != self.config.username
        {
            return Ok(());
        }
        let ask = Ask::delete(path);
        let raw = self.ask(&ask).await?;
        if raw.status.is_success() || matches!(raw.status.as_u16(), 404 | 410) {
            return Ok(());
        }
        Err(self.status(&ask, &raw))
    }
}
