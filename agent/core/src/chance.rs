//! A stream of numbers from a seed given at construction: jitter of beacons and numbers of probes.
//!
//! The same seed gives the same agent, so that a simulated run can be replayed. Not for keys: nothing secret depends
//! on it.

use coroner_shared::time::Span;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
#[derive(Clone, Debug)]
pub(crate) struct Chance(u64);

impl Chance {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub(crate) const fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A span from zero to `span`, both included.
    pub(crate) const fn up_to(&mut self, span: Span) -> Span {
        Span::from_ms(self.draw() % span.as_ms().saturating_add(1))
    }

    /// `span` plus or minus 5 %, so that hosts started together do not send together for ever.
    pub(crate) fn jitter(&mut self, span: Span) -> Span {
        let slack = Span::from_ms(span.as_ms() / 10);
        span.saturating_sub(Span::from_ms(slack.as_ms() / 2)) + self.up_to(slack)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_stays_within_five_percent_and_uses_all_of_it() {
        let mut chance = Chance::new(1);
        let drawn: Vec<u64> = (0..1000).map(|_| chance.jitter(Span::from_ms(250)).as_ms()).collect();
        assert_eq!(drawn.iter().min(), Some(&238));
        assert_eq!(drawn.iter().max(), Some(&263));
    }

    #[test]
    fn one_seed_gives_one_stream() {
        let draw = |seed| (0..3).map(|_| Chance::new(seed).draw()).collect::<Vec<_>>();
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
    }
}
