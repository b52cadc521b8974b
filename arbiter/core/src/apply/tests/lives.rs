//! What holds over a whole life, across several edges.

mod policies;

use coroner_shared::bmc::CommandAnswer;

use super::edges::{
    Part, another_machine, attempted, held_by_bmc, judge, nothing, pause_all, proven_off, re_fenced,
    released, releasing, returning_released, silent_on, walk,
};
use super::world::{World, machine, name, offs, policy, secs, uid};
use crate::command::{Command, Outcome};
use crate::phase::Phase;
use crate::policy::Mode;

#[test]
fn a_node_is_gone_from_every_phase() {
    let ways: [(&str, Part); 9] = [
        ("Alive", nothing),
        ("Held:BmcSilent", held_by_bmc),
        ("Condemned", silent_on),
        ("Fencing", attempted),
        ("ProvenOff", proven_off),
        ("Releasing", releasing),
        ("Released", released),
        ("Fencing:re-fence", re_fenced),
        ("Returning:released", returning_released),
    ];
    for (from, set) in ways {
        walk(from, from, set, |w| w.done(Command::NodeGone { node: name(1), uid: uid(1) }), "gone");
    }
}

#[test]
fn an_order_is_neither_reprieved_nor_averted() {
    let mut w = World::new(5);
    w.done(w.order(1, "alice"));
    w.done(w.heard(1));
    w.done(Command::LeaseMoved { node: name(1) });
    assert_eq!(w.stands(1), "Condemned");
    w.done(w.intent(1));
    w.done(w.heard(1));
    assert_eq!(w.stands(1), "Fencing");
    w.done(w.attempt(1, 1, true));
    w.wait(secs(90));
    w.refused("NotYet", w.still_on(1));
    assert_eq!(w.stands(1), "Fencing");
}

#[test]
fn an_order_of_a_node_that_is_heard_is_proven_only_once_it_is_silent() {
    let mut w = World::new(5);
    w.done(w.order(1, "alice"));
    w.done(w.intent(1));
    w.done(w.heard(1));
    w.done(w.attempt(1, 1, true));
    w.done(w.answered(1, 1, CommandAnswer::Accepted));
    w.wait(secs(6));
    let off = || offs(1, secs(4), Some(CommandAnswer::Accepted));
    w.refused("Heard", w.proven(1, 1, off()));
    w.done(Command::SilentAgain { node: name(1) });
    // Silent by the leader's word for 3 s now: the readings must have begun after that sign.
    w.refused("Heard", w.proven(1, 1, off()));
    w.wait(secs(1));
    w.done(w.proven(1, 1, off()));
}

#[test]
fn results_of_an_older_attempt_or_incident_change_nothing() {
    let mut w = World::new(5);
    w.attempted(1);
    let (old_attempt, stale_number) = (w.attempt(1, 1, true), w.attempt(1, 5, true));
    let old_answer = w.answered(1, 1, CommandAnswer::Accepted);
    let old_proof = w.proven(1, 1, offs(1, secs(4), Some(CommandAnswer::Accepted)));
    w.done(w.attempt(1, 2, true));
    let state = w.state.clone();
    for late in [old_attempt, stale_number, old_answer, old_proof.clone()] {
        assert_eq!(w.say(late), Outcome::Stale);
    }
    assert_eq!(w.state.nodes, state.nodes);
    assert_eq!(w.state.incidents, state.incidents);
    // Another incident of the same node.
    let of_first = [w.intent(1), w.attempt(1, 3, true), w.still_on(1), w.taint_seen(1), w.confirm(1)];
    w.reboot(1);
    w.wait(secs(40));
    w.done(Command::Returned { node: name(1), incident: w.incident_id(1) });
    w.wait(secs(60));
    w.silent_on(1);
    w.done(w.intent(1));
    let nodes = w.state.nodes.clone();
    for late in of_first.into_iter().take(4).chain([old_proof]) {
        assert_eq!(w.say(late), Outcome::Stale);
    }
    assert_eq!(w.state.nodes, nodes);
}

#[test]
fn attempt_numbers_rise_over_the_whole_incident() {
    let mut w = World::new(5);
    w.released(1);
    w.done(w.heard(1));
    assert_eq!(w.say(w.attempt(1, 1, true)), Outcome::Stale);
    w.done(w.attempt(1, 2, true));
}

#[test]
fn nothing_is_alive_before_the_deadline_of_its_last_attempt_and_ten_seconds() {
    let mut w = World::new(5);
    w.attempted(1);
    w.reboot(1);
    let returned = |w: &World| Command::Returned { node: name(1), incident: w.incident_id(1) };
    let waive = || Command::Return { node: name(1), who: "alice".to_owned(), why: "now".to_owned() };
    w.done(waive());
    w.wait(secs(19));
    w.refused("NotYet", returned(&w));
    w.wait(secs(1));
    w.done(returned(&w));
    assert_eq!(w.stands(1), "Alive");
}

#[test]
fn over_basic_a_node_returns_ten_minutes_after_its_last_attempt() {
    let mut w = World::new(5);
    w.silent_on(1);
    w.done(w.intent(1));
    let mut attempt = w.attempt(1, 1, true);
    if let Command::Attempt { login, .. } = &mut attempt {
        *login = coroner_shared::bmc::Login::Basic;
    }
    w.done(attempt);
    w.reboot(1);
    let returned = |w: &World| Command::Returned { node: name(1), incident: w.incident_id(1) };
    w.wait(secs(599));
    w.refused("NotYet", returned(&w));
    w.wait(secs(1));
    w.done(returned(&w));
}

#[test]
fn a_boot_that_was_left_never_comes_back() {
    let mut w = World::new(5);
    let old = w.registration(1);
    let old_boot = w.boot(1);
    w.reboot(1);
    w.refused("BootLeft", old);
    assert_eq!(w.say(Command::Heard { node: name(1), boot: old_boot, seq: 9 }), Outcome::Stale);
    let mut view = w.view(1).off();
    view.incarnation.boot = old_boot;
    assert_eq!(judge(&mut w, view), Outcome::Stale);
    // Nor does the kubelet's word bring it back.
    w.attempted(1);
    w.change(1, |f| f.boot = Some(old_boot));
    assert_eq!(w.stands(1), "Fencing");
}

#[test]
fn a_new_boot_that_the_kubelet_does_not_confirm_stops_commands_and_ends_nothing() {
    let mut w = World::new(5);
    w.attempted(1);
    w.new_boot(1);
    w.done(w.registration(1));
    w.refused("NewBootSeen", w.attempt(1, 2, true));
    w.wait(secs(5));
    w.refused("NewBootSeen", w.proven(1, 1, offs(1, secs(4), Some(CommandAnswer::Accepted))));
    assert_eq!(w.stands(1), "Fencing");
    let mut w = World::new(5);
    proven_off(&mut w);
    w.new_boot(1);
    w.done(w.registration(1));
    w.refused("NewBootSeen", w.release_begun(1));
    assert_eq!(w.stands(1), "ProvenOff");
}

#[test]
fn a_hold_of_a_life_that_rebooted_is_another_incident() {
    let mut w = World::new(5);
    held_by_bmc(&mut w);
    let old = w.incident_id(1);
    w.new_boot(1);
    w.done(w.registration(1));
    let view = w.view(1).bmc_silent();
    assert_eq!(judge(&mut w, view), Outcome::Unchanged, "the same word");
    let view = w.view(1).off();
    w.done(Command::Judge(Box::new(view)));
    assert_ne!(w.incident_id(1), old);
    assert_eq!(w.incident(1).incarnation.boot, w.boot(1));
    assert_eq!(w.state.incidents[&old].closed.as_ref().unwrap().1, "NewBoot");
}

#[test]
fn a_person_repins_a_board_that_was_changed_on_purpose() {
    let mut w = World::new(5);
    w.attempted(1);
    another_machine(&mut w);
    assert_eq!(w.stands(1), "Held:MachineChanged");
    w.done(Command::Repin { node: name(1), who: "alice".to_owned(), why: "new board".to_owned() });
    let new = w.boot(1);
    w.change(1, |f| {
        f.boot = Some(new);
        f.system_uuid = machine(77).to_string();
    });
    w.wait(secs(10));
    let mut view = w.view(1).alive();
    view.incarnation.machine = machine(77);
    w.done(Command::Judge(Box::new(view)));
    assert_eq!(w.stands(1), "Alive");
    let mut pin = super::world::pin(1);
    pin.machine = machine(77);
    w.done(Command::BindingVerified { node: name(1), hash: "b1".to_owned(), result: Ok(pin) });
    assert!(crate::permit::fenceable(&w.state, &name(1)).is_ok());
}

#[test]
fn after_the_last_read_said_on_an_older_command_shortens_nothing() {
    let mut w = World::new(5);
    proven_off(&mut w);
    w.done(Command::LastReadOn { node: name(1), incident: w.incident_id(1) });
    w.wait(secs(40));
    w.refused("AnswerNotRecorded", w.proven(1, 1, offs(1, secs(4), Some(CommandAnswer::Accepted))));
    w.done(w.proven(1, 1, offs(1, secs(30), None)));
}

#[test]
fn nothing_is_averted_before_the_deadline_of_the_attempt_and_ten_seconds() {
    let mut w = World::new(5);
    let mut quick = policy(Mode::Enforce);
    quick.timings.averted = secs(1);
    w.done(Command::PolicySet(Box::new(quick)));
    w.attempted(1);
    w.done(w.heard(1));
    w.wait(secs(19));
    w.refused("NotYet", w.still_on(1));
    w.wait(secs(1));
    w.done(w.still_on(1));
}

#[test]
fn on_after_a_command_to_a_machine_found_off_asks_for_another_command() {
    let mut w = World::new(5);
    w.found_off(1);
    w.done(w.intent(1));
    w.done(w.attempt(1, 1, false));
    w.refused("NotFoundOff", Command::FoundOnAgain { node: name(1), incident: w.incident_id(1) });
    w.done(w.attempt(1, 2, true));
    // Nor does it concern any other class.
    let mut w = World::new(5);
    w.silent_on(1);
    w.refused("NotFoundOff", Command::FoundOnAgain { node: name(1), incident: w.incident_id(1) });
}

#[test]
fn a_taint_that_nobody_remembers_waits_for_a_new_boot_or_a_person() {
    let orphan = || {
        let mut w = World::new(5);
        w.change(1, |f| f.tainted_by_us = true);
        w.done(w.leftovers_gone(1));
        w.wait(secs(120));
        w
    };
    let removed = |w: &World| Command::TaintRemoved { node: name(1), incident: w.incident_id(1) };
    let mut w = orphan();
    w.refused("NotYet", removed(&w));
    w.done(Command::Return { node: name(1), who: "alice".to_owned(), why: "checked".to_owned() });
    w.done(removed(&w));
    let mut w = orphan();
    w.reboot(1);
    w.wait(secs(30));
    w.done(removed(&w));
    w.change(1, |f| f.tainted_by_us = false);
    w.wait(secs(10));
    w.done(Command::Returned { node: name(1), incident: w.incident_id(1) });
}

#[test]
fn another_machine_under_a_released_node_changes_nothing_but_is_paged() {
    for set in [re_fenced as Part, released] {
        let mut w = World::new(5);
        set(&mut w);
        let before = w.stands(1);
        another_machine(&mut w);
        assert_eq!(w.stands(1), before);
        let pages = crate::pages::standing(&w.state, &name(1), w.node(1));
        assert!(pages.iter().any(|p| p.reason == "MachineChanged"), "{pages:?}");
    }
}

#[test]
fn another_machine_by_the_kubelets_word_alone_ends_a_fence() {
    let mut w = World::new(5);
    attempted(&mut w);
    w.new_boot(1);
    let new = w.boot(1);
    w.change(1, |f| {
        f.boot = Some(new);
        f.system_uuid = machine(77).to_string();
    });
    assert_eq!(w.stands(1), "Held:MachineChanged");
    // One that identifies nothing is no word at all.
    let mut w = World::new(5);
    attempted(&mut w);
    w.change(1, |f| {
        f.boot = Some(new);
        f.system_uuid = "00000000-0000-0000-0000-000000000000".to_owned();
    });
    assert_eq!(w.stands(1), "Fencing");
}

#[test]
fn the_same_boot_on_another_machine_is_no_proof_of_life() {
    let mut w = World::new(5);
    silent_on(&mut w);
    let mut clone = w.registration(1);
    if let Command::Register { machine: of, .. } = &mut clone {
        *of = Ok(machine(77));
    }
    w.done(clone);
    assert_eq!(w.stands(1), "Held:MachineChanged");
}

#[test]
fn what_stands_until_a_node_is_heard_outlasts_a_view_that_decides_nothing() {
    let undecided = |w: &World| {
        let mut view = w.view(1).on();
        view.last_sign.as_mut().unwrap().age = secs(3);
        Command::Judge(Box::new(view))
    };
    let mut w = World::new(10);
    w.done(Command::Judge(Box::new(w.view(1).on().in_a_storm(4))));
    w.wait(secs(10));
    assert_eq!(w.say(undecided(&w)), Outcome::Unchanged);
    assert_eq!(w.stands(1), "Held:Storm");
    let mut w = World::new(5);
    w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
    w.done(Command::PolicySet(Box::new(policy(Mode::Enforce))));
    w.done(Command::Judge(Box::new(w.view(1).off())));
    w.wait(secs(10));
    assert_eq!(w.say(undecided(&w)), Outcome::Unchanged);
    assert_eq!(w.stands(1), "Held:SilentBeforeEnforce");
    // Any other hold ends when nothing holds it any more.
    let mut w = World::new(5);
    held_by_bmc(&mut w);
    w.wait(secs(10));
    w.done(undecided(&w));
    assert_eq!(w.stands(1), "Alive");
}

#[test]
fn a_boot_that_never_registered_is_powered_off_and_released_by_order_alone() {
    let mut w = World::new(5);
    w.boot_without_agent(1);
    let never_heard = w.boot(1);
    // No view speaks of it: neither by silence nor by its BMC's word is it judged.
    assert_eq!(w.say(Command::Judge(Box::new(w.view(1).off()))), Outcome::Stale);
    w.done(w.order(1, "alice"));
    assert_eq!((w.stands(1).as_str(), w.incident(1).incarnation.boot), ("Condemned", never_heard));
    let shown = crate::status::node(&w.state, &name(1)).unwrap();
    assert_eq!(shown.boot, Some(never_heard), "what a confirmation is bound to");
    w.done(w.intent(1));
    w.done(w.attempt(1, 1, true));
    w.done(w.answered(1, 1, CommandAnswer::Accepted));
    w.done(w.proven(1, 1, offs(1, secs(4), Some(CommandAnswer::Accepted))));
    w.done(w.release_begun(1));
    w.change(1, |f| f.tainted_by_us = true);
    assert_eq!(w.stands(1), "Released");
    w.wait(secs(20));
    w.reboot(1);
    assert_eq!(w.stands(1), "Returning:released");
}

#[test]
fn an_order_means_the_boot_that_the_kubelet_speaks_of_though_the_one_before_is_not_over_yet() {
    let mut w = World::new(5);
    w.new_boot(1);
    let boot = w.boot(1);
    w.change(1, |f| f.boot = Some(boot));
    w.done(w.order(1, "alice"));
    assert_eq!((w.stands(1).as_str(), w.incident(1).incarnation.boot), ("Condemned", boot));
    w.done(w.intent(1));
    w.done(w.attempt(1, 1, true));
}

#[test]
fn an_agent_that_registers_at_last_does_not_stop_the_order_and_a_newer_boot_does() {
    for (newer, stands) in [(false, "Fencing"), (true, "Returning")] {
        let mut w = World::new(5);
        w.boot_without_agent(1);
        w.done(w.order(1, "alice"));
        w.done(w.intent(1));
        w.done(w.attempt(1, 1, true));
        if newer {
            w.reboot(1);
        } else {
            w.done(w.registration(1));
            w.done(w.attempt(1, 2, true));
        }
        assert_eq!(w.stands(1), stands);
    }
}
