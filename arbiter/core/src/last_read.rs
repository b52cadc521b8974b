//! The last read before the taint is written: is what was proven still true, right now?
//!
//! ```text
//!   FenceProof, its age --+
//!   made again, when -----+--> LastRead::of --> judge --> Good           Command::ReleaseBegun
//!   one fresh reading ----+                               On             Command::LastReadOn, a new attempt
//!   heard, Lease ---------+                               Redo(why)      read as for a proof (`FenceOrder::again`),
//!                                                                        kept (`MadeAgain`), then once more
//!                                                         Failed(why)    Command::LastReadFailed, pages after a minute
//! ```
//!
//! Why at all: between a proof and the taint lies at least one commit, and sometimes an outage of the API server. A
//! machine may have been powered on by a person or by its own restore policy in the meantime.

use std::collections::BTreeMap;

use coroner_shared::bmc::{Power, PowerReading};
use coroner_shared::id::IncidentId;
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::{Mono, Span};

use crate::command::Command;
use crate::fence::Ended;
use crate::identity::is_pinned;
use crate::jobs::{Life, ReleaseJob, Signs};
use crate::phase::{FenceProof, OffReadings, Released};
use crate::policy::Pin;
use crate::proof::{ProofNeeds, check_off_readings};

/// The reading, and everything else looked at, is at most so old when the taint is written.
pub const READ_AGE_MAX: Span = Span::from_secs(1);
/// A proof older than this is made again first.
pub const PROOF_AGE_MAX: Span = Span::from_secs(60);
/// Where the BMC is not steady, the readings of a proof are made again and may be so old at the last read.
pub const REPEATED_AGE_MAX: Span = Span::from_secs(10);

/// A last read waits so long for a BMC.
const ANSWER_WITHIN: Span = Span::from_secs(20);
/// And so long where a person vouched for the machine: its BMC is most likely dead with it, and On within this time
/// still refuses.
const CONFIRMED_WITHIN: Span = Span::from_secs(3);

/// What whoever reads has at hand, dates of its own clock.
#[derive(Clone, Copy, Debug)]
pub struct AtHand<'a> {
    /// Which release.
    pub release: &'a ReleaseJob,
    /// Now.
    pub now: Mono,
    /// Time since the proof was committed.
    pub proven_ago: Span,
    /// Readings made again by this replica, and when the last of them was answered.
    pub again: Option<&'a (OffReadings, Mono)>,
    /// When the one reading was asked for.
    pub asked: Mono,
    /// That reading, or why there is none.
    pub reading: Result<&'a PowerReading, &'a str>,
    /// Whether this replica knows the BMC as steady.
    pub steady: bool,
    /// What it hears of the node.
    pub signs: Signs,
}

/// Readings made again, kept while they may stand for a proof's own: the release begins, and its patch is written, by the
/// same ones. Soft state of one leader; a new one reads again.
#[derive(Clone, Debug, Default)]
pub struct MadeAgain {
    by: BTreeMap<IncidentId, (OffReadings, Mono)>,
}

/// What the last read looks at.
#[derive(Clone, Copy, Debug)]
pub struct LastRead<'a> {
    /// The committed proof.
    pub proof: &'a FenceProof,
    /// Readings made again since ([`crate::fence::Ended::OffAgain`]); they then stand for the proof's own.
    pub again: Option<&'a OffReadings>,
    /// Time since the last of those readings (the proof's, or those made again).
    pub age: Span,
    /// What the readings made again are judged by, and whose reading it is; `None`: no binding or no pin.
    pub needs: Option<ProofNeeds<'a>>,
    /// Whether this replica knows the BMC as steady now.
    pub steady: bool,
    /// One reading made for this, or why there is none.
    pub reading: Result<&'a PowerReading, &'a str>,
    /// Time since that reading was asked for.
    pub reading_age: Span,
    /// Whether a proof of life came since the proof.
    pub heard: bool,
    /// Whether the kubelet's Lease changed since the proof.
    pub lease_moved: bool,
}

/// What the last read says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LastReadVerdict {
    /// The release may begin, within [`READ_AGE_MAX`].
    Good,
    /// It is on.
    On,
    /// The proof is too old to be confirmed by one reading.
    Redo(String),
    /// It cannot be said.
    Failed(String),
}

/// How long a last read waits for the BMC's answer.
pub const fn answer_within(proof: &FenceProof) -> Span {
    match proof {
        FenceProof::BmcOff { .. } => ANSWER_WITHIN,
        FenceProof::PersonConfirmed { .. } => CONFIRMED_WITHIN,
    }
}

/// What the log hears of a last read before a release; `again` goes with it where readings made again stand for the
/// proof's own.
pub fn command(
    verdict: LastReadVerdict,
    life: &Life,
    before: Released,
    again: Option<Box<OffReadings>>,
) -> Command {
    let (node, incident) = (life.node.clone(), life.incident.clone());
    match verdict {
        LastReadVerdict::Good => Command::ReleaseBegun { node, incident, before, again },
        LastReadVerdict::On => Command::LastReadOn { node, incident },
        LastReadVerdict::Redo(why) | LastReadVerdict::Failed(why) => {
            Command::LastReadFailed { node, incident, why }
        }
    }
}

/// What came of readings that were made again.
///
/// # Errors
/// The verdict where they are no proof.
pub fn made_again(ended: Ended) -> Result<OffReadings, LastReadVerdict> {
    match ended {
        Ended::OffAgain { readings } => Ok(*readings),
        Ended::OnAgain => Err(LastReadVerdict::On),
        Ended::Proven => Err(LastReadVerdict::Failed("it ended as a proof".to_owned())),
        Ended::Closed { why } => Err(LastReadVerdict::Failed(why)),
    }
}

/// Judges the last read.
pub fn judge(last: &LastRead<'_>) -> LastReadVerdict {
    use LastReadVerdict::{Failed, On};
    if planted(Mutant::NoLastRead) || planted(Mutant::TaintBeforeProof) {
        return LastReadVerdict::Good;
    }
    if last.heard {
        return Failed("the node was heard since it was proven off".to_owned());
    }
    if last.lease_moved && !planted(Mutant::LeaseIgnored) {
        return Failed("the kubelet's Lease changed since the machine was proven off".to_owned());
    }
    let pin = last.needs.map(|needs| needs.pin);
    let said = match of_this_machine(pin, last.reading) {
        Ok(reading) => reading,
        Err(why) => return Failed(why),
    };
    if said.is_some() && last.reading_age > READ_AGE_MAX {
        return Failed(format!("the reading is {} old", last.reading_age));
    }
    match (last.proof, said.map(|reading| &reading.power)) {
        (_, Some(Power::On)) => On,
        (_, Some(other @ (Power::PoweringOn | Power::PoweringOff | Power::Paused | Power::Other(_)))) => {
            Failed(format!("the power state is {other:?}"))
        }
        (FenceProof::PersonConfirmed { .. }, Some(Power::Off) | None) => LastReadVerdict::Good,
        (FenceProof::BmcOff { .. }, None) => {
            Failed(last.reading.err().unwrap_or("the BMC did not answer").to_owned())
        }
        (FenceProof::BmcOff { readings, .. }, Some(Power::Off)) => match (last.reading, last.needs) {
            (Ok(reading), Some(needs)) => still_proven(last, readings, reading, &needs),
            (Err(_), _) | (_, None) => Failed("there is no pin to judge the reading by".to_owned()),
        },
    }
}

// === impl MadeAgain ===

impl MadeAgain {
    /// Keeps what was read again, and nothing that is of no use any more.
    pub fn keep(&mut self, incident: &IncidentId, readings: OffReadings, at: Mono) {
        self.by.retain(|_, (_, kept)| at.since(*kept) <= PROOF_AGE_MAX);
        self.by.insert(incident.clone(), (readings, at));
    }

    /// What was read again of this incident, if anything.
    pub fn of(&self, incident: &IncidentId) -> Option<&(OffReadings, Mono)> {
        self.by.get(incident)
    }

    /// Of that, what was read after the proof, which was committed so long ago: nothing else may go into the log with a
    /// release.
    pub fn since_proof(
        &self,
        incident: &IncidentId,
        now: Mono,
        proven_ago: Span,
    ) -> Option<&(OffReadings, Mono)> {
        self.of(incident).filter(|(_, at)| now.since(*at) < proven_ago)
    }

    /// Takes notice of a verdict: whatever is not good spoils what was read before it.
    pub fn judged(&mut self, incident: &IncidentId, verdict: &LastReadVerdict) {
        match verdict {
            LastReadVerdict::Good => {}
            LastReadVerdict::On | LastReadVerdict::Redo(_) | LastReadVerdict::Failed(_) => {
                self.by.remove(incident);
            }
        }
    }
}

// === impl LastRead ===

impl<'a> LastRead<'a> {
    /// Puts together what is at hand. Readings made again count only where they are younger than the proof, and signs of
    /// life only where they came after it.
    pub fn of(hand: &AtHand<'a>) -> Self {
        let AtHand { release, now, proven_ago, again, asked, reading, steady, signs } = *hand;
        let since_proof = |at: Mono| now.since(at) < proven_ago;
        let again = again.filter(|(_, at)| since_proof(*at));
        Self {
            proof: &release.proof,
            again: again.map(|(readings, _)| readings),
            age: again.map_or(proven_ago, |(_, at)| now.since(*at)),
            needs: release.pin.as_ref().map(|pin| ProofNeeds {
                pin,
                machine: release.life.incarnation.machine,
                cached: release.cached,
                // Nothing is sent while the readings are made again.
                answer: None,
            }),
            steady,
            reading,
            reading_age: now.since(asked),
            heard: signs.heard.is_some_and(since_proof),
            lease_moved: signs.lease_moved.is_some_and(since_proof),
        }
    }
}

// === helpers ===

/// The reading, if there is one and it is not another machine's. A BMC that answers for another machine has nothing to
/// say of this one, but whoever trusted it should look.
fn of_this_machine<'a>(
    pin: Option<&Pin>,
    reading: Result<&'a PowerReading, &str>,
) -> Result<Option<&'a PowerReading>, String> {
    let Ok(reading) = reading else { return Ok(None) };
    match (pin, &reading.uuid) {
        (Some(pin), Some(given)) if !is_pinned(pin, given) => {
            Err(format!("the BMC {}", crate::words::answers_for(given, pin.machine)))
        }
        (Some(_), Some(_) | None) | (None, _) => Ok(Some(reading)),
    }
}

/// Whether one more Off confirms what was proven.
fn still_proven(
    last: &LastRead<'_>,
    proven: &OffReadings,
    reading: &PowerReading,
    needs: &ProofNeeds<'_>,
) -> LastReadVerdict {
    use LastReadVerdict::{Good, Redo};
    if last.proof.incarnation().machine != needs.pin.machine {
        return LastReadVerdict::Failed(format!(
            "the proof speaks of {}, pinned is {}",
            last.proof.incarnation().machine,
            needs.pin.machine
        ));
    }
    if let Some(again) = last.again
        && let Err(gap) = check_off_readings(again, needs)
    {
        return Redo(gap.to_string());
    }
    if last.age > PROOF_AGE_MAX {
        return Redo(format!("the proof is {} old", last.age));
    }
    let newest = last.again.unwrap_or(proven);
    if last.steady && unbroken(newest, reading) {
        return Good;
    }
    match last.again {
        Some(_) if last.age <= REPEATED_AGE_MAX => Good,
        Some(_) => Redo(format!("the BMC is not steady and was read {} ago", last.age)),
        None => Redo("the BMC was not steady since the proof".to_owned()),
    }
}

/// Whether this reading shows that the BMC did not restart since a proof's readings.
fn unbroken(proven: &OffReadings, reading: &PowerReading) -> bool {
    let last = proven.readings.last().map(|(_, reading)| reading);
    let before = proven.readings.iter().rev().nth(1).map(|(_, reading)| reading);
    [last, before, proven.closing.as_ref()]
        .into_iter()
        .flatten()
        .any(|then| reading.continuity.unbroken_since(&then.continuity))
}

#[cfg(test)]
mod tests;
