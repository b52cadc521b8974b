//! Guards that must hold, must end by themselves, and must say whom they hold.

use std::collections::BTreeMap;

use coroner_arbiter_core::policy::Binding;
use coroner_arbiter_core::status;
use coroner_shared::names::DOMAIN_LABELS;
use coroner_shared::time::Span;

use super::{Play, Story, Told, calm, held, is, offs, others_touched, paged, released};
use crate::sim::odd::Odd;
use crate::sim::people::Act;
use crate::sim::site::policy;
use crate::sim::trouble::{Trouble, isolation};
use crate::sim::{Sim, Site};

pub(super) const ALL: &[Story] = &[
    Story {
        name: "a_second_voter_waits_for_the_first_whatever_policies_select_them",
        thread: "medik8s/node-healthcheck-operator#272, #276, #283, #293; two policies on plain Kubernetes",
        lesson: "Two policies fenced two control-plane nodes; a guard that refused once never asked again.",
        play: a_second_voter_waits_for_the_first_whatever_policies_select_them,
    },
    Story {
        name: "two_of_five_voters_are_fenced_one_after_the_other",
        thread: "kubernetes-sigs/cluster-api#10125, #2976; kubernetes/kubernetes#138403",
        lesson: "With two of five control-plane nodes lost the guard let nobody be remediated any more.",
        play: two_of_five_voters_are_fenced_one_after_the_other,
    },
    Story {
        name: "a_leader_is_fenced_by_the_others",
        thread: "medik8s/node-healthcheck-operator#377, #383, #384",
        lesson: "Both replicas were on one node, and died with what they should have remediated.",
        play: a_leader_is_fenced_by_the_others,
    },
    Story {
        name: "a_name_that_begins_like_another_is_another",
        thread: "medik8s/node-healthcheck-operator#338, #344",
        lesson: "Names that begin alike made it find the remediation of another node.",
        play: a_name_that_begins_like_another_is_another,
    },
    Story {
        name: "nothing_is_done_while_the_api_server_cannot_be_read",
        thread: "medik8s/node-healthcheck-operator, upgrade check; inferred for a death",
        lesson: "A check that failed itself counted as passed.",
        play: nothing_is_done_while_the_api_server_cannot_be_read,
    },
    Story {
        name: "a_node_without_a_record_of_its_bmc_is_held_by_name",
        thread: "medik8s/self-node-remediation#236; medik8s/fence-agents-remediation, parameters",
        lesson: "A node that nothing could turn off counted as one that could be.",
        play: a_node_without_a_record_of_its_bmc_is_held_by_name,
    },
    Story {
        name: "a_record_that_was_lost_is_shown_before_it_is_needed",
        thread: "ClusterLabs/pacemaker#2262",
        lesson: "A change of configuration lost the fence device, and the first to notice was a death.",
        play: a_record_that_was_lost_is_shown_before_it_is_needed,
    },
    Story {
        name: "a_machine_off_for_maintenance_stays_fenceable",
        thread: "medik8s/fence-agents-remediation, validation",
        lesson: "The check of the fence device failed because the machine was off.",
        play: a_machine_off_for_maintenance_stays_fenceable,
    },
    Story {
        name: "a_bmc_that_fails_when_it_is_needed_is_paged_within_a_minute",
        thread: "inferred",
        lesson: "A death that could not be fenced was waited for in silence.",
        play: a_bmc_that_fails_when_it_is_needed_is_paged_within_a_minute,
    },
    Story {
        name: "a_node_whose_agent_never_spoke_is_neither_well_nor_condemned",
        thread: "medik8s/node-healthcheck-operator, conditions",
        lesson: "A node that had never told its conditions counted as healthy.",
        play: a_node_whose_agent_never_spoke_is_neither_well_nor_condemned,
    },
    Story {
        name: "agents_that_start_in_any_order_accuse_nobody",
        thread: "medik8s/self-node-remediation#259, #260, #263",
        lesson: "Peers that had no address yet made bad lists of peers, and wrong verdicts.",
        play: agents_that_start_in_any_order_accuse_nobody,
    },
    Story {
        name: "endless_flapping_fills_nothing",
        thread: "inferred",
        lesson: "What is written for each flap grew until it hurt.",
        play: endless_flapping_fills_nothing,
    },
];

/// Nine machines in three racks, each rack with a policy of its own; etcd on the machines from `first` on.
fn site(seed: u64, voters: std::ops::Range<usize>) -> Site {
    let mut site = Site::plain(seed, 9, 3);
    site.control_plane = (0..9).map(|node| voters.contains(&node)).collect();
    site.policies = (0..3)
        .map(|rack| {
            let mut own = policy(&format!("rack-{rack}"));
            own.node_selector = BTreeMap::from([(DOMAIN_LABELS[0].to_owned(), format!("r{rack}"))]);
            (own.name.clone(), own)
        })
        .collect();
    site
}

fn a_second_voter_waits_for_the_first_whatever_policies_select_them() -> Told {
    let mut play = Play::of(site(272, 6..9));
    play.sim.freeze("n7");
    play.until(60, "the first is released", |sim| released(sim, 7))?;
    play.sim.freeze("n8");
    play.until(30, "the second is held", |sim| held(sim, 8, "ControlPlane"))?;
    play.never(20, "the second is turned off beside the first", |sim| {
        !is(sim, 7, "Alive") && offs(sim, Some(8)) > 0
    })?;
    play.until(500, "the first is back", |sim| is(sim, 7, "Alive"))?;
    play.until(60, "the second is fenced without a nudge", |sim| offs(sim, Some(8)) > 0)?;
    play.end()
}

fn two_of_five_voters_are_fenced_one_after_the_other() -> Told {
    let mut play = Play::of(site(10125, 4..9));
    play.sim.freeze("n7");
    play.sim.freeze("n8");
    play.until(20, "one is fenced, the other waits", |sim| {
        offs(sim, None) == 1 && (is(sim, 7, "Held") || is(sim, 8, "Held"))
    })?;
    play.until(240, "both are released", |sim| released(sim, 7) && released(sim, 8))?;
    play.check(!others_touched(&play.sim, &[7, 8]), "somebody else is touched")?;
    play.end()
}

fn a_leader_is_fenced_by_the_others() -> Told {
    let mut play = Play::of(Site::plain(377, 6, 2));
    let Some(leader) = play.sim.leader_host() else { return play.check(false, "nobody leads") };
    play.sim.freeze(&format!("n{leader}"));
    play.until(60, "its host is released", |sim| released(sim, leader))?;
    play.check(offs(&play.sim, Some(leader)) > 0, "without a power command")?;
    play.check(!others_touched(&play.sim, &[leader]), "somebody else is touched")?;
    play.end()
}

fn a_name_that_begins_like_another_is_another() -> Told {
    let mut play = Play::of(Site::plain(338, 12, 0));
    for node in [10, 1] {
        play.sim.freeze(&format!("n{node}"));
        play.until(60, "it is released", |sim| released(sim, node))?;
        play.check(!others_touched(&play.sim, &[1, 10]), "another one is touched")?;
        play.until(600, "it is back", |sim| is(sim, node, "Alive"))?;
    }
    let (own, other) = (offs(&play.sim, Some(1)), offs(&play.sim, Some(10)));
    play.check((own, other) == (1, 1), "not each of both was turned off once")?;
    play.end()
}

fn nothing_is_done_while_the_api_server_cannot_be_read() -> Told {
    let mut play = Play::of(Site::plain(1700, 6, 0));
    play.begin(Trouble::ApiDown { span: Span::from_secs(120) });
    play.wait(5);
    play.sim.freeze("n5");
    play.until(30, "it is held", |sim| held(sim, 5, "ApiUnreadable"))?;
    play.never(80, "a power command", |sim| offs(sim, None) > 0)?;
    play.check(paged(&play.sim, 5, "HeldApiUnreadable"), "nobody is told in a minute why it waits")?;
    play.until(60, "it is fenced once the API server can be read", |sim| offs(sim, Some(5)) > 0)?;
    play.end()
}

fn a_node_without_a_record_of_its_bmc_is_held_by_name() -> Told {
    let mut site = Site::plain(236, 6, 0);
    site.bmcs[5].bound = false;
    let mut play = Play::of(site);
    let shown = status::problems(&play.sim.state()).join(" ");
    play.check(shown.contains("n5"), "nobody is told before it dies")?;
    play.sim.cut_power("n5");
    play.until(40, "it is held by name", |sim| held(sim, 5, "BmcUnclear") || held(sim, 5, "NotFenceable"))?;
    play.never(120, "a power command or a release", |sim| offs(sim, None) > 0 || released(sim, 5))?;
    play.person(Act::ConfirmOff(5));
    play.until(15, "a person's word releases it", |sim| released(sim, 5))?;
    play.end()
}

fn a_record_that_was_lost_is_shown_before_it_is_needed() -> Told {
    let mut play = Play::of(Site::plain(2262, 5, 0));
    let shown = |sim: &Sim| status::problems(&sim.state()).join(" ").contains("n4");
    play.check(!shown(&play.sim), "it is shown with all well")?;
    play.begin(Trouble::Odd(Odd::Unbound { machine: 4, span: Span::from_secs(120) }));
    play.until(10, "its missing record is shown", shown)?;
    play.until(150, "it is not shown once the record is back and verified", |sim| !shown(sim))?;
    play.end()
}

fn a_machine_off_for_maintenance_stays_fenceable() -> Told {
    let mut play = Play::of(Site::plain(26, 5, 0));
    play.person(Act::Exclude(4, true));
    play.wait(2);
    play.sim.cut_power("n4");
    // Longer than a verification may be old.
    for _ in 0..35 {
        play.wait(60);
        let bad = |binding: &Binding| binding.disabled.is_some() || binding.pin.is_none();
        play.check(!play.sim.state().bindings.values().any(bad), "its binding is disabled")?;
    }
    play.check(offs(&play.sim, None) == 0, "a power command was sent to a node that opted out")?;
    play.end()
}

fn a_bmc_that_fails_when_it_is_needed_is_paged_within_a_minute() -> Told {
    let span = Span::from_secs(200);
    let fails: [(Trouble, &[&str]); 3] = [
        (Trouble::BmcSilent { bmc: 4, span }, &["HeldBmcSilent"]),
        (Trouble::BmcPassword { bmc: 4, span }, &["HeldBmcUnclear"]),
        (Trouble::BmcErrors { bmc: 4, errors: 100, span }, &["HeldBmcUnclear"]),
    ];
    for (number, (fault, pages)) in (0..).zip(fails) {
        let mut play = Play::of(Site::plain(6000 + number, 5, 0));
        play.begin(fault);
        play.wait(5);
        play.sim.freeze("n4");
        play.until(60, "people are paged", |sim| pages.iter().any(|page| paged(sim, 4, page)))?;
        play.check(offs(&play.sim, None) == 0, "a power command was sent")?;
        play.end()?;
    }
    Ok(())
}

fn a_node_whose_agent_never_spoke_is_neither_well_nor_condemned() -> Told {
    let mut sim = Sim::new(Site::plain(23, 6, 0));
    // Before its agent has registered.
    sim.freeze("n5");
    sim.warm_up();
    let mut play = Play { sim };
    let state = play.sim.state();
    play.check(status::phases(&state).get("Unregistered") == Some(&1), "it counts as a node that is well")?;
    play.check(state.members() == 5, "it counts as a member for the brakes")?;
    play.never(300, "it is condemned, held or touched", |sim| !calm(sim) || offs(sim, None) > 0)?;
    play.end()
}

fn agents_that_start_in_any_order_accuse_nobody() -> Told {
    let mut site = Site::plain(259, 9, 3);
    site.cold = true;
    site.firmware = (Span::from_secs(5), Span::from_mins(4));
    let mut play = Play { sim: Sim::new(site) };
    play.never(420, "a power command, or somebody is condemned", |sim| {
        offs(sim, None) > 0 || (0..9).any(|node| is(sim, node, "Condemned"))
    })?;
    play.until(60, "everybody is Alive", calm)?;
    play.check(play.sim.state().members() == 9, "not everybody has registered")?;
    play.end()
}

fn endless_flapping_fills_nothing() -> Told {
    let mut play = Play::of(Site::plain(30, 5, 0));
    let cut = isolation(&[4]);
    play.begin(Trouble::Flapping { cut, each: Span::from_secs(6), times: 80 });
    let size = |sim: &Sim| postcard::to_allocvec(&sim.state()).map_or(usize::MAX, |bytes| bytes.len());
    play.never(300, "a power command", |sim| offs(sim, None) > 0)?;
    let (before, entries) = (size(&play.sim), play.sim.entries());
    play.never(600, "a power command", |sim| offs(sim, None) > 0)?;
    play.check(size(&play.sim) <= before + before / 10, "the state grows with each flap")?;
    play.check(play.sim.entries() <= 4 * entries, "the log grows faster with each flap")?;
    play.end()
}
