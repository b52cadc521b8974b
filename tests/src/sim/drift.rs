//! Clocks that run otherwise than the world's: a host's monotonic clock may be fast or slow by some parts in a million.

use coroner_shared::time::{Mono, Span};

/// Parts in a million.
const MILLION: i64 = 1_000_000;
/// The most that a clock may be fast or slow here: twice what NTP corrects by slewing.
pub(crate) const DRIFT_MAX: i64 = 1_000;

/// How one clock runs.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Drift {
    /// Fast (or slow, if negative) by so many parts in a million.
    ppm: i64,
    /// Since when.
    since: Mono,
    /// Milliseconds that it had gone ahead by then.
    ahead: i64,
}

// === impl Drift ===

impl Drift {
    /// From now on it is fast by so much; what it is ahead, it stays.
    pub(crate) fn set(&mut self, now: Mono, ppm: i64) {
        *self = Self { ppm: ppm.clamp(-DRIFT_MAX, DRIFT_MAX), since: now, ahead: self.ahead(now) };
    }

    /// It begins at zero again, and runs as it did.
    pub(crate) fn restart(&mut self, now: Mono) {
        *self = Self { ppm: self.ppm, since: now, ahead: 0 };
    }

    /// What it shows when truly so much has passed since its zero.
    pub(crate) fn read(&self, passed: Span, now: Mono) -> Mono {
        let shown = i64::try_from(passed.as_ms()).unwrap_or(i64::MAX).saturating_add(self.ahead(now));
        Mono::from_ms(u64::try_from(shown).unwrap_or(0))
    }

    /// How long it truly takes until so much has passed on this clock.
    pub(crate) fn passes_in(&self, span: Span) -> Span {
        if self.ppm == 0 {
            return span;
        }
        let rate = u64::try_from(MILLION + self.ppm).unwrap_or(1).max(1);
        Span::from_ms(span.as_ms().saturating_mul(MILLION.unsigned_abs()).div_ceil(rate))
    }

    fn ahead(&self, now: Mono) -> i64 {
        let ran = i64::try_from(now.since(self.since).as_ms()).unwrap_or(i64::MAX);
        self.ahead + ran.saturating_mul(self.ppm) / MILLION
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_clock_is_ahead_and_its_timers_are_early() {
        let mut drift = Drift::default();
        let start = Mono::from_ms(5_000_000);
        drift.set(start, 1_000);
        let later = start + Span::from_secs(100);
        assert_eq!(drift.read(Span::from_secs(200), later), Mono::from_ms(200_100));
        assert_eq!(drift.passes_in(Span::from_secs(100)), Span::from_ms(99_901));
        drift.set(later, 0);
        let much_later = later + Span::from_secs(50);
        assert_eq!(
            drift.read(Span::from_secs(250), much_later),
            Mono::from_ms(250_100),
            "what it is ahead, it stays"
        );
        assert_eq!(drift.passes_in(Span::from_secs(100)), Span::from_secs(100));
    }

    #[test]
    fn a_slow_clock_is_behind_and_never_stands() {
        let mut drift = Drift::default();
        drift.set(Mono::from_ms(0), -5_000);
        let read = |ms| drift.read(Span::from_ms(ms), Mono::from_ms(ms));
        assert_eq!(read(100_000), Mono::from_ms(99_900), "bounded by a thousand parts");
        assert!((0..5_000).all(|ms| read(ms) <= read(ms + 1)));
        let tick = drift.passes_in(Span::from_ms(50));
        assert!(read(tick.as_ms()) >= Mono::from_ms(50), "a tick that is due has passed");
    }
}
