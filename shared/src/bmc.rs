//! Raw facts read from a BMC, before anybody judges them. The driver returns these and decides nothing; whether a
//! machine is the right one or counts as off is `coroner-arbiter-core`'s to say, so that the simulator judges with
//! the same code.

use serde::{Deserialize, Serialize};

use crate::time::Span;

/// Every `ComputerSystem` that a BMC lists, as it stands there.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct IdentityFacts {
    /// One entry per member of the Systems collection, in the BMC's order; never chosen by that order.
    pub members: Vec<MemberFacts>,
    /// `UUID` of the Manager or ServiceRoot: may refuse, never permit.
    pub manager_uuid: Option<String>,
    /// SHA-256 of the certificate's public key that this session spoke to, 64 hex digits.
    pub tls_key_sha256: Option<String>,
}

/// One member of `/redfish/v1/Systems` (DSP0266; schema ComputerSystem).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberFacts {
    /// Its `@odata.id`, byte for byte.
    pub path: String,
    /// What reading it gave.
    pub read: MemberRead,
}

/// What reading one member gave.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MemberRead {
    /// The resource was read.
    Read {
        /// `UUID` exactly as given; `None` for missing, null or not a string.
        uuid: Option<String>,
        /// `SerialNumber`, if any.
        serial: Option<String>,
    },
    /// It is listed but could not be read (some machines answer 503 for a member while it is off).
    Unreadable {
        /// What happened, without secrets.
        why: String,
    },
}

/// `PowerState` (schema Resource), exactly as read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Power {
    /// The exact text `On`.
    On,
    /// The exact text `Off`.
    Off,
    /// `PoweringOn`.
    PoweringOn,
    /// `PoweringOff`: not off.
    PoweringOff,
    /// `Paused`.
    Paused,
    /// Anything else, null and missing included.
    Other(String),
}

/// One reading of the power state with what shows whether the BMC restarted since the last one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PowerReading {
    /// The state.
    pub power: Power,
    /// `UUID` in the same body, if there.
    pub uuid: Option<String>,
    /// How long the request took.
    pub took: Span,
    /// What the reading rests on.
    pub continuity: Continuity,
}

/// What shows that a BMC did not restart: equal in two readings means that it did not. `None` everywhere means that
/// nothing can show it, and such a BMC is never steady.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Continuity {
    /// A number for the log-in session whose token was accepted; counts up in the driver.
    pub session: Option<u64>,
    /// A number for the TCP connection that carried the request; counts up in the driver.
    pub connection: Option<u64>,
    /// `LastResetTime` of the Manager: compared for change only, since BMC clocks lie.
    pub reset_time: Option<String>,
}

/// How a BMC answered a power command. Never evidence that anything is off.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum CommandAnswer {
    /// 200, 202 or 204.
    Accepted,
    /// The BMC said no (4xx other than 408, 425, 429).
    Refused {
        /// HTTP status and the BMC's own message id, without secrets.
        why: String,
    },
    /// Time-out, reset connection, 5xx, unparsable: it may or may not act.
    Unknown {
        /// What happened, without secrets.
        why: String,
    },
}

/// Which log-in a power command used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Login {
    /// A Redfish session; its URI, so that a successor can delete it first.
    Session(String),
    /// Basic authentication: a late command cannot be cut off.
    Basic,
}

// === impl Power ===

impl Power {
    /// Reads the JSON text of `PowerState`; only exact spellings count.
    pub fn from_text(text: Option<&str>) -> Self {
        match text {
            Some("On") => Self::On,
            Some("Off") => Self::Off,
            Some("PoweringOn") => Self::PoweringOn,
            Some("PoweringOff") => Self::PoweringOff,
            Some("Paused") => Self::Paused,
            Some(other) => Self::Other(other.chars().take(64).collect()),
            None => Self::Other("missing".to_owned()),
        }
    }
}

// === impl Continuity ===

impl Continuity {
    /// Whether these two readings show that the BMC did not restart between them: the token or the connection is
    /// still the same, or the reset time is unchanged. A changed reset time speaks against it whatever the rest says.
    pub fn unbroken_since(&self, earlier: &Self) -> bool {
        let same = |a: &Option<u64>, b: &Option<u64>| a.is_some() && a == b;
        match (&self.reset_time, &earlier.reset_time) {
            (Some(now), Some(then)) if now != then => false,
            (Some(now), Some(then)) if now == then => true,
            _ => same(&self.session, &earlier.session) || same(&self.connection, &earlier.connection),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_text_off_is_off() {
        for text in ["off", "OFF", "Off ", "PoweringOff", "Unknown", ""] {
            assert_ne!(Power::from_text(Some(text)), Power::Off, "{text:?}");
        }
        assert_eq!(Power::from_text(Some("Off")), Power::Off);
        assert_ne!(Power::from_text(None), Power::Off);
    }

    #[test]
    fn a_restart_shows_in_the_reset_time_even_if_a_token_lives_on() {
        let c = |session, reset: Option<&str>| Continuity {
            session,
            connection: None,
            reset_time: reset.map(str::to_owned),
        };
        assert!(c(Some(1), None).unbroken_since(&c(Some(1), None)));
        assert!(!c(Some(2), None).unbroken_since(&c(Some(1), None)));
        assert!(!c(None, None).unbroken_since(&c(None, None)));
        assert!(c(Some(2), Some("a")).unbroken_since(&c(Some(1), Some("a"))));
        assert!(!c(Some(1), Some("b")).unbroken_since(&c(Some(1), Some("a"))));
    }
}
