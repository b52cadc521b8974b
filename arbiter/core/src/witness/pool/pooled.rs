//! What the pool answers: signs of life, accusations and probes over all letters, as of one moment.

use std::collections::BTreeMap;

use coroner_shared::beacon::{ProbeOutcome, SelfDoubt};
use coroner_shared::health::HealthSummary;
use coroner_shared::id::{BootId, NodeName, NodeUid, ReplicaId};
use coroner_shared::keys::PublicKey;
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::Span;

use super::super::reports::{STANDS_FOR, is_life};
use super::super::summary::{EdgeSummary, NodeSummary, SilenceSummary, Source};
use super::{EdgeNow, HeldProof, Letter, Pooled, ProbeNow, REACHED_WITHIN};
use crate::policy::select::rules_for;
use crate::view::Sign;

impl<'a> Pooled<'a> {
    /// The latest sign of life that anybody holds, counted or not, less pauses: what silence is counted from.
    pub fn last_sign(&self, node: &'a NodeName) -> Option<Sign> {
        let claimed = |s: &SilenceSummary, letter: &Letter| self.older(s.silent, letter);
        self.sign(node, self.last_proof(node).map(|held| (held, held.ago)), claimed)
    }

    /// The same by the clock.
    pub(super) fn last_sign_by_clock(&self, node: &'a NodeName) -> Option<Sign> {
        let claimed = |s: &SilenceSummary, letter: &Letter| s.clock_silent + self.clock_age(letter);
        self.sign(node, self.newest_of_any(node).map(|held| (held, held.clock_ago)), claimed)
    }

    fn sign(
        &self,
        node: &'a NodeName,
        proof: Option<(HeldProof<'a>, Span)>,
        claimed: impl Fn(&SilenceSummary, &Letter) -> Span,
    ) -> Option<Sign> {
        let proof = proof.map(|(held, age)| Sign {
            age,
            held_by: holder(held.replica, held.source),
            beacon: held.source.beacon(),
        });
        let claimed = &claimed;
        let claims = self.state.observers.of(node).iter().flat_map(|observer| {
            self.edges(observer, node).filter_map(move |(edge, letter)| {
                let silence = edge.silence?;
                let last = silence.last.filter(|(boot, _)| !self.is_left(node, boot))?;
                Some((claimed(&silence, letter), observer, last))
            })
        });
        let claim = claims.min_by_key(|(age, _, _)| *age).map(|(age, observer, last)| Sign {
            age,
            held_by: format!("observer {observer}"),
            beacon: Some(last),
        });
        proof.into_iter().chain(claim).min_by_key(|sign| sign.age)
    }

    /// The newest proof of life by the clock that names a boot.
    pub fn newest_proof(&self, node: &'a NodeName) -> Option<HeldProof<'a>> {
        self.proofs(node).filter(|held| held.source.boot().is_some()).min_by_key(|held| held.clock_ago)
    }

    /// The newest proof of life of any kind by the clock: what shows that somebody lives.
    pub fn newest_of_any(&self, node: &'a NodeName) -> Option<HeldProof<'a>> {
        self.proofs(node).min_by_key(|held| held.clock_ago)
    }

    /// How long ago at most, by the clock, the machine itself spoke last: traffic of a replica names no machine.
    pub fn spoke_ago(&self, node: &'a NodeName) -> Option<Span> {
        let suspect = rules_for(self.state, node).beacons.suspect;
        let named = self.proofs(node).filter(|held| *held.source != Source::ReplicaTraffic);
        named.map(|held| held.at_most(suspect)).min()
    }

    /// The newest proof of life of any kind, less pauses: what silence is counted from.
    pub fn last_proof(&self, node: &'a NodeName) -> Option<HeldProof<'a>> {
        self.proofs(node).min_by_key(|held| held.ago)
    }

    /// Whether any replica holds a proof of life at most this old, less pauses. That somebody lives is asked of
    /// [`Self::lives_within`].
    pub fn heard_within(&self, node: &'a NodeName, within: Span) -> bool {
        self.proofs(node).any(|held| held.ago <= within)
    }

    /// Whether any replica holds a proof of life at most this old by the clock.
    pub fn lives_within(&self, node: &'a NodeName, within: Span) -> bool {
        self.proofs(node).any(|held| held.clock_ago <= within)
    }

    /// How long ago anybody but this observer had a proof of life of the subject.
    pub(in crate::witness) fn heard_by_others(&self, subject: &'a NodeName, but: &NodeName) -> Option<Span> {
        let by_others = |source: &Source| match source {
            Source::Brought { by, .. } => by != but,
            Source::Beacon { .. } | Source::Registration { .. } | Source::ReplicaTraffic | Source::Calm => {
                true
            }
        };
        self.proofs(subject).filter(|held| by_others(held.source)).map(|held| held.ago).min()
    }

    /// Members that a replica lists, for whatever reason; all others are well.
    pub fn listed(&self) -> impl Iterator<Item = &'a NodeName> {
        let names: std::collections::BTreeSet<&NodeName> =
            self.pool.letters.values().flat_map(|l| l.nodes.keys()).collect();
        names.into_iter()
    }

    /// Replicas whose letters still come.
    pub fn reached(&self) -> impl Iterator<Item = ReplicaId> {
        let me = *self;
        let fresh = move |(id, l): (&ReplicaId, &Letter)| {
            (me.pool.me == Some(*id) || me.pool.age(me.now, l.received) <= REACHED_WITHIN).then_some(*id)
        };
        self.pool.letters.iter().filter_map(fresh)
    }

    /// How long the replica that has listened longest has done so: silence that nobody could have heard is none.
    pub fn listening(&self) -> Span {
        let fresh = |l: &&Letter| self.age(l) <= REACHED_WITHIN;
        let listening = |l: &Letter| self.older(l.listening, l);
        self.pool.letters.values().filter(fresh).map(listening).max().unwrap_or(Span::ZERO)
    }

    /// How long ago a replica may still have heard somebody of whose hearing nothing is left; `None` if there is none. What
    /// a replica heard before it last started is lost, unless its letters of then are here, and so is what one heard that
    /// has not written to this leader: until its traffic ended, if that ended before this leader began.
    pub fn untold(&self) -> Option<Span> {
        let began = self.pool.since.map_or(Span::ZERO, |since| self.pool.age(self.now, since));
        let of = |(id, replica): (&ReplicaId, &crate::state::Replica)| match self.pool.letters.get(id) {
            Some(_) if self.pool.earlier.contains_key(id) => None,
            Some(letter) => Some(self.older(letter.listening, letter)),
            None => Some(self.traffic(&replica.host).map_or(began, |ago| ago.max(began))),
        };
        self.state.replicas.iter().filter_map(of).min()
    }

    /// How long ago the replica on that host last spoke to a replica that lists the host.
    fn traffic(&self, host: &NodeName) -> Option<Span> {
        let traffic = |(n, l): (&'a NodeSummary, &'a Letter)| {
            let ages = n.proofs.iter().filter(|p| matches!(p.source, Source::ReplicaTraffic));
            ages.map(|p| self.older(p.ago, l)).min()
        };
        self.summaries(host).filter_map(traffic).min()
    }

    /// How many Alive members this replica has not heard within `within`, those included that it does not know yet;
    /// `None` if it is not reached.
    pub fn unheard_by(&self, replica: ReplicaId, within: Span) -> Option<usize> {
        let letter = self.pool.letters.get(&replica).filter(|l| self.age(l) <= REACHED_WITHIN)?;
        let alive = |name: &NodeName| {
            self.state.nodes.get(name).is_some_and(|n| matches!(n.phase, crate::phase::Phase::Alive))
        };
        let own = |n: &NodeSummary| {
            n.proofs.iter().any(|p| is_own(&p.source) && self.older(p.ago, letter) <= within)
        };
        let unheard = self.state.observers.seats().filter(|(name, _)| alive(name)).filter(|(name, seat)| {
            match letter.nodes.get(*name) {
                Some(listed) => !self.uid_fits(listed) || !own(listed),
                // Unlisted by a replica that knows it: heard there within S. By one that does not: nothing.
                None => seat.since > letter.membership,
            }
        });
        Some(unheard.count())
    }

    /// What an observer says of a subject.
    pub fn edge(&self, observer: &NodeName, subject: &NodeName) -> EdgeNow {
        let newest = self.newest_edge(observer, subject);
        let mut now = EdgeNow { silent: newest.and_then(|(edge, _)| edge.silence), ..EdgeNow::default() };
        if let (Some(silence), Some((_, letter))) = (&mut now.silent, newest) {
            silence.silent = self.older(silence.silent, letter);
            silence.told_ago = self.older(silence.told_ago, letter);
            silence.clock_silent += self.clock_age(letter);
            silence.clock_told_ago += self.clock_age(letter);
        }
        for (edge, letter) in self.edges(observer, subject) {
            let older = |ago: Span| self.older(ago, letter);
            now.hears_ago = least(now.hears_ago, edge.hears_ago.map(older));
            now.worked_ago = least(now.worked_ago, edge.worked_ago.map(older));
            now.heard_once |= edge.heard_once;
        }
        let over =
            |s: &SilenceSummary| s.told_ago > STANDS_FOR || now.hears_ago.is_some_and(|ago| ago < s.told_ago);
        if now.silent.as_ref().is_some_and(over) {
            now.silent = None;
        }
        now
    }

    /// An observer's own probes of a subject, ages as of now.
    pub fn edge_probes(&self, observer: &NodeName, subject: &NodeName) -> Vec<ProbeOutcome> {
        let mut probes = Vec::new();
        for (edge, letter) in self.edges(observer, subject) {
            merge_outcomes(&mut probes, edge.probes.iter().map(|o| aged(o, |ago| self.older(ago, letter))));
        }
        probes
    }

    /// Reasons of an observer's own not to be counted, and the boot that speaks.
    pub fn reporter(&self, observer: &NodeName) -> Option<(BootId, &'a [SelfDoubt])> {
        let of = |l: &'a Letter| l.reporters.get(observer).map(|r| (self.older(r.told_ago, l), r));
        let newest = self.pool.all().filter_map(|(_, l)| of(l)).min_by_key(|(ago, _)| *ago)?;
        Some((newest.1.boot, &newest.1.doubts))
    }

    /// What probers found of a subject.
    pub fn probes(&self, subject: &NodeName) -> BTreeMap<&'a NodeName, ProbeNow> {
        let mut found: BTreeMap<&NodeName, ProbeNow> = BTreeMap::new();
        for (node, letter) in self.summaries(subject) {
            for probe in &node.probes {
                let entry = found
                    .entry(&probe.prober)
                    .or_insert_with(|| ProbeNow { number: 0, outcomes: Vec::new() });
                entry.number = entry.number.max(probe.number);
                let older = |ago: Span| self.older(ago, letter);
                merge_outcomes(&mut entry.outcomes, probe.outcomes.iter().map(|o| aged(o, older)));
            }
        }
        found
    }

    /// What the newest beacons say of a node's health: the worst that any replica lists.
    pub fn health(&self, node: &NodeName) -> HealthSummary {
        self.current(node).fold(HealthSummary::GOOD, |all, n| all.with(n.health))
    }

    /// How long ago this key last spoke for the node.
    pub fn key_spoke(&self, node: &NodeName, key: &PublicKey) -> Option<Span> {
        let spoke = |(n, l): (&NodeSummary, &Letter)| {
            n.keys.iter().find(|(k, _)| k == key).map(|(_, ago)| self.older(*ago, l))
        };
        self.summaries(node).filter_map(spoke).min()
    }

    /// Whether any replica sees two machines use this identity.
    pub fn is_duplicate(&self, node: &NodeName) -> bool {
        self.current(node).any(|n| n.duplicate)
    }

    /// Every proof of life of a node that any replica holds, as of now.
    fn proofs(&self, node: &'a NodeName) -> impl Iterator<Item = HeldProof<'a>> {
        let me = *self;
        let since = self.state.observers.seat(node).map(|s| s.since);
        self.pool.all().flat_map(move |(replica, letter)| {
            let (age, clock_age) = (me.age(letter), me.clock_age(letter));
            let listed = letter.nodes.get(node);
            let told = listed.filter(|n| me.uid_fits(n)).into_iter().flat_map(|n| &n.proofs);
            let told = told.filter(move |p| p.source.boot().is_none_or(|b| !me.is_left(node, &b)));
            let told = told.map(move |p| HeldProof {
                replica: *replica,
                source: &p.source,
                ago: p.ago + age,
                clock_ago: p.clock_ago + clock_age,
            });
            // Not listed by a replica that knows it: heard there within S. Unlisted by one that does not: nothing.
            let calm = listed.is_none() && since.is_some_and(|s| s <= letter.membership);
            // The letter itself is traffic of that replica, whose host sent it.
            let own_host = me.state.replicas.get(replica).is_some_and(|r| r.host == *node);
            let by_letter =
                move |source| HeldProof { replica: *replica, source, ago: age, clock_ago: clock_age };
            told.chain(calm.then_some(by_letter(&Source::Calm)))
                .chain(own_host.then_some(by_letter(&Source::ReplicaTraffic)))
        })
    }

    fn summaries(&self, node: &NodeName) -> impl Iterator<Item = (&'a NodeSummary, &'a Letter)> {
        self.of(node, self.pool.all().map(|(_, letter)| letter))
    }

    /// What replicas say now: of a life that is over nothing is so any more.
    fn current(&self, node: &NodeName) -> impl Iterator<Item = &'a NodeSummary> {
        self.of(node, self.pool.letters.values()).map(|(n, _)| n)
    }

    fn of(
        &self,
        node: &NodeName,
        letters: impl Iterator<Item = &'a Letter>,
    ) -> impl Iterator<Item = (&'a NodeSummary, &'a Letter)> {
        let me = *self;
        letters.filter_map(move |l| Some((l.nodes.get(node)?, l))).filter(move |(n, _)| me.uid_fits(n))
    }

    fn edges(
        &self,
        observer: &NodeName,
        subject: &NodeName,
    ) -> impl Iterator<Item = (&'a EdgeSummary, &'a Letter)> {
        self.summaries(subject).filter_map(move |(node, letter)| {
            let of = |e: &&EdgeSummary| e.observer == *observer;
            Some((node.edges.iter().find(of)?, letter))
        })
    }

    /// The newest statement of the boot that the log knows: one that is over accuses nobody any more, and counts its
    /// statements by itself. Of equal ones the one that is told last, since its ages were true last.
    fn newest_edge(&self, observer: &NodeName, subject: &NodeName) -> Option<(&'a EdgeSummary, &'a Letter)> {
        let boot = self.state.nodes.get(observer)?.member.as_ref()?.boot;
        let of_now = |l: &Letter| l.reporters.get(observer).is_some_and(|r| r.boot == boot);
        let told = |e: &EdgeSummary, l: &Letter| {
            std::cmp::Reverse(e.silence.map_or(Span::MAX, |s| s.clock_told_ago + self.clock_age(l)))
        };
        let statements = self.edges(observer, subject).filter(|(_, l)| of_now(l));
        statements.max_by_key(|(e, l)| (e.number, told(e, l)))
    }

    fn uid_fits(&self, listed: &NodeSummary) -> bool {
        self.uid(&listed.node) == Some(&listed.uid)
    }

    fn uid(&self, node: &NodeName) -> Option<&NodeUid> {
        self.state.observers.seat(node).map(|s| &s.peer.node)
    }

    fn is_left(&self, node: &NodeName, boot: &BootId) -> bool {
        let member = self.state.nodes.get(node).and_then(|n| n.member.as_ref());
        member.is_some_and(|m| m.left_boots.contains(boot)) && !planted(Mutant::StaleBoot)
    }

    fn age(&self, letter: &Letter) -> Span {
        self.pool.age(self.now, letter.received)
    }

    fn clock_age(&self, letter: &Letter) -> Span {
        self.now.since(letter.received)
    }

    fn older(&self, ago: Span, letter: &Letter) -> Span {
        ago + self.age(letter)
    }
}

// === helpers ===

fn holder(replica: ReplicaId, source: &Source) -> String {
    match source {
        Source::Beacon { .. } | Source::Calm => format!("replica {replica}"),
        Source::Brought { by, .. } => format!("{by}, told to replica {replica}"),
        Source::Registration { .. } => format!("registration at replica {replica}"),
        Source::ReplicaTraffic => format!("the replica on it, told by replica {replica}"),
    }
}

/// First-hand at the replica that lists it.
fn is_own(source: &Source) -> bool {
    match source {
        Source::Beacon { .. } | Source::Registration { .. } | Source::ReplicaTraffic | Source::Calm => true,
        Source::Brought { .. } => false,
    }
}

fn least(a: Option<Span>, b: Option<Span>) -> Option<Span> {
    a.into_iter().chain(b).min()
}

fn aged(outcome: &ProbeOutcome, older: impl Fn(Span) -> Span) -> ProbeOutcome {
    ProbeOutcome {
        asked_ago: older(outcome.asked_ago),
        worked_ago: outcome.worked_ago.map(older),
        ..*outcome
    }
}

/// Of each path the newest probe, and the newest that was answered.
fn merge_outcomes(into: &mut Vec<ProbeOutcome>, more: impl Iterator<Item = ProbeOutcome>) {
    into.extend(more);
    let all = std::mem::take(into);
    for (i, outcome) in all.iter().enumerate() {
        let better = |(j, o): (usize, &ProbeOutcome), same_kind: bool| {
            o.path == outcome.path
                && (!same_kind || is_life(o.answer))
                && (o.asked_ago, j) < (outcome.asked_ago, i)
        };
        let newest = !all.iter().enumerate().any(|o| better(o, false));
        let newest_answer = is_life(outcome.answer) && !all.iter().enumerate().any(|o| better(o, true));
        if newest || newest_answer {
            into.push(*outcome);
        }
    }
}
