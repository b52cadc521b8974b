//! The one place where the arbiter reads its monotonic clock.

use coroner_shared::time::Mono;
use nix::time::{ClockId, clock_gettime};

/// CLOCK_BOOTTIME: it goes on while the host is suspended, so that a sleep shows as the gap it is.
pub fn now() -> Mono {
    // The call only fails for a clock that the kernel does not have; every Linux since 2.6.39 has this one, and an
    // origin of zero would only make ages too short, which holds.
    let time = clock_gettime(ClockId::CLOCK_BOOTTIME).map(std::time::Duration::from).unwrap_or_default();
    Mono::from_ms(u64::try_from(time.as_millis()).unwrap_or(u64::MAX))
}

/// Wall-clock time `age` ago as RFC 3339 with milliseconds: for people and for Kubernetes' own fields, never for a
/// decision.
pub fn wall(age: coroner_shared::time::Span) -> String {
    #[expect(clippy::disallowed_methods, reason = "timestamps that people read; no decision looks at them")]
    let now = std::time::SystemTime::now();
    let then = now.checked_sub(age.into()).unwrap_or(now);
    humantime::format_rfc3339_millis(then).to_string()
}
