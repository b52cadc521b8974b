//! A machine dies and nothing else stands in the way: there is a time by which that must be decided, and proven.

use coroner_arbiter_core::policy::Mode;
use coroner_shared::time::Span;

use super::secs;
use crate::sim::chance::Chance;
use crate::sim::site::BmcPlan;
use crate::sim::swarm::Plan;
use crate::sim::trouble::Trouble;

/// Deadline of the slowest profile, a renewal, the longest span of a proof, and what calls take.
const LONE: Span = Span::from_secs(90);

/// A kubelet that renewed just before it died has missed a renewal by then.
const RENEWS: Span = Span::from_secs(12);
/// The leader's host may have died: an election, a cold leader's grace, and a few looks.
const ELECTS: Span = Span::from_secs(10);

/// What a replica that has just started reads of a BMC stands only after this (design 4, a BMC that is not steady).
const UNSTEADY: Span = Span::from_secs(30);

/// Parts of `lone death`, and itself.
pub(super) const NAMES: [&str; 4] = [
    "lone death",
    "replayed beacons",
    "replayed beacons of an earlier boot",
    "the arbiter is killed while it judges",
];

/// One machine dies, nothing else is wrong: there is a time by which it must be over. Gives when.
pub(crate) fn lone_death(plan: &mut Plan, warm: Span, chance: &mut Chance) -> Span {
    plan.classes.push("lone death");
    let machine = plan.machine(chance);
    plan.site.bmcs[machine] = BmcPlan { network: 0, ..BmcPlan::good(machine) };
    for (index, bmc) in plan.site.bmcs.iter_mut().enumerate() {
        // Whoever had its cable has its own.
        if index != machine && bmc.machine == machine {
            bmc.machine = index;
        }
    }
    for policy in plan.site.policies.values_mut() {
        policy.mode = Mode::Enforce;
    }
    // A large site has registered and bound all later, and its BMCs are steady two minutes after that.
    let large = if plan.site.nodes > 40 { Span::from_secs(60) } else { Span::ZERO };
    let mut at = warm + large + secs(chance, 20, 60);
    let (mut decided, mut found_off) = (RENEWS, Span::ZERO);
    match chance.below(10) {
        0..3 => replayed(plan, at, machine, chance),
        3..5 => at = replayed_of_before(plan, at, machine, chance),
        5..7 => {
            decided += arbiter_killed(plan, at, chance);
            found_off = UNSTEADY;
        }
        _ => {}
    }
    if chance.percent(50) {
        plan.put(at, Trouble::PowerCut { machine });
        decided += found_off;
    } else {
        plan.put(at, Trouble::Freeze { machine, span: Span::from_mins(20) });
    }
    let deadline = plan.site.policies.values().map(|policy| policy.rules.silent_bmc_on).max();
    let decided = deadline.unwrap_or_default().max(decided) + ELECTS;
    plan.put(at + decided, Trouble::MustBeDecided { machine });
    plan.put(at + LONE, Trouble::MustBeOver { machine });
    plan.troubles.sort_by_key(|(at, _)| *at);
    at + LONE + Span::from_secs(10)
}

/// Its last beacons are sent again.
fn replayed(plan: &mut Plan, at: Span, machine: usize, chance: &mut Chance) {
    plan.classes.push("replayed beacons");
    let from = (machine + 1) % plan.site.nodes;
    plan.put(at.saturating_sub(Span::from_secs(15)), Trouble::Records { machine });
    plan.put(
        at + chance.span(Span::ZERO, Span::from_secs(3)),
        Trouble::Replays { from, span: Span::from_secs(90) },
    );
}

/// Those of the boot before its last, which nobody sent again while that one ran. Gives when it dies.
fn replayed_of_before(plan: &mut Plan, at: Span, machine: usize, chance: &mut Chance) -> Span {
    plan.classes.push("replayed beacons of an earlier boot");
    let from = (machine + 1) % plan.site.nodes;
    plan.put(at.saturating_sub(Span::from_secs(10)), Trouble::Records { machine });
    plan.put(at, Trouble::RecordsNoMore);
    plan.put(at, Trouble::PlannedReboot { machine, firmware: secs(chance, 5, 15) });
    let dies = at + secs(chance, 60, 90);
    plan.put(
        dies + chance.span(Span::ZERO, Span::from_secs(3)),
        Trouble::Replays { from, span: Span::from_secs(90) },
    );
    dies
}

/// All replicas' processes are killed while it is judged, and what they heard is lost. Gives how much later it may be
/// decided.
fn arbiter_killed(plan: &mut Plan, at: Span, chance: &mut Chance) -> Span {
    plan.classes.push("the arbiter is killed while it judges");
    let (later, away) = (secs(chance, 3, 7), secs(chance, 1, 2));
    for replica in 0..plan.site.replicas.len() {
        plan.put(at + later, Trouble::ReplicaKilled { replica, away });
    }
    later + away
}
