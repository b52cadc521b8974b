//! One replica's readings of one BMC over time: what it says now, for how long, and whether that can be believed.
//!
//! ```text
//!   identified, read, failed  -->  BmcTrack  --> steady(now): the answers of 120 s hang together
//!        (with `now`)                        --> view(now, failure date): On | Off, how often | Silent | Unclear
//!                                            --> poll_due(now): each 500 ms for a suspect, else each `powerPoll`
//! ```
//!
//! **Steady** is the opposite of "has just restarted": a BMC that comes up may say Off from its defaults before it has
//! looked at the host. It is steady when it was read for [`STEADY_AFTER`], at most [`GAP_MAX`] apart, each time with an
//! answer, and each answer shows that nothing restarted since the one before (`Continuity::unbroken_since`). What
//! cannot show that is never steady; it costs the long rows of the proof table, nothing else.
//!
//! Deliberately absent: any clock of a BMC. `LastResetTime` (DSP0268, Manager) is compared for change only.

use coroner_shared::mutant::{Mutant, planted};

use std::collections::VecDeque;

use coroner_shared::bmc::{Continuity, Power, PowerReading};
use coroner_shared::id::ReplicaId;
use coroner_shared::time::{Mono, Span};

use crate::identity::{IdentityVerdict, is_pinned};
use crate::policy::Pin;
use crate::view::{BmcRead, BmcView};

/// How long a BMC must have been read without a gap to be steady. A restart takes 90 to 180 s in the field, most of it
/// without answers, so that two minutes of answers are not the tail of one.
pub const STEADY_AFTER: Span = Span::from_secs(120);
/// The longest gap between two answers: one poll each 30 s, and 5 s for a slow answer.
pub const GAP_MAX: Span = Span::from_secs(35);
/// How often the BMC of a suspect is read.
pub const SUSPECT_POLL: Span = Span::from_ms(500);
/// Off readings kept; beyond that every second one is forgotten, which makes counts smaller and spans no longer.
const KEPT_MAX: usize = 64;

/// Off must have been read for so long when a sign of life comes, to contradict it: a beacon may be on its way for a moment,
/// and what observers say of a calm cluster is up to S older than the saying.
pub const OFF_BEFORE_SIGN: Span = Span::from_secs(3);

/// What this replica knows of one BMC.
#[derive(Clone, Debug)]
pub struct BmcTrack {
    pin: Pin,
    identity: Option<Result<(), String>>,
    /// When the unbroken series of answers began, and its newest answer.
    series: Option<Series>,
    /// Consecutive Off readings of the right machine, oldest first.
    offs: VecDeque<Asked>,
    /// Since when neither On nor Off was read.
    unclear: Option<Asked>,
    /// Since when nothing was answered at all.
    silent: Option<Asked>,
    newest: Option<(Asked, Newest)>,
}

/// Why a power state could not be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReadFailure {
    /// No answer: no connection, time-out.
    NoAnswer,
    /// An answer that is no reading: refused log-in, 5xx, wrong certificate, a body that cannot be read.
    Unclear(String),
}

/// What two readings, one after the other, say about a restart in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seam {
    /// They show that there was none.
    Unbroken,
    /// They show nothing.
    Unknown,
    /// The reset time moved, or the session is another one or gone.
    Broken,
}

/// An unbroken series of answers.
#[derive(Clone, Debug)]
struct Series {
    since: Mono,
    newest: Mono,
    shown: Continuity,
}

/// When something was asked for and when its answer (or the end of waiting for it) came.
#[derive(Clone, Copy, Debug)]
struct Asked {
    at: Mono,
    answered: Mono,
}

/// The newest thing that happened.
#[derive(Clone, Debug)]
enum Newest {
    On,
    Off,
    Silent,
    Unclear(String),
}

/// Compares what two readings show, the later one second.
pub fn seam(earlier: &Continuity, later: &Continuity) -> Seam {
    let reset_moved =
        matches!((&earlier.reset_time, &later.reset_time), (Some(then), Some(now)) if then != now);
    // A session that was there and is not: its token was no longer accepted, which is what a restart does to it.
    let session_lost = earlier.session.is_some() && later.session != earlier.session;
    if later.unbroken_since(earlier) {
        Seam::Unbroken
    } else if reset_moved || session_lost {
        Seam::Broken
    } else {
        Seam::Unknown
    }
}

// === impl BmcTrack ===

impl BmcTrack {
    /// Nothing read yet. A changed pin or address needs a new track.
    pub fn new(pin: Pin) -> Self {
        Self {
            pin,
            identity: None,
            series: None,
            offs: VecDeque::new(),
            unclear: None,
            silent: None,
            newest: None,
        }
    }

    /// The identity over the session now in use was judged. A refusal makes every reading unclear until the next Match.
    pub fn identified(&mut self, now: Mono, verdict: &IdentityVerdict) {
        if verdict.is_match() {
            self.identity = Some(Ok(()));
        } else {
            self.identity = Some(Err(verdict.to_string()));
            self.failed(now, Span::ZERO, ReadFailure::Unclear(verdict.to_string()));
        }
    }

    /// A power state was read; `now` is when the answer came.
    pub fn read(&mut self, now: Mono, reading: &PowerReading) {
        let asked = Asked { at: now.back(reading.took), answered: now };
        self.silent = None;
        if let Some(why) = self.not_this_machine(reading) {
            return self.unclear(asked, why);
        }
        self.join(now, &reading.continuity);
        match &reading.power {
            Power::PoweringOff if planted(Mutant::PoweringOffIsOff) => self.is_off(asked),
            Power::On => {
                self.offs.clear();
                self.unclear = None;
                self.newest = Some((asked, Newest::On));
            }
            Power::Off => self.is_off(asked),
            Power::PoweringOn => self.transitional(asked, "PoweringOn"),
            Power::PoweringOff => self.transitional(asked, "PoweringOff"),
            Power::Paused => self.transitional(asked, "Paused"),
            // No power state is not an answer: the BMC's own services may be restarting (OpenBMC leaves it out then).
            Power::Other(text) => self.unclear(asked, format!("power state {text:?}")),
        }
    }

    /// A power state could not be read; `now` is when that was known, `took` how long it had been waited for.
    pub fn failed(&mut self, now: Mono, took: Span, failure: ReadFailure) {
        let asked = Asked { at: now.back(took), answered: now };
        match failure {
            ReadFailure::Unclear(what) => {
                self.silent = None;
                self.unclear(asked, what);
            }
            ReadFailure::NoAnswer => {
                self.break_off();
                self.unclear.get_or_insert(asked);
                self.silent.get_or_insert(asked);
                self.newest = Some((asked, Newest::Silent));
            }
        }
    }

    /// Whether the BMC is steady now.
    pub fn steady(&self, now: Mono) -> bool {
        self.series
            .as_ref()
            .is_some_and(|s| s.newest.since(s.since) >= STEADY_AFTER && now.since(s.newest) <= GAP_MAX)
    }

    /// What the newest answer of an unbroken series showed.
    pub fn shown(&self) -> Option<&Continuity> {
        self.series.as_ref().map(|s| &s.shown)
    }

    /// Since when the answers hang together, for status; steady or not yet.
    pub fn answers_since(&self, now: Mono) -> Option<Mono> {
        self.series.as_ref().filter(|s| now.since(s.newest) <= GAP_MAX).map(|s| s.since)
    }

    /// From the first to the last of the newest consecutive Off readings; zero where the newest is not Off or is old.
    pub fn off_for(&self, now: Mono) -> Span {
        match (self.offs.front(), self.offs.back()) {
            (Some(first), Some(last)) if now.since(last.answered) <= GAP_MAX => last.at.since(first.answered),
            (Some(_), Some(_)) | (None, _) | (_, None) => Span::ZERO,
        }
    }

    /// What the verdict may look at: nothing asked for at or before the failure date counts.
    pub fn view(&self, replica: ReplicaId, now: Mono, failure_date: Mono) -> BmcView {
        let newest = self.newest.as_ref().filter(|(asked, _)| asked.at > failure_date);
        let Some((asked, what)) = newest else {
            let age = self.newest.as_ref().map_or(Span::MAX, |(asked, _)| now.since(asked.answered));
            return BmcView { replica, read: BmcRead::NotRead, steady: self.steady(now), age };
        };
        let since =
            |begun: &Option<Asked>| now.since(begun.map_or(asked.at, |first| first.at).max(failure_date));
        let read = match what {
            Newest::On => BmcRead::On,
            Newest::Off if self.said_off_of_the_living(failure_date) => {
                let what = "it said Off already while the machine was heard".to_owned();
                BmcRead::Unclear { what, since: now.since(failure_date) }
            }
            Newest::Off => self.off_since(failure_date),
            Newest::Silent => BmcRead::Silent { since: since(&self.silent) },
            Newest::Unclear(what) => BmcRead::Unclear { what: what.clone(), since: since(&self.unclear) },
        };
        BmcView { replica, read, steady: self.steady(now), age: now.since(asked.answered) }
    }

    /// When the next reading is due, counted from when the last one was asked for; `None`: not in calm times. A track
    /// that was never read is due at once.
    pub fn next_poll(&self, suspect: bool, power_poll: Span) -> Option<Mono> {
        let every = match (suspect, power_poll) {
            (true, _) => SUSPECT_POLL,
            (false, Span::ZERO) => return None,
            (false, calm) => calm,
        };
        Some(self.newest.as_ref().map_or(Mono::default(), |(asked, _)| asked.at + every))
    }

    /// Whether a reading is due now. Whether one is still out is the caller's to know.
    pub fn poll_due(&self, now: Mono, suspect: bool, power_poll: Span) -> bool {
        self.next_poll(suspect, power_poll).is_some_and(|due| now >= due)
    }

    /// Why this reading is not of the pinned machine, as far as it shows. The UUID in the body decides; where there is
    /// none (IPMI, some BMCs while the machine is off), the identity read in the same session stands for it.
    fn not_this_machine(&self, reading: &PowerReading) -> Option<String> {
        if let Some(given) = &reading.uuid
            && !is_pinned(&self.pin, given)
        {
            return Some(crate::words::answers_for(given, self.pin.machine));
        }
        match &self.identity {
            None => Some("its identity was not read yet".to_owned()),
            Some(Err(why)) => Some(why.clone()),
            Some(Ok(())) => {
                let seam = self.series.as_ref().map(|s| seam(&s.shown, &reading.continuity));
                (reading.uuid.is_none() && seam == Some(Seam::Broken))
                    .then(|| "its identity was not read in this session".to_owned())
            }
        }
    }

    /// Adds an answer to the series, or begins a new one with it.
    fn join(&mut self, now: Mono, shown: &Continuity) {
        let before = self.series.take();
        let found = before.as_ref().map(|s| seam(&s.shown, shown));
        let in_time = before.as_ref().is_some_and(|s| now.since(s.newest) <= GAP_MAX);
        if found == Some(Seam::Broken) {
            self.offs.clear();
        }
        let since = match (before, found, in_time) {
            (Some(series), Some(Seam::Unbroken), true) => series.since,
            (Some(_) | None, _, _) => now,
        };
        self.series = Some(Series { since, newest: now, shown: shown.clone() });
    }

    fn is_off(&mut self, asked: Asked) {
        self.unclear = None;
        self.keep_off(asked);
        self.newest = Some((asked, Newest::Off));
    }

    /// The BMC answered, the machine is between two states: answers go on, Offs do not.
    fn transitional(&mut self, asked: Asked, what: &str) {
        self.offs.clear();
        self.unclear.get_or_insert(asked);
        self.newest = Some((asked, Newest::Unclear(format!("power state {what}"))));
    }

    /// Neither On nor Off, and nothing to build on.
    fn unclear(&mut self, asked: Asked, what: String) {
        self.break_off();
        self.unclear.get_or_insert(asked);
        self.newest = Some((asked, Newest::Unclear(what)));
    }

    fn break_off(&mut self) {
        self.series = None;
        self.offs.clear();
    }

    fn keep_off(&mut self, asked: Asked) {
        if self.offs.len() >= KEPT_MAX {
            let mut at = 0_usize;
            self.offs.retain(|_| {
                at += 1;
                at % 2 == 1
            });
        }
        self.offs.push_back(asked);
    }

    /// Whether it is Off that was read last, and lately. Of a machine that is heard this is to be looked into.
    pub fn says_off(&self, now: Mono) -> bool {
        matches!(&self.newest, Some((asked, Newest::Off)) if now.since(asked.answered) <= GAP_MAX)
    }

    /// Whether it has said nothing but Off since before the last sign of life: then it speaks of no machine, or of another
    /// one, and what it says of the silence proves nothing.
    fn said_off_of_the_living(&self, failure_date: Mono) -> bool {
        self.offs.front().is_some_and(|first| first.answered + OFF_BEFORE_SIGN <= failure_date)
    }

    /// The newest consecutive Off readings among those asked for after the failure date.
    fn off_since(&self, failure_date: Mono) -> BmcRead {
        let mut counted = self.offs.iter().filter(|asked| asked.at > failure_date);
        let first = counted.next();
        let reads =
            u32::try_from(counted.count()).unwrap_or(u32::MAX).saturating_add(u32::from(first.is_some()));
        let over = match (first, self.offs.back()) {
            (Some(first), Some(last)) => last.at.since(first.answered),
            (None, _) | (_, None) => Span::ZERO,
        };
        BmcRead::Off { reads, over }
    }
}

#[cfg(test)]
mod tests;
