//! What speaks against sending, what speaks against a proof, and what a fence says when it gets nowhere.
//!
//! ```text
//!   heard, Lease, newest reading, run of Offs --> vetoed(now)        no command to a machine that is heard
//!                                             --> contradiction      Off while the node lives: stalled, alarm
//!                                             --> say(now)           Stalled, StillOn: for `apply` to judge
//! ```

use coroner_shared::bmc::Power;
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::{Mono, Span};

use super::{Fence, Proposed, Step};
use crate::command::Command;
use crate::phase::EvidenceClass;

/// A proof of life younger than this means that the node is heard now.
const HEARD: Span = Span::from_secs(3);
/// A kubelet that renewed its Lease so recently is not called silent (the Lease's default duration).
const LEASE: Span = Span::from_secs(40);
/// A node that is fenced although it lives may be seen so long after Off was first read: beacons under way, and a
/// watch that lags. Later signs contradict the BMC.
const AFTERGLOW: Span = Span::from_secs(10);
/// On counts as "still on" so long after the attempt: its deadline, and 10 s.
const STILL_ON_AFTER: Span = Span::from_secs(20);
/// A BMC that says nothing for so long leaves an attempt to be judged without it.
const SILENT_AFTER: Span = Span::from_mins(10);
/// How often "still on" is said.
const SAY_EVERY: Span = Span::from_secs(5);

/// Between attempts, and after refusals, by how many there were: 30 s, 60 s, 2, 4, 5 min.
pub(super) fn backoff(count: u32) -> Span {
    const MAX: Span = Span::from_mins(5);
    let doublings = count.saturating_sub(1).min(8);
    Span::from_secs(30).times(1 << doublings).min(MAX)
}

/// After failed calls in a row: 1 s, 2 s, 4 .. 30 s.
pub(super) fn after_errors(before: u32) -> Span {
    const MAX: Span = Span::from_secs(30);
    Span::from_secs(1).times(1 << before.min(8)).min(MAX)
}

/// After attempts that the log refused in a row (a brake, a pause that we did not know of): 5 s, 10 s .. 60 s.
pub(super) fn after_refusals(before: u32) -> Span {
    const MAX: Span = Span::from_secs(60);
    Span::from_secs(5).times(1 << before.min(8)).min(MAX)
}

impl Fence {
    /// Whether being heard does not stop this fence: an order, or a second writer after a release.
    pub(super) fn despite_life(&self) -> bool {
        match &self.order.class {
            EvidenceClass::Ordered { .. } => true,
            EvidenceClass::FoundOff | EvidenceClass::HostSilentBmcOn => self.order.re_fence,
        }
    }

    /// Whether a sign of life forbids a command now.
    pub(super) fn vetoed(&self, now: Mono) -> bool {
        if self.despite_life() || (planted(Mutant::RetryHeard) && self.attempted()) {
            return false;
        }
        // Before the first attempt any sign since the start is a reprieve; the log only needs to hear of it.
        let unattempted = self.order.last_attempt == 0 && self.tries == 0;
        let since_start = |sign: Option<Mono>| sign.filter(|at| *at >= self.started);
        let heard = self.heard.is_some_and(|at| now.since(at) < HEARD)
            || (unattempted && since_start(self.heard).is_some());
        let lease = since_start(self.lease_moved).is_some_and(|at| unattempted || now.since(at) < LEASE);
        heard || lease
    }

    /// Off is read, and the node shows life.
    pub(super) fn look_for_contradiction(&mut self, now: Mono) {
        let Some(offs) = &self.offs else { return };
        let (run, off_since) = (offs.first, self.off_since.unwrap_or(offs.first));
        let since = |sign: Option<Mono>, then: Mono| sign.is_some_and(|at| at >= then);
        let heard = since(self.heard, run);
        let lease = since(self.lease_moved, run);
        let late = since(self.heard.max(self.lease_moved), off_since + AFTERGLOW);
        match (heard, lease, self.despite_life(), late) {
            (false, false, _, _) => {}
            // Alive by design until just now: these readings prove nothing, later ones may.
            (_, _, true, false) => self.restart_run(),
            (true, _, false, _) | (true, _, true, true) => {
                self.refuse(now, "the BMC says Off while the node is heard".to_owned(), true);
            }
            (false, true, despite_life, late) => {
                let why = "the BMC says Off while the kubelet renews its Lease".to_owned();
                self.refuse(now, why, despite_life || late);
            }
        }
    }

    /// What must be proposed before anything else.
    pub(super) fn say(&mut self, now: Mono) -> Option<Step> {
        if self.order.again {
            return None;
        }
        let (node, incident) = self.names();
        if let Some((why, disable_binding)) = self.trouble.stall.take() {
            let stalled = Command::Stalled { node, incident, why, disable_binding };
            return Some(self.commit(Proposed::Stalled, stalled));
        }
        if self.stall_due().is_some_and(|due| now >= due) {
            self.trouble.slow_said = true;
            let why = self.waiting_for();
            let stalled = Command::Stalled { node, incident, why, disable_binding: false };
            return Some(self.commit(Proposed::Stalled, stalled));
        }
        let read = self.still_on(now)?;
        self.trouble.still_on_said = Some(now);
        Some(self.commit(Proposed::StillOn, Command::StillOn { node, incident, read }))
    }

    /// When the lack of progress is to be said.
    pub(super) fn stall_due(&self) -> Option<Mono> {
        (self.intent_open && !self.trouble.slow_said && !self.order.again)
            .then(|| self.started + self.order.stalled_after)
    }

    /// Whether a node that is heard after an attempt is still on: `Some(true)` as read, `Some(false)` for want of an
    /// answer.
    fn still_on(&self, now: Mono) -> Option<bool> {
        let attempted = match (&self.attempt, self.order.last_attempt) {
            (Some(sending), _) => sending.committed,
            (None, 0) => return None,
            // A predecessor's: no later than our start.
            (None, _) => self.started,
        };
        let heard = self.heard.is_some_and(|at| now.since(at) < HEARD);
        let said = self.trouble.still_on_said.is_some_and(|at| now.since(at) < SAY_EVERY);
        if self.despite_life() || !heard || said {
            return None;
        }
        let on = self
            .newest
            .as_ref()
            .is_some_and(|n| n.power == Power::On && n.asked >= attempted + STILL_ON_AFTER);
        if on {
            return Some(true);
        }
        (now.since(self.trouble.answered.max(attempted)) >= SILENT_AFTER).then_some(false)
    }
}
