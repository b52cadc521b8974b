//! What a Lease says when a person confirms that a machine is off.

use coroner_shared::time::{Mono, Span};

use crate::judge::LeaseSeen;

#[test]
fn a_kubelet_shows_life_from_a_renewal_after_the_last_sign_until_the_next_is_overdue() {
    let at = Mono::from_ms;
    let lease = |changed| LeaseSeen { changed, interval: Span::from_secs(10) };
    for (changed, sign, now, shows) in [
        (None, None, 60_000, false),
        (Some(at(50_000)), None, 60_000, true),
        (Some(at(50_000)), None, 61_000, false),
        (Some(at(50_000)), Some(at(49_999)), 60_999, true),
        // The last renewal of a host that was heard after it.
        (Some(at(50_000)), Some(at(50_000)), 51_000, false),
    ] {
        assert_eq!(lease(changed).shows_life(at(now), sign), shows, "{changed:?} {sign:?} {now}");
    }
}
