//! Every edge of a node's life, one test per way it can be taken. An edge that is not in [`ALL`] does not exist: the last
//! test says so of these rows, and `random` of every log it makes.

use coroner_shared::bmc::CommandAnswer;

use super::world::{World, before, machine, name, offs, policy, secs, uid};
use crate::command::{Command, Outcome};
use crate::phase::{EvidenceClass, HeldReason, Phase};
use crate::policy::Mode;

/// All edges: from, to, and by what.
pub(crate) const ALL: &[(&str, &str, &str)] = &[
    ("Alive", "Condemned", "verdict Dead, Enforce"),
    ("Alive", "Alive", "verdict Dead, Observe: WouldCondemn"),
    ("Alive", "Held", "verdict Held, or Dead and not permitted"),
    ("Alive", "Condemned", "order"),
    ("Held", "Condemned", "order"),
    ("Held", "Alive", "a new view"),
    ("Held", "Condemned", "a new view"),
    ("Held", "Held", "a new view"),
    ("Held", "ProvenOff", "confirm-off"),
    ("Condemned", "ProvenOff", "confirm-off"),
    ("Fencing", "ProvenOff", "confirm-off, no call under way"),
    ("ProvenOff", "ProvenOff", "confirm-off after LastReadFailed"),
    ("Condemned", "Alive", "proof of life or Lease: Reprieve"),
    ("Fencing", "Alive", "nothing sent; proof of life or Lease: Reprieve"),
    ("Condemned", "Held", "no longer permitted"),
    ("Fencing", "Held", "nothing sent; no longer permitted, or found On"),
    ("Condemned", "Fencing", "intent"),
    ("Fencing", "Fencing", "attempt"),
    ("Fencing", "Alive", "heard for long, still On: Averted"),
    ("Fencing", "Fencing", "identity refuses, or Off while heard: Stalled"),
    ("Fencing", "Fencing", "no progress: Stalled"),
    ("Fencing", "Returning", "new boot, nothing released"),
    ("ProvenOff", "Returning", "new boot, nothing released"),
    ("Fencing", "Held", "another machine, nothing released"),
    ("ProvenOff", "Held", "another machine, nothing released"),
    ("Fencing", "ProvenOff", "proof complete"),
    ("ProvenOff", "Fencing", "last read says On, or the same boot is heard"),
    ("ProvenOff", "ProvenOff", "last read cannot be made"),
    ("ProvenOff", "Releasing", "last read good"),
    ("Releasing", "Released", "taint seen"),
    ("Releasing", "Returning", "patch refused: another boot"),
    ("Releasing", "Held", "patch refused: another machine"),
    // Not in the design's table: between the commit and the taint a second writer would have no edge at all.
    ("Releasing", "Fencing", "the same boot is heard: re-fence"),
    ("Released", "Fencing", "the same boot is heard: re-fence"),
    ("Released", "Released", "BMC says On: Booting, later OnButUnknown"),
    ("Released", "Fencing", "ordered while OnButUnknown: re-fence"),
    ("Released", "Returning", "new boot of the pinned machine"),
    ("Fencing", "Returning", "re-fence; new boot of the pinned machine"),
    ("ProvenOff", "Returning", "re-fence; new boot of the pinned machine"),
    ("Returning", "Alive", "return rule, or coroner return"),
    ("Returning", "Condemned", "not released; silent past its deadline"),
    ("Returning", "Held", "not released; silent past its deadline"),
    ("Returning", "Returning", "a newer boot replaces the older"),
    // Birth after all replicas were lost.
    ("Alive", "Returning", "our taint, and nobody remembers: Orphaned"),
    ("any", "gone", "Node deleted or re-created"),
];

type Part = fn(&mut World);

/// Walks one row: `set` leads to `from`, `act` to `to`.
#[track_caller]
fn walk(row: &str, from: &str, set: Part, act: Part, to: &str) {
    let mut world = World::new(5);
    set(&mut world);
    assert_eq!(world.stands(1), from, "{row}: set up");
    act(&mut world);
    let stands = if world.state.nodes.contains_key(&name(1)) { world.stands(1) } else { "gone".to_owned() };
    assert_eq!(stands, to, "{row}");
}

macro_rules! edges {
    ($($row:ident: $by:literal, $from:literal => $to:literal, $set:expr, $act:expr;)*) => {
        $(#[test] fn $row() { walk(stringify!($row), $from, $set, $act, $to); })*

        /// Every row: its name, and which edge it walks.
        const ROWS: &[(&str, &str, &str, &str)] = &[$((stringify!($row), $by, $from, $to)),*];
    };
}

#[test]
fn every_edge_is_walked_and_none_besides() {
    let kind = |stands: &str| stands.split(':').next().unwrap().to_owned();
    for (from, to, by) in ALL {
        let walked = ROWS.iter().any(|(_, row_by, row_from, row_to)| {
            row_by == by && (*from == "any" || kind(row_from) == *from) && kind(row_to) == *to
        });
        assert!(walked, "no row walks {from} -> {to}: {by}");
    }
    for (row, by, row_from, row_to) in ROWS {
        let known = ALL.iter().any(|(from, to, edge)| {
            edge == by && (*from == "any" || kind(row_from) == *from) && kind(row_to) == *to
        });
        assert!(known, "{row} walks an edge that does not exist");
    }
}

// === parts of rows ===

fn nothing(_: &mut World) {}

fn judge(world: &mut World, view: crate::view::View) -> Outcome {
    world.say(Command::Judge(Box::new(view)))
}

fn found_off(world: &mut World) {
    world.found_off(1);
}

fn silent_on(world: &mut World) {
    world.silent_on(1);
}

fn fencing(world: &mut World) {
    world.silent_on(1);
    world.done(world.intent(1));
}

fn fencing_found_off(world: &mut World) {
    world.found_off(1);
    world.done(world.intent(1));
}

fn attempted(world: &mut World) {
    world.attempted(1);
}

fn proven_off(world: &mut World) {
    world.proven_off(1);
}

fn releasing(world: &mut World) {
    world.proven_off(1);
    world.done(world.release_begun(1));
}

fn released(world: &mut World) {
    world.released(1);
}

fn re_fenced(world: &mut World) {
    world.released(1);
    world.done(world.heard(1));
}

fn re_proven(world: &mut World) {
    re_fenced(world);
    world.done(world.attempt(1, 2, true));
    world.wait(secs(4));
    world.done(Command::SilentAgain { node: name(1) });
    world.wait(secs(31));
    world.done(world.proven(1, 2, offs(1, secs(30), None)));
}

fn returning(world: &mut World) {
    world.attempted(1);
    world.reboot(1);
    world.wait(secs(1));
}

fn returning_released(world: &mut World) {
    world.released(1);
    world.reboot(1);
}

fn held_by_bmc(world: &mut World) {
    let view = world.view(1).bmc_silent();
    world.done(Command::Judge(Box::new(view)));
}

fn ordered(world: &mut World) {
    world.done(world.order(1, "alice"));
}

fn observe(world: &mut World) {
    world.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
}

fn another_machine(world: &mut World) {
    world.new_boot(1);
    let mut registration = world.registration(1);
    if let Command::Register { machine: found, .. } = &mut registration {
        *found = Ok(machine(77));
    }
    world.done(registration);
}

fn pause_all(world: &mut World) {
    world.done(Command::Pause { node: None, who: "alice".to_owned(), why: "wait".to_owned() });
}

fn alarmed(world: &World, word: &str) {
    assert!(world.node(1).alarms.contains_key(word), "no alarm {word}: {:?}", world.node(1).alarms);
}

edges! {
    // === Alive ===
    a_node_found_off_is_condemned: "verdict Dead, Enforce", "Alive" => "Condemned", nothing, |w| {
        w.found_off(1);
        let incident = w.incident(1);
        assert_eq!(incident.class, Some(EvidenceClass::FoundOff));
        assert_eq!(incident.policy, Some(("all".to_owned(), "Enforce".to_owned())));
        assert_eq!(incident.terms.as_deref(), Some(&policy(Mode::Enforce)));
        assert!(incident.evidence.is_some() && incident.record.is_some());
    };
    a_silent_node_whose_bmc_says_on_is_condemned: "verdict Dead, Enforce", "Alive" => "Condemned", nothing, |w| {
        w.silent_on(1);
        assert_eq!(w.incident(1).class, Some(EvidenceClass::HostSilentBmcOn));
    };
    in_observe_a_death_is_said_once_and_nothing_else: "verdict Dead, Observe: WouldCondemn", "Alive" => "Alive", observe, |w| {
        let view = w.view(1).off();
        assert_eq!(judge(w, view.clone()), Outcome::Done);
        let said = w.last_incident(1).clone();
        assert!(said.observed && said.record.is_some() && said.evidence.is_some());
        assert_eq!(w.closed(1), "Observed");
        w.wait(secs(30));
        assert_eq!(judge(w, view.clone()), Outcome::Unchanged, "the same death is not said twice");
        assert_eq!(w.state.incidents.len(), 1);
        assert!(w.node(1).deaths.is_empty() && w.state.brakes.last_decision.is_none());
        w.done(w.heard(1));
        assert_eq!(judge(w, view), Outcome::Done, "heard in between: another death");
    };
    two_policies_that_select_a_node_are_observe: "verdict Dead, Observe: WouldCondemn", "Alive" => "Alive", |w| {
        let mut other = policy(Mode::Enforce);
        other.name = "other".to_owned();
        w.done(Command::PolicySet(Box::new(other)));
    }, |w| {
        let view = w.view(1).off();
        assert_eq!(judge(w, view), Outcome::Done);
        assert!(w.last_incident(1).observed);
    };
    a_silent_bmc_holds: "verdict Held, or Dead and not permitted", "Alive" => "Held:BmcSilent", nothing, |w| {
        held_by_bmc(w);
        assert_eq!(w.incident(1).held, Some(HeldReason::BmcSilent));
        assert!(w.incident(1).record.is_some(), "a hold explains itself");
    };
    a_brake_holds: "verdict Held, or Dead and not permitted", "Alive" => "Held:InFlight", |w| {
        w.silent_on(4);
        w.wait(secs(1));
    }, |w| {
        let view = w.view(1).on();
        w.done(Command::Judge(Box::new(view)));
    };
    a_pause_holds_what_is_not_found_off: "verdict Held, or Dead and not permitted", "Alive" => "Held:Paused", pause_all, |w| {
        let view = w.view(1).on();
        w.done(Command::Judge(Box::new(view)));
    };
    a_pause_does_not_hold_what_is_found_off: "verdict Dead, Enforce", "Alive" => "Condemned", pause_all, found_off;
    the_opt_out_holds: "verdict Held, or Dead and not permitted", "Alive" => "Held:Excluded", |w| {
        w.change(1, |f| { f.labels.insert("coroner.dev/exclude".to_owned(), "true".to_owned()); });
    }, |w| {
        let view = w.view(1).off();
        w.done(Command::Judge(Box::new(view)));
    };
    a_node_without_a_verified_binding_is_held: "verdict Held, or Dead and not permitted", "Alive" => "Held:NotFenceable", |w| {
        w.done(Command::BindingGone { node: name(1) });
    }, |w| {
        let view = w.view(1).off();
        w.done(Command::Judge(Box::new(view)));
    };
    a_node_silent_before_enforce_is_held: "verdict Held, or Dead and not permitted", "Alive" => "Held:SilentBeforeEnforce", |w| {
        observe(w);
        w.done(Command::PolicySet(Box::new(policy(Mode::Enforce))));
        w.wait(secs(5));
    }, |w| {
        // Silent for 12 s, Enforce for 5.
        let view = w.view(1).off();
        w.done(Command::Judge(Box::new(view)));
        assert!(w.node(1).silent_before_enforce);
    };
    a_person_orders_a_node_that_lives: "order", "Alive" => "Condemned", nothing, |w| {
        ordered(w);
        let who = "alice".to_owned();
        assert_eq!(w.incident(1).class, Some(EvidenceClass::Ordered { who, why: "because".to_owned() }));
    };
    a_taint_that_nobody_remembers_is_kept_until_a_return: "our taint, and nobody remembers: Orphaned", "Alive" => "Returning:released", nothing, |w| {
        w.change(1, |f| f.tainted_by_us = true);
        assert!(w.incident(1).orphaned);
        w.wait(secs(120));
        w.refused("NotYet", Command::TaintRemoved { node: name(1), incident: w.incident_id(1) });
    };

    // === Held ===
    a_person_orders_a_held_node: "order", "Held:BmcSilent" => "Condemned", held_by_bmc, |w| {
        let id = w.incident_id(1);
        ordered(w);
        assert_eq!(w.incident_id(1), id, "the hold's incident goes on");
    };
    a_held_node_that_is_heard_lives: "a new view", "Held:BmcSilent" => "Alive", held_by_bmc, |w| {
        w.wait(secs(5));
        let view = w.view(1).alive();
        w.done(Command::Judge(Box::new(view)));
        assert_eq!(w.closed(1), "HoldEnded");
    };
    a_hold_changes_at_most_once_in_five_seconds: "a new view", "Held:BmcSilent" => "Held:BmcUnclear", held_by_bmc, |w| {
        w.wait(secs(4));
        let (alive, other) = (w.view(1).alive(), w.view(1).unclear("PoweringOff"));
        assert_eq!(judge(w, alive), Outcome::Unchanged);
        assert_eq!(judge(w, other.clone()), Outcome::Unchanged);
        w.wait(secs(1));
        w.done(Command::Judge(Box::new(other)));
    };
    a_held_node_found_off_is_condemned_at_once: "a new view", "Held:BmcSilent" => "Condemned", held_by_bmc, |w| {
        let id = w.incident_id(1);
        found_off(w);
        assert_eq!(w.incident_id(1), id);
        assert_eq!(w.incident(1).held, None);
    };
    a_held_node_that_rebooted_lives: "a new view", "Held:BmcSilent" => "Alive", held_by_bmc, |w| {
        w.reboot(1);
        assert_eq!(w.closed(1), "NewBoot");
    };
    a_storm_holds_until_heard: "a new view", "Held:Storm" => "Alive", |w| {
        *w = World::new(10);
        let view = w.view(1).on().in_a_storm(4);
        w.done(Command::Judge(Box::new(view)));
        assert!(w.node(1).in_storm);
    }, |w| {
        w.wait(secs(300));
        let view = w.view(1).on();
        assert_eq!(judge(w, view), Outcome::Unchanged, "the storm is over, its members stay held");
        let view = w.view(1).alive();
        w.done(Command::Judge(Box::new(view)));
        assert!(!w.node(1).in_storm);
    };
    a_storm_does_not_hold_what_is_found_off: "a new view", "Held:Storm" => "Condemned", |w| {
        *w = World::new(10);
        let view = w.view(1).on().in_a_storm(4);
        w.done(Command::Judge(Box::new(view)));
    }, found_off;
    a_storm_member_is_ordered_by_a_person_once_it_calmed: "order", "Held:Storm" => "Condemned", |w| {
        *w = World::new(10);
        let view = w.view(1).on().in_a_storm(4);
        w.done(Command::Judge(Box::new(view)));
    }, |w| {
        w.refused("Storm", w.order(1, "alice"));
        w.wait(secs(61));
        ordered(w);
    };
    a_person_confirms_a_held_node: "confirm-off", "Held:BmcSilent" => "ProvenOff", held_by_bmc, |w| {
        w.done(w.confirm(1));
        assert_eq!(w.incident(1).proven_by.as_deref(), Some("PersonConfirmed by alice"));
        assert!(w.incident(1).terms.is_some() && !w.incident(1).turned_off_by_us);
        assert_eq!(w.node(1).deaths.len(), 1);
    };

    // === Condemned ===
    a_person_confirms_a_condemned_node: "confirm-off", "Condemned" => "ProvenOff", silent_on, |w| w.done(w.confirm(1));
    a_beacon_reprieves: "proof of life or Lease: Reprieve", "Condemned" => "Alive", silent_on, |w| {
        w.done(w.heard(1));
        assert_eq!(w.closed(1), "Reprieve");
        assert!(w.node(1).deaths.is_empty(), "a reprieve is no death");
    };
    a_lease_that_moves_reprieves: "proof of life or Lease: Reprieve", "Condemned" => "Alive", found_off, |w| {
        w.done(Command::LeaseMoved { node: name(1) });
        assert_eq!(w.closed(1), "Reprieve");
    };
    a_registration_reprieves: "proof of life or Lease: Reprieve", "Condemned" => "Alive", found_off, |w| {
        w.new_boot(1);
        w.done(w.registration(1));
        assert_eq!(w.closed(1), "Reprieve");
    };
    a_kubelet_on_a_new_boot_reprieves: "proof of life or Lease: Reprieve", "Condemned" => "Alive", silent_on, |w| {
        w.new_boot(1);
        let new = w.boot(1);
        w.change(1, |f| f.boot = Some(new));
        assert!(w.node(1).member.as_ref().unwrap().boot_is_over());
    };
    a_pause_stops_a_condemnation: "no longer permitted", "Condemned" => "Held:Paused", silent_on, pause_all;
    a_pause_of_the_node_stops_its_order: "no longer permitted", "Condemned" => "Held:Paused", ordered, |w| {
        w.done(Command::Pause { node: Some(name(1)), who: "bob".to_owned(), why: "no".to_owned() });
    };
    observe_stops_even_what_was_found_off: "no longer permitted", "Condemned" => "Held:Observe", found_off, |w| {
        observe(w);
        assert!(w.incident(1).terms.is_none() && w.node(1).deaths.is_empty());
    };
    a_deleted_policy_stops: "no longer permitted", "Condemned" => "Held:Observe", silent_on, |w| {
        w.done(Command::PolicyGone { name: "all".to_owned() });
    };
    a_conflict_stops: "no longer permitted", "Condemned" => "Held:PolicyConflict", silent_on, |w| {
        let mut other = policy(Mode::Enforce);
        other.name = "other".to_owned();
        w.done(Command::PolicySet(Box::new(other)));
    };
    the_opt_out_stops: "no longer permitted", "Condemned" => "Held:Excluded", silent_on, |w| {
        w.change(1, |f| { f.labels.insert("coroner.dev/exclude".to_owned(), "true".to_owned()); });
    };
    a_changed_binding_stops: "no longer permitted", "Condemned" => "Held:Identity", silent_on, |w| {
        let mut binding = super::world::binding(1);
        binding.hash = "b2".to_owned();
        w.done(Command::BindingSet { node: name(1), binding });
    };
    a_brake_at_the_intent_stops: "no longer permitted", "Condemned" => "Held:Budget", |w| {
        w.silent_on(1);
        w.state.brakes.spent = secs(3600);
        w.state.brakes.spent_at = w.state.now;
    }, |w| {
        w.refused("Budget", w.intent(1));
    };
    on_again_before_the_intent_stops: "no longer permitted", "Condemned" => "Held:FoundOnAgain", found_off, |w| {
        w.done(Command::FoundOnAgain { node: name(1), incident: w.incident_id(1) });
    };
    another_machine_stops_a_condemnation: "no longer permitted", "Condemned" => "Held:MachineChanged", silent_on, another_machine;
    the_boot_that_was_ordered_off_is_over: "no longer permitted", "Condemned" => "Held:Identity", ordered, |w| {
        w.reboot(1);
    };
    the_last_look_was_good: "intent", "Condemned" => "Fencing", silent_on, |w| {
        w.done(w.intent(1));
        assert_eq!(w.say(w.intent(1)), Outcome::Unchanged, "one intent per node");
    };

    // === Fencing ===
    a_command_is_about_to_be_sent: "attempt", "Fencing" => "Fencing", fencing, |w| {
        w.done(w.attempt(1, 1, true));
        let incident = w.incident(1);
        assert_eq!(incident.last_attempt.as_ref().map(|a| a.number), Some(1));
        assert!(incident.sent_while_on && !incident.turned_off_by_us);
    };
    a_beacon_reprieves_before_anything_is_sent: "nothing sent; proof of life or Lease: Reprieve", "Fencing" => "Alive", fencing, |w| {
        w.done(w.heard(1));
        assert_eq!(w.closed(1), "Reprieve");
    };
    a_lease_reprieves_before_anything_is_sent: "nothing sent; proof of life or Lease: Reprieve", "Fencing" => "Alive", fencing, |w| {
        w.done(Command::LeaseMoved { node: name(1) });
    };
    a_pause_stops_before_anything_is_sent: "nothing sent; no longer permitted, or found On", "Fencing" => "Held:Paused", fencing, pause_all;
    the_first_attempt_asks_the_brakes: "nothing sent; no longer permitted, or found On", "Fencing" => "Held:Storm", |w| {
        *w = World::new(10);
        fencing(w);
        w.state.brakes.storm = Some((w.state.now, w.state.now));
    }, |w| w.refused("Storm", w.attempt(1, 1, true));
    on_again_closes_the_intent: "nothing sent; no longer permitted, or found On", "Fencing" => "Held:FoundOnAgain", fencing_found_off, |w| {
        w.done(Command::FoundOnAgain { node: name(1), incident: w.incident_id(1) });
    };
    a_mismatch_before_anything_is_sent_holds: "nothing sent; no longer permitted, or found On", "Fencing" => "Held:Identity", fencing, |w| {
        let incident = w.incident_id(1);
        let why = "Mismatch".to_owned();
        w.done(Command::Stalled { node: name(1), incident, why, disable_binding: true });
        assert!(w.state.bindings[&name(1)].disabled.is_some());
    };
    off_is_proven_after_an_accepted_command: "proof complete", "Fencing" => "ProvenOff", attempted, |w| {
        w.wait(secs(5));
        w.done(w.proven(1, 1, offs(1, secs(4), Some(CommandAnswer::Accepted))));
        assert!(w.incident(1).turned_off_by_us);
    };
    off_is_proven_by_reading_alone: "proof complete", "Fencing" => "ProvenOff", fencing_found_off, |w| {
        w.wait(secs(31));
        w.done(w.proven(1, 0, offs(1, secs(30), None)));
        assert!(!w.incident(1).turned_off_by_us);
    };
    a_person_confirms_while_no_call_is_under_way: "confirm-off, no call under way", "Fencing" => "ProvenOff", |w| {
        fencing(w);
        w.done(w.attempt(1, 1, true));
    }, |w| {
        w.refused("CallUnderWay", w.confirm(1));
        w.wait(secs(10));
        w.done(w.confirm(1));
        assert!(!w.incident(1).turned_off_by_us, "a person's word is not our hand");
    };
    heard_for_a_minute_and_still_on_is_averted: "heard for long, still On: Averted", "Fencing" => "Alive", attempted, |w| {
        w.wait(secs(20));
        w.done(w.heard(1));
        w.wait(secs(59));
        w.refused("NotYet", w.still_on(1));
        w.wait(secs(1));
        w.done(w.still_on(1));
        assert_eq!(w.closed(1), "Averted");
        alarmed(w, "Averted");
    };
    off_while_heard_stalls_and_disables: "identity refuses, or Off while heard: Stalled", "Fencing" => "Fencing", attempted, |w| {
        let incident = w.incident_id(1);
        let why = "Off while heard".to_owned();
        w.done(Command::Stalled { node: name(1), incident, why, disable_binding: true });
        assert!(matches!(w.phase(1), Phase::Fencing { intent, .. } if intent.stalled.is_some()));
        w.refused("Identity", w.attempt(1, 2, true));
        let result = Ok(super::world::pin(1));
        w.done(Command::BindingVerified { node: name(1), hash: "b1".to_owned(), result });
        w.done(w.attempt(1, 2, true));
    };
    three_minutes_without_progress_stall: "no progress: Stalled", "Fencing" => "Fencing", attempted, |w| {
        assert_eq!(crate::brake::counts(&w.state).in_flight, 1);
        w.wait(secs(179));
        assert!(matches!(w.phase(1), Phase::Fencing { intent, .. } if intent.stalled.is_none()));
        w.wait(secs(1));
        assert!(matches!(w.phase(1), Phase::Fencing { intent, .. } if intent.stalled.is_some()));
        assert_eq!(crate::brake::counts(&w.state).in_flight, 0, "a stall gives its slot back");
    };
    a_new_boot_ends_a_fence: "new boot, nothing released", "Fencing" => "Returning", attempted, |w| {
        w.new_boot(1);
        w.done(w.registration(1));
        assert_eq!(w.stands(1), "Fencing", "the kubelet has not said so yet");
        let new = w.boot(1);
        w.change(1, |f| f.boot = Some(new));
    };
    a_new_boot_ends_a_proof: "new boot, nothing released", "ProvenOff" => "Returning", proven_off, |w| w.reboot(1);
    another_machine_ends_a_fence: "another machine, nothing released", "Fencing" => "Held:MachineChanged", attempted, |w| {
        another_machine(w);
        w.wait(secs(10));
        let mut view = w.view(1).alive();
        view.incarnation.machine = machine(77);
        assert_eq!(judge(w, view), Outcome::Unchanged, "a person must say which machine this is");
    };
    another_machine_ends_a_proof: "another machine, nothing released", "ProvenOff" => "Held:MachineChanged", proven_off, another_machine;

    // === ProvenOff ===
    the_last_read_says_on: "last read says On, or the same boot is heard", "ProvenOff" => "Fencing", proven_off, |w| {
        w.done(Command::LastReadOn { node: name(1), incident: w.incident_id(1) });
        w.done(w.attempt(1, 2, true));
    };
    the_same_boot_is_heard_after_the_proof: "last read says On, or the same boot is heard", "ProvenOff" => "Fencing", proven_off, |w| {
        w.done(w.heard(1));
        alarmed(w, "HeardAfterProof");
        w.refused("Heard", w.attempt(1, 2, true));
    };
    the_last_read_cannot_be_made: "last read cannot be made", "ProvenOff" => "ProvenOff", proven_off, |w| {
        let failed = |w: &World, why: &str| Command::LastReadFailed { node: name(1), incident: w.incident_id(1), why: why.to_owned() };
        w.done(failed(w, "BMC silent"));
        assert_eq!(w.say(failed(w, "BMC silent")), Outcome::Unchanged);
        w.wait(secs(30));
        w.done(failed(w, "503"));
        let Phase::ProvenOff { last_read_failed: Some(failed), .. } = w.phase(1) else { panic!() };
        assert_eq!((failed.why.as_str(), w.state.now.since(failed.since)), ("503", secs(30)));
    };
    a_person_confirms_after_a_failed_last_read: "confirm-off after LastReadFailed", "ProvenOff" => "ProvenOff", proven_off, |w| {
        w.refused("NothingToConfirm", w.confirm(1));
        w.done(Command::LastReadFailed { node: name(1), incident: w.incident_id(1), why: "x".to_owned() });
        w.done(w.confirm(1));
        let confirmed = matches!(w.phase(1), Phase::ProvenOff { proof: crate::phase::FenceProof::PersonConfirmed { .. }, last_read_failed: None, .. });
        assert!(confirmed);
    };
    the_last_read_is_good: "last read good", "ProvenOff" => "Releasing", proven_off, |w| w.done(w.release_begun(1));

    // === Releasing ===
    the_taint_is_seen: "taint seen", "Releasing" => "Released", releasing, |w| {
        w.done(w.taint_seen(1));
        assert_eq!(w.incident(1).tainted, Some(w.state.now));
    };
    the_watch_shows_the_taint: "taint seen", "Releasing" => "Released", releasing, |w| {
        w.change(1, |f| f.tainted_by_us = true);
    };
    the_patch_meets_a_new_boot: "patch refused: another boot", "Releasing" => "Returning:released", releasing, |w| w.reboot(1);
    the_patch_meets_another_machine: "patch refused: another machine", "Releasing" => "Held:MachineChanged", releasing, |w| {
        another_machine(w);
        assert_eq!(w.stands(1), "Releasing", "only the kubelet's boot id refuses the patch");
        let new = w.boot(1);
        w.change(1, |f| f.boot = Some(new));
    };
    the_same_boot_is_heard_while_the_taint_is_written: "the same boot is heard: re-fence", "Releasing" => "Fencing:re-fence", releasing, |w| {
        w.done(w.heard(1));
        alarmed(w, "SameBootAfterRelease");
    };

    // === Released ===
    the_same_boot_is_heard_after_the_release: "the same boot is heard: re-fence", "Released" => "Fencing:re-fence", released, |w| {
        w.done(w.heard(1));
        alarmed(w, "SameBootAfterRelease");
        // Being heard does not stop it, and neither does the Lease.
        w.done(w.heard(1));
        w.done(Command::LeaseMoved { node: name(1) });
        w.done(w.attempt(1, 2, true));
        w.wait(secs(120));
        assert_eq!(w.say(w.still_on(1)), Outcome::Stale);
    };
    on_alone_is_booting: "BMC says On: Booting, later OnButUnknown", "Released" => "Released", released, |w| {
        let power = |w: &World, on| Command::PowerAfterRelease { node: name(1), incident: w.incident_id(1), on };
        w.done(power(w, true));
        assert_eq!(crate::status::phase_word(&w.state, w.node(1)), "Booting");
        w.refused("InIncident", w.order(1, "alice"));
        w.wait(secs(20 * 60));
        assert_eq!(crate::status::phase_word(&w.state, w.node(1)), "OnButUnknown");
        w.done(power(w, false));
        assert_eq!(crate::status::phase_word(&w.state, w.node(1)), "Released");
    };
    on_but_unknown_is_ordered_off: "ordered while OnButUnknown: re-fence", "Released" => "Fencing:re-fence", |w| {
        released(w);
        w.done(Command::PowerAfterRelease { node: name(1), incident: w.incident_id(1), on: true });
        w.wait(secs(20 * 60));
    }, |w| w.done(w.order(1, "alice"));
    a_released_machine_boots_anew: "new boot of the pinned machine", "Released" => "Returning:released", released, |w| w.reboot(1);
    agents_are_not_needed_to_return: "new boot of the pinned machine", "Released" => "Returning:released", released, |w| {
        w.new_boot(1);
        let new = w.boot(1);
        w.change(1, |f| f.boot = Some(new));
        assert!(w.node(1).member.as_ref().unwrap().boot_is_over());
    };
    a_re_fence_ends_with_a_new_boot: "re-fence; new boot of the pinned machine", "Fencing:re-fence" => "Returning:released", re_fenced, |w| w.reboot(1);
    a_proven_re_fence_ends_with_a_new_boot: "re-fence; new boot of the pinned machine", "ProvenOff" => "Returning:released", re_proven, |w| w.reboot(1);
    a_re_fence_ends_with_a_proof: "proof complete", "Fencing:re-fence" => "ProvenOff", |w| {
        re_fenced(w);
        w.done(w.attempt(1, 2, true));
        w.done(w.answered(1, 2, CommandAnswer::Accepted));
        w.wait(secs(4));
        w.done(Command::SilentAgain { node: name(1) });
    }, |w| {
        w.wait(secs(5));
        w.done(w.proven(1, 2, offs(1, secs(4), Some(CommandAnswer::Accepted))));
    };
    a_proven_re_fence_is_released_with_what_was_recorded_first: "last read good", "ProvenOff" => "Releasing", re_proven, |w| {
        // Somebody took the taint away meanwhile; where it stands, this goes on to Released at once.
        w.change(1, |f| f.tainted_by_us = false);
        let mut again = before();
        again.was_cordoned = true;
        again.pods.clear();
        let incident = w.incident_id(1);
        w.done(Command::ReleaseBegun { node: name(1), incident, before: again, again: None });
        let Phase::Releasing { released, .. } = w.phase(1) else { panic!() };
        assert_eq!(*released, before());
    };

    // === Returning ===
    a_node_returns_without_a_release: "return rule, or coroner return", "Returning" => "Alive", returning, |w| {
        w.wait(secs(28));
        w.refused("NotYet", Command::Returned { node: name(1), incident: w.incident_id(1) });
        w.wait(secs(1));
        w.done(Command::Returned { node: name(1), incident: w.incident_id(1) });
        assert_eq!(w.closed(1), "Returned");
    };
    a_released_node_returns: "return rule, or coroner return", "Returning:released" => "Alive", returning_released, |w| {
        let removed = |w: &World| Command::TaintRemoved { node: name(1), incident: w.incident_id(1) };
        let returned = |w: &World| Command::Returned { node: name(1), incident: w.incident_id(1) };
        w.wait(secs(30));
        w.refused("NotYet", removed(w));
        w.done(w.leftovers_gone(1));
        w.done(removed(w));
        w.change(1, |f| f.tainted_by_us = false);
        w.wait(secs(9));
        w.refused("NotYet", returned(w));
        w.wait(secs(1));
        w.done(returned(w));
        assert_eq!(w.closed(1), "Returned");
    };
    a_person_ends_a_return: "return rule, or coroner return", "Returning" => "Alive", |w| {
        returning(w);
        w.change(1, |f| f.ready = false);
        w.wait(secs(20));
    }, |w| {
        w.done(Command::Return { node: name(1), who: "alice".to_owned(), why: "it is fine".to_owned() });
    };
    a_returning_node_that_is_found_off_again: "not released; silent past its deadline", "Returning" => "Condemned", returning, |w| {
        let old = w.incident_id(1);
        found_off(w);
        assert_ne!(w.incident_id(1), old);
        assert_eq!(w.state.incidents[&old].closed.as_ref().unwrap().1, "SilentAgain");
    };
    a_returning_node_that_is_held: "not released; silent past its deadline", "Returning" => "Held:BmcSilent", returning, |w| {
        let old = w.incident_id(1);
        held_by_bmc(w);
        assert_ne!(w.incident_id(1), old);
    };
    a_released_node_that_falls_silent_again_stays: "a newer boot replaces the older", "Returning:released" => "Returning:released", returning_released, |w| {
        let view = w.view(1).off();
        assert_eq!(judge(w, view), Outcome::Unchanged);
        w.reboot(1);
        let Phase::Returning { boot: now, .. } = w.phase(1) else { panic!() };
        assert_eq!(*now, w.boot(1));
    };

    // === any ===
    a_deleted_node_is_gone_whatever_it_was: "Node deleted or re-created", "Released" => "gone", released, |w| {
        let id = w.incident_id(1);
        w.done(Command::NodeGone { node: name(1), uid: uid(1) });
        assert_eq!(w.state.incidents[&id].closed.as_ref().unwrap().1, "NodeGone");
    };
    a_re_created_node_is_a_new_life: "Node deleted or re-created", "Fencing" => "gone", attempted, |w| {
        let id = w.incident_id(1);
        let mut facts = w.facts(1);
        facts.uid = uid(99);
        w.done(Command::NodeFacts(facts));
        assert_eq!(w.state.incidents[&id].closed.as_ref().unwrap().1, "NodeGone");
        assert_eq!(w.stands(1), "Alive");
        assert!(w.node(1).member.is_none());
        w.done(Command::NodeGone { node: name(1), uid: uid(99) });
    };
}

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
fn from_condemned_on_an_incident_keeps_its_policy_and_domain() {
    let mut w = World::in_racks(6, |n| Some(n % 3));
    w.attempted(1);
    let mut changed = policy(Mode::Enforce);
    changed.hash = "new".to_owned();
    changed.timings.stalled = secs(1);
    w.done(Command::PolicySet(Box::new(changed)));
    w.change(1, |f| {
        f.labels.insert("topology.kubernetes.io/rack".to_owned(), "r9".to_owned());
    });
    w.wait(secs(30));
    assert_eq!(w.incident(1).policy, Some(("all".to_owned(), "Enforce".to_owned())));
    assert_eq!((w.node(1).domain.as_str(), w.incident(1).domain.as_str()), ("rack/r1", "rack/r1"));
    assert!(matches!(w.phase(1), Phase::Fencing { intent, .. } if intent.stalled.is_none()));
    // Observe stops the next command, and nothing that is proven.
    w.done(Command::PolicySet(Box::new(policy(Mode::Observe))));
    w.refused("Observe", w.attempt(1, 2, true));
    w.done(w.proven(1, 1, offs(1, secs(4), Some(CommandAnswer::Accepted))));
    w.done(w.release_begun(1));
}

#[test]
fn a_paused_fence_is_proven_and_released_but_sends_nothing() {
    let mut w = World::new(5);
    pause_all(&mut w);
    w.found_off(1);
    let incident = w.incident_id(1);
    w.done(Command::Intent { node: name(1), incident, read_only: true });
    w.refused("ReadOnlyIntent", w.attempt(1, 1, false));
    w.wait(secs(31));
    w.done(w.proven(1, 0, offs(1, secs(30), None)));
    w.done(w.release_begun(1));
    w.done(w.taint_seen(1));
    w.reboot(1);
    assert_eq!(w.stands(1), "Returning:released");
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
