//! Power: off that is not off, and fencing that must end.

use coroner_shared::time::Span;

use super::{Play, Story, Told, held, is, offs, paged, released};
use crate::sim::people::Act;
use crate::sim::trouble::Trouble;
use crate::sim::{Sim, Site};

pub(super) const ALL: &[Story] = &[
    Story {
        name: "off_already_is_released_at_once",
        thread: "ClusterLabs/fence-agents#596",
        lesson: "A node that was off already was refused as being in the wrong state, and retried for ever.",
        play: off_already_is_released_at_once,
    },
    Story {
        name: "a_machine_that_ignores_commands_is_tried_on_and_shown",
        thread: "ClusterLabs/fence-agents#629",
        lesson: "The state never became off: the cluster was blocked without a way out.",
        play: a_machine_that_ignores_commands_is_tried_on_and_shown,
    },
    Story {
        name: "a_dead_bmc_needs_a_person_and_then_seconds",
        thread: "apache/cloudstack#13589, #12185",
        lesson: "Power loss took the BMC along: stuck in Fencing for ever.",
        play: a_dead_bmc_needs_a_person_and_then_seconds,
    },
    Story {
        name: "a_leader_that_dies_in_the_middle_turns_nothing_off_twice",
        thread: "medik8s/fence-agents-remediation, restart of the operator",
        lesson: "The operator restarted mid-run: the agent ran again, and cut the power of a node that was booting.",
        play: a_leader_that_dies_in_the_middle_turns_nothing_off_twice,
    },
    Story {
        name: "power_restored_by_the_chassis_is_seen",
        thread: "medik8s/fence-agents-remediation#92",
        lesson: "Off was seen, the chassis restored the power, and the taint came while the node was booting.",
        play: power_restored_by_the_chassis_is_seen,
    },
    Story {
        name: "an_off_between_two_ons_is_no_proof",
        thread: "inferred",
        lesson: "One reading that fell into the off phase of a power cycle was taken as proof.",
        play: an_off_between_two_ons_is_no_proof,
    },
    Story {
        name: "errors_of_a_machine_that_is_off_are_not_off",
        thread: "device-management-toolkit/console#1069",
        lesson: "The system could not be read after the power-off; off could not be confirmed.",
        play: errors_of_a_machine_that_is_off_are_not_off,
    },
    Story {
        name: "a_node_that_dies_again_and_again_is_left_off",
        thread: "pfnet-research/node-operation-controller#31",
        lesson: "The remediation cured nothing and was repeated for ever.",
        play: a_node_that_dies_again_and_again_is_left_off,
    },
    Story {
        name: "an_order_is_carried_out_and_the_node_comes_back",
        thread: "inferred",
        lesson: "A request and a fault for one node at once raced.",
        play: an_order_is_carried_out_and_the_node_comes_back,
    },
];

fn off_already_is_released_at_once() -> Told {
    let mut play = Play::of(Site::plain(596, 5, 2));
    play.sim.cut_power("n4");
    play.until(20, "it is released", |sim| released(sim, 4))?;
    play.end()
}

fn a_machine_that_ignores_commands_is_tried_on_and_shown() -> Told {
    let mut site = Site::plain(629, 5, 0);
    site.bmcs[4].change = |t| t.ignores = true;
    let mut play = Play::of(site);
    play.sim.freeze("n4");
    play.never(1800, "it is released", |sim| released(sim, 4))?;
    play.check(offs(&play.sim, Some(4)) >= 4, "it is not tried again")?;
    play.check(offs(&play.sim, Some(4)) <= 12, "it is tried without patience")?;
    play.check(paged(&play.sim, 4, "Stalled"), "nobody is paged that it is stalled")?;
    // Paused: nothing more is sent, however long it takes.
    play.person(Act::Pause(None));
    play.wait(3);
    let before = offs(&play.sim, Some(4));
    play.never(900, "a command during the pause", |sim| offs(sim, Some(4)) > before)?;
    // Resumed, and heard again: no retry to a machine that lives.
    play.sim.thaw("n4");
    play.person(Act::Resume(None));
    play.wait(10);
    let before = offs(&play.sim, Some(4));
    play.never(400, "a command to a machine that is heard", |sim| offs(sim, Some(4)) > before)?;
    play.check(is(&play.sim, 4, "Alive"), "being heard for minutes did not avert it")?;
    play.end()
}

fn a_dead_bmc_needs_a_person_and_then_seconds() -> Told {
    let mut play = Play::of(Site::plain(13589, 5, 0));
    play.sim.pull_cord("n4");
    play.until(60, "it is held for its BMC", |sim| held(sim, 4, "BmcSilent"))?;
    play.never(300, "it is released without anybody", |sim| released(sim, 4))?;
    play.person(Act::ConfirmOff(4));
    play.until(15, "it is released once a person vouched for it", |sim| released(sim, 4))?;
    play.end()
}

fn a_leader_that_dies_in_the_middle_turns_nothing_off_twice() -> Told {
    // Killed 7.5 .. 14 s after the silence began: from the condemnation to the release.
    let mut handed_over = 0;
    for tenths in (75..140).step_by(5) {
        let mut play = Play::of(Site::plain(2300 + tenths, 5, 0));
        play.sim.freeze("n4");
        play.sim.run_for(Span::from_ms(tenths * 100));
        if let Some(replica) = play.sim.leader_index() {
            play.begin(Trouble::ReplicaKilled { replica, away: Span::from_secs(20) });
        }
        play.until(120, "it is released under another leader", |sim| released(sim, 4))?;
        let sent = senders(&play.sim);
        let last = play.sim.state().incidents.into_values().find_map(|incident| incident.last_attempt);
        let named = last.is_some_and(|attempt| sent.last() == Some(&attempt.replica.to_string()));
        play.check(named, "its newest attempt does not name who sent it")?;
        handed_over += usize::from(sent.iter().any(|one| Some(one) != sent.last()));
        play.until(400, "it is back", |sim| is(sim, 4, "Alive"))?;
        let by_us = play.sim.story().matches("n4 loses power (Us)").count();
        play.check(by_us == 1, "it was not turned off by our hand exactly once")?;
        play.end()?;
    }
    if handed_over > 0 { Ok(()) } else { Err("no leader died between two commands".to_owned()) }
}

/// The replicas that sent a power-off to n4, in that order.
fn senders(sim: &Sim) -> Vec<String> {
    let of = |line: &str| {
        Some(line.split_once("ForceOff from replica ")?.1.split_once(" reaches the BMC of n4")?.0.to_owned())
    };
    sim.story().lines().filter_map(of).collect()
}

fn power_restored_by_the_chassis_is_seen() -> Told {
    for tenths in [5, 10, 20, 30, 40, 50, 80] {
        let mut site = Site::plain(9200 + tenths, 5, 0);
        site.firmware = (Span::from_secs(20), Span::from_secs(30));
        let mut play = Play::of(site);
        play.sim.restores_power("n4", Some(Span::from_ms(tenths * 100)));
        play.sim.freeze("n4");
        play.until(60, "the command is sent", |sim| offs(sim, Some(4)) > 0)?;
        play.wait(120);
        play.sim.restores_power("n4", None);
        play.end()?;
    }
    Ok(())
}

fn an_off_between_two_ons_is_no_proof() -> Told {
    let mut site = Site::plain(34, 5, 0);
    site.firmware = (Span::from_secs(60), Span::from_secs(70));
    let mut play = Play::of(site);
    play.sim.freeze("n4");
    play.until(20, "the command is sent", |sim| offs(sim, Some(4)) > 0)?;
    for _ in 0..12 {
        play.sim.power_on("n4");
        play.sim.run_for(Span::from_ms(1_300));
        play.sim.cut_power("n4");
        play.sim.run_for(Span::from_ms(1_700));
        play.check(!released(&play.sim, 4), "it is released while its power comes and goes")?;
    }
    play.end()
}

fn errors_of_a_machine_that_is_off_are_not_off() -> Told {
    let mut play = Play::of(Site::plain(1069, 5, 0));
    play.sim.freeze("n4");
    play.until(20, "the command is sent", |sim| offs(sim, Some(4)) > 0)?;
    play.begin(Trouble::BmcErrors { bmc: 4, errors: 100, span: Span::from_secs(120) });
    play.never(110, "it is released on errors", |sim| released(sim, 4))?;
    // A BMC that is not steady has Off read for 30 s, before the proof and again before the taint.
    play.until(200, "it is released once Off can be read", |sim| released(sim, 4))?;
    play.end()
}

fn a_node_that_dies_again_and_again_is_left_off() -> Told {
    let mut site = Site::plain(31, 5, 0);
    site.firmware = (Span::from_secs(5), Span::from_secs(6));
    let mut play = Play::of(site);
    for _ in 0..2 {
        play.until(600, "it is Alive", |sim| is(sim, 4, "Alive"))?;
        play.wait(150);
        play.sim.freeze("n4");
        play.until(120, "it is released", |sim| is(sim, 4, "Released"))?;
    }
    play.until(600, "it is Alive", |sim| is(sim, 4, "Alive"))?;
    play.wait(150);
    let before = offs(&play.sim, Some(4));
    play.sim.freeze("n4");
    play.never(300, "it is turned off a third time within a day", |sim| offs(sim, Some(4)) > before)?;
    play.check(held(&play.sim, 4, "RepeatOffender"), "it is not said that it died too often")?;
    play.end()
}

fn an_order_is_carried_out_and_the_node_comes_back() -> Told {
    let mut play = Play::of(Site::plain(25, 5, 0));
    play.person(Act::Fence(4));
    play.wait(1);
    play.sim.freeze("n4");
    play.until(60, "it is off and released", |sim| released(sim, 4))?;
    play.check(offs(&play.sim, Some(4)) == 1, "it was turned off more than once")?;
    play.end()
}
