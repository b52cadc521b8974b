//! Classes of seeds: what goes wrong together, drawn by weight. Those that issue trackers are full of come often.
//!
//! What must occur, by which class and function, and how often the first 2,000 seeds draw it:
//!
//! | what must occur | class (function) | in 2,000 seeds |
//! |---|---|---|
//! | N = 3 to 12 with one death, with two | `one death` (`one_death`), `lone death` (`lone_death`), `two deaths` (`two_deaths`) | 171, 258, 136; 96 of 100 sites have 3 to 12 nodes |
//! | the dead node hosts the leader, or another replica | `the leader's host dies` (`leaders_host`) | 84 |
//! | cold start of a site, firmware of 1 to 10 min | `swarm::draw_site` | 115 |
//! | planned reboot of up to 9 min | `planned reboot` (`planned_reboot`) | 60 |
//! | crash kernel that answers ping | `crash kernel` (`crash_kernel`) | 63 |
//! | quick reboot during condemnation | `quick reboot while condemned` (`quick_reboot`) | 68 |
//! | leader blind to the BMC network | `leader blind to the BMC network` (`blind_leader`) | 83 |
//! | BMC just restarted and saying Off | `BMC just restarted` (`servers::bmc_restarted`) | 92 |
//! | a rack's BMCs restart while its switch blips | `rack's BMCs restart while its switch blips` (`servers::rack_blip`) | 53 |
//! | executor paused between last look and command | `executor paused between look and command` (`odd::executor_paused`) | 44 |
//! | power on after the proof, and after the release | `power on after the proof` (`power_on_later`), `power cycled by somebody` (`off_then_on`), `script: a new boot before the release` | 44, 103, 5 |
//! | a stale taint controller | `stale collector of pods` (`odd::stale_collector`) | 15 |
//! | agents restarted with the arbiter down | `agents restarted without the arbiter` (`agents_without_arbiter`) | 32 |
//! | replayed beacons, also of an earlier boot | `replayed beacons`, `replayed beacons of an earlier boot` (`lone::lone_death`) | 81, 39 |
//! | restored disk of a replica | `replica's disk restored from a copy` (`odd::disk_restored`) | 31 |
//! | lost sync, torn write of a replica's disk; stall, full | `disk loses what it said was saved` (`odd::disk_lies`), `power goes in a write` (`odd::disk_tears`); `disk at fault` (`servers::disk`) | 47, 33, 89 |
//! | Observe turned to Enforce with nodes long dead | `people` (`servers::people`), `script: enforced with a node long dead` | 169, 5 (of all acts of people) |
//! | labels changed in mid-incident | `people` (`servers::people`) | 169 of all acts |
//! | lying observers, one fewer than a verdict needs | `liars accuse the living`, `liars deny a death` (`odd::liars_accuse`, `odd::liars_deny`), `script: one rack keeps quiet` | 55, 38, 5 |
//! | observers that are deaf, or never heard the subject, or not for long | `deaf observers` (`rare::deaf`), `script: some have never heard it`, `script: some have not heard it for long` | 57, 5, 5 |
//! | one replica alone hears a machine, or only strangers reach it, or a refused port alone answers | `one replica alone hears it`, `only a refused port answers` (`rare::one_replica_hears`, `rare::refused_port`), `script: only strangers reach it` | 72, 35, 5 |
//! | clones | `clone with the same key` (`odd::cloned`), `same machine id twice` (`odd::same_uuid`), `board replaced` (`odd::replaced`), `script: two machines of one boot` | 21, 23, 17, 5 |
//! | another machine behind a BMC | `cables swapped in the middle`, `a chassis` (`rare::cables_swapped`, `rare::chassis`) | 47, 42 |
//! | later attempts: under a pause, to a machine that is back, over a slow BMC | `paused between attempts`, `back before the next attempt`, `a BMC that takes seconds` (`rare`) | 33, 43, 27 |
//! | leaders that change, pause, are killed, are cut off; results of theirs that come late | `leaders come and go`, `the arbiter's hosts pause together` (`rare`), `the arbiter is killed while it judges` (`lone::lone_death`), `script: a leader cut off is read`, `script: hands of a deposed leader` | 62, 65, 58, 7, 7 |
//! | mixed versions | `agents of another wire version` (`odd::other_wire`), `replica of another level` (`odd::other_level`) | 23, 11 |
//! | clocks | `clocks at different rates`, `clocks are set back`, `clocks are set` (`odd::rates`, `odd::set_back`, `servers::clocks`), `script: clocks in small steps` | 33, 15, 58, 6 |
//! | loss, delay and order, duplicates, corruption | `bad weather` (`servers::weather`) | 101 |
//! | bursts; small MTU; single flows | `losses in bursts`, `long datagrams are lost`, `single flows are black holes` (`odd::bursts`, `odd::narrow`, `odd::flows`) | 23, 24, 37 |
//! | one way; some paths; flip-flop | `one-way cut`, `partial cut`, `host cut off`, `cuts that come and go` (`one_way_cut`, `partial_cut`, `cut_off`, `odd::flip_flop`) | 76, 74, 93, 21 |
//! | racks and BMC networks cut | `rack cut off` (`rack_cut`), `rack and its BMCs cut` (`odd::rack_and_bmcs`), `BMC network cut` (`servers::bmc_network`) | 72, 16, 37 |
//!
//! All of them are in [`super::MUST`]: a nightly run that misses one is void.

mod lone;
mod odd;
pub(super) mod rare;
mod servers;

use coroner_shared::time::Span;

use super::chance::Chance;
use super::network::{Cut, Ends, Flow};
use super::people::Act;
use super::swarm::Plan;
use super::trouble::{Trouble, isolation, one_way};
pub(crate) use lone::lone_death;

type Draw = fn(&mut Plan, Span, &mut Chance);

/// Name, weight, how it is drawn.
type Class = (&'static str, u64, Draw);

const CLASSES: [Class; 46] = [
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
    ("only a refused port answers", 2, rare::refused_port),
    ("cables swapped in the middle", 2, rare::cables_swapped),
    ("a chassis", 2, rare::chassis),
    ("paused between attempts", 2, rare::paused_retries),
    ("back before the next attempt", 2, rare::back_before_the_retry),
    ("others' marks", 2, rare::others_marks),
    ("leaders come and go", 3, rare::leaders_come_and_go),
    ("a BMC that takes seconds", 2, rare::slow_answers),
    ("deaf observers", 3, rare::deaf),
    ("one replica alone hears it", 3, rare::one_replica_hears),
    ("the arbiter's hosts pause together", 3, rare::arbiter_pauses),
];

/// Draws one.
pub(crate) fn draw(plan: &mut Plan, at: Span, chance: &mut Chance) {
    draw_of(&CLASSES, plan, at, chance);
}

fn draw_of(classes: &[Class], plan: &mut Plan, at: Span, chance: &mut Chance) {
    let all: u64 = classes.iter().map(|(_, weight, _)| weight).sum();
    let mut left = chance.below(all);
    for (name, weight, draw) in classes {
        if left < *weight {
            plan.classes.push(name);
            return draw(plan, at, chance);
        }
        left -= weight;
    }
}

/// What goes wrong in second acts.
const LATER: [Class; 21] = [
    ("liars accuse the living", 6, odd::liars_accuse),
    ("liars deny a death", 4, odd::liars_deny),
    ("clone with the same key", 3, odd::cloned),
    ("same machine id twice", 3, odd::same_uuid),
    ("board replaced", 2, odd::replaced),
    ("agents of another wire version", 3, odd::other_wire),
    ("replica of another level", 2, odd::other_level),
    ("disk loses what it said was saved", 5, odd::disk_lies),
    ("power goes in a write", 4, odd::disk_tears),
    ("replica's disk restored from a copy", 4, odd::disk_restored),
    ("clocks at different rates", 4, odd::rates),
    ("clocks are set back", 2, odd::set_back),
    ("losses in bursts", 4, odd::bursts),
    ("long datagrams are lost", 3, odd::narrow),
    ("single flows are black holes", 4, odd::flows),
    ("rack and its BMCs cut", 3, odd::rack_and_bmcs),
    ("cuts that come and go", 3, odd::flip_flop),
    ("executor paused between look and command", 5, odd::executor_paused),
    ("stale collector of pods", 3, odd::stale_collector),
    ("people try everything", 6, odd::people_try),
    ("stopped at the last moment", 5, odd::stopped),
];

/// Names of all classes, also of those that stand beside the tables.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    let drawn = CLASSES.iter().chain(&LATER).map(|(name, _, _)| *name);
    drawn.chain(lone::NAMES)
}

/// Draws what goes wrong in a second act.
pub(crate) fn draw_later(plan: &mut Plan, at: Span, chance: &mut Chance) {
    draw_of(&LATER, plan, at, chance);
}

// === impl Plan ===

impl Plan {
    pub(crate) fn put(&mut self, at: Span, trouble: Trouble) {
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
    if chance.percent(50) {
        let machine = plan.machine(chance);
        plan.death(at + secs(chance, 1, 10), machine, chance);
    }
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
