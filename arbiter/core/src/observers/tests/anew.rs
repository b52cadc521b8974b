//! The reference that the graph is held against: everybody is dealt anew at each step, from what was before and what is
//! now. Plain and slow (milliseconds for a thousand members); what `table` and `deal` change in place must be the same.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use coroner_shared::id::NodeName;

use super::super::table::{hash, inverse, mix, stride};
use super::{K_MAX, OTHERS_WANTED, Seat};

/// What a join may move: its own observers, and as many subjects that it takes over.
const EDGES_PER_JOIN: usize = 2 * K_MAX;

/// Observers and subjects of one node.
type Edges = (Vec<NodeName>, Vec<NodeName>);

/// The graph for `now`, from the graph `before`.
pub(super) fn deal(
    before: &BTreeMap<NodeName, Seat>,
    now: &BTreeMap<NodeName, Seat>,
) -> BTreeMap<NodeName, Edges> {
    let names: Vec<&NodeName> = now.keys().collect();
    let position: BTreeMap<&NodeName, usize> = names.iter().enumerate().map(|(i, n)| (*n, i)).collect();
    let mut deal = Deal::new(now);
    let mut joined = Vec::new();
    for (subject, (name, seat)) in now.iter().enumerate() {
        // Whoever moves to another domain starts anew, since all choices made for it rest on the old one.
        let stays = |s: &Seat, n: &NodeName| before.get(n).is_some_and(|old| old.domain == s.domain);
        match before.get(name) {
            Some(old) if stays(seat, name) => {
                let kept = old.observers.iter().filter_map(|o| position.get(o).copied());
                let kept =
                    kept.filter(|o| names.get(*o).is_some_and(|n| now.get(*n).is_some_and(|s| stays(s, n))));
                for observer in kept.filter(|o| deal.in_service(*o)).collect::<Vec<_>>() {
                    deal.link(subject, observer);
                }
                if seat.in_service && !old.in_service {
                    joined.push(subject);
                }
            }
            Some(_) | None => joined.push(subject),
        }
    }
    deal.trim();
    deal.moved = 0;
    for subject in 0..names.len() {
        deal.fill(subject);
    }
    let moved_max = EDGES_PER_JOIN * joined.len();
    for newcomer in joined {
        deal.relieve(newcomer, moved_max);
    }
    deal.edges(&names)
}

struct Deal {
    places: Vec<Place>,
    domains: usize,
    /// Multiplies a difference of domains into the number of strides between them.
    inverse: usize,
    k: usize,
    /// Members out of service.
    idle: Vec<usize>,
    /// Edges made in this step.
    moved: usize,
}

struct Place {
    hash: u64,
    domain: usize,
    in_service: bool,
    observers: Vec<usize>,
    /// How many subjects it has.
    load: usize,
}

// === impl Deal ===

impl Deal {
    fn new(seats: &BTreeMap<NodeName, Seat>) -> Self {
        let names: BTreeSet<&str> = seats.values().map(|s| s.domain.as_str()).collect();
        let index: BTreeMap<&str, usize> = names.iter().enumerate().map(|(i, d)| (*d, i)).collect();
        let places: Vec<Place> = seats
            .iter()
            .map(|(name, seat)| Place {
                hash: hash(name.as_str()),
                domain: index.get(seat.domain.as_str()).copied().unwrap_or(0),
                in_service: seat.in_service,
                observers: Vec::new(),
                load: 0,
            })
            .collect();
        let serving = places.iter().filter(|p| p.in_service).count();
        let k = K_MAX.min(serving.saturating_sub(1));
        let idle = (0..).zip(&places).filter(|(_, p)| !p.in_service).map(|(i, _)| i).collect();
        Self {
            places,
            domains: names.len(),
            inverse: inverse(stride(names.len()), names.len()),
            k,
            idle,
            moved: 0,
        }
    }

    fn in_service(&self, place: usize) -> bool {
        self.places.get(place).is_some_and(|p| p.in_service)
    }

    fn load(&self, observer: usize) -> usize {
        self.places.get(observer).map_or(usize::MAX, |p| p.load)
    }

    fn observers(&self, subject: usize) -> &[usize] {
        self.places.get(subject).map_or(&[], |p| &p.observers)
    }

    fn domain(&self, place: usize) -> usize {
        self.places.get(place).map_or(0, |p| p.domain)
    }

    fn link(&mut self, subject: usize, observer: usize) {
        self.moved += 1;
        if let Some(p) = self.places.get_mut(subject) {
            p.observers.push(observer);
        }
        if let Some(p) = self.places.get_mut(observer) {
            p.load += 1;
        }
    }

    fn unlink(&mut self, subject: usize, observer: usize) {
        if let Some(p) = self.places.get_mut(subject) {
            p.observers.retain(|o| *o != observer);
        }
        if let Some(p) = self.places.get_mut(observer) {
            p.load = p.load.saturating_sub(1);
        }
    }

    /// How many of a subject's observers sit in this domain.
    fn crowd(&self, subject: usize, domain: usize) -> usize {
        self.observers(subject).iter().filter(|o| self.domain(**o) == domain).count()
    }

    /// Strides from the subject's domain to the observer's.
    fn strides(&self, subject: usize, observer: usize) -> usize {
        let (from, to) = (self.domain(subject), self.domain(observer));
        (to + self.domains - from) * self.inverse % self.domains.max(1)
    }

    fn tie(&self, subject: usize, observer: usize) -> u64 {
        let of = |p: usize| self.places.get(p).map_or(0, |p| p.hash);
        mix(of(subject) ^ of(observer).rotate_left(32))
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
        let short_of = |candidate: usize| {
            if self.domain(candidate) == own {
                own_now < K_MAX - OTHERS_WANTED
            } else {
                others_now < OTHERS_WANTED
            }
        };
        self.candidates(subject)
            .filter(|c| self.load(*c) <= self.k || self.idle_subject(*c).is_some())
            .min_by_key(|c| {
                let full = self.load(*c) >= self.k;
                let crowd = self.crowd(subject, self.domain(*c));
                (!short_of(*c), crowd, full, self.strides(subject, *c), self.load(*c), self.tie(subject, *c))
            })
    }

    fn candidates(&self, subject: usize) -> impl Iterator<Item = usize> {
        (0..self.places.len())
            .filter(move |c| *c != subject && self.in_service(*c) && !self.observers(subject).contains(c))
    }

    /// A subject out of service that this observer still hears: it gives way to one in service.
    fn idle_subject(&self, observer: usize) -> Option<usize> {
        self.idle.iter().copied().find(|p| self.observers(*p).contains(&observer))
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
            for full in self.candidates(subject).collect::<Vec<_>>() {
                let movable = (0..self.places.len()).find(|other| {
                    *other != taker
                        && self.observers(*other).contains(&full)
                        && !self.observers(*other).contains(&taker)
                });
                if let Some(other) = movable {
                    self.unlink(other, full);
                    self.link(other, taker);
                    return Some(full);
                }
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
        let mut offers: Vec<Offer> = Vec::new();
        for subject in (0..self.places.len()).filter(|s| *s != newcomer && self.in_service(*s)) {
            if self.observers(subject).contains(&newcomer) {
                continue;
            }
            let best = self.observers(subject).iter().filter_map(|o| self.offer(newcomer, subject, *o)).min();
            offers.extend(best);
        }
        offers.sort_unstable();
        for offer in offers {
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

    /// What it would mean if the newcomer took this subject from this observer; `None` if that made the spread worse.
    fn offer(&self, newcomer: usize, subject: usize, from: usize) -> Option<Offer> {
        let own = self.domain(subject);
        let own_now = self.crowd(subject, own);
        let others_now = self.observers(subject).len() - own_now;
        let (old, new) = (self.domain(from), self.domain(newcomer));
        let gain = match (old == own, new == own) {
            (true, false) if others_now < OTHERS_WANTED => Gain::Side,
            (false, true) if own_now < K_MAX - OTHERS_WANTED && others_now > OTHERS_WANTED => Gain::Side,
            (true, true) => Gain::Load,
            (false, false) if old == new => Gain::Load,
            (false, false) => match self.crowd(subject, old).checked_sub(self.crowd(subject, new)) {
                Some(2..) => Gain::Spread,
                Some(1) => Gain::Load,
                Some(0) | None => return None,
            },
            (true, false) | (false, true) => return None,
        };
        let (load, tie) = (Reverse(self.load(from)), self.tie(subject, newcomer));
        Some(Offer { gain, load, strides: self.strides(subject, newcomer), tie, subject, from })
    }

    fn edges(&self, names: &[&NodeName]) -> BTreeMap<NodeName, Edges> {
        let mut edges: BTreeMap<NodeName, Edges> =
            names.iter().map(|n| ((*n).clone(), Edges::default())).collect();
        for (subject, place) in names.iter().zip(&self.places) {
            for observer in place.observers.iter().filter_map(|o| names.get(*o)) {
                if let Some(e) = edges.get_mut(*subject) {
                    e.0.push((*observer).clone());
                }
                if let Some(e) = edges.get_mut(*observer) {
                    e.1.push((*subject).clone());
                }
            }
        }
        for (observers, subjects) in edges.values_mut() {
            observers.sort_unstable();
            subjects.sort_unstable();
        }
        edges
    }
}

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

/// Whether an agent's slice reads differently now.
pub(super) fn slice_differs(
    new: &Seat,
    old: &Seat,
    now: &BTreeMap<NodeName, Seat>,
    before: &BTreeMap<NodeName, Seat>,
) -> bool {
    let peer_of = |all: &BTreeMap<NodeName, Seat>, n: &NodeName| all.get(n).map(|s| s.peer.clone());
    new.peer != old.peer
        || new.timings != old.timings
        || new.observers != old.observers
        || new.subjects != old.subjects
        || new.observers.iter().chain(&new.subjects).any(|n| peer_of(now, n) != peer_of(before, n))
}
