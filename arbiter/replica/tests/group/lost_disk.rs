//! A replica that comes back with an empty disk under its old id. raft-rs panics when it notices, which may be too
//! late: here an entry that was committed is lost before. So such a replica must never start; `birth.rs` of the
//! arbiter sees to that (tested in `tests/tests/birth`).

use std::panic::{AssertUnwindSafe, catch_unwind};

use coroner_arbiter_replica::PowerCut;

use crate::group::{Group, Member};

/// What `birth.rs` refuses.
fn lose_the_disk(group: &mut Group, member: u64) {
    group.crash(member, PowerCut::Lost);
    group.members.insert(member, Member::Down(Box::default()));
    group.start(member);
}

#[test]
fn raft_panics_when_the_leader_speaks_of_entries_that_are_lost() {
    let mut group = Group::new(3, 0);
    let leader = group.elect();
    for _ in 0..10 {
        group.commit(leader);
    }
    let other = group.ids().into_iter().find(|m| *m != leader).unwrap();
    lose_the_disk(&mut group, other);
    let panicked = catch_unwind(AssertUnwindSafe(|| group.run(10))).unwrap_err();
    let text = panicked.downcast_ref::<String>().expect("a text");
    assert!(text.contains("is out of range [last_index 1]"), "{text}");
    // And again at each start.
    lose_the_disk(&mut group, other);
    assert!(catch_unwind(AssertUnwindSafe(|| group.run(10))).is_err());
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
