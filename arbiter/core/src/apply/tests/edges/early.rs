//! Rows of what has not begun: Alive, Held, Condemned.

use super::*;

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
        w.wait(secs(60));
    }, |w| {
        let view = w.view(1).off();
        w.done(Command::Judge(Box::new(view)));
        assert!(w.node(1).is_silent_before_enforce());
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
        // A view that takes it for heard is not enough: its signs may be claims, or look young for a pause.
        let view = w.view(1).alive();
        assert_eq!(judge(w, view), Outcome::Unchanged);
        w.done(w.heard(1));
        assert!(!w.node(1).in_storm);
        let view = w.view(1).alive();
        w.done(Command::Judge(Box::new(view)));
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
        let mut binding = crate::apply::tests::world::binding(1);
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
}
