//! Monotonic instants and spans in milliseconds. Arithmetic only: nothing here reads a clock.
//!
//! A [`Mono`] counts from an origin that only its own host knows (CLOCK_BOOTTIME: the boot), so instants of two hosts
//! are never compared; spans cross the network instead. What another host knows may be older than this host's boot, so
//! instants reach behind the origin: cut off there, an age would be as young as the uptime of who was told it.

use std::fmt;
use std::ops::{Add, AddAssign, Sub};

use serde::{Deserialize, Serialize};

/// A length of time in whole milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Span(u64);

/// A point on one host's monotonic clock, in milliseconds since that host's own origin, or before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Mono(i64);

// === impl Span ===

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span; an age that nobody can give ("never heard").
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `ms` milliseconds.
    pub const fn from_ms(ms: u64) -> Self {
        Self(ms)
    }

    /// A span of `s` seconds.
    pub const fn from_secs(s: u64) -> Self {
        Self(s.saturating_mul(1000))
    }

    /// A span of `m` minutes.
    pub const fn from_mins(m: u64) -> Self {
        Self::from_secs(m.saturating_mul(60))
    }

    /// The span in milliseconds.
    pub const fn as_ms(self) -> u64 {
        self.0
    }

    /// This span less `other`, or zero where `other` is longer.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// This span `n` times.
    pub const fn times(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }
}

impl Add for Span {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Span {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl From<Span> for std::time::Duration {
    fn from(span: Span) -> Self {
        Self::from_millis(span.0)
    }
}

impl fmt::Display for Span {
    /// For people: `250ms`, `8.05s`, `3m20s`, `2h05m`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ms = self.0;
        let secs = ms / 1000;
        match ms {
            u64::MAX => f.write_str("for ever"),
            0..1000 => write!(f, "{ms}ms"),
            1000..120_000 => write!(f, "{}.{:02}s", secs, (ms % 1000) / 10),
            120_000..7_200_000 => write!(f, "{}m{:02}s", secs / 60, secs % 60),
            _ => write!(f, "{}h{:02}m", secs / 3600, (secs % 3600) / 60),
        }
    }
}

// === impl Mono ===

impl Mono {
    /// The instant `ms` milliseconds after the origin.
    pub const fn from_ms(ms: u64) -> Self {
        Self(0_i64.saturating_add_unsigned(ms))
    }

    /// Milliseconds since the origin; zero before it.
    pub const fn as_ms(self) -> u64 {
        if self.0 < 0 { 0 } else { self.0.unsigned_abs() }
    }

    /// How long ago `earlier` was; zero where it lies ahead.
    pub const fn since(self, earlier: Self) -> Span {
        if self.0 > earlier.0 { Span(self.0.abs_diff(earlier.0)) } else { Span::ZERO }
    }

    /// The instant `age` before this one, be it before the origin.
    pub const fn back(self, age: Span) -> Self {
        Self(self.0.saturating_sub_unsigned(age.0))
    }
}

impl Add<Span> for Mono {
    type Output = Self;
    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add_unsigned(span.0))
    }
}

impl Sub for Mono {
    type Output = Span;
    fn sub(self, earlier: Self) -> Span {
        self.since(earlier)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_read_as_a_person_would_write_them() {
        for (ms, text) in [
            (0, "0ms"),
            (250, "250ms"),
            (8050, "8.05s"),
            (119_999, "119.99s"),
            (200_000, "3m20s"),
            (7_500_000, "2h05m"),
            (u64::MAX, "for ever"),
        ] {
            assert_eq!(Span::from_ms(ms).to_string(), text);
        }
    }

    #[test]
    fn arithmetic_saturates_instead_of_wrapping() {
        assert_eq!(Span::MAX + Span::from_ms(1), Span::MAX);
        assert_eq!(Mono::from_ms(5) - Mono::from_ms(9), Span::ZERO);
        assert_eq!(Mono::from_ms(u64::MAX) + Span::MAX, Mono::from_ms(u64::MAX));
        assert_eq!(Mono::from_ms(5).back(Span::MAX).back(Span::MAX).as_ms(), 0);
    }

    #[test]
    fn an_age_stays_what_it_is_on_a_host_that_booted_since() {
        let now = Mono::from_ms(4000);
        for age in [0, 1, 3999, 4000, 4001, 150_000, u64::MAX / 2] {
            let age = Span::from_ms(age);
            assert_eq!(now.since(now.back(age)), age);
            assert_eq!(now.back(age) + age, now);
        }
        assert!(now.back(Span::from_secs(150)) < now.back(Span::from_secs(60)));
    }
}
