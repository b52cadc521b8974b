//! Whether an observer's silence counts.
//!
//! ```text
//!   Pooled, graph, phases --> standing(observer, subject): Eligible, or the first reason why not
//! ```
//!
//! A deaf observer finds everybody silent; compared with others it shows (Hashicorp's Lifeguard: a sick member must not
//! accuse; Orleans: votes of degraded silos do not count). Hearing few subjects that nobody hears is no fault of the
//! observer. **Whoever may not accuse may still veto**: nothing here is asked of a proof of life.

use coroner_shared::id::NodeName;
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::Span;

use super::pool::Pooled;
use crate::phase::Phase;
use crate::view::Standing;

/// An observer must itself have been heard by some replica within this time.
const HEARD_WITHIN: Span = Span::from_secs(3);
/// The same for one that is suspect itself: its accusations may be its last.
const HEARD_WITHIN_SUSPECT: Span = Span::from_ms(1500);
/// A path counts if it answered within so long before the failure date.
pub(crate) const PATH_WORKED_WITHIN: Span = Span::from_mins(10);
/// So many of its subjects must be heard by others before an observer is thought deaf.
const OUTVOTED_BY: usize = 2;

impl<'a> Pooled<'a> {
    /// Whether `observer` may accuse anybody: Alive, heard, registered, without doubts, not outvoted.
    ///
    /// # Errors
    /// The first reason why not.
    pub fn trusted(&self, observer: &'a NodeName) -> Result<(), Standing> {
        let Some(node) = self.state.nodes.get(observer) else { return Err(Standing::NotAlive) };
        if !planted(Mutant::DeadObservers) {
            if !matches!(node.phase, Phase::Alive) {
                return Err(Standing::NotAlive);
            }
            if !self.lives_within(observer, HEARD_WITHIN) {
                return Err(Standing::Unheard);
            }
        }
        if planted(Mutant::DistrustedAccuses) {
            return Ok(());
        }
        if let Some((boot, doubts)) = self.reporter(observer) {
            if node.member.as_ref().is_none_or(|m| m.boot != boot) {
                return Err(Standing::UnregisteredBoot);
            }
            if let Some(doubt) = doubts.first() {
                return Err(Standing::Doubts(*doubt));
            }
        }
        if self.is_outvoted(observer) {
            return Err(Standing::OutvotedBySubjects);
        }
        Ok(())
    }

    /// Whether the silence of an observer that may accuse counts against `subject`, whose failure date is `failure_age`
    /// ago. `suspect`: the observer is suspect itself.
    pub fn standing(
        &self,
        observer: &'a NodeName,
        subject: &NodeName,
        failure_age: Span,
        suspect: bool,
    ) -> Standing {
        let unheard = suspect && !self.lives_within(observer, HEARD_WITHIN_SUSPECT);
        if unheard && !planted(Mutant::DeadObservers) {
            return Standing::Unheard;
        }
        let edge = self.edge(observer, subject);
        if !edge.heard_once && !planted(Mutant::NeverHeardCounted) {
            return Standing::NeverHeardIt;
        }
        let worked = |ago: Span| ago <= failure_age + PATH_WORKED_WITHIN;
        if !edge.worked_ago.is_some_and(worked) && !planted(Mutant::PathNeverWorked) {
            return Standing::NoWorkingPath;
        }
        Standing::Eligible
    }

    /// At least 2, and at least half of all subjects assigned to it, were heard by somebody else at least S after its
    /// own last beacon of them.
    fn is_outvoted(&self, observer: &'a NodeName) -> bool {
        let Some(seat) = self.state.observers.seat(observer) else { return false };
        let outvoted = seat.subjects.iter().filter(|subject| {
            let Some(silence) = self.edge(observer, subject).silent else { return false };
            let later = |ago: Span| ago + seat.timings.suspect <= silence.silent;
            self.heard_by_others(subject, observer).is_some_and(later)
        });
        let count = outvoted.count();
        count >= OUTVOTED_BY && count * 2 >= seat.subjects.len()
    }
}
