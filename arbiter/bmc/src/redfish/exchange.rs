//! One question and its answer: connects, adds headers and credentials, follows redirects within the rules, logs in
//! once more after 401. What the answer means is for others.
//!
//! A request is made again only if nothing of it was sent, or if it changes nothing and went out over a connection
//! that had idled to its death. Statuses, time-outs and half answers are handed up as they are.

use coroner_shared::time::Span;
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue, LOCATION, RETRY_AFTER};
use hyper::{HeaderMap, Method, Request, StatusCode};
use serde::de::DeserializeOwned;
use tokio::time::{Instant, timeout_at};

use super::Redfish;
use super::connection::{Connection, Failure, Limits, Raw};
use super::json::{self, BadBody};
use super::link::{self, BadLink};
use super::session::Auth;
use crate::MayLeave;
use crate::error::{BmcError, Stage};

/// HTTP's and Redfish's own redirects (a slash at the end, DSP0266) need one.
const REDIRECTS_MAX: u32 = 2;
/// `Retry-After` beyond this is not believed.
const RETRY_AFTER_MAX: Span = Span::from_secs(30);

/// A question.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    /// Path and query, byte for byte as the BMC gave it.
    pub(crate) path: String,
    pub(crate) body: Option<Bytes>,
    pub(crate) credential: Credential,
    /// For power commands: the member below whose path a redirect must stay.
    pub(crate) below: Option<String>,
}

/// What a request carries to say who we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Credential {
    /// Nothing: the service root, and the log-in itself.
    Nothing,
    /// The session's token, or Basic.
    LoggedIn,
}

// === impl Ask ===

impl Ask {
    /// An authenticated GET.
    pub(crate) fn get(path: impl Into<String>) -> Self {
        Self::new(Method::GET, path, None)
    }

    /// An authenticated DELETE.
    pub(crate) fn delete(path: impl Into<String>) -> Self {
        Self::new(Method::DELETE, path, None)
    }

    /// An authenticated POST; its body is always JSON (some services answer 415 otherwise).
    pub(crate) fn post(path: impl Into<String>, body: Bytes) -> Self {
        Self::new(Method::POST, path, Some(body))
    }

    /// The same without credentials.
    pub(crate) fn open(mut self) -> Self {
        self.credential = Credential::Nothing;
        self
    }

    fn new(method: Method, path: impl Into<String>, body: Option<Bytes>) -> Self {
        Self { method, path: path.into(), body, credential: Credential::LoggedIn, below: None }
    }

    fn changes_nothing_twice(&self) -> bool {
        self.method != Method::POST
    }
}

// === impl Redfish ===

impl Redfish {
    /// Makes sure that there is an open connection to the same key as before. Another key is another BMC until it
    /// has been identified: nothing learnt before counts, and no token is sent to it.
    pub(crate) async fn connect(&mut self) -> Result<(), BmcError> {
        if let Some(connection) = &mut self.connection
            && connection.is_open().await
        {
            return Ok(());
        }
        self.connection = None;
        let connection = Connection::open(&self.config).await?;
        let now = connection.certificate().clone();
        self.connection = Some(connection);
        let key = now.identity().to_owned();
        match self.certificate.replace(now) {
            Some(before) if before.identity() != key => {
                self.forget();
                Err(BmcError::KeyChanged { was: before.identity().to_owned(), now: key })
            }
            Some(_) | None => Ok(()),
        }
    }

    /// Asks as whoever we are, logging in first where needed and once more after a 401. No other status is judged.
    pub(crate) async fn ask(&mut self, ask: &Ask) -> Result<Raw, BmcError> {
        for second in [false, true] {
            self.log_in().await?;
            let raw = self.carry(ask, self.limits()).await.map_err(Failure::into_error)?;
            if raw.status != StatusCode::UNAUTHORIZED {
                return Ok(raw);
            }
            self.unauthorized(ask, second)?;
        }
        Err(self.reject(format!("{}: 401 twice", self.label(ask))))
    }

    /// [`Self::ask`] for a document, with status 200.
    pub(crate) async fn document<T: DeserializeOwned>(&mut self, ask: &Ask) -> Result<(T, u64), BmcError> {
        let raw = self.ask(ask).await?;
        self.parse(ask, &raw).map(|document| (document, raw.connection))
    }

    /// The document in an answer with status 200.
    pub(crate) fn parse<T: DeserializeOwned>(&self, ask: &Ask, raw: &Raw) -> Result<T, BmcError> {
        if raw.status != StatusCode::OK {
            return Err(self.status(ask, raw));
        }
        json::parse(&raw.headers, &raw.body).map_err(|bad| match bad {
            BadBody::TooDeep => BmcError::TooDeep { request: self.label(ask) },
            BadBody::Malformed(why) => {
                BmcError::Malformed { request: self.label(ask), why: self.shown(&why) }
            }
        })
    }

    /// After a 401: a session may have timed out, which one new log-in mends; a password that was refused is not sent
    /// again.
    pub(crate) fn unauthorized(&mut self, ask: &Ask, second: bool) -> Result<(), BmcError> {
        match self.auth.take() {
            Some(Auth::Session(_)) if !second => Ok(()),
            Some(Auth::Session(_)) => {
                Err(self.reject(format!("{}: 401 with the token of a new session", self.label(ask))))
            }
            Some(Auth::Basic) | None => Err(self.reject(format!("{}: 401 with Basic", self.label(ask)))),
        }
    }

    /// Asks once, over as many connections and redirects as the rules allow.
    pub(crate) async fn carry(&mut self, ask: &Ask, limits: Limits) -> Result<Raw, Failure> {
        self.carry_if(ask, limits, &|| true).await
    }

    /// [`Self::carry`], but nothing leaves unless `may_leave` says so once there is a connection. After a redirect the
    /// BMC has the request already, so a no leaves it unknown what it does with it.
    pub(crate) async fn carry_if(
        &mut self,
        ask: &Ask,
        limits: Limits,
        may_leave: MayLeave<'_>,
    ) -> Result<Raw, Failure> {
        let mut hop = ask.clone();
        let (mut again, mut redirects) = (false, 0);
        loop {
            let before = self.connection.as_ref().map(Connection::number);
            let late = |_| Failure::NotSent(BmcError::Timeout { stage: Stage::Connect, after: limits.whole });
            timeout_at(limits.until, self.connect()).await.map_err(late)?.map_err(Failure::NotSent)?;
            let kept = before.is_some() && before == self.connection.as_ref().map(Connection::number);
            let may_repeat = |failure: &Failure| match failure {
                Failure::NotSent(_) => true,
                Failure::Sent(BmcError::Broken { .. }) => hop.changes_nothing_twice(),
                Failure::Sent(_) => false,
            };
            if !may_leave() {
                let why = "the command's permission ran out before it could be followed".to_owned();
                let redirect = || BmcError::Redirect { request: self.label(&hop), why };
                return Err(match redirects {
                    0 => Failure::NotSent(BmcError::TooLate),
                    _ => Failure::Sent(redirect()),
                });
            }
            match self.once(&hop, limits).await {
                Ok(raw) if is_redirect(raw.status) => {
                    redirects += 1;
                    hop.path = self.redirected(&hop, &raw, redirects).map_err(Failure::Sent)?;
                }
                Err(failure) if kept && !again && may_repeat(&failure) => again = true,
                done => return done,
            }
        }
    }

    /// One request over the present connection, which is lost unless a whole answer comes.
    async fn once(&mut self, ask: &Ask, limits: Limits) -> Result<Raw, Failure> {
        let request = self.request(ask).map_err(Failure::NotSent)?;
        let missing =
            || BmcError::Broken { stage: Stage::Connect, why: "closed before the request".to_owned() };
        let mut connection = self.connection.take().ok_or_else(|| Failure::NotSent(missing()))?;
        let is_command = ask.below.is_some();
        self.unanswered |= is_command;
        let answer = connection.send(request, limits).await;
        if is_command && !matches!(answer, Err(Failure::Sent(_))) {
            self.unanswered = false;
        }
        let raw = answer?;
        if connection.is_open().await {
            self.connection = Some(connection);
        }
        Ok(raw)
    }

    /// The headers are DSP0266's (request headers) and no more: no `If-Match` (some refuse it on actions), no
    /// `Accept-Encoding`, nothing conditional.
    fn request(&self, ask: &Ask) -> Result<Request<Full<Bytes>>, BmcError> {
        let mut headers = HeaderMap::new();
        let unusable = |what: &str| BmcError::Malformed { request: self.label(ask), why: what.to_owned() };
        let host = HeaderValue::from_str(&self.config.address.to_string());
        headers.insert(HOST, host.map_err(|_| unusable("address is no header"))?);
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        headers.insert("OData-Version", HeaderValue::from_static("4.0"));
        if ask.body.is_some() {
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if ask.credential == Credential::LoggedIn {
            let (name, text) = match &self.auth {
                Some(Auth::Session(session)) => ("X-Auth-Token", session.token()),
                Some(Auth::Basic) => (AUTHORIZATION.as_str(), self.config.basic.expose()),
                None => return Err(unusable("not logged in")),
            };
            let mut value = HeaderValue::from_str(text).map_err(|_| unusable("token is no header"))?;
            value.set_sensitive(true);
            headers.insert(name, value);
        }
        let body = Full::new(ask.body.clone().unwrap_or_default());
        let mut request = Request::new(body);
        *request.method_mut() = ask.method.clone();
        *request.uri_mut() = ask.path.parse().map_err(|_| unusable("path is no URI"))?;
        *request.headers_mut() = headers;
        Ok(request)
    }

    fn redirected(&self, ask: &Ask, raw: &Raw, count: u32) -> Result<String, BmcError> {
        let refuse = |why: String| BmcError::Redirect { request: self.label(ask), why };
        let status = raw.status.as_u16();
        if count > REDIRECTS_MAX {
            return Err(refuse(format!("more than {REDIRECTS_MAX}")));
        }
        if ask.method != Method::GET && !matches!(status, 307 | 308) {
            return Err(refuse(format!("HTTP {status} would lose the body")));
        }
        let location =
            raw.headers.get(LOCATION).and_then(|location| location.to_str().ok()).unwrap_or_default();
        let path = link::same_origin(&self.config.address, location).map_err(|bad| match bad {
            BadLink::CrossOrigin => BmcError::CrossOrigin { link: self.shown(location) },
            BadLink::NotAPath => refuse(format!("\"{}\" is no path of this BMC", self.shown(location))),
        })?;
        match &ask.below {
            Some(member) if !link::is_below(member, &path) => {
                Err(refuse(format!("a command for {member} may not go to {}", self.shown(&path))))
            }
            Some(_) | None => Ok(path),
        }
    }

    /// The path of a link of this very BMC.
    pub(crate) fn local(&self, text: &str) -> Result<String, BmcError> {
        link::same_origin(&self.config.address, text).map_err(|bad| match bad {
            BadLink::CrossOrigin => BmcError::CrossOrigin { link: self.shown(text) },
            BadLink::NotAPath => BmcError::Malformed {
                request: "link".to_owned(),
                why: format!("\"{}\" is no path of this BMC", self.shown(text)),
            },
        })
    }

    pub(crate) fn limits(&self) -> Limits {
        Limits::new(self.config.timeouts.first_byte, self.config.timeouts.request)
    }

    /// Method and path, for errors.
    pub(crate) fn label(&self, ask: &Ask) -> String {
        format!("{} {}", ask.method, self.shown(&ask.path))
    }

    pub(crate) fn status(&self, ask: &Ask, raw: &Raw) -> BmcError {
        let retry_after = raw.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        BmcError::Status {
            request: self.label(ask),
            status: raw.status.as_u16(),
            message: self.message(raw),
            retry_after: retry_after.map(|secs| Span::from_secs(secs).min(RETRY_AFTER_MAX)),
        }
    }

    /// The BMC's own message id, if it says one.
    pub(crate) fn message(&self, raw: &Raw) -> Option<String> {
        json::message_id(&raw.headers, &raw.body).map(|id| self.shown(&id))
    }

    /// Notes that the credentials were refused: they are not sent again.
    pub(crate) fn reject(&mut self, how: String) -> BmcError {
        self.auth = None;
        self.rejected = Some(how.clone());
        BmcError::AuthRejected { how }
    }
}

// === impl Limits, Failure ===

impl Limits {
    pub(crate) fn new(first_byte: Span, whole: Span) -> Self {
        Self { first_byte, whole, until: Instant::now() + whole.into() }
    }
}

impl Failure {
    pub(crate) fn into_error(self) -> BmcError {
        match self {
            Self::NotSent(error) | Self::Sent(error) => error,
        }
    }
}

// === helpers ===

fn is_redirect(status: StatusCode) -> bool {
    matches!(status.as_u16(), 301 | 302 | 303 | 307 | 308)
}
