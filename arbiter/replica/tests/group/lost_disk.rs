//! A replica that comes back with an empty disk under its old id, or with a copy of an older one. It ends by name as
//! soon as its leader speaks of what it has lost, which may be too late: here an entry that was committed is lost
//! before. So a replica with an empty disk must never start; `birth.rs` of the arbiter sees to that (tested in
//! `tests/tests/birth`).

use coroner_arbiter_replica::{Fatal, PowerCut};

use crate::group::{Group, Member, id};

/// What `birth.rs` refuses.
fn lose_the_disk(group: &mut Group, member: u64) {
    group.crash(member, PowerCut::Lost);
    group.members.insert(member, Member::Down(Box::default()));
    group.start(member);
}

/// Ticks the leader until a heartbeat of it has reached the member; what that comes to.
fn hears_its_leader(group: &mut Group, leader: u64, member: u64) -> Fatal {
    for _ in 0..20 {
        group.tick_only(leader, 1);
        while let Some(envelope) = group.wire.pop_front() {
            if envelope.to == member {
                group.replica(member).step(id(leader), &envelope.bytes).unwrap();
                if let Err(fatal) = group.try_turn(member) {
                    return fatal;
                }
            } else {
                group.deliver(&envelope);
            }
        }
    }
    panic!("it goes on as if nothing had been lost");
}

#[test]
fn it_ends_by_name_when_the_leader_speaks_of_entries_that_are_lost() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    for _ in 0..10 {
        group.commit(leader);
    }
    let committed = group.replica(leader).committed();
    let other = group.ids().into_iter().find(|m| *m != leader).unwrap();
    // And again at each start.
    for _ in 0..2 {
        lose_the_disk(&mut group, other);
        group.wire.clear();
        let fatal = hears_its_leader(&mut group, leader, other);
        let text = fatal.to_string();
        assert!(
            matches!(fatal, Fatal::Forgot { told, last: 1, .. } if told == committed),
            "{text}, {committed} are committed"
        );
        assert!(matches!(group.try_turn(other), Err(Fatal::Stopped { .. })), "and it stays down");
    }
}

/// A disk that was put back from a copy is no better.
#[test]
fn a_copy_that_was_put_back_is_found_out_too() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    for _ in 0..5 {
        group.commit(leader);
    }
    let other = group.ids().into_iter().find(|m| *m != leader).unwrap();
    let copy = group.disk(other).clone();
    let kept = group.replica(other).committed();
    for _ in 0..5 {
        group.commit(leader);
    }
    group.crash(other, PowerCut::Lost);
    group.members.insert(other, Member::Down(Box::new(copy)));
    group.start(other);
    group.wire.clear();
    let fatal = hears_its_leader(&mut group, leader, other);
    assert!(matches!(fatal, Fatal::Forgot { last, .. } if last == kept), "{fatal}");
    // The next leader knows nothing of what it acknowledged once, and brings it what it lacks.
    group.crash(other, PowerCut::Lost);
    group.start(other);
    group.crash(leader, PowerCut::Lost);
    let new = group.elect_without(leader);
    let key = group.commit(new);
    assert!(group.has_applied(other, &key));
}

/// Why it must not start at all.
#[test]
fn with_a_lost_disk_a_committed_entry_can_vanish() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    let others: Vec<u64> = group.ids().into_iter().filter(|m| *m != leader).collect();
    let (amnesiac, behind) = (others[0], others[1]);
    group.isolate(behind);
    let key = group.commit(leader);
    assert!(group.has_applied(leader, &key), "committed by two of three");
    group.heal();
    group.isolate(leader);
    lose_the_disk(&mut group, amnesiac);
    let new = group.elect_without(leader);
    let other_key = group.commit(new);
    assert!(!group.has_applied(new, &key) && group.has_applied(new, &other_key));
    let index = *group.laws.applied().iter().find(|(_, k)| **k == key).unwrap().0;
    assert!(group.replica(new).applied() > index, "something else has taken its place for good");
}
