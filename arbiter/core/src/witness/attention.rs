//! How much of the time this process was there to listen: ages that do not grow while it was paused.
//!
//! ```text
//!   ticks --> Attention --> age(now, stamp): time since the stamp, less the pauses in between; a long pause: step down
//! ```
//!
//! A leader that slept for a second has a second of unread beacons in its socket. Judging by the clock alone it would
//! find everybody silent (Ceph #11167, etcd #20418), so its own absence is taken off every age.

use coroner_shared::mutant::{Mutant, planted};

use std::collections::VecDeque;

use coroner_shared::time::{Mono, Span};

/// A gap between two ticks longer than this is a pause; ticks come every 50 ms.
pub const PAUSE_OVER: Span = Span::from_ms(500);
/// After a pause longer than this a leader steps down: an election (1 to 2 s) may have passed it by.
pub const STEP_DOWN_OVER: Span = Span::from_secs(2);
/// Pauses remembered. A process that pauses more often than this within one incident is replaced by election.
const PAUSES_MAX: usize = 32;

/// The pauses of this process.
#[derive(Clone, Debug, Default)]
pub struct Attention {
    last: Option<Mono>,
    /// End and length of each.
    pauses: VecDeque<(Mono, Span)>,
}

/// What a tick found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tick {
    /// How long this process was away; zero if it was not.
    pub gap: Span,
    /// So long that it must not lead on what it knows.
    pub step_down: bool,
}

impl Attention {
    /// To be called every 50 ms, after the sockets were drained.
    pub fn tick(&mut self, now: Mono) -> Tick {
        let gap = self.last.map_or(Span::ZERO, |last| now.since(last));
        self.last = Some(self.last.map_or(now, |last| last.max(now)));
        if gap <= PAUSE_OVER || planted(Mutant::NoAmnesty) {
            return Tick::default();
        }
        if self.pauses.len() >= PAUSES_MAX {
            self.pauses.pop_front();
        }
        self.pauses.push_back((now, gap));
        Tick { gap, step_down: gap > STEP_DOWN_OVER }
    }

    /// How old a stamp is, less what this process was away since.
    pub fn age(&self, now: Mono, stamp: Mono) -> Span {
        let away = |(end, gap): &(Mono, Span)| (*gap).min(end.since(stamp));
        self.pauses.iter().fold(now.since(stamp), |age, pause| age.saturating_sub(away(pause)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono::from_ms(ms)
    }

    #[track_caller]
    fn check(gap: u64, paused: bool, step_down: bool) {
        let mut attention = Attention::default();
        assert_eq!(attention.tick(at(10_000)), Tick::default(), "the first tick has none before it");
        let tick = attention.tick(at(10_000 + gap));
        let forgiven = if paused { gap } else { 0 };
        assert_eq!(tick, Tick { gap: Span::from_ms(forgiven), step_down });
        let now = at(10_000 + gap + 300);
        for stamp in [0, 9_000, 10_000] {
            assert_eq!(attention.age(now, at(stamp)).as_ms(), now.as_ms() - stamp - forgiven, "{stamp}");
        }
        assert_eq!(
            attention.age(now, at(10_000 + gap)).as_ms(),
            300,
            "what came after the pause is not touched"
        );
    }

    #[test]
    fn a_pause_is_taken_off_every_age() {
        check(500, false, false);
        check(501, true, false);
        check(2000, true, false);
        check(2001, true, true);
        check(60_000, true, true);
    }

    #[test]
    fn a_stamp_dated_into_the_pause_is_forgiven_only_the_rest() {
        let mut attention = Attention::default();
        attention.tick(at(0));
        attention.tick(at(1000));
        assert_eq!(attention.age(at(1100), at(400)).as_ms(), 100);
        attention.tick(at(1100));
        attention.tick(at(2100));
        assert_eq!(attention.age(at(2100), at(0)).as_ms(), 100, "two pauses add up");
    }

    #[test]
    fn many_pauses_cost_no_memory() {
        let mut attention = Attention::default();
        for i in 0..1000 {
            attention.tick(at(i * 600));
        }
        assert_eq!(attention.pauses.len(), 32);
    }
}
