//! Signs of life: partitions, stalls, and answers of a kernel alone.

use coroner_shared::time::Span;

use super::{Play, Story, Told, calm, held, is, offs, others_touched, released};
use crate::sim::network::{Ends, Flow};
use crate::sim::trouble::{Trouble, one_way};
use crate::sim::{Sim, Site};

pub(super) const ALL: &[Story] = &[
    Story {
        name: "a_stalled_api_server_is_not_the_death_of_nodes",
        thread: "kubernetes/kubernetes#121793, #127352, #126287",
        lesson: "API server or etcd stalled for 50 s, and every node went NotReady together.",
        play: a_stalled_api_server_is_not_the_death_of_nodes,
    },
    Story {
        name: "an_arbiter_cut_from_the_workers_freezes",
        thread: "kubernetes/kubernetes#28832, #30536, #105617",
        lesson: "A cut between control plane and nodes evicted everything.",
        play: an_arbiter_cut_from_the_workers_freezes,
    },
    Story {
        name: "ready_false_for_long_is_no_death",
        thread: "cocoonstack/cocoon-operator#20",
        lesson: "A node that was NotReady for its database lost all its machines, though the host was fine.",
        play: ready_false_for_long_is_no_death,
    },
    Story {
        name: "a_kubelet_that_is_gone_for_long_is_no_death",
        thread: "kubevirt/kubevirt#8104; inferred for a host that is heard",
        lesson: "Where only the kubelet was gone the host was taken for dead, and what it ran was started elsewhere.",
        play: a_kubelet_that_is_gone_for_long_is_no_death,
    },
    Story {
        name: "a_kubelet_that_renews_is_alive",
        thread: "kubevirt/kubevirt#8104, #3595",
        lesson: "One of a host's two daemons was down; the pod was deleted and its virtual machine ran on.",
        play: a_kubelet_that_renews_is_alive,
    },
    Story {
        name: "a_kernel_that_answers_is_held_for_a_person",
        thread: "inferred; Ceph takes a refused port for a death",
        lesson: "A refused port was taken for the death of the host that refused it.",
        play: a_kernel_that_answers_is_held_for_a_person,
    },
    Story {
        name: "heard_by_one_that_tells_only_a_follower_is_heard",
        thread: "inferred",
        lesson: "With its own view alone a leader condemned a node that an observer heard and had told only a follower.",
        play: heard_by_one_that_tells_only_a_follower_is_heard,
    },
    Story {
        name: "a_one_way_cut_takes_nobody_else_along",
        thread: "inferred",
        lesson: "A node that hears and is not heard: each side believed something else.",
        play: a_one_way_cut_takes_nobody_else_along,
    },
    Story {
        name: "a_leader_that_slept_accuses_nobody",
        thread: "inferred",
        lesson: "After a suspend everything looked silent.",
        play: a_leader_that_slept_accuses_nobody,
    },
    Story {
        name: "a_torn_network_condemns_nobody",
        thread: "Rapid (ATC'18), figures 9 and 10: others under partial partitions",
        lesson: "With a quarter of the directed paths gone, counting accusers alone removes hundreds of healthy hosts.",
        play: a_torn_network_condemns_nobody,
    },
    Story {
        name: "many_that_fall_silent_at_once_are_a_storm",
        thread: "medik8s/node-healthcheck-operator#378, #387",
        lesson: "A switch died, and everything behind it was powered off; or the storm never ended.",
        play: many_that_fall_silent_at_once_are_a_storm,
    },
    Story {
        name: "old_beacons_sent_again_keep_nobody_alive",
        thread: "NVIDIA/NVSentinel#1280, #1347",
        lesson: "Old events were replayed and acted on.",
        play: old_beacons_sent_again_keep_nobody_alive,
    },
];

fn a_stalled_api_server_is_not_the_death_of_nodes() -> Told {
    for span in [30, 60, 300] {
        let mut play = Play::of(Site::plain(121_793 + span, 6, 2));
        play.begin(Trouble::ApiDown { span: Span::from_secs(span) });
        play.never(span + 30, "somebody is touched", |sim| !calm(sim))?;
        play.end()?;
    }
    Ok(())
}

fn an_arbiter_cut_from_the_workers_freezes() -> Told {
    for workers in [vec![8, 9, 10], vec![4, 5, 6, 7, 8, 9, 10], (3..11).collect()] {
        let mut play = Play::of(Site::plain(28832, 11, 0));
        let arbiter = || Ends::Hosts(vec![0, 1, 2]);
        let flows = Some(vec![Flow::Report, Flow::Replica, Flow::Peer, Flow::Ping, Flow::Kubelet]);
        let mut cut = one_way(arbiter(), Ends::Hosts(workers.clone()), flows.clone(), 100);
        cut.extend(one_way(Ends::Hosts(workers), arbiter(), flows, 100));
        play.begin(Trouble::Cut { cut, span: Span::from_secs(100) });
        play.never(95, "a power command", |sim| offs(sim, None) > 0)?;
        play.end()?;
    }
    Ok(())
}

fn ready_false_for_long_is_no_death() -> Told {
    let ready = |sim: &Sim| sim.state().nodes.values().filter_map(|n| n.facts.as_ref()).all(|f| f.ready);
    let mut play = Play::of(Site::plain(200, 6, 0));
    play.sim.kubelet_is_unready("n5", true);
    play.until(20, "its kubelet reports that it is not ready", |sim| !ready(sim))?;
    play.never(3600, "anything is done", |sim| !calm(sim) || offs(sim, None) > 0)?;
    // Nobody hears its host any more, and that kubelet renews its Lease.
    only_its_kubelet_speaks(&mut play)?;
    play.check(!ready(&play.sim), "its Node is shown as ready")?;
    play.sim.kubelet_is_unready("n5", false);
    play.end()
}

fn a_kubelet_that_is_gone_for_long_is_no_death() -> Told {
    let mut play = Play::of(Site::plain(20, 5, 0));
    play.begin(Trouble::KubeletAway { machine: 4, span: Span::from_mins(60) });
    play.never(3600, "anything is done", |sim| !calm(sim) || offs(sim, None) > 0)?;
    play.end()
}

/// n5's agent is away and nobody reaches the host, but for its kubelet's way to the API server.
fn only_its_kubelet_speaks(play: &mut Play) -> Told {
    play.begin(Trouble::AgentAway { machine: 5, span: Span::from_secs(100), goodbye: false });
    let mut cut = one_way(Ends::Hosts(vec![5]), Ends::NotHosts(vec![5]), None, 100);
    cut.extend(one_way(Ends::NotHosts(vec![5]), Ends::Hosts(vec![5]), None, 100));
    play.begin(Trouble::Cut { cut, span: Span::from_secs(100) });
    play.never(95, "a power command or a release", |sim| offs(sim, None) > 0 || released(sim, 5))?;
    play.check(held(&play.sim, 5, "KubeletAlive"), "it is not said that its kubelet lives")
}

fn a_kubelet_that_renews_is_alive() -> Told {
    let mut play = Play::of(Site::plain(8104, 6, 0));
    only_its_kubelet_speaks(&mut play)?;
    play.end()
}

fn a_kernel_that_answers_is_held_for_a_person() -> Told {
    let mut play = Play::of(Site::plain(5, 6, 0));
    play.sim.hang("n5");
    play.until(60, "it is held", |sim| held(sim, 5, "HostAnswersOnly"))?;
    play.never(200, "a power command", |sim| offs(sim, None) > 0)?;
    play.end()
}

fn heard_by_one_that_tells_only_a_follower_is_heard() -> Told {
    let mut play = Play::of(Site::plain(2500, 6, 0));
    let Some(leader) = play.sim.leader_host() else { return play.check(false, "nobody leads") };
    // The subject is heard by one follower's host alone, and that follower's letters reach the leader.
    let follower = (0..3).find(|host| *host != leader).unwrap_or(0);
    let deaf: Vec<usize> = (0..6).filter(|host| *host != follower && *host != 5).collect();
    let mut cut = one_way(Ends::Hosts(vec![5]), Ends::Hosts(deaf.clone()), None, 100);
    cut.extend(one_way(Ends::Hosts(deaf), Ends::Hosts(vec![5]), None, 100));
    cut.extend(one_way(Ends::Hosts(vec![5]), Ends::Api, None, 100));
    play.begin(Trouble::Cut { cut, span: Span::from_secs(60) });
    play.never(58, "it is condemned", |sim| is(sim, 5, "Condemned") || offs(sim, None) > 0)?;
    play.end()
}

fn a_one_way_cut_takes_nobody_else_along() -> Told {
    let hosts = |of: &[usize]| Ends::Hosts(of.to_vec());
    // Arbiters, peers and the node itself; then its BMC and the API server.
    let (arbiters, peers, node) = (hosts(&[0, 1, 2]), hosts(&[3, 4]), hosts(&[5]));
    let (rest, bmc) = (Ends::NotHosts(vec![5]), Ends::Bmcs(vec![5]));
    let ways = [
        (node.clone(), rest.clone()),
        (node.clone(), arbiters.clone()),
        (node.clone(), peers.clone()),
        (node, Ends::Api),
        (arbiters.clone(), peers),
        (arbiters.clone(), bmc),
        (arbiters, Ends::Api),
        (rest, Ends::Api),
    ];
    let both = ways.into_iter().flat_map(|(from, to)| [(from.clone(), to.clone()), (to, from)]);
    for (number, (from, to)) in (0..).zip(both) {
        let mut play = Play::of(Site::plain(2510 + number, 6, 0));
        play.begin(Trouble::Cut { cut: one_way(from.clone(), to, None, 100), span: Span::from_secs(60) });
        play.never(58, "somebody else is touched", |sim| others_touched(sim, &[5]))?;
        // Silent to everybody is the node alone where nothing of it arrives anywhere.
        let silent = number == 0;
        play.check(silent || offs(&play.sim, None) == 0, "it is turned off, and somebody hears it")?;
        play.end()?;
    }
    Ok(())
}

fn a_leader_that_slept_accuses_nobody() -> Told {
    for milliseconds in [700, 1500, 5_000, 300_000] {
        let mut play = Play::of(Site::plain(26 + milliseconds, 6, 0));
        let Some(machine) = play.sim.leader_host() else { return play.check(false, "nobody leads") };
        play.begin(Trouble::Freeze { machine, span: Span::from_ms(milliseconds) });
        play.never(milliseconds / 1000 + 60, "somebody else is touched", |sim| {
            others_touched(sim, &[machine])
        })?;
        play.end()?;
    }
    Ok(())
}

fn a_torn_network_condemns_nobody() -> Told {
    let mut play = Play::of(Site::plain(910, 12, 0));
    let mut cut = Vec::new();
    for from in 3..12 {
        // A quarter of the paths among workers, the same in each run.
        let to: Vec<usize> = (3..12).filter(|to| *to != from && (from * 7 + to * 5) % 4 == 0).collect();
        cut.extend(one_way(Ends::Hosts(vec![from]), Ends::Hosts(to), None, 100));
    }
    play.begin(Trouble::Cut { cut, span: Span::from_secs(90) });
    play.never(85, "a living host is condemned", |sim| !calm(sim) || offs(sim, None) > 0)?;
    // A host dies while the network is torn: what few hear and few do not says little about it.
    play.end()
}

fn many_that_fall_silent_at_once_are_a_storm() -> Told {
    let mut play = Play::of(Site::plain(27, 20, 5));
    for node in [6, 8, 11, 12, 14] {
        play.begin(Trouble::Freeze { machine: node, span: Span::from_secs(240) });
    }
    play.never(230, "a power command, in the storm or after it", |sim| offs(sim, None) > 0)?;
    play.until(60, "all of them come back by themselves", calm)?;
    play.wait(130);
    play.sim.freeze("n7");
    play.until(60, "a single death after it is handled as ever", |sim| released(sim, 7))?;
    play.end()
}

fn old_beacons_sent_again_keep_nobody_alive() -> Told {
    let mut play = Play::of(Site::plain(1280, 6, 0));
    play.begin(Trouble::Records { machine: 5 });
    play.wait(30);
    play.sim.cut_power("n5");
    play.begin(Trouble::Replays { from: 4, span: Span::from_mins(9) });
    play.until(25, "it is released, whatever is sent again", |sim| released(sim, 5))?;
    play.sim.power_on("n5");
    play.until(400, "its new boot is Alive", |sim| is(sim, 5, "Alive"))?;
    play.wait(20);
    play.sim.freeze("n5");
    play.until(60, "it is fenced, whatever is sent again of its boots", |sim| offs(sim, Some(5)) > 1)?;
    play.end()
}
