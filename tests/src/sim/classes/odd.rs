//! Classes of second acts: what is not what it says or forgets, finer faults of networks and clocks, and people at the
//! last moment.

use coroner_arbiter_core::policy::Mode;
use coroner_shared::time::Span;

use super::secs;
use crate::sim::chance::Chance;
use crate::sim::drift::DRIFT_MAX;
use crate::sim::network::{Cut, Ends, Flow};
use crate::sim::odd::Odd;
use crate::sim::people::Act;
use crate::sim::swarm::Plan;
use crate::sim::trouble::{Trouble, isolation, one_way};

const FLOWS: [Flow; 6] = [Flow::Peer, Flow::Report, Flow::Replica, Flow::Kubelet, Flow::Ping, Flow::Api];

impl Plan {
    pub(super) fn odd(&mut self, at: Span, odd: Odd) {
        self.put(at, Trouble::Odd(odd));
    }

    /// Some other machines.
    pub(super) fn others(&self, but: &[usize], count: usize, chance: &mut Chance) -> Vec<usize> {
        let mut left: Vec<usize> = (0..self.site.nodes).filter(|m| !but.contains(m)).collect();
        (0..count.min(left.len())).map(|_| left.swap_remove(chance.index(left.len()))).collect()
    }

    /// A machine that hosts no replica.
    pub(super) fn worker(&self, chance: &mut Chance) -> Option<usize> {
        let workers: Vec<usize> = (0..self.site.nodes).filter(|m| !self.site.replicas.contains(m)).collect();
        chance.pick(&workers)
    }

    /// A death by silence, or by loss of power.
    pub(super) fn death(&mut self, at: Span, machine: usize, chance: &mut Chance) {
        if chance.percent(50) {
            self.put(at, Trouble::PowerCut { machine });
        } else {
            let span = secs(chance, 40, 200);
            self.put(at, Trouble::Freeze { machine, span });
        }
    }
}

/// As many as are promised to be too few: one fewer than the silent observers that a verdict needs.
fn most_liars(nodes: usize) -> usize {
    let observers = nodes.saturating_sub(1).min(8);
    (3 * observers).div_ceil(4).saturating_sub(1)
}

pub(super) fn liars_accuse(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let about = plan.machine(chance);
    let most = most_liars(plan.site.nodes);
    let count = if chance.percent(60) { most } else { 1 + chance.index(most.max(1)) };
    let liars = plan.others(&[about], count, chance);
    let span = secs(chance, 20, 90);
    plan.odd(at, Odd::Lies { liars: liars.clone(), about, lives: false, quiet: false, span });
    if chance.percent(40) {
        // Of the honest ones only one or two hear it any more.
        let mut known = liars;
        known.push(about);
        let count = 1 + chance.index(2);
        let hear = plan.others(&known, count, chance);
        let deaf: Vec<usize> =
            (0..plan.site.nodes).filter(|m| !known.contains(m) && !hear.contains(m)).collect();
        let cut = one_way(Ends::Hosts(vec![about]), Ends::Hosts(deaf), None, 100);
        plan.put(at + secs(chance, 1, 5), Trouble::Cut { cut, span });
    }
    if chance.percent(30) {
        plan.put(at, Trouble::KubeletAway { machine: about, span });
    }
}

pub(super) fn liars_deny(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let about = plan.machine(chance);
    let count = 1 + chance.index(most_liars(plan.site.nodes).max(1));
    let liars = plan.others(&[about], count, chance);
    let (span, quiet) = (secs(chance, 30, 120), chance.percent(40));
    plan.odd(at, Odd::Lies { liars, about, lives: true, quiet, span });
    plan.death(at + secs(chance, 1, 10), about, chance);
}

pub(super) fn cloned(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(machine) = plan.worker(chance) else { return flows(plan, at, chance) };
    let Some(of) = plan.others(&[machine], 1, chance).first().copied() else { return };
    let span = secs(chance, 30, 150);
    let odd =
        if chance.percent(60) { Odd::Clone { machine, of, span } } else { Odd::Twin { machine, of, span } };
    plan.odd(at, odd);
    if chance.percent(50) {
        plan.death(at + secs(chance, 10, 90), of, chance);
    }
}

pub(super) fn same_uuid(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let Some(of) = plan.others(&[machine], 1, chance).first().copied() else { return };
    let span = secs(chance, 60, 200);
    plan.odd(at, Odd::SameUuid { machine, of, span });
    let dies = if chance.percent(50) { machine } else { of };
    plan.death(at + secs(chance, 15, 60), dies, chance);
}

pub(super) fn replaced(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let span = secs(chance, 60, 200);
    if chance.percent(50) {
        plan.put(at, Trouble::Freeze { machine, span });
    }
    plan.odd(at + secs(chance, 1, 25), Odd::Replaced { machine, span });
    if chance.percent(50) {
        plan.death(at + secs(chance, 40, 80), machine, chance);
    }
}

pub(super) fn other_wire(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let version = if chance.percent(70) { 2 } else { 0 };
    let count = 1 + chance.index(plan.site.nodes);
    let machines = plan.others(&[], count, chance);
    let span = secs(chance, 20, 120);
    plan.odd(at, Odd::Wire { machines, version, span });
    if chance.percent(50) {
        let machine = plan.machine(chance);
        plan.death(at + secs(chance, 2, 20), machine, chance);
    }
}

pub(super) fn other_level(plan: &mut Plan, at: Span, chance: &mut Chance) {
    // Never all: a level that is in force and that this build does not know stops it, as it must.
    let replicas = plan.site.replicas.len();
    for replica in 0..1 + chance.index(replicas.saturating_sub(1)) {
        plan.odd(at, Odd::Level { replica, level: 2, span: secs(chance, 30, 90) });
    }
    plan.put(at + secs(chance, 3, 10), Trouble::People(Act::SetLevel(2)));
    plan.put(at + secs(chance, 10, 20), Trouble::People(Act::SetLevel(0)));
    let machine = plan.machine(chance);
    plan.death(at + secs(chance, 1, 30), machine, chance);
}

/// One replica at a time: a majority of disks that lie is beyond what Raft can survive.
pub(super) fn disk_lies(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let replica = chance.index(plan.site.replicas.len());
    let off_after = secs(chance, 1, 60);
    plan.odd(at, Odd::DiskLies { replica, off_after });
    busy(plan, at, off_after, replica, chance);
}

pub(super) fn disk_tears(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let replica = chance.index(plan.site.replicas.len());
    busy(plan, at, Span::from_secs(10), replica, chance);
    plan.odd(at + secs(chance, 1, 20), Odd::DiskTears { replica });
}

pub(super) fn disk_restored(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let replica = chance.index(plan.site.replicas.len());
    let later = secs(chance, 5, 120);
    plan.odd(at, Odd::DiskCopied { replica });
    busy(plan, at, later, replica, chance);
    plan.odd(at + later, Odd::DiskRestored { replica, away: secs(chance, 1, 10) });
}

/// The log has something to say in that time, and no other replica's host dies of it.
fn busy(plan: &mut Plan, at: Span, span: Span, replica: usize, chance: &mut Chance) {
    let hosts: Vec<usize> = plan.site.replicas.clone();
    let own = hosts.get(replica).copied().unwrap_or_default();
    let others: Vec<usize> = (0..plan.site.nodes).filter(|m| *m == own || !hosts.contains(m)).collect();
    for _ in 0..chance.range(1, 3) {
        let when = at + chance.span(Span::ZERO, span);
        match (chance.below(3), chance.pick(&others)) {
            (0, Some(machine)) if machine != own => {
                plan.put(when, Trouble::Freeze { machine, span: secs(chance, 10, 60) });
            }
            (1, _) => {
                let machine = plan.machine(chance);
                plan.put(when, Trouble::People(Act::Pause(Some(machine))));
                plan.put(when + secs(chance, 1, 20), Trouble::People(Act::Resume(Some(machine))));
            }
            (_, Some(machine)) => plan.put(when, Trouble::People(Act::Relabel(machine, chance.index(3)))),
            (_, None) => {}
        }
    }
}

pub(super) fn rates(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let range = DRIFT_MAX.unsigned_abs();
    let mut ppm = Vec::new();
    for machine in 0..plan.site.nodes {
        let drawn = i64::try_from(chance.below(2 * range + 1)).unwrap_or(0) - DRIFT_MAX;
        // Half of them as far off as can be.
        ppm.push((machine, if chance.percent(50) { DRIFT_MAX * drawn.signum() } else { drawn }));
    }
    plan.odd(at, Odd::Rates { ppm });
    let machine = plan.machine(chance);
    // Far enough on that clocks are apart.
    plan.death(at + secs(chance, 30, 240), machine, chance);
}

pub(super) fn set_back(plan: &mut Plan, at: Span, chance: &mut Chance) {
    for machine in plan.site.replicas.clone() {
        let by = chance.span(Span::from_ms(200), Span::from_secs(40));
        let back = chance.percent(70);
        plan.put(at + secs(chance, 0, 20), Trouble::ClockJump { machine, by, back });
    }
    let machine = plan.machine(chance);
    plan.death(at + secs(chance, 1, 10), machine, chance);
}

pub(super) fn bursts(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let good = chance.span(Span::from_ms(200), Span::from_secs(10));
    let bad = chance.span(Span::from_ms(50), Span::from_secs(4));
    let span = secs(chance, 10, 90);
    plan.odd(at, Odd::Bursts { good, bad, span });
    if chance.percent(50) {
        let machine = plan.machine(chance);
        plan.death(at + secs(chance, 1, 10), machine, chance);
    }
}

/// A path whose MTU is smaller than its ends believe: beacons pass, reports do not.
pub(super) fn narrow(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let longer_than = usize::try_from(chance.range(200, 600)).unwrap_or(400);
    let from = if chance.percent(50) {
        Ends::Any
    } else {
        let count = 1 + chance.index(plan.site.nodes);
        let some = plan.others(&[], count, chance);
        Ends::Hosts(some)
    };
    let flows = Some(vec![Flow::Peer, Flow::Report]);
    let name = "narrow".to_owned();
    let cut = vec![Cut { name, from, to: Ends::Any, flows, loss: 100, longer_than }];
    plan.put(at, Trouble::Cut { cut, span: secs(chance, 10, 90) });
    let machine = plan.machine(chance);
    plan.death(at + secs(chance, 1, 20), machine, chance);
}

/// What is hashed onto a bad link of several: one flow between two hosts, one way.
pub(super) fn flows(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let nodes = plan.site.nodes.min(40);
    let mut cut: Vec<Cut> = Vec::new();
    let percent = chance.range(3, 30);
    for from in 0..nodes {
        for to in (0..nodes).filter(|to| *to != from) {
            let hit: Vec<Flow> = FLOWS.into_iter().filter(|_| chance.percent(percent)).collect();
            if !hit.is_empty() {
                cut.extend(one_way(Ends::Hosts(vec![from]), Ends::Hosts(vec![to]), Some(hit), 100));
            }
        }
    }
    plan.put(at, Trouble::Cut { cut, span: secs(chance, 10, 90) });
    if chance.percent(60) {
        let machine = plan.machine(chance);
        plan.death(at + secs(chance, 1, 20), machine, chance);
    }
}

pub(super) fn rack_and_bmcs(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(rack) = plan.rack(chance) else { return bursts(plan, at, chance) };
    let members = plan.in_rack(rack);
    let span = secs(chance, 5, 120);
    let flows = Some(vec![Flow::Bmc]);
    let bmcs = one_way(Ends::Any, Ends::Bmcs(members.clone()), flows, 100);
    if chance.percent(60) {
        plan.put(at, Trouble::Cut { cut: isolation(&members), span });
    } else {
        plan.put(at, Trouble::RackPower { rack, bmcs: false });
    }
    let later = at + chance.span(Span::ZERO, Span::from_secs(5));
    plan.put(later, Trouble::Cut { cut: bmcs, span });
}

pub(super) fn flip_flop(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let each = chance.span(Span::from_ms(400), Span::from_secs(20));
    let cut = match chance.below(4) {
        0 => isolation(&[machine]),
        1 => plan.rack(chance).map_or_else(|| isolation(&[machine]), |rack| isolation(&plan.in_rack(rack))),
        2 => one_way(Ends::Any, Ends::Any, Some(vec![Flow::Bmc]), 100),
        _ => one_way(Ends::Hosts(vec![machine]), Ends::NotHosts(vec![machine]), None, 100),
    };
    plan.put(at, Trouble::Flapping { cut, each, times: u32::try_from(chance.range(3, 12)).unwrap_or(3) });
    if chance.percent(50) {
        let machine = plan.machine(chance);
        plan.death(at + secs(chance, 1, 20), machine, chance);
    }
}

/// A victim that is cut off comes back while whoever fences it is paused.
pub(super) fn executor_paused(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(machine) = plan.worker(chance) else { return rates(plan, at, chance) };
    plan.odd(at, Odd::SlowBmc { bmc: machine, takes: (Span::from_ms(400), Span::from_ms(1500)) });
    let back = secs(chance, 8, 30);
    plan.put(at, Trouble::Cut { cut: isolation(&[machine]), span: back });
    for host in plan.site.replicas.clone() {
        if chance.percent(50) {
            let when = at + secs(chance, 7, 20) + chance.span(Span::ZERO, Span::from_secs(1));
            let span = chance.span(Span::from_ms(200), Span::from_secs(8));
            plan.put(when, Trouble::Freeze { machine: host, span });
        }
    }
}

/// It goes on to delete pods of a Node whose taint is gone, for no longer than the margin of a return.
pub(super) fn stale_collector(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let margin = plan.site.policies.values().map(|p| p.timings.return_margin).min().unwrap_or_default();
    let lags = chance.span(Span::from_secs(1), margin.saturating_sub(Span::from_secs(2)));
    plan.odd(at, Odd::Collector { lags, span: Span::from_mins(4) });
    let machine = plan.machine(chance);
    plan.put(at, Trouble::OffThenOn { machine, after: secs(chance, 15, 60) });
}

pub(super) fn people_try(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    match chance.below(4) {
        0 => plan.put(at, Trouble::Hang { machine }),
        1 => plan.put(at, Trouble::CordPulled { machine }),
        2 => plan.put(at, Trouble::Cut { cut: isolation(&[machine]), span: secs(chance, 20, 80) }),
        _ => plan.death(at, machine, chance),
    }
    for n in 0..chance.range(8, 25) {
        let node = if chance.percent(75) { machine } else { plan.machine(chance) };
        let act = match chance.below(16) {
            0 => Act::Fence(node),
            1 | 2 => Act::ConfirmOff(node),
            3 | 4 => Act::ConfirmHeard(node),
            5 => Act::ConfirmOther(node),
            6 => Act::FenceReplaced(node),
            7 => Act::FenceNobody,
            8 => Act::Repin(node),
            9 => Act::Return(node),
            10 => Act::ClearHeld(node),
            11 => Act::Pause(Some(node)),
            12 => Act::Resume(Some(node)),
            13 => Act::BadPolicy(chance.percent(60)),
            14 => Act::Exclude(node, chance.percent(50)),
            _ => Act::ForeignTaint(node),
        };
        plan.put(at + Span::from_secs(3 * n) + secs(chance, 0, 3), Trouble::People(act));
    }
}

/// Something no longer permits it while the first call to its BMC is under way.
pub(super) fn stopped(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    // Not before it was seen On, or there is no verdict.
    let slow = at + Span::from_ms(10_500);
    plan.odd(slow, Odd::SlowBmc { bmc: machine, takes: (Span::from_secs(1), Span::from_secs(3)) });
    let (silent, span) = (at + Span::from_secs(3), secs(chance, 40, 200));
    let ends = chance.span(Span::from_ms(8_000), Span::from_ms(14_000));
    let when = silent + ends;
    match chance.below(9) {
        0 => plan.put(when, Trouble::People(Act::Pause(Some(machine)))),
        1 => plan.put(when, Trouble::People(Act::Exclude(machine, true))),
        2 => plan.put(when, Trouble::People(Act::Mode(Mode::Observe))),
        3 => plan.put(when, Trouble::People(Act::SecondPolicy(true))),
        4 => plan.odd(when, Odd::Unbound { machine, span: Span::from_secs(60) }),
        5 => plan.odd(when, Odd::Replaced { machine, span }),
        6 => return plan.put(silent, Trouble::Freeze { machine, span: ends }),
        7 => return plan.put(silent, Trouble::Cut { cut: isolation(&[machine]), span: ends }),
        _ => plan.put(when, Trouble::Reboot { machine }),
    }
    plan.put(silent, Trouble::Freeze { machine, span });
}
