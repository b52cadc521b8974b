//! Samples, and what is said of them.

use crate::lab::writer::boottime_ns;

/// What is kept of many samples.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Samples {
    /// How many.
    pub n: usize,
    /// Half of them are at most this.
    pub p50: f64,
    /// 99 of a hundred are at most this.
    pub p99: f64,
}

// === impl Samples ===

impl Samples {
    /// Of whatever was measured.
    #[must_use]
    pub fn of(mut found: Vec<f64>) -> Self {
        found.sort_unstable_by(f64::total_cmp);
        let at = |hundredths: usize| {
            let place = (found.len() * hundredths).div_ceil(100).saturating_sub(1);
            found.get(place).copied().unwrap_or(0.0)
        };
        Self { n: found.len(), p50: at(50), p99: at(99) }
    }

    /// Of times in nanoseconds, in a unit of `unit_ns`.
    #[must_use]
    pub fn of_ns(ns: Vec<u64>, unit_ns: f64) -> Self {
        Self::of(ns.into_iter().map(|ns| as_f64(ns) / unit_ns).collect())
    }
}

/// Times `work` often: a sample is the mean of `times` runs of it.
pub fn time(samples: usize, times: u64, mut work: impl FnMut()) -> Vec<u64> {
    work();
    let mut found = Vec::with_capacity(samples);
    for _ in 0..samples {
        let begin = boottime_ns();
        for _ in 0..times {
            work();
        }
        found.push((boottime_ns() - begin) / times.max(1));
    }
    found
}

/// Exact for anything below 104 days in nanoseconds.
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "a mantissa has 53 bits, and a sample fewer")]
pub fn as_f64(ns: u64) -> f64 {
    ns as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_that_were_taken() {
        let hundred = Samples::of_ns((1..=100).rev().map(|n| n * 1_000).collect(), 1_000.0);
        assert_eq!(hundred, Samples { n: 100, p50: 50.0, p99: 99.0 });
        assert_eq!(Samples::of_ns(vec![5_000], 1_000.0), Samples { n: 1, p50: 5.0, p99: 5.0 });
        assert_eq!(Samples::of_ns(Vec::new(), 1.0), Samples::default());
    }

    #[test]
    fn every_sample_is_taken() {
        let mut runs = 0;
        assert_eq!(time(3, 10, || runs += 1).len(), 3);
        assert_eq!(runs, 1 + 30);
    }
}
