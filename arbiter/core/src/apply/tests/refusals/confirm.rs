//! When a person's word that a machine is off is not taken.

use crate::apply::tests::world::{World, boot, name, policy, secs, uid};
use crate::command::{Command, Outcome};
use crate::hears::Hears;
use crate::policy::Mode;

#[test]
fn confirmations_are_refused_by_name() {
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    let good = w.confirm(1);
    let change = |with: fn(&mut crate::phase::Confirmation)| {
        let mut command = good.clone();
        if let Command::ConfirmOff { confirmation, .. } = &mut command {
            with(confirmation);
        }
        command
    };
    w.refused("OtherIncident", change(|c| c.incident = "n1-ffffffff".to_owned().into()));
    w.refused("OtherIncident", change(|c| c.node = uid(2)));
    w.refused("OtherIncident", change(|c| c.boot = boot(1, 9)));
    let hearing = |hears: Hears| {
        let mut command = good.clone();
        if let Command::ConfirmOff { heard, .. } = &mut command {
            *heard = hears;
        }
        command
    };
    w.refused("Heard", hearing(Hears::Node));
    w.refused("ShowsLife", hearing(Hears::Kubelet));
    let not_yet = hearing(Hears::NotYet { ask_again: secs(4) });
    let Outcome::Refused(refusal) = w.say(not_yet) else { panic!("a leader of a second ago knows nothing") };
    assert_eq!(refusal.reason, "NotListenedYet");
    assert!(refusal.message.starts_with("n1: nobody has been heard"), "{}", refusal.message);
    assert!(refusal.message.ends_with("Ask again in 4 s."), "{}", refusal.message);
    w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
    w.refused("Observe", good.clone());
    let mut back = policy(Mode::Enforce);
    back.hash = "back".to_owned();
    w.done(Command::PolicySet(Box::new(back)));
    w.new_boot(1);
    w.done(w.registration(1));
    w.refused("Heard", good.clone());
    let Command::ConfirmOff { confirmation, .. } = good else { panic!() };
    w.refused(
        "NothingToConfirm",
        Command::ConfirmOff { node: name(2), confirmation: confirmation.clone(), heard: Hears::Silence },
    );
    w.refused("UnknownNode", Command::ConfirmOff { node: name(99), confirmation, heard: Hears::Silence });
}

#[test]
fn a_confirmation_expires_after_a_quarter_of_an_hour_and_can_be_given_again() {
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    w.done(w.confirm(1));
    w.wait(secs(15 * 60));
    assert_eq!(w.say(w.release_begun(1)), Outcome::Done, "at 15 minutes it is still worth something");
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    w.done(w.confirm(1));
    w.wait(secs(15 * 60 + 1));
    w.refused("ConfirmationExpired", w.release_begun(1));
    w.done(w.confirm(1));
    w.done(w.release_begun(1));
}

#[test]
fn a_confirmation_is_void_on_any_sign_of_life() {
    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).bmc_silent())));
    w.done(w.confirm(1));
    w.done(Command::LeaseMoved { node: name(1) });
    w.refused("LeaseMoved", w.release_begun(1));
    w.wait(secs(10));
    w.refused("ShowsLife", w.confirm(1));
    w.wait(secs(1));
    w.done(w.confirm(1));
    w.done(w.heard(1));
    assert_eq!(w.stands(1), "Alive");
}

#[test]
fn a_person_is_not_believed_against_a_kubelet_or_a_kernel_that_answers() {
    let mut w = World::new(5);
    let mut view = w.view(1).bmc_silent();
    view.lease.changed_ago = Some(secs(3));
    w.done(Command::Judge(Box::new(view)));
    assert_eq!(w.stands(1), "Held:KubeletAlive");
    w.refused("ShowsLife", w.confirm(1));

    let mut w = World::new(5);
    w.done(Command::Judge(Box::new(w.view(1).answers())));
    assert_eq!(w.stands(1), "Held:HostAnswersOnly");
    w.refused("ShowsLife", w.confirm(1));

    // A kubelet that renews while a fence is under way, and its BMC went silent.
    let mut w = World::new(5);
    w.attempted(1);
    w.done(Command::LeaseMoved { node: name(1) });
    w.wait(secs(10));
    w.refused("ShowsLife", w.confirm(1));
    w.wait(secs(1));
    w.done(w.confirm(1));
}
