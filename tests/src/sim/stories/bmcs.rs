//! BMCs that are not whose they should be, and that say what no table knows.

use coroner_arbiter_core::status;
use coroner_shared::bmc::Power;
use coroner_shared::time::Span;

use super::{Play, Story, Told, held, is, name, offs, paged, released};
use crate::sim::bmc::{MEMBER, OTHER, Traits};
use crate::sim::people::Act;
use crate::sim::trouble::{Trouble, isolation};
use crate::sim::{Condition, Sim, Site};

pub(super) const ALL: &[Story] = &[
    Story {
        name: "a_bmc_that_says_off_of_a_machine_that_is_heard_is_not_believed",
        thread: "turing-machines/BMC-Firmware#226; inferred for one that stays so",
        lesson: "A BMC said Off of a machine that was running; once it could not be heard, that was taken for its proof.",
        play: a_bmc_that_says_off_of_a_machine_that_is_heard_is_not_believed,
    },
    Story {
        name: "off_is_said_of_a_machine_that_is_then_cut_off",
        thread: "inferred",
        lesson: "A BMC said Off of a machine that ran; when its network was cut it was found off, and its workloads ran twice.",
        play: off_is_said_of_a_machine_that_is_then_cut_off,
    },
    Story {
        name: "bmcs_that_changed_places_turn_nobody_off",
        thread: "inferred",
        lesson: "Two BMCs had each other's address: the machine that was off was looked for at one that runs.",
        play: bmcs_that_changed_places_turn_nobody_off,
    },
    Story {
        name: "a_word_that_is_neither_on_nor_off_proves_nothing",
        thread: "ClusterLabs/fence-agents#253",
        lesson: "Every word but On was taken for off.",
        play: a_word_that_is_neither_on_nor_off_proves_nothing,
    },
    Story {
        name: "a_bmc_without_one_uuid_of_its_own_is_shown_and_never_used",
        thread: "ironcore-dev/metal-operator#612; v1k0d3n/proxmox-redfish#16; siderolabs/talos#7694",
        lesson: "No UUID, one that nobody wrote, or one that two have, was no cause to doubt whose BMC it was.",
        play: a_bmc_without_one_uuid_of_its_own_is_shown_and_never_used,
    },
    Story {
        name: "a_uuid_that_goes_before_it_is_needed_sends_nothing",
        thread: "ironcore-dev/metal-operator#90; openshift/openshift-docs#117587",
        lesson: "What had been true of a BMC when it was set up was taken for true when it was needed.",
        play: a_uuid_that_goes_before_it_is_needed_sends_nothing,
    },
    Story {
        name: "a_member_that_cannot_be_read_while_off_is_noted_and_the_pinned_one_decides",
        thread: "device-management-toolkit/console#1069",
        lesson: "A System could not be read once it was off, and off was never confirmed, or taken for granted.",
        play: a_member_that_cannot_be_read_while_off_is_noted_and_the_pinned_one_decides,
    },
    Story {
        name: "an_off_that_is_refused_is_tried_again_and_named",
        thread: "ibm-openbmc/bmcweb#157, DMTF/Redfish-Tacklebox#82, quadsproject/badfish#10",
        lesson: "The BMC did not allow the reset type, and the fence was given up, or taken for done.",
        play: an_off_that_is_refused_is_tried_again_and_named,
    },
];

fn site(seed: u64, change: fn(&mut Traits)) -> Site {
    let mut site = Site::plain(seed, 5, 0);
    site.bmcs[4].change = change;
    site
}

fn disabled(sim: &Sim, node: usize) -> bool {
    sim.state().bindings.iter().any(|(of, binding)| of.as_str() == name(node) && binding.disabled.is_some())
}

fn a_bmc_that_says_off_of_a_machine_that_is_heard_is_not_believed() -> Told {
    let mut play = Play::of(Site::plain(2261, 5, 0));
    play.sim.change_bmc("n4", |bmc| bmc.stuck = Some(Power::Off));
    // One polling round of calm times, and the seconds that a beacon may have been on its way.
    play.until(40, "its binding is disabled, and people are paged", |sim| {
        disabled(sim, 4) && paged(sim, 4, "BindingRefused")
    })?;
    play.begin(Trouble::Cut { cut: isolation(&[4]), span: Span::from_secs(120) });
    play.until(40, "it is held for its BMC", |sim| is(sim, 4, "Held"))?;
    play.never(75, "a power command, a proof or a release", |sim| {
        offs(sim, None) > 0 || is(sim, 4, "ProvenOff") || released(sim, 4)
    })?;
    play.check(play.sim.condition("n4") == Some(Condition::Runs), "it runs throughout")?;
    play.sim.change_bmc("n4", |bmc| bmc.stuck = None);
    play.end()
}

fn off_is_said_of_a_machine_that_is_then_cut_off() -> Told {
    let mut play = Play::of(Site::plain(2262, 5, 0));
    // As of a BMC that is wired to no machine: it says Off and yes, and does nothing.
    play.sim.change_bmc("n4", |bmc| (bmc.stuck, bmc.ignores) = (Some(Power::Off), true));
    play.wait(150);
    play.begin(Trouble::Cut { cut: isolation(&[4]), span: Span::from_secs(120) });
    play.wait(2);
    // Who reads it begins anew, and knows no more of what it said before.
    play.sim.bmc_dead("n4", true);
    play.wait(8);
    play.sim.bmc_dead("n4", false);
    play.never(100, "it is released while it runs", |sim| released(sim, 4))?;
    play.check(play.sim.condition("n4") == Some(Condition::Runs), "it runs throughout")?;
    play.sim.change_bmc("n4", |bmc| (bmc.stuck, bmc.ignores) = (None, false));
    play.end()
}

fn bmcs_that_changed_places_turn_nobody_off() -> Told {
    let mut play = Play::of(Site::plain(1901, 6, 0));
    play.begin(Trouble::BmcSwapped { a: 4, b: 5, span: Span::from_mins(30) });
    play.wait(5);
    // What is read at the address of the other one is Off from now on.
    play.sim.cut_power("n5");
    play.until(40, "it is held, for nobody knows its power", |sim| held(sim, 5, "BmcUnclear"))?;
    play.until(610, "both bindings are disabled, and people are paged", |sim| {
        disabled(sim, 4) && disabled(sim, 5) && paged(sim, 4, "BindingRefused")
    })?;
    play.sim.freeze("n4");
    play.never(120, "a power command, or a release of what runs", |sim| {
        offs(sim, None) > 0 || released(sim, 4) || released(sim, 5)
    })?;
    play.end()
}

fn a_word_that_is_neither_on_nor_off_proves_nothing() -> Told {
    let other = |text: &str| Power::Other(text.to_owned());
    let words =
        [Power::Paused, Power::PoweringOn, other("missing"), other("null"), other("Unknown"), other("off")];
    for (number, word) in (0..).zip(words) {
        let mut play = Play::of(Site::plain(2530 + number, 5, 0));
        // Before anything was sent: nobody knows whether it is on.
        play.sim.change_bmc("n4", |bmc| bmc.stuck = Some(word.clone()));
        play.sim.freeze("n4");
        play.until(60, "people are paged", |sim| paged(sim, 4, "HeldBmcUnclear"))?;
        play.never(60, "a power command or a release", |sim| offs(sim, None) > 0 || released(sim, 4))?;
        play.sim.change_bmc("n4", |bmc| bmc.stuck = None);
        play.until(60, "On is read, and the command is sent", |sim| offs(sim, Some(4)) > 0)?;
        // And after it: that it was obeyed is no proof either.
        play.sim.change_bmc("n4", |bmc| bmc.stuck = Some(word.clone()));
        play.never(60, "it is proven off by another word", |sim| {
            is(sim, 4, "ProvenOff") || released(sim, 4)
        })?;
        play.sim.change_bmc("n4", |bmc| bmc.stuck = None);
        play.until(200, "Off is read, and it is released", |sim| released(sim, 4))?;
        play.end()?;
    }
    Ok(())
}

/// What is wrong with the UUIDs of a BMC: by itself, or beside that of another System of the same BMC.
const WRONG: [fn(&mut Traits); 7] = [
    |t| t.without_uuid = true,
    |t| t.uuid = String::new(),
    |t| t.uuid = "00000000-0000-0000-0000-000000000000".to_owned(),
    |t| t.uuid = "ffffffff-ffff-ffff-ffff-ffffffffffff".to_owned(),
    |t| t.uuid = "03000200-0400-0500-0006-000700080009".to_owned(),
    |t| t.uuid = t.uuid.replace('-', ""),
    |t| t.other = Some(t.uuid.clone()),
];

fn a_bmc_without_one_uuid_of_its_own_is_shown_and_never_used() -> Told {
    for (number, wrong) in (0..).zip(WRONG) {
        let mut play = Play::of(site(6120 + number, wrong));
        let shown = status::problems(&play.sim.state()).join(" ");
        play.check(shown.contains("n4"), "nobody is told before it dies")?;
        play.sim.freeze("n4");
        play.until(60, "people are paged", |sim| {
            paged(sim, 4, "HeldBmcUnclear") || paged(sim, 4, "HeldNotFenceable")
        })?;
        play.never(60, "a power command or a release", |sim| offs(sim, None) > 0 || released(sim, 4))?;
        play.end()?;
    }
    Ok(())
}

fn a_uuid_that_goes_before_it_is_needed_sends_nothing() -> Told {
    for (number, wrong) in (0..).zip(WRONG) {
        let mut play = Play::of(Site::plain(6130 + number, 5, 0));
        let pinned = |sim: &Sim| sim.state().bindings.values().all(|binding| binding.pin.is_some());
        play.check(pinned(&play.sim), "not every BMC was known at first")?;
        play.sim.change_bmc("n4", wrong);
        // Its sessions end, as they do where firmware is changed, and it is read anew.
        play.begin(Trouble::BmcRestart { bmcs: vec![4], gone: Span::from_secs(5) });
        play.wait(10);
        play.sim.freeze("n4");
        play.until(60, "people are paged", |sim| {
            ["HeldBmcUnclear", "HeldIdentity", "Stalled"].iter().any(|page| paged(sim, 4, page))
        })?;
        play.never(60, "a power command or a release", |sim| offs(sim, None) > 0 || released(sim, 4))?;
        play.end()?;
    }
    Ok(())
}

fn a_member_that_cannot_be_read_while_off_is_noted_and_the_pinned_one_decides() -> Told {
    let chassis = |seed: u64, unreadable: fn(&mut Traits)| {
        let mut site = site(seed, unreadable);
        site.bmcs[4].neighbour = Some(3);
        site
    };
    let mut play = Play::of(chassis(10_690, |t| t.unreadable_when_off = &[OTHER]));
    play.sim.cut_power("n4");
    play.until(30, "it is released, whatever its neighbour's answers", |sim| released(sim, 4))?;
    play.check(offs(&play.sim, Some(3)) == 0, "its neighbour was turned off")?;
    play.end()?;

    let mut play = Play::of(chassis(10_691, |t| t.unreadable_when_off = &[MEMBER]));
    play.sim.freeze("n4");
    play.until(30, "it is turned off", |sim| !sim.has_power("n4"))?;
    play.never(300, "it is released by what cannot be read", |sim| released(sim, 4))?;
    play.check(paged(&play.sim, 4, "Stalled"), "nobody is paged")?;
    play.person(Act::ConfirmOff(4));
    play.until(15, "a person's word releases it", |sim| released(sim, 4))?;
    play.check(offs(&play.sim, Some(3)) == 0, "its neighbour was turned off")?;
    play.end()
}

fn an_off_that_is_refused_is_tried_again_and_named() -> Told {
    let mut play = Play::of(site(1570, |t| t.refuses_when_on = true));
    play.sim.freeze("n4");
    play.never(400, "it is proven off or released while it is on", |sim| {
        is(sim, 4, "ProvenOff") || released(sim, 4)
    })?;
    let sent = offs(&play.sim, Some(4));
    play.check(
        (2..=6).contains(&sent),
        &format!("{sent} commands in 400 s: none again, or without patience"),
    )?;
    play.check(paged(&play.sim, 4, "Stalled"), "nobody is paged that it is stalled")?;
    let told = |sim: &Sim| {
        let lines = |i: &coroner_arbiter_core::state::Incident| {
            i.timeline.iter().any(|moment| moment.detail.contains("400 ForceOff is not allowed"))
        };
        sim.state().incidents.values().any(lines)
    };
    play.check(told(&play.sim), "its answer is not in the history of the incident")?;
    play.sim.change_bmc("n4", |bmc| bmc.refuses_when_on = false);
    play.until(200, "it is released once the command is taken", |sim| released(sim, 4))?;
    play.end()
}
