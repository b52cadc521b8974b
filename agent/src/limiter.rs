//! How many signatures a source may have checked: a flood of datagrams must not eat a core (46 us each).
//!
//! A known sender at its own address has a bucket of its own. Everything else that claims a known name shares one, so
//! that copies from forged addresses can neither cost much nor push the true sender's datagrams out.

use std::collections::BTreeMap;
use std::net::IpAddr;

use coroner_agent_core::Known;
use coroner_shared::rate::{Bucket, Rate};
use coroner_shared::time::Mono;
use coroner_shared::wire::datagram::Sender;

/// A peer that is subject and observer sends about 10 datagrams a second, a replica with many questions 30.
const PER_SENDER: Rate = Rate { per_second: 50, burst: 100 };
/// All that comes from addresses other than the sender's own.
const ELSEWHERE: Rate = Rate { per_second: 50, burst: 50 };
/// Senders remembered; a slice names at most 9 + 9 + a few.
const SENDERS_MAX: usize = 64;

/// All buckets.
#[derive(Debug, Default)]
pub(crate) struct Limiter {
    senders: BTreeMap<Sender, Bucket>,
    elsewhere: Option<Bucket>,
}

// === impl Limiter ===

impl Limiter {
    /// Whether one more datagram of this sender may be checked.
    pub(crate) fn allows(&mut self, now: Mono, sender: &Sender, known: Known, from: IpAddr) -> bool {
        if from != known.address {
            return self.allows_elsewhere(now);
        }
        if !self.senders.contains_key(sender) && self.senders.len() >= SENDERS_MAX {
            self.senders.clear();
        }
        self.senders.entry(sender.clone()).or_insert(Bucket::full(now, PER_SENDER)).take(now, PER_SENDER)
    }

    /// Whether one more datagram from an address that is nobody's may be looked at.
    pub(crate) fn allows_elsewhere(&mut self, now: Mono) -> bool {
        self.elsewhere.get_or_insert(Bucket::full(now, ELSEWHERE)).take(now, ELSEWHERE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use coroner_shared::id::NodeUid;
    use coroner_shared::keys::PublicKey;

    fn sender(n: u32) -> Sender {
        Sender::Node(NodeUid::new(format!("uid-{n}")).unwrap())
    }

    fn known() -> Known {
        Known { key: PublicKey::from_bytes([1; 32]), address: home() }
    }

    fn home() -> IpAddr {
        "10.0.0.1".parse().unwrap()
    }

    /// Sends `count` datagrams, one each millisecond, and counts what passes.
    fn pass(limiter: &mut Limiter, n: u32, from: IpAddr, start: u64, count: u64) -> usize {
        (0..count).filter(|i| limiter.allows(Mono::from_ms(start + i), &sender(n), known(), from)).count()
    }

    #[test]
    fn a_flood_passes_its_burst_and_then_its_rate() {
        let mut limiter = Limiter::default();
        assert_eq!(pass(&mut limiter, 1, home(), 0, 100), 100);
        assert_eq!(pass(&mut limiter, 1, home(), 100, 10_000), 504);
        assert_eq!(pass(&mut limiter, 1, home(), 100_000, 100), 100, "quiet time fills the bucket again");
    }

    #[test]
    fn a_flood_under_a_peers_name_does_not_push_the_peer_out() {
        let mut limiter = Limiter::default();
        let forged = (0..10_000).filter(|i: &u64| {
            let from = IpAddr::from([10, 1, u8::try_from(i / 250).unwrap(), 1]);
            limiter.allows(Mono::from_ms(i / 10), &sender(1), known(), from)
        });
        assert_eq!(forged.count(), 99, "all addresses share one bucket");
        assert_eq!(pass(&mut limiter, 1, home(), 1000, 10), 10);
    }

    #[test]
    fn memory_is_bounded() {
        let mut limiter = Limiter::default();
        for n in 0..1000 {
            pass(&mut limiter, n, home(), 0, 1);
        }
        assert!(limiter.senders.len() <= SENDERS_MAX);
    }
}
