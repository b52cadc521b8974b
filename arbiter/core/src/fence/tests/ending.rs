//! The end of a proof: whose the last Off is, and how long it all takes.

use coroner_shared::bmc::{MemberFacts, MemberRead};

use super::bmc::{Says, Shows};
use super::rules::proven_between;
use super::world::World;
use crate::phase::EvidenceClass::{FoundOff, HostSilentBmcOn};

fn blade(number: usize) -> MemberFacts {
    let uuid = Some(format!("6d0c1a52-0d8b-4f0e-9a4f-{number:012x}"));
    MemberFacts {
        path: format!("/redfish/v1/Systems/blade-{number}"),
        read: MemberRead::Read { uuid, serial: None },
    }
}

#[test]
fn a_fence_is_as_quick_as_was_promised() {
    // Milliseconds from the order to the proposed proof, as the virtual BMC spends one answer's time per request of the
    // real driver. Page 1 promises 8 s at 50 ms; 11 s at 500 ms, and 17 s there if ForceOff is refused; each including
    // the last read and the taint, two answers and a commit more.
    let table = [
        (50, FoundOff, Says::Accepted, 0, 4450),
        (50, HostSilentBmcOn, Says::Accepted, 0, 4950),
        (50, FoundOff, Says::Refused, 0, 10_450),
        (500, FoundOff, Says::Accepted, 0, 8550),
        (500, HostSilentBmcOn, Says::Accepted, 0, 8550),
        (500, FoundOff, Says::Refused, 0, 14_050),
        // A chassis with eight blades.
        (50, FoundOff, Says::Accepted, 7, 4800),
        (50, HostSilentBmcOn, Says::Accepted, 7, 5300),
    ];
    for (latency, class, says, further, most) in table {
        let what = format!("{latency} ms, {class:?}, {says:?}, {further} more members");
        let world = World::new(class)
            .with(|w| {
                w.bmc.latency_ms = latency;
                w.bmc.says = says;
                w.bmc.more_members = (0..further).map(blade).collect();
            })
            .run();
        let proven = world.proven_at().unwrap();
        assert!(proven <= most, "{what}: {proven} ms, {:?}", world.steps);
    }
}

/// The steps over the second session.
fn over_the_second(world: &World) -> Vec<&'static str> {
    world.steps.iter().copied().filter(|step| *step == "open" || step.ends_with("-new")).collect()
}

#[test]
fn the_last_off_says_itself_whose_it_is_or_identity_is_read_after_it() {
    let world = World::new(HostSilentBmcOn).run();
    assert_eq!(over_the_second(&world), ["open", "identify-new", "read-new"]);
    // A body without a UUID; another session than the one that was identified; no session at all.
    let without = World::new(HostSilentBmcOn).with(|w| w.bmc.readings_without_uuid = true).run();
    let moved = World::new(HostSilentBmcOn).with(|w| w.bmc.second_session_moves = true).run();
    for world in [without, moved] {
        assert_eq!(over_the_second(&world), ["open", "identify-new", "read-new", "identify-new"]);
        proven_between(&world, 4500, 5500);
    }
    let basic = World::new(HostSilentBmcOn)
        .with(|w| {
            w.bmc.shows = Shows::Nothing;
            w.order.steady = false;
        })
        .run();
    assert_eq!(over_the_second(&basic), ["open", "identify-new", "read-new", "identify-new"]);
    proven_between(&basic, 30_000, 32_000);
}
