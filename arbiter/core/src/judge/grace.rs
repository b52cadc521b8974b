//! How long a new leader listens before it judges.
//!
//! ```text
//!   leader since, group since, who is heard --> over, or how long at most until then
//! ```
//!
//! A leader that has just been elected has heard little: judged at once, everybody is silent (Ceph #60513, #11167). If it
//! is warm already, 1 s; else 5 s. A group that comes back from nothing waits for the agents to register.

use coroner_shared::id::NodeName;
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::{Mono, Span};

use super::scene::{HEARD, Scene};

/// The least time, if warm.
const WARM: Span = Span::from_secs(1);
/// The time if not.
pub(super) const COLD: Span = Span::from_secs(5);
/// After quorum came from nothing.
const FROM_NOTHING: Span = Span::from_secs(10);

/// The grace of one leader. Once over it stays over.
#[derive(Clone, Debug)]
pub(super) struct Grace {
    since: Mono,
    over: bool,
}

impl Grace {
    pub(super) const fn new(now: Mono) -> Self {
        Self { since: now, over: false }
    }

    /// How much longer it listens at most; `None` once it has listened for long enough. Whoever becomes warm is done
    /// sooner.
    pub(super) fn left(&mut self, scene: &Scene<'_>) -> Option<Span> {
        if self.over || planted(Mutant::NoGrace) {
            return None;
        }
        let led_for = scene.age(self.since);
        let waited = led_for >= COLD || (led_for >= WARM && is_warm(scene));
        self.over = waited && scene.sight.group_age >= FROM_NOTHING;
        let of_leader = if waited { Span::ZERO } else { COLD.saturating_sub(led_for) };
        let of_group = FROM_NOTHING.saturating_sub(scene.sight.group_age);
        (!self.over).then_some(of_leader.max(of_group))
    }
}

/// 90 % of the Alive members that no trusted observer reports silent were heard within 3 s.
fn is_warm(scene: &Scene<'_>) -> bool {
    let expected = |n: &&NodeName| scene.counts_as_alive(n) && scene.accusers(n) == 0;
    let (mut heard, mut all) = (0_usize, 0_usize);
    for name in scene.state().observers.seats().map(|(n, _)| n).filter(expected) {
        all += 1;
        heard += usize::from(scene.pooled.heard_within(name, HEARD));
    }
    heard * 10 >= all * 9
}
