//! What each answer changes in a fence. Nothing here says what comes next: `proceed` derives that.
//!
//! ```text
//!   event --> does it answer the last step? --no--> the fence ends, nothing is sent
//!                       | yes
//!                       v
//!              fields of Fence (identity, newest reading, run of Offs, attempt, trouble)
//! ```

use coroner_shared::bmc::{CommandAnswer, Login, Power, PowerReading};
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::{Mono, Span};

use super::{
    Asked, Ended, Ending, Fence, FenceEvent, Identified, Known, LOOK_AGE_MAX, LastOff, Look, Newest, Offs,
    Over, Proposed, Sending, watch,
};
use crate::command::Outcome;
use crate::identity::{self, IdentityVerdict, NodeSide, is_pinned};
use crate::proof::counts_as_off;
use crate::steady::{GAP_MAX, Seam, seam};
use crate::words::MISMATCH;

/// After a refused proof it is read anew so much later.
const REFUSED_PAUSE: Span = Span::from_secs(5);

impl Fence {
    /// Takes an event; `false` if it does not answer what was asked.
    pub(super) fn take(&mut self, now: Mono, event: FenceEvent) -> bool {
        match (event, self.asked) {
            (FenceEvent::Start, Asked::Start) => self.start(now),
            (FenceEvent::Looked(look), Asked::Look) => self.looked(now, look),
            (FenceEvent::Identity(read), Asked::Identify(over)) => self.identity_read(now, over, read),
            (FenceEvent::Deleted, Asked::Delete) => self.predecessor = None,
            (FenceEvent::Power(read), Asked::Read(over)) => self.power_read(now, over, read),
            (FenceEvent::Opened(opened), Asked::Open) => match opened {
                Ok(()) => self.ending = Ending::Open { matched: None },
                // There is no room for a second session, or no way to it. That says nothing of a restart, which the next
                // reading over the first one shows: the track stays steady, so nobody would say so again.
                Err(why) => self.try_again(now, why),
            },
            (FenceEvent::Committed(outcome), Asked::Commit(what)) => self.committed(now, what, outcome),
            (FenceEvent::Answered(answer), Asked::Send) => self.answered(now, answer),
            (FenceEvent::NotSent { why }, Asked::Send) => {
                if let Some(sending) = &mut self.attempt {
                    sending.failed = Some(why.clone());
                }
                self.disturbed(now, format!("the power command could not be sent: {why}"));
            }
            // Nobody can blame the BMC: its readings and its session stay good, only the look is made again.
            (FenceEvent::TooLate, Asked::Send) => self.look = None,
            (FenceEvent::Woke, Asked::Wait) => {}
            (
                FenceEvent::Start
                | FenceEvent::Looked(_)
                | FenceEvent::Identity(_)
                | FenceEvent::Deleted
                | FenceEvent::Power(_)
                | FenceEvent::Opened(_)
                | FenceEvent::Committed(_)
                | FenceEvent::Answered(_)
                | FenceEvent::NotSent { .. }
                | FenceEvent::TooLate
                | FenceEvent::Woke,
                _,
            ) => return false,
        }
        true
    }

    fn start(&mut self, now: Mono) {
        self.started = now;
        self.trouble.answered = now;
        self.shown = self.order.shown.clone().map(|shown| (now, shown));
        if self.order.off_for > Span::ZERO {
            self.off_since = Some(now.back(self.order.off_for));
        }
    }

    fn looked(&mut self, now: Mono, look: Result<Look, String>) {
        match look {
            Err(why) => {
                self.look = None;
                self.trouble.why = Some(format!("no last look: {why}"));
                self.trouble.not_before = now + LOOK_AGE_MAX;
            }
            Ok(look) => {
                self.heard = self.heard.max(look.heard);
                let moved = look.lease_moved.filter(|_| !planted(Mutant::LeaseIgnored));
                self.lease_moved = self.lease_moved.max(moved);
                self.paused = look.paused || self.order.again;
                if !look.wanted {
                    self.close("it is no longer wanted".to_owned());
                }
                if now.since(look.at) > LOOK_AGE_MAX {
                    // Too old on arrival: the log is slow, and asking without pause would not help it.
                    self.trouble.not_before = now + LOOK_AGE_MAX;
                }
                self.look = Some(look);
            }
        }
    }

    fn identity_read(&mut self, now: Mono, over: Over, read: Result<Identified, String>) {
        let Identified { facts, login } = match read {
            Ok(identified) => identified,
            Err(why) => return self.disturbed(now, why),
        };
        self.trouble.answered = now;
        let node = NodeSide {
            node: &self.order.node,
            machine: Ok(self.order.incarnation.machine),
            system_uuid: &self.order.system_uuid,
        };
        match identity::check(&self.order.pin, &node, &facts, &self.order.fleet) {
            IdentityVerdict::Match { given, .. } => match over {
                Over::First => {
                    self.identify_took = now.since(self.asked_at);
                    self.known(Known { given, login, at: now });
                }
                Over::New => {
                    self.ending = match std::mem::take(&mut self.ending) {
                        Ending::Open { .. } => Ending::Open { matched: Some(login) },
                        Ending::Read(last) => Ending::Identified { last, given },
                        Ending::NotYet | Ending::Identified { .. } | Ending::Closed { .. } => Ending::NotYet,
                    };
                }
            },
            refusal @ (IdentityVerdict::Mismatch { .. }
            | IdentityVerdict::Ambiguous { .. }
            | IdentityVerdict::NoIdentity { .. }) => self.refuse(now, refusal.to_string(), true),
        }
    }

    /// Identity matched over the first session. Another session than before has shown nothing yet.
    fn known(&mut self, known: Known) {
        if self.identified.as_ref().is_some_and(|before| before.login != known.login) {
            self.restart_run();
            self.newest = None;
        }
        self.identified = Some(known);
        self.trouble.why = None;
    }

    fn power_read(&mut self, now: Mono, over: Over, read: Result<(PowerReading, Login), String>) {
        let (reading, login) = match read {
            Ok(read) => read,
            Err(why) => return self.disturbed(now, why),
        };
        self.trouble.answered = now;
        if let Some(given) = &reading.uuid
            && !is_pinned(&self.order.pin, given)
        {
            let why =
                format!("{MISMATCH}pinned is {}, a reading speaks of {given:?}", self.order.pin.machine);
            return self.refuse(now, why, true);
        }
        match over {
            Over::First => self.read_first(now, reading, &login),
            Over::New => self.read_new(now, reading, &login),
        }
    }

    fn read_first(&mut self, now: Mono, reading: PowerReading, login: &Login) {
        let other_login = self.identified.as_ref().is_none_or(|known| known.login != *login);
        let unknown = !self.hangs_together(now, &reading) || other_login;
        if unknown && !planted(Mutant::IdentityOnce) {
            // Whoever answers now was not asked who it is.
            return self.disturbed(now, "the BMC restarted, or the session is another one".to_owned());
        }
        self.trouble.errors = 0;
        self.trouble.why = None;
        let asked = now.back(reading.took);
        self.newest = Some(Newest { asked, answered: now, power: reading.power.clone() });
        if !counts_as_off(&reading.power, self.command()) {
            if self.order.again && reading.power == Power::On {
                self.trouble.ended.get_or_insert(Ended::OnAgain);
            }
            return self.not_off();
        }
        self.found_on_said = false;
        self.off_since.get_or_insert(now);
        match std::mem::take(&mut self.ending) {
            Ending::Identified { last, given } => {
                self.ending = Ending::Closed { last, given, closing: Some(Box::new(reading)), at: now };
            }
            Ending::NotYet => self.count_off(now, asked, reading),
            // No first reading is asked for in between; if one comes, the end begins anew.
            Ending::Open { .. } | Ending::Read(_) | Ending::Closed { .. } => {
                self.count_off(now, asked, reading);
            }
        }
    }

    fn count_off(&mut self, now: Mono, asked: Mono, reading: PowerReading) {
        match &mut self.offs {
            None => {
                let readings = vec![(Span::ZERO, reading)];
                self.offs = Some(Offs { first: now, last: now, readings });
            }
            Some(offs) => {
                offs.last = now;
                offs.readings.push((asked.since(offs.first), reading));
            }
        }
    }

    /// Whether this reading shows no restart since the one before. Takes away what it no longer shows.
    fn hangs_together(&mut self, now: Mono, reading: &PowerReading) -> bool {
        let before = self.shown.replace((now, reading.continuity.clone()));
        let Some((at, before)) = before else { return true };
        match seam(&before, &reading.continuity) {
            Seam::Unbroken if now.since(at) <= GAP_MAX => true,
            Seam::Unbroken | Seam::Unknown => {
                if self.steady {
                    self.lose_steady();
                }
                // What the track said before this reading is over as well.
                self.steady_next = false;
                true
            }
            Seam::Broken => false,
        }
    }

    /// The last reading of a proof.
    fn read_new(&mut self, now: Mono, reading: PowerReading, login: &Login) {
        let same = |known: &Known| known.login == *login && *login != Login::Basic;
        if self.identified.as_ref().is_some_and(same) {
            return self.disturbed(now, "the second session is the first one".to_owned());
        }
        if !counts_as_off(&reading.power, self.command()) {
            self.newest = Some(Newest { asked: now.back(reading.took), answered: now, power: reading.power });
            return self.not_off();
        }
        // Off and UUID stand in one body, read in the session in which everything else of identity matched. Where that
        // cannot be said, identity is read once more.
        let in_session = match &self.ending {
            Ending::Open { matched: Some(matched) } => matched == login && *login != Login::Basic,
            Ending::Open { matched: None }
            | Ending::NotYet
            | Ending::Read(_)
            | Ending::Identified { .. }
            | Ending::Closed { .. } => false,
        };
        let given = reading.uuid.clone().filter(|_| in_session);
        let last = Box::new(LastOff { asked: now.back(reading.took), reading });
        self.ending = match given {
            Some(given) => Ending::Identified { last, given },
            None => Ending::Read(last),
        };
    }

    fn committed(&mut self, now: Mono, what: Proposed, outcome: Result<Outcome, String>) {
        let outcome = match outcome {
            Ok(outcome) => outcome,
            Err(why) => return self.close(format!("not known to be committed: {why}")),
        };
        let refused = match outcome {
            Outcome::Stale => return self.close("the log has moved on".to_owned()),
            Outcome::Refused(refusal) => Some(refusal.message),
            Outcome::Done => None,
            // Right and already so: for an attempt that means that somebody else's command may be under way.
            Outcome::Unchanged if what == Proposed::Attempt => {
                return self.close("the attempt was already committed".to_owned());
            }
            // Some answer stands there already, and nobody says that it is this one.
            Outcome::Unchanged if what == Proposed::Answer => {
                Some("an answer is recorded already".to_owned())
            }
            Outcome::Unchanged if what == Proposed::FoundOn => Some("the intent stays open".to_owned()),
            Outcome::Unchanged => None,
        };
        match (what, refused) {
            (Proposed::Intent, None) => self.intent_open = true,
            (Proposed::Intent, Some(why)) => self.close(why),
            (Proposed::Attempt, None) => self.attempt_committed(now),
            (Proposed::Attempt, Some(why)) => {
                self.trouble.send_not_before = now + watch::after_refusals(self.trouble.refused);
                self.trouble.refused = self.trouble.refused.saturating_add(1);
                self.trouble.why = Some(why);
            }
            (Proposed::Answer, refused) => {
                if let Some(sending) = &mut self.attempt {
                    sending.logged = true;
                    if let Some(why) = refused {
                        // What the log does not hold cannot shorten the proof.
                        sending.answer = Some(CommandAnswer::Unknown { why });
                    }
                }
            }
            (Proposed::FoundOn, None) => self.close("found off, but On was read".to_owned()),
            (Proposed::FoundOn, Some(why)) => {
                self.found_on_said = true;
                self.trouble.why = Some(why);
            }
            // The look after it tells whether it was averted.
            (Proposed::StillOn, _) => self.look = None,
            (Proposed::Stalled, _) => {}
            (Proposed::Proven, None) => {
                self.trouble.ended.get_or_insert(Ended::Proven);
            }
            (Proposed::Proven, Some(why)) => {
                self.restart_run();
                self.trouble.not_before = now + REFUSED_PAUSE;
                self.trouble.why = Some(why);
            }
        }
    }

    pub(super) fn attempt_committed(&mut self, now: Mono) {
        self.tries = self.tries.saturating_add(1);
        self.trouble.refused = 0;
        self.restart_run();
        self.attempt = Some(Sending {
            number: self.order.last_attempt.saturating_add(self.tries),
            committed: now,
            sent: false,
            failed: None,
            answer: None,
            logged: false,
        });
    }

    fn answered(&mut self, now: Mono, answer: CommandAnswer) {
        if let Some(sending) = &mut self.attempt {
            sending.sent = true;
            sending.answer = Some(answer);
        }
        self.restart_run();
        // Read at once, and over again before anything more is sent.
        self.newest = None;
        self.look = None;
        self.trouble.answered = now;
    }

    // --- what is lost when something goes wrong ---

    /// A call failed. An error is never Off: everything read so far has to be read again.
    pub(super) fn disturbed(&mut self, now: Mono, why: String) {
        self.lose_steady();
        self.try_again(now, why);
    }

    /// Begins anew with identity, after the back-off.
    fn try_again(&mut self, now: Mono, why: String) {
        self.lose_session();
        self.off_since = None;
        self.trouble.not_before = now + watch::after_errors(self.trouble.errors);
        self.trouble.errors = self.trouble.errors.saturating_add(1);
        self.trouble.why = Some(why);
    }

    /// Identity refuses, or the node contradicts the BMC.
    pub(super) fn refuse(&mut self, now: Mono, why: String, disable: bool) {
        self.lose_session();
        self.off_since = None;
        self.trouble.refusals = self.trouble.refusals.saturating_add(1);
        self.trouble.not_before = now + watch::backoff(self.trouble.refusals);
        self.trouble.why = Some(why.clone());
        if self.order.again {
            self.close(why);
        } else {
            self.trouble.stall = Some((why, disable));
        }
    }

    pub(super) fn lose_steady(&mut self) {
        self.steady = false;
        self.steady_next = false;
        self.restart_run();
    }

    pub(super) fn lose_session(&mut self) {
        if !planted(Mutant::IdentityOnce) {
            self.identified = None;
        }
        self.newest = None;
        self.look = None;
        self.restart_run();
    }

    pub(super) fn restart_run(&mut self) {
        self.offs = None;
        self.ending = Ending::NotYet;
        self.steady |= std::mem::take(&mut self.steady_next);
    }

    fn not_off(&mut self) {
        self.restart_run();
        self.off_since = None;
    }

    pub(super) fn close(&mut self, why: String) {
        self.trouble.ended.get_or_insert(Ended::Closed { why });
    }
}
