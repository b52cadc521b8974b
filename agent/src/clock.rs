//! The one place that reads clocks. Everything else is given the time.

use coroner_shared::time::Mono;
use nix::time::{ClockId, clock_gettime};

/// CLOCK_BOOTTIME: the agent's time. It goes on while the host is suspended, and begins anew with each boot.
pub(crate) fn now() -> Mono {
    read(ClockId::CLOCK_BOOTTIME)
}

/// CLOCK_MONOTONIC: stands still while the host is suspended; the difference shows that it was.
pub(crate) fn awake() -> Mono {
    read(ClockId::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME in microseconds since 1970. Only to compare with the time that systemd wrote into a file.
pub(crate) fn wall_us() -> u64 {
    clock_gettime(ClockId::CLOCK_REALTIME).map_or(0, |t| {
        let secs = u64::try_from(t.tv_sec()).unwrap_or(0);
        secs * 1_000_000 + u64::try_from(t.tv_nsec()).unwrap_or(0) / 1000
    })
}

/// Linux has had both clocks since 2.6.39, and reading one that exists cannot fail.
fn read(clock: ClockId) -> Mono {
    clock_gettime(clock).map_or(Mono::default(), |t| {
        let secs = u64::try_from(t.tv_sec()).unwrap_or(0);
        Mono::from_ms(secs * 1000 + u64::try_from(t.tv_nsec()).unwrap_or(0) / 1_000_000)
    })
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_clocks_run() {
        assert!(super::now().as_ms() > 0);
        assert!(super::awake() <= super::now());
        assert!(super::wall_us() > 1_700_000_000_000_000);
    }
}
