//! What the desk remembers of one suspect: whom it asked, whether rule 1 was met, what was proposed.

use std::collections::BTreeMap;

use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use crate::apply::Decision;
use crate::view::ProbeView;
use crate::witness::pool::ProbeNow;

/// Between two proposals of the same, while nothing comes of it; doubled up to [`AGAIN_MAX`].
const AGAIN: Span = Span::from_secs(1);
const AGAIN_MAX: Span = Span::from_secs(16);

/// One suspect, or one node whose incident is open.
#[derive(Clone, Debug, Default)]
pub(super) struct Desk {
    /// When it was last looked at in full.
    pub(super) looked: Option<Mono>,
    /// The failure date, as of then.
    pub(super) failure_date: Mono,
    /// Whether enough observers were silent, as of then.
    pub(super) met: bool,
    /// Whether every observer that counts, and two at least, was silent about it, as of then.
    pub(super) lost: bool,
    /// Since when it has been part of a correlated set.
    pub(super) correlated: Option<Mono>,
    /// Whom it was asked of.
    pub(super) asks: BTreeMap<NodeName, Asked>,
    /// When probers were last asked.
    pub(super) round: Option<Mono>,
    proposal: Option<Proposal>,
}

/// The questions to one prober.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The last one.
    number: u64,
    at: Mono,
    /// The newest that was answered.
    answered: Option<(u64, Mono)>,
    /// The oldest that was not, since then.
    open: Option<Mono>,
    /// The question before the last, whose answer may still be on its way.
    before: Option<(u64, Mono)>,
}

#[derive(Clone, Debug)]
struct Proposal {
    what: Decision,
    at: Mono,
    again: Span,
}

// === impl Desk ===

impl Desk {
    /// Whether to propose this now; notes that it is.
    pub(super) fn proposes(&mut self, now: Mono, what: &Decision) -> bool {
        let again = match &self.proposal {
            Some(p) if p.what == *what && now.since(p.at) < p.again => return false,
            Some(p) if p.what == *what => p.again.times(2).min(AGAIN_MAX),
            Some(_) | None => AGAIN,
        };
        self.proposal = Some(Proposal { what: what.clone(), at: now, again });
        true
    }

    /// Nothing is to be proposed: the next proposal is a first one.
    pub(super) fn rests(&mut self) {
        self.proposal = None;
    }

    /// Notes a question.
    pub(super) fn asks(&mut self, now: Mono, prober: &NodeName, number: u64) {
        let fresh = Asked { number, at: now, answered: None, open: Some(now), before: None };
        self.asks
            .entry(prober.clone())
            .and_modify(|a| {
                a.before = Some((a.number, a.at));
                a.number = number;
                a.at = now;
                a.open = a.open.or(Some(now));
            })
            .or_insert(fresh);
    }

    /// The probes as a view shows them. `found` may hold answers to a leader before this one: they count as answers,
    /// by their own ages.
    pub(super) fn probe_views(
        &mut self,
        found: &BTreeMap<&NodeName, ProbeNow>,
        age: impl Fn(Mono) -> Span,
    ) -> Vec<ProbeView> {
        for (prober, asked) in &mut self.asks {
            if let Some(answer) = found.get(prober) {
                asked.take(answer.number);
            }
        }
        let mut views: Vec<ProbeView> = self
            .asks
            .iter()
            .map(|(prober, asked)| ProbeView {
                prober: prober.clone(),
                asked_ago: age(asked.answered.map(|(_, at)| at).or(asked.open).unwrap_or(asked.at)),
                outcomes: found.get(prober).map(|p| p.outcomes.clone()).unwrap_or_default(),
                answered: asked.answered.is_some(),
            })
            .collect();
        for (prober, probe) in found {
            if !self.asks.contains_key(*prober) {
                let asked_ago = probe.outcomes.iter().map(|o| o.asked_ago).max().unwrap_or(Span::MAX);
                let outcomes = probe.outcomes.clone();
                views.push(ProbeView { prober: (*prober).clone(), asked_ago, outcomes, answered: true });
            }
        }
        views
    }
}

// === impl Asked ===

impl Asked {
    /// Takes the number of the newest answer.
    fn take(&mut self, number: u64) {
        let at = match self.before {
            _ if number >= self.number => Some(self.at),
            Some((before, at)) if number >= before => Some(at),
            Some(_) | None => None,
        };
        if let Some(at) = at
            && self.answered.is_none_or(|(n, _)| number > n)
        {
            self.answered = Some((number, at));
            self.open = (number < self.number).then_some(self.at);
        }
    }
}
