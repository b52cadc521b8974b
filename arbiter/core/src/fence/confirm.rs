//! The way from readings to a proof: three Offs, the last over a new session in which identity matched, one more look.
//!
//! ```text
//!   Off ... Off -> new session -> identify -> Off of the same body's UUID -> (old session: Off, no restart) -> look -> Proven
//!    ^                |             |          |       |no UUID, another session: identify ^        |           |
//!    +--- anything but Off, an error, a restart, a sign of life: the run begins anew <-----+--------+-----------+
//! ```
//!
//! The log-in and everything of identity but the UUID in the last body are read while the span runs: a BMC that takes
//! half a second for each answer would else pay for seven of them at the end.

use coroner_shared::bmc::{CommandAnswer, Continuity};
#[cfg(coroner_mutants)]
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::{Mono, Span};

use super::{Ended, Ending, Fence, LOOK_AGE_MAX, Offs, Over, Proposed, Step};
use crate::command::Command;
use crate::phase::OffReadings;
use crate::proof::{ProofNeeds, check_off_readings, reads_min, required_span};

/// Between readings right after a command: most machines are off within a second.
const EAGER_POLL: Span = Span::from_ms(500);
/// How long after a command that goes on.
const EAGER_FOR: Span = Span::from_secs(15);
/// Between readings otherwise.
const CALM_POLL: Span = Span::from_secs(2);
/// Between the Offs of a long proof. Neither this nor [`EAGER_POLL`] is a divisor of whole seconds once the answer's
/// own time is added: a BMC that flaps each 1, 2, 3 or 5 s is not read in the same phase each time.
const OFF_POLL: Span = Span::from_ms(1300);
/// Readings kept of one proof; beyond that every second one is forgotten, but never the first.
const KEPT_MAX: usize = 16;
/// The second session is opened so long before its reading is due, and by the time more that its requests take: nothing
/// is read over the first meanwhile (some BMCs end the first session when a second one begins), so it is not long.
const OPEN_AHEAD: Span = Span::from_ms(500);
/// Answers' times that a connection with TLS and a log-in take: two round trips, the service root, the session.
const OPEN_ANSWERS: u64 = 4;
/// Whether the fence is still wanted is looked at this often while it only reads.
const LOOK_EVERY: Span = Span::from_secs(5);

impl Fence {
    /// The next call while nothing is to be sent.
    pub(super) fn confirm(&mut self, now: Mono) -> Step {
        let looked = self.look.as_ref().is_some_and(|look| now.since(look.at) <= LOOK_EVERY);
        let span = required_span(self.steady, self.command(), self.order.cached);
        match &self.ending {
            Ending::NotYet if !looked => Step::LastLook,
            Ending::NotYet => match &self.offs {
                None => self.read_or_wait(now, self.next_poll()),
                Some(offs) => self.next_off(now, offs, offs.first + span),
            },
            Ending::Open { matched: None } => Step::Identify(Over::New),
            Ending::Open { matched: Some(_) } => match &self.offs {
                Some(offs) if now < offs.first + span => self.wait(now, offs.first + span),
                Some(_) => Step::ReadPower(Over::New),
                None => {
                    self.restart_run();
                    self.read_or_wait(now, self.next_poll())
                }
            },
            #[cfg(coroner_mutants)]
            Ending::Read(last) if planted(Mutant::IdentityOnce) => {
                let given = self.identified.as_ref().map(|known| known.given.clone()).unwrap_or_default();
                self.ending = Ending::Identified { last: last.clone(), given };
                Step::LastLook
            }
            Ending::Read(_) => Step::Identify(Over::New),
            Ending::Identified { last, given } => {
                if self.steady && !self.shows_reset_time(&last.reading.continuity) {
                    return Step::ReadPower(Over::First);
                }
                let (last, given) = (last.clone(), given.clone());
                self.ending = Ending::Closed { last, given, closing: None, at: now };
                Step::LastLook
            }
            Ending::Closed { at, .. } => {
                let at = *at;
                let seen_since = self.look.as_ref().is_some_and(|look| look.at >= at);
                if seen_since && self.look_is_fresh(now) { self.conclude(now) } else { Step::LastLook }
            }
        }
    }

    /// The next of the Offs before the last.
    fn next_off(&self, now: Mono, offs: &Offs, end: Mono) -> Step {
        let enough = offs.readings.len() + 1 >= reads_min();
        let took = offs.readings.last().map_or(Span::ZERO, |(_, reading)| reading.took);
        let ahead = OPEN_AHEAD + took.times(OPEN_ANSWERS) + self.identify_took;
        if enough && now + ahead >= end {
            return Step::NewSession;
        }
        let short = end.since(offs.first) <= Span::from_secs(4);
        let next = offs.last + if short { EAGER_POLL } else { OFF_POLL };
        if now >= next {
            return Step::ReadPower(Over::First);
        }
        self.wait(now, if enough { next.min(end.back(ahead)) } else { next })
    }

    /// When to read a machine that is not off.
    fn next_poll(&self) -> Mono {
        let eager = self.attempt.as_ref().filter(|sending| sending.sent).map(|s| s.committed + EAGER_FOR);
        match &self.newest {
            None => Mono::default(),
            Some(newest) if eager.is_some_and(|until| newest.asked < until) => newest.asked + EAGER_POLL,
            Some(newest) => newest.asked + CALM_POLL,
        }
    }

    /// How the command that these readings follow was answered.
    pub(super) fn command(&self) -> Option<&CommandAnswer> {
        self.attempt.as_ref().and_then(|sending| sending.answer.as_ref())
    }

    /// Whether a reading over the new session shows by itself that nothing restarted.
    fn shows_reset_time(&self, last: &Continuity) -> bool {
        let before = self.offs.as_ref().and_then(|offs| offs.readings.last());
        before.is_some_and(|(_, before)| {
            last.reset_time.is_some() && last.reset_time == before.continuity.reset_time
        })
    }

    /// Everything is read: says so, if it passes.
    fn conclude(&mut self, now: Mono) -> Step {
        let Some(readings) = self.readings() else {
            self.restart_run();
            return self.wait(now, now + LOOK_AGE_MAX);
        };
        let needs = ProofNeeds {
            pin: &self.order.pin,
            machine: self.order.incarnation.machine,
            cached: self.order.cached,
            answer: self.command(),
        };
        if let Err(gap) = check_off_readings(&readings, &needs) {
            self.restart_run();
            self.trouble.why = Some(gap.to_string());
            self.trouble.not_before = now + CALM_POLL;
            return self.wait(now, self.trouble.not_before);
        }
        let readings = Box::new(readings);
        if self.order.again {
            let ended = Ended::OffAgain { readings };
            self.trouble.ended = Some(ended.clone());
            return Step::Ended(ended);
        }
        let (node, incident) = self.names();
        let attempt = self.attempt.as_ref().map_or(self.order.last_attempt, |sending| sending.number);
        let incarnation = self.order.incarnation.clone();
        self.commit(Proposed::Proven, Command::Proven { node, incident, incarnation, attempt, readings })
    }

    fn readings(&self) -> Option<OffReadings> {
        let (Ending::Closed { last, given, closing, .. }, Some(offs), Some(known)) =
            (&self.ending, &self.offs, &self.identified)
        else {
            return None;
        };
        let mut readings = offs.readings.clone();
        while readings.len() >= KEPT_MAX {
            readings = readings.into_iter().step_by(2).collect();
        }
        readings.push((last.asked.since(offs.first), last.reading.clone()));
        Some(OffReadings {
            readings,
            closing: closing.as_deref().cloned(),
            steady: self.steady,
            command: self.command().cloned(),
            member: self.order.pin.member.clone(),
            transform: self.order.pin.transform,
            identity_before: known.given.clone(),
            identity_after: given.clone(),
            last_over_new_session: true,
            cached: self.order.cached,
        })
    }
}
