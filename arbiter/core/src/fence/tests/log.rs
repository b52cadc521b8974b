//! What the log, a look, or an executor out of step does to a fence.

use coroner_shared::bmc::CommandAnswer;
use coroner_shared::time::Mono;

use super::bmc::Says;
use super::rules::{nothing_sent, proven_between};
use super::world::{Fate, World, refused};
use crate::command::{Command, Outcome};
use crate::fence::{Ended, Fence, FenceEvent, Look, Step};
use crate::phase::EvidenceClass::HostSilentBmcOn;

#[test]
fn a_slow_log_or_an_old_look_sends_nothing_until_a_fresh_one() {
    // The commit takes longer than a look may be old: it is looked at again before the command.
    let world = World::new(HostSilentBmcOn).with(|w| w.commit_ms = 700).run();
    let force = world.steps.iter().position(|s| *s == "ForceOff").unwrap();
    assert_eq!(&world.steps[force - 2..force], ["Attempt", "look"], "{:?}", world.steps);
    assert!(world.proven_at().is_some());
    // Every look is too old when it arrives.
    nothing_sent(&World::new(HostSilentBmcOn).with(|w| w.look_ms = 501).run());
    assert_eq!(World::new(HostSilentBmcOn).with(|w| w.look_ms = 499).run().sent.len(), 1);
}

#[test]
fn nothing_that_the_log_refuses_is_sent() {
    for (what, outcome) in [
        ("Intent", refused()),
        ("Intent", Outcome::Stale),
        ("Attempt", refused()),
        ("Attempt", Outcome::Stale),
        ("Attempt", Outcome::Unchanged),
    ] {
        let world = World::new(HostSilentBmcOn).with(|w| w.outcomes = [(what, outcome.clone())].into()).run();
        nothing_sent(&world);
        let closed = matches!(world.ended, Some(Ended::Closed { .. }));
        assert_eq!(closed, !(what == "Attempt" && outcome == refused()), "{what} {outcome:?}");
    }
    // A refused attempt is asked for again, not at once.
    let world = World::new(HostSilentBmcOn).with(|w| w.outcomes = [("Attempt", refused())].into()).run();
    assert!(world.at("Attempt").windows(2).all(|t| t[1] - t[0] >= 5000));
    let unwanted = World::new(HostSilentBmcOn).with(|w| w.fates = vec![(0, Fate::Unwanted)]).run();
    assert!(matches!(unwanted.ended, Some(Ended::Closed { .. })));
    nothing_sent(&unwanted);
    // An answer that the log does not hold cannot shorten the proof.
    let world = World::new(HostSilentBmcOn).with(|w| w.outcomes = [("Answer", refused())].into()).run();
    proven_between(&world, 10_000, 12_000);
}

#[test]
fn what_certainly_was_not_sent_is_sent_under_the_same_attempt_or_a_later_one() {
    let world = World::new(HostSilentBmcOn).with(|w| w.bmc.says = Says::NotSent).run();
    let tried = world.steps.iter().filter(|s| **s == "ForceOff").count();
    let attempts = world.at("Attempt");
    assert!(tried > attempts.len(), "{tried} {attempts:?}");
    assert!((30_000..33_000).contains(&(attempts[1] - attempts[0])), "{attempts:?}");
    nothing_sent(&world);
}

#[test]
fn a_command_that_came_too_late_costs_a_look_and_nothing_else() {
    // A connection made anew takes longer than a look may be old: looked at again, sent under the same attempt.
    let world = World::new(HostSilentBmcOn).with(|w| w.late_ms = [501, 501].into()).run();
    let calm: Vec<_> = world.steps.iter().copied().filter(|step| *step != "wait").collect();
    let first = calm.iter().position(|step| *step == "ForceOff").unwrap();
    assert_eq!(
        calm[first..first + 6],
        ["ForceOff", "look", "ForceOff", "look", "ForceOff", "Answer"],
        "{calm:?}"
    );
    assert_eq!(world.sent.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1]);
    proven_between(&world, 5000, 6500);
    // Just in time.
    let world = World::new(HostSilentBmcOn).with(|w| w.late_ms = [280].into()).run();
    assert_eq!(world.steps.iter().filter(|step| **step == "ForceOff").count(), 1);
    // The attempt's whole time goes by so: the next attempt comes with the end of its deadline, and the BMC is as
    // steady as it was.
    let world = World::new(HostSilentBmcOn).with(|w| w.late_ms = [600; 9].into()).run();
    assert_eq!(world.sent.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2]);
    let attempts = world.at("Attempt");
    assert!((10_000..12_000).contains(&(attempts[1] - attempts[0])), "{attempts:?}");
    proven_between(&world, 15_000, 17_500);
    // What failed is another matter: the BMC did not answer, and may have restarted.
    let world = World::new(HostSilentBmcOn)
        .with(|w| {
            w.bmc.says = Says::NotSent;
            w.fates = vec![(250, Fate::Says(Says::Accepted))];
        })
        .run();
    assert!(world.proven_at().unwrap() >= 30_000);
}

#[test]
fn people_are_told_why_a_command_could_not_be_sent() {
    let mut world = World::new(HostSilentBmcOn).with(|w| w.bmc.says = Says::NotSent);
    world.until_ms = 200_000;
    let world = world.run();
    let stalled = world.proposed("Stalled");
    let Command::Stalled { why, .. } = stalled[0] else { panic!() };
    assert_eq!(why, "the power command could not be sent: no route");
}

#[test]
fn a_log_that_may_not_have_taken_an_entry_ends_the_fence() {
    let order = World::new(HostSilentBmcOn).order;
    let mut fence = Fence::new(order);
    let now = Mono::from_ms(1000);
    let look = Look { at: now, wanted: true, paused: false, heard: None, lease_moved: None };
    assert_eq!(fence.next(now, FenceEvent::Start), Step::LastLook);
    assert!(matches!(fence.next(now, FenceEvent::Looked(Ok(look))), Step::Commit(_)));
    let lost = FenceEvent::Committed(Err("no longer the leader".to_owned()));
    assert!(matches!(fence.next(now, lost), Step::Ended(Ended::Closed { .. })));
    // And it stays ended.
    assert!(matches!(fence.next(now, FenceEvent::Woke), Step::Ended(Ended::Closed { .. })));
}

#[test]
fn an_event_that_does_not_answer_the_step_ends_the_fence() {
    let mut fence = Fence::new(World::new(HostSilentBmcOn).order);
    let now = Mono::from_ms(1000);
    fence.next(now, FenceEvent::Start);
    let step = fence.next(now, FenceEvent::Answered(CommandAnswer::Accepted));
    assert!(matches!(step, Step::Ended(Ended::Closed { .. })), "{step:?}");
}

#[test]
fn readings_from_before_the_command_do_not_count() {
    // Off is read between an attempt that could not be sent and its sending.
    let world = World::new(HostSilentBmcOn)
        .with(|w| {
            w.bmc.machines[0].set(0, false);
            w.bmc.says = Says::NotSent;
            w.bmc.latency_ms = 400;
            w.fates = vec![(2500, Fate::Says(Says::Accepted))];
        })
        .run();
    assert!(world.proven_at().unwrap() >= world.sent[0].1 + 30_000, "{:?}", world.sent);
}
