//! How many tokens a source may have reviewed: each is a call of the API server, and whoever reaches our ports can send
//! as many tokens as they like.
//!
//! Every address has a share of its own. Addresses that no registered host has share a further one, since they cost an
//! attacker nothing to make up (IPv6); so they can neither flood the API server nor take the share of a host that is
//! known.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use coroner_shared::rate::{Bucket, Rate};
use coroner_shared::time::{Mono, Span};

/// Agents: one token for each new key, tried again after half a second, a second, two, ... ; a rack behind one address
/// starts at once.
pub const AGENTS: Rate = Rate { per_second: 2, burst: 64 };
/// People and Prometheus come through few proxies and send their token with each request.
pub const PEOPLE: Rate = Rate { per_second: 20, burst: 100 };
/// All addresses together that are no registered host's: 5,000 hosts that start for the first time take a minute.
const STRANGERS: Rate = Rate { per_second: 100, burst: 500 };
/// Addresses remembered. Beyond that, strangers have only what they share.
const SOURCES_MAX: usize = 65_536;

/// The shares of one port's clients.
#[derive(Clone)]
pub struct Reviews {
    of_one: Rate,
    shares: Arc<Mutex<Shares>>,
}

#[derive(Default)]
struct Shares {
    by: HashMap<IpAddr, Bucket>,
    strangers: Option<Bucket>,
    /// When those were forgotten that use nothing up: at most once a second, since it looks at all of them.
    cleared: Option<Mono>,
}

// === impl Reviews ===

impl Reviews {
    /// Nobody has asked yet.
    pub fn new(of_one: Rate) -> Self {
        Self { of_one, shares: Arc::default() }
    }

    /// Takes one review for this address; `known`: a registered host has it.
    ///
    /// # Errors
    /// How long to wait.
    pub fn take(&self, now: Mono, from: IpAddr, known: bool) -> Result<(), Span> {
        let mut shares = self.shares.lock().unwrap_or_else(PoisonError::into_inner);
        let Shares { by, strangers, cleared } = &mut *shares;
        let rate = self.of_one;
        let full = !by.contains_key(&from) && by.len() >= SOURCES_MAX;
        if full && cleared.is_none_or(|at| now.since(at) >= Span::from_secs(1)) {
            *cleared = Some(now);
            by.retain(|_, bucket| !bucket.is_full(now, rate));
        }
        let room = known || by.contains_key(&from) || by.len() < SOURCES_MAX;
        if room {
            let bucket = by.entry(from).or_insert(Bucket::full(now, rate));
            if !bucket.take(now, rate) {
                return Err(bucket.wait(now, rate));
            }
        }
        let strangers = strangers.get_or_insert(Bucket::full(now, STRANGERS));
        if known || strangers.take(now, STRANGERS) { Ok(()) } else { Err(strangers.wait(now, STRANGERS)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(n: u32) -> IpAddr {
        std::net::Ipv4Addr::from(0x0a00_0000 + n).into()
    }

    /// How many of these requests, one each millisecond, are let through.
    fn passed(
        reviews: &Reviews,
        from: impl Fn(u64) -> IpAddr,
        known: bool,
        ms: std::ops::Range<u64>,
    ) -> usize {
        ms.filter(|ms| reviews.take(Mono::from_ms(*ms), from(*ms), known).is_ok()).count()
    }

    #[test]
    fn one_address_has_its_burst_and_then_its_rate_and_the_others_theirs() {
        let reviews = Reviews::new(AGENTS);
        assert_eq!(passed(&reviews, |_| address(1), false, 0..10_001), 64 + 20);
        let wait = reviews.take(Mono::from_ms(10_001), address(1), false).unwrap_err();
        assert!(wait > Span::ZERO && wait <= Span::from_ms(500), "{wait}");
        assert_eq!(passed(&reviews, |_| address(2), false, 10_000..10_010), 10);
    }

    #[test]
    fn addresses_that_are_made_up_share_one_rate_and_hosts_that_are_known_do_not_feel_it() {
        let reviews = Reviews::new(AGENTS);
        let forged = |ms: u64| address(u32::try_from(ms).unwrap());
        let passed_by = passed(&reviews, forged, false, 0..10_000);
        assert!((1490..=1510).contains(&passed_by), "{passed_by}: 500 and 100 a second");
        assert_eq!(passed(&reviews, |_| address(4_000_000), true, 10_000..10_005), 5);
    }

    #[test]
    fn memory_is_bounded() {
        let reviews = Reviews::new(AGENTS);
        for n in 0..100_000 {
            let _ = reviews.take(Mono::from_ms(0), address(n), false);
        }
        assert!(reviews.shares.lock().unwrap().by.len() <= SOURCES_MAX);
        let later = Mono::from_ms(60_000);
        assert!(reviews.take(later, address(200_000), false).is_ok(), "who was quiet is forgotten");
        assert_eq!(reviews.shares.lock().unwrap().by.len(), 1);
    }
}
