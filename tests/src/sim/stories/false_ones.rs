//! Those who are not what they say: compromised agents, a clone with a node's key, a disk that was put back from a copy.

use coroner_shared::time::Span;

use super::{Play, Story, Told, held, is, offs, others_touched, released};
use crate::sim::Site;
use crate::sim::odd::Odd;
use crate::sim::trouble::Trouble;

pub(super) const ALL: &[Story] = &[
    Story {
        name: "liars_fewer_than_a_verdict_needs_condemn_nobody",
        thread: "inferred: compromised observers that agree on a victim",
        lesson: "Whoever is heard by one honest host is not condemned by all others together.",
        play: liars_fewer_than_a_verdict_needs_condemn_nobody,
    },
    Story {
        name: "a_clone_that_spoke_for_a_node_does_not_have_it_killed",
        thread: "inferred: a machine started from a copy of another's disk",
        lesson: "The clone's boot takes the place of the true one; the node is held, and a reboot gives it its voice back.",
        play: a_clone_that_spoke_for_a_node_does_not_have_it_killed,
    },
    Story {
        name: "a_replica_put_back_from_a_copy_ends_by_name_and_decides_nothing",
        thread: "inferred: a backup of one replica's disk, restored",
        lesson: "It has acknowledged what it no longer knows; the others decide without it.",
        play: a_replica_put_back_from_a_copy_ends_by_name_and_decides_nothing,
    },
];

fn odd(odd: Odd) -> Trouble {
    Trouble::Odd(odd)
}

fn liars_fewer_than_a_verdict_needs_condemn_nobody() -> Told {
    // Seven nodes: six observers, five of whom must be silent.
    let mut play = Play::of(Site::plain(121, 7, 0));
    let span = Span::from_secs(60);
    play.begin(odd(Odd::Lies { liars: vec![0, 2, 3, 5], about: 6, lives: false, quiet: false, span }));
    play.never(62, "somebody is condemned or held", |sim| others_touched(sim, &[]))?;
    play.check(offs(&play.sim, None) == 0, "a power command was sent")?;
    play.end()
}

fn a_clone_that_spoke_for_a_node_does_not_have_it_killed() -> Told {
    let mut play = Play::of(Site::plain(122, 6, 0));
    play.begin(odd(Odd::Clone { machine: 5, of: 4, span: Span::from_secs(90) }));
    play.wait(100);
    play.until(60, "the true node is held, since its kubelet lives", |sim| held(sim, 4, "KubeletAlive"))?;
    play.never(60, "the true node is condemned", |sim| is(sim, 4, "Condemned") || is(sim, 4, "Fencing"))?;
    play.check(offs(&play.sim, Some(4)) == 0, "the true node was turned off")?;
    play.begin(Trouble::Reboot { machine: 4 });
    play.until(240, "a reboot gives it its voice back", |sim| is(sim, 4, "Alive"))?;
    play.end()
}

fn a_replica_put_back_from_a_copy_ends_by_name_and_decides_nothing() -> Told {
    let mut play = Play::of(Site::plain(123, 6, 0));
    // Of a follower: a leader would only have led, and been followed again.
    let leader = play.sim.leader_index();
    let replica = (0..3).find(|index| Some(*index) != leader).unwrap_or_default();
    play.begin(odd(Odd::DiskCopied { replica }));
    play.sim.cut_power("n5");
    play.until(60, "a dead host is released", |sim| released(sim, 5))?;
    play.begin(odd(Odd::DiskRestored { replica, away: Span::from_secs(1) }));
    play.wait(10);
    let told = "it acknowledged entries up to";
    play.check(play.sim.story().contains(told), "the replica does not say that its disk forgot")?;
    play.begin(Trouble::PowerCut { machine: 4 });
    play.until(60, "the others release the next dead host", |sim| released(sim, 4))?;
    play.end()
}
