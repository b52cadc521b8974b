//! Scripts: every 16th seed plays one of them in its turn, in place of what chance would draw. Each leads to what
//! chance reaches too seldom for a night to be sure of it: a brake that needs several deaths in the right order, an edge
//! whose window is short. Times and sites still differ from seed to seed.

use coroner_arbiter_core::policy::{AfterRelease, Mode, Policy};
use coroner_shared::time::Span;

use super::Site;
use super::chance::Chance;
use super::classes::rare;
use super::network::{Ends, Flow};
use super::odd::Odd;
use super::people::Act;
use super::set_up::WARM_UP;
use super::site::BmcPlan;
use super::swarm::Plan;
use super::trouble::{Trouble, one_way};

/// Every so many seeds.
const EVERY: u64 = 16;
/// And every so many, from the half of it on, what a planted bug alone has needed so far: in seeds of their own, so that
/// one more of them changes no other seed.
const SELDOM_EVERY: u64 = 100;
/// Longer than any script.
const LONG: Span = Span::from_mins(30);

type Script = fn(u64, &mut Chance) -> Plan;

/// Name, and what is played.
const SCRIPTS: [(&str, Script); 25] = [
    ("script: a storm", storm),
    ("script: the floor", floor),
    ("script: a repeat offender", repeat_offender),
    ("script: a new boot before the release", boot_before_release),
    ("script: on, and no boot is known", on_but_unknown),
    ("script: silent again while it returns", silent_in_return),
    ("script: paused when it dies", paused),
    ("script: one rack dies slowly", slow_rack),
    ("script: the budget is used up", budget),
    ("script: a second policy", second_policy),
    ("script: enforced with a node long dead", enforced_late),
    ("script: the last read cannot be made", no_last_read),
    ("script: all replicas lost", all_lost),
    ("script: refused", refused),
    ("script: one says that a machine found off answers", disputed),
    ("script: two machines of one boot", twins),
    ("script: stopped while it is only read", stopped_reading),
    ("script: stopped before the intent", stopped_early),
    ("script: confirmed before the intent", confirmed_early),
    ("script: heard again at the last moment", reprieve),
    ("script: one rack keeps quiet", quiet_rack),
    ("script: some have never heard it", never_heard),
    ("script: some have not heard it for long", long_unheard),
    ("script: only strangers reach it", strangers),
    ("script: ordered off, one too many", one_too_many),
];

const SELDOM: [(&str, Script); 3] = [
    ("script: hands of a deposed leader", |seed, chance| of_class(seed, rare::late_hands, chance)),
    ("script: a leader cut off is read", |seed, chance| of_class(seed, rare::cut_off_leaders, chance)),
    ("script: clocks in small steps", |seed, chance| of_class(seed, rare::stepped_clocks, chance)),
];

/// Names of all scripts.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    SCRIPTS.iter().chain(&SELDOM).map(|(name, _)| *name)
}

/// The script of this seed, if it plays one.
pub(crate) fn of(seed: u64, chance: &mut Chance) -> Option<Plan> {
    let turn = |every: u64, of: usize| usize::try_from(seed / every).unwrap_or(0) % of;
    let (name, script) = if seed % EVERY == EVERY - 1 {
        SCRIPTS[turn(EVERY, SCRIPTS.len())]
    } else if seed % SELDOM_EVERY == SELDOM_EVERY / 2 {
        SELDOM[turn(SELDOM_EVERY, SELDOM.len())]
    } else {
        return None;
    };
    let mut plan = script(seed, chance);
    plan.classes.push(name);
    plan.ends_after(chance);
    Some(plan)
}

/// How often its script was played in the seeds before this one.
fn turn(seed: u64) -> u64 {
    seed / EVERY / SCRIPTS.len() as u64
}

/// A site with good BMCs, its replicas on n0 to n2.
fn site(seed: u64, nodes: usize, racks: usize, change: impl Fn(&mut Policy)) -> Plan {
    let mut site = Site::plain(seed, nodes, racks);
    site.bmcs = (0..nodes).map(BmcPlan::good).collect();
    site.control_plane = vec![false; nodes];
    for policy in site.policies.values_mut() {
        change(policy);
    }
    Plan::quiet(site)
}

/// A class by itself, on a site in which nothing else is wrong.
fn of_class(seed: u64, class: fn(&mut Plan, Span, &mut Chance), chance: &mut Chance) -> Plan {
    let nodes = usize::try_from(chance.range(5, 8)).unwrap_or(5);
    let mut plan = site(seed, nodes, 0, |_| {});
    class(&mut plan, WARM_UP, chance);
    plan
}

fn secs(chance: &mut Chance, low: u64, high: u64) -> Span {
    chance.span(Span::from_secs(low), Span::from_secs(high))
}

fn freeze(machine: usize) -> Trouble {
    Trouble::Freeze { machine, span: LONG }
}

impl Plan {
    fn person(&mut self, at: Span, act: Act) {
        self.put(at, Trouble::People(act));
    }
}

/// Six machines of six racks within three seconds.
fn storm(seed: u64, chance: &mut Chance) -> Plan {
    let nodes = usize::try_from(chance.range(24, 30)).unwrap_or(24);
    let mut plan = site(seed, nodes, 6, |_| {});
    for victim in 0..6 {
        let at = WARM_UP + chance.span(Span::ZERO, Span::from_secs(3));
        plan.put(at, Trouble::Freeze { machine: 12 + victim, span: secs(chance, 60, 120) });
    }
    // One that dies while the storm is still on.
    plan.put(WARM_UP + Span::from_secs(30), Trouble::PowerCut { machine: 10 });
    plan
}

/// One machine may be down by our hand, and stays off.
fn floor(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 7, 0, |policy| {
        policy.brakes.floor = Some(1);
        policy.after_release = AfterRelease::StayOff;
    });
    plan.put(WARM_UP, freeze(5));
    plan.put(WARM_UP + secs(chance, 50, 80), freeze(6));
    plan
}

fn repeat_offender(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |policy| policy.brakes.deaths_per_day = 2);
    plan.put(WARM_UP, freeze(4));
    plan.put(WARM_UP + secs(chance, 260, 300), freeze(4));
    plan
}

/// Nothing can be released, and somebody powers the machine on meanwhile.
fn boot_before_release(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |_| {});
    plan.site.firmware = (Span::from_secs(5), Span::from_secs(20));
    plan.put(WARM_UP, Trouble::PowerCut { machine: 4 });
    plan.put(WARM_UP + Span::from_ms(500), Trouble::ApiDown { span: secs(chance, 45, 70) });
    plan.put(WARM_UP + secs(chance, 20, 40), Trouble::OffThenOn { machine: 4, after: Span::from_ms(1) });
    plan
}

/// After its release a machine is on and says nothing; a person orders it off again.
fn on_but_unknown(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |policy| policy.timings.booting = Span::from_secs(30));
    plan.put(WARM_UP, Trouble::Odd(Odd::Firmware { machine: 4, takes: Span::from_mins(10) }));
    plan.put(WARM_UP, Trouble::PowerCut { machine: 4 });
    plan.put(WARM_UP + secs(chance, 25, 40), Trouble::OffThenOn { machine: 4, after: Span::from_ms(1) });
    for n in 0..6 {
        plan.person(WARM_UP + Span::from_secs(80 + 15 * n) + secs(chance, 0, 5), Act::Fence(4));
    }
    // The board is quick again: somebody looked after it.
    let quick = Odd::Firmware { machine: 4, takes: Span::from_secs(20) };
    plan.put(WARM_UP + Span::from_secs(200), Trouble::Odd(quick));
    plan.put(WARM_UP + Span::from_secs(210), Trouble::Reboot { machine: 4 });
    plan
}

/// It reboots by itself while it is fenced, and falls silent again before it is back.
fn silent_in_return(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |_| {});
    plan.site.bmcs[4].change = |t| t.ignores = true;
    plan.put(WARM_UP, Trouble::Odd(Odd::Firmware { machine: 4, takes: Span::from_secs(5) }));
    plan.put(WARM_UP, Trouble::FreezeThenReboot { machine: 4, after: secs(chance, 13, 15) });
    if turn(seed) % 2 == 1 {
        plan.person(WARM_UP + Span::from_secs(30), Act::Pause(Some(4)));
    }
    plan.put(WARM_UP + secs(chance, 33, 38), freeze(4));
    plan
}

/// Nobody may be powered off, until somebody says so.
fn paused(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |_| {});
    let node = chance.percent(50).then_some(4);
    plan.person(WARM_UP, Act::Pause(node));
    plan.put(WARM_UP + Span::from_secs(2), freeze(4));
    plan.person(WARM_UP + secs(chance, 30, 60), Act::Resume(node));
    plan
}

/// Two of one rack at once, and a third within ten minutes.
fn slow_rack(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 12, 2, |_| {});
    plan.put(WARM_UP, freeze(4));
    plan.put(WARM_UP + Span::from_ms(chance.range(0, 1_500)), freeze(6));
    plan.put(WARM_UP + secs(chance, 50, 80), freeze(8));
    plan
}

fn budget(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 12, 0, |_| {});
    plan.put(WARM_UP, freeze(4));
    plan.put(WARM_UP + secs(chance, 18, 20), freeze(6));
    plan.put(WARM_UP + secs(chance, 36, 40), freeze(8));
    plan
}

/// Two policies select a node that is held already.
fn second_policy(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |_| {});
    plan.person(WARM_UP, Act::Pause(None));
    plan.put(WARM_UP + Span::from_secs(2), freeze(4));
    plan.person(WARM_UP + secs(chance, 25, 35), Act::SecondPolicy(true));
    plan.person(WARM_UP + Span::from_secs(45), Act::Resume(None));
    plan.person(WARM_UP + secs(chance, 70, 90), Act::SecondPolicy(false));
    plan
}

/// A node dies in Observe, and its policy is turned to Enforce later.
fn enforced_late(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |_| {});
    plan.person(WARM_UP, Act::Mode(Mode::Observe));
    plan.put(WARM_UP + Span::from_secs(3), freeze(4));
    plan.person(WARM_UP + secs(chance, 60, 120), Act::Mode(Mode::Enforce));
    plan
}

/// It is proven off, and then nobody can read its BMC; a person confirms.
fn no_last_read(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |_| {});
    plan.put(WARM_UP, Trouble::PowerCut { machine: 4 });
    plan.put(WARM_UP + Span::from_ms(500), Trouble::ApiDown { span: Span::from_secs(40) });
    plan.put(WARM_UP + secs(chance, 20, 25), Trouble::BmcSilent { bmc: 4, span: Span::from_secs(150) });
    plan.person(WARM_UP + secs(chance, 110, 130), Act::ConfirmOff(4));
    plan
}

/// The disks of all replicas are lost while a node is out of service; a fresh group finds our marks.
fn all_lost(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |policy| policy.after_release = AfterRelease::StayOff);
    plan.put(WARM_UP, Trouble::PowerCut { machine: 4 });
    plan.put(WARM_UP + secs(chance, 30, 60), Trouble::Odd(Odd::AllLost));
    plan.put(WARM_UP + secs(chance, 100, 130), Trouble::OffThenOn { machine: 4, after: Span::from_ms(1) });
    // Whether it was cordoned before us nobody remembers; it is theirs to uncordon.
    plan.person(WARM_UP + Span::from_secs(300), Act::Uncordon(4));
    plan
}

/// People ask for what cannot be done, each for another reason.
fn refused(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 6, 0, |_| {});
    plan.site.bmcs[3].change = |t| t.ignores = true;
    plan.put(WARM_UP, Trouble::Hang { machine: 4 });
    plan.person(WARM_UP + Span::from_secs(1), Act::Fence(3));
    for n in 0..15 {
        plan.person(WARM_UP + Span::from_ms(4_000 + 1_700 * n), Act::ConfirmHeard(3));
    }
    let later = WARM_UP + secs(chance, 40, 50);
    let acts = [
        Act::ConfirmUnseen(4),
        Act::ConfirmOther(4),
        Act::FenceNobody,
        Act::FenceReplaced(0),
        Act::Return(0),
        Act::ClearHeld(0),
        Act::Repin(0),
        Act::Repin(0),
        Act::SetLevel(2),
        Act::SetLevel(0),
        Act::BadPolicy(true),
        Act::BadPolicy(false),
    ];
    for (n, act) in (0..).zip(acts) {
        plan.person(later + Span::from_secs(n), act);
    }
    plan.put(WARM_UP + Span::from_secs(70), Trouble::PowerCut { machine: 5 });
    plan.person(WARM_UP + Span::from_secs(85), Act::ConfirmOff(5));
    // Somebody mends that BMC, and the order is carried out.
    plan.put(WARM_UP + Span::from_secs(90), Trouble::Odd(Odd::BmcObeys { bmc: 3 }));
    plan
}

/// A machine is found off, and one compromised agent says that it answers.
fn disputed(seed: u64, _: &mut Chance) -> Plan {
    let mut plan = site(seed, 6, 0, |_| {});
    let lies = Odd::Lies { liars: vec![3], about: 5, lives: true, quiet: false, span: Span::from_secs(70) };
    plan.put(WARM_UP, Trouble::Odd(lies));
    plan.put(WARM_UP + Span::from_secs(3), Trouble::PowerCut { machine: 5 });
    plan
}

/// One goes on from the other's memory image; then both fall silent.
fn twins(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 6, 0, |_| {});
    plan.put(WARM_UP, Trouble::Odd(Odd::Twin { machine: 5, of: 4, span: Span::from_secs(100) }));
    let at = WARM_UP + secs(chance, 30, 50);
    plan.put(at, freeze(4));
    plan.put(at, freeze(5));
    plan
}

/// It was found off during a pause, so that nothing is sent and it is only read; meanwhile something forbids even that.
fn stopped_reading(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |_| {});
    plan.person(WARM_UP, Act::Pause(None));
    plan.put(WARM_UP + Span::from_secs(2), Trouble::PowerCut { machine: 4 });
    let when = WARM_UP + secs(chance, 10, 20);
    match turn(seed) % 4 {
        0 => plan.put(when, Trouble::Odd(Odd::Unbound { machine: 4, span: Span::from_secs(40) })),
        1 => plan.person(when, Act::SecondPolicy(true)),
        2 => plan.person(when, Act::Mode(Mode::Observe)),
        _ => plan.person(when, Act::Exclude(4, true)),
    }
    plan
}

/// From here to there a machine found off is condemned and its intent is not committed yet.
const BEFORE_INTENT: (Span, Span) = (Span::from_ms(2_300), Span::from_ms(2_900));

fn stopped_early(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |_| {});
    plan.put(WARM_UP, Trouble::PowerCut { machine: 4 });
    plan.person(WARM_UP + chance.span(BEFORE_INTENT.0, BEFORE_INTENT.1), Act::Exclude(4, true));
    plan.person(WARM_UP + Span::from_secs(40), Act::Exclude(4, false));
    plan
}

fn confirmed_early(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |_| {});
    plan.put(WARM_UP, Trouble::PowerCut { machine: 4 });
    plan.person(WARM_UP + chance.span(BEFORE_INTENT.0, BEFORE_INTENT.1), Act::ConfirmOff(4));
    plan
}

/// A node that hung goes on while its BMC is still being asked.
fn reprieve(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 0, |_| {});
    plan.site.bmcs[4].change = |t| t.takes = (Span::from_ms(250), Span::from_ms(450));
    for n in 0..6 {
        let silent = WARM_UP + Span::from_secs(75 * n);
        let span = Span::from_ms(chance.range(8_200, 9_600));
        plan.put(silent, Trouble::Freeze { machine: 4, span });
    }
    plan
}

/// The observers of one rack are compromised and keep quiet about a death; all others accuse.
fn quiet_rack(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 5, 4, |_| {});
    let lies = Odd::Lies { liars: vec![3], about: 4, lives: true, quiet: true, span: LONG };
    plan.put(WARM_UP, Trouble::Odd(lies));
    plan.put(WARM_UP + secs(chance, 3, 20), freeze(4));
    plan
}

/// Of one machine's observers two never got a beacon, though its kernel answers them.
fn never_heard(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 6, 0, |_| {});
    let cut = one_way(Ends::Hosts(vec![5]), Ends::Hosts(vec![3, 4]), Some(vec![Flow::Peer]), 100);
    plan.put(Span::ZERO, Trouble::Cut { cut, span: LONG });
    plan.put(WARM_UP + secs(chance, 1, 30), freeze(5));
    plan
}

/// The same two got beacons once, and nothing at all for more than ten minutes.
fn long_unheard(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 6, 0, |_| {});
    let cut = one_way(Ends::Hosts(vec![5]), Ends::Hosts(vec![3, 4]), None, 100);
    plan.put(WARM_UP, Trouble::Cut { cut, span: LONG });
    plan.put(WARM_UP + Span::from_mins(10) + secs(chance, 20, 60), freeze(5));
    plan
}

/// Programs hang, the kernel answers: not those that observe it, but the others.
fn strangers(seed: u64, chance: &mut Chance) -> Plan {
    let nodes = usize::try_from(chance.range(12, 16)).unwrap_or(12);
    let mut plan = site(seed, nodes, 0, |_| {});
    let machine = nodes - 1;
    plan.put(WARM_UP, Trouble::Odd(Odd::OnlyStrangers { machine, span: secs(chance, 60, 120) }));
    plan.put(WARM_UP + secs(chance, 0, 5), Trouble::Hang { machine });
    plan
}

/// Somebody orders machines off, one after the other, and one more than may be off at a time.
fn one_too_many(seed: u64, chance: &mut Chance) -> Plan {
    let mut plan = site(seed, 6, 0, |policy| policy.after_release = AfterRelease::StayOff);
    for (n, machine) in (0..).zip([5, 4, 3, 3]) {
        plan.person(WARM_UP + Span::from_secs(70 * n) + secs(chance, 0, 10), Act::Fence(machine));
    }
    plan
}
