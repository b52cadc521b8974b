//! Rows: the dead host of [`dead_host`], one thing changed, and what follows; just before a boundary and just after.

mod answers;
mod bmc;
mod deadlines;
mod goodbyes;
mod kubelet;
mod quorum;
mod signs;

use super::*;
use crate::phase::{EvidenceClass, HeldReason};
use crate::policy::Rules;
use crate::verdict::verdict;
use coroner_shared::beacon::{Answer, GoodbyeKind, Path, ProbeOutcome};
use coroner_shared::time::Span;

use HeldReason as H;

/// What a row expects, without the ages that are left.
#[derive(Debug, PartialEq, Eq)]
enum Want {
    Dead,
    FoundOff,
    Held(HeldReason),
    Heard,
    OwnHost,
    Deadline(u64),
    Renewal(u64),
    Probes,
    Bmc,
    Goodbye(u64),
}

use Want::{Bmc, Dead, Deadline, FoundOff, Goodbye, Heard, Held, OwnHost, Probes, Renewal};

fn plain(verdict: Verdict) -> Want {
    match verdict {
        Verdict::Dead(EvidenceClass::HostSilentBmcOn) => Dead,
        Verdict::Dead(EvidenceClass::FoundOff) => FoundOff,
        Verdict::Dead(EvidenceClass::Ordered { .. }) => panic!("no view leads to an order"),
        Verdict::Held(why) => Held(why),
        Verdict::Pending(Pending::Heard) => Heard,
        Verdict::Pending(Pending::OwnHost) => OwnHost,
        Verdict::Pending(Pending::Deadline { left }) => Deadline(left.as_ms()),
        Verdict::Pending(Pending::Renewal { left }) => Renewal(left.as_ms()),
        Verdict::Pending(Pending::Probes) => Probes,
        Verdict::Pending(Pending::Bmc) => Bmc,
        Verdict::Pending(Pending::Goodbye { left }) => Goodbye(left.as_ms()),
    }
}

#[track_caller]
fn check_by(rules: &Rules, want: &Want, change: impl FnOnce(&mut View)) {
    let mut view = dead_host();
    change(&mut view);
    assert_eq!(plain(verdict(&view, rules)), *want);
}

#[track_caller]
#[expect(clippy::needless_pass_by_value, reason = "a row reads better without a reference")]
fn check(want: Want, change: impl FnOnce(&mut View)) {
    check_by(&Rules::BALANCED, &want, change);
}

#[test]
fn a_silent_host_whose_bmc_says_on_is_dead_and_one_found_off_too() {
    check(Dead, |_| {});
    check(FoundOff, off);
}

fn not_counted(view: &mut View, observers: usize) {
    for observer in view.observers.iter_mut().take(observers) {
        observer.standing = Standing::Unheard;
    }
}

fn domains(view: &mut View, of: [&str; 8]) {
    for (observer, domain) in view.observers.iter_mut().zip(of) {
        observer.domain = domain.into();
    }
}

fn answer(view: &mut View, prober: usize, answer: Answer, asked_ago: u64) {
    view.probes[prober].outcomes.push(outcome(answer, asked_ago));
}

// --- which of several reasons is told ---

#[test]
fn the_most_telling_reason_is_told() {
    let all_at_once = |v: &mut View| {
        v.duplicate = true;
        v.fleet.quorum = false;
        v.lease.changed_ago = Some(ms(100));
        answer(v, 0, Answer::Reset, 1000);
        not_counted(v, 8);
        v.fleet.domain_silent = 5;
        v.fleet.partial = 19;
    };
    check(Held(H::Duplicate), all_at_once);
    check(Held(H::ArbiterBlind), |v| {
        all_at_once(v);
        v.duplicate = false;
    });
    check(Held(H::KubeletAlive), |v| {
        all_at_once(v);
        v.duplicate = false;
        v.fleet.quorum = true;
    });
    check(Held(H::HostAnswersOnly), |v| {
        all_at_once(v);
        v.duplicate = false;
        v.fleet.quorum = true;
        v.lease.changed_ago = Some(secs(60));
    });
    check(Held(H::TooFewObservers), |v| {
        not_counted(v, 8);
        v.fleet.domain_silent = 5;
        v.fleet.partial = 19;
    });
    check(Held(H::DomainDown), |v| {
        silent_for(v, 30_000);
        v.fleet.domain_silent = 5;
        v.fleet.partial = 19;
        v.lease.readable = false;
        all_read(v, &BmcRead::Silent { since: secs(9) });
    });
    check(Held(H::NetworkPartial), |v| {
        v.fleet.partial = 19;
        v.lease.readable = false;
    });
}
