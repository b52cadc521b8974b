//! Rows from the intent to the proof and the last read.

use super::*;

/// Held, and confirmed off by a person: nothing was sent.
fn confirmed(w: &mut World) {
    held_by_bmc(w);
    w.done(w.confirm(1));
}

/// Found off, and proven by reading alone.
fn read_off(w: &mut World) {
    w.found_off(1);
    w.done(w.intent(1));
    w.wait(secs(31));
    w.done(w.proven(1, 0, offs(1, secs(30), None)));
}

edges! {
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
        let result = Ok(crate::apply::tests::world::pin(1));
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
    on_after_a_persons_word_is_judged_anew: "nothing sent; last read says On", "ProvenOff" => "Held:FoundOnAgain", confirmed, |w| {
        w.done(Command::LastReadOn { node: name(1), incident: w.incident_id(1) });
        assert!(w.node(1).deaths.is_empty(), "it did not die");
        assert_eq!((w.incident(1).proven, &w.incident(1).proven_by), (None, &None));
    };
    life_after_a_persons_word_reprieves: "nothing sent; proof of life: Reprieve", "ProvenOff" => "Alive", confirmed, |w| {
        w.done(w.heard(1));
        alarmed(w, "HeardAfterProof");
        assert_eq!(w.closed(1), "Reprieve");
    };
    on_after_a_proof_without_a_command_is_judged_anew: "nothing sent; last read says On", "ProvenOff" => "Held:FoundOnAgain", read_off, |w| {
        w.done(Command::LastReadOn { node: name(1), incident: w.incident_id(1) });
    };
    life_after_a_proof_without_a_command_reprieves: "nothing sent; proof of life: Reprieve", "ProvenOff" => "Alive", read_off, |w| {
        w.done(w.heard(1));
        alarmed(w, "HeardAfterProof");
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
}
