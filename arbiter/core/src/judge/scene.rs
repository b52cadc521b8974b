//! One moment as the desk sees it: the state, the pool, and what follows from both for every suspect.
//!
//! ```text
//!   Sight + now --> Scene: who may accuse, who is accused, who hears, who is heard
//! ```

use coroner_shared::mutant::{Mutant, planted};

use std::collections::{BTreeMap, BTreeSet};

use coroner_shared::beacon::ProbeOutcome;
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use super::Sight;
use crate::phase::Phase;
use crate::policy::Rules;
use crate::policy::select::rules_for;
use crate::state::{Node, State};
use crate::view::{ObserverView, Said, Standing};
use crate::witness::pool::{EdgeNow, Pooled};
use crate::witness::reports::is_life;
use crate::witness::trust::PATH_WORKED_WITHIN;

/// "Heard" (the glossary): a proof of life this young.
pub(super) const HEARD: Span = Span::from_secs(3);
/// So many reports of observers that may accuse make a suspect.
const REPORTS_MIN: usize = 2;
/// With fewer live observers than this, silence at all replicas is enough to be suspect.
const LIVE_OBSERVERS_MIN: usize = 2;

/// One moment.
pub(super) struct Scene<'a> {
    pub(super) now: Mono,
    pub(super) sight: &'a Sight<'a>,
    pub(super) pooled: Pooled<'a>,
    /// Members that some replica lists.
    pub(super) listed: Vec<&'a NodeName>,
    /// Whether each observer of those may accuse.
    trust: BTreeMap<&'a NodeName, Result<(), Standing>>,
    /// Those with enough accusations, or none to accuse them.
    pub(super) suspects: BTreeSet<&'a NodeName>,
}

// === impl Scene ===

impl<'a> Scene<'a> {
    pub(super) fn new(now: Mono, sight: &'a Sight<'a>) -> Self {
        let pooled = sight.pool.at(now, sight.state);
        let listed: Vec<&NodeName> =
            pooled.listed().filter(|n| sight.state.observers.seat(n).is_some()).collect();
        let observers: BTreeSet<&NodeName> =
            listed.iter().flat_map(|n| sight.state.observers.of(n)).collect();
        let trust = observers.into_iter().map(|o| (o, pooled.trusted(o))).collect();
        let mut scene = Self { now, sight, pooled, listed, trust, suspects: BTreeSet::new() };
        scene.suspects = scene.listed.iter().copied().filter(|n| scene.is_suspect(n)).collect();
        scene
    }

    pub(super) const fn state(&self) -> &'a State {
        self.sight.state
    }

    pub(super) fn node(&self, name: &NodeName) -> Option<&'a Node> {
        self.state().nodes.get(name)
    }

    pub(super) fn rules(&self, name: &NodeName) -> Rules {
        rules_for(self.state(), name)
    }

    /// How old a stamp of this process is, less its pauses.
    pub(super) fn age(&self, stamp: Mono) -> Span {
        self.sight.pool.age(self.now, stamp)
    }

    /// Alive, and not under a goodbye: what the counts over the fleet call Alive.
    pub(super) fn counts_as_alive(&self, name: &NodeName) -> bool {
        self.node(name)
            .is_some_and(|n| n.member.is_some() && matches!(n.phase, Phase::Alive) && n.goodbye.is_none())
    }

    /// Whether an observer of a listed node may accuse.
    pub(super) fn may_accuse(&self, observer: &NodeName) -> bool {
        matches!(self.trust.get(observer), Some(Ok(())))
    }

    /// Accusations of observers that may accuse.
    pub(super) fn accusers(&self, subject: &NodeName) -> usize {
        let of = self.state().observers.of(subject);
        of.iter().filter(|o| self.may_accuse(o) && self.pooled.edge(o, subject).silent.is_some()).count()
    }

    /// At two reports of trusted observers; or unheard by all, where fewer than two observers live, or none of them claims
    /// to hear it. Observers that live may still have no accusation that counts (they doubt themselves, are distrusted,
    /// have never heard it): without the second a machine that is dead would be neither judged nor held by name, and its
    /// BMC not even read.
    fn is_suspect(&self, name: &NodeName) -> bool {
        if self.accusers(name) >= REPORTS_MIN {
            return true;
        }
        self.pooled.listening() >= HEARD
            && !self.pooled.heard_within(name, HEARD)
            && (self.live_observers(name) < LIVE_OBSERVERS_MIN || !self.is_claimed(name))
    }

    /// Whether an observer claims that it hears it, or did within 3 s.
    pub(super) fn is_claimed(&self, name: &NodeName) -> bool {
        self.claimed_ago(name).is_some_and(|ago| ago <= HEARD)
    }

    /// How long ago an observer last claimed so.
    pub(super) fn claimed_ago(&self, name: &NodeName) -> Option<Span> {
        self.state().observers.of(name).iter().filter_map(|o| self.pooled.edge(o, name).hears_ago).min()
    }

    /// Observers that claim so.
    pub(super) fn claimants(&self, name: &NodeName) -> impl Iterator<Item = &'a NodeName> {
        let claims = |o: &&NodeName| self.pooled.edge(o, name).hears_ago.is_some_and(|ago| ago <= HEARD);
        self.state().observers.of(name).iter().filter(claims)
    }

    fn live_observers(&self, name: &NodeName) -> usize {
        let of = self.state().observers.of(name);
        of.iter().filter(|o| self.counts_as_alive(o) && self.pooled.heard_within(o, HEARD)).count()
    }

    /// Since the failure date; since the group started, where there never was a sign of life.
    pub(super) fn silence(&self, name: &NodeName) -> Span {
        self.pooled.last_sign(name).map_or(self.sight.group_age, |sign| sign.age)
    }

    /// Every assigned observer of a subject, as a view shows it.
    pub(super) fn observers(&self, subject: &NodeName, silence: Span) -> Vec<ObserverView> {
        let of = self.state().observers.of(subject);
        of.iter()
            .filter_map(|observer| {
                let seat = self.state().observers.seat(observer)?;
                let standing = match self.trust.get(observer) {
                    Some(Ok(())) => {
                        let suspect = self.suspects.contains(observer);
                        self.pooled.standing(observer, subject, silence, suspect)
                    }
                    Some(Err(why)) => why.clone(),
                    None => self.pooled.trusted(observer).err().unwrap_or(Standing::Unheard),
                };
                let mut probes = self.pooled.edge_probes(observer, subject);
                keep_telling_probes(&mut probes, silence);
                Some(ObserverView {
                    node: observer.clone(),
                    domain: seat.domain.clone(),
                    standing,
                    said: said(&self.pooled.edge(observer, subject)),
                    probes,
                })
            })
            .collect()
    }
}

// === helpers ===

fn said(edge: &EdgeNow) -> Said {
    match (&edge.silent, edge.hears_ago) {
        (Some(silence), _) => Said::Silent { silent: silence.silent },
        (None, Some(ago)) => Said::Hears { ago },
        (None, None) => Said::Nothing,
    }
}

/// An answer always tells; silence only on a path that answered within the 10 minutes before the failure date.
fn keep_telling_probes(probes: &mut Vec<ProbeOutcome>, silence: Span) {
    let works = |ago: Span| ago <= silence + PATH_WORKED_WITHIN;
    let tells = |o: &ProbeOutcome| o.worked_ago.is_some_and(works) || planted(Mutant::PathNeverWorked);
    probes.retain(|o| is_life(o.answer) || tells(o));
}
