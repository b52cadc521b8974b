//! Rows about what a BMC says.

use super::*;

#[test]
fn off_counts_when_read_twice_over_100_ms_from_a_steady_bmc() {
    let read = |reads, over| move |v: &mut View| all_read(v, &BmcRead::Off { reads, over: ms(over) });
    check(FoundOff, read(2, 100));
    check(Bmc, read(2, 99));
    check(Bmc, read(1, 60_000));
    // Not steady: 30 s.
    let unsteady = |over| {
        move |v: &mut View| {
            silent_for(v, 60_000);
            all_read(v, &BmcRead::Off { reads: 60, over: ms(over) });
            v.bmc.iter_mut().for_each(|b| b.steady = false);
        }
    };
    check(Bmc, unsteady(29_999));
    check(FoundOff, unsteady(30_000));
    // One steady replica is enough.
    check(FoundOff, |v| {
        off(v);
        v.bmc[0].steady = false;
        v.bmc[1].read = BmcRead::NotRead;
    });
}

#[test]
fn a_reading_of_five_seconds_ago_is_not_a_reading_of_now() {
    for (age, want) in [(5000, FoundOff), (5001, Bmc)] {
        check(want, |v| {
            off(v);
            v.bmc.iter_mut().for_each(|b| b.age = ms(age));
        });
    }
    for (age, want) in [(5000, Dead), (5001, Bmc)] {
        check(want, |v| v.bmc.iter_mut().for_each(|b| b.age = ms(age)));
    }
}

#[test]
fn replicas_that_read_on_and_off_make_it_neither() {
    check(Held(H::BmcUnclear("some replicas read On, some read Off".into())), |v| {
        off(v);
        v.bmc[2].read = BmcRead::On;
    });
    check(FoundOff, |v| {
        off(v);
        v.bmc[2].read = BmcRead::On;
        v.bmc[2].age = ms(5001);
    });
    check(Dead, |v| {
        v.bmc[0].read = BmcRead::Silent { since: secs(9) };
        v.bmc[1].read = BmcRead::Unclear { what: "PoweringOff".into(), since: secs(9) };
    });
}

#[test]
fn a_silent_bmc_is_named_by_what_its_siblings_do() {
    let silent = |v: &mut View| all_read(v, &BmcRead::Silent { since: ms(5000) });
    check(Held(H::BmcSilent), silent);
    check(Held(H::BmcNetworkSilent), |v| {
        silent(v);
        v.sibling_answers = Some(false);
    });
    check(Held(H::BmcNetworkSilent), |v| {
        silent(v);
        v.sibling_answers = None;
    });
    // The next attempt takes long, and is no news while it does.
    check(Held(H::BmcSilent), |v| {
        silent(v);
        v.bmc.iter_mut().for_each(|b| b.age = secs(12));
    });
    // For 5 s, to at least 2 replicas.
    check(Bmc, |v| all_read(v, &BmcRead::Silent { since: ms(4999) }));
    check(Held(H::BmcSilent), |v| {
        silent(v);
        v.bmc[0].read = BmcRead::NotRead;
    });
    check(Bmc, |v| {
        silent(v);
        v.bmc[0].read = BmcRead::NotRead;
        v.bmc[1].read = BmcRead::NotRead;
    });
    // Where only one replica reads at all, it is that one.
    check(Held(H::BmcSilent), |v| {
        silent(v);
        v.bmc.truncate(1);
    });
    check(Deadline(1), |v| {
        silent(v);
        silent_for(v, 7999);
    });
}

#[test]
fn anything_else_that_a_bmc_says_is_unclear_by_its_own_words() {
    let says = |since| {
        move |v: &mut View| all_read(v, &BmcRead::Unclear { what: "PoweringOff".into(), since: ms(since) })
    };
    check(Held(H::BmcUnclear("PoweringOff".into())), says(5000));
    check(Bmc, says(4999));
    check(Held(H::BmcUnclear("no BMC is bound to it".into())), |v| v.bmc.clear());
    // Never read: Bmc for a while, then that is its name.
    let unread = |age| {
        move |v: &mut View| {
            silent_for(v, age);
            all_read(v, &BmcRead::NotRead);
        }
    };
    check(Bmc, unread(12_999));
    check(Held(H::BmcUnclear("no reading of its power since it fell silent".into())), unread(13_000));
}
