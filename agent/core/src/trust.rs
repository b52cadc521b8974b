//! Whether this agent should be believed when it accuses others: its own reasons for doubt.
//!
//! ```text
//!   ticks, drops, pressure, suspends, contact with replicas --> Trust --> Vec<SelfDoubt>
//! ```
//!
//! A paused or deaf process must not accuse the world (Hashicorp's Lifeguard, 2018, sections III and IV). A doubt is
//! only told, never acted on: whoever may not accuse may still veto. Comparison with other observers is for the
//! arbiter, which alone sees them.

use coroner_shared::beacon::SelfDoubt;
use coroner_shared::time::{Mono, Span};

use crate::input::{Pressure, Tick};
use crate::output::Change;

/// A tick later than this voids its round (one beacon interval of the balanced profile).
const LATE_OVER: Span = Span::from_ms(250);
/// How long a doubt outlives its cause: an accusation formed while it lasted (S and two probes) is out by then.
const OUTLIVES: Span = Span::from_secs(3);
/// Without an answer of any replica for longer than this an agent may not accuse.
pub(crate) const CONTACT_WITHIN: Span = Span::from_secs(3);
/// The clocks of a host that was not suspended differ by the time it takes to read both.
const SUSPENDED_OVER: Span = Span::from_ms(100);
/// From this share of time in which all tasks waited, in percent.
const PRESSURE_FROM_PERCENT: u8 = 20;

/// All reasons, in the order in which they are told.
const DOUBTS: [SelfDoubt; 5] = [
    SelfDoubt::LateTick,
    SelfDoubt::ReceiveDrops,
    SelfDoubt::Pressure,
    SelfDoubt::Suspended,
    SelfDoubt::NoArbiter,
];

/// What the agent noticed about itself.
#[derive(Clone, Debug)]
pub(crate) struct Trust {
    /// Since when a replica could have answered.
    born: Mono,
    late: Option<Mono>,
    drops: Option<(u64, Option<Mono>)>,
    asleep: Option<(Span, Option<Mono>)>,
    pressure: bool,
    contact: Option<Mono>,
    /// What was told last.
    told: Vec<SelfDoubt>,
}

// === impl Trust ===

impl Trust {
    pub(crate) const fn new(now: Mono) -> Self {
        Self {
            born: now,
            late: None,
            drops: None,
            asleep: None,
            pressure: false,
            contact: None,
            told: Vec::new(),
        }
    }

    /// Looks at a tick that was due at `due`. `true` if the round is void: nobody may become silent in it.
    pub(crate) fn tick(&mut self, now: Mono, due: Mono, tick: Tick) -> bool {
        let late = now.since(due) > LATE_OVER;
        if late {
            self.late = Some(now);
        }
        let dropped = match self.drops {
            Some((before, _)) if tick.drops != before => Some(now),
            Some((_, when)) => when,
            None => None,
        };
        // A socket that cannot be emptied is a socket that will drop.
        let dropped = if tick.drained { dropped } else { Some(now) };
        self.drops = Some((tick.drops, dropped));
        let asleep = Span::from_ms(now.as_ms().saturating_sub(tick.awake.as_ms()));
        let slept = match self.asleep {
            Some((before, _)) if asleep.saturating_sub(before) > SUSPENDED_OVER => Some(now),
            Some((_, when)) => when,
            None => None,
        };
        self.asleep = Some((asleep, slept));
        late || !tick.drained
    }

    /// The host's pressure figures.
    pub(crate) fn pressure(&mut self, pressure: Pressure) {
        self.pressure = pressure.cpu_full_percent.max(pressure.memory_full_percent) >= PRESSURE_FROM_PERCENT;
    }

    /// A replica answered or asked.
    pub(crate) const fn contact(&mut self, now: Mono) {
        self.contact = Some(now);
    }

    /// How long ago that was; for ever, where none ever did.
    pub(crate) fn contact_ago(&self, now: Mono) -> Span {
        self.contact.map_or(Span::MAX, |at| now.since(at))
    }

    /// Reasons not to be believed now.
    pub(crate) fn doubts(&self, now: Mono) -> Vec<SelfDoubt> {
        DOUBTS.into_iter().filter(|d| self.has(*d, now)).collect()
    }

    /// What began and what ended since this was last asked.
    pub(crate) fn changes(&mut self, now: Mono) -> Vec<Change> {
        let doubts = self.doubts(now);
        let began = doubts.iter().filter(|d| !self.told.contains(d)).map(|d| Change::Doubts(*d));
        let ended = self.told.iter().filter(|d| !doubts.contains(d)).map(|d| Change::Trusts(*d));
        let changes = began.chain(ended).collect();
        self.told = doubts;
        changes
    }

    fn has(&self, doubt: SelfDoubt, now: Mono) -> bool {
        let lately = |at: Option<Mono>| at.is_some_and(|at| now.since(at) <= OUTLIVES);
        match doubt {
            SelfDoubt::LateTick => lately(self.late),
            SelfDoubt::ReceiveDrops => lately(self.drops.and_then(|(_, when)| when)),
            SelfDoubt::Pressure => self.pressure,
            SelfDoubt::Suspended => lately(self.asleep.and_then(|(_, when)| when)),
            SelfDoubt::NoArbiter => now.since(self.contact.unwrap_or(self.born)) > CONTACT_WITHIN,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use SelfDoubt::{LateTick, NoArbiter, Pressure as UnderPressure, ReceiveDrops, Suspended};

    const START: u64 = 100_000;

    /// One tick, 100 ms after a calm one: `late` after it was due, with these circumstances.
    #[track_caller]
    fn check(late: u64, awake_behind: u64, drops: u64, drained: bool, void: bool, expected: &[SelfDoubt]) {
        let mut trust = Trust::new(Mono::from_ms(START));
        let calm = Tick { awake: Mono::from_ms(START - 5000), drained: true, drops: 7 };
        assert!(!trust.tick(Mono::from_ms(START), Mono::from_ms(START), calm));
        assert_eq!(trust.doubts(Mono::from_ms(START)), [], "a calm tick gives no doubt");
        let now = Mono::from_ms(START + 100);
        let tick = Tick { awake: Mono::from_ms(START + 100 - 5000 - awake_behind), drained, drops };
        assert_eq!(trust.tick(now, now.back(Span::from_ms(late)), tick), void);
        assert_eq!(trust.doubts(now), expected);
        assert_eq!(trust.doubts(now + OUTLIVES), [expected, &[NoArbiter]].concat(), "it outlives its cause");
        assert_eq!(trust.doubts(now + OUTLIVES + Span::from_ms(1)), [NoArbiter], "but not for long");
    }

    #[test]
    fn every_reason_for_doubt_has_its_threshold() {
        check(0, 0, 7, true, false, &[]);
        check(250, 0, 7, true, false, &[]);
        check(251, 0, 7, true, true, &[LateTick]);
        check(0, 100, 7, true, false, &[]);
        check(0, 101, 7, true, false, &[Suspended]);
        check(0, 0, 8, true, false, &[ReceiveDrops]);
        check(0, 0, 7, false, true, &[ReceiveDrops]);
        check(9000, 9000, 9, true, true, &[LateTick, ReceiveDrops, Suspended]);
    }

    #[test]
    fn drops_from_before_the_first_tick_are_no_reason() {
        let mut trust = Trust::new(Mono::from_ms(0));
        trust.contact(Mono::from_ms(0));
        trust.tick(
            Mono::from_ms(0),
            Mono::from_ms(0),
            Tick { awake: Mono::from_ms(0), drained: true, drops: 99 },
        );
        assert_eq!(trust.doubts(Mono::from_ms(0)), []);
    }

    #[test]
    fn without_a_replica_for_three_seconds_nobody_may_accuse() {
        let mut trust = Trust::new(Mono::from_ms(0));
        assert_eq!(trust.doubts(Mono::from_ms(3000)), [], "there was no time to answer yet");
        assert_eq!(trust.doubts(Mono::from_ms(3001)), [NoArbiter], "none ever did");
        assert_eq!(trust.contact_ago(Mono::from_ms(3001)), Span::MAX);
        trust.contact(Mono::from_ms(1000));
        assert_eq!(trust.doubts(Mono::from_ms(4000)), []);
        assert_eq!(trust.doubts(Mono::from_ms(4001)), [NoArbiter]);
    }

    #[test]
    fn pressure_lasts_as_long_as_the_kernel_says() {
        let mut trust = Trust::new(Mono::from_ms(0));
        trust.contact(Mono::from_ms(0));
        for (cpu, memory, expected) in
            [(0, 19, &[][..]), (0, 20, &[UnderPressure]), (20, 0, &[UnderPressure]), (0, 0, &[])]
        {
            trust.pressure(Pressure { cpu_full_percent: cpu, memory_full_percent: memory });
            assert_eq!(trust.doubts(Mono::from_ms(0)), expected, "{cpu} {memory}");
        }
    }

    #[test]
    fn a_change_of_doubt_is_told_once() {
        let mut trust = Trust::new(Mono::from_ms(0));
        assert_eq!(trust.changes(Mono::from_ms(4000)), [Change::Doubts(NoArbiter)]);
        assert_eq!(trust.changes(Mono::from_ms(4001)), []);
        trust.contact(Mono::from_ms(4002));
        assert_eq!(trust.changes(Mono::from_ms(4002)), [Change::Trusts(NoArbiter)]);
    }
}
