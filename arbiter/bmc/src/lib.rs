//! Talks to one BMC and returns raw facts. Decides nothing: whether a machine is the right one or counts as off is
//! judged elsewhere, from what stands in [`coroner_shared::bmc`]. Usable on its own.
//!
//! ```text
//!   RedfishSettings --check--> RedfishConfig --> Redfish --impl--> dyn Bmc
//!                                                   |
//!        +----------------- one warm connection, one session -----------------+
//!        |  TLS, verified  |  HTTP rules    |  JSON, bounded  |  Redfish       |
//!        |  tls/           |  redfish/      |  redfish/       |  redfish/      |
//!        |  pin or bundle  |  connection,   |  json,          |  session,      |
//!        |                 |  exchange,link |  resources      |  reset         |
//!        +---------------------------------------------------------------------+
//!                                                   |
//!   IdentityFacts, PowerReading, CommandAnswer, Login   (facts)    BmcError   (one class per remedy)
//! ```
//!
//! What a caller may rely on:
//!
//! * **Nothing is cached that a verdict rests on.** Each [`Bmc::power_state`] is a request of its own.
//! * **A power command is never repeated by us once it may have arrived.** `Err` from [`Bmc::force_off`] means that no
//!   command of ours is with the BMC; everything else is a [`CommandAnswer`].
//! * **Dropping a call is safe.** The connection it used is aborted (a TCP reset: what was not sent never is) and the
//!   next call opens a new one. A log-in that is dropped half-way may leave a session behind, until it idles out.
//! * **Nothing runs behind the caller's back.** No task is spawned, no clock but tokio's timers is read.
//!
//! Deliberately absent: a switch that turns verification off, plain `http`, proxies, environment variables,
//! compression, retries of anything but a request that certainly was not sent (or a GET over a connection found dead).
//!
//! IPMI comes as a second implementation of [`Bmc`].

mod breaker;
mod config;
mod error;
mod profile;
mod redfish;
mod tls;

use std::pin::Pin as Pinned;

use coroner_shared::bmc::{CommandAnswer, IdentityFacts, Login, PowerReading};
use coroner_shared::time::Span;

pub use self::breaker::CredentialBreaker;
pub use self::config::{ConfigError, RedfishConfig, RedfishSettings, Secret};
pub use self::error::{BmcError, Stage};
pub use self::profile::{Quirk, Quirks, Timeouts};
pub use self::redfish::Redfish;
pub use self::tls::{Pin, PinOf, SeenCertificate, Trust};

/// What a call gives, boxed so that `dyn Bmc` works.
pub type Answer<'a, T> = Pinned<Box<dyn Future<Output = Result<T, BmcError>> + Send + 'a>>;

/// Whether a power command may still leave, by whatever its caller must be sure of.
pub type MayLeave<'a> = &'a (dyn Fn() -> bool + Send + Sync);

/// One BMC over one protocol. One call at a time, by construction.
///
/// # Errors
/// Each call may fail with any class of [`BmcError`] that is about the network, TLS, HTTP or the log-in; what a call
/// adds is said with it. After [`BmcError::AuthRejected`] a driver sends its credentials no more and every call fails
/// so: tell the [`CredentialBreaker`], read the secret anew and make another driver, no more often than the account's
/// lock-out allows.
pub trait Bmc: Send {
    /// Connects and logs in where that is still to be done, and reads every member of Systems, the Manager's UUID and
    /// the TLS key, all over one session and from one key.
    fn identify(&mut self) -> Answer<'_, IdentityFacts>;

    /// Reads the power state of one member by its `@odata.id`, byte for byte as [`Bmc::identify`] gave it. Always a
    /// fresh, unconditional request, with `UUID` and `PowerState` from the same body. [`BmcError::WrongResource`]: the
    /// body's own `@odata.id` is another (DSP0266 requires each resource to carry its own).
    fn power_state<'a>(&'a mut self, member: &'a str) -> Answer<'a, PowerReading>;

    /// Sends `ForceOff` to the target that the member advertises, and nothing else, ever. The member's body must have
    /// been read before by this driver; where the session (with Basic: the connection) changed since, it is read once
    /// more and must have the same UUID.
    ///
    /// `may_leave` is asked right before the first byte of the command is written, each time that it is: connecting,
    /// logging in and reading may take seconds. If it says no, nothing is sent and the call fails with
    /// [`BmcError::TooLate`]; connection and session stay ready, so that the next call sends at once.
    ///
    /// `deadline` (1 ms to 10 s, longer is cut to 10 s) ends the attempt with its socket. `Err`: no command of ours is
    /// with the BMC. [`CommandAnswer::Unknown`]: there may be.
    fn force_off<'a>(
        &'a mut self,
        member: &'a str,
        may_leave: MayLeave<'a>,
        deadline: Span,
    ) -> Answer<'a, CommandAnswer>;

    /// Sends `On`, under the same rules but with no such question.
    fn power_on<'a>(&'a mut self, member: &'a str, deadline: Span) -> Answer<'a, CommandAnswer>;

    /// Which reset types the member says it takes; `None` where it does not say. For checks at enrolment: commands
    /// do not consult it, since some BMCs list only what suits the present state, or nothing.
    fn reset_types<'a>(&'a mut self, member: &'a str) -> Answer<'a, Option<Vec<String>>>;

    /// The log-in in use, to be recorded before a command so that a successor can delete it; `None` before the first
    /// call and after [`Bmc::close`].
    fn login(&self) -> Option<Login>;

    /// Deletes a predecessor's session, so that a command of its still under way is cut off. Gone already counts as
    /// deleted.
    fn delete_session<'a>(&'a mut self, uri: &'a str) -> Answer<'a, ()>;

    /// Ends session and connection, and begins new ones. What was read before no longer permits a command. An old
    /// session that cannot be ended is left to idle out.
    fn fresh_session(&mut self) -> Answer<'_, Renewal>;

    /// Logs out and closes; call it before dropping the driver, or the BMC keeps the session until it idles out. The
    /// driver may be used again and then logs in anew.
    fn close(&mut self) -> Answer<'_, ()>;

    /// The certificate of the last connection, for status and for warnings before it expires; `None` without TLS.
    fn certificate(&self) -> Option<&SeenCertificate>;
}

/// What [`Bmc::fresh_session`] saw at the change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Renewal {
    /// The BMC accepted the old session's token when it was logged out: it did not restart up to then. Always false
    /// where there was no session, or where quirk `sessions-survive-restart` makes the token worthless for this.
    pub old_session_alive: bool,
    /// From that answer to the new session.
    pub gap: Span,
}
