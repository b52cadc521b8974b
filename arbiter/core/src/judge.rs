//! The leader's desk: who is suspect, what is asked about them, and what is proposed to the log.
//!
//! ```text
//!   State, Pool, BmcBook, LeaseBook, now --> Judge::step --> commands: Judge{view}, Heard, SilentAgain, LeaseMoved
//!                                                        --> probes to ask for, BMCs to read, findings, step down?
//! ```
//!
//! Soft state of one leader in one term; a new one starts with an empty desk and learns everything again within
//! seconds. The desk decides nothing that binds: it proposes views, and `apply` judges them again.

mod desk;
mod findings;
mod fleet;
mod gather;
mod grace;
mod scene;
mod signs;
#[cfg(test)]
pub(crate) mod tests;
mod views;

use std::collections::BTreeMap;

use coroner_shared::beacon::AskProbe;
use coroner_shared::id::{NodeName, ReplicaId};
use coroner_shared::time::{Mono, Span};
use serde::{Deserialize, Serialize};

use crate::apply::{Decision, decide};
use crate::brake;
use crate::command::Command;
use crate::phase::{EvidenceClass, Phase};
use crate::state::State;
use crate::verdict::{Quorum, RENEWAL_SLACK, is_correlated, verdict};
use crate::view::{BmcView, Verdict, View};
use crate::witness::Pool;
use desk::Desk;
use fleet::Fleet;
use grace::Grace;
use scene::Scene;
use signs::Signs;

pub use findings::{Finding, FindingKind};

/// Silences looked at in one step; 1,000 that fall silent at once are all looked at within a quarter of a second.
const LOOKED_AT: usize = 200;
/// Questions of one term.
const TERM_SHIFT: u32 = 32;
/// A decision that only has to wait (one a second, the pace) is proposed this often.
const WAIT: Span = Span::from_ms(250);
/// So long a leader listens at most where its group has been running: what to expect of one that is elected just now.
pub const LISTENS_AT_MOST: Span = grace::COLD;
/// While a storm lasts the log is told this often; it ends a minute after the last time.
const STORM_TOLD_EVERY: Span = Span::from_secs(5);

/// What each replica last read of each BMC, ages as of now.
pub type BmcBook = BTreeMap<NodeName, Vec<BmcView>>;

/// The kubelets' Leases as the leader's watch saw them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaseBook {
    /// Whether the API server can be read now.
    pub readable: bool,
    /// Since when they have been watched without a gap.
    pub watched_since: Option<Mono>,
    /// By node.
    pub leases: BTreeMap<NodeName, LeaseSeen>,
}

/// One Lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseSeen {
    /// When it was last seen to change; `None`: it did not, since it is watched.
    pub changed: Option<Mono>,
    /// The learned interval between renewals.
    pub interval: Span,
}

/// Everything that the leader looks at in one step.
#[derive(Clone, Copy)]
pub struct Sight<'a> {
    /// What the log has made.
    pub state: &'a State,
    /// What all replicas hear.
    pub pool: &'a Pool,
    /// What all replicas read of BMCs.
    pub bmc: &'a BmcBook,
    /// Whether another BMC on the same network answered any replica within 10 s; absent: there is none.
    pub siblings: &'a BTreeMap<NodeName, bool>,
    /// What the kubelets do.
    pub leases: &'a LeaseBook,
    /// Who leads.
    pub me: ReplicaId,
    /// In which term.
    pub term: u64,
    /// Whether a majority of the replicas answers.
    pub quorum: bool,
    /// How long this group of replicas has been running.
    pub group_age: Span,
}

/// A probe to ask for, through any replica.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ask {
    /// Whom to ask.
    pub prober: NodeName,
    /// What.
    pub ask: AskProbe,
}

/// A BMC to read every 500 ms, by every replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Whose.
    pub node: NodeName,
    /// Only readings after this count.
    pub failure_date: Mono,
}

/// Why a leader should give up leading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepDown {
    /// Another replica hears far more of the cluster.
    HearsLess,
}

/// What a step wants.
#[derive(Clone, Debug, Default)]
pub struct JudgeOutput {
    /// To be proposed, in this order.
    pub commands: Vec<Command>,
    /// To be asked.
    pub ask_probes: Vec<Ask>,
    /// To be read, by every replica.
    pub read_bmc: Vec<Wanted>,
    /// What was noticed.
    pub findings: Vec<Finding>,
    /// Whether this leader should give up leading.
    pub step_down: Option<StepDown>,
    /// Whether this leader has listened for long enough to say that somebody is *not* heard. Before that its silence
    /// means nothing, and nothing irreversible may rest on it.
    pub settled: bool,
    /// How long at most until it has; `None` once it is `settled`.
    pub settles_in: Option<Span>,
    /// Every suspect with the verdict of this moment.
    pub judged: BTreeMap<NodeName, (View, Verdict)>,
}

/// One leader's desk.
#[derive(Clone, Debug)]
pub struct Judge {
    grace: Grace,
    /// Number of the last question.
    asked: u64,
    desks: BTreeMap<NodeName, Desk>,
    signs: Signs,
    /// When a decision that only had to wait was last proposed anyway, since log time moves with entries alone.
    waited: Mono,
    /// When the log was last told of a storm.
    storm_told: Option<Mono>,
}

// === impl LeaseSeen ===

impl LeaseSeen {
    /// Whether the kubelet shows life at `now`: it renewed after the last sign of life that anybody holds, and its next
    /// renewal is not overdue. The last renewal of a dying host comes before that, or is overdue soon.
    pub fn shows_life(&self, now: Mono, last_sign: Option<Mono>) -> bool {
        let since_sign = |at: &Mono| last_sign.is_none_or(|sign| *at > sign);
        self.changed.filter(since_sign).is_some_and(|at| now.since(at) < self.interval + RENEWAL_SLACK)
    }
}

// === impl Judge ===

impl Judge {
    /// An empty desk, at every election.
    pub fn new(now: Mono) -> Self {
        Self {
            grace: Grace::new(now),
            asked: 0,
            desks: BTreeMap::new(),
            signs: Signs::default(),
            waited: now,
            storm_told: None,
        }
    }

    /// One look at everything; every 50 ms.
    pub fn step(&mut self, now: Mono, sight: &Sight<'_>) -> JudgeOutput {
        let scene = Scene::new(now, sight);
        self.take_suspects(&scene);
        let looked = self.look(&scene);
        let fleet = Fleet::count(&scene, &self.desks);
        self.correlate(&scene, &fleet);
        // Numbers rise over terms, so that an answer to another leader is never taken for one to this.
        self.asked = self.asked.max(sight.term << TERM_SHIFT);
        let ask_probes = gather::asks(&scene, &mut self.desks, &mut self.asked);
        let judged = self.judge(&scene, &fleet, &looked);
        let settles_in = self.grace.left(&scene);
        let settled = settles_in.is_none();
        let mut commands = self.signs.commands(&scene, settled);
        if settled {
            commands.extend(self.propose(&scene, &judged));
        }
        JudgeOutput {
            commands,
            ask_probes,
            read_bmc: gather::bmcs(&scene, &self.desks),
            findings: findings::of(&scene, &fleet, &judged),
            step_down: findings::step_down(&scene, &fleet),
            settled,
            settles_in,
            judged,
        }
    }

    /// A desk for every suspect and for every node that is held; the others are cleared away.
    fn take_suspects(&mut self, scene: &Scene<'_>) {
        let stays = |name: &NodeName| {
            scene.suspects.contains(name)
                || scene.node(name).is_some_and(|n| !matches!(n.phase, Phase::Alive) && n.member.is_some())
        };
        self.desks.retain(|name, _| stays(name));
        let not_alive = scene.state().nodes.iter().filter(|(_, n)| !matches!(n.phase, Phase::Alive));
        for name in not_alive.map(|(name, _)| name).chain(scene.suspects.iter().copied()) {
            if scene.state().observers.seat(name).is_some() && !self.desks.contains_key(name) {
                self.desks.insert(name.clone(), Desk::default());
            }
        }
    }

    /// Looks at the silence of those who were not looked at for longest.
    fn look(&mut self, scene: &Scene<'_>) -> Vec<NodeName> {
        let mut order: Vec<(Option<Mono>, &NodeName)> =
            self.desks.iter().map(|(name, desk)| (desk.looked, name)).collect();
        order.sort_unstable();
        let now: Vec<NodeName> = order.into_iter().take(LOOKED_AT).map(|(_, name)| name.clone()).collect();
        for name in &now {
            let Some(desk) = self.desks.get_mut(name) else { continue };
            let silence = scene.silence(name);
            desk.looked = Some(scene.now);
            desk.failure_date = scene.now.back(silence);
            let rules = scene.rules(name);
            let heard = silence < rules.beacons.suspect;
            let domain = scene.state().observers.seat(name).map_or("", |s| &s.domain);
            let observers = scene.observers(name, silence);
            let members = scene.state().members();
            let quorum = Quorum::count(&observers, domain, members, &rules);
            desk.met = !heard && quorum.is_met();
            desk.lost = !heard && quorum.is_unanimous();
            if heard {
                desk.correlated = None;
            }
        }
        now
    }

    /// Whoever fell silent together with a large part of its domain is part of that set from then on, and so is who
    /// fell silent within 5 s of one of them.
    fn correlate(&mut self, scene: &Scene<'_>, fleet: &Fleet<'_>) {
        let mut correlated: Vec<NodeName> = Vec::new();
        for (name, desk) in self.desks.iter().filter(|(_, d)| d.met && d.correlated.is_none()) {
            let Some(seat) = scene.state().observers.seat(name) else { continue };
            let own = desk.failure_date;
            let near = |other: &Desk| {
                other.failure_date.since(own).max(own.since(other.failure_date)) <= fleet::TOGETHER
            };
            let joins = fleet
                .met_in(&seat.domain)
                .any(|n| n != name && self.desks.get(n).is_some_and(|d| d.correlated.is_some() && near(d)));
            if joins || is_correlated(&fleet.view_of(name, &seat.domain, None)) {
                correlated.push(name.clone());
            }
        }
        for name in correlated {
            if let Some(desk) = self.desks.get_mut(&name) {
                desk.correlated = Some(scene.now);
            }
        }
    }

    /// The verdict of this moment on those who were looked at.
    fn judge(
        &mut self,
        scene: &Scene<'_>,
        fleet: &Fleet<'_>,
        looked: &[NodeName],
    ) -> BTreeMap<NodeName, (View, Verdict)> {
        let mut judged = BTreeMap::new();
        for name in looked.iter().filter(|n| gather::is_judged(scene, n)) {
            let Some(desk) = self.desks.get_mut(name) else { continue };
            if let Some(view) = views::of(scene, fleet, desk, name) {
                let verdict = verdict(&view, &scene.rules(name));
                judged.insert(name.clone(), (view, verdict));
            }
        }
        judged
    }

    /// What the log is to judge, where it would come to something.
    fn propose(&mut self, scene: &Scene<'_>, judged: &BTreeMap<NodeName, (View, Verdict)>) -> Vec<Command> {
        let mut commands = Vec::new();
        let mut waiting: Vec<(bool, Mono, &View)> = Vec::new();
        for (name, (view, verdict)) in judged {
            let Some(desk) = self.desks.get_mut(name) else { continue };
            let decision = decide(scene.state(), view);
            match decision {
                Decision::Stale | Decision::Stay => desk.rests(),
                // A hold that only waits for something (a probe, a reading, a renewal) is not over.
                Decision::Alive if view.silence() >= scene.rules(name).silent_bmc_on => desk.rests(),
                Decision::Wait(_) => {
                    let on = *verdict != Verdict::Dead(EvidenceClass::FoundOff);
                    waiting.push((on, desk.failure_date, view));
                }
                Decision::Alive | Decision::WouldCondemn(_) | Decision::Hold(_) | Decision::Condemn(_) => {
                    if desk.proposes(scene.now, &decision) {
                        commands.push(Command::Judge(Box::new(view.clone())));
                    }
                }
            }
        }
        // Machines found off first, then the oldest failure.
        waiting.sort_unstable_by_key(|(on, failed, view)| (*on, *failed, view.node.clone()));
        if let Some((_, _, view)) = waiting.first()
            && scene.now.since(self.waited) >= WAIT
        {
            self.waited = scene.now;
            commands.push(Command::Judge(Box::new((*view).clone())));
        }
        commands.extend(self.tell_of_storm(scene, judged));
        commands
    }

    /// The log learns of a storm by a view, whatever is decided on it.
    fn tell_of_storm(
        &mut self,
        scene: &Scene<'_>,
        judged: &BTreeMap<NodeName, (View, Verdict)>,
    ) -> Option<Command> {
        let (_, (view, _)) = judged.first_key_value()?;
        let limits = brake::limits(scene.state());
        let stormy = brake::is_storm(&view.fleet, &limits, scene.state().members());
        if !stormy || self.storm_told.is_some_and(|at| scene.now.since(at) < STORM_TOLD_EVERY) {
            return None;
        }
        self.storm_told = Some(scene.now);
        Some(Command::Judge(Box::new(view.clone())))
    }
}
