//! Rule 2: signs of life, and who is judged at all.

use super::*;

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
fn what_a_replica_may_have_heard_and_cannot_tell_moves_deadlines_and_vetoes_nothing() {
    // Silent for 10 s to everybody who can tell.
    check(Deadline(8000), |v| v.untold = Some(ms(0)));
    check(Deadline(1), |v| v.untold = Some(ms(7999)));
    check(Dead, |v| v.untold = Some(ms(8000)));
    check(Deadline(1), |v| {
        silent_for(v, 7999);
        v.untold = Some(ms(60_000));
    });
    // A machine found off has no deadline, and a hold has one.
    check(FoundOff, |v| {
        off(v);
        v.untold = Some(ms(0));
    });
    check(Deadline(5000), |v| {
        not_counted(v, 8);
        v.untold = Some(ms(3000));
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
