//! How often something may happen: a bucket that fills with time and that each event takes from. No clock; whoever asks
//! says what time it is.

use crate::time::{Mono, Span};

/// So often in the long run, and so many at once after a quiet time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Events a second, at least 1.
    pub per_second: u64,
    /// Events at once.
    pub burst: u64,
}

/// What is left of one source's share, in thousandths of an event.
#[derive(Clone, Copy, Debug)]
pub struct Bucket {
    milli: u64,
    filled: Mono,
}

// === impl Bucket ===

impl Bucket {
    /// A source that was quiet until now.
    pub const fn full(now: Mono, rate: Rate) -> Self {
        Self { milli: rate.burst.saturating_mul(1000), filled: now }
    }

    /// Whether one more may happen now; takes it if so.
    pub fn take(&mut self, now: Mono, rate: Rate) -> bool {
        self.fill(now, rate);
        let enough = self.milli >= 1000;
        self.milli -= if enough { 1000 } else { 0 };
        enough
    }

    /// Whether nothing of it is used up: it then says no more than a new one would.
    pub fn is_full(&mut self, now: Mono, rate: Rate) -> bool {
        self.fill(now, rate);
        self.milli >= rate.burst.saturating_mul(1000)
    }

    /// How long until one more may happen; zero if it may now.
    pub fn wait(&mut self, now: Mono, rate: Rate) -> Span {
        self.fill(now, rate);
        Span::from_ms(1000_u64.saturating_sub(self.milli).div_ceil(rate.per_second.max(1)))
    }

    fn fill(&mut self, now: Mono, rate: Rate) {
        let gained = now.since(self.filled).as_ms().saturating_mul(rate.per_second);
        self.milli = self.milli.saturating_add(gained).min(rate.burst.saturating_mul(1000));
        self.filled = self.filled.max(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: Rate = Rate { per_second: 2, burst: 3 };

    const fn at(ms: u64) -> Mono {
        Mono::from_ms(ms)
    }

    #[test]
    fn a_burst_passes_and_then_the_rate() {
        let mut bucket = Bucket::full(at(0), RATE);
        let passed = |bucket: &mut Bucket, from: u64, to: u64| {
            (from..to).filter(|ms| bucket.take(at(*ms), RATE)).count()
        };
        assert_eq!(passed(&mut bucket, 0, 1), 1);
        assert_eq!(passed(&mut bucket, 1, 10), 2, "the rest of the burst");
        assert_eq!(passed(&mut bucket, 10, 10_000), 19, "two a second, the first after half a second");
        assert_eq!(passed(&mut bucket, 60_000, 60_010), 3, "quiet time fills no more than the burst");
    }

    #[test]
    fn it_says_how_long_to_wait_and_when_nothing_is_used_up() {
        let mut bucket = Bucket::full(at(0), RATE);
        assert_eq!((bucket.wait(at(0), RATE), bucket.is_full(at(0), RATE)), (Span::ZERO, true));
        (0..3).for_each(|_| assert!(bucket.take(at(0), RATE)));
        assert_eq!((bucket.wait(at(0), RATE), bucket.is_full(at(0), RATE)), (Span::from_ms(500), false));
        assert_eq!(bucket.wait(at(200), RATE), Span::from_ms(300));
        assert!(bucket.take(at(500), RATE), "it keeps its word");
        assert!(!bucket.is_full(at(1999), RATE) && bucket.is_full(at(2000), RATE));
    }

    #[test]
    fn a_clock_that_is_asked_late_gives_nothing_twice() {
        let mut bucket = Bucket::full(at(10_000), RATE);
        (0..3).for_each(|_| assert!(bucket.take(at(10_000), RATE)));
        assert!(!bucket.take(at(9_000), RATE));
        assert!(!bucket.take(at(10_000), RATE), "the second before it was counted already");
    }
}
