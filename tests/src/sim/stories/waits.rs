//! What waits, and for whom.

use coroner_arbiter_core::policy::Mode;
use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::time::Span;

use super::{Play, Story, Told, calm, held, is, offs, paged, released};
use crate::sim::people::Act;
use crate::sim::trouble::Trouble;
use crate::sim::{Condition, Sim, Site};

pub(super) const ALL: &[Story] = &[
    Story {
        name: "a_planned_reboot_is_not_a_death",
        thread: "medik8s/node-healthcheck-operator#238",
        lesson: "The next remediation began while the node was still booting.",
        play: a_planned_reboot_is_not_a_death,
    },
    Story {
        name: "a_boot_after_a_fence_is_waited_for",
        thread: "medik8s/node-healthcheck-operator#238",
        lesson: "The remediation ended with power on, and the next one cut it while the node was still booting.",
        play: a_boot_after_a_fence_is_waited_for,
    },
    Story {
        name: "a_shutdown_that_was_announced_is_no_death_until_it_has_lasted",
        thread: "inferred",
        lesson: "A host that said goodbye and lost its power was taken for dead at once, or was waited for in vain.",
        play: a_shutdown_that_was_announced_is_no_death_until_it_has_lasted,
    },
    Story {
        name: "a_host_that_hangs_after_its_goodbye_is_fenced_when_that_has_lapsed",
        thread: "inferred",
        lesson: "The word of a host that meant to shut down and hung kept it from being fenced for ever, or for nothing.",
        play: a_host_that_hangs_after_its_goodbye_is_fenced_when_that_has_lapsed,
    },
    Story {
        name: "restarted_agents_and_replicas_harm_nobody",
        thread: "medik8s/self-node-remediation#273, kvaps/kube-fencing",
        lesson: "A rollout of the agents looked like the death of their hosts.",
        play: restarted_agents_and_replicas_harm_nobody,
    },
    Story {
        name: "nodes_long_dead_are_not_fenced_when_enforce_begins",
        thread: "NVIDIA/NVSentinel#1280",
        lesson: "Switched on in a cluster with old faults, it acted on all of them at once.",
        play: nodes_long_dead_are_not_fenced_when_enforce_begins,
    },
    Story {
        name: "a_crash_dump_is_not_cut_short_without_being_asked",
        thread: "medik8s/self-node-remediation#40",
        lesson: "A kernel that was writing its dump was powered off.",
        play: a_crash_dump_is_not_cut_short_without_being_asked,
    },
    Story {
        name: "marks_of_others_stay_as_they_are",
        thread: "kvaps/kube-fencing#28, piraeus-ha-controller",
        lesson: "A patch erased other controllers' taints.",
        play: marks_of_others_stay_as_they_are,
    },
    Story {
        name: "a_cordon_of_a_person_stays",
        thread: "DataDog/draino#91, medik8s/node-maintenance-operator",
        lesson: "What a person had cordoned was uncordoned at the end.",
        play: a_cordon_of_a_person_stays,
    },
    Story {
        name: "a_taint_is_not_taken_away_while_old_pods_are_left",
        thread: "kubernetes/kubernetes#65392, #142331; medik8s/fence-agents-remediation#110",
        lesson: "The taint went while objects of the old life were still there.",
        play: a_taint_is_not_taken_away_while_old_pods_are_left,
    },
];

fn a_planned_reboot_is_not_a_death() -> Told {
    // Its goodbye stands for 20 minutes: a boot that takes so long or longer is judged as any silence is.
    for minutes in [1, 5, 9, 19] {
        let mut play = Play::of(Site::plain(238 + 1000 * minutes, 5, 0));
        play.begin(Trouble::PlannedReboot { machine: 4, firmware: Span::from_mins(minutes) });
        play.wait(10);
        play.until_without(
            (minutes * 60 + 60, "it is back", |sim: &Sim| {
                sim.condition("n4") == Some(Condition::Runs) && calm(sim)
            }),
            ("a power command or a release", |sim: &Sim| offs(sim, None) > 0 || released(sim, 4)),
        )?;
        play.end()?;
    }
    Ok(())
}

fn a_boot_after_a_fence_is_waited_for() -> Told {
    for minutes in [1, 5, 19, 25] {
        let mut site = Site::plain(2380 + minutes, 5, 0);
        site.firmware = (Span::from_mins(minutes), Span::from_mins(minutes));
        let mut play = Play::of(site);
        play.sim.freeze("n4");
        play.until(60, "it is released", |sim| released(sim, 4))?;
        play.until_without(
            (minutes * 60 + 300, "it is back", |sim: &Sim| is(sim, 4, "Alive")),
            ("a second power command", |sim: &Sim| offs(sim, None) > 1),
        )?;
        let shown = paged(&play.sim, 4, "OnButUnknown");
        play.check(shown == (minutes > 20), "a boot is paged before 20 minutes, or is not after them")?;
        play.end()?;
    }
    Ok(())
}

fn a_shutdown_that_was_announced_is_no_death_until_it_has_lasted() -> Told {
    for (seed, kind, patience) in [(239, GoodbyeKind::Shutdown, 30), (240, GoodbyeKind::Reboot, 120)] {
        let mut play = Play::of(Site::plain(seed, 5, 0));
        play.sim.planned_shutdown("n4", kind);
        play.until(5, "its power goes after its goodbye", |sim| !sim.has_power("n4"))?;
        play.never(patience, "it is judged before Off has lasted", |sim| !is(sim, 4, "Alive"))?;
        // An Off that is first read a poll later, and the proof of a machine that was found off.
        play.until(45, "it is found off and released once it has", |sim| released(sim, 4))?;
        play.sim.power_on("n4");
        play.until(400, "it is back", |sim| is(sim, 4, "Alive"))?;
        play.end()?;
    }
    Ok(())
}

fn a_host_that_hangs_after_its_goodbye_is_fenced_when_that_has_lapsed() -> Told {
    let mut play = Play::of(Site::plain(241, 5, 0));
    play.sim.planned_shutdown("n4", GoodbyeKind::Shutdown);
    play.wait(2);
    // In the middle of its shutdown, with the power on.
    play.sim.freeze("n4");
    play.never(20 * 60 - 5, "a power command while its goodbye stands", |sim| offs(sim, None) > 0)?;
    play.until(60, "it is fenced and released", |sim| offs(sim, Some(4)) == 1 && released(sim, 4))?;
    play.end()
}

fn restarted_agents_and_replicas_harm_nobody() -> Told {
    let mut play = Play::of(Site::plain(273, 7, 2));
    for round in 0..7 {
        let span = Span::from_secs(20);
        play.begin(Trouble::AgentAway { machine: round, span, goodbye: true });
        if round < 3 {
            play.begin(Trouble::ReplicaKilled { replica: round, away: Span::from_secs(4) });
        }
        play.never(25, "a power command", |sim| offs(sim, None) > 0)?;
    }
    play.until(60, "everybody is Alive", calm)?;
    play.end()
}

fn nodes_long_dead_are_not_fenced_when_enforce_begins() -> Told {
    let mut site = Site::plain(1347, 6, 0);
    for policy in site.policies.values_mut() {
        policy.mode = Mode::Observe;
    }
    let mut play = Play::of(site);
    play.sim.freeze("n5");
    play.never(120, "anything is done in Observe", |sim| offs(sim, None) > 0 || released(sim, 5))?;
    play.person(Act::Mode(Mode::Enforce));
    play.never(120, "a node that was silent before is fenced", |sim| offs(sim, None) > 0)?;
    play.check(held(&play.sim, 5, "SilentBeforeEnforce"), "it is not said why it waits")?;
    play.person(Act::Fence(5));
    play.until(60, "a person's order releases it", |sim| released(sim, 5))?;
    play.end()
}

fn a_crash_dump_is_not_cut_short_without_being_asked() -> Told {
    let mut play = Play::of(Site::plain(40, 6, 0));
    play.sim.panic("n5", Span::from_secs(100));
    play.never(95, "it is powered off while it dumps", |sim| offs(sim, None) > 0)?;
    play.until(400, "it comes back by itself", |sim| is(sim, 5, "Alive"))?;
    play.end()
}

fn marks_of_others_stay_as_they_are() -> Told {
    let mut play = Play::of(Site::plain(28, 5, 0));
    play.person(Act::ForeignTaint(4));
    play.sim.cut_power("n4");
    play.until(30, "it is released", |sim| released(sim, 4))?;
    play.sim.power_on("n4");
    play.until(400, "it is back", |sim| is(sim, 4, "Alive"))?;
    play.check(play.sim.taints("n4") == (1, false), "another controller's taint is gone")?;
    play.end()
}

fn a_cordon_of_a_person_stays() -> Told {
    let mut play = Play::of(Site::plain(91, 5, 0));
    play.person(Act::Cordon(4));
    play.wait(3);
    play.sim.cut_power("n4");
    play.until(30, "it is released", |sim| released(sim, 4))?;
    play.sim.power_on("n4");
    play.until(400, "it is back", |sim| is(sim, 4, "Alive"))?;
    play.end()
}

fn a_taint_is_not_taken_away_while_old_pods_are_left() -> Told {
    let mut site = Site::plain(65392, 5, 0);
    // So many that each node has some.
    site.workloads = 30;
    site.firmware = (Span::from_secs(3), Span::from_secs(4));
    let mut play = Play::of(site);
    play.sim.hold_pods("n4", true);
    play.sim.cut_power("n4");
    play.until(30, "it is released", |sim| released(sim, 4))?;
    play.sim.power_on("n4");
    play.never(120, "the taint goes before the pods", |sim| !sim.taints("n4").1)?;
    play.sim.hold_pods("n4", false);
    play.until(300, "it is back once they are gone", |sim| is(sim, 4, "Alive"))?;
    play.end()
}
