//! The control plane: voters, and hosts of replicas.

use super::{ordered, said};
use crate::apply::tests::world::{World, name, replica, secs};
use crate::brake::{Asking, Stage, ask};
use crate::command::Command;
use crate::phase::{Brake, Phase};

/// Control planes: `voters` of 3 or more nodes, all serving.
fn control_plane(n: u32, voters: &[u32]) -> World {
    let mut w = World::new(n);
    // The replicas elsewhere, so that only one brake speaks.
    for id in 1..=3 {
        w.say(Command::ReplicaGone { replica: replica(id) });
    }
    for voter in voters {
        w.change(*voter, |f| {
            f.control_plane = true;
            f.etcd_voter = true;
        });
    }
    w
}

#[test]
fn a_voter_is_never_fenced_where_the_others_would_be_fewer_than_a_quorum() {
    for (voters, sick, fenced, want) in [
        (vec![1], None, 1, "ControlPlane"),
        (vec![1, 2], None, 1, "ControlPlane"),
        (vec![1, 2, 3], None, 1, "ok"),
        (vec![1, 2, 3], Some(2), 1, "ControlPlane"),
        (vec![1, 2, 3], Some(9), 1, "ok"),
        (vec![1, 2, 3, 4], None, 1, "ok"),
        (vec![1, 2, 3, 4], Some(2), 1, "ControlPlane"),
        (vec![1, 2, 3, 4, 5], Some(2), 1, "ok"),
        (vec![1, 2, 3], Some(2), 9, "ok"),
        (vec![], None, 1, "ok"),
    ] {
        let mut w = control_plane(10, &voters);
        if let Some(sick) = sick {
            w.change(sick, |f| f.ready = false);
        }
        let got = said(&w, fenced, Stage::Condemn);
        assert_eq!(got, ["ok", want, want], "voters {voters:?}, sick {sick:?}, fenced {fenced}");
    }
}

#[test]
fn one_node_of_the_control_plane_is_in_flight_at_a_time_across_all_policies() {
    let mut w = control_plane(60, &[1, 2, 3, 4, 5]);
    w.silent_on(1);
    w.wait(secs(1));
    assert_eq!(said(&w, 2, Stage::Condemn), ["ok", "ControlPlane", "ControlPlane"]);
    assert_eq!(said(&w, 9, Stage::Condemn), ["ok"; 3]);
    // Found off is counted, not refused.
    w.done(w.heard(1));
    w.found_off(2);
    w.wait(secs(1));
    assert_eq!(said(&w, 3, Stage::Condemn), ["ok", "ControlPlane", "ControlPlane"]);
}

#[test]
fn never_two_hosts_of_replicas_but_by_a_persons_order_that_leaves_a_majority() {
    let mut w = World::new(60);
    assert_eq!(said(&w, 2, Stage::Condemn), ["ok"; 3]);
    w.found_off(1);
    w.wait(secs(1));
    // Two of three would be off: whoever orders that has an arbiter that cannot even prove it.
    assert_eq!(said(&w, 2, Stage::Condemn), ["ok", "ArbiterHosts", "ArbiterHosts"]);
    assert_eq!(
        said(&w, 2, Stage::Attempt),
        ["ok", "ArbiterHosts", "ArbiterHosts"],
        "nor once it was ordered"
    );
    assert_eq!(said(&w, 9, Stage::Condemn), ["ok"; 3]);
    // Down is everything but Alive: on its way back, too. But then a person may know better.
    w.done(w.intent(1));
    w.done(w.attempt(1, 1, false));
    assert_eq!(said(&w, 2, Stage::Condemn), ["ok", "ArbiterHosts", "ArbiterHosts"]);
    w.reboot(1);
    assert!(matches!(w.phase(1), Phase::Returning { .. }));
    assert_eq!(said(&w, 2, Stage::Condemn), ["ok", "ArbiterHosts", "ok"]);
    let node = name(2);
    let asking = |class| ask(&w.state, Asking { node: &node, incident: None, class, stage: Stage::Condemn });
    assert_eq!(asking(&ordered("policy/gpu")), Err(Brake::ArbiterHosts));
    w.wait(secs(40));
    w.done(Command::Returned { node: name(1), incident: w.incident_id(1) });
    assert_eq!(said(&w, 2, Stage::Condemn), ["ok"; 3]);
}

#[test]
fn an_order_leaves_a_majority_of_however_many_replicas() {
    let mut five = World::new(60);
    for id in 4..=5 {
        five.replica_on(id);
    }
    five.found_off(1);
    five.wait(secs(1));
    assert_eq!(said(&five, 2, Stage::Condemn), ["ok", "ArbiterHosts", "ok"]);
    five.found_off(3);
    five.wait(secs(1));
    assert_eq!(said(&five, 2, Stage::Condemn), ["ok", "ArbiterHosts", "ArbiterHosts"]);
    // The only one is all there is.
    let mut one = World::new(60);
    for id in 2..=3 {
        one.done(Command::ReplicaGone { replica: replica(id) });
    }
    assert_eq!(said(&one, 1, Stage::Condemn), ["ok", "ok", "ArbiterHosts"]);
    assert_eq!(said(&one, 2, Stage::Condemn), ["ok"; 3]);
}
