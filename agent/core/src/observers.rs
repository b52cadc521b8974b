//! The hosts that listen to this agent: when to send them beacons, and whether they say that they hear it.
//!
//! Beacons to the observers, statuses to the replicas and acks to the subjects leave in the same tick, so that a
//! replica holds the same beacon as the observers do and not an older one (with timers of their own, 13 % of deaths
//! had a replica's date later than every observer's).

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use coroner_shared::beacon::Ack;
use coroner_shared::id::NodeUid;
use coroner_shared::names::PORT_PEER;
use coroner_shared::slice::{Peer, Timings};
use coroner_shared::time::{Mono, Span};
use coroner_shared::wire::SUBJECTS_MAX;

use crate::chance::Chance;

/// An observer that says it heard a beacon this young hears this host (three acks may be lost).
const HEARS_WITHIN: Span = Span::from_ms(3500);

/// All observers of the slice, and the clock of what goes out.
#[derive(Debug, Default)]
pub(crate) struct Observers {
    all: BTreeMap<NodeUid, Observer>,
    assigned: Mono,
    next_beacon: Mono,
    last_status: Option<Mono>,
}

#[derive(Debug)]
struct Observer {
    address: IpAddr,
    /// Time of the newest beacon that it says it heard. Not the time of its ack: an old ack sent again proves nothing.
    heard: Option<Mono>,
    rtt: Option<Span>,
}

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Due {
    /// Nothing yet.
    Nothing,
    /// A beacon to the observers.
    Beacon,
    /// That, a status to the replicas, and acks to the subjects.
    BeaconAndStatus,
}

// === impl Observers ===

impl Observers {
    /// Takes the observers of a new slice; the next beacon goes at once if this is the first.
    pub(crate) fn assign(&mut self, now: Mono, peers: &[Peer]) {
        if self.all.is_empty() {
            self.assigned = now;
        }
        if self.last_status.is_none() {
            self.next_beacon = now;
        }
        let mut before = std::mem::take(&mut self.all);
        for peer in peers.iter().take(SUBJECTS_MAX) {
            let (heard, rtt) = before.remove(&peer.node).map_or((None, None), |o| (o.heard, o.rtt));
            self.all.insert(peer.node.clone(), Observer { address: peer.address, heard, rtt });
        }
    }

    /// An observer says that it hears this host. `seq` of our beacons is our own clock, so the way there and back is
    /// now, less the beacon's time, less the time that the observer held it.
    pub(crate) fn acked(&mut self, now: Mono, from: &NodeUid, ack: Ack) {
        let Some(observer) = self.all.get_mut(from) else { return };
        let sent = Mono::from_ms(ack.seq);
        // Nobody can have heard what was not yet sent.
        if sent <= now && observer.heard.is_none_or(|heard| sent > heard) {
            observer.heard = Some(sent);
            observer.rtt = Some(now.since(sent).saturating_sub(ack.held));
        }
    }

    /// What is due now; sets the time of the next.
    pub(crate) fn tick(&mut self, now: Mono, timings: &Timings, chance: &mut Chance) -> Due {
        if now < self.next_beacon {
            return Due::Nothing;
        }
        // From the planned time, so that late ticks do not slow the beat; what was missed is not made up for.
        let planned = self.next_beacon + chance.jitter(timings.beacon);
        self.next_beacon = if planned > now { planned } else { now + chance.jitter(timings.beacon) };
        // A status takes the beacon tick nearest to its time.
        let half = Span::from_ms(timings.beacon.as_ms() / 2);
        match self.last_status {
            Some(last) if now.since(last) + half < timings.status => Due::Beacon,
            Some(_) | None => {
                self.last_status = Some(now);
                Due::BeaconAndStatus
            }
        }
    }

    pub(crate) const fn due(&self) -> Mono {
        self.next_beacon
    }

    /// Where beacons go.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.all.values().map(|o| SocketAddr::new(o.address, PORT_PEER)).collect()
    }

    pub(crate) fn count(&self) -> usize {
        self.all.len()
    }

    /// How many said lately that they hear this host.
    pub(crate) fn hearing(&self, now: Mono) -> usize {
        let lately = |o: &&Observer| o.heard.is_some_and(|at| now.since(at) <= HEARS_WITHIN);
        self.all.values().filter(lately).count()
    }

    /// The longest of the newest round trips.
    pub(crate) fn rtt_max(&self) -> Option<Span> {
        self.all.values().filter_map(|o| o.rtt).max()
    }

    /// Whether there are observers, they had time to answer, and none did.
    pub(crate) fn alone(&self, now: Mono) -> bool {
        !self.all.is_empty() && now.since(self.assigned) > HEARS_WITHIN && self.hearing(now) == 0
    }
}
