//! Classes of what goes wrong with BMCs, the API server, replicas and their disks, clocks, weather; and what people do.

use coroner_arbiter_core::policy::Mode;
use coroner_shared::time::Span;

use super::secs;
use crate::sim::chance::Chance;
use crate::sim::network::{Ends, Flow, Weather};
use crate::sim::people::Act;
use crate::sim::swarm::Plan;
use crate::sim::trouble::{Trouble, isolation, one_way};

pub(super) fn bmc_network(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let cut = one_way(Ends::Any, Ends::Any, Some(vec![Flow::Bmc]), 100);
    let span = secs(chance, 20, 120);
    plan.put(at, Trouble::Cut { cut, span });
    let machine = plan.machine(chance);
    let span = secs(chance, 30, 200);
    plan.put(at + Span::from_secs(2), Trouble::Freeze { machine, span });
}

pub(super) fn bmc_silent(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let span = secs(chance, 20, 120);
    plan.put(at, Trouble::BmcSilent { bmc: machine, span });
    let span = secs(chance, 30, 200);
    plan.put(at + Span::from_secs(5), Trouble::Freeze { machine, span });
}

pub(super) fn bmc_restarted(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let gone = secs(chance, 1, 40);
    plan.site.bmcs[machine].change =
        |t| t.after_restart = Some((coroner_shared::bmc::Power::Off, Span::from_secs(20)));
    plan.put(at, Trouble::BmcRestart { bmcs: vec![machine], gone });
    let begins = at + chance.span(Span::ZERO, gone);
    let span = secs(chance, 20, 200);
    if chance.percent(60) {
        plan.put(begins, Trouble::Freeze { machine, span });
    } else {
        plan.put(begins, Trouble::Cut { cut: isolation(&[machine]), span });
    }
}

pub(super) fn rack_blip(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(rack) = plan.rack(chance) else { return bmc_restarted(plan, at, chance) };
    let bmcs = plan.in_rack(rack);
    for bmc in &bmcs {
        plan.site.bmcs[*bmc].change =
            |t| t.after_restart = Some((coroner_shared::bmc::Power::Off, Span::from_secs(20)));
    }
    let cut = isolation(&bmcs);
    let (gone, span) = (secs(chance, 1, 20), secs(chance, 3, 60));
    plan.put(at, Trouble::BmcRestart { bmcs, gone });
    plan.put(at, Trouble::Cut { cut, span });
}

pub(super) fn bmc_fails(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let span = secs(chance, 20, 200);
    if chance.percent(50) {
        plan.put(at, Trouble::BmcPassword { bmc: machine, span });
    } else {
        let errors = chance.range(10, 100);
        plan.put(at, Trouble::BmcErrors { bmc: machine, errors, span });
    }
    let span = secs(chance, 30, 200);
    plan.put(at + Span::from_secs(4), Trouble::Freeze { machine, span });
}

pub(super) fn api_down(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let span = secs(chance, 5, 120);
    plan.put(at, Trouble::ApiDown { span });
    let machine = plan.machine(chance);
    let later = at + chance.span(Span::ZERO, Span::from_secs(10));
    if chance.percent(50) {
        plan.put(later, Trouble::PowerCut { machine });
        if chance.percent(50) {
            // On again, and no system yet, when it could be released.
            let on = (at + span).saturating_sub(secs(chance, 3, 15)).max(later);
            plan.put(on, Trouble::OffThenOn { machine, after: Span::from_ms(1) });
        }
    } else {
        let span = secs(chance, 30, 200);
        plan.put(later, Trouble::Freeze { machine, span });
    }
}

pub(super) fn watch_stuck(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let span = secs(chance, 10, 90);
    for replica in 0..plan.site.replicas.len() {
        plan.put(at, Trouble::WatchStuck { replica, span });
    }
    let machine = plan.machine(chance);
    plan.put(at + Span::from_secs(3), Trouble::AgentAway { machine, span, goodbye: false });
}

pub(super) fn replica_killed(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    if chance.percent(60) {
        plan.put(at, Trouble::PowerCut { machine });
    } else {
        let span = secs(chance, 60, 200);
        plan.put(at, Trouble::Freeze { machine, span });
    }
    for n in 0..chance.range(1, 4) {
        let replica = chance.index(plan.site.replicas.len());
        let away = secs(chance, 1, 10);
        let when = at + Span::from_secs(n) + chance.span(Span::ZERO, Span::from_secs(9));
        plan.put(when, Trouble::ReplicaKilled { replica, away });
    }
}

pub(super) fn disk(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let replica = chance.index(plan.site.replicas.len());
    let (span, full) = (secs(chance, 5, 40), chance.percent(50));
    match chance.below(3) {
        0 => plan.put(at, Trouble::DiskFails { replica, full, span }),
        1 => {
            let stall = chance.span(Span::from_ms(50), Span::from_secs(3));
            plan.put(at, Trouble::DiskStalls { replica, stall, span });
        }
        _ => plan.put(at, Trouble::ReplicaKilled { replica, away: span }),
    }
    let machine = plan.machine(chance);
    plan.put(at + Span::from_secs(1), Trouble::PowerCut { machine });
}

pub(super) fn weather(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let weather = Weather {
        loss: chance.range(0, 80),
        duplicate: chance.range(0, 30),
        corrupt: chance.range(0, 20),
        delay: (Span::from_ms(1), Span::from_ms(chance.range(2, 800))),
    };
    let span = secs(chance, 5, 90);
    plan.put(at, Trouble::Weather { weather, span });
    if chance.percent(50) {
        let machine = plan.machine(chance);
        plan.put(at + Span::from_secs(3), Trouble::PowerCut { machine });
    }
}

pub(super) fn clocks(plan: &mut Plan, at: Span, chance: &mut Chance) {
    for machine in plan.site.replicas.clone() {
        let by = chance.span(Span::from_ms(200), Span::from_secs(40));
        plan.put(
            at + chance.span(Span::ZERO, Span::from_secs(20)),
            Trouble::ClockJump { machine, by, back: false },
        );
    }
    let machine = plan.machine(chance);
    let span = chance.span(Span::from_ms(800), Span::from_secs(60));
    plan.put(at + Span::from_secs(1), Trouble::Freeze { machine, span });
}

pub(super) fn people(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let later = at + secs(chance, 1, 30);
    let span = secs(chance, 40, 200);
    let act = match chance.below(10) {
        0 => return plan.put(at, Trouble::People(Act::Fence(machine))),
        1 => Act::Pause(None),
        2 => Act::Pause(Some(machine)),
        3 => Act::Mode(Mode::Observe),
        4 => Act::Exclude(machine, true),
        5 => Act::Relabel(machine, chance.index(4)),
        6 => Act::Cordon(machine),
        7 => Act::Recreate(machine),
        8 => Act::TakeTaint(machine),
        _ => Act::Return(machine),
    };
    if chance.percent(50) {
        plan.put(at, Trouble::Freeze { machine, span });
    } else {
        plan.put(at, Trouble::PowerCut { machine });
    }
    plan.put(later, Trouble::People(act.clone()));
    if act == Act::Cordon(machine) && chance.percent(50) {
        plan.put(later + secs(chance, 5, 60), Trouble::People(Act::Uncordon(machine)));
    }
    if act == Act::Mode(Mode::Observe) {
        // Turned to Enforce again with nodes long dead.
        plan.put(later + secs(chance, 5, 60), Trouble::People(Act::Mode(Mode::Enforce)));
    }
    if chance.percent(50) {
        plan.put(later + secs(chance, 5, 30), Trouble::People(Act::Resume(None)));
    }
}
