//! Chance of a seed: the same numbers on every machine and build. Each purpose draws from a stream of its own, so that
//! a further draw for one does not change what another gets.

use coroner_shared::time::Span;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore, SeedableRng};

/// What numbers are drawn for.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Purpose {
    /// The site: nodes, racks, BMCs, policy.
    Site = 1,
    /// What goes wrong, and when.
    Faults = 2,
    /// Loss, delay and order on the network.
    Network = 3,
    /// Everything that a machine draws: boot ids, jitter, times to boot.
    Machines = 4,
    /// BMCs' latencies.
    Bmcs = 5,
    /// The replicas' processes.
    Replicas = 6,
    /// What the second act of a seed is, and the scripts.
    Later = 7,
    /// What liars and those who cannot be right make up.
    Odd = 8,
}

/// One stream.
pub(crate) struct Chance(ChaCha8Rng);

// === impl Chance ===

impl Chance {
    pub(crate) fn new(seed: u64, purpose: Purpose) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        rng.set_stream(purpose as u64);
        Self(rng)
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.0.next_u64()
    }

    /// 0 up to `n` - 1; 0 where `n` is 0.
    pub(crate) fn below(&mut self, n: u64) -> u64 {
        // The bias of a remainder is far below what any test here looks at.
        if n == 0 { 0 } else { self.number() % n }
    }

    /// Both ends included.
    pub(crate) fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// Both ends included.
    pub(crate) fn span(&mut self, low: Span, high: Span) -> Span {
        Span::from_ms(self.range(low.as_ms(), high.as_ms()))
    }

    pub(crate) fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(crate) fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> Option<T> {
        if from.is_empty() { None } else { from.get(self.index(from.len())).copied() }
    }

    pub(crate) fn bytes16(&mut self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.0.fill_bytes(&mut bytes);
        bytes
    }
}
