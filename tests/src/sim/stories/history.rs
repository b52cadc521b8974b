//! What is said, withdrawn, repeated or forgotten in the middle of an incident.

use coroner_arbiter_core::phase::Confirmation;
use coroner_arbiter_core::policy::{AfterRelease, Mode};
use coroner_arbiter_core::state::Incident;
use coroner_shared::id::{NodeName, NodeUid};
use coroner_shared::time::Span;

use super::{Play, Story, Told, held, is, name, offs, others_touched, paged, released};
use crate::sim::people::Act;
use crate::sim::trouble::Trouble;
use crate::sim::{Sim, Site};

pub(super) const ALL: &[Story] = &[
    Story {
        name: "a_confirmation_counts_for_one_incident_and_for_nothing_that_lives",
        thread: "openshift/openshift-docs#110945, #112142",
        lesson: "A confirmation could be forced, and all danger lay in the eyes of whoever gave it.",
        play: a_confirmation_counts_for_one_incident_and_for_nothing_that_lives,
    },
    Story {
        name: "a_confirmation_that_has_grown_old_is_asked_for_again",
        thread: "openshift/openshift-docs#110945",
        lesson: "What a person saw a quarter of an hour ago says nothing about now.",
        play: a_confirmation_that_has_grown_old_is_asked_for_again,
    },
    Story {
        name: "what_is_withdrawn_at_any_step_comes_to_a_defined_end",
        thread: "medik8s/fence-agents-remediation#72, #168, #176; NVIDIA/NVSentinel#121",
        lesson: "The request was deleted between off and on: the agent went on, or the machine stayed off with its marks.",
        play: what_is_withdrawn_at_any_step_comes_to_a_defined_end,
    },
    Story {
        name: "what_a_bmc_answered_stands_in_the_history",
        thread: "medik8s/fence-agents-remediation#142; fence_redfish, reset request",
        lesson: "The error was on another stream, or its code was ignored: the failure had no reason.",
        play: what_a_bmc_answered_stands_in_the_history,
    },
    Story {
        name: "a_power_on_that_comes_to_nothing_is_shown",
        thread: "ClusterLabs/fence-agents, library: reboot",
        lesson: "Off was seen, On failed, and the whole was a success: the node stayed off unnoticed.",
        play: a_power_on_that_comes_to_nothing_is_shown,
    },
    Story {
        name: "a_power_cycle_is_no_proof",
        thread: "ClusterLabs/fence-agents#68",
        lesson: "A cycle reported success before the machine was ever off.",
        play: a_power_cycle_is_no_proof,
    },
    Story {
        name: "replicas_restarted_in_any_state_forget_nothing",
        thread: "Azure/ARO-HCP#6284",
        lesson: "The controller restarted and cleared its own mark.",
        play: replicas_restarted_in_any_state_forget_nothing,
    },
    Story {
        name: "a_policy_is_edited_in_any_state_and_an_incident_keeps_its_terms",
        thread: "medik8s/node-healthcheck-operator#281",
        lesson: "Edits were refused for a remediation that was no more; or they changed one that was under way.",
        play: a_policy_is_edited_in_any_state_and_an_incident_keeps_its_terms,
    },
    Story {
        name: "many_updates_of_a_node_are_one_incident",
        thread: "kvaps/kube-fencing, controller; medik8s/fence-agents-remediation#101, #128",
        lesson: "Each update began the fencing anew; a write that met a conflict broke the run.",
        play: many_updates_of_a_node_are_one_incident,
    },
    Story {
        name: "a_condition_that_comes_and_goes_opens_nothing_anew",
        thread: "medik8s/node-healthcheck-operator#274",
        lesson: "A condition went from False to Unknown, and the remediation was deleted and begun again.",
        play: a_condition_that_comes_and_goes_opens_nothing_anew,
    },
    Story {
        name: "a_second_death_in_the_middle_of_the_first_is_not_lost",
        thread: "NVIDIA/NVSentinel#1536",
        lesson: "An event that came while another was worked on was skipped and lost.",
        play: a_second_death_in_the_middle_of_the_first_is_not_lost,
    },
    Story {
        name: "clocks_that_are_set_change_nothing",
        thread: "inferred",
        lesson: "With wall clocks set forward and back the same happens at the same time.",
        play: clocks_that_are_set_change_nothing,
    },
];

fn incidents(sim: &Sim, node: usize) -> Vec<Incident> {
    let of = |incident: &Incident| NodeName::new(name(node)).is_ok_and(|name| incident.node == name);
    sim.state().incidents.into_values().filter(of).collect()
}

/// What a person says who looked at the open incident of a node.
fn confirms(play: &Play, node: usize) -> Result<Confirmation, String> {
    let state = play.sim.state();
    let open = NodeName::new(name(node)).ok().and_then(|named| state.open_incident(&named));
    let Some((incident, record)) = open else { return Err(format!("no incident of {} is open", name(node))) };
    let (who, why) = ("a person".to_owned(), "the cord is in my hand".to_owned());
    let life = &record.incarnation;
    Ok(Confirmation { incident: incident.clone(), node: life.node.clone(), boot: life.boot, who, why })
}

/// Says it of that node; it must be refused for that reason, and change nothing.
fn refused(play: &mut Play, node: usize, said: &Confirmation, reason: &str) -> Told {
    let refusal = format!("refused: {reason}");
    let before = (play.sim.story().matches(&refusal).count(), play.sim.phase(&name(node)));
    play.person(Act::ConfirmAs(node, Box::new(said.clone())));
    play.until(2, &format!("a word about {} is refused: {reason}", name(node)), |sim| {
        sim.story().matches(&refusal).count() > before.0
    })?;
    let same = play.sim.phase(&name(node)) == before.1;
    play.check(same, &format!("a refused word changed what {} is", name(node)))
}

fn a_confirmation_counts_for_one_incident_and_for_nothing_that_lives() -> Told {
    let mut site = Site::plain(110_945, 7, 0);
    site.bmcs[4].change = |t| t.ignores = true;
    site.firmware = (Span::from_secs(5), Span::from_secs(6));
    let mut play = Play::of(site);
    of_a_machine_that_is_heard(&mut play)?;
    let now = of_an_incident_that_is_over(&mut play)?;
    // A kernel that answers.
    play.sim.hang("n6");
    play.until(60, "it is held", |sim| held(sim, 6, "HostAnswersOnly"))?;
    let hung = confirms(&play, 6)?;
    refused(&mut play, 6, &hung, "ShowsLife")?;
    play.check((3..7).all(|node| !released(&play.sim, node)), "somebody is released")?;
    play.person(Act::ConfirmAs(5, Box::new(now)));
    play.until(15, "the right word releases it", |sim| released(sim, 5))?;
    let by = |i: &Incident| i.proven_by.as_deref() == Some("PersonConfirmed by a person");
    play.check(incidents(&play.sim, 5).iter().any(by), "it is not recorded who said so")?;
    play.check(!others_touched(&play.sim, &[5, 6]), "somebody else is touched")?;
    play.end()
}

/// n4's agent is heard by everybody while its fence gets nowhere.
fn of_a_machine_that_is_heard(play: &mut Play) -> Told {
    play.sim.freeze("n4");
    play.until(60, "it is told to go off, and does not", |sim| offs(sim, Some(4)) > 0)?;
    let goes_on = confirms(play, 4)?;
    // Until the deadline of that command is over.
    play.wait(12);
    play.sim.thaw("n4");
    play.wait(3);
    refused(play, 4, &goes_on, "Heard")?;
    play.until(120, "it is left alone", |sim| is(sim, 4, "Alive"))
}

/// n5 loses power and its BMC with it, and both come back; then once more. What holds for the second incident.
fn of_an_incident_that_is_over(play: &mut Play) -> Result<Confirmation, String> {
    play.begin(Trouble::BmcSilent { bmc: 5, span: Span::from_secs(60) });
    play.sim.cut_power("n5");
    play.until(50, "it is held", |sim| held(sim, 5, "BmcSilent"))?;
    let first = confirms(play, 5)?;
    play.sim.power_on("n5");
    play.until(300, "it is back", |sim| is(sim, 5, "Alive"))?;
    refused(play, 5, &first, "NothingToConfirm")?;
    play.wait(150);
    play.sim.pull_cord("n5");
    play.until(60, "it is held once more", |sim| held(sim, 5, "BmcSilent"))?;
    let now = confirms(play, 5)?;
    play.check(now.incident != first.incident && now.boot != first.boot, "it is the same incident")?;
    let Ok(node) = NodeUid::new("uid-of-a-node-that-went") else { return Err("no uid".to_owned()) };
    // Another boot, another incident, another Node.
    refused(play, 5, &Confirmation { boot: first.boot, ..now.clone() }, "OtherIncident")?;
    refused(play, 5, &Confirmation { incident: first.incident.clone(), ..now.clone() }, "OtherIncident")?;
    refused(play, 5, &Confirmation { node, ..now.clone() }, "OtherIncident")?;
    refused(play, 5, &first, "OtherIncident")?;
    refused(play, 3, &now, "NothingToConfirm")?;
    Ok(now)
}

fn a_confirmation_that_has_grown_old_is_asked_for_again() -> Told {
    let mut play = Play::of(Site::plain(112_142, 6, 0));
    play.sim.pull_cord("n5");
    play.until(60, "it is held for its BMC", |sim| held(sim, 5, "BmcSilent"))?;
    play.person(Act::ConfirmOff(5));
    // At once, before the taint can be written.
    play.begin(Trouble::ApiDown { span: Span::from_mins(16) });
    play.until(5, "the word is taken", |sim| is(sim, 5, "ProvenOff"))?;
    play.never(18 * 60, "it is released by an old word", |sim| released(sim, 5))?;
    play.check(paged(&play.sim, 5, "LastReadFailed"), "nobody is asked again")?;
    play.person(Act::ConfirmOff(5));
    play.until(15, "a new word releases it", |sim| released(sim, 5))?;
    play.end()
}

fn what_is_withdrawn_at_any_step_comes_to_a_defined_end() -> Told {
    // Before the verdict, about the command, in the proof, after the release.
    for (tenths, act) in
        [60, 82, 86, 100, 150].into_iter().zip([0, 1, 2, 0, 1]).flat_map(|(tenths, first)| {
            let acts = [Act::Exclude(4, true), Act::Pause(Some(4)), Act::Mode(Mode::Observe)];
            [first, (first + 1) % 3].map(|n: usize| (tenths, acts[n].clone()))
        })
    {
        let mut play = Play::of(Site::plain(7200 + tenths, 5, 0));
        play.sim.freeze("n4");
        play.sim.run_for(Span::from_ms(tenths * 100));
        play.person(act.clone());
        play.wait(2);
        let sent = offs(&play.sim, Some(4));
        play.never(120, "a power command after it was withdrawn", |sim| offs(sim, Some(4)) > sent)?;
        let free = released(&play.sim, 4);
        play.check(sent > 0 || !free, "released, and nobody turned it off")?;
        // What was begun with a command ends in a release: its workloads do not wait for whoever withdrew it.
        play.check(sent == 0 || free, "turned off, and never released")?;
        play.end()?;
    }
    Ok(())
}

fn what_a_bmc_answered_stands_in_the_history() -> Told {
    let mut site = Site::plain(142, 5, 0);
    site.bmcs[4].change = |t| t.refuses_when_off = true;
    let mut play = Play::of(site);
    play.sim.cut_power("n4");
    play.until(40, "it is released", |sim| released(sim, 4))?;
    let said = |sim: &Sim, text: &str| {
        incidents(sim, 4).iter().flat_map(|i| &i.timeline).any(|moment| moment.detail.contains(text))
    };
    play.check(said(&play.sim, "409 already off"), "its answer is not in the history of the incident")?;
    play.end()
}

fn a_power_on_that_comes_to_nothing_is_shown() -> Told {
    let mut site = Site::plain(700, 5, 0);
    for policy in site.policies.values_mut() {
        policy.timings.booting = Span::from_secs(60);
    }
    let mut play = Play::of(site);
    play.sim.freeze("n4");
    play.until(40, "it is turned off", |sim| !sim.has_power("n4"))?;
    play.sim.ignores_commands("n4", true);
    play.until(60, "it is released", |sim| released(sim, 4))?;
    play.until(60, "On is sent", |sim| {
        sim.ledger().iter().any(|(_, node, what)| node == "n4" && what == "On")
    })?;
    play.until(180, "people are paged that it stays off", |sim| paged(sim, 4, "StaysOff"))?;
    play.check(is(&play.sim, 4, "Released"), "its workloads depend on whether it comes back")?;
    play.end()
}

fn a_power_cycle_is_no_proof() -> Told {
    let mut play = Play::of(Site::plain(68, 5, 0));
    play.sim.restores_power("n4", Some(Span::from_ms(1)));
    play.sim.freeze("n4");
    play.until(30, "the command is sent", |sim| offs(sim, Some(4)) > 0)?;
    play.never(25, "it is proven off", |sim| is(sim, 4, "ProvenOff") || released(sim, 4))?;
    play.until(400, "its new boot ends it", |sim| is(sim, 4, "Alive"))?;
    play.check(!released(&play.sim, 4), "it was released by a machine that was on")?;
    play.end()
}

fn replicas_restarted_in_any_state_forget_nothing() -> Told {
    let phases = ["Condemned", "Fencing", "ProvenOff", "Releasing", "Released", "Returning"];
    for (number, phase) in (0..).zip(phases) {
        let mut play = Play::of(Site::plain(6284 + number, 5, 0));
        play.sim.freeze("n4");
        // What lasts for milliseconds is met at the next look.
        let at = phases.iter().position(|p| *p == phase).unwrap_or_default();
        let since =
            |sim: &Sim| phases.iter().position(|p| *p == sim.phase("n4")).is_some_and(|now| now >= at);
        play.until(400, "it comes so far", since)?;
        let closed = incidents(&play.sim, 4).len();
        for replica in 0..3 {
            play.begin(Trouble::ReplicaKilled { replica, away: Span::from_secs(3) });
        }
        play.until(600, "it is back, after its release", |sim| is(sim, 4, "Alive") && released(sim, 4))?;
        let all = incidents(&play.sim, 4);
        play.check(all.len() == closed, "what was under way was forgotten and begun anew")?;
        play.check(all.iter().all(|i| i.turned_off_by_us), "nobody remembers that it was turned off")?;
        play.end()?;
    }
    Ok(())
}

fn a_policy_is_edited_in_any_state_and_an_incident_keeps_its_terms() -> Told {
    let phases = ["Alive", "Fencing", "ProvenOff", "Released", "Returning"];
    for (number, phase) in (0..).zip(phases) {
        let mut site = Site::plain(281 + 1000 * number, 5, 0);
        site.firmware = (Span::from_secs(5), Span::from_secs(6));
        let mut play = Play::of(site);
        let at = phases.iter().position(|p| *p == phase).unwrap_or_default();
        let since =
            move |sim: &Sim| phases.iter().position(|p| *p == sim.phase("n4")).is_some_and(|now| now >= at);
        if at > 0 {
            play.sim.freeze("n4");
        }
        play.until(400, "it comes so far", since)?;
        play.sim.edit_policies(|policy| {
            policy.hash = "edited".to_owned();
            policy.timings.booting = Span::from_mins(15);
            policy.after_release = AfterRelease::StayOff;
        });
        let edited = |sim: &Sim| sim.state().policies.values().all(|policy| policy.hash == "edited");
        play.until(3, "the log takes the policy as it is now", edited)?;
        if at == 0 {
            play.sim.freeze("n4");
            play.until(60, "it is released", |sim| released(sim, 4))?;
            play.never(300, "it is powered on, and its terms are those of now", |sim| sim.has_power("n4"))?;
        } else {
            play.until(600, "it is powered on by the terms of then", |sim| {
                is(sim, 4, "Alive") && released(sim, 4)
            })?;
        }
        play.check(incidents(&play.sim, 4).len() == 1, "it is not one incident")?;
        play.check(offs(&play.sim, None) == 1, "it was not turned off once")?;
        play.end()?;
    }
    Ok(())
}

fn many_updates_of_a_node_are_one_incident() -> Told {
    let mut play = Play::of(Site::plain(1000, 6, 0));
    play.sim.freeze("n5");
    for number in 0..1000 {
        play.person(Act::Relabel(5, number % 2));
        play.sim.run_for(Span::from_ms(40));
    }
    play.check(released(&play.sim, 5), "conflicts kept it from being released")?;
    play.check(offs(&play.sim, Some(5)) == 1, "it was not turned off once")?;
    play.check(incidents(&play.sim, 5).len() == 1, "it is not one incident")?;
    play.end()
}

fn a_condition_that_comes_and_goes_opens_nothing_anew() -> Told {
    let mut play = Play::of(Site::plain(274, 6, 0));
    for turn in 0..6 {
        play.sim.says_ready("n4", turn % 2 == 1);
        play.wait(10);
        play.check(is(&play.sim, 4, "Alive"), "a node that is heard is judged by its condition")?;
    }
    play.sim.freeze("n5");
    for turn in 0..6 {
        play.sim.says_ready("n5", turn % 2 == 1);
        play.wait(10);
    }
    play.check(released(&play.sim, 5), "the dead one is not released")?;
    play.check(incidents(&play.sim, 5).len() == 1, "it is not one incident")?;
    play.check(offs(&play.sim, None) == 1, "not one command was sent")?;
    play.end()
}

fn a_second_death_in_the_middle_of_the_first_is_not_lost() -> Told {
    let mut play = Play::of(Site::plain(1536, 7, 0));
    play.sim.freeze("n5");
    play.until(20, "the first is being fenced", |sim| is(sim, 5, "Fencing"))?;
    play.sim.freeze("n6");
    play.until(40, "both are released", |sim| released(sim, 5) && released(sim, 6))?;
    play.check(offs(&play.sim, Some(6)) == 1, "the second was not turned off once")?;
    play.end()
}

fn clocks_that_are_set_change_nothing() -> Told {
    let run = |set: bool| {
        let mut play = Play::of(Site::plain(17, 6, 0));
        play.sim.freeze("n5");
        for turn in 0..40 {
            for machine in 0..6 {
                let by = Span::from_ms(250 + 5_000 * ((turn * 7 + machine as u64) % 9));
                let back = (turn + machine as u64).is_multiple_of(3);
                if set {
                    play.begin(Trouble::ClockJump { machine, by, back });
                }
            }
            play.sim.run_for(Span::from_ms(700));
        }
        play
    };
    let (set, plain) = (run(true), run(false));
    set.check(released(&set.sim, 5), "the dead one is not released")?;
    set.check(set.sim.state() == plain.sim.state(), "the log came out otherwise")?;
    set.check(set.sim.ledger() == plain.sim.ledger(), "other commands were sent, or at other times")?;
    set.end()
}
