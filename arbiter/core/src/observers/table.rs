//! The graph by position instead of by name, kept from change to change so that one member's join, leave or release
//! costs what it touches and a few passes over numbers, not a deal for everybody.
//!
//! ```text
//!   Changes (by name) --> Table: unlink what ends --> deal.rs: trim, fill, relieve --> whose edges may differ now
//! ```
//!
//! Derived from the seats: it is not written, compared or copied with the state, and is made anew where it is missing
//! (after a snapshot was read). Positions follow the names' order, so that the graph does not depend on the way here.

use std::collections::BTreeMap;

use coroner_shared::id::NodeName;

use super::{K_MAX, Seat};

/// A stride through the domains near the golden section reaches every region of a row of racks with few steps, so
/// that neighbouring racks that die together do not take all observers of a subject along.
const STRIDE_PERCENT: usize = 38;

/// What the graph must know of a member: its domain, and whether it may observe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Facts {
    pub(super) domain: String,
    pub(super) in_service: bool,
}

/// Who came, went or changed: what is so now; `None`: no member any more.
pub(super) type Changes = BTreeMap<NodeName, Option<Facts>>;

/// Names of observers and subjects of one node, each sorted.
pub(super) type Edges = (Vec<NodeName>, Vec<NodeName>);

/// Members by position.
#[derive(Debug)]
pub(super) struct Table {
    names: Vec<NodeName>,
    pub(super) places: Vec<Place>,
    /// All domains, sorted, each with its members.
    domains: Vec<(String, usize)>,
    /// Multiplies a difference of domains into the number of strides between them.
    inverse: usize,
    /// Members in service.
    serving: usize,
    /// Observers of each subject.
    pub(super) k: usize,
    /// Edges made in this step.
    pub(super) moved: usize,
}

/// One member.
#[derive(Debug)]
pub(super) struct Place {
    hash: u64,
    pub(super) domain: usize,
    pub(super) in_service: bool,
    /// By position, sorted between steps.
    pub(super) observers: Vec<usize>,
    pub(super) subjects: Vec<usize>,
    /// Whether an edge of it was made or taken in this step.
    touched: bool,
}

// === impl Table ===

impl Table {
    /// The table of a graph as it stands.
    pub(super) fn of(seats: &BTreeMap<NodeName, Seat>) -> Self {
        let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
        for seat in seats.values() {
            *counts.entry(&seat.domain).or_insert(0) += 1;
        }
        let domains: Vec<(String, usize)> = counts.into_iter().map(|(d, n)| (d.to_owned(), n)).collect();
        let names: Vec<NodeName> = seats.keys().cloned().collect();
        let positions = |list: &[NodeName]| list.iter().filter_map(|n| names.binary_search(n).ok()).collect();
        let places = seats.iter().map(|(name, seat)| Place {
            hash: hash(name.as_str()),
            domain: domains.binary_search_by(|(d, _)| d.as_str().cmp(&seat.domain)).unwrap_or(0),
            in_service: seat.in_service,
            observers: positions(&seat.observers),
            subjects: positions(&seat.subjects),
            touched: false,
        });
        let places: Vec<Place> = places.collect();
        let serving = places.iter().filter(|p| p.in_service).count();
        let inverse = inverse(stride(domains.len()), domains.len());
        Self { names, places, domains, inverse, serving, k: k_of(serving), moved: 0 }
    }

    /// Takes the changes; whose edges may differ now, with what they are.
    pub(super) fn change(&mut self, changes: &Changes) -> BTreeMap<NodeName, Edges> {
        let mut joined = Vec::new();
        for (name, now) in changes {
            if self.change_one(name, now.as_ref()) {
                joined.push(name);
            }
        }
        self.inverse = inverse(stride(self.domains.len()), self.domains.len());
        self.k = k_of(self.serving);
        let joined: Vec<usize> = joined.iter().filter_map(|n| self.names.binary_search(n).ok()).collect();
        self.deal(&joined);
        self.touched()
    }

    /// Ends the edges that a change ends; whether its member begins anew.
    fn change_one(&mut self, name: &NodeName, now: Option<&Facts>) -> bool {
        match (self.names.binary_search(name), now) {
            (Err(_), None) => false,
            (Ok(at), None) => {
                self.unlink_all(at);
                self.remove(at);
                false
            }
            (Err(at), Some(facts)) => {
                self.insert(at, name, facts);
                true
            }
            (Ok(at), Some(facts)) => self.update(at, facts),
        }
    }

    fn update(&mut self, at: usize, facts: &Facts) -> bool {
        let Some((domain, served)) = self.places.get(at).map(|p| (p.domain, p.in_service)) else {
            return false;
        };
        let moves = self.domains.get(domain).is_none_or(|(name, _)| *name != facts.domain);
        if moves {
            // All choices made for it rest on the old one.
            self.unlink_all(at);
            self.leave_domain(domain);
            let domain = self.enter_domain(&facts.domain);
            if let Some(place) = self.places.get_mut(at) {
                place.domain = domain;
            }
        }
        if served && !facts.in_service {
            self.unlink_subjects(at);
            self.serving -= 1;
        }
        if !served && facts.in_service {
            self.serving += 1;
        }
        if let Some(place) = self.places.get_mut(at) {
            place.in_service = facts.in_service;
        }
        moves || (facts.in_service && !served)
    }

    fn insert(&mut self, at: usize, name: &NodeName, facts: &Facts) {
        let domain = self.enter_domain(&facts.domain);
        for place in &mut self.places {
            for position in place.observers.iter_mut().chain(&mut place.subjects).filter(|p| **p >= at) {
                *position += 1;
            }
        }
        let place = Place {
            hash: hash(name.as_str()),
            domain,
            in_service: facts.in_service,
            observers: Vec::new(),
            subjects: Vec::new(),
            touched: true,
        };
        self.serving += usize::from(facts.in_service);
        self.names.insert(at, name.clone());
        self.places.insert(at, place);
    }

    fn remove(&mut self, at: usize) {
        let place = self.places.remove(at);
        self.names.remove(at);
        self.serving -= usize::from(place.in_service);
        for place in &mut self.places {
            for position in place.observers.iter_mut().chain(&mut place.subjects).filter(|p| **p > at) {
                *position -= 1;
            }
        }
        self.leave_domain(place.domain);
    }

    /// Counts a member in; the domain's position.
    fn enter_domain(&mut self, name: &str) -> usize {
        match self.domains.binary_search_by(|(domain, _)| domain.as_str().cmp(name)) {
            Ok(at) => {
                if let Some((_, members)) = self.domains.get_mut(at) {
                    *members += 1;
                }
                at
            }
            Err(at) => {
                self.domains.insert(at, (name.to_owned(), 1));
                for place in self.places.iter_mut().filter(|p| p.domain >= at) {
                    place.domain += 1;
                }
                at
            }
        }
    }

    fn leave_domain(&mut self, at: usize) {
        let Some((_, members)) = self.domains.get_mut(at) else { return };
        *members -= 1;
        if *members == 0 {
            self.domains.remove(at);
            for place in self.places.iter_mut().filter(|p| p.domain > at) {
                place.domain -= 1;
            }
        }
    }

    fn unlink_all(&mut self, at: usize) {
        self.unlink_subjects(at);
        let observers = self.places.get(at).map(|p| p.observers.clone()).unwrap_or_default();
        for observer in observers {
            self.unlink(at, observer);
        }
    }

    fn unlink_subjects(&mut self, observer: usize) {
        let subjects = self.places.get(observer).map(|p| p.subjects.clone()).unwrap_or_default();
        for subject in subjects {
            self.unlink(subject, observer);
        }
    }

    /// Edges of all that were touched, sorted again.
    fn touched(&mut self) -> BTreeMap<NodeName, Edges> {
        let mut touched = BTreeMap::new();
        let names = &self.names;
        let named = |list: &[usize]| list.iter().filter_map(|p| names.get(*p).cloned()).collect();
        for (name, place) in names.iter().zip(&mut self.places).filter(|(_, p)| p.touched) {
            place.touched = false;
            place.observers.sort_unstable();
            place.subjects.sort_unstable();
            touched.insert(name.clone(), (named(&place.observers), named(&place.subjects)));
        }
        touched
    }

    // === what deal.rs works with ===

    pub(super) fn in_service(&self, place: usize) -> bool {
        self.places.get(place).is_some_and(|p| p.in_service)
    }

    pub(super) fn load(&self, observer: usize) -> usize {
        self.places.get(observer).map_or(usize::MAX, |p| p.subjects.len())
    }

    pub(super) fn observers(&self, subject: usize) -> &[usize] {
        self.places.get(subject).map_or(&[], |p| &p.observers)
    }

    pub(super) fn subjects(&self, observer: usize) -> &[usize] {
        self.places.get(observer).map_or(&[], |p| &p.subjects)
    }

    pub(super) fn domain(&self, place: usize) -> usize {
        self.places.get(place).map_or(0, |p| p.domain)
    }

    pub(super) fn link(&mut self, subject: usize, observer: usize) {
        self.moved += 1;
        if let Some(p) = self.places.get_mut(subject) {
            p.observers.push(observer);
            p.touched = true;
        }
        if let Some(p) = self.places.get_mut(observer) {
            p.subjects.push(subject);
            p.touched = true;
        }
    }

    pub(super) fn unlink(&mut self, subject: usize, observer: usize) {
        if let Some(p) = self.places.get_mut(subject) {
            p.observers.retain(|o| *o != observer);
            p.touched = true;
        }
        if let Some(p) = self.places.get_mut(observer) {
            p.subjects.retain(|s| *s != subject);
            p.touched = true;
        }
    }

    /// Strides from the subject's domain to the observer's.
    pub(super) fn strides(&self, subject: usize, observer: usize) -> usize {
        let (from, to) = (self.domain(subject), self.domain(observer));
        (to + self.domains.len() - from) * self.inverse % self.domains.len().max(1)
    }

    pub(super) fn tie(&self, subject: usize, observer: usize) -> u64 {
        let of = |p: usize| self.places.get(p).map_or(0, |p| p.hash);
        mix(of(subject) ^ of(observer).rotate_left(32))
    }
}

// === helpers ===

fn k_of(serving: usize) -> usize {
    K_MAX.min(serving.saturating_sub(1))
}

/// The number nearest to 38 % of the domains that shares no divisor with them.
pub(super) fn stride(domains: usize) -> usize {
    let ideal = (domains * STRIDE_PERCENT + 50) / 100;
    (0..domains.max(1))
        .flat_map(|off| [ideal.saturating_sub(off), ideal + off])
        .find(|s| *s > 0 && gcd(*s, domains) == 1)
        .unwrap_or(1)
}

/// The number that undoes a multiplication by `stride` modulo `domains`.
pub(super) fn inverse(stride: usize, domains: usize) -> usize {
    (1..domains).find(|i| i * stride % domains == 1).unwrap_or(1)
}

const fn gcd(mut a: usize, mut b: usize) -> usize {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// FNV-1a, 64 bit: stable over builds, and nothing here is secret.
pub(super) fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3))
}

/// The finisher of SplitMix64 (Steele, Lea, Flood, OOPSLA'14).
pub(super) const fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}
