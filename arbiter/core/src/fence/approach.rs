//! The way to one power command (`ForceOff`, DSP0268 `ResetType`; IPMI 2.0, 28.3, chassis control 0; no other ever):
//! everything that must hold is asked for, in this order, each time.
//!
//! ```text
//!   identity fresh? -> reading fresh? -> found off: still off, long enough? -> last look fresh? -> Attempt -> ForceOff
//!        | no              | no                  | On                              | no             | look again
//!        v                 v                     v                                 v                v
//!     Identify          ReadPower           FoundOnAgain                        LastLook     (until the deadline)
//! ```

use coroner_shared::bmc::Power;
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::{Mono, Span};

use super::{COMMAND_DEADLINE, Fence, LOOK_AGE_MAX, Over, Proposed, Sending, Step, watch};
use crate::command::Command;
use crate::phase::EvidenceClass;
use crate::proof::required_span;

/// Identity is read again when it is older than this.
const IDENTITY_AGE_MAX: Span = Span::from_secs(5);
/// The power state is read again when it is older than this. More than identity's, so that a BMC that takes seconds for
/// each answer gets there at all.
const READING_AGE_MAX: Span = Span::from_secs(20);
/// A command is begun only with so much of its attempt's deadline left.
const SEND_ROOM: Span = Span::from_secs(5);
/// Between readings of a machine that was found off.
const SETTLE_POLL: Span = Span::from_secs(5);
/// Between readings of one that is between two states.
const UNCLEAR_POLL: Span = Span::from_secs(2);

impl Fence {
    /// Permission to begin.
    pub(super) fn ask_intent(&mut self, now: Mono) -> Step {
        if !self.look_is_fresh(now) {
            return Step::LastLook;
        }
        if self.vetoed(now) {
            self.look = None;
            return self.wait(now, now + LOOK_AGE_MAX);
        }
        let read_only = self.paused || (self.found_off() && self.settle_span() > Span::ZERO);
        let (node, incident) = self.names();
        self.commit(Proposed::Intent, Command::Intent { node, incident, read_only })
    }

    /// Whether the next thing is to send, as far as pause, life and back-off say.
    pub(super) fn wants_to_send(&self, now: Mono) -> bool {
        let paused = self.paused && !(planted(Mutant::PauseIgnored) && self.attempted());
        if self.order.again || paused || self.vetoed(now) || now < self.trouble.send_not_before {
            return false;
        }
        match &self.attempt {
            None => true,
            Some(sending) if !sending.sent && now + SEND_ROOM <= sending.committed + COMMAND_DEADLINE => true,
            // Looks were too slow for its time. Nothing of it is with the BMC, so the next one need not keep away from it.
            Some(sending) if !sending.sent && sending.failed.is_none() => {
                now >= sending.committed + COMMAND_DEADLINE
            }
            // Never repeated blindly: the state is read again before, and Off is waited for, not hit.
            Some(sending) => {
                now >= sending.committed + watch::backoff(self.tries)
                    && self.newest.as_ref().is_some_and(|n| n.power != Power::Off)
            }
        }
    }

    /// The next call on the way to a command.
    pub(super) fn approach(&mut self, now: Mono) -> Step {
        let Some(known) = &self.identified else { return Step::Identify(Over::First) };
        let login = known.login.clone();
        if now.since(known.at) > IDENTITY_AGE_MAX && !planted(Mutant::IdentityOnce) {
            return Step::Identify(Over::First);
        }
        let Some(newest) = &self.newest else { return Step::ReadPower(Over::First) };
        if now.since(newest.answered) > READING_AGE_MAX {
            return Step::ReadPower(Over::First);
        }
        let power = newest.power.clone();
        let pending = self
            .attempt
            .as_ref()
            .filter(|sending| !sending.sent && now + SEND_ROOM <= sending.committed + COMMAND_DEADLINE);
        let pending = pending.cloned();
        if let Some(step) = self.not_yet(now, &power) {
            return step;
        }
        if !self.look_is_fresh(now) {
            return Step::LastLook;
        }
        match pending {
            Some(sending) => self.send(&sending),
            #[cfg(coroner_mutants)]
            None if planted(Mutant::CommandBeforeAttempt) => {
                self.attempt_committed(now);
                self.attempt.clone().map_or(Step::LastLook, |sending| self.send(&sending))
            }
            None => {
                let (node, incident) = self.names();
                let number = self.order.last_attempt.saturating_add(self.tries).saturating_add(1);
                let was_on = power == Power::On;
                self.commit(Proposed::Attempt, Command::Attempt { node, incident, number, login, was_on })
            }
        }
    }

    fn send(&self, sending: &Sending) -> Step {
        let look = self.look.as_ref().map_or(Mono::default(), |look| look.at);
        let deadline = sending.committed + COMMAND_DEADLINE;
        Step::SendForceOff {
            number: sending.number,
            send_before: if planted(Mutant::NoLastLook) { deadline } else { look + LOOK_AGE_MAX },
            deadline,
        }
    }

    /// What a machine found off waits for. One that is on again is not what was condemned: its evidence is gone, and
    /// no brake was asked.
    fn not_yet(&mut self, now: Mono, power: &Power) -> Option<Step> {
        if !self.found_off() || self.order.re_fence {
            return None;
        }
        let newest = self.newest.as_ref()?;
        let (asked, answered) = (newest.asked, newest.answered);
        match power {
            Power::Off => {
                let off_for = self.off_since.map_or(Span::ZERO, |since| asked.since(since));
                let left = self.settle_span().saturating_sub(off_for);
                if left == Span::ZERO {
                    return None;
                }
                Some(self.read_or_wait(now, answered + left.min(SETTLE_POLL)))
            }
            Power::On if self.found_on_said && self.attempted() => None,
            Power::On if self.found_on_said => Some(self.read_or_wait(now, answered + SETTLE_POLL)),
            Power::On => {
                let (node, incident) = self.names();
                Some(self.commit(Proposed::FoundOn, Command::FoundOnAgain { node, incident }))
            }
            Power::PoweringOn | Power::PoweringOff | Power::Paused | Power::Other(_) => {
                Some(self.read_or_wait(now, answered + UNCLEAR_POLL))
            }
        }
    }

    pub(super) fn read_or_wait(&self, now: Mono, due: Mono) -> Step {
        if now >= due { Step::ReadPower(Over::First) } else { self.wait(now, due) }
    }

    /// How long a machine found off must have been read Off before the first command. A BMC that may have restarted,
    /// or that caches, might say Off of a machine that runs.
    fn settle_span(&self) -> Span {
        match (self.order.cached, self.steady) {
            (false, true) => Span::ZERO,
            (false, false) if planted(Mutant::FoundOffUnsteady) => Span::ZERO,
            (true, _) | (false, false) => required_span(self.steady, None, self.order.cached),
        }
    }

    fn found_off(&self) -> bool {
        match self.order.class {
            EvidenceClass::FoundOff => true,
            EvidenceClass::HostSilentBmcOn | EvidenceClass::Ordered { .. } => false,
        }
    }

    pub(super) fn attempted(&self) -> bool {
        self.order.last_attempt > 0 || self.tries > 0
    }

    pub(super) fn look_is_fresh(&self, now: Mono) -> bool {
        let fresh = self.look.as_ref().is_some_and(|look| now.since(look.at) <= LOOK_AGE_MAX);
        fresh || planted(Mutant::NoLastLook)
    }
}
