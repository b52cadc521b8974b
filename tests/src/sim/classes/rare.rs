//! Classes that decide between a rule and its absence, and that the others come to too rarely: each is what some planted
//! bug needs to show itself (`shared/src/mutant.rs`).

use coroner_arbiter_core::policy::Quirk;
use coroner_shared::time::Span;

use super::secs;
use crate::sim::chance::Chance;
use crate::sim::network::{Ends, Flow};
use crate::sim::odd::Odd;
use crate::sim::people::Act;
use crate::sim::swarm::Plan;
use crate::sim::trouble::{Trouble, isolation, one_way};

/// Agent and kubelet are away and a firewall drops pings: only a refused port says that the kernel lives.
pub(super) fn refused_port(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let span = secs(chance, 40, 150);
    let cut = one_way(Ends::Any, Ends::Hosts(vec![machine]), Some(vec![Flow::Ping]), 100);
    plan.put(at, Trouble::Cut { cut, span });
    plan.put(at, Trouble::KubeletAway { machine, span });
    plan.put(at + Span::from_ms(500), Trouble::AgentAway { machine, span, goodbye: false });
}

/// Two BMCs get each other's address while one of their machines is judged and fenced.
pub(super) fn cables_swapped(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let a = plan.machine(chance);
    let b = (a + 1 + chance.index(plan.site.nodes - 1)) % plan.site.nodes;
    let span = secs(chance, 60, 200);
    plan.put(at, Trouble::Freeze { machine: a, span });
    let later = at + chance.span(Span::from_secs(1), Span::from_secs(25));
    plan.put(later, Trouble::BmcSwapped { a, b, span });
}

/// A chassis: the BMC of a machine that dies shows a neighbour's System first.
pub(super) fn chassis(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let neighbour = (machine + 1 + chance.index(plan.site.nodes - 1)) % plan.site.nodes;
    plan.site.bmcs[machine].neighbour = Some(neighbour);
    let span = secs(chance, 40, 200);
    plan.put(at, Trouble::Freeze { machine, span });
}

/// A BMC that says yes and does nothing, or takes its time, and people who pause while it is tried again.
pub(super) fn paused_retries(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    plan.site.bmcs[machine].change =
        if chance.percent(50) { |t| t.ignores = true } else { |t| t.off_takes = Span::from_secs(70) };
    let span = secs(chance, 90, 240);
    plan.put(at, Trouble::Freeze { machine, span });
    let whom = chance.percent(50).then_some(machine);
    plan.put(at + secs(chance, 10, 40), Trouble::People(Act::Pause(whom)));
}

/// The same, and the machine goes on before it is tried again, the BMC obeys by then, and another leads.
pub(super) fn back_before_the_retry(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(machine) = plan.worker(chance) else { return slow_answers(plan, at, chance) };
    plan.site.bmcs[machine].change = |t| t.ignores = true;
    let back = secs(chance, 13, 30);
    plan.put(at, Trouble::Freeze { machine, span: back });
    plan.odd(at + back, Odd::BmcObeys { bmc: machine });
    let first = chance.index(3);
    for replica in [first, (first + 1) % 3] {
        let when = at + back + chance.span(Span::ZERO, Span::from_secs(4));
        plan.put(when, Trouble::ReplicaKilled { replica, away: Span::from_secs(1) });
    }
}

/// Another controller marks a node that is fenced and released; now and then one takes our mark away as well.
pub(super) fn others_marks(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    plan.put(at, Trouble::PowerCut { machine });
    plan.put(at + secs(chance, 1, 40), Trouble::People(Act::ForeignTaint(machine)));
    if chance.percent(30) {
        plan.put(at + secs(chance, 10, 60), Trouble::People(Act::TakeTaint(machine)));
    }
}

/// Leaders come and go while a machine is proven and released.
pub(super) fn leaders_come_and_go(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    if chance.percent(50) {
        plan.put(at, Trouble::PowerCut { machine });
    } else {
        let span = secs(chance, 60, 200);
        plan.put(at, Trouble::Freeze { machine, span });
    }
    let mut when = at + chance.span(Span::from_secs(2), Span::from_secs(9));
    for _ in 0..chance.range(2, 5) {
        let replica = chance.index(plan.site.replicas.len());
        let span = chance.span(Span::from_ms(800), Span::from_secs(6));
        plan.put(when, apart(plan, replica, span));
        when += chance.span(Span::from_secs(1), Span::from_secs(6));
    }
}

/// One replica does not reach the others, nor they it.
fn apart(plan: &Plan, replica: usize, span: Span) -> Trouble {
    let host = plan.site.replicas[replica];
    let others: Vec<usize> = plan.site.replicas.iter().copied().filter(|h| *h != host).collect();
    let flows = Some(vec![Flow::Replica]);
    let (inside, outside) = (Ends::Hosts(vec![host]), Ends::Hosts(others));
    let mut cut = one_way(inside.clone(), outside.clone(), flows.clone(), 100);
    cut.extend(one_way(outside, inside, flows, 100));
    Trouble::Cut { cut, span }
}

/// A BMC that takes seconds to answer, so that attempts overtake each other's answers.
pub(super) fn slow_answers(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    plan.site.bmcs[machine].change = |t| t.takes = (Span::from_ms(800), Span::from_secs(7));
    let span = secs(chance, 40, 240);
    plan.put(at, Trouble::Freeze { machine, span });
    for _ in 0..chance.range(0, 2) {
        let replica = chance.index(plan.site.replicas.len());
        let (when, away) = (at + secs(chance, 8, 60), secs(chance, 1, 5));
        plan.put(when, Trouble::ReplicaKilled { replica, away });
    }
}

/// Some observers hear nobody any more, and accuse everybody; then one dies.
pub(super) fn deaf(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let machine = plan.machine(chance);
    let count = 1 + chance.index(plan.site.nodes.saturating_sub(2).clamp(1, 4));
    let deaf = plan.others(&[machine], count, chance);
    let cut = one_way(Ends::Any, Ends::Hosts(deaf), Some(vec![Flow::Peer]), 100);
    plan.put(at, Trouble::Cut { cut, span: secs(chance, 30, 90) });
    plan.death(at + secs(chance, 6, 20), machine, chance);
}

/// Of a machine nothing gets through but what it sends to one replica; leaders may change meanwhile.
pub(super) fn one_replica_hears(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(machine) = plan.worker(chance) else { return deaf(plan, at, chance) };
    let Some(host) = chance.pick(&plan.site.replicas) else { return };
    let span = secs(chance, 20, 60);
    let from = || Ends::Hosts(vec![machine]);
    let rest = Some(vec![Flow::Peer, Flow::Replica, Flow::Kubelet, Flow::Ping]);
    let mut cut = one_way(from(), Ends::NotHosts(vec![host]), None, 100);
    cut.extend(one_way(from(), Ends::Hosts(vec![host]), rest, 100));
    cut.extend(one_way(from(), Ends::Api, None, 100));
    plan.put(at, Trouble::Cut { cut, span });
    if chance.percent(30) {
        let replica = chance.index(plan.site.replicas.len());
        plan.put(at + secs(chance, 1, 15), Trouble::ReplicaKilled { replica, away: secs(chance, 1, 4) });
    }
}

/// All hosts of replicas stand still for a second or two, again and again, while a silence is judged: as when the
/// machines under them are copied.
pub(super) fn arbiter_pauses(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(machine) = plan.worker(chance) else { return slow_answers(plan, at, chance) };
    let span = secs(chance, 12, 60);
    if chance.percent(70) {
        plan.put(at, Trouble::Freeze { machine, span });
    } else {
        plan.put(at, Trouble::Cut { cut: isolation(&[machine]), span });
    }
    let mut when = at + chance.span(Span::from_ms(200), Span::from_secs(3));
    for _ in 0..chance.range(2, 4) {
        let pause = chance.span(Span::from_ms(1_000), Span::from_ms(1_800));
        for host in plan.site.replicas.clone() {
            plan.put(when, Trouble::Freeze { machine: host, span: pause });
        }
        when += pause + chance.span(Span::from_ms(800), Span::from_ms(2_000));
    }
}

/// A BMC that takes its time and does not obey at once, leaders that change, and hands of theirs that come late.
pub(crate) fn late_hands(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(machine) = plan.worker(chance) else { return slow_answers(plan, at, chance) };
    plan.odd(at, Odd::LateHands { span: Span::from_secs(110) });
    plan.site.bmcs[machine].change = |t| {
        t.ignores = true;
        t.takes = (Span::from_ms(1_500), Span::from_secs(3));
    };
    // In half of them it is heard again before it is tried again.
    let span = if chance.percent(50) { secs(chance, 14, 25) } else { secs(chance, 60, 120) };
    plan.put(at, Trouble::Freeze { machine, span });
    let first = chance.index(3);
    for n in 0..3 {
        let replica = (first + n) % plan.site.replicas.len();
        let when = at + secs(chance, 14, 22) + Span::from_secs(3 * n as u64);
        plan.put(when, Trouble::ReplicaKilled { replica, away: Span::from_secs(1) });
    }
}

/// A long confirmation; leaders that are cut off from the others and do not know it yet; people who change something all
/// the time, and some who read all the time.
pub(crate) fn cut_off_leaders(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(machine) = plan.worker(chance) else { return leaders_come_and_go(plan, at, chance) };
    let other = plan.others(&[machine], 1, chance).first().copied().unwrap_or(machine);
    let bmc = &mut plan.site.bmcs[machine];
    bmc.quirks = vec![Quirk::Cached];
    bmc.change = |_| {};
    plan.put(at, Trouble::PowerCut { machine });
    plan.odd(at, Odd::Readers { span: Span::from_secs(65) });
    let first = chance.index(3);
    for n in 0..6 {
        let when = at + Span::from_secs(8 + 9 * n as u64) + secs(chance, 0, 3);
        plan.put(when, apart(plan, (first + n) % plan.site.replicas.len(), secs(chance, 4, 5)));
    }
    let mut when = at + Span::from_secs(6);
    for n in 0..100 {
        plan.put(when, Trouble::People(Act::Relabel(other, n % 2)));
        when += chance.span(Span::from_ms(400), Span::from_ms(900));
    }
}

/// A time daemon that sets the arbiter's clocks forward in small steps, none of which looks like a pause.
pub(crate) fn stepped_clocks(plan: &mut Plan, at: Span, chance: &mut Chance) {
    let Some(machine) = plan.worker(chance) else { return slow_answers(plan, at, chance) };
    let span = chance.span(Span::from_secs(7), Span::from_secs(30));
    plan.put(at, Trouble::Freeze { machine, span });
    let mut when = at;
    while when < at + span {
        for host in plan.site.replicas.clone() {
            let by = chance.span(Span::from_ms(200), Span::from_ms(290));
            plan.put(when, Trouble::ClockJump { machine: host, by, back: false });
        }
        when += chance.span(Span::from_ms(300), Span::from_ms(450));
    }
}
