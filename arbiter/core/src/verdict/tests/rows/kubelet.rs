//! Rule 7: the kubelet's Lease.

use super::*;

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
