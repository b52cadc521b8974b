//! Deals observers to subjects: keeps the edges of those who stay, fills what is missing, lets a newcomer relieve
//! others.
//!
//! ```text
//!   Table after the changes --trim--> --fill--> --relieve--> Table
//! ```
//!
//! Works on positions in the sorted list of names; names enter once as a hash, so that ties fall differently for each
//! pair and the union of all edges is an expander and no ring.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::table::Table;
use super::{K_MAX, OTHERS_WANTED};

/// What a join may move: its own observers, and as many subjects that it takes over.
const EDGES_PER_JOIN: usize = 2 * K_MAX;

// === impl Table ===

impl Table {
    /// Gives everybody what it lacks now, and those who joined their share.
    pub(super) fn deal(&mut self, joined: &[usize]) {
        self.trim();
        self.moved = 0;
        for subject in 0..self.places.len() {
            self.fill(subject);
        }
        for newcomer in joined {
            self.relieve(*newcomer, EDGES_PER_JOIN * joined.len());
        }
    }

    /// How many of a subject's observers sit in this domain.
    fn crowd(&self, subject: usize, domain: usize) -> usize {
        self.observers(subject).iter().filter(|o| self.domain(**o) == domain).count()
    }

    /// Gives a subject in service the observers it lacks. One out of service keeps what it has: it registers anew
    /// before it counts again.
    fn fill(&mut self, subject: usize) {
        if !self.in_service(subject) {
            return;
        }
        while self.observers(subject).len() < self.k {
            let found = self.best_observer(subject).or_else(|| self.make_room(subject));
            let Some(observer) = found else { return };
            if self.load(observer) > self.k {
                self.drop_idle(observer);
            }
            self.link(subject, observer);
        }
    }

    /// The best observer with room: on the side that is short, in the domain least used, not beyond k, few strides
    /// away, least loaded.
    fn best_observer(&self, subject: usize) -> Option<usize> {
        let own = self.domain(subject);
        let own_now = self.crowd(subject, own);
        let others_now = self.observers(subject).len() - own_now;
        let (own_short, others_short) = (own_now < K_MAX - OTHERS_WANTED, others_now < OTHERS_WANTED);
        let mut best: Option<(Rank, usize)> = None;
        for candidate in self.candidates(subject) {
            let load = self.load(candidate);
            let domain = self.domain(candidate);
            let short = if domain == own { own_short } else { others_short };
            let rank = (!short, self.crowd(subject, domain), load >= self.k);
            // Most are out by this much; what costs more is only asked of the others.
            if best.as_ref().is_some_and(|((best, _), _)| rank > *best) {
                continue;
            }
            if load > self.k && self.idle_subject(candidate).is_none() {
                continue;
            }
            let rank = (rank, (self.strides(subject, candidate), load, self.tie(subject, candidate)));
            if best.as_ref().is_none_or(|(best, _)| rank < *best) {
                best = Some((rank, candidate));
            }
        }
        best.map(|(_, candidate)| candidate)
    }

    fn candidates(&self, subject: usize) -> impl Iterator<Item = usize> {
        let taken = self.observers(subject);
        (0..self.places.len()).filter(move |c| *c != subject && self.in_service(*c) && !taken.contains(c))
    }

    /// A subject out of service that this observer still hears: it gives way to one in service.
    fn idle_subject(&self, observer: usize) -> Option<usize> {
        self.subjects(observer).iter().copied().filter(|s| !self.in_service(*s)).min()
    }

    /// Where k has fallen, an observer gives up subjects out of service until it bears at most k + 1.
    fn trim(&mut self) {
        for observer in 0..self.places.len() {
            while self.load(observer) > self.k + 1 && self.idle_subject(observer).is_some() {
                self.drop_idle(observer);
            }
        }
    }

    fn drop_idle(&mut self, observer: usize) {
        if let Some(idle) = self.idle_subject(observer) {
            self.unlink(idle, observer);
        }
    }

    /// All that could observe the subject are full, and those with room observe it already: somebody with room takes
    /// over a subject of a full one.
    fn make_room(&mut self, subject: usize) -> Option<usize> {
        let with_room: Vec<usize> = self.observers(subject).iter().copied().chain([subject]).collect();
        let with_room = with_room.into_iter().filter(|w| self.in_service(*w) && self.load(*w) <= self.k);
        for taker in with_room.collect::<Vec<_>>() {
            let gives = |full: usize| {
                let free = |other: &usize| *other != taker && !self.observers(*other).contains(&taker);
                self.subjects(full).iter().copied().filter(free).min()
            };
            let found = self.candidates(subject).find_map(|full| Some((full, gives(full)?)));
            if let Some((full, other)) = found {
                self.unlink(other, full);
                self.link(other, taker);
                return Some(full);
            }
        }
        None
    }

    /// Lets a newcomer take over subjects until it bears its share: first where that improves the spread, then from
    /// those who bear most.
    fn relieve(&mut self, newcomer: usize, moved_max: usize) {
        if !self.in_service(newcomer) {
            return;
        }
        let share = self.load(newcomer);
        let subjects = (0..self.places.len()).filter(|s| *s != newcomer && self.in_service(*s));
        let offers = subjects.filter_map(|subject| self.best_offer(newcomer, subject));
        // Loads of others only fall and its own only rises, so what is no relief now never will be.
        let relieves = |offer: &Offer| offer.gain.improves() || self.load(offer.from) > share + 1;
        let offers: Vec<Reverse<Offer>> = offers.filter(relieves).map(Reverse).collect();
        let mut offers = BinaryHeap::from(offers);
        while let Some(Reverse(offer)) = offers.pop() {
            let share = self.load(newcomer);
            if share >= self.k || self.moved >= moved_max {
                return;
            }
            if offer.gain.improves() || self.load(offer.from) > share + 1 {
                self.unlink(offer.subject, offer.from);
                self.link(offer.subject, newcomer);
            }
        }
    }

    /// The best that it would mean if the newcomer took this subject from one of its observers; `None` if it observes
    /// it already, or any change made the spread worse.
    fn best_offer(&self, newcomer: usize, subject: usize) -> Option<Offer> {
        let observers = self.observers(subject);
        if observers.contains(&newcomer) {
            return None;
        }
        let (own, new) = (self.domain(subject), self.domain(newcomer));
        let own_now = self.crowd(subject, own);
        let others_now = observers.len() - own_now;
        let crowd_new = self.crowd(subject, new);
        let gain = |from: usize| {
            let old = self.domain(from);
            Some(match (old == own, new == own) {
                (true, false) if others_now < OTHERS_WANTED => Gain::Side,
                (false, true) if own_now < K_MAX - OTHERS_WANTED && others_now > OTHERS_WANTED => Gain::Side,
                (true, true) => Gain::Load,
                (false, false) if old == new => Gain::Load,
                (false, false) => match self.crowd(subject, old).checked_sub(crowd_new) {
                    Some(2..) => Gain::Spread,
                    Some(1) => Gain::Load,
                    Some(0) | None => return None,
                },
                (true, false) | (false, true) => return None,
            })
        };
        let offers =
            observers.iter().filter_map(|from| Some((gain(*from)?, Reverse(self.load(*from)), *from)));
        let (gain, load, from) = offers.min()?;
        let (strides, tie) = (self.strides(subject, newcomer), self.tie(subject, newcomer));
        Some(Offer { gain, load, strides, tie, subject, from })
    }
}

/// Short side, crowd of the domain, full; then strides, load, tie.
type Rank = ((bool, usize, bool), (usize, usize, u64));

/// A subject that a newcomer could take over, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Offer {
    gain: Gain,
    load: Reverse<usize>,
    strides: usize,
    tie: u64,
    subject: usize,
    from: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Gain {
    /// The subject gets nearer to 6 others and 2 of its own domain.
    Side,
    /// Its observers come from more domains.
    Spread,
    /// Only the load is shared better.
    Load,
}

impl Gain {
    const fn improves(self) -> bool {
        match self {
            Self::Side | Self::Spread => true,
            Self::Load => false,
        }
    }
}
