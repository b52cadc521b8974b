//! Rules 4 to 6: classes and deadlines, a blind arbiter, a torn network.

use super::*;

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
