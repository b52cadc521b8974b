//! From the wall clock, in which Kubernetes stamps, to `CLOCK_BOOTTIME`, in which everything else is written down.
//!
//! Both clocks belong to one kernel, so one pair of readings gives the whole line until somebody sets the wall clock;
//! the pairs are taken every few seconds, and the one nearest in wall time counts.

use std::{fs, path::Path};

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::lab::writer::boottime_ns;

/// One look at both clocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// `CLOCK_BOOTTIME`, ns.
    pub t: u64,
    /// `CLOCK_REALTIME`, ns since 1970.
    pub wall: u64,
}

/// The looks of a run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    samples: Vec<Sample>,
}

// === impl Sample ===

impl Sample {
    /// Looks at both clocks now.
    #[must_use]
    pub fn now() -> Self {
        let wall = clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |now| {
            let seconds = u64::try_from(now.tv_sec()).unwrap_or(0);
            seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec()).unwrap_or(0))
        });
        Self { t: boottime_ns(), wall }
    }
}

// === impl Clock ===

impl Clock {
    /// Over these looks.
    #[must_use]
    pub fn new(samples: Vec<Sample>) -> Self {
        Self { samples }
    }

    /// Reads the looks of a run.
    ///
    /// # Errors
    /// When the file cannot be read or a line is none.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
        let parse = |line: &str| serde_json::from_str(line).with_context(|| format!("understand {line:?}"));
        Ok(Self { samples: text.lines().map(parse).collect::<Result<_>>()? })
    }

    /// The instant of a wall clock's reading in ns since 1970; `None` without any look.
    #[must_use]
    pub fn boottime(&self, wall: u64) -> Option<u64> {
        let nearest = self.samples.iter().min_by_key(|sample| sample.wall.abs_diff(wall))?;
        Some(if wall >= nearest.wall {
            nearest.t.saturating_add(wall - nearest.wall)
        } else {
            nearest.t.saturating_sub(nearest.wall - wall)
        })
    }

    /// The instant of an RFC 3339 stamp.
    #[must_use]
    pub fn of_stamp(&self, stamp: &str) -> Option<u64> {
        let since = humantime::parse_rfc3339(stamp).ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        self.boottime(u64::try_from(since.as_nanos()).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_lies_on_the_line_of_the_nearest_look() {
        let clock = Clock::new(vec![
            Sample { t: 1_000, wall: 5_000_000_000 },
            // The wall clock was set forward by a second.
            Sample { t: 2_000, wall: 6_000_001_000 },
        ]);
        assert_eq!(clock.of_stamp("1970-01-01T00:00:05.000000100Z"), Some(1_100));
        assert_eq!(clock.of_stamp("1970-01-01T00:00:06.000001Z"), Some(2_000));
        assert_eq!(
            clock.of_stamp("1970-01-01T00:00:04.999999Z"),
            Some(0),
            "before the first look, not below zero"
        );
        assert_eq!(clock.of_stamp("soon"), None);
        assert_eq!(Clock::default().of_stamp("1970-01-01T00:00:05Z"), None);
    }
}
