//! Signs of life of one host, as one replica holds them.
//!
//! ```text
//!   beacons first-hand, beacons that others bring, registrations, traffic of its replica --> Hearing
//!     --> the newest of each, and whether two machines use one identity
//! ```
//!
//! A beacon is a proof of life only if it is newer than any that its bringer has brought before, and newer than what
//! enough observers to condemn the node say they have already (see [`super::Witness`]). Each bringer has its own mark,
//! because a single mark would let one lying observer suppress a living host: by telling each beacon first, with a
//! false age.

use coroner_shared::mutant::{Mutant, planted};

use std::collections::BTreeMap;
use std::net::IpAddr;

use coroner_shared::health::HealthSummary;
use coroner_shared::id::{BootId, NodeName};
use coroner_shared::keys::PublicKey;
use coroner_shared::time::{Mono, Span};

/// Boots and addresses followed per host; more than a clone and a reboot together show.
const TRACKS_MAX: usize = 4;
/// Keys followed per host: the committed one, the one before, and room for a mistake.
const KEYS_MAX: usize = 4;
/// For how long a key is remembered after it spoke.
const KEY_KEPT: Span = Span::from_mins(2);
/// Bringers remembered per host: its observers and probers.
const BRINGERS_MAX: usize = 24;
/// Two boots or addresses that both go on for longer than this are two machines.
const OVERLAP: Span = Span::from_secs(10);
/// A boot or address that was not heard for so long is over, and with it what it showed.
const TRACK_KEPT: Span = Span::from_secs(60);

/// All of one host.
#[derive(Clone, Debug, Default)]
pub(super) struct Hearing {
    tracks: Vec<Track>,
    brought: BTreeMap<NodeName, Mark>,
    registered: Option<(BootId, Mono)>,
    traffic: Option<Mono>,
    keys: BTreeMap<PublicKey, Mono>,
    pub(super) health: HealthSummary,
}

/// The newest beacon from one bringer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    pub(super) boot: BootId,
    pub(super) seq: u64,
    /// When it was first received.
    pub(super) at: Mono,
}

/// Beacons of one boot from one address.
#[derive(Clone, Debug)]
struct Track {
    address: Option<IpAddr>,
    first: Mono,
    mark: Mark,
}

// === impl Hearing ===

impl Hearing {
    /// A beacon that came to this replica itself. `false` if it is no newer than those before.
    pub(super) fn first_hand(&mut self, mark: Mark, address: Option<IpAddr>, health: HealthSummary) -> bool {
        let seen = self.tracks.iter().filter(|t| t.mark.boot == mark.boot).map(|t| t.mark.seq).max();
        if seen.is_some_and(|seq| seq >= mark.seq) && !planted(Mutant::ReplayVetoes) {
            return false;
        }
        self.health = health;
        self.tracks.retain(|t| mark.at.since(t.mark.at) < TRACK_KEPT);
        let full = self.tracks.len() >= TRACKS_MAX;
        let same = |t: &Track| t.mark.boot == mark.boot && t.address == address;
        if let Some(track) = self.tracks.iter_mut().find(|t| same(t)) {
            track.mark = mark;
            return true;
        }
        let track = Track { address, first: mark.at, mark };
        match self.tracks.iter_mut().min_by_key(|t| t.mark.at).filter(|_| full) {
            Some(oldest) => *oldest = track,
            None => self.tracks.push(track),
        }
        true
    }

    /// A beacon that another agent brought. `false` if that agent brought a newer one before.
    pub(super) fn brought(&mut self, by: &NodeName, mark: Mark) -> bool {
        match self.brought.get_mut(by) {
            Some(before) if is_replayed(before, &mark) => return false,
            Some(before) => *before = mark,
            None => {
                if self.brought.len() >= BRINGERS_MAX
                    && let Some(oldest) =
                        self.brought.iter().min_by_key(|(_, m)| m.at).map(|(n, _)| n.clone())
                {
                    self.brought.remove(&oldest);
                }
                self.brought.insert(by.clone(), mark);
            }
        }
        true
    }

    /// Notes which key spoke.
    pub(super) fn spoke(&mut self, key: PublicKey, now: Mono) {
        self.keys.retain(|_, at| now.since(*at) <= KEY_KEPT);
        if self.keys.len() < KEYS_MAX || self.keys.contains_key(&key) {
            self.keys.insert(key, now);
        }
    }

    /// The keys that spoke lately.
    pub(super) fn keys(&self) -> impl Iterator<Item = (PublicKey, Mono)> {
        self.keys.iter().map(|(key, at)| (*key, *at))
    }

    pub(super) fn registered(&mut self, boot: BootId, now: Mono) {
        self.registered = Some((boot, now));
    }

    pub(super) const fn traffic(&mut self, now: Mono) {
        self.traffic = Some(now);
    }

    /// Forgets beacons of boots that are over.
    pub(super) fn forget(&mut self, over: impl Fn(&BootId) -> bool) {
        self.tracks.retain(|t| !over(&t.mark.boot));
        self.brought.retain(|_, m| !over(&m.boot));
        self.registered = self.registered.filter(|(boot, _)| !over(boot));
    }

    /// The newest beacon first-hand.
    pub(super) fn newest(&self) -> Option<Mark> {
        self.tracks.iter().map(|t| t.mark).max_by_key(|m| m.at)
    }

    /// The newest beacon of each bringer.
    pub(super) fn brought_marks(&self) -> impl Iterator<Item = (&NodeName, Mark)> {
        self.brought.iter().map(|(by, mark)| (by, *mark))
    }

    pub(super) const fn registration(&self) -> Option<(BootId, Mono)> {
        self.registered
    }

    pub(super) const fn last_traffic(&self) -> Option<Mono> {
        self.traffic
    }

    /// The latest proof of life of any kind.
    pub(super) fn latest(&self) -> Option<Mono> {
        let brought = self.brought.values().map(|m| m.at);
        let own = self.newest().map(|m| m.at).into_iter();
        own.chain(brought).chain(self.registered.map(|(_, at)| at)).chain(self.traffic).max()
    }

    /// Whether two boots or two addresses went on side by side for more than 10 s, both until lately.
    pub(super) fn is_duplicate(&self, now: Mono) -> bool {
        let lately = |t: &&Track| now.since(t.mark.at) < TRACK_KEPT;
        let tracks: Vec<&Track> = self.tracks.iter().filter(lately).collect();
        tracks.iter().enumerate().any(|(i, a)| {
            tracks.iter().skip(i + 1).any(|b| a.mark.at.min(b.mark.at).since(a.first.max(b.first)) > OVERLAP)
        })
    }
}

// === helpers ===

/// No newer than what the same bringer brought before.
fn is_replayed(before: &Mark, mark: &Mark) -> bool {
    before.boot == mark.boot && before.seq >= mark.seq && !planted(Mutant::ReplayVetoes)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: BootId = BootId::from_bytes([1; 16]);
    const B: BootId = BootId::from_bytes([2; 16]);

    fn mark(boot: BootId, seq: u64, at_s: u64) -> Mark {
        Mark { boot, seq, at: Mono::from_ms(at_s * 1000) }
    }

    fn name(n: &str) -> NodeName {
        n.parse().unwrap()
    }

    #[test]
    fn only_newer_beacons_count_first_hand() {
        let mut hearing = Hearing::default();
        assert!(hearing.first_hand(mark(A, 5, 1), None, HealthSummary::GOOD));
        assert!(!hearing.first_hand(mark(A, 5, 2), None, HealthSummary::GOOD), "the same again");
        assert!(!hearing.first_hand(mark(A, 4, 2), None, HealthSummary::GOOD), "an older one");
        let elsewhere = Some(IpAddr::from([10, 0, 0, 9]));
        assert!(!hearing.first_hand(mark(A, 4, 2), elsewhere, HealthSummary::GOOD), "also from elsewhere");
        assert_eq!(hearing.latest(), Some(Mono::from_ms(1000)));
        assert!(hearing.first_hand(mark(A, 6, 3), None, HealthSummary::KUBELET_DEAD));
        assert!(hearing.first_hand(mark(B, 1, 4), None, HealthSummary::GOOD), "a new boot counts anew");
        assert_eq!(hearing.newest(), Some(mark(B, 1, 4)));
    }

    #[test]
    fn one_bringer_cannot_spoil_another() {
        let mut hearing = Hearing::default();
        assert!(hearing.brought(&name("liar"), mark(A, 900, 1)));
        assert!(hearing.brought(&name("honest"), mark(A, 500, 7)), "though somebody told of a newer one");
        assert!(!hearing.brought(&name("honest"), mark(A, 500, 8)));
        assert_eq!(hearing.latest(), Some(Mono::from_ms(7000)));
        assert!(hearing.first_hand(mark(A, 400, 9), None, HealthSummary::GOOD));
        assert_eq!(hearing.latest(), Some(Mono::from_ms(9000)));
    }

    #[test]
    fn every_kind_of_proof_counts_and_forgotten_boots_do_not() {
        let mut hearing = Hearing::default();
        hearing.registered(A, Mono::from_ms(2));
        assert_eq!(hearing.latest(), Some(Mono::from_ms(2)));
        hearing.traffic(Mono::from_ms(3));
        assert_eq!(hearing.latest(), Some(Mono::from_ms(3)));
        hearing.brought(&name("n2"), mark(A, 1, 1));
        hearing.first_hand(mark(A, 1, 2), None, HealthSummary::GOOD);
        hearing.forget(|boot| *boot == A);
        assert_eq!(hearing.latest(), Some(Mono::from_ms(3)), "traffic names no boot");
        assert_eq!(hearing.registration(), None);
    }

    #[track_caller]
    fn check_duplicate(until_s: u64, now_s: u64, expected: bool) {
        let mut hearing = Hearing::default();
        for s in 0..=until_s {
            hearing.first_hand(mark(A, 100 + s, s), None, HealthSummary::GOOD);
            hearing.first_hand(mark(B, 100 + s, s), None, HealthSummary::GOOD);
        }
        assert_eq!(hearing.is_duplicate(Mono::from_ms(now_s * 1000)), expected, "{until_s} {now_s}");
    }

    #[test]
    fn two_boots_side_by_side_for_more_than_ten_seconds_are_two_machines() {
        check_duplicate(10, 10, false);
        check_duplicate(11, 11, true);
        check_duplicate(11, 70, true);
        check_duplicate(11, 71, false);
        let mut reboot = Hearing::default();
        for s in 0..100 {
            reboot.first_hand(mark(A, s, s), None, HealthSummary::GOOD);
        }
        for s in 100..200 {
            reboot.first_hand(mark(B, s, s), None, HealthSummary::GOOD);
        }
        assert!(!reboot.is_duplicate(Mono::from_ms(130_000)), "one after the other is a reboot");
    }

    #[test]
    fn two_addresses_with_newer_and_newer_beacons_are_two_machines() {
        let (mut hearing, mut moved) = (Hearing::default(), Hearing::default());
        for s in 0..30_u64 {
            let address = Some(IpAddr::from([10, 0, 0, u8::try_from(s % 2).unwrap()]));
            hearing.first_hand(mark(A, s, s), address, HealthSummary::GOOD);
            let address = Some(IpAddr::from([10, 0, 0, u8::from(s > 15)]));
            moved.first_hand(mark(A, s, s), address, HealthSummary::GOOD);
        }
        assert!(hearing.is_duplicate(Mono::from_ms(30_000)));
        assert!(!moved.is_duplicate(Mono::from_ms(30_000)), "a host that changed its address");
    }

    #[test]
    fn memory_is_bounded() {
        let mut hearing = Hearing::default();
        for i in 0..100_u8 {
            hearing.first_hand(mark(BootId::from_bytes([i; 16]), 1, u64::from(i)), None, HealthSummary::GOOD);
            hearing.brought(&name(&format!("n{i}")), mark(A, 1, u64::from(i)));
        }
        assert!(hearing.tracks.len() <= 4 && hearing.brought.len() <= 24);
        assert_eq!(hearing.latest(), Some(Mono::from_ms(99_000)));
    }
}
