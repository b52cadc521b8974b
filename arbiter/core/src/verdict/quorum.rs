//! Rule 1: enough observers that may accuse are silent, from enough failure domains.
//!
//! ```text
//!   observers with their standing --> Quorum: how many are silent, how many must be, from how many domains
//! ```
//!
//! H = ceil(0.75 k): 6 of 8 (Rapid's high watermark). D = min(3, other domains that have an eligible observer now);
//! where there is none, hosts count as domains and the topology is called weak.

use coroner_shared::mutant::{Mutant, planted};

use std::collections::BTreeSet;

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
    /// How many must be.
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

impl<'a> Quorum<'a> {
    /// Counts the observers of a view.
    pub fn of(view: &'a View, rules: &Rules) -> Self {
        Self::count(&view.observers, &view.domain, rules)
    }

    /// Counts the observers of a subject in this domain.
    pub fn count(observers: &'a [ObserverView], domain: &str, rules: &Rules) -> Self {
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
        let k = if planted(Mutant::KShrinks) { eligible.len() } else { observers.len() };
        let topology_weak = others(&eligible) == 0;
        let (domains, available) =
            if topology_weak { (silent.len(), eligible.len()) } else { (others(&silent), others(&eligible)) };
        Self {
            needed: silent_needed(k) - usize::from(planted(Mutant::HMinusOne) && k > 1),
            domains_needed: available.min(DOMAINS_MAX),
            eligible,
            silent,
            domains,
            topology_weak,
        }
    }

    /// Whether rule 1 holds. Nobody at all is never enough.
    pub fn is_met(&self) -> bool {
        !self.silent.is_empty() && self.silent.len() >= self.needed && self.domains >= self.domains_needed
    }
}
