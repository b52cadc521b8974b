//! How one BMC differs from the rest: time limits, and quirks with names.
//!
//! Nothing here is derived from a vendor's name; the owner of the binding says which apply. Quirks that change what
//! a reading is worth (`cached`, `few-sessions`) belong to whoever judges the readings, not to the driver.

use std::fmt;

use coroner_shared::time::Span;

use crate::config::ConfigError;

/// Time limits of one BMC. Each is an upper bound; the owner may give up earlier by dropping the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP and TLS together, 100 ms to 5 min. Default 10 s.
    pub connect: Span,
    /// From the request to the first byte of its answer, 100 ms to 5 min. Default 30 s.
    pub first_byte: Span,
    /// One request in all, connecting and its body included, 100 ms to 5 min. Default 60 s.
    pub request: Span,
    /// Log-out of a session, 100 ms to 30 s. Default 5 s: a hung BMC hangs here, too.
    pub log_out: Span,
    /// How long sent bytes may stay unacknowledged before the kernel gives the connection up (TCP_USER_TIMEOUT),
    /// 1 s to 10 s. Default 10 s, the longest life of a power command: it holds even where this process is frozen
    /// and cannot abort.
    pub unacknowledged: Span,
}

/// A named way in which a BMC differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Quirk {
    /// `tls12-only`: its TLS 1.3 is broken; offer 1.2 alone.
    Tls12Only,
    /// `basic-only`: do not try to log in to a session.
    BasicOnly,
    /// `no-basic`: never send the password with each request; without a session service the BMC is an error.
    NoBasic,
    /// `sessions-survive-restart`: it keeps session tokens on flash, so a token that still counts shows nothing
    /// about a restart and [`coroner_shared::bmc::Continuity::session`] stays empty.
    SessionsSurviveRestart,
}

/// The quirks of one BMC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    set: [bool; Quirk::ALL.len()],
}

// === impl Timeouts ===

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Span::from_secs(10),
            first_byte: Span::from_secs(30),
            request: Span::from_secs(60),
            log_out: Span::from_secs(5),
            unacknowledged: Span::from_secs(10),
        }
    }
}

impl Timeouts {
    const SHORTEST: Span = Span::from_ms(100);
    const LONGEST: Span = Span::from_mins(5);

    /// Refuses zero and absurd limits: a deadline of nothing makes every BMC look dead, one of hours hangs a fence.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let Self { connect, first_byte, request, log_out, unacknowledged } = *self;
        for (field, value, least, most) in [
            ("timeouts.connect", connect, Self::SHORTEST, Self::LONGEST),
            ("timeouts.first_byte", first_byte, Self::SHORTEST, Self::LONGEST),
            ("timeouts.request", request, Self::SHORTEST, Self::LONGEST),
            ("timeouts.log_out", log_out, Self::SHORTEST, Span::from_secs(30)),
            ("timeouts.unacknowledged", unacknowledged, Span::from_secs(1), Span::from_secs(10)),
        ] {
            if value < least || value > most {
                return Err(ConfigError::new(field, value, format!("{least} to {most}")));
            }
        }
        if first_byte > request || connect > request {
            let wanted = "at least timeouts.connect and timeouts.first_byte";
            return Err(ConfigError::new("timeouts.request", request, wanted));
        }
        Ok(())
    }
}

// === impl Quirk ===

impl Quirk {
    /// All of them, for messages and tests.
    pub const ALL: [Self; 4] =
        [Self::Tls12Only, Self::BasicOnly, Self::NoBasic, Self::SessionsSurviveRestart];

    /// The name in a binding.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tls12Only => "tls12-only",
            Self::BasicOnly => "basic-only",
            Self::NoBasic => "no-basic",
            Self::SessionsSurviveRestart => "sessions-survive-restart",
        }
    }

    /// The quirk of this name, if it is one of the driver's.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|quirk| quirk.name() == name)
    }

    const fn place(self) -> usize {
        match self {
            Self::Tls12Only => 0,
            Self::BasicOnly => 1,
            Self::NoBasic => 2,
            Self::SessionsSurviveRestart => 3,
        }
    }
}

impl fmt::Display for Quirk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

// === impl Quirks ===

impl Quirks {
    /// Whether this quirk is set.
    pub fn has(&self, quirk: Quirk) -> bool {
        self.set.get(quirk.place()).copied().unwrap_or(false)
    }

    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.has(Quirk::BasicOnly) && self.has(Quirk::NoBasic) {
            return Err(ConfigError::new("quirks", "basic-only and no-basic", "one of the two, or neither"));
        }
        Ok(())
    }
}

impl FromIterator<Quirk> for Quirks {
    fn from_iter<I: IntoIterator<Item = Quirk>>(quirks: I) -> Self {
        let mut out = Self::default();
        for quirk in quirks {
            if let Some(place) = out.set.get_mut(quirk.place()) {
                *place = true;
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quirks_are_found_by_the_name_they_show() {
        for quirk in Quirk::ALL {
            assert_eq!(Quirk::from_name(quirk.name()), Some(quirk));
            assert!(Quirks::from_iter([quirk]).has(quirk));
            assert!(!Quirks::default().has(quirk));
        }
        assert_eq!(Quirk::from_name("insecure"), None);
    }

    #[test]
    fn zero_absurd_and_contradictory_settings_are_refused_by_field() {
        let good = Timeouts::default();
        assert!(good.check().is_ok());
        for (timeouts, field) in [
            (Timeouts { connect: Span::ZERO, ..good }, "timeouts.connect"),
            (Timeouts { first_byte: Span::from_ms(99), ..good }, "timeouts.first_byte"),
            (Timeouts { request: Span::MAX, ..good }, "timeouts.request"),
            (Timeouts { request: Span::from_secs(20), ..good }, "timeouts.request"),
            (Timeouts { log_out: Span::from_mins(1), ..good }, "timeouts.log_out"),
            (Timeouts { unacknowledged: Span::from_secs(11), ..good }, "timeouts.unacknowledged"),
        ] {
            assert_eq!(timeouts.check().unwrap_err().field(), field);
        }
        assert!(Quirks::from_iter([Quirk::BasicOnly, Quirk::NoBasic]).check().is_err());
    }
}
