//! The decision rule: is this node dead?
//!
//! ```text
//!   View (everything the leader looked at, as ages) + Rules (deadlines) --> Pending(why) | Dead(class) | Held(why)
//! ```
//!
//! Total, and a function of nothing but its arguments: the leader runs it to propose, `apply` runs it again on the
//! recorded view, `explain` years later. In the order of the design: who is silent and may say so (`quorum`), what
//! answers (`answers`), what the BMC says (`power`), what the kubelet says (`kubelet`).
//!
//! One proof of life vetoes by moving the failure date, from which every deadline counts; counting accusers alone does
//! not survive a partial partition. Deliberately absent: brakes, policies, pauses, bindings (`apply` asks those), and
//! any end by time: missing evidence holds.

mod answers;
mod kubelet;
mod power;
mod quorum;
#[cfg(test)]
pub(crate) mod tests;

use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::Span;

use crate::phase::{EvidenceClass, HeldReason};
use crate::policy::Rules;
use crate::view::{FleetView, Pending, Planned, Verdict, View};
use answers::Answers;
pub(crate) use answers::standing_answers;
pub(crate) use kubelet::{LEASE_RENEWAL, RENEWAL_SLACK, until_missed};
pub use power::Power;
pub use quorum::{Quorum, silent_needed};

/// Nothing is asked of a cluster of so few: neither can say that it is the other that is cut off.
const MEMBERS_MIN: u32 = 3;
/// An answered question is out for at most this long: two probes and the way there and back.
pub const PROBE_WAIT: Span = Span::from_secs(1);
/// E0 after a goodbye `Reboot`: firmware may show Off for a moment in a reboot.
const OFF_AFTER_REBOOT: Span = Span::from_secs(120);
/// E0 after a goodbye `Shutdown`.
const OFF_AFTER_SHUTDOWN: Span = Span::from_secs(30);

/// Judges a node.
pub fn verdict(view: &View, rules: &Rules) -> Verdict {
    if view.own_host {
        return Verdict::Pending(Pending::OwnHost);
    }
    let heard = view.last_sign.as_ref().is_some_and(|sign| sign.age < rules.beacons.suspect);
    if heard && !planted(Mutant::NoVeto) {
        return Verdict::Pending(Pending::Heard);
    }
    let case = Case::new(view, rules);
    match case.power {
        Power::FoundOff => case.found_off(),
        Power::OffSoon | Power::On | Power::Silent | Power::Unclear(_) | Power::Unknown => case.silent(),
    }
}

/// How a planned silence stands: what is left of it. A beacon that was sent after it ends it, which its number tells: to
/// compare the age of a sign with that of a goodbye would be to compare two clocks. Traffic of a replica on that host
/// ends none either: a host that goes down stops its pods one by one.
pub fn goodbye_left(view: &View, rules: &Rules) -> Option<(GoodbyeKind, Span)> {
    let Planned { kind, ago, seq } = view.goodbye?;
    let last = view.last_sign.as_ref().and_then(|sign| sign.beacon);
    let ended = last.is_some_and(|(boot, number)| boot == view.incarnation.boot && number > seq);
    let left = rules.planned(kind).saturating_sub(ago);
    (!ended && left > Span::ZERO).then_some((kind, left))
}

/// Whether the silence of many is unexplained: more than one and more than a tenth of the others. The arbiter may be the
/// one that hears nothing.
pub fn is_blind(fleet: &FleetView) -> bool {
    !fleet.quorum || over_tenth(fleet.unexplained, 1, fleet.others_alive)
}

/// Whether so many members are heard by some and not by others that silence says little about a host.
pub fn is_torn(fleet: &FleetView) -> bool {
    !planted(Mutant::PartialOff) && over_tenth(fleet.partial, 2, fleet.others_alive)
}

/// Whether the node fell silent together with its failure domain, or a large part of it (E3).
pub fn is_correlated(fleet: &FleetView) -> bool {
    let least = if planted(Mutant::TwoNodeRack) { 3 } else { 2 };
    let whole = fleet.domain_members >= least && fleet.domain_silent >= fleet.domain_members;
    let large =
        fleet.domain_silent > 2 && u64::from(fleet.domain_silent) * 5 > u64::from(fleet.domain_members);
    whole || large || fleet.correlated_for.is_some()
}

/// One view with what was concluded from it.
struct Case<'a> {
    view: &'a View,
    rules: &'a Rules,
    /// Since the failure date.
    age: Span,
    /// The same for the deadlines of silence.
    silent_for: Span,
    quorum: Quorum<'a>,
    answers: Answers,
    power: Power,
}

// === impl Case ===

impl<'a> Case<'a> {
    fn new(view: &'a View, rules: &'a Rules) -> Self {
        Self {
            view,
            rules,
            age: view.silence(),
            silent_for: view.silence_for_deadlines(),
            quorum: Quorum::of(view, rules),
            answers: Answers::of(view),
            power: Power::of(view, rules),
        }
    }

    /// The BMC says Off: no deadline, but everything else must agree.
    fn found_off(&self) -> Verdict {
        if let Some(left) = self.off_after_goodbye() {
            return Verdict::Pending(Pending::Goodbye { left });
        }
        if let Some(why) = self.never_judged() {
            return self.held(why);
        }
        if kubelet::is_alive(self.view) {
            return self.held(HeldReason::KubeletAlive);
        }
        match self.answers.standing() {
            0 => {}
            // One unsigned answer against a BMC: whoever sent it must be able to do it again.
            1 => return self.held(HeldReason::Disputed),
            2.. => return self.held(HeldReason::HostAnswersOnly),
        }
        if self.answers.are_out() {
            return Verdict::Pending(Pending::Probes);
        }
        // Too few observers do not block what a BMC and probers agree on.
        let by_probers = self.age >= self.rules.heard && self.answers.probers_answered();
        if self.quorum.is_met() || by_probers {
            return Verdict::Dead(EvidenceClass::FoundOff);
        }
        self.held(HeldReason::TooFewObservers)
    }

    /// No reading of Off to rest on: the deadline of E2 first, then whatever stands in the way by name.
    fn silent(&self) -> Verdict {
        if let Some((_, left)) = goodbye_left(self.view, self.rules) {
            return Verdict::Pending(Pending::Goodbye { left });
        }
        if self.power == Power::OffSoon {
            return Verdict::Pending(Pending::Bmc);
        }
        if let Some(left) = self.until(self.rules.silent_bmc_on) {
            return Verdict::Pending(Pending::Deadline { left });
        }
        if let Some(why) = self.stands_in_the_way() {
            return Verdict::Held(why);
        }
        if is_correlated(&self.view.fleet) {
            return match self.until(self.rules.correlated_hold) {
                Some(left) => Verdict::Pending(Pending::Deadline { left }),
                None => Verdict::Held(HeldReason::DomainDown),
            };
        }
        if self.answers.are_out() {
            return Verdict::Pending(Pending::Probes);
        }
        match &self.power {
            Power::On => self.silent_but_on(),
            Power::Silent if self.view.sibling_answers == Some(true) => Verdict::Held(HeldReason::BmcSilent),
            Power::Silent => Verdict::Held(HeldReason::BmcNetworkSilent),
            Power::Unclear(what) => Verdict::Held(HeldReason::BmcUnclear(what.clone())),
            Power::FoundOff | Power::OffSoon => Verdict::Pending(Pending::Bmc),
            Power::Unknown => match self.until(self.rules.silent_bmc_on + self.rules.bmc_silent) {
                Some(_) => Verdict::Pending(Pending::Bmc),
                None => Verdict::Held(HeldReason::BmcUnclear(
                    "no reading of its power since it fell silent".into(),
                )),
            },
        }
    }

    /// E2: the host is silent and the BMC says On.
    fn silent_but_on(&self) -> Verdict {
        if is_torn(&self.view.fleet) {
            return Verdict::Held(HeldReason::NetworkPartial);
        }
        if !self.view.lease.readable {
            return Verdict::Held(HeldReason::ApiUnreadable);
        }
        match until_missed(self.view).filter(|_| !planted(Mutant::NoMissedRenewal)) {
            Some(left) => Verdict::Pending(Pending::Renewal { left }),
            None => Verdict::Dead(EvidenceClass::HostSilentBmcOn),
        }
    }

    /// What forbids any judgement, whatever the BMC says.
    fn never_judged(&self) -> Option<HeldReason> {
        if self.view.members < MEMBERS_MIN {
            return Some(HeldReason::TwoNodes);
        }
        if self.view.duplicate {
            return Some(HeldReason::Duplicate);
        }
        is_blind(&self.view.fleet).then_some(HeldReason::ArbiterBlind)
    }

    /// What stands in the way of every class but FoundOff, most telling first.
    fn stands_in_the_way(&self) -> Option<HeldReason> {
        if let Some(why) = self.never_judged() {
            return Some(why);
        }
        if self.view.last_sign.is_none() && self.view.group_age < self.rules.not_seen_yet {
            return Some(HeldReason::NotSeenYet);
        }
        if kubelet::is_alive(self.view) {
            return Some(HeldReason::KubeletAlive);
        }
        if self.answers.standing() > 0 {
            return Some(HeldReason::HostAnswersOnly);
        }
        (!self.quorum.is_met()).then_some(HeldReason::TooFewObservers)
    }

    /// What is left until Off counts after a goodbye.
    fn off_after_goodbye(&self) -> Option<Span> {
        let needed = match goodbye_left(self.view, self.rules)?.0 {
            GoodbyeKind::AgentRestart => return None,
            GoodbyeKind::Reboot => OFF_AFTER_REBOOT,
            GoodbyeKind::Shutdown => OFF_AFTER_SHUTDOWN,
        };
        let left = needed.saturating_sub(power::off_for(self.view, self.rules));
        (left > Span::ZERO).then_some(left)
    }

    /// A hold has a name and pages, so it begins no earlier than the deadline of E2: much of what would hold a node for
    /// a moment is over by then.
    fn held(&self, why: HeldReason) -> Verdict {
        match self.until(self.rules.silent_bmc_on) {
            Some(left) => Verdict::Pending(Pending::Deadline { left }),
            None => Verdict::Held(why),
        }
    }

    fn until(&self, deadline: Span) -> Option<Span> {
        let left = deadline.saturating_sub(self.silent_for);
        (left > Span::ZERO).then_some(left)
    }
}

// === helpers ===

/// More than `always_allowed`, and more than a tenth of `of`.
fn over_tenth(count: u32, always_allowed: u32, of: u32) -> bool {
    count > always_allowed && u64::from(count) * 10 > u64::from(of)
}
