//! Rows: the dead host of [`dead_host`], one thing changed, and what follows; just before a boundary and just after.

mod bmc;

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

// --- rule 1: who is silent ---

fn not_counted(view: &mut View, observers: usize) {
    for observer in view.observers.iter_mut().take(observers) {
        observer.standing = Standing::Unheard;
    }
}

#[test]
fn six_of_eight_observers_must_be_silent() {
    check(Dead, |v| not_counted(v, 2));
    check(Held(H::TooFewObservers), |v| not_counted(v, 3));
    // One that hears it, or says nothing, is not silent.
    check(Dead, |v| v.observers[0].said = Said::Hears { ago: ms(100) });
    check(Held(H::TooFewObservers), |v| {
        not_counted(v, 2);
        v.observers[7].said = Said::Nothing;
    });
}

#[test]
fn three_quarters_are_rounded_up_for_every_k() {
    assert_eq!(crate::verdict::silent_needed(1), 1);
    for (k, needed) in [(2, 2), (3, 3), (4, 3), (5, 4), (6, 5), (7, 6), (8, 6), (9, 7)] {
        assert_eq!(crate::verdict::silent_needed(k), needed, "k = {k}");
        let with = |silent: usize| {
            move |v: &mut View| {
                v.members = u32::try_from(k + 1).unwrap();
                v.observers = (0..k).map(|i| observer(i, &format!("r{}", i + 1))).collect();
                not_counted(v, k - silent);
            }
        };
        check(Dead, with(needed));
        check(Held(H::TooFewObservers), with(needed - 1));
    }
    check(Held(H::TooFewObservers), |v| v.observers.clear());
}

#[test]
fn observers_that_are_out_of_service_do_not_lower_what_is_needed() {
    // Members, observers that are there (all silent), and whether they are enough: H counts from k = min(8, N - 1).
    for (members, there, enough) in [
        (3, 1, false),
        (4, 2, false),
        (5, 1, false),
        (5, 2, false),
        (5, 3, true),
        (6, 3, false),
        (6, 4, true),
        (7, 4, false),
        (7, 5, true),
        (9, 5, false),
        (9, 6, true),
        (200, 5, false),
        (200, 6, true),
    ] {
        let verdict = if enough { Dead } else { Held(H::TooFewObservers) };
        check(verdict, |v| {
            v.members = members;
            v.observers = (0..there).map(|i| observer(i, &format!("r{}", i + 1))).collect();
        });
    }
}

#[test]
fn an_observer_is_silent_after_s_and_not_before() {
    let silent = |view: &mut View, for_ms: u64| {
        not_counted(view, 2);
        view.observers[7].said = Said::Silent { silent: ms(for_ms) };
    };
    check(Dead, |v| silent(v, 1250));
    check(Held(H::TooFewObservers), |v| silent(v, 1249));
}

#[test]
fn only_an_eligible_observer_counts() {
    for standing in [
        Standing::NotAlive,
        Standing::Unheard,
        Standing::UnregisteredBoot,
        Standing::Doubts(coroner_shared::beacon::SelfDoubt::LateTick),
        Standing::OutvotedBySubjects,
        Standing::NeverHeardIt,
        Standing::NoWorkingPath,
    ] {
        check(Held(H::TooFewObservers), |v| {
            not_counted(v, 2);
            v.observers[7].standing = standing;
        });
    }
}

fn domains(view: &mut View, of: [&str; 8]) {
    for (observer, domain) in view.observers.iter_mut().zip(of) {
        observer.domain = domain.into();
    }
}

#[test]
fn the_silent_come_from_three_other_domains_where_three_have_an_eligible_observer() {
    // Two of the own rack and six of r1; three other domains exist.
    let mostly = ["r1", "r1", "r1", "r1", "r1", "r1", "r2", "r3"];
    check(Dead, |v| domains(v, mostly));
    check(Held(H::TooFewObservers), |v| {
        domains(v, mostly);
        v.observers[7].said = Said::Hears { ago: ms(0) };
    });
    // A domain whose observers do not count now is not asked for.
    check(Dead, |v| {
        domains(v, mostly);
        v.observers[7].standing = Standing::Unheard;
    });
    // Four exist: three are enough.
    check(Dead, |v| {
        domains(v, ["r0", "r1", "r1", "r2", "r2", "r3", "r3", "r4"]);
        v.observers[7].said = Said::Nothing;
    });
    // Two exist: both are needed.
    check(Held(H::TooFewObservers), |v| {
        domains(v, ["r0", "r0", "r1", "r1", "r1", "r1", "r1", "r2"]);
        v.observers[7].said = Said::Nothing;
    });
}

#[test]
fn the_own_domain_never_counts_while_another_can() {
    check(Held(H::TooFewObservers), |v| {
        domains(v, ["r0", "r0", "r0", "r0", "r0", "r0", "r1", "r1"]);
        v.observers[6].said = Said::Nothing;
        v.observers[7].said = Said::Nothing;
    });
}

#[test]
fn without_another_domain_hosts_are_counted() {
    check(Dead, |v| domains(v, ["r0"; 8]));
    check(Dead, |v| {
        // The only observer elsewhere does not count now.
        domains(v, ["r0", "r0", "r0", "r0", "r0", "r0", "r0", "r1"]);
        v.observers[7].standing = Standing::NotAlive;
    });
    let quorum = |change: fn(&mut View)| {
        let mut view = dead_host();
        change(&mut view);
        let q = crate::verdict::Quorum::of(&view, &Rules::BALANCED);
        (q.topology_weak, q.domains, q.domains_needed, q.silent.len(), q.needed)
    };
    assert_eq!(quorum(|v| domains(v, ["r0"; 8])), (true, 8, 3, 8, 6));
    assert_eq!(quorum(|_| {}), (false, 3, 3, 8, 6));
    assert_eq!(quorum(|v| v.observers.truncate(1)), (true, 1, 1, 1, 6));
}

#[test]
fn too_few_observers_do_not_block_what_bmc_and_probers_agree_on() {
    let few = |v: &mut View| {
        off(v);
        v.observers.truncate(1);
        v.observers[0].said = Said::Nothing;
    };
    check(FoundOff, few);
    // Not before 3 s without a sign of life.
    check(FoundOff, |v| {
        few(v);
        v.last_sign.as_mut().unwrap().age = ms(3000);
    });
    check(Deadline(5001), |v| {
        few(v);
        v.last_sign.as_mut().unwrap().age = ms(2999);
    });
    // Not without a prober that answered.
    check(Held(H::TooFewObservers), |v| {
        few(v);
        v.probes.iter_mut().for_each(|p| p.answered = false);
    });
    check(FoundOff, |v| {
        few(v);
        v.probes.iter_mut().skip(1).for_each(|p| p.answered = false);
    });
    // With enough observers no prober needs to have answered.
    check(FoundOff, |v| {
        off(v);
        v.probes.iter_mut().for_each(|p| p.answered = false);
    });
}

// --- rule 2: signs of life ---

#[test]
fn a_sign_of_life_younger_than_s_vetoes_and_an_older_one_moves_the_failure_date() {
    check(Heard, |v| silent_for(v, 0));
    check(Heard, |v| silent_for(v, 1249));
    check(Deadline(6750), |v| silent_for(v, 1250));
    check(Deadline(1), |v| silent_for(v, 7999));
    check(Dead, |v| silent_for(v, 8000));
    // The same with a machine found off: no deadline, but heard is heard.
    check(Heard, |v| {
        off(v);
        silent_for(v, 1249);
    });
    check(FoundOff, |v| {
        off(v);
        silent_for(v, 1250);
        v.probes.iter_mut().for_each(|p| p.asked_ago = ms(1100));
    });
}

#[test]
fn a_leader_never_judges_its_own_host() {
    check(OwnHost, |v| v.own_host = true);
    check(OwnHost, |v| {
        off(v);
        v.own_host = true;
    });
}

#[test]
fn two_nodes_never_judge_each_other() {
    check(Dead, |v| v.members = 3);
    check(Held(H::TwoNodes), |v| v.members = 2);
    check(Held(H::TwoNodes), |v| {
        off(v);
        v.members = 2;
    });
    check(Deadline(6000), |v| {
        off(v);
        silent_for(v, 2000);
        v.members = 2;
    });
}

#[test]
fn a_node_never_heard_since_the_group_started_is_only_judged_by_being_found_off() {
    let never = |v: &mut View, group_s: u64| {
        v.last_sign = None;
        v.group_age = secs(group_s);
        v.observers.iter_mut().for_each(|o| o.standing = Standing::NeverHeardIt);
    };
    check(Held(H::NotSeenYet), |v| never(v, 10));
    check(Held(H::NotSeenYet), |v| never(v, 899));
    check(Held(H::TooFewObservers), |v| never(v, 900));
    check(FoundOff, |v| {
        never(v, 10);
        off(v);
    });
    check(Deadline(4000), |v| {
        never(v, 4);
        v.probes.iter_mut().for_each(|p| p.asked_ago = ms(1000));
    });
    // Heard by its observers before, but by none of these replicas: still not seen.
    check(Held(H::NotSeenYet), |v| {
        v.last_sign = None;
        v.group_age = secs(60);
    });
    check(Dead, |v| v.last_sign = None);
}

// --- rule 3: answers ---

fn answer(view: &mut View, prober: usize, answer: Answer, asked_ago: u64) {
    view.probes[prober].outcomes.push(outcome(answer, asked_ago));
}

#[test]
fn any_answer_of_any_kind_asked_for_after_the_failure_date_holds() {
    for kind in [Answer::Answered, Answer::Accepted, Answer::Reset] {
        check(Held(H::HostAnswersOnly), |v| answer(v, 0, kind, 1000));
        check(Held(H::HostAnswersOnly), |v| v.observers[3].probes.push(outcome(kind, 1000)));
    }
    check(Dead, |v| answer(v, 0, Answer::Nothing, 1000));
    check(Dead, |v| answer(v, 0, Answer::NotSent, 1000));
    // Whoever may not accuse may still veto.
    check(Held(H::HostAnswersOnly), |v| {
        v.observers[3].standing = Standing::OutvotedBySubjects;
        v.observers[3].probes.push(outcome(Answer::Reset, 1000));
    });
}

#[test]
fn an_answer_asked_for_before_the_failure_date_says_nothing() {
    check(Held(H::HostAnswersOnly), |v| answer(v, 0, Answer::Reset, 9999));
    check(Dead, |v| answer(v, 0, Answer::Reset, 10_000));
    check(Dead, |v| v.observers[3].probes.push(outcome(Answer::Reset, 10_000)));
}

#[test]
fn an_answer_stands_for_30_s_and_then_until_three_have_asked_in_vain() {
    let long_ago = |v: &mut View, asked_ago: u64| {
        silent_for(v, 100_000);
        v.lease.changed_ago = Some(secs(200));
        answer(v, 0, Answer::Reset, asked_ago);
    };
    check(Held(H::HostAnswersOnly), |v| long_ago(v, 30_000));
    check(Dead, |v| long_ago(v, 30_001));
    // Only two have asked since.
    check(Held(H::HostAnswersOnly), |v| {
        long_ago(v, 30_001);
        v.probes[2].outcomes[0].asked_ago = ms(40_000);
    });
    // Two asked in vain on this path, more never could use it: two are all who can.
    check(Dead, |v| {
        long_ago(v, 30_001);
        v.probes[2].outcomes[0].worked_ago = None;
    });
    // A vain question on another path takes nothing back.
    check(Held(H::HostAnswersOnly), |v| {
        long_ago(v, 30_001);
        v.probes.iter_mut().for_each(|p| p.outcomes[0].path = Path::Ping);
    });
}

#[test]
fn one_answer_against_a_bmc_is_disputed_and_two_are_not() {
    check(Held(H::Disputed), |v| {
        off(v);
        answer(v, 0, Answer::Reset, 1000);
    });
    check(Held(H::HostAnswersOnly), |v| {
        off(v);
        answer(v, 0, Answer::Reset, 1000);
        answer(v, 1, Answer::Reset, 1000);
    });
    // The same prober and path twice is one answer; two paths are two.
    check(Held(H::Disputed), |v| {
        off(v);
        answer(v, 0, Answer::Reset, 1000);
        answer(v, 0, Answer::Reset, 900);
    });
    check(Held(H::HostAnswersOnly), |v| {
        off(v);
        answer(v, 0, Answer::Reset, 1000);
        v.probes[0].outcomes.push(ProbeOutcome { path: Path::Ping, ..outcome(Answer::Answered, 1000) });
    });
    // After 30 s that nobody could reproduce it does not count.
    check(FoundOff, |v| {
        off(v);
        silent_for(v, 60_000);
        answer(v, 0, Answer::Reset, 30_001);
    });
    // Before the deadline of E2 nothing is held.
    check(Deadline(4000), |v| {
        off(v);
        silent_for(v, 4000);
        answer(v, 0, Answer::Reset, 1000);
    });
}

#[test]
fn probes_must_have_been_asked_and_have_had_their_time() {
    check(Probes, |v| v.probes.clear());
    // Asked before the failure date: nobody was asked.
    check(Probes, |v| v.probes.iter_mut().for_each(|p| p.asked_ago = secs(10)));
    check(Dead, |v| v.probes.iter_mut().for_each(|p| p.asked_ago = ms(9999)));
    // One is out, with and without time left.
    for (asked_ago, want) in [(999, Probes), (1000, Dead)] {
        check(want, |v| {
            v.probes[1].answered = false;
            v.probes[1].asked_ago = ms(asked_ago);
        });
    }
    check(Probes, |v| {
        off(v);
        v.probes[1].answered = false;
        v.probes[1].asked_ago = ms(0);
    });
}

// --- rule 4: classes and deadlines ---

#[test]
fn each_profile_has_its_deadlines() {
    for (rules, e2) in [(Rules::FAST, 4000), (Rules::BALANCED, 8000), (Rules::CONSERVATIVE, 20_000)] {
        let at = |age: u64| {
            move |v: &mut View| {
                silent_for(v, age);
                v.lease.changed_ago = Some(secs(100));
                v.probes.iter_mut().for_each(|p| p.asked_ago = ms(1100));
            }
        };
        check_by(&rules, &Deadline(1), at(e2 - 1));
        check_by(&rules, &Dead, at(e2));
        let suspect = rules.beacons.suspect.as_ms();
        check_by(&rules, &Heard, at(suspect - 1));
        check_by(&rules, &Deadline(e2 - suspect), at(suspect));
    }
}

#[test]
fn a_domain_that_fell_silent_together_is_held_after_30_s() {
    let set = |members, silent| {
        move |v: &mut View| {
            silent_for(v, 30_000);
            v.fleet.domain_members = members;
            v.fleet.domain_silent = silent;
        }
    };
    // All of a domain of two or more.
    check(Held(H::DomainDown), set(2, 2));
    check(Dead, set(1, 1));
    check(Dead, set(3, 2));
    check(Held(H::DomainDown), set(3, 3));
    // More than max(2, 20 %).
    check(Dead, set(10, 2));
    check(Held(H::DomainDown), set(10, 3));
    check(Dead, set(20, 4));
    check(Held(H::DomainDown), set(20, 5));
    // From the moment the set exists.
    check(Held(H::DomainDown), |v| {
        silent_for(v, 30_000);
        v.fleet.correlated_for = Some(ms(0));
    });
    // Its own deadline.
    check(Deadline(1), |v| {
        set(2, 2)(v);
        silent_for(v, 29_999);
    });
    check(Deadline(22_000), |v| {
        set(2, 2)(v);
        silent_for(v, 8000);
    });
    // Members found off are still released.
    check(FoundOff, |v| {
        set(2, 2)(v);
        off(v);
    });
}

// --- rules 5 and 6 ---

#[test]
fn the_arbiter_may_be_the_blind_one() {
    let unexplained = |count, of| {
        move |v: &mut View| {
            v.fleet.unexplained = count;
            v.fleet.others_alive = of;
        }
    };
    check(Dead, unexplained(1, 2));
    check(Held(H::ArbiterBlind), unexplained(2, 19));
    check(Dead, unexplained(2, 20));
    check(Dead, unexplained(100, 1000));
    check(Held(H::ArbiterBlind), unexplained(101, 1000));
    check(Held(H::ArbiterBlind), |v| v.fleet.quorum = false);
    check(Held(H::ArbiterBlind), |v| {
        off(v);
        unexplained(2, 19)(v);
    });
}

#[test]
fn a_torn_network_holds_what_rests_on_silence_alone() {
    let partial = |count, of| {
        move |v: &mut View| {
            v.fleet.partial = count;
            v.fleet.others_alive = of;
        }
    };
    check(Dead, partial(2, 5));
    check(Held(H::NetworkPartial), partial(3, 29));
    check(Dead, partial(3, 30));
    check(FoundOff, |v| {
        off(v);
        partial(19, 19)(v);
    });
    // E1 keeps its name.
    check(Held(H::BmcSilent), |v| {
        partial(19, 19)(v);
        all_read(v, &BmcRead::Silent { since: secs(9) });
    });
}

// --- rule 7: the kubelet ---

#[test]
fn one_expected_renewal_must_be_missed() {
    let changed = |ago: u64| move |v: &mut View| v.lease.changed_ago = Some(ms(ago));
    // Before the failure date, 10 s ago.
    check(Renewal(1), changed(10_999));
    check(Dead, changed(11_000));
    // After it: alive until the next one is missed.
    check(Held(H::KubeletAlive), changed(9999));
    check(Renewal(1000), changed(10_000));
    check(Held(H::KubeletAlive), changed(0));
    check(Dead, |v| {
        silent_for(v, 30_000);
        changed(11_000)(v);
    });
    check(Held(H::KubeletAlive), |v| {
        silent_for(v, 30_000);
        changed(10_999)(v);
    });
    // Another interval.
    check(Renewal(20_000), |v| {
        v.lease.interval = secs(29);
        changed(10_000)(v);
    });
    // Never seen to change: only what was watched counts.
    for (watched, want) in [(10_999, Renewal(1)), (11_000, Dead)] {
        check(want, |v| {
            v.lease.changed_ago = None;
            v.lease.watched_for = ms(watched);
        });
    }
}

#[test]
fn a_moving_lease_holds_a_machine_found_off_too_but_no_renewal_need_be_missed() {
    check(FoundOff, |v| {
        off(v);
        v.lease.changed_ago = Some(ms(10_000));
    });
    check(Held(H::KubeletAlive), |v| {
        off(v);
        v.lease.changed_ago = Some(ms(9999));
    });
    // The last renewal of a dying host may be younger than its last beacon.
    check(Deadline(6000), |v| {
        off(v);
        silent_for(v, 2000);
        v.lease.changed_ago = Some(ms(1900));
    });
    check(FoundOff, |v| {
        off(v);
        silent_for(v, 12_000);
        v.lease.changed_ago = Some(ms(11_000));
    });
}

#[test]
fn an_unreadable_api_holds_e2_only() {
    check(Held(H::ApiUnreadable), |v| v.lease.readable = false);
    check(FoundOff, |v| {
        off(v);
        v.lease.readable = false;
    });
    check(Held(H::BmcSilent), |v| {
        v.lease.readable = false;
        all_read(v, &BmcRead::Silent { since: secs(9) });
    });
}

// --- rule 8: goodbyes; two machines ---

/// Number of the last beacon before a goodbye.
const SAID: u64 = 700;

#[expect(clippy::unnecessary_wraps, reason = "what a view holds")]
fn planned(kind: GoodbyeKind, ago: Span) -> Option<Planned> {
    Some(Planned { kind, ago, seq: SAID })
}

#[test]
fn a_goodbye_suspends_e2_for_its_time() {
    let said = |kind, ago: u64| {
        move |v: &mut View| {
            silent_for(v, ago);
            v.lease.changed_ago = Some(Span::from_mins(60));
            v.goodbye = planned(kind, ms(ago));
        }
    };
    check(Goodbye(1_190_000), said(GoodbyeKind::Reboot, 10_000));
    check(Goodbye(1_190_000), said(GoodbyeKind::Shutdown, 10_000));
    check(Goodbye(1), said(GoodbyeKind::Reboot, 1_199_999));
    check(Dead, said(GoodbyeKind::Reboot, 1_200_000));
    check(Goodbye(1), said(GoodbyeKind::AgentRestart, 119_999));
    check(Dead, said(GoodbyeKind::AgentRestart, 120_000));
    // Also before any deadline, and before any hold.
    check(Goodbye(118_000), |v| {
        said(GoodbyeKind::AgentRestart, 2000)(v);
        not_counted(v, 8);
    });
}

#[test]
fn a_beacon_sent_after_a_goodbye_ends_it_and_no_other_sign_does() {
    // Whatever the ages: those of signs leave out what a process was paused, the goodbye's does not.
    let sign = |beacon: Option<(BootId, u64)>, age: u64| {
        move |v: &mut View| {
            v.lease.changed_ago = Some(Span::from_mins(60));
            silent_for(v, age);
            v.goodbye = planned(GoodbyeKind::Reboot, ms(60_000));
            let last = Sign { age: ms(age), held_by: "r1".to_owned(), beacon };
            v.last_sign = Some(last);
        }
    };
    let this_boot = BOOT;
    for age in [40_000, 60_000, 80_000] {
        check(Goodbye(1_140_000), sign(Some((this_boot, SAID - 1)), age));
        check(Goodbye(1_140_000), sign(Some((this_boot, SAID)), age));
        check(Dead, sign(Some((this_boot, SAID + 1)), age));
        // Traffic of a replica that stops after the agent; another boot's numbers are another clock's.
        check(Goodbye(1_140_000), sign(None, age));
        check(Goodbye(1_140_000), sign(Some((BootId::from_bytes([9; 16]), SAID + 1)), age));
    }
}

#[test]
fn a_machine_found_off_after_a_goodbye_has_to_stay_off_for_a_while() {
    let off_for = |kind, over: u64| {
        move |v: &mut View| {
            silent_for(v, 300_000);
            v.goodbye = planned(kind, ms(300_000));
            all_read(v, &BmcRead::Off { reads: 9, over: ms(over) });
        }
    };
    check(Goodbye(1), off_for(GoodbyeKind::Reboot, 119_999));
    check(FoundOff, off_for(GoodbyeKind::Reboot, 120_000));
    check(Goodbye(1), off_for(GoodbyeKind::Shutdown, 29_999));
    check(FoundOff, off_for(GoodbyeKind::Shutdown, 30_000));
    check(FoundOff, |v| {
        off_for(GoodbyeKind::AgentRestart, 100)(v);
        v.goodbye = planned(GoodbyeKind::AgentRestart, secs(60));
        silent_for(v, 60_000);
    });
    // A goodbye whose time is over delays nothing.
    check(FoundOff, |v| {
        off_for(GoodbyeKind::Reboot, 100)(v);
        v.goodbye = planned(GoodbyeKind::Reboot, Span::from_mins(20));
        silent_for(v, 1_200_000);
    });
}

#[test]
fn neither_of_two_machines_with_one_identity_is_judged() {
    check(Held(H::Duplicate), |v| v.duplicate = true);
    check(Held(H::Duplicate), |v| {
        off(v);
        v.duplicate = true;
    });
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
