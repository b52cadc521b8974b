//! BMCs and what they do wrong: every call goes into a ledger, and so does every change of power that follows.

use std::collections::BTreeSet;

use coroner_shared::bmc::{IdentityFacts, MemberFacts, MemberRead, Power};
use coroner_shared::time::{Mono, Span};

/// How one BMC is.
#[derive(Clone, Debug)]
pub(crate) struct Traits {
    /// Least and most time to an answer.
    pub(crate) takes: (Span, Span),
    /// From a ForceOff to no power.
    pub(crate) off_takes: Span,
    /// Its power state may be so old.
    pub(crate) cached: Span,
    /// No sessions: Basic only.
    pub(crate) basic: bool,
    /// Tells when it was last restarted.
    pub(crate) reset_time: bool,
    /// Refuses ForceOff to a machine that is off.
    pub(crate) refuses_when_off: bool,
    /// Answers ForceOff with success and does nothing.
    pub(crate) ignores: bool,
    /// Says `PoweringOff` until it is off, and not On.
    pub(crate) says_powering: bool,
    /// Answers 500 to so many of a hundred calls.
    pub(crate) errors: u64,
    /// What it says for a while after its own restart, whatever is true.
    pub(crate) after_restart: Option<(Power, Span)>,
    /// Gives the machine power again so long after a loss.
    pub(crate) restores: Option<Span>,
    /// What it says of the power, whatever is true.
    pub(crate) stuck: Option<Power>,
    /// Refuses ForceOff to a machine that is on.
    pub(crate) refuses_when_on: bool,
    /// Its UUID in text: one of the orders.
    pub(crate) uuid: String,
    /// It gives no UUID at all.
    pub(crate) without_uuid: bool,
    /// Members of its Systems that cannot be read while the machine is off.
    pub(crate) unreadable_when_off: &'static [&'static str],
    /// Another System of the same BMC, listed first.
    pub(crate) other: Option<String>,
    /// The machine of that System, where there is one.
    pub(crate) neighbour: Option<usize>,
}

/// One line of the ledger.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) at: Mono,
    /// The machine whose power it really holds.
    pub(crate) machine: usize,
    pub(crate) what: String,
}

/// A BMC.
pub(crate) struct Bmc {
    /// The machine whose power it really holds.
    pub(crate) machine: usize,
    pub(crate) traits: Traits,
    /// Answers nobody: no standby power, no network, or hung.
    pub(crate) dead: bool,
    /// In restart until then.
    pub(crate) restarting: Option<Mono>,
    pub(crate) restarts: u64,
    pub(crate) restarted: Option<Mono>,
    pub(crate) sessions: BTreeSet<u64>,
    next_session: u64,
    /// A log-in with the password we have is refused.
    pub(crate) password_changed: bool,
    /// The true power since when, newest last: for those that answer from a cache.
    pub(crate) history: Vec<(Mono, bool)>,
    /// A power-off is under way until then.
    pub(crate) powering_off: Option<Mono>,
}

/// What is asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    LogIn,
    Identify,
    Power,
    ForceOff,
    On,
    /// The same, of the other System.
    Next(Box<Op>),
    Delete(u64),
    LogOut,
}

/// What it answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Reply {
    Session(u64),
    Identity(IdentityFacts),
    Power { power: Power, uuid: Option<String>, reset_time: Option<String> },
    Accepted,
    Refused(&'static str),
    Error(&'static str),
    Unauthorized,
}

/// Path of the System that counts.
pub(crate) const MEMBER: &str = "/redfish/v1/Systems/1";
pub(crate) const OTHER: &str = "/redfish/v1/Systems/0";

// === impl Bmc ===

impl Bmc {
    pub(crate) fn new(machine: usize, traits: Traits, power: bool) -> Self {
        Self {
            machine,
            traits,
            dead: false,
            restarting: None,
            restarts: 0,
            restarted: None,
            sessions: BTreeSet::new(),
            // No number is another BMC's as well: one that moved to another address knows no session of it.
            next_session: machine as u64 * 1_000_000,
            password_changed: false,
            history: vec![(Mono::default(), power)],
            powering_off: None,
        }
    }

    /// Whether anything comes back at all.
    pub(crate) fn answers(&self, now: Mono) -> bool {
        !self.dead && self.restarting.is_none_or(|until| now >= until)
    }

    /// Its power state as it would say it now.
    pub(crate) fn says(&self, now: Mono) -> Power {
        if let Some(stuck) = &self.traits.stuck {
            return stuck.clone();
        }
        if let (Some((power, span)), Some(at)) = (&self.traits.after_restart, self.restarted)
            && now.since(at) < *span
        {
            return power.clone();
        }
        if self.traits.says_powering && self.powering_off.is_some_and(|until| now < until) {
            return Power::PoweringOff;
        }
        if self.is_on_in_its_cache(now) { Power::On } else { Power::Off }
    }

    /// The power as it last took it down, which is now where it keeps none.
    pub(crate) fn is_on_in_its_cache(&self, now: Mono) -> bool {
        let seen = now.back(self.traits.cached);
        let on = self.history.iter().rev().find(|(at, _)| *at <= seen).or(self.history.first());
        on.is_some_and(|(_, on)| *on)
    }

    /// The machine's power changed.
    pub(crate) fn note_power(&mut self, now: Mono, on: bool) {
        self.history.push((now, on));
        self.powering_off = None;
        if self.history.len() > 64 {
            self.history.remove(0);
        }
    }

    pub(crate) fn log_in(&mut self) -> Reply {
        if self.password_changed {
            return Reply::Unauthorized;
        }
        self.next_session += 1;
        self.sessions.insert(self.next_session);
        Reply::Session(self.next_session)
    }

    /// Whether a call over this session is heard at all.
    pub(crate) fn admits(&self, session: Option<u64>) -> bool {
        match session {
            None => self.traits.basic && !self.password_changed,
            Some(session) => self.sessions.contains(&session),
        }
    }

    pub(crate) fn identity(&self) -> IdentityFacts {
        let off = self.history.last().is_some_and(|(_, on)| !on);
        let member = |path: &str, uuid: Option<String>| {
            let read = if off && self.traits.unreadable_when_off.contains(&path) {
                MemberRead::Unreadable { why: "503".to_owned() }
            } else {
                MemberRead::Read { uuid, serial: None }
            };
            MemberFacts { path: path.to_owned(), read }
        };
        let mut members = vec![member(MEMBER, self.uuid())];
        if let Some(other) = &self.traits.other {
            members.insert(0, member(OTHER, Some(other.clone())));
        }
        IdentityFacts { members, manager_uuid: None, tls_key_sha256: None }
    }

    fn uuid(&self) -> Option<String> {
        (!self.traits.without_uuid).then(|| self.traits.uuid.clone())
    }

    pub(crate) fn power_reply(&self, now: Mono) -> Reply {
        Reply::Power {
            power: self.says(now),
            uuid: self.uuid(),
            reset_time: self.traits.reset_time.then(|| format!("reset-{}", self.restarts)),
        }
    }

    /// It restarts, and is gone for so long; sessions end.
    pub(crate) fn restart(&mut self, now: Mono, for_: Span) {
        self.restarting = Some(now + for_);
        self.restarted = Some(now + for_);
        self.restarts += 1;
        self.sessions.clear();
    }
}

impl Traits {
    /// One that does everything right.
    pub(crate) fn good(uuid: String) -> Self {
        Self {
            takes: (Span::from_ms(20), Span::from_ms(80)),
            off_takes: Span::from_ms(500),
            cached: Span::ZERO,
            basic: false,
            reset_time: true,
            refuses_when_off: false,
            ignores: false,
            says_powering: false,
            errors: 0,
            after_restart: None,
            restores: None,
            stuck: None,
            refuses_when_on: false,
            uuid,
            without_uuid: false,
            unreadable_when_off: &[],
            other: None,
            neighbour: None,
        }
    }
}
