//! What must hold of every step, whatever happens. Kept by somebody who does not trust the fence: from what was
//! answered to it, and from what is truly so.

use std::collections::BTreeSet;

use coroner_shared::time::{Mono, Span};

use super::world::{BEGIN, World};
use crate::command::Command;
use crate::fence::{Ended, LOOK_AGE_MAX, Step};
use crate::phase::{EvidenceClass, OffReadings};
use crate::proof::{ProofNeeds, check_off_readings, required_span};

impl World {
    pub(super) fn judge(&self, step: &Step) {
        match step {
            Step::SendForceOff { number, send_before, deadline } => {
                self.judge_send(*number, *send_before, *deadline);
            }
            Step::Commit(command) => self.judge_command(command),
            Step::Ended(Ended::OffAgain { readings }) => {
                assert!(self.order.again && (self.last_truly_off || self.order.cached));
                assert!(readings.command.is_none());
            }
            Step::Wait { until } => assert!(*until > Mono::from_ms(self.now), "a wait ends in the future"),
            Step::LastLook
            | Step::Identify(_)
            | Step::DeleteSession { .. }
            | Step::ReadPower(_)
            | Step::NewSession
            | Step::Ended(_) => {}
        }
        let ours = &self.bmc.machines[0].ended_by_us;
        let once: BTreeSet<_> = ours.iter().collect();
        assert_eq!(once.len(), ours.len(), "a boot ends once by our hand: {ours:?}");
        assert_eq!(self.bmc.machines[1].commands, 0, "a command reached another machine");
    }

    fn judge_send(&self, number: u32, send_before: Mono, deadline: Mono) {
        let now = Mono::from_ms(self.now);
        let identified = self.identified.expect("Match in this session comes first");
        assert!(self.now - identified <= 5000, "identity was read too long ago");
        assert!(self.committed.contains(&number), "attempt {number} is not committed");
        assert!(self.sent.iter().all(|(n, _)| *n != number), "attempt {number} is sent twice");
        let look = self.looks.last().expect("a last look comes first");
        assert!(now.since(look.at) <= LOOK_AGE_MAX, "the last look is {} old", now.since(look.at));
        assert!(look.wanted && !look.paused, "{look:?}");
        assert_eq!(send_before, look.at + LOOK_AGE_MAX);
        assert!(deadline > now && deadline <= now + Span::from_secs(10));
        assert!(!self.order.again, "nothing is sent while reading again");
        assert!(!self.notes || !self.paused, "nothing is sent while paused");
        let despite_life = self.order.re_fence || matches!(self.order.class, EvidenceClass::Ordered { .. });
        // What happened since the last look can only be known by a note.
        let known = if self.notes { self.heard } else { look.heard.map(Mono::as_ms) };
        let heard = known.is_some_and(|at| self.now - at < 3000);
        assert!(despite_life || !heard, "the node is heard");
    }

    fn judge_command(&self, command: &Command) {
        if let Command::Attempt { number, .. } = command {
            let last = self.committed.last().copied().unwrap_or(self.order.last_attempt);
            assert_eq!(*number, last + 1);
        }
        if let Command::Proven { attempt, readings, incarnation, .. } = command {
            assert_eq!(*incarnation, self.order.incarnation);
            self.judge_proof(*attempt, readings);
        }
    }

    fn judge_proof(&self, attempt: u32, readings: &OffReadings) {
        let needs = ProofNeeds {
            pin: &self.order.pin,
            machine: self.order.incarnation.machine,
            cached: self.order.cached,
            answer: self.answers.get(&attempt),
        };
        check_off_readings(readings, &needs).expect("a proof");
        if readings.command.is_some() {
            let sent = self.sent.iter().find(|(number, _)| *number == attempt).map(|(_, t)| BEGIN + t);
            let over = readings.readings.last().map_or(0, |(span, _)| span.as_ms());
            assert!(sent.is_some_and(|t| t + over <= self.now), "readings from before the command");
        }
        let machine = &self.bmc.machines[0];
        assert!(!machine.on || machine.boot != self.first_boot, "the proven boot still runs");
        // A cache may be late to show that somebody powered it on since.
        assert!(self.last_truly_off || self.order.cached, "truly on at the last reading");
        let span = required_span(readings.steady, readings.command.as_ref(), self.order.cached);
        let since = self.now - span.as_ms();
        let look = self.looks.last().expect("a last look comes first").at.as_ms();
        let lived = |sign: Option<u64>| sign.is_some_and(|at| at >= since && (self.notes || at <= look));
        assert!(!lived(self.heard), "heard within the span");
        assert!(!lived(self.lease), "the Lease moved within the span");
    }
}
