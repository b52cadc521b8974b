//! The Redfish driver (DSP0266): its state, and which file does what with it.
//!
//! ```text
//!   reset ----+                                            connection   one socket, TLS, HTTP/1.1
//!   resources +--> exchange (log-in, redirects, one retry) --> link     whose links are followed
//!   session --+                                            json         bounded bodies
//! ```
//!
//! The connection is taken out of the driver while a request is under way and put back after a whole answer, so a call
//! that is dropped half-way takes its connection with it.

mod connection;
mod exchange;
mod json;
mod link;
mod reset;
mod resources;
mod session;

use std::collections::BTreeMap;
use std::fmt;

use coroner_shared::bmc::{CommandAnswer, IdentityFacts, Login, PowerReading};
use coroner_shared::time::Span;

use self::connection::Connection;
use self::resources::{Known, ManagerSeen, Root};
use self::session::Auth;
use crate::config::RedfishConfig;
use crate::error::printable;
use crate::tls::SeenCertificate;
use crate::{Answer, Bmc, MayLeave, Renewal};

/// In place of a text that repeats a secret of ours.
const WITHHELD: &str = "(withheld: repeats a secret)";

/// One BMC over Redfish. Connects on first use.
pub struct Redfish {
    config: RedfishConfig,
    connection: Option<Connection>,
    /// Whom the last connection was to.
    certificate: Option<SeenCertificate>,
    auth: Option<Auth>,
    /// The credentials were refused, and how; they are sent no more.
    rejected: Option<String>,
    /// A power command was begun and has no answer.
    unanswered: bool,
    root: Option<Root>,
    /// Members of Systems as they were last read, by `@odata.id`.
    members: BTreeMap<String, Known>,
    /// The Manager that `identify` found, for members that name none.
    manager: Option<String>,
    /// What Managers said about their last restart, by `@odata.id`.
    managers: BTreeMap<String, ManagerSeen>,
}

// === impl Redfish ===

impl Redfish {
    /// A driver that has not connected yet.
    pub fn new(config: RedfishConfig) -> Self {
        Self {
            config,
            connection: None,
            certificate: None,
            auth: None,
            rejected: None,
            unanswered: false,
            root: None,
            members: BTreeMap::new(),
            manager: None,
            managers: BTreeMap::new(),
        }
    }

    /// Forgets everything that was learnt over the present session.
    fn forget(&mut self) {
        self.auth = None;
        self.root = None;
        self.members.clear();
        self.manager = None;
        self.managers.clear();
    }

    /// Text from the BMC as it may stand in an error: printable, cut, and without our secrets.
    fn shown(&self, text: &str) -> String {
        if self.repeats_a_secret(text, 1) { WITHHELD.to_owned() } else { printable(text) }
    }

    /// Whether `text` contains the password, its Basic form or the session's token, if that is `least` bytes or more.
    fn repeats_a_secret(&self, text: &str, least: usize) -> bool {
        let password = self.config.password.expose();
        let basic = self.config.basic.expose().trim_start_matches("Basic ");
        let token = self.auth.as_ref().and_then(Auth::token);
        [Some(password), Some(basic), token]
            .into_iter()
            .flatten()
            .any(|secret| secret.len() >= least && text.contains(secret))
    }
}

impl fmt::Debug for Redfish {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Redfish")
            .field("address", &self.config.address.to_string())
            .field("login", &self.login())
            .field("connection", &self.connection.as_ref().map(Connection::number))
            .finish_non_exhaustive()
    }
}

impl Bmc for Redfish {
    fn identify(&mut self) -> Answer<'_, IdentityFacts> {
        Box::pin(self.read_identity())
    }

    fn power_state<'a>(&'a mut self, member: &'a str) -> Answer<'a, PowerReading> {
        Box::pin(self.read_power(member))
    }

    fn force_off<'a>(
        &'a mut self,
        member: &'a str,
        may_leave: MayLeave<'a>,
        deadline: Span,
    ) -> Answer<'a, CommandAnswer> {
        Box::pin(self.command(member, reset::Command::ForceOff, may_leave, deadline))
    }

    fn power_on<'a>(&'a mut self, member: &'a str, deadline: Span) -> Answer<'a, CommandAnswer> {
        Box::pin(self.command(member, reset::Command::On, &|| true, deadline))
    }

    fn reset_types<'a>(&'a mut self, member: &'a str) -> Answer<'a, Option<Vec<String>>> {
        Box::pin(self.read_reset_types(member))
    }

    fn login(&self) -> Option<Login> {
        self.auth.as_ref().map(Auth::login)
    }

    fn delete_session<'a>(&'a mut self, uri: &'a str) -> Answer<'a, ()> {
        Box::pin(self.delete_foreign(uri))
    }

    fn fresh_session(&mut self) -> Answer<'_, Renewal> {
        Box::pin(self.renew())
    }

    fn close(&mut self) -> Answer<'_, ()> {
        Box::pin(self.end())
    }

    fn certificate(&self) -> Option<&SeenCertificate> {
        self.certificate.as_ref()
    }
}
