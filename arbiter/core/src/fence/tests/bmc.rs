//! A scripted BMC with true machines behind it: what it says and what is so are kept apart.
//!
//! ```text
//!   requests of the executor --> Bmc --> what it says (sessions, caches, lies)
//!   time, script ------------->   |
//!                                 v
//!                              Machine: truly on or off, boots, and who turned it off
//! ```

use std::collections::BTreeSet;

use coroner_shared::bmc::{
    CommandAnswer, Continuity, IdentityFacts, Login, MemberFacts, MemberRead, Power, PowerReading,
};
use coroner_shared::time::Span;

use crate::fence::Over;

pub(super) const P: &str = "00112233-4455-6677-8899-aabbccddeeff";
pub(super) const OTHER: &str = "7a3c9e10-b2d4-11ee-8c4f-021122334455";
pub(super) const MEMBER: &str = "/redfish/v1/Systems/1";

/// What is truly so.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub uuid: &'static str,
    pub on: bool,
    pub boot: u32,
    /// Boots that a command of ours ended.
    pub ended_by_us: Vec<u32>,
    /// Commands that reached it.
    pub commands: u32,
    pub off_at: Option<u64>,
    /// Instants of change, for caches.
    history: Vec<(u64, bool)>,
}

/// How it answers ForceOff.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Says {
    Accepted,
    /// 409 or 400.
    Refused,
    /// 500, time-out or a reset connection.
    Unknown,
    /// The connection could not be made.
    NotSent,
}

/// What shows continuity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shows {
    Session,
    ResetTime,
    /// Basic log-in, every request over its own connection.
    Nothing,
}

/// What it says of the power state, whatever is so.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Tells {
    Truth,
    /// What was so this many milliseconds ago.
    Old(u64),
    Always(Power),
    /// PoweringOff for ever after a command.
    StuckPoweringOff,
    /// Off and On in turn, each for so many milliseconds.
    Flaps(u64),
}

#[derive(Clone, Debug)]
pub(super) struct Bmc {
    /// Behind the address now, and elsewhere.
    pub machines: [Machine; 2],
    pub behind: usize,
    pub shows: Shows,
    pub tells: Tells,
    pub says: Says,
    /// Whether a command has its effect, and after how long.
    pub acts: bool,
    pub off_delay_ms: u64,
    pub latency_ms: u64,
    pub single_session: bool,
    /// It has no room for another log-in beside the first.
    pub no_second_session: bool,
    /// Tokens outlive a restart, so that only the reset time tells of one.
    pub sessions_survive: bool,
    pub down_until: u64,
    pub lies_off_until: u64,
    pub fail_reads: bool,
    /// Members beside the first.
    pub more_members: Vec<MemberFacts>,
    /// Its bodies have no UUID while the power state is read (some drop it while the machine is off).
    pub readings_without_uuid: bool,
    /// The driver logs in anew between identity and reading over the second session: its token was refused.
    pub second_session_moves: bool,
    /// Replaces the UUID in what it says.
    pub uuid_says: Option<Option<String>>,
    pub requests: u32,
    pub deleted: Vec<String>,
    reset: u32,
    next: u64,
    alive: BTreeSet<u64>,
    first: Option<u64>,
    second: Option<u64>,
    commanded: bool,
}

pub(super) fn machine(uuid: &'static str, on: bool) -> Machine {
    let history = vec![(0, on)];
    Machine { uuid, on, boot: 1, ended_by_us: Vec::new(), commands: 0, off_at: None, history }
}

impl Machine {
    pub(super) fn set(&mut self, now: u64, on: bool) {
        if on && !self.on {
            self.boot += 1;
        }
        if on != self.on {
            self.on = on;
            self.off_at = None;
            self.history.push((now, on));
        }
    }

    fn was_on(&self, at: u64) -> bool {
        self.history.iter().rev().find(|(t, _)| *t <= at).is_none_or(|(_, on)| *on)
    }
}

impl Bmc {
    pub(super) fn new(on: bool) -> Self {
        Self {
            machines: [machine(P, on), machine(OTHER, true)],
            behind: 0,
            shows: Shows::Session,
            tells: Tells::Truth,
            says: Says::Accepted,
            acts: true,
            off_delay_ms: 300,
            latency_ms: 50,
            single_session: false,
            no_second_session: false,
            sessions_survive: false,
            down_until: 0,
            lies_off_until: 0,
            fail_reads: false,
            more_members: Vec::new(),
            readings_without_uuid: false,
            second_session_moves: false,
            uuid_says: None,
            requests: 0,
            deleted: Vec::new(),
            reset: 1,
            // The replica's warm session.
            next: 2,
            alive: BTreeSet::from([1]),
            first: Some(1),
            second: None,
            commanded: false,
        }
    }

    /// What the replica's track showed last, before the fence began.
    pub(super) fn warm(&self) -> Continuity {
        self.continuity(self.first.unwrap_or(1))
    }

    pub(super) fn tick(&mut self, now: u64) {
        for machine in &mut self.machines {
            if let Some(at) = machine.off_at
                && now >= at
            {
                if machine.on {
                    machine.ended_by_us.push(machine.boot);
                }
                machine.set(at, false);
                machine.off_at = None;
            }
        }
    }

    pub(super) fn restart(&mut self, now: u64, down_ms: u64, lies_ms: u64) {
        if !self.sessions_survive {
            self.alive.clear();
        }
        self.reset += 1;
        self.down_until = now + down_ms;
        self.lies_off_until = now + down_ms + lies_ms;
    }

    /// Another BMC answers at the address from now on: no session of the old one is known to it.
    pub(super) fn swap(&mut self) {
        self.behind = 1 - self.behind;
        self.alive.clear();
        self.reset += 100;
    }

    pub(super) fn drop_sessions(&mut self) {
        self.alive.clear();
    }

    fn slot(&mut self, over: Over) -> &mut Option<u64> {
        match over {
            Over::First => &mut self.first,
            Over::New => &mut self.second,
        }
    }

    fn log_in(&mut self) -> u64 {
        if self.single_session {
            self.alive.clear();
        }
        let number = self.next;
        self.next += 1;
        self.alive.insert(number);
        number
    }

    pub(super) fn open_new(&mut self, now: u64) -> Result<(), String> {
        self.requests += 1;
        if now < self.down_until {
            return Err("no route".to_owned());
        }
        if self.no_second_session {
            return Err("HTTP 503".to_owned());
        }
        self.second = Some(self.log_in());
        Ok(())
    }

    /// Identity logs in where there is no session, or none that is accepted.
    pub(super) fn identify(&mut self, now: u64, over: Over) -> Result<(IdentityFacts, Login), String> {
        self.requests += 1;
        if now < self.down_until {
            return Err("no route".to_owned());
        }
        let valid = self.slot(over).filter(|s| self.alive.contains(s));
        let session = match valid {
            Some(session) => session,
            None => {
                let fresh = self.log_in();
                *self.slot(over) = Some(fresh);
                fresh
            }
        };
        let read = MemberRead::Read { uuid: self.uuid(), serial: None };
        let mut members = vec![MemberFacts { path: MEMBER.to_owned(), read }];
        members.extend(self.more_members.iter().cloned());
        let facts = IdentityFacts { members, manager_uuid: None, tls_key_sha256: None };
        Ok((facts, self.login(session)))
    }

    pub(super) fn read(&mut self, now: u64, over: Over) -> Result<(PowerReading, Login), String> {
        self.requests += 1;
        if now < self.down_until {
            return Err("time-out".to_owned());
        }
        if self.fail_reads {
            return Err("HTTP 500".to_owned());
        }
        if over == Over::New && std::mem::take(&mut self.second_session_moves) {
            self.second = Some(self.log_in());
        }
        let session = self.slot(over).filter(|s| self.alive.contains(s)).ok_or("HTTP 401")?;
        let continuity = self.continuity(session);
        let took = Span::from_ms(self.latency_ms);
        let uuid = self.uuid().filter(|_| !self.readings_without_uuid);
        let reading = PowerReading { power: self.power(now), uuid, took, continuity };
        Ok((reading, self.login(session)))
    }

    /// `None`: certainly nothing was sent.
    pub(super) fn force_off(&mut self, now: u64) -> Option<CommandAnswer> {
        self.requests += 1;
        if self.says == Says::NotSent {
            return None;
        }
        let known = self.first.is_some_and(|s| self.alive.contains(&s));
        if now < self.down_until || !known {
            let why = "HTTP 401".to_owned();
            return Some(CommandAnswer::Refused { why });
        }
        self.commanded = true;
        let machine = &mut self.machines[self.behind];
        machine.commands += 1;
        if self.acts && machine.on {
            machine.off_at.get_or_insert(now + self.off_delay_ms);
        }
        Some(match self.says {
            Says::Accepted => CommandAnswer::Accepted,
            Says::Refused => CommandAnswer::Refused { why: "409".to_owned() },
            Says::Unknown | Says::NotSent => CommandAnswer::Unknown { why: "HTTP 500".to_owned() },
        })
    }

    pub(super) fn delete(&mut self, uri: &str) {
        self.requests += 1;
        self.deleted.push(uri.to_owned());
    }

    /// The login that identity was last read over, if it still stands.
    pub(super) fn first_is_alive(&self) -> bool {
        self.first.is_some_and(|s| self.alive.contains(&s))
    }

    fn uuid(&self) -> Option<String> {
        match &self.uuid_says {
            Some(instead) => instead.clone(),
            None => Some(self.machines[self.behind].uuid.to_owned()),
        }
    }

    fn login(&self, session: u64) -> Login {
        match self.shows {
            Shows::Session | Shows::ResetTime => Login::Session(format!("/redfish/v1/Sessions/{session}")),
            Shows::Nothing => Login::Basic,
        }
    }

    fn continuity(&self, session: u64) -> Continuity {
        match self.shows {
            Shows::Session => Continuity { session: Some(session), ..Continuity::default() },
            Shows::ResetTime => Continuity {
                session: Some(session),
                connection: None,
                reset_time: Some(format!("r{}", self.reset)),
            },
            Shows::Nothing => {
                Continuity { connection: Some(1000 + u64::from(self.requests)), ..Continuity::default() }
            }
        }
    }

    fn power(&self, now: u64) -> Power {
        let machine = &self.machines[self.behind];
        let truth = |on: bool| if on { Power::On } else { Power::Off };
        if now < self.lies_off_until {
            return Power::Off;
        }
        match &self.tells {
            Tells::Truth => truth(machine.on),
            Tells::Old(ms) => truth(machine.was_on(now.saturating_sub(*ms))),
            Tells::Always(power) => power.clone(),
            Tells::StuckPoweringOff if self.commanded => Power::PoweringOff,
            Tells::StuckPoweringOff => truth(machine.on),
            Tells::Flaps(ms) => truth((now / ms) % 2 == 1),
        }
    }
}
