//! What waits, and for whom.

use coroner_arbiter_core::policy::Mode;
use coroner_shared::time::Span;

use super::{Play, Story, Told, calm, held, is, offs, released};
use crate::sim::Site;
use crate::sim::people::Act;
use crate::sim::trouble::Trouble;

pub(super) const ALL: &[Story] = &[
    Story {
        name: "a_planned_reboot_is_not_a_death",
        thread: "medik8s/node-healthcheck-operator#238",
        lesson: "The next remediation began while the node was still booting.",
        play: a_planned_reboot_is_not_a_death,
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
    let mut play = Play::of(Site::plain(238, 5, 0));
    play.begin(Trouble::PlannedReboot { machine: 4, firmware: Span::from_mins(9) });
    play.never(700, "a power command or a release", |sim| offs(sim, None) > 0 || released(sim, 4))?;
    play.until(60, "it is Alive", calm)?;
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
