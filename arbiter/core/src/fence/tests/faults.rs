//! Faults at every point of a fence, and BMCs that lie. What must never happen is in `world`: a proof of a machine that
//! runs, a command to another machine, one boot ended twice.

use coroner_shared::bmc::Power;

use super::bmc::{Says, Shows, Tells};
use super::world::{Fate, World, ordered};
use crate::command::Command;
use crate::fence::Ended;
use crate::phase::EvidenceClass::{FoundOff, HostSilentBmcOn};

const SHOWS: [Shows; 3] = [Shows::Session, Shows::ResetTime, Shows::Nothing];

#[test]
fn a_bmc_that_restarts_at_any_time_and_says_off_proves_nothing_of_a_running_host() {
    // bmc B50, derived from three restarts in the field: Off from defaults before the hardware was looked at.
    for shows in SHOWS {
        for at in (0..7000).step_by(50) {
            for (down, lies) in [(0, 25_000), (5000, 20_000), (90_000, 25_000)] {
                let world = World::new(HostSilentBmcOn)
                    .with(|w| {
                        w.bmc.shows = shows;
                        w.bmc.acts = false;
                        w.until_ms = 180_000;
                        w.fates = vec![(at, Fate::BmcRestarts(down, lies))];
                    })
                    .run();
                assert_eq!(world.proven_at(), None, "{shows:?} at {at}, {down} {lies}");
            }
        }
    }
}

#[test]
fn a_restart_that_only_the_reset_time_tells_of_is_a_restart() {
    for at in (0..7000).step_by(50) {
        let world = World::new(HostSilentBmcOn)
            .with(|w| {
                w.bmc.shows = Shows::ResetTime;
                w.bmc.sessions_survive = true;
                w.bmc.acts = false;
                w.until_ms = 60_000;
                w.fates = vec![(at, Fate::BmcRestarts(0, 25_000))];
            })
            .run();
        assert_eq!(world.proven_at(), None, "{at}");
    }
}

#[test]
fn a_restart_in_the_middle_of_a_proof_costs_the_long_row() {
    for shows in [Shows::Session, Shows::ResetTime] {
        for at in (600..4300).step_by(50) {
            let world = World::new(HostSilentBmcOn)
                .with(|w| {
                    w.bmc.shows = shows;
                    w.fates = vec![(at, Fate::BmcRestarts(0, 0))];
                })
                .run();
            let proven = world.proven_at().unwrap();
            // In the last moments the proof may be complete already.
            assert!(proven >= 30_000 + at || (at > 4000 && proven < 5500), "{shows:?} at {at}: {proven}");
        }
    }
}

#[test]
fn another_bmc_at_the_address_gets_no_command_and_proves_nothing() {
    // bmc D23; rem A19: the address moves between two requests, at each possible point.
    for acts in [true, false] {
        for after in 0..30 {
            let world = World::new(HostSilentBmcOn)
                .with(|w| {
                    w.bmc.acts = acts;
                    w.bmc.machines[1].set(super::world::BEGIN, false);
                    w.until_ms = 120_000;
                    w.after_requests = Some((after, Fate::Swap));
                })
                .run();
            if let Some(proven) = world.proven_at() {
                assert!(acts, "{after}: proven at {proven}");
                continue;
            }
            let stalled = world.proposed("Stalled");
            let mismatch = |why: &str| why.starts_with("Mismatch");
            let disabled = stalled
                .iter()
                .any(|c| matches!(c, Command::Stalled { why, disable_binding: true, .. } if mismatch(why)));
            assert!(disabled, "{after}: {stalled:?}");
        }
    }
}

#[test]
fn a_body_that_speaks_of_another_machine_ends_a_proof_at_any_reading() {
    for after in 3..16 {
        let world = World::new(HostSilentBmcOn)
            .with(|w| {
                w.until_ms = 60_000;
                w.after_requests = Some((after, Fate::SaysOther));
            })
            .run();
        if world.proven_at().is_some() {
            // Everything had been read by then.
            let after_last = world.steps.iter().rposition(|s| *s == "look").unwrap();
            let requests = world.steps[..after_last].iter().filter(|s| {
                s.starts_with("read") || s.starts_with("identify") || **s == "open" || **s == "ForceOff"
            });
            assert!(requests.count() <= usize::try_from(after).unwrap(), "{after}: {:?}", world.steps);
        } else {
            assert!(!world.proposed("Stalled").is_empty(), "{after}");
        }
    }
}

#[test]
fn a_session_that_dies_at_any_time_is_made_anew_and_identified_anew() {
    for after in 0..25 {
        let world =
            World::new(HostSilentBmcOn).with(|w| w.after_requests = Some((after, Fate::SessionsDie))).run();
        assert!(world.proven_at().is_some(), "{after}: {:?}", world.steps);
        assert_eq!(world.bmc.machines[0].ended_by_us, [1], "{after}");
        for (at, _) in world.steps.iter().enumerate().filter(|(_, step)| **step == "ForceOff") {
            let identified = world.steps[..at].iter().rposition(|s| *s == "identify");
            assert!(identified.is_some());
        }
    }
}

#[test]
fn readings_that_flap_prove_nothing() {
    // rem B34, bmc B47: one reading falls into the off phase of a reset.
    for ms in [500, 1000, 2000, 3000, 5000] {
        for (class, steady) in [(HostSilentBmcOn, true), (HostSilentBmcOn, false), (ordered(), true)] {
            let world = World::new(class)
                .with(|w| {
                    w.order.steady = steady;
                    w.bmc.tells = Tells::Flaps(ms);
                    w.bmc.acts = false;
                    // Off for 5 s on end would pass the row of 4 s: a BMC that is steady, accepts, and tells that of a
                    // machine that runs is beyond what readings can find out.
                    w.bmc.says = if ms > 3000 { Says::Unknown } else { Says::Accepted };
                })
                .run();
            assert_eq!(world.proven_at(), None, "{ms} {steady}");
        }
    }
}

#[test]
fn a_machine_that_comes_back_by_itself_is_not_proven_off_while_it_is_on() {
    // rem B27, B35; bmc B13, B40: power is restored 0.5 to 30 s after it was cut.
    for (steady, says) in [(true, Says::Accepted), (true, Says::Unknown), (false, Says::Accepted)] {
        for after in (500..32_000).step_by(250) {
            let world = World::new(HostSilentBmcOn)
                .with(|w| {
                    w.order.steady = steady;
                    w.bmc.says = says;
                    w.fates = vec![(500 + after, Fate::PowersOn)];
                })
                .run();
            assert!(world.proven_at().is_some(), "after {after}");
        }
    }
}

#[test]
fn errors_are_never_off_and_never_repeat_a_command() {
    // rem B20, B24: it cannot be read for a while, from any point on.
    for from in (0..5000).step_by(100) {
        let world = World::new(HostSilentBmcOn)
            .with(|w| w.fates = vec![(from, Fate::ReadsFail(true)), (from + 40_000, Fate::ReadsFail(false))])
            .run();
        let proven = world.proven_at().unwrap();
        assert!(proven < 5500 || proven > from + 40_000 + 30_000, "{from}: {proven}");
        assert_eq!(world.sent.len(), 1, "{from}");
    }
    let never = World::new(HostSilentBmcOn).with(|w| w.bmc.fail_reads = true).run();
    assert_eq!((never.proven_at(), never.sent.len()), (None, 0));
    assert!(matches!(never.proposed("Stalled")[0], Command::Stalled { disable_binding: false, .. }));
    let gone = World::new(FoundOff).with(|w| w.fates = vec![(0, Fate::BmcRestarts(3_600_000, 0))]).run();
    assert_eq!(gone.proven_at(), None, "bmc D16, rem B10: unreachable is not off");
}

#[test]
fn off_while_the_node_is_heard_is_a_contradiction() {
    // bmc D32, page 3: the mapping is wrong, or the BMC lies.
    for at in (1000..4700).step_by(100) {
        let world = World::new(HostSilentBmcOn).with(|w| w.fates = vec![(at, Fate::Heard)]).run();
        let Command::Stalled { why, disable_binding, .. } = world.proposed("Stalled")[0] else { panic!() };
        assert!(why.contains("heard") && *disable_binding, "{at}: {why}");
        // Silent since, and Off since: proven once it was read anew, after the back-off.
        assert!(world.proven_at().unwrap() > at + 30_000, "{at}");
    }
    for at in (1000..4700).step_by(100) {
        let world = World::new(HostSilentBmcOn).with(|w| w.fates = vec![(at, Fate::LeaseMoves)]).run();
        let Command::Stalled { why, disable_binding, .. } = world.proposed("Stalled")[0] else { panic!() };
        assert!(why.contains("Lease") && !disable_binding, "{at}: {why}");
    }
    // It goes on being heard: never proven, whoever ordered it.
    for (class, re_fence) in [(HostSilentBmcOn, false), (ordered(), false), (FoundOff, true)] {
        let world = World::new(class)
            .with(|w| {
                w.order.re_fence = re_fence;
                w.bmc.tells = Tells::Always(Power::Off);
                w.bmc.acts = false;
                w.bmc.machines[0].set(0, true);
                w.fates = (0..1000).map(|n| (1000 + n * 250, Fate::Heard)).collect();
                w.until_ms = 240_000;
            })
            .run();
        assert_eq!(world.proven_at(), None);
        let stalled = world.proposed("Stalled");
        assert!(
            stalled.iter().any(|c| matches!(c, Command::Stalled { disable_binding: true, .. })),
            "{stalled:?}"
        );
    }
}

#[test]
fn a_node_fenced_alive_may_be_seen_a_moment_longer() {
    // A last beacon and a lagging watch: the readings begin anew, nothing is disabled.
    for class in [ordered(), HostSilentBmcOn] {
        let re_fence = class == HostSilentBmcOn;
        let world = World::new(class)
            .with(|w| {
                w.order.re_fence = re_fence;
                w.fates = vec![(1000, Fate::Heard), (2500, Fate::LeaseMoves)];
            })
            .run();
        assert!(world.proposed("Stalled").is_empty());
        assert!((6500..8500).contains(&world.proven_at().unwrap()), "{:?}", world.proven_at());
    }
    // A Lease that goes on moving is a contradiction.
    let world = World::new(ordered())
        .with(|w| w.fates = (0..100).map(|n| (1000 + n * 1000, Fate::LeaseMoves)).collect())
        .run();
    assert!(matches!(world.proposed("Stalled")[0], Command::Stalled { disable_binding: true, .. }));
}

#[test]
fn steadiness_found_again_counts_for_readings_that_begin_after_it() {
    // Stuck on for a while, the session replaced on the way, then steady again and off.
    let world = World::new(HostSilentBmcOn)
        .with(|w| {
            w.bmc.acts = false;
            w.fates =
                vec![(5000, Fate::SessionsDie), (130_000, Fate::SteadyAgain), (131_000, Fate::PowersOff)];
        })
        .run();
    assert!(world.proven_at().unwrap() < 137_000, "{:?}", world.proven_at());
    let lost = World::new(HostSilentBmcOn).with(|w| w.fates = vec![(2500, Fate::Unsteady)]).run();
    assert!(lost.proven_at().unwrap() >= 32_500, "readings begin anew, and are long");
    let told_late = World::new(HostSilentBmcOn)
        .with(|w| {
            w.order.steady = false;
            w.fates = vec![(2000, Fate::SteadyAgain)];
        })
        .run();
    assert!(told_late.proven_at().unwrap() >= 30_000, "readings under way end by their own row");
}

#[test]
fn steadiness_found_among_readings_counts_for_those_after_them() {
    // A chassis gives power back after 20 s, too early for the long row. The track says once, while Off is read, that
    // the BMC is steady.
    let powered_again = |fates: &[(u64, Fate)]| {
        let world = World::new(HostSilentBmcOn)
            .with(|w| {
                w.order.steady = false;
                w.fates = [fates, &[(20_000, Fate::PowersOn)]].concat();
            })
            .run();
        assert_eq!(world.sent.len(), 2, "{:?}", world.steps);
        world.proven_at().unwrap()
    };
    let told = (10_000, Fate::SteadyAgain);
    let short = powered_again(std::slice::from_ref(&told));
    assert!((34_000..40_000).contains(&short), "by the row of a steady BMC: {short}");
    for lost in [(12_000, Fate::Unsteady), (12_000, Fate::SessionsDie)] {
        let long = powered_again(&[told.clone(), lost.clone()]);
        assert!(long >= 60_000, "what was lost since does not count: {lost:?}, {long}");
    }
    let elsewhere = powered_again(&[(10_000, Fate::SteadyElsewhere)]);
    assert!(elsewhere >= 60_000, "another session says nothing of this one: {elsewhere}");
}

#[test]
fn steadiness_found_among_readings_is_lost_with_a_gap_among_them() {
    // As above, and one answer takes 40 s: the readings hang together no more, whatever the track said before.
    let world = World::new(HostSilentBmcOn)
        .with(|w| {
            w.order.steady = false;
            w.fates = vec![
                (10_000, Fate::SteadyAgain),
                (11_000, Fate::Answers(40_000)),
                (12_000, Fate::Answers(50)),
                (20_000, Fate::PowersOn),
            ];
        })
        .run();
    assert_eq!(world.sent.len(), 2, "{:?}", world.steps);
    assert!(
        world.proven_at().unwrap() >= world.sent[1].1 + 30_000,
        "{:?} {:?}",
        world.sent,
        world.proven_at()
    );
}

#[test]
fn a_second_session_that_cannot_be_opened_says_nothing_of_a_restart() {
    let world = World::new(HostSilentBmcOn)
        .with(|w| w.fates = vec![(0, Fate::NoSecondSession(true)), (6000, Fate::NoSecondSession(false))])
        .run();
    assert!(world.proven_at().unwrap() < 20_000, "{:?} {:?}", world.proven_at(), world.steps);
}

#[test]
fn a_fence_that_is_no_longer_wanted_ends_before_and_after_the_command() {
    for at in (0..4000).step_by(100) {
        let world = World::new(HostSilentBmcOn)
            .with(|w| {
                w.bmc.acts = false;
                w.fates = vec![(at, Fate::Unwanted)];
            })
            .run();
        assert!(matches!(world.ended, Some(Ended::Closed { .. })), "{at}");
        assert!(world.sent.iter().all(|(_, sent)| *sent <= at + 500), "{at}: {:?}", world.sent);
    }
}
