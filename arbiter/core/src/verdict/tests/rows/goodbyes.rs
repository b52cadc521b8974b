//! Rule 8: goodbyes; two machines with one identity.

use super::*;

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
