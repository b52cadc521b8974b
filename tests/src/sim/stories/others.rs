//! CockroachDB, etcd, Consul: disks that stall, processes that sleep, hosts that are too busy to be believed.

use coroner_shared::time::Span;

use super::{Play, Story, Told, calm, is, offs, others_touched, released};
use crate::sim::Site;
use crate::sim::network::{Ends, Flow, Weather};
use crate::sim::odd::Odd;
use crate::sim::people::Act;
use crate::sim::trouble::{Trouble, one_way};

pub(super) const ALL: &[Story] = &[
    Story {
        name: "a_leader_with_a_stalled_disk_does_not_keep_the_dead_waiting",
        thread: "cockroachdb/cockroach#41691",
        lesson: "A node with a stalled disk kept its leases for a quarter of an hour.",
        play: a_leader_with_a_stalled_disk_does_not_keep_the_dead_waiting,
    },
    Story {
        name: "a_leader_whose_disk_fails_stops_and_another_goes_on",
        thread: "cockroachdb/cockroach#80713",
        lesson: "The test of stalled disks did not notice one that failed.",
        play: a_leader_whose_disk_fails_stops_and_another_goes_on,
    },
    Story {
        name: "a_leader_that_slept_acts_on_nothing_it_read_before",
        thread: "etcd-io/etcd#20418",
        lesson: "After a pause of the process a deposed leader answered reads from its old state.",
        play: a_leader_that_slept_acts_on_nothing_it_read_before,
    },
    Story {
        name: "a_deposed_leader_answers_no_reads",
        thread: "etcd-io/etcd#20418",
        lesson: "The same behind a cut: it leads on in its own eyes.",
        play: a_deposed_leader_answers_no_reads,
    },
    Story {
        name: "an_overloaded_host_accuses_nobody",
        thread: "hashicorp/consul#916",
        lesson: "A host too busy to read its socket declared healthy members failed.",
        play: an_overloaded_host_accuses_nobody,
    },
    Story {
        name: "loss_makes_nobody_flap",
        thread: "hashicorp/consul#1337",
        lesson: "Members flapped between alive and failed under packet loss.",
        play: loss_makes_nobody_flap,
    },
];

fn a_leader_with_a_stalled_disk_does_not_keep_the_dead_waiting() -> Told {
    let mut play = Play::of(Site::plain(41691, 6, 0));
    let Some(replica) = play.sim.leader_index() else { return play.check(false, "nobody leads") };
    play.begin(Trouble::DiskStalls { replica, stall: Span::from_secs(3), span: Span::from_secs(120) });
    play.sim.cut_power("n5");
    play.until(90, "the dead host is released", |sim| released(sim, 5))?;
    play.end()
}

fn a_leader_whose_disk_fails_stops_and_another_goes_on() -> Told {
    for full in [false, true] {
        let mut play = Play::of(Site::plain(80713 + u64::from(full), 6, 0));
        let Some(replica) = play.sim.leader_index() else { return play.check(false, "nobody leads") };
        play.begin(Trouble::DiskFails { replica, full, span: Span::from_secs(120) });
        play.sim.cut_power("n5");
        play.until(60, "the dead host is released", |sim| released(sim, 5))?;
        play.end()?;
    }
    Ok(())
}

fn a_leader_that_slept_acts_on_nothing_it_read_before() -> Told {
    // It falls asleep 7.5 .. 10 s after the silence began: around the looks and the command. The dead host wakes
    // before it does.
    for tenths in (76..100).step_by(2) {
        let mut play = Play::of(Site::plain(20418 + tenths, 6, 0));
        let Some(machine) = play.sim.leader_host() else { return play.check(false, "nobody leads") };
        play.begin(Trouble::Freeze { machine: 5, span: Span::from_ms(tenths * 100 + 1_500) });
        play.sim.run_for(Span::from_ms(tenths * 100));
        let sent = offs(&play.sim, Some(5));
        play.begin(Trouble::Freeze { machine, span: Span::from_ms(4_500) });
        play.wait(30);
        let later = offs(&play.sim, Some(5)) - sent;
        play.check(sent > 0 || later == 0, "a command was sent on what was read before the sleep")?;
        play.end()?;
    }
    Ok(())
}

fn a_deposed_leader_answers_no_reads() -> Told {
    let mut play = Play::of(Site::plain(204_180, 6, 0));
    // Whoever leads, or still believes so, is read ten times a second; what comes of it an invariant judges.
    play.begin(Trouble::Odd(Odd::Readers { span: Span::from_secs(80) }));
    play.sim.freeze("n5");
    for _ in 0..6 {
        let Some(machine) = play.sim.leader_host() else { return play.check(false, "nobody leads") };
        let (host, rest) = (Ends::Hosts(vec![machine]), Ends::NotHosts(vec![machine]));
        let flows = Some(vec![Flow::Replica]);
        let mut cut = one_way(host.clone(), rest.clone(), flows.clone(), 100);
        cut.extend(one_way(rest, host, flows, 100));
        play.begin(Trouble::Cut { cut, span: Span::from_secs(5) });
        // The others commit something as soon as one of them leads, which the deposed one cannot know.
        for turn in 0..20 {
            play.person(Act::Exclude(4, turn % 2 == 0));
            play.sim.run_for(Span::from_ms(500));
        }
    }
    play.until(60, "the dead host is released", |sim| released(sim, 5))?;
    play.end()
}

fn an_overloaded_host_accuses_nobody() -> Told {
    let mut play = Play::of(Site::plain(916, 4, 0));
    for _ in 0..12 {
        play.begin(Trouble::Freeze { machine: 3, span: Span::from_ms(1_700) });
        play.never(5, "somebody else is touched", |sim| others_touched(sim, &[3]))?;
    }
    play.check(offs(&play.sim, None) == 0, "a power command was sent")?;
    play.check(is(&play.sim, 3, "Alive"), "the busy host itself is not Alive")?;
    play.end()
}

fn loss_makes_nobody_flap() -> Told {
    let mut play = Play::of(Site::plain(1337, 8, 2));
    let weather =
        Weather { loss: 35, duplicate: 5, corrupt: 5, delay: (Span::from_ms(1), Span::from_ms(60)) };
    play.begin(Trouble::Weather { weather, span: Span::from_secs(120) });
    play.never(125, "somebody is touched", |sim| !calm(sim))?;
    play.end()
}
