//! Rows from the release to the end.

use super::*;

edges! {
    // === Releasing ===
    the_taint_is_seen: "taint seen", "Releasing" => "Released", releasing, |w| {
        w.done(w.taint_seen(1));
        assert_eq!(w.incident(1).tainted, Some(w.state.now));
    };
    the_watch_shows_the_taint: "taint seen", "Releasing" => "Released", releasing, |w| {
        w.change(1, |f| f.tainted_by_us = true);
    };
    the_patch_meets_a_new_boot: "patch refused: another boot", "Releasing" => "Returning", releasing, |w| w.reboot(1);
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
