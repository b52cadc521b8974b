//! One test per rule of the protocol, each able to fail.

use coroner_shared::bmc::{CommandAnswer, Login, MemberFacts, MemberRead, Power};
use coroner_shared::machine_id::Transform;
use coroner_shared::time::Span;

use super::bmc::{Says, Shows, Tells};
use super::world::{Fate, World, ordered, refused};
use crate::command::{Command, Outcome};
use crate::fence::Ended;
use crate::phase::EvidenceClass::{FoundOff, HostSilentBmcOn};

pub(super) fn proven_between(world: &World, from_ms: u64, to_ms: u64) {
    let at = world.proven_at().unwrap_or_else(|| panic!("not proven: {:?} {:?}", world.ended, world.steps));
    assert!((from_ms..=to_ms).contains(&at), "proven at {at} ms: {:?}", world.steps);
}

pub(super) fn nothing_sent(world: &World) {
    assert_eq!(world.sent, [], "{:?}", world.steps);
    assert_eq!(world.bmc.machines[0].commands, 0);
}

#[test]
fn a_silent_host_is_fenced_step_by_step() {
    let world = World::new(HostSilentBmcOn).run();
    let mut steps: Vec<_> = world.steps.iter().copied().filter(|step| *step != "wait").collect();
    steps.dedup();
    assert_eq!(
        steps,
        [
            "look",
            "Intent",
            "identify",
            "read",
            "Attempt",
            "ForceOff",
            "Answer",
            "look",
            "read",
            "open",
            "identify-new",
            "read-new",
            "read",
            "look",
            "Proven",
            "end",
        ]
    );
    proven_between(&world, 4000, 5500);
    let Command::Attempt { number: 1, login: Login::Session(_), was_on: true, .. } =
        world.proposed("Attempt")[0]
    else {
        panic!()
    };
    let Command::Proven { attempt: 1, readings, .. } = world.proposed("Proven")[0] else { panic!() };
    assert!(readings.steady && readings.closing.is_some() && readings.last_over_new_session);
    assert_eq!(readings.command, Some(CommandAnswer::Accepted));
    assert_eq!(world.bmc.machines[0].ended_by_us, [1]);
}

#[test]
fn force_off_goes_also_to_a_machine_found_off() {
    // bmc B01, B02, B14, B31, B32; rem B03, B19: it cancels a power-on under way, and a refusal is fine.
    for (says, from, to) in
        [(Says::Accepted, 4000, 5500), (Says::Refused, 10_000, 11_500), (Says::Unknown, 10_000, 11_500)]
    {
        let world = World::new(FoundOff).with(|w| w.bmc.says = says).run();
        assert_eq!(world.sent.len(), 1, "{says:?}");
        proven_between(&world, from, to);
        assert!(matches!(world.proposed("Attempt")[0], Command::Attempt { was_on: false, .. }));
        assert_eq!(world.bmc.machines[0].ended_by_us, [] as [u32; 0]);
    }
}

#[test]
fn found_off_but_on_is_read_closes_the_intent_and_sends_nothing() {
    let world = World::new(FoundOff).with(|w| w.bmc.machines[0].set(0, true)).run();
    assert_eq!(world.proposed("FoundOnAgain").len(), 1);
    assert!(matches!(world.ended, Some(Ended::Closed { .. })));
    nothing_sent(&world);
    // Nor if the log does not close it: without a first attempt the evidence is gone.
    let outcomes = [("FoundOnAgain", Outcome::Unchanged)];
    let world = World::new(FoundOff)
        .with(|w| {
            w.bmc.machines[0].set(0, true);
            w.outcomes = outcomes.into();
        })
        .run();
    nothing_sent(&world);
}

#[test]
fn found_off_on_a_bmc_that_is_not_steady_waits_for_30_seconds_of_off() {
    let unsteady = |w: &mut World| w.order.steady = false;
    let world = World::new(FoundOff).with(unsteady).run();
    assert!(world.sent[0].1 >= 30_000 && world.sent[0].1 < 31_000, "{:?}", world.sent);
    proven_between(&world, 60_000, 62_000);
    // The replica has read Off for a while already.
    let world = World::new(FoundOff)
        .with(|w| {
            unsteady(w);
            w.order.off_for = Span::from_secs(20);
        })
        .run();
    assert!((10_000..11_000).contains(&world.sent[0].1), "{:?}", world.sent);
    // Anything else than Off begins that anew.
    for fate in [Fate::ReadsFail(true), Fate::SessionsDie, Fate::BmcRestarts(1000, 0)] {
        let world = World::new(FoundOff)
            .with(|w| {
                unsteady(w);
                w.order.off_for = Span::from_secs(20);
                w.fates = vec![(8000, fate.clone()), (12_000, Fate::ReadsFail(false))];
            })
            .run();
        assert!(world.sent[0].1 >= 38_000, "{fate:?}: {:?}", world.sent);
    }
    // On while it waits: nothing is sent.
    let world = World::new(FoundOff)
        .with(|w| {
            unsteady(w);
            w.fates = vec![(25_000, Fate::PowersOn)];
        })
        .run();
    assert_eq!(world.proposed("FoundOnAgain").len(), 1);
    nothing_sent(&world);
}

#[test]
fn offs_that_the_track_read_before_a_restart_do_not_count() {
    let world = World::new(FoundOff)
        .with(|w| {
            w.order.steady = false;
            w.order.off_for = Span::from_secs(29);
            w.bmc.shows = Shows::ResetTime;
            // Between the track's last reading and the fence's first.
            w.fates = vec![(1, Fate::BmcRestarts(0, 0))];
        })
        .run();
    assert!(world.sent[0].1 >= 30_000, "{:?}", world.sent);
}

#[test]
fn a_found_off_machine_that_is_on_after_an_attempt_is_for_the_log_to_judge() {
    // It closes the intent, or (no such edge from an attempt) lets the next attempt go on.
    let world = World::new(FoundOff)
        .with(|w| {
            w.fates = vec![(2000, Fate::PowersOn)];
            w.outcomes = [("FoundOnAgain", refused())].into();
        })
        .run();
    assert_eq!(world.proposed("FoundOnAgain").len(), 1);
    assert_eq!(world.sent.len(), 2);
    assert!(world.proven_at().is_some());
    let world = World::new(FoundOff).with(|w| w.fates = vec![(2000, Fate::PowersOn)]).run();
    assert_eq!((world.proposed("FoundOnAgain").len(), world.sent.len()), (1, 1));
}

#[test]
fn identity_that_refuses_sends_nothing_and_disables_the_binding() {
    let rows: &[(&str, Option<&str>)] = &[
        ("Mismatch", Some("7a3c9e10-b2d4-11ee-8c4f-021122334455")),
        ("Ambiguous", Some("33221100-5544-7766-8899-aabbccddeeff")),
        ("NoIdentity", Some("00000000-0000-0000-0000-000000000000")),
        ("NoIdentity", Some("")),
        ("NoIdentity", None),
    ];
    for (verdict, uuid) in rows {
        let world =
            World::new(HostSilentBmcOn).with(|w| w.bmc.uuid_says = Some(uuid.map(str::to_owned))).run();
        nothing_sent(&world);
        assert_eq!(world.proposed("Attempt").len(), 0);
        let Command::Stalled { why, disable_binding: true, .. } = world.proposed("Stalled")[0] else {
            panic!()
        };
        assert!(why.starts_with(verdict), "{why}");
        // Tried again with back-off: 30 s, 60 s, 2, 4 min.
        let tried: Vec<_> = world.at("Stalled").windows(2).map(|t| (t[1] - t[0]) / 10_000).collect();
        assert_eq!(tried[..2], [3, 6], "{:?}", world.at("Stalled"));
    }
    // The byte order is the pinned one, and the machine that of the incarnation.
    let world = World::new(HostSilentBmcOn).with(|w| w.order.pin.transform = Transform::Wire).run();
    nothing_sent(&world);
    let other = "7a3c9e10-b2d4-11ee-8c4f-021122334455";
    let world =
        World::new(HostSilentBmcOn).with(|w| w.order.incarnation.machine = other.parse().unwrap()).run();
    nothing_sent(&world);
}

#[test]
fn another_member_that_cannot_be_read_does_not_stop_a_fence_and_a_second_match_does() {
    let other = |read| MemberFacts { path: "/redfish/v1/Systems/2".to_owned(), read };
    let unreadable = other(MemberRead::Unreadable { why: "HTTP 503".to_owned() });
    let twin = other(MemberRead::Read { uuid: Some(super::bmc::P.to_owned()), serial: None });
    let world = World::new(HostSilentBmcOn).with(|w| w.bmc.more_members = vec![unreadable]).run();
    assert!(world.proven_at().is_some());
    let world = World::new(HostSilentBmcOn).with(|w| w.bmc.more_members = vec![twin]).run();
    nothing_sent(&world);
}

#[test]
fn an_answer_is_never_off_and_is_never_repeated_blindly() {
    // bmc B20, B34, B35; rem B02, B36: accepted, refused or unknown, the machine stays on.
    for says in [Says::Accepted, Says::Refused, Says::Unknown] {
        let world = World::new(HostSilentBmcOn)
            .with(|w| {
                w.bmc.says = says;
                w.bmc.acts = false;
            })
            .run();
        assert_eq!(world.proposed("Proven").len(), 0, "{says:?}");
        let gaps: Vec<_> = world.sent.windows(2).map(|s| (s[1].1 - s[0].1) / 1000).collect();
        assert_eq!(gaps.len(), 4, "{gaps:?}");
        for (gap, want) in gaps.iter().zip([30, 60, 120, 240]) {
            assert!((want..want + 3).contains(gap), "{gaps:?}");
        }
        // Each send has its own attempt, and reads the state before.
        assert_eq!(world.proposed("Attempt").len(), world.sent.len());
        for at in world.steps.iter().enumerate().filter(|(_, s)| **s == "Attempt").map(|(at, _)| at) {
            assert!(world.steps[..at].iter().rev().take(4).any(|s| *s == "read"), "{:?}", world.steps);
        }
    }
}

#[test]
fn the_back_off_ends_at_five_minutes_and_goes_on_for_ever() {
    let world = World::new(HostSilentBmcOn)
        .with(|w| {
            w.bmc.acts = false;
            w.until_ms = 60 * 60_000;
            // rem B06: stuck on, then it heals.
            w.fates = vec![(50 * 60_000, Fate::Acts(true))];
        })
        .run();
    let gaps: Vec<_> = world.sent.windows(2).map(|s| (s[1].1 - s[0].1) / 1000).collect();
    assert!(gaps[4..].iter().all(|gap| (300..303).contains(gap)), "{gaps:?}");
    assert!(world.proven_at().is_some());
    assert_eq!(world.at("Stalled").len(), 1, "said once");
    assert!((180_000..183_000).contains(&world.at("Stalled")[0]));
}

#[test]
fn only_the_exact_off_counts() {
    let powers =
        [Power::PoweringOff, Power::PoweringOn, Power::Paused, Power::Other("Unknown".to_owned()), Power::On];
    for power in powers {
        let world = World::new(HostSilentBmcOn).with(|w| w.bmc.tells = Tells::Always(power.clone())).run();
        assert_eq!(world.proposed("Proven").len(), 0, "{power:?}");
        assert!(!world.at("Stalled").is_empty(), "it is visible");
    }
    // rem B04: for ever between two states.
    let world = World::new(HostSilentBmcOn).with(|w| w.bmc.tells = Tells::StuckPoweringOff).run();
    assert_eq!(world.proposed("Proven").len(), 0);
}

#[test]
fn the_span_is_the_row_of_the_table() {
    let world = World::new(HostSilentBmcOn).with(|w| w.order.steady = false).run();
    proven_between(&world, 30_000, 32_000);
    let cached = World::new(HostSilentBmcOn)
        .with(|w| {
            w.order.cached = true;
            w.bmc.tells = Tells::Old(55_000);
        })
        .run();
    proven_between(&cached, 60_000 + 55_000, 120_000);
    let basic = World::new(HostSilentBmcOn).with(|w| w.bmc.shows = Shows::Nothing).run();
    proven_between(&basic, 30_000, 32_000);
    assert!(matches!(basic.proposed("Attempt")[0], Command::Attempt { login: Login::Basic, .. }));
    let reset = World::new(HostSilentBmcOn).with(|w| w.bmc.shows = Shows::ResetTime).run();
    proven_between(&reset, 4000, 5500);
    let Command::Proven { readings, .. } = reset.proposed("Proven")[0] else { panic!() };
    assert_eq!(readings.closing, None, "the reset time shows it");
    let single = World::new(HostSilentBmcOn).with(|w| w.bmc.single_session = true).run();
    proven_between(&single, 30_000, 42_000);
}

#[test]
fn a_machine_that_is_heard_gets_no_command_unless_by_order_or_as_a_second_writer() {
    let beating = |w: &mut World| w.fates = (0..2400).map(|n| (n * 250, Fate::Heard)).collect();
    nothing_sent(&World::new(HostSilentBmcOn).with(beating).run());
    // Before the first attempt even one sign, long ago by now, is a reprieve on its way.
    let once = World::new(HostSilentBmcOn)
        .with(|w| {
            w.fates = vec![(3, Fate::Heard)];
            w.look_ms = 2;
        })
        .run();
    nothing_sent(&once);
    nothing_sent(&World::new(HostSilentBmcOn).with(|w| w.fates = vec![(3, Fate::LeaseMoves)]).run());
    // Heard after the attempt: no retry while it is, and again once it is silent.
    let retried = World::new(HostSilentBmcOn)
        .with(|w| {
            w.bmc.acts = false;
            w.fates = (0..400).map(|n| (10_000 + n * 250, Fate::Heard)).collect();
        })
        .run();
    assert!(retried.sent[1].1 >= 110_000 + 2750, "{:?}", retried.sent);
    for (class, re_fence) in [(ordered(), false), (HostSilentBmcOn, true)] {
        let world = World::new(class)
            .with(|w| {
                w.order.re_fence = re_fence;
                // Alive until the command has its effect, 300 ms after it.
                w.fates = (0..8).map(|n| (n * 50, Fate::Heard)).collect();
            })
            .run();
        assert_eq!(world.sent.len(), 1);
        assert!(world.proven_at().is_some(), "{:?}", world.steps);
    }
}

#[test]
fn nothing_is_sent_while_paused_and_off_is_still_proven_by_the_long_row() {
    let world = World::new(FoundOff).with(|w| w.order.paused = true).run();
    nothing_sent(&world);
    assert!(matches!(world.proposed("Intent")[0], Command::Intent { read_only: true, .. }));
    proven_between(&world, 30_000, 32_000);
    let Command::Proven { attempt: 0, readings, .. } = world.proposed("Proven")[0] else { panic!() };
    assert_eq!(readings.command, None);
    // On: it is read for ever, and sent to once the pause ends.
    let world = World::new(HostSilentBmcOn)
        .with(|w| {
            w.order.paused = true;
            w.fates = vec![(100_000, Fate::Paused(false))];
        })
        .run();
    assert!((100_000..106_000).contains(&world.sent[0].1), "{:?}", world.sent);
    // A pause between the attempt's commit and the command.
    let world = World::new(HostSilentBmcOn)
        .with(|w| {
            w.commit_ms = 200;
            w.fates = vec![(450, Fate::Paused(true))];
        })
        .run();
    assert_eq!(world.proposed("Attempt").len(), 1);
    nothing_sent(&world);
}

#[test]
fn a_new_leader_deletes_the_predecessors_session_and_begins_a_new_attempt() {
    let world = World::new(HostSilentBmcOn).with(|w| w.succeeds(3)).run();
    assert_eq!(world.bmc.deleted, ["/redfish/v1/Sessions/predecessor"]);
    let (delete, force) = (
        world.steps.iter().position(|s| *s == "delete").unwrap(),
        world.steps.iter().position(|s| *s == "ForceOff").unwrap(),
    );
    assert!(delete < force && world.steps.iter().position(|s| *s == "identify").unwrap() < delete);
    assert_eq!(world.sent[0].0, 4);
    assert_eq!(world.at("Intent"), [] as [u64; 0]);
    // At a BMC that is not this machine's nothing is deleted either.
    let wrong = World::new(HostSilentBmcOn)
        .with(|w| {
            w.succeeds(3);
            w.bmc.uuid_says = Some(Some(super::bmc::OTHER.to_owned()));
        })
        .run();
    assert_eq!(wrong.bmc.deleted, [] as [String; 0]);
}

#[test]
fn a_look_alone_tells_of_life_and_of_a_pause() {
    let untold =
        |fates: Vec<(u64, Fate)>| World::new(HostSilentBmcOn).with(|w| (w.notes, w.fates) = (false, fates));
    nothing_sent(&untold((0..2400).map(|n| (n * 250, Fate::Heard)).collect()).run());
    nothing_sent(&untold(vec![(0, Fate::LeaseMoves)]).run());
    nothing_sent(&untold(vec![(0, Fate::Paused(true))]).run());
    // Heard while Off is read: the look before the proof tells.
    let world = untold(vec![(3000, Fate::Heard)]).run();
    assert!(matches!(world.proposed("Stalled")[0], Command::Stalled { disable_binding: true, .. }));
}

#[test]
fn still_on_is_said_only_of_a_heard_machine_twenty_seconds_after_the_attempt() {
    let beating = |from: u64| (0..2000).map(move |n| (from + n * 250, Fate::Heard));
    let world = World::new(HostSilentBmcOn)
        .with(|w| {
            w.bmc.acts = false;
            w.fates = beating(5000).collect();
        })
        .run();
    let said = world.at("StillOn");
    assert!((20_000..23_000).contains(&said[0]), "{said:?}");
    assert!(said.windows(2).all(|t| t[1] - t[0] >= 5000), "{said:?}");
    assert!(world.proposed("StillOn").iter().all(|c| matches!(c, Command::StillOn { read: true, .. })));
    let silent = World::new(HostSilentBmcOn).with(|w| w.bmc.acts = false).run();
    assert_eq!(silent.at("StillOn"), [] as [u64; 0]);
    // The BMC says nothing for 10 min.
    let mute = World::new(HostSilentBmcOn)
        .with(|w| {
            w.until_ms = 20 * 60_000;
            w.bmc.acts = false;
            w.fates = (0..4000).map(|n| (5000 + n * 250, Fate::Heard)).collect();
            w.fates.push((3000, Fate::BmcRestarts(60 * 60_000, 0)));
        })
        .run();
    let said = mute.at("StillOn");
    assert!((600_000..640_000).contains(&said[0]), "{said:?}");
    assert!(mute.proposed("StillOn").iter().all(|c| matches!(c, Command::StillOn { read: false, .. })));
}

#[test]
fn reading_again_proposes_nothing_and_sends_nothing() {
    let again = |w: &mut World| {
        w.order.again = true;
        w.bmc.machines[0].set(0, false);
    };
    let world = World::new(HostSilentBmcOn).with(again).run();
    assert!(matches!(world.ended, Some(Ended::OffAgain { .. })), "{:?}", world.ended);
    assert!(world.log.is_empty());
    assert!((30_000..32_000).contains(&(world.now - super::world::BEGIN)));
    let on = World::new(HostSilentBmcOn).with(|w| w.order.again = true).run();
    assert_eq!(on.ended, Some(Ended::OnAgain));
    let wrong = World::new(HostSilentBmcOn)
        .with(|w| {
            again(w);
            w.bmc.uuid_says = Some(None);
        })
        .run();
    assert!(matches!(wrong.ended, Some(Ended::Closed { .. })));
    let mute = World::new(HostSilentBmcOn)
        .with(|w| {
            again(w);
            w.order.last_attempt = 3;
            w.until_ms = 20 * 60_000;
            w.fates = (0..4000).map(|n| (n * 250, Fate::Heard)).collect();
            w.fates.push((0, Fate::BmcRestarts(60 * 60_000, 0)));
        })
        .run();
    assert!(on.log.is_empty() && wrong.log.is_empty() && mute.log.is_empty());
}
