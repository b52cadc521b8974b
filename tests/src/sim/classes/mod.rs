//! Classes of seeds: what goes wrong together, drawn by weight. Those that issue trackers are full of come often.

mod servers;

use coroner_arbiter_core::policy::Mode;
use coroner_shared::time::Span;

use super::chance::Chance;
use super::network::{Cut, Ends, Flow};
use super::people::Act;
use super::swarm::Plan;
use super::trouble::{Trouble, isolation, one_way};

/// Deadline of the slowest profile, a renewal, the longest span of a proof, and what calls take.
const LONE: Span = Span::from_secs(90);

type Draw = fn(&mut Plan, Span, &mut Chance);

/// Name, weight, how it is drawn.
const CLASSES: [(&str, u64, Draw); 35] = [
    ("one death", 8, one_death),
    ("two deaths", 6, two_deaths),
    ("the leader's host dies", 4, leaders_host),
    ("cord pulled", 3, cord_pulled),
    ("rack loses power", 3, rack_power),
    ("hang", 6, hang),
    ("short freeze", 4, short_freeze),
    ("kernel answers only", 3, kernel_only),
    ("crash kernel", 3, crash_kernel),
    ("quick reboot while condemned", 4, quick_reboot),
    ("planned reboot", 3, planned_reboot),
    ("power cycled by somebody", 4, off_then_on),
    ("power on after the proof", 3, power_on_later),
    ("agent away", 3, agent_away),
    ("agents restarted without the arbiter", 2, agents_without_arbiter),
    ("kubelet away", 2, kubelet_away),
    ("host cut off", 5, cut_off),
    ("one-way cut", 4, one_way_cut),
    ("partial cut", 4, partial_cut),
    ("rack cut off", 3, rack_cut),
    ("arbiter cut from the workers", 3, arbiter_cut),
    ("a replica cut from the others", 4, replica_cut),
    ("leader blind to the BMC network", 4, blind_leader),
    ("BMC network cut", 2, servers::bmc_network),
    ("BMC silent", 3, servers::bmc_silent),
    ("BMC just restarted", 5, servers::bmc_restarted),
    ("rack's BMCs restart while its switch blips", 3, servers::rack_blip),
    ("BMC refuses or fails", 3, servers::bmc_fails),
    ("API server down", 4, servers::api_down),
    ("stale watch", 2, servers::watch_stuck),
    ("replica killed", 4, servers::replica_killed),
    ("disk at fault", 4, servers::disk),
    ("bad weather", 4, servers::weather),
    ("clocks are set", 3, servers::clocks),
    ("people", 8, servers::people),
];

/// Draws one.
pub(crate) fn draw(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let all: u64 = CLASSES.iter().map(|(_, weight, _)| weight).sum();
    let mut left = chance.below(all);
    for (name, weight, draw) in CLASSES {
        if left < weight {
            plan.classes.push(name);
            return draw(plan, at, chance);
        }
        left -= weight;
    }
}

// === impl Plan ===

impl Plan {
    fn put(&mut self, at: Span, trouble: Trouble) {
        self.troubles.push((at, trouble));
    }

    fn machine(&self, chance: &mut Chance) -> usize {
        chance.index(self.site.nodes)
    }

    fn rack(&self, chance: &mut Chance) -> Option<usize> {
        let racks: Vec<usize> = self.site.racks.iter().flatten().copied().collect();
        chance.pick(&racks)
    }

    fn in_rack(&self, rack: usize) -> Vec<usize> {
        (0..self.site.nodes).filter(|m| self.site.racks[*m] == Some(rack)).collect()
    }
}

fn secs(chance: &mut Chance, low: u64, high: u64) -> Span {
    chance.span(Span::from_secs(low), Span::from_secs(high))
}

/// One machine dies, nothing else is wrong: there is a time by which it must be over. Gives when.
pub(crate) fn lone_death(plan: &mut Plan, warm: Span, chance: &mut Chance) -> Span {
    plan.classes.push("lone death");
    let machine = plan.machine(chance);
    plan.site.bmcs[machine] = super::site::BmcPlan { network: 0, ..super::site::BmcPlan::good(machine) };
    for (index, bmc) in plan.site.bmcs.iter_mut().enumerate() {
        // Whoever had its cable has its own.
        if index != machine && bmc.machine == machine {
            bmc.machine = index;
        }
    }
    for policy in plan.site.policies.values_mut() {
        policy.mode = Mode::Enforce;
    }
    let at = warm + secs(chance, 20, 60);
    if chance.percent(40) {
        plan.classes.push("replayed beacons");
        let from = (machine + 1) % plan.site.nodes;
        plan.put(at.saturating_sub(Span::from_secs(15)), Trouble::Records { machine });
        plan.put(
            at + chance.span(Span::ZERO, Span::from_secs(3)),
            Trouble::Replays { from, span: Span::from_secs(90) },
        );
    }
    if chance.percent(50) {
        plan.put(at, Trouble::PowerCut { machine });
    } else {
        plan.put(at, Trouble::Freeze { machine, span: Span::from_mins(20) });
    }
    plan.put(at + LONE, Trouble::MustBeOver { machine });
    plan.troubles.sort_by_key(|(at, _)| *at);
    at + LONE + Span::from_secs(10)
}

fn one_death(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    plan.put(at, Trouble::PowerCut { machine });
}

fn two_deaths(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let (a, b) = (plan.machine(chance), plan.machine(chance));
    let later = at + chance.span(Span::ZERO, Span::from_secs(15));
    plan.put(at, Trouble::PowerCut { machine: a });
    if chance.percent(50) {
        plan.put(later, Trouble::PowerCut { machine: b });
    } else {
        let span = secs(chance, 60, 300);
        plan.put(later, Trouble::Freeze { machine: b, span });
    }
}

fn leaders_host(plan: &mut Plan, at: Span, chance: &mut Chance) {
    // Whoever leads: one of the three is the leader in a third of the seeds, and the others are as good.
    let Some(machine) = chance.pick(&plan.site.replicas) else { return };
    if chance.percent(50) {
        plan.put(at, Trouble::PowerCut { machine });
    } else {
        let span = secs(chance, 30, 200);
        plan.put(at, Trouble::Freeze { machine, span });
    }
}

fn cord_pulled(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    plan.put(at, Trouble::CordPulled { machine });
    if chance.percent(60) {
        let later = at + secs(chance, 20, 60);
        plan.put(later, Trouble::People(Act::ConfirmOff(machine)));
    }
}

fn rack_power(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(rack) = plan.rack(chance) else { return one_death(plan, at, chance) };
    let bmcs = chance.percent(50);
    plan.put(at, Trouble::RackPower { rack, bmcs });
}

fn hang(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let span = secs(chance, 20, 200);
    plan.put(at, Trouble::Freeze { machine, span });
}

fn short_freeze(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    for n in 0..chance.range(1, 4) {
        let span = chance.span(Span::from_ms(100), Span::from_secs(15));
        plan.put(at + Span::from_secs(20 * n), Trouble::Freeze { machine, span });
    }
}

fn kernel_only(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    plan.put(at, Trouble::Hang { machine });
    if chance.percent(50) {
        let later = at + secs(chance, 15, 90);
        plan.put(later, Trouble::People(Act::Fence(machine)));
    }
}

fn crash_kernel(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let dumps_for = secs(chance, 5, 120);
    plan.put(at, Trouble::Panic { machine, dumps_for });
}

fn quick_reboot(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let after = chance.span(Span::from_secs(2), Span::from_secs(20));
    plan.site.firmware.0 = Span::from_secs(5);
    if chance.percent(30) {
        return plan.put(at, Trouble::Reboot { machine });
    }
    plan.put(at, Trouble::FreezeThenReboot { machine, after });
}

fn planned_reboot(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let firmware = secs(chance, 60, 540);
    plan.put(at, Trouble::PlannedReboot { machine, firmware });
}

fn off_then_on(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let after = chance.span(Span::from_ms(200), Span::from_secs(20));
    plan.put(at, Trouble::OffThenOn { machine, after });
}

fn power_on_later(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let after = chance.span(Span::from_secs(5), Span::from_secs(40));
    plan.put(at, Trouble::OffThenOn { machine, after });
}

fn agent_away(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let (span, goodbye) = (secs(chance, 2, 150), chance.percent(50));
    plan.put(at, Trouble::AgentAway { machine, span, goodbye });
}

fn agents_without_arbiter(plan: &mut Plan, at: Span, chance: &mut Chance) {
    for replica in 0..plan.site.replicas.len() {
        let away = secs(chance, 20, 60);
        plan.put(at, Trouble::ReplicaKilled { replica, away });
    }
    for machine in 0..plan.site.nodes {
        if chance.percent(60) {
            let span = secs(chance, 1, 20);
            plan.put(at + Span::from_secs(2), Trouble::AgentAway { machine, span, goodbye: false });
        }
    }
}

fn kubelet_away(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let span = secs(chance, 20, 200);
    plan.put(at, Trouble::KubeletAway { machine, span });
}

fn cut_off(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let span = secs(chance, 3, 120);
    let cut = isolation(&[machine]);
    if chance.percent(30) {
        let each = chance.span(Span::from_ms(800), Span::from_secs(12));
        plan.put(at, Trouble::Flapping { cut, each, times: 6 });
    } else {
        plan.put(at, Trouble::Cut { cut, span });
    }
}

fn one_way_cut(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let (inside, outside) = (Ends::Hosts(vec![machine]), Ends::NotHosts(vec![machine]));
    let cut = if chance.percent(50) {
        one_way(inside, outside, None, 100)
    } else {
        one_way(outside, inside, None, 100)
    };
    let span = secs(chance, 5, 120);
    plan.put(at, Trouble::Cut { cut, span });
}

/// Directed paths between machines, each with some chance: what two-of-n rules die of.
fn partial_cut(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let percent = chance.range(5, 60);
    let flows = if chance.percent(50) { None } else { Some(vec![Flow::Peer]) };
    let mut cut: Vec<Cut> = Vec::new();
    let nodes = plan.site.nodes.min(40);
    for from in 0..nodes {
        let to: Vec<usize> = (0..nodes).filter(|to| *to != from && chance.percent(percent)).collect();
        cut.extend(one_way(Ends::Hosts(vec![from]), Ends::Hosts(to), flows.clone(), 100));
    }
    let span = secs(chance, 5, 90);
    plan.put(at, Trouble::Cut { cut, span });
}

fn rack_cut(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(rack) = plan.rack(chance) else { return cut_off(plan, at, chance) };
    let mut cut = isolation(&plan.in_rack(rack));
    if chance.percent(30) {
        for c in &mut cut {
            c.loss = 70;
        }
    }
    let span = secs(chance, 3, 120);
    plan.put(at, Trouble::Cut { cut, span });
}

fn arbiter_cut(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let hosts = plan.site.replicas.clone();
    let flows = Some(vec![Flow::Report, Flow::Replica, Flow::Peer]);
    let others: Vec<usize> = (0..plan.site.nodes).filter(|m| !hosts.contains(m)).collect();
    let mut cut = one_way(Ends::Hosts(hosts.clone()), Ends::Hosts(others.clone()), flows.clone(), 100);
    cut.extend(one_way(Ends::Hosts(others), Ends::Hosts(hosts), flows, 100));
    let span = secs(chance, 5, 90);
    plan.put(at, Trouble::Cut { cut, span });
}

fn replica_cut(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(host) = chance.pick(&plan.site.replicas) else { return };
    let others: Vec<usize> = plan.site.replicas.iter().copied().filter(|h| *h != host).collect();
    let flows = Some(vec![Flow::Replica]);
    let mut cut = one_way(Ends::Hosts(vec![host]), Ends::Hosts(others.clone()), flows.clone(), 100);
    if chance.percent(70) {
        cut.extend(one_way(Ends::Hosts(others), Ends::Hosts(vec![host]), flows, 100));
    }
    let span = secs(chance, 3, 60);
    plan.put(at, Trouble::Cut { cut, span });
    if chance.percent(50) {
        let machine = plan.machine(chance);
        plan.put(at + Span::from_secs(2), Trouble::Freeze { machine, span });
    }
}

fn blind_leader(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let blind = chance.range(1, 2);
    let hosts: Vec<usize> =
        plan.site.replicas.iter().copied().take(usize::try_from(blind).unwrap_or(1)).collect();
    let some: Vec<usize> = (0..plan.site.nodes).filter(|_| chance.percent(60)).collect();
    let to = if chance.percent(30) { Ends::Bmcs(some) } else { Ends::Any };
    let cut = one_way(Ends::Hosts(hosts), to, Some(vec![Flow::Bmc]), 100);
    let span = secs(chance, 20, 200);
    plan.put(at, Trouble::Cut { cut, span });
    let machine = plan.machine(chance);
    plan.put(at + Span::from_secs(3), Trouble::PowerCut { machine });
}
