//! Ceph's monitors and OSDs: who may accuse whom, and what a new leader knows.

use coroner_shared::time::Span;

use super::{Play, Story, Told, calm, held, is, offs, others_touched};
use crate::sim::Site;
use crate::sim::network::{Ends, Flow, Weather};
use crate::sim::trouble::{Trouble, isolation, one_way};

pub(super) const ALL: &[Story] = &[
    Story {
        name: "one_isolated_host_outvotes_nobody",
        thread: "tracker.ceph.com, issue #6709",
        lesson: "A host cut from its peers accused them all, and many accusations from one host counted as many.",
        play: one_isolated_host_outvotes_nobody,
    },
    Story {
        name: "a_rack_without_its_uplink_is_held_and_comes_back",
        thread: "tracker.ceph.com, issue #6615",
        lesson: "Behind a broken uplink a rack was marked down, came back because its own members heard it, and flapped.",
        play: a_rack_without_its_uplink_is_held_and_comes_back,
    },
    Story {
        name: "a_broken_link_that_goes_on_accusing_harms_nobody",
        thread: "tracker.ceph.com, issue #6278",
        lesson: "A host with a bad link kept accusing others, and withdrawals from hosts already down were ignored.",
        play: a_broken_link_that_goes_on_accusing_harms_nobody,
    },
    Story {
        name: "what_observers_said_before_is_told_to_a_new_leader",
        thread: "tracker.ceph.com, issue #25126",
        lesson: "Reports that had been sent once were not sent again, so a new leader lacked votes.",
        play: what_observers_said_before_is_told_to_a_new_leader,
    },
    Story {
        name: "a_new_leader_that_has_heard_nobody_accuses_nobody",
        thread: "tracker.ceph.com, issue #60513",
        lesson: "A new leader did not know who beaconed when, and marked living daemons down.",
        play: a_new_leader_that_has_heard_nobody_accuses_nobody,
    },
    Story {
        name: "slow_elections_condemn_nobody",
        thread: "tracker.ceph.com, issue #11167",
        lesson: "While monitors held elections nobody took beacons; afterwards the daemons had missed their deadlines.",
        play: slow_elections_condemn_nobody,
    },
    Story {
        name: "a_suspicion_shorter_than_the_beacons_is_refused",
        thread: "tracker.ceph.com, issue #33963",
        lesson: "A grace period below the interval of the beacons took the whole cluster down.",
        play: a_suspicion_shorter_than_the_beacons_is_refused,
    },
    Story {
        name: "a_host_that_flapped_comes_back_by_itself",
        thread: "tracker.ceph.com, issue #15480",
        lesson: "Daemons on a flapping network gave up for good; once it was well nobody started them.",
        play: a_host_that_flapped_comes_back_by_itself,
    },
];

fn one_isolated_host_outvotes_nobody() -> Told {
    // N = 3: each host is observed by both others, so one more accusation decides.
    let mut play = Play::of(Site::plain(6709, 3, 0));
    let peers = Some(vec![Flow::Peer, Flow::Ping, Flow::Kubelet]);
    let mut cut = one_way(Ends::Hosts(vec![2]), Ends::NotHosts(vec![2]), peers.clone(), 100);
    cut.extend(one_way(Ends::NotHosts(vec![2]), Ends::Hosts(vec![2]), peers, 100));
    play.begin(Trouble::Cut { cut, span: Span::from_secs(120) });
    play.never(110, "somebody is condemned or held", |sim| !calm(sim))?;
    play.end()
}

fn a_rack_without_its_uplink_is_held_and_comes_back() -> Told {
    // Racks of two, where "all of a domain" is two.
    let mut play = Play::of(Site::plain(6615, 8, 4));
    play.begin(Trouble::Cut { cut: isolation(&[3, 7]), span: Span::from_secs(100) });
    play.until(60, "both are held as a rack", |sim| {
        held(sim, 3, "DomainDown") && held(sim, 7, "DomainDown")
    })?;
    play.never(30, "a power command, or somebody else is touched", |sim| {
        offs(sim, None) > 0 || others_touched(sim, &[3, 7])
    })?;
    play.until(90, "both come back by themselves", calm)?;
    play.check(offs(&play.sim, None) == 0, "a power command was sent")?;
    play.end()
}

fn a_broken_link_that_goes_on_accusing_harms_nobody() -> Told {
    let mut play = Play::of(Site::plain(6278, 5, 0));
    let peers = Some(vec![Flow::Peer]);
    let mut cut = one_way(Ends::Hosts(vec![4]), Ends::NotHosts(vec![4]), peers.clone(), 85);
    cut.extend(one_way(Ends::NotHosts(vec![4]), Ends::Hosts(vec![4]), peers, 85));
    play.begin(Trouble::Cut { cut, span: Span::from_secs(90) });
    play.never(100, "somebody is touched", |sim| !calm(sim))?;
    play.end()
}

fn what_observers_said_before_is_told_to_a_new_leader() -> Told {
    let mut play = Play::of(Site::plain(25126, 7, 0));
    play.sim.freeze("n6");
    play.wait(3);
    // All of them, so that nobody has heard the accusations; the agents were acknowledged already.
    for replica in 0..3 {
        play.begin(Trouble::ReplicaKilled { replica, away: Span::from_ms(500) });
    }
    // An election, the grace of a group that comes from nothing, and the deadline.
    play.until(28, "the dead host is fenced", |sim| offs(sim, Some(6)) > 0)?;
    play.check(!others_touched(&play.sim, &[6]), "somebody else is touched")?;
    play.end()
}

fn a_new_leader_that_has_heard_nobody_accuses_nobody() -> Told {
    let mut play = Play::of(Site::plain(60513, 7, 0));
    for round in 0..6 {
        let leader = usize::from(round % 2 == 0);
        play.begin(Trouble::ReplicaKilled { replica: leader, away: Span::from_secs(2) });
        play.begin(Trouble::ReplicaKilled { replica: 2, away: Span::from_secs(1) });
        play.never(15, "somebody is touched", |sim| !calm(sim))?;
    }
    play.end()
}

fn slow_elections_condemn_nobody() -> Told {
    let mut play = Play::of(Site::plain(11167, 6, 0));
    let hosts = || Ends::Hosts(vec![0, 1, 2]);
    let cut = one_way(hosts(), hosts(), Some(vec![Flow::Replica]), 100);
    play.begin(Trouble::Cut { cut, span: Span::from_secs(70) });
    play.never(120, "somebody is touched", |sim| !calm(sim))?;
    play.end()
}

fn a_suspicion_shorter_than_the_beacons_is_refused() -> Told {
    let with = |suspect: Span| {
        let mut site = Site::plain(33963, 5, 0);
        for policy in site.policies.values_mut() {
            policy.rules.beacons.suspect = suspect;
        }
        let mut play = Play::of(site);
        play.sim.cut_power("n4");
        play.wait(30);
        (play.sim.phase("n4"), play)
    };
    let (phase, play) = with(Span::from_ms(200));
    play.check(
        phase == "Alive" && play.sim.state().policies.is_empty(),
        "a policy that cannot be meant is in force",
    )?;
    let (phase, play) = with(Span::from_ms(1250));
    play.check(phase == "Released", "the same with the shipped value is acted on")
}

fn a_host_that_flapped_comes_back_by_itself() -> Told {
    let mut play = Play::of(Site::plain(15480, 5, 0));
    let cut = isolation(&[4]);
    play.begin(Trouble::Flapping { cut, each: Span::from_secs(5), times: 8 });
    play.never(90, "a power command", |sim| offs(sim, None) > 0)?;
    let weather =
        Weather { loss: 40, duplicate: 20, corrupt: 10, delay: (Span::from_ms(1), Span::from_ms(300)) };
    play.begin(Trouble::Weather { weather, span: Span::from_secs(30) });
    play.wait(31);
    play.until(60, "everybody is Alive without anybody's help", calm)?;
    play.check(!is(&play.sim, 4, "Held"), "it is still held")?;
    play.end()
}
