//! Rule 3: what answered since the failure date. Any answer of any kind shows a living kernel.
//!
//! ```text
//!   probes asked for, observers' own probes --> Answers: how many stand, are questions still out, did probers answer
//! ```
//!
//! An answer counts only if it was asked for after the failure date: an older one says nothing that the beacons do not.
//! It stands for 30 s, and then until those who can use the same path have asked again and got nothing: a host that
//! stopped answering half an hour ago is not alive because of it.

use coroner_shared::beacon::{Answer, Path, ProbeOutcome};
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::Span;

use super::PROBE_WAIT;
use crate::view::View;
use crate::witness::reports::is_life;

/// How long an answer stands by itself.
const STANDS_FOR: Span = Span::from_secs(30);
/// So many must have asked in vain to take it back, or all who can use its path.
const TAKEN_BACK_BY: usize = 3;

/// What answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Answers {
    standing: usize,
    out: bool,
    probers_answered: bool,
}

/// One outcome and whose it is.
type Outcome<'a> = (&'a str, &'a ProbeOutcome);

impl Answers {
    pub(super) fn of(view: &View) -> Self {
        let age = view.silence();
        let asked: Vec<_> = view.probes.iter().filter(|p| p.asked_ago < age).collect();
        let standing = standing_answers(view).len();
        let waiting = asked.iter().any(|p| !p.answered && p.asked_ago < PROBE_WAIT);
        Self {
            standing,
            out: asked.is_empty() || waiting,
            probers_answered: asked.iter().any(|p| p.answered),
        }
    }

    /// Answers that stand, one per asker and path.
    pub(super) const fn standing(&self) -> usize {
        self.standing
    }

    /// Nobody was asked since the failure date, or somebody still has time to answer.
    pub(super) const fn are_out(&self) -> bool {
        self.out
    }

    /// Some prober that was asked after the failure date has answered, whatever it found.
    pub(super) const fn probers_answered(&self) -> bool {
        self.probers_answered
    }
}

/// The answers that stand, with whose they are.
pub(crate) fn standing_answers(view: &View) -> Vec<(String, Path, Answer)> {
    let age = view.silence();
    let all = outcomes(view, age);
    let lives = |o: &&Outcome<'_>| is_life(o.1.answer);
    let mut standing: Vec<(String, Path, Answer)> = all
        .iter()
        .filter(lives)
        .filter(|o| o.1.asked_ago <= STANDS_FOR || !is_taken_back(&all, o.1))
        .map(|(who, o)| ((*who).to_owned(), o.path, o.answer))
        .collect();
    standing.sort();
    standing.dedup_by(|a, b| a.0 == b.0 && a.1 == b.1);
    standing
}

/// All outcomes of what was asked after the failure date.
fn outcomes(view: &View, age: Span) -> Vec<Outcome<'_>> {
    let probers = view.probes.iter().filter(|_| !planted(Mutant::ProberIgnored));
    let by_probers = probers.flat_map(|p| p.outcomes.iter().map(|o| (p.prober.as_str(), o)));
    let by_observers = view.observers.iter().flat_map(|v| v.probes.iter().map(|o| (v.node.as_str(), o)));
    by_probers.chain(by_observers).filter(|(_, o)| o.asked_ago < age).collect()
}

/// Whether enough of those who can use this path have asked since and got nothing.
fn is_taken_back(all: &[Outcome<'_>], answer: &ProbeOutcome) -> bool {
    let on_path = || all.iter().filter(|(_, o)| o.path == answer.path);
    let distinct = |names: Vec<&str>| names.into_iter().collect::<std::collections::BTreeSet<_>>().len();
    let able = |o: &ProbeOutcome| is_life(o.answer) || o.worked_ago.is_some();
    let can = distinct(on_path().filter(|(_, o)| able(o)).map(|(who, _)| *who).collect());
    let in_vain =
        on_path().filter(|(_, o)| o.answer == Answer::Nothing && able(o) && o.asked_ago < answer.asked_ago);
    let vain = distinct(in_vain.map(|(who, _)| *who).collect());
    vain >= can.clamp(1, TAKEN_BACK_BY)
}
