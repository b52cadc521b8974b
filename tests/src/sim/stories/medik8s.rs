//! medik8s: self-node-remediation, node-healthcheck-operator, fence-agents-remediation.

use coroner_shared::time::Span;

use super::{Play, Story, Told, calm, held, in_flight, is, name, offs, others_touched, released};
use crate::sim::network::{Ends, Weather};
use crate::sim::odd::Odd;
use crate::sim::people::Act;
use crate::sim::trouble::{Trouble, isolation, one_way};
use crate::sim::{Condition, Sim, Site};

pub(super) const ALL: &[Story] = &[
    Story {
        name: "one_peer_alone_decides_nothing",
        thread: "medik8s/self-node-remediation#344",
        lesson: "With a single peer its word alone rebooted a node.",
        play: one_peer_alone_decides_nothing,
    },
    Story {
        name: "two_that_vouch_for_each_other_are_both_fenced",
        thread: "medik8s/self-node-remediation#354",
        lesson: "Two workers behind a cut vouched for one another and ran on, while their pods were started outside.",
        play: two_that_vouch_for_each_other_are_both_fenced,
    },
    Story {
        name: "three_of_seven_that_vouch_for_each_other_are_held_by_name",
        thread: "medik8s/self-node-remediation#354",
        lesson: "The same with a part so large that those who are left are too few to say that it is dead.",
        play: three_of_seven_that_vouch_for_each_other_are_held_by_name,
    },
    Story {
        name: "an_isolated_host_with_a_dead_bmc_is_never_assumed_off",
        thread: "medik8s/self-node-remediation#258",
        lesson: "A node that nobody had turned off counted as rebooted after a while.",
        play: an_isolated_host_with_a_dead_bmc_is_never_assumed_off,
    },
    Story {
        name: "a_control_plane_node_is_judged_by_the_same_evidence",
        thread: "medik8s/self-node-remediation#251",
        lesson: "What peers said of a control-plane node was ignored.",
        play: a_control_plane_node_is_judged_by_the_same_evidence,
    },
    Story {
        name: "slow_is_not_dead",
        thread: "medik8s/self-node-remediation#262",
        lesson: "Peers that answered slowly had a healthy node rebooted.",
        play: slow_is_not_dead,
    },
    Story {
        name: "a_node_that_recovers_on_the_way_is_left_alone",
        thread: "medik8s/self-node-remediation#159",
        lesson: "A node became healthy in the middle, and its resources were deleted nevertheless.",
        play: a_node_that_recovers_on_the_way_is_left_alone,
    },
    Story {
        name: "a_quick_reboot_does_not_run_old_pods_beside_new_ones",
        thread: "medik8s/self-node-remediation#16",
        lesson: "A node was back before its old pods were gone, and ran them again.",
        play: a_quick_reboot_does_not_run_old_pods_beside_new_ones,
    },
    Story {
        name: "a_pause_stops_commands_and_no_way_back",
        thread: "medik8s/node-healthcheck-operator, pause",
        lesson: "A pause blocked the clean-up of nodes that had healed.",
        play: a_pause_stops_commands_and_no_way_back,
    },
    Story {
        name: "one_of_many_silent_ones_at_a_time",
        thread: "redhat-performance/benchmark-runner#1065",
        lesson: "A minimum of one healthy node permitted a near-total reboot.",
        play: one_of_many_silent_ones_at_a_time,
    },
    Story {
        name: "two_hosts_of_replicas_are_never_down_by_our_hand",
        thread: "medik8s/node-healthcheck-operator, etcd guard",
        lesson: "A second fencing took the quorum of those who decide.",
        play: two_hosts_of_replicas_are_never_down_by_our_hand,
    },
    Story {
        name: "a_node_deleted_in_the_middle_leaves_nothing",
        thread: "medik8s/poison-pill#29, NVIDIA/NVSentinel#1387",
        lesson: "The object was deleted mid-way: endless retries, and marks that stayed.",
        play: a_node_deleted_in_the_middle_leaves_nothing,
    },
    Story {
        name: "an_opt_out_is_never_overwritten",
        thread: "kvaps/kube-fencing#11",
        lesson: "A user's opt-out was overwritten.",
        play: an_opt_out_is_never_overwritten,
    },
];

fn one_peer_alone_decides_nothing() -> Told {
    for nodes in [1, 2] {
        let mut site = Site::plain(343 + nodes as u64, nodes, 0);
        site.replicas = vec![0];
        let mut play = Play::of(site);
        let last = nodes - 1;
        play.begin(Trouble::Cut { cut: isolation(&[last]), span: Span::from_secs(100) });
        play.never(95, "a power command or a release", |sim| offs(sim, None) > 0 || released(sim, last))?;
        let told = nodes == 1 || held(&play.sim, 1, "TwoNodes");
        play.check(told, "it is not said that two nodes are too few")?;
        play.end()?;
    }
    // Of three each is observed by both others: what one says is not enough, whatever speaks against it or does not.
    let mut play = Play::of(Site::plain(3440, 3, 0));
    let mut cut = one_way(Ends::Hosts(vec![2]), Ends::Hosts(vec![1]), None, 100);
    cut.extend(one_way(Ends::Hosts(vec![1]), Ends::Hosts(vec![2]), None, 100));
    play.begin(Trouble::Cut { cut, span: Span::from_secs(60) });
    play.never(58, "it is condemned, and another one hears it", |sim| {
        is(sim, 2, "Condemned") || offs(sim, None) > 0
    })?;
    play.wait(30);
    let span = Span::from_secs(90);
    play.begin(Trouble::Odd(Odd::Lies { liars: vec![1], about: 2, lives: false, quiet: true, span }));
    play.wait(5);
    play.sim.freeze("n2");
    play.never(80, "it is condemned by the word of one", |sim| {
        is(sim, 2, "Condemned") || offs(sim, None) > 0
    })?;
    play.check(held(&play.sim, 2, "TooFewObservers"), "it is not said that one is too few")?;
    play.until(90, "it is fenced by the word of two", |sim| offs(sim, Some(2)) == 1 && released(sim, 2))?;
    play.end()
}

fn two_that_vouch_for_each_other_are_both_fenced() -> Told {
    for (nodes, cut) in [(7, [5, 6]), (5, [3, 4])] {
        let mut play = Play::of(Site::plain(354 + nodes as u64, nodes, 0));
        play.begin(Trouble::Cut { cut: isolation(&cut), span: Span::from_secs(240) });
        play.until(200, "both were turned off before their workloads went on", |sim| {
            cut.iter().all(|node| released(sim, *node) && offs(sim, Some(*node)) > 0)
        })?;
        play.check(!others_touched(&play.sim, &cut), "somebody on the other side is touched")?;
        play.end()?;
    }
    Ok(())
}

fn three_of_seven_that_vouch_for_each_other_are_held_by_name() -> Told {
    // Four observers are left of the six of each, and five must be silent.
    let cut = [4, 5, 6];
    let mut play = Play::of(Site::plain(3540, 7, 0));
    play.begin(Trouble::Cut { cut: isolation(&cut), span: Span::from_secs(120) });
    play.until(40, "all three are held", |sim| cut.iter().all(|node| held(sim, *node, "TooFewObservers")))?;
    play.never(70, "a power command or a release", |sim| {
        offs(sim, None) > 0 || cut.iter().any(|node| released(sim, *node))
    })?;
    play.check(!others_touched(&play.sim, &cut), "somebody on the other side is touched")?;
    play.until(60, "they come back by themselves", calm)?;
    play.end()
}

fn an_isolated_host_with_a_dead_bmc_is_never_assumed_off() -> Told {
    let mut play = Play::of(Site::plain(258, 5, 0));
    play.begin(Trouble::BmcSilent { bmc: 4, span: Span::from_secs(900) });
    play.wait(20);
    play.begin(Trouble::Cut { cut: isolation(&[4]), span: Span::from_secs(800) });
    play.until(60, "it is held for its BMC", |sim| held(sim, 4, "BmcSilent"))?;
    play.never(700, "its workloads are released", |sim| released(sim, 4))?;
    play.check(play.sim.condition("n4") == Some(Condition::Runs), "it runs throughout")?;
    play.end()
}

fn a_control_plane_node_is_judged_by_the_same_evidence() -> Told {
    let mut play = Play::of(Site::plain(251, 7, 0));
    play.sim.freeze("n1");
    play.until(90, "it is fenced and released", |sim| released(sim, 1))?;
    play.check(offs(&play.sim, Some(1)) > 0, "without a power command")?;
    play.end()
}

fn slow_is_not_dead() -> Told {
    // Everything, by less than a suspicion takes. By 5 s replicas elect nobody, and nothing is decided at all.
    let mut play = Play::of(Site::plain(262, 7, 2));
    let delay = (Span::from_ms(500), Span::from_ms(900));
    let weather = Weather { loss: 0, duplicate: 0, corrupt: 0, delay };
    play.begin(Trouble::Weather { weather, span: Span::from_secs(90) });
    play.never(100, "somebody is touched", |sim| !calm(sim))?;
    play.end()?;
    // Peers alone, by 5 s: far more than a suspicion takes, and every probe is given up.
    let mut play = Play::of(Site::plain(2620, 7, 2));
    play.sim.slow_peers(Span::from_secs(5));
    play.never(100, "somebody is touched", |sim| !calm(sim))?;
    play.sim.slow_peers(Span::ZERO);
    play.end()
}

fn a_node_that_recovers_on_the_way_is_left_alone() -> Told {
    // Let go 4 .. 9 s after it fell silent: around the deadline, the look and the command.
    for tenths in [40, 60, 70, 75, 80, 82, 84, 86, 90] {
        let mut play = Play::of(Site::plain(159 + tenths, 5, 0));
        play.begin(Trouble::Freeze { machine: 4, span: Span::from_ms(tenths * 100) });
        play.wait(60);
        let (sent, runs) = (offs(&play.sim, Some(4)), play.sim.condition("n4") == Some(Condition::Runs));
        play.check(
            sent == 0 || !runs || is(&play.sim, 4, "Returning"),
            "it was fenced and nothing came of it",
        )?;
        play.check(sent > 0 || is(&play.sim, 4, "Alive"), "nothing was sent, and it is not Alive")?;
        play.end()?;
    }
    Ok(())
}

fn a_quick_reboot_does_not_run_old_pods_beside_new_ones() -> Told {
    let mut site = Site::plain(16, 5, 0);
    site.firmware = (Span::from_secs(5), Span::from_secs(6));
    let mut play = Play::of(site);
    play.sim.cut_power("n4");
    play.until(30, "it is released", |sim| released(sim, 4))?;
    play.sim.power_on("n4");
    play.until(300, "it is back", |sim| is(sim, 4, "Alive"))?;
    play.end()
}

fn a_pause_stops_commands_and_no_way_back() -> Told {
    let mut play = Play::of(Site::plain(15, 6, 0));
    play.sim.cut_power("n5");
    play.until(30, "it is released", |sim| released(sim, 5))?;
    play.person(Act::Pause(None));
    play.wait(2);
    play.sim.power_on("n5");
    play.sim.freeze("n4");
    let before = offs(&play.sim, None);
    play.until(400, "the first one is back", |sim| is(sim, 5, "Alive"))?;
    play.check(offs(&play.sim, None) == before, "a power command was sent during the pause")?;
    play.check(held(&play.sim, 4, "Paused"), "it is not said that the pause holds the other one")?;
    play.end()
}

fn one_of_many_silent_ones_at_a_time() -> Told {
    // Twelve nodes, so that those who are left are observers enough; three are no storm yet.
    let silent = [9, 10, 11];
    let mut play = Play::of(Site::plain(1065, 12, 0));
    for node in silent {
        play.sim.freeze(&name(node));
    }
    play.until(30, "one is in flight, and it is said of the others that they wait for it", |sim| {
        in_flight(sim) == 1 && silent.iter().filter(|node| held(sim, **node, "InFlight")).count() == 2
    })?;
    play.until_without(
        (240, "all are released, one after the other", |sim: &Sim| {
            silent.iter().all(|node| released(sim, *node))
        }),
        ("two are in flight at once", |sim: &Sim| in_flight(sim) > 1),
    )?;
    play.check(silent.iter().all(|node| offs(&play.sim, Some(*node)) == 1), "not each was turned off once")?;
    play.check(!others_touched(&play.sim, &silent), "somebody else is touched")?;
    play.end()
}

fn two_hosts_of_replicas_are_never_down_by_our_hand() -> Told {
    let mut site = Site::plain(106, 7, 0);
    site.control_plane = vec![false; 7];
    let mut play = Play::of(site);
    play.sim.freeze("n1");
    play.until(90, "the first host of a replica is off and released", |sim| released(sim, 1))?;
    // Nobody else could be asked any more, were a second one off.
    play.person(Act::Fence(2));
    play.never(60, "a power command to a second host of a replica", |sim| {
        offs(sim, Some(0)) + offs(sim, Some(2)) > 0
    })?;
    play.check(play.sim.story().contains("ArbiterHosts"), "the refusal does not say why")?;
    play.end()
}

fn a_node_deleted_in_the_middle_leaves_nothing() -> Told {
    for after in [2, 6, 9, 12, 20] {
        let mut play = Play::of(Site::plain(29 + after, 5, 0));
        // Off, since whoever deletes a Node lets go of its pods by that.
        play.sim.cut_power("n4");
        play.wait(after);
        play.person(Act::Recreate(4));
        play.wait(60);
        play.end()?;
    }
    Ok(())
}

fn an_opt_out_is_never_overwritten() -> Told {
    let mut play = Play::of(Site::plain(11, 5, 0));
    play.person(Act::Exclude(4, true));
    play.wait(3);
    play.sim.freeze("n4");
    for replica in 0..3 {
        play.begin(Trouble::ReplicaKilled { replica, away: Span::from_secs(3) });
    }
    play.never(90, "a power command or a release", |sim| offs(sim, None) > 0 || released(sim, 4))?;
    play.check(held(&play.sim, 4, "Excluded"), "it is not said that it is excluded")?;
    play.end()
}
