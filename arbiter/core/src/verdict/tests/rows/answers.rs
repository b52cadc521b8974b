//! Rule 3: answers to probes.

use super::*;

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
