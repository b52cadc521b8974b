//! Rule 1: who is silent, and how many of them are needed.

use super::*;

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
