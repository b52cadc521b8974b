//! Fence agents, CloudStack, metal3, BMC firmware: an answer, a code or a moment taken for "off".

use coroner_shared::bmc::Power;
use coroner_shared::time::Span;

use super::{Play, Story, Told, is, offs, paged, released};
use crate::sim::bmc::Traits;
use crate::sim::people::Act;
use crate::sim::trouble::{Trouble, isolation};
use crate::sim::{Condition, Site};

pub(super) const ALL: &[Story] = &[
    Story {
        name: "a_success_before_the_machine_is_off_releases_nothing",
        thread: "metal3-io/baremetal-operator#290",
        lesson: "`poweredOn: false` was written when the request succeeded, and volumes were let go of a running host.",
        play: a_success_before_the_machine_is_off_releases_nothing,
    },
    Story {
        name: "a_conflict_from_a_machine_that_is_off_is_no_failure",
        thread: "apache/cloudstack#13377; goldyfruit/ansible-ilo#1",
        lesson: "409 to a power-off of a machine already off left hosts in Fencing for ever.",
        play: a_conflict_from_a_machine_that_is_off_is_no_failure,
    },
    Story {
        name: "powering_off_is_on",
        thread: "ClusterLabs/fence-agents#253",
        lesson: "Every state but On was taken for off, PoweringOff among them.",
        play: powering_off_is_on,
    },
    Story {
        name: "a_machine_that_never_stops_powering_off_is_shown_and_never_released",
        thread: "ClusterLabs/fence-agents#610",
        lesson: "A node stuck while powering off blocked everything, and nobody was told.",
        play: a_machine_that_never_stops_powering_off_is_shown_and_never_released,
    },
    Story {
        name: "a_bmc_that_just_restarted_proves_nothing_for_a_while",
        thread: "turing-machines/BMC-Firmware#226",
        lesson: "A BMC said Off of a machine that was running.",
        play: a_bmc_that_just_restarted_proves_nothing_for_a_while,
    },
    Story {
        name: "a_rack_whose_bmcs_restart_while_its_switch_blips_is_not_found_off",
        thread: "turing-machines/BMC-Firmware#226",
        lesson: "The same of a whole rack, whose switch hangs on the same feed.",
        play: a_rack_whose_bmcs_restart_while_its_switch_blips_is_not_found_off,
    },
    Story {
        name: "a_release_is_bound_to_one_boot",
        thread: "rook/rook#14832",
        lesson: "After a restart the new node was fenced by the old decision.",
        play: a_release_is_bound_to_one_boot,
    },
    Story {
        name: "an_answer_lost_on_the_way_is_not_repeated_blindly",
        thread: "inferred",
        lesson: "The connection broke after the BMC had acted; the command was repeated to a machine that had rebooted.",
        play: an_answer_lost_on_the_way_is_not_repeated_blindly,
    },
    Story {
        name: "a_cable_swapped_in_the_middle_turns_nobody_else_off",
        thread: "inferred",
        lesson: "A BMC's address moved between the check and the command.",
        play: a_cable_swapped_in_the_middle_turns_nobody_else_off,
    },
    Story {
        name: "the_second_system_of_a_chassis_is_not_touched",
        thread: "dsx-ai-factory/libredfish#107, fence_redfish without a path",
        lesson: "The first, or the last, System of a chassis was taken, whatever its UUID.",
        play: the_second_system_of_a_chassis_is_not_touched,
    },
    Story {
        name: "a_person_who_was_wrong_is_found_out_and_the_node_comes_back_as_it_was",
        thread: "inferred",
        lesson: "A person confirmed a machine off that ran behind a cut.",
        play: a_person_who_was_wrong_is_found_out_and_the_node_comes_back_as_it_was,
    },
];

fn site(seed: u64, node: usize, change: fn(&mut Traits)) -> Site {
    let mut site = Site::plain(seed, 5, 0);
    site.bmcs[node].change = change;
    site
}

fn a_success_before_the_machine_is_off_releases_nothing() -> Told {
    let mut play = Play::of(site(290, 4, |t| t.off_takes = Span::from_secs(40)));
    play.sim.freeze("n4");
    play.until(30, "the command is sent", |sim| offs(sim, Some(4)) > 0)?;
    play.never(30, "released while it has power", |sim| released(sim, 4))?;
    play.until(60, "released once it is off", |sim| released(sim, 4))?;
    play.end()
}

fn a_conflict_from_a_machine_that_is_off_is_no_failure() -> Told {
    let mut play = Play::of(site(13377, 4, |t| t.refuses_when_off = true));
    play.sim.cut_power("n4");
    play.until(25, "released, though the command was refused", |sim| released(sim, 4))?;
    play.end()
}

fn powering_off_is_on() -> Told {
    let mut play = Play::of(site(253, 4, |t| {
        t.says_powering = true;
        t.off_takes = Span::from_secs(25);
    }));
    play.sim.freeze("n4");
    play.until(30, "the command is sent", |sim| offs(sim, Some(4)) > 0)?;
    play.never(20, "proven or released while it goes down", |sim| {
        is(sim, 4, "ProvenOff") || released(sim, 4)
    })?;
    play.until(60, "released once it is off", |sim| released(sim, 4))?;
    play.end()
}

fn a_machine_that_never_stops_powering_off_is_shown_and_never_released() -> Told {
    let mut play = Play::of(site(610, 4, |t| {
        t.says_powering = true;
        t.off_takes = Span::from_mins(40);
    }));
    play.sim.freeze("n4");
    play.until(30, "the command is sent", |sim| offs(sim, Some(4)) > 0)?;
    play.never(1200, "released", |sim| released(sim, 4))?;
    play.check(paged(&play.sim, 4, "Stalled"), "nobody is paged that it is stalled")?;
    play.end()
}

fn a_bmc_that_just_restarted_proves_nothing_for_a_while() -> Told {
    let mut play = Play::of(site(226, 4, |t| t.after_restart = Some((Power::Off, Span::from_secs(22)))));
    play.begin(Trouble::Cut { cut: isolation(&[4]), span: Span::from_secs(21) });
    play.begin(Trouble::BmcRestart { bmcs: vec![4], gone: Span::from_secs(1) });
    play.never(60, "found, proven or turned off while it runs", |sim| {
        offs(sim, Some(4)) > 0 || is(sim, 4, "ProvenOff") || released(sim, 4)
    })?;
    play.check(play.sim.condition("n4") == Some(Condition::Runs), "it runs throughout")?;
    play.end()
}

fn a_rack_whose_bmcs_restart_while_its_switch_blips_is_not_found_off() -> Told {
    let mut site = Site::plain(2260, 9, 3);
    let rack = [2, 5, 8];
    for bmc in rack {
        site.bmcs[bmc].change = |t| t.after_restart = Some((Power::Off, Span::from_secs(22)));
    }
    let mut play = Play::of(site);
    play.begin(Trouble::BmcRestart { bmcs: rack.to_vec(), gone: Span::from_secs(2) });
    play.begin(Trouble::Cut { cut: isolation(&rack), span: Span::from_secs(24) });
    play.never(60, "a power command, a proof or a release", |sim| {
        offs(sim, None) > 0 || rack.iter().any(|node| is(sim, *node, "ProvenOff") || released(sim, *node))
    })?;
    play.end()
}

fn a_release_is_bound_to_one_boot() -> Told {
    // On again 0.5 .. 12 s after the power went: before, in and after the proof, the last read and the taint.
    for tenths in [5, 20, 40, 60, 70, 80, 90, 100, 120] {
        let mut site = Site::plain(14832 + tenths, 5, 0);
        site.firmware = (Span::from_secs(3), Span::from_secs(4));
        let mut play = Play::of(site);
        play.begin(Trouble::OffThenOn { machine: 4, after: Span::from_ms(tenths * 100) });
        play.until(400, "it is back", |sim| is(sim, 4, "Alive"))?;
        play.end()?;
    }
    Ok(())
}

fn an_answer_lost_on_the_way_is_not_repeated_blindly() -> Told {
    let mut site = site(36, 4, |t| {
        t.errors = 100;
        t.restores = Some(Span::from_secs(2));
    });
    site.firmware = (Span::from_secs(4), Span::from_secs(5));
    let mut play = Play::of(site);
    play.sim.freeze("n4");
    play.wait(200);
    play.check(offs(&play.sim, Some(4)) <= 1, "a rebooted machine was turned off")?;
    play.end()
}

fn a_cable_swapped_in_the_middle_turns_nobody_else_off() -> Told {
    // From before the condemnation to after the command, in steps of 100 ms.
    for tenths in (70..110).step_by(2) {
        let mut play = Play::of(Site::plain(1900 + tenths, 5, 0));
        play.sim.freeze("n4");
        play.sim.run_for(Span::from_ms(tenths * 100));
        play.begin(Trouble::BmcSwapped { a: 3, b: 4, span: Span::from_secs(60) });
        play.never(40, "the neighbour is turned off", |sim| offs(sim, Some(3)) > 0)?;
        play.end()?;
    }
    Ok(())
}

fn the_second_system_of_a_chassis_is_not_touched() -> Told {
    let mut site = Site::plain(107, 5, 0);
    site.bmcs[4].neighbour = Some(3);
    let mut play = Play::of(site);
    play.sim.freeze("n4");
    play.until(60, "it is fenced and released", |sim| released(sim, 4))?;
    play.check(offs(&play.sim, Some(3)) == 0, "its neighbour was turned off")?;
    play.end()
}

fn a_person_who_was_wrong_is_found_out_and_the_node_comes_back_as_it_was() -> Told {
    let mut play = Play::of(Site::plain(12, 5, 0));
    play.begin(Trouble::BmcSilent { bmc: 4, span: Span::from_secs(70) });
    play.begin(Trouble::Cut { cut: isolation(&[4]), span: Span::from_secs(60) });
    play.until(40, "it is held", |sim| is(sim, 4, "Held"))?;
    play.person(Act::ConfirmUnseen(4));
    play.until(30, "its workloads are released", |sim| released(sim, 4))?;
    play.until(60, "the same boot is heard, and it is fenced again", |sim| is(sim, 4, "Fencing"))?;
    play.check(paged(&play.sim, 4, "SameBootAfterRelease"), "nobody is paged that a second writer is heard")?;
    play.until(60, "it is turned off", |sim| offs(sim, Some(4)) > 0)?;
    play.sim.settle();
    play.sim.finish();
    // What ran twice is the person's; nothing else may be wrong.
    let persons = ["no double run", "release implies over"];
    let ours: Vec<_> =
        play.sim.violations().into_iter().filter(|v| !persons.contains(&v.invariant.as_str())).collect();
    play.check(ours.is_empty(), &format!("{ours:?}"))?;
    play.check(is(&play.sim, 4, "Alive"), "it is not Alive in the end")
}
