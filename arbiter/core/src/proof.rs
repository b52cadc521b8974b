//! When counts a machine as off? The one function that says so. `apply` asks it before it makes a `FenceProof`, and
//! `fence` asks it before it proposes one.
//!
//! ```text
//!   OffReadings --+
//!   the pin ------+--> check_off_readings --> Ok, or the first gap by name
//!   the log ------+
//! ```
//!
//! Three consecutive readings, each exactly Off (DSP0268, `PowerState`; IPMI 2.0, 28.2: bit 0 and the fault bits are 0,
//! as the driver reads them) and none of another machine, the last over a new session, identity read before and after,
//! over a span that depends on what else is known:
//!
//! | steady | ForceOff | span | what it guards against |
//! |---|---|---|---|
//! | yes | accepted | 4 s | the moment of Off in a power cycle |
//! | yes | any other answer | 10 s | the same, where no ForceOff may have ended a power-on under way |
//! | yes | none sent | 30 s | a power-on under way, which nothing of ours has cancelled |
//! | no | any | 30 s | a BMC that restarted and says Off from its defaults |
//! | quirk `cached` | any | 60 s | a power state that is up to a minute old |
//!
//! Why more than one reading: one alone may fall into the off phase of a reset, come out of a cache, or be what a BMC
//! says before it has looked. What readings cannot exclude is a BMC that always lies; identity and the node's own
//! signs of life stand against that, in `fence`.

use coroner_shared::bmc::{CommandAnswer, Power, PowerReading};
use coroner_shared::machine_id::{MachineId, Transform};
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::Span;
use thiserror::Error;

use crate::identity::is_pinned;
use crate::phase::OffReadings;
use crate::policy::Pin;
use crate::steady::{GAP_MAX, Seam, seam};

/// Consecutive Off readings that a proof needs.
pub const READS_MIN: usize = 3;

/// What readings are judged by: what the log holds, never what the reader says of itself.
#[derive(Clone, Copy, Debug)]
pub struct ProofNeeds<'a> {
    /// The binding's pin.
    pub pin: &'a Pin,
    /// The machine that the proof is to speak of.
    pub machine: MachineId,
    /// Quirk `cached` of the binding.
    pub cached: bool,
    /// The committed answer to the attempt that the proof names; `None`: none was made, or its answer is not known.
    pub answer: Option<&'a CommandAnswer>,
}

/// What readings lack to be a proof.
#[derive(Debug, Error, Clone, PartialEq, Eq)]
pub enum ProofGap {
    /// The pin is another machine's.
    #[error("the proof is to speak of {wanted}, pinned is {pinned}")]
    OtherMachine {
        /// Of the incarnation.
        wanted: MachineId,
        /// Of the pin.
        pinned: MachineId,
    },
    /// Read at another member.
    #[error("read at {read:?}, pinned is {pinned:?}")]
    OtherMember {
        /// Where.
        read: String,
        /// Where it should have been.
        pinned: String,
    },
    /// Compared under another byte order.
    #[error("compared in byte order {used}, pinned is {pinned}")]
    OtherTransform {
        /// Which.
        used: Transform,
        /// Which it should have been.
        pinned: Transform,
    },
    /// Identity did not match, before or after.
    #[error("the identity read {when} is {given:?}, pinned is {pinned}")]
    Identity {
        /// Before or after the readings.
        when: &'static str,
        /// What was read.
        given: String,
        /// What is pinned.
        pinned: MachineId,
    },
    /// Too few Off readings in a row at the end.
    #[error("{found} of {READS_MIN} consecutive readings are exactly Off; the one before them: {before}")]
    TooFew {
        /// How many.
        found: usize,
        /// What stands before them.
        before: String,
    },
    /// A reading gives the UUID of another machine.
    #[error("a reading speaks of {given:?}, pinned is {pinned}")]
    ReadingOfOther {
        /// Its UUID.
        given: String,
        /// What is pinned.
        pinned: MachineId,
    },
    /// The spans of the readings are not in order.
    #[error("the readings are not in the order of their times")]
    NotInOrder,
    /// The last reading came over the same session as the others.
    #[error("the last reading did not come over a new session")]
    SameSession,
    /// A sign of a restart among the readings.
    #[error("the BMC may have restarted among the readings")]
    Restarted,
    /// Called steady, but the readings do not show it.
    #[error("the readings do not show that the BMC is steady")]
    NotShownSteady,
    /// The command is said to have been accepted, and the log does not say so.
    #[error("the log does not say that the power command was accepted")]
    NotAccepted,
    /// Too short.
    #[error("Off was read over {over}, needed are {needed}")]
    TooShort {
        /// Over what span.
        over: Span,
        /// What is needed.
        needed: Span,
    },
}

/// Whether a power state is Off: exactly that, and nothing that a command's answer promises.
pub(crate) fn counts_as_off(power: &Power, command: Option<&CommandAnswer>) -> bool {
    let accepted = matches!(command, Some(CommandAnswer::Accepted));
    *power == Power::Off
        || (planted(Mutant::PoweringOffIsOff) && *power == Power::PoweringOff)
        || (planted(Mutant::AcceptedIsOff) && accepted)
}

/// Consecutive Off readings that a proof needs.
pub(crate) fn reads_min() -> usize {
    if planted(Mutant::OneOffEnough) { 2 } else { READS_MIN }
}

/// The span that Off readings must cover; rows as in this file's table.
pub fn required_span(steady: bool, command: Option<&CommandAnswer>, cached: bool) -> Span {
    let steady = steady || planted(Mutant::FourSecondsUnsteady);
    match (cached, steady, command) {
        _ if planted(Mutant::OneOffEnough) => Span::ZERO,
        (true, _, _) => Span::from_secs(60),
        (false, false, _) | (false, true, None) => Span::from_secs(30),
        (false, true, Some(CommandAnswer::Accepted)) => Span::from_secs(4),
        (false, true, Some(CommandAnswer::Refused { .. } | CommandAnswer::Unknown { .. })) => {
            Span::from_secs(10)
        }
    }
}

/// Whether these readings prove that the pinned machine is off.
///
/// # Errors
/// The first [`ProofGap`] found. Nothing that is missing is ever read as good.
pub fn check_off_readings(readings: &OffReadings, needs: &ProofNeeds<'_>) -> Result<(), ProofGap> {
    check_machine(readings, needs)?;
    let run = consecutive_offs(readings)?;
    check_each(&run, readings.closing.as_ref(), needs)?;
    check_seams(&run, readings)?;
    let cached = readings.cached || needs.cached;
    let accepted = |answer: Option<&CommandAnswer>| matches!(answer, Some(CommandAnswer::Accepted));
    if accepted(readings.command.as_ref()) && !accepted(needs.answer) {
        return Err(ProofGap::NotAccepted);
    }
    let needed = required_span(readings.steady, readings.command.as_ref(), cached);
    let over = match (run.first(), run.last()) {
        (Some((first, _)), Some((last, _))) => last.saturating_sub(*first),
        (None, _) | (_, None) => Span::ZERO,
    };
    if over < needed { Err(ProofGap::TooShort { over, needed }) } else { Ok(()) }
}

// === helpers ===

/// Of the pinned machine, at the pinned member, in the pinned byte order, identified before and after.
fn check_machine(readings: &OffReadings, needs: &ProofNeeds<'_>) -> Result<(), ProofGap> {
    let pin = needs.pin;
    if needs.machine != pin.machine {
        return Err(ProofGap::OtherMachine { wanted: needs.machine, pinned: pin.machine });
    }
    if readings.member != pin.member {
        return Err(ProofGap::OtherMember { read: readings.member.clone(), pinned: pin.member.clone() });
    }
    if readings.transform != pin.transform {
        return Err(ProofGap::OtherTransform { used: readings.transform, pinned: pin.transform });
    }
    for (when, given) in [("before", &readings.identity_before), ("after", &readings.identity_after)] {
        if !is_pinned(pin, given) {
            return Err(ProofGap::Identity { when, given: given.clone(), pinned: pin.machine });
        }
    }
    Ok(())
}

/// The Off readings at the end, at least three.
fn consecutive_offs(readings: &OffReadings) -> Result<Vec<&(Span, PowerReading)>, ProofGap> {
    let is_off = |reading: &(Span, PowerReading)| counts_as_off(&reading.1.power, readings.command.as_ref());
    let all = &readings.readings;
    let begin = all.iter().rposition(|reading| !is_off(reading)).map_or(0, |last_other| last_other + 1);
    let run: Vec<_> = all.iter().skip(begin).collect();
    if run.len() >= reads_min() {
        return Ok(run);
    }
    let before = begin.checked_sub(1).and_then(|at| all.get(at));
    let before = before.map_or("none".to_owned(), |(_, reading)| format!("{:?}", reading.power));
    Err(ProofGap::TooFew { found: run.len(), before })
}

/// No reading speaks of another machine. One without a UUID says nothing about that: IPMI has none, and some BMCs drop
/// it while the machine is off; the identities before and after stand for it.
fn check_each(
    run: &[&(Span, PowerReading)],
    closing: Option<&PowerReading>,
    needs: &ProofNeeds<'_>,
) -> Result<(), ProofGap> {
    if !run.is_sorted_by_key(|(span, _)| *span) {
        return Err(ProofGap::NotInOrder);
    }
    if let Some(closing) = closing
        && closing.power != Power::Off
    {
        return Err(ProofGap::TooFew { found: 0, before: format!("{:?}", closing.power) });
    }
    run.iter().map(|(_, reading)| reading).chain(closing).try_for_each(|reading| match &reading.uuid {
        Some(given) if !is_pinned(needs.pin, given) => {
            Err(ProofGap::ReadingOfOther { given: given.clone(), pinned: needs.pin.machine })
        }
        Some(_) | None => Ok(()),
    })
}

/// What the readings show of restarts, and of the new session.
fn check_seams(run: &[&(Span, PowerReading)], readings: &OffReadings) -> Result<(), ProofGap> {
    let Some(((last_span, last), earlier)) = run.split_last().map(|(last, rest)| (*last, rest)) else {
        return Err(ProofGap::TooFew { found: 0, before: "none".to_owned() });
    };
    let Some((before_span, before)) = earlier.last().copied() else {
        return Err(ProofGap::TooFew { found: 1, before: "none".to_owned() });
    };
    for pair in earlier.windows(2) {
        if let [(then, a), (now, b)] = pair {
            match seam(&a.continuity, &b.continuity) {
                Seam::Unbroken => {}
                Seam::Broken => return Err(ProofGap::Restarted),
                Seam::Unknown if readings.steady => return Err(ProofGap::NotShownSteady),
                Seam::Unknown => {}
            }
            if readings.steady && now.saturating_sub(*then) > GAP_MAX {
                return Err(ProofGap::NotShownSteady);
            }
        }
    }
    let reset_moved = matches!(
        (&before.continuity.reset_time, &last.continuity.reset_time),
        (Some(then), Some(now)) if then != now
    );
    if reset_moved {
        return Err(ProofGap::Restarted);
    }
    if !readings.last_over_new_session || shares_session(before, last) {
        return Err(ProofGap::SameSession);
    }
    if readings.steady {
        let kept_reset = last.continuity.reset_time.is_some()
            && last.continuity.reset_time == before.continuity.reset_time;
        let closed =
            readings.closing.as_ref().is_some_and(|c| c.continuity.unbroken_since(&before.continuity));
        if !(kept_reset || closed) || last_span.saturating_sub(*before_span) > GAP_MAX {
            return Err(ProofGap::NotShownSteady);
        }
    }
    Ok(())
}

/// Whether both readings show that they came over one session or one connection.
fn shares_session(a: &PowerReading, b: &PowerReading) -> bool {
    let same = |a: Option<u64>, b: Option<u64>| a.is_some() && a == b;
    same(a.continuity.session, b.continuity.session) || same(a.continuity.connection, b.continuity.connection)
}

#[cfg(test)]
mod tests;
