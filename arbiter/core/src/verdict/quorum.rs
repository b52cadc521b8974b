//! Rule 1: enough observers that may accuse are silent, from enough failure domains.
//!
//! ```text
//!   observers with their standing --> Quorum: how many are silent, how many must be, from how many domains
//! ```
//!
//! H = ceil(0.75 k), k = min(8, N - 1): 6 of 8 (Rapid's high watermark). D = min(3, other domains that have an eligible
//! observer now); where there is none, hosts count as domains and the topology is called weak.
//!
//! N are all members, whatever their phase. A subject has fewer than k observers where not enough are in service (and
//! for a moment, while the graph is dealt); that must not lower H: after three releases among five nodes a single
//! observer would condemn the other, which is the N = 2 that is never automatic.

use coroner_shared::mutant::{Mutant, planted};

use std::collections::BTreeSet;

use crate::observers::K_MAX;
use crate::policy::Rules;
use crate::view::{ObserverView, Said, Standing, View};

/// Most domains that are asked for.
const DOMAINS_MAX: usize = 3;

/// How rule 1 stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quorum<'a> {
    /// Observers whose silence counts.
    pub eligible: Vec<&'a ObserverView>,
    /// Of those, the silent ones.
    pub silent: Vec<&'a ObserverView>,
    /// k: how many observers it should have; fewer are there where too few members are in service.
    pub due: usize,
    /// How many must be silent.
    pub needed: usize,
    /// Domains (or hosts) the silent ones come from.
    pub domains: usize,
    /// How many they must come from.
    pub domains_needed: usize,
    /// No other domain has an eligible observer: hosts are counted.
    pub topology_weak: bool,
}

/// H for k observers: three quarters of them, rounded up.
pub const fn silent_needed(k: usize) -> usize {
    k.saturating_mul(3).div_ceil(4)
}

/// The observers that a subject among so many members should have, in service or not.
fn observers_due(members: u32) -> usize {
    let others = usize::try_from(members.saturating_sub(1)).unwrap_or(usize::MAX);
    others.min(K_MAX)
}

impl<'a> Quorum<'a> {
    /// Counts the observers of a view.
    pub fn of(view: &'a View, rules: &Rules) -> Self {
        Self::count(&view.observers, &view.domain, view.members, rules)
    }

    /// Counts the observers of a subject in this domain, among so many members.
    pub fn count(observers: &'a [ObserverView], domain: &str, members: u32, rules: &Rules) -> Self {
        let counts = |o: &&ObserverView| o.standing == Standing::Eligible;
        let eligible: Vec<&ObserverView> = observers.iter().filter(counts).collect();
        let accuses = |o: &&ObserverView| match o.said {
            Said::Silent { silent } => silent >= rules.beacons.suspect,
            Said::Hears { .. } | Said::Nothing => false,
        };
        let silent: Vec<&ObserverView> = eligible.iter().copied().filter(accuses).collect();
        let others = |all: &[&ObserverView]| {
            let counts = |d: &&str| *d != domain || planted(Mutant::SameDomainCounted);
            all.iter().map(|o| o.domain.as_str()).filter(counts).collect::<BTreeSet<_>>().len()
        };
        let due = observers.len().max(observers_due(members));
        let k = if planted(Mutant::KShrinks) { eligible.len() } else { due };
        let topology_weak = others(&eligible) == 0;
        let (domains, available) =
            if topology_weak { (silent.len(), eligible.len()) } else { (others(&silent), others(&eligible)) };
        Self {
            due,
            needed: silent_needed(k) - usize::from(planted(Mutant::HMinusOne) && k > 1),
            domains_needed: available.min(DOMAINS_MAX),
            eligible,
            silent,
            domains,
            topology_weak,
        }
    }

    /// Whether every observer that counts is silent, and more than one. Less than rule 1 where observers died as well,
    /// and more than two reports: it takes all who count to make it up.
    pub fn is_unanimous(&self) -> bool {
        self.silent.len() > 1 && self.silent.len() == self.eligible.len()
    }

    /// Whether rule 1 holds. Nobody at all is never enough.
    pub fn is_met(&self) -> bool {
        !self.silent.is_empty() && self.silent.len() >= self.needed && self.domains >= self.domains_needed
    }
}
