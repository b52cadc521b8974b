//! What the BMC says, over all replicas that read it.
//!
//! ```text
//!   BmcView of each replica --> Power: FoundOff | OffSoon | On | Silent | Unclear(what) | Unknown
//! ```
//!
//! Only exact Off of the right machine counts, twice, 100 ms apart, from a BMC that is steady; one that is not steady
//! has to say it for 30 s first, since one that just restarted may say it from its defaults. Readings are those since
//! the failure date; a machine that some read On and some read Off is neither.

use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::Span;

use crate::policy::Rules;
use crate::view::{BmcRead, BmcView, View};

/// Readings of Off.
const READS_MIN: u32 = 2;
/// Between the first and the last of them, where the BMC is steady.
const STEADY_OVER: Span = Span::from_ms(100);
/// The same where it is not.
const UNSTEADY_OVER: Span = Span::from_secs(30);
/// Replicas to which a BMC must be silent before that is its name.
const SILENT_TO: usize = 2;

/// The power state as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Power {
    /// Off, read as often as it takes.
    FoundOff,
    /// Off so far, not yet often or long enough.
    OffSoon,
    /// On.
    On,
    /// No answer, long enough and to enough replicas.
    Silent,
    /// Something else, long enough.
    Unclear(String),
    /// No fresh reading, or nothing that lasted.
    Unknown,
}

impl Power {
    /// Reads the views of a case. On and Off older than `bmc_silent` are no readings of now. No answer, and one that
    /// says nothing, stand until the next attempt ends: one to a dead BMC takes longer than that, and a hold whose
    /// name changes with each attempt is a page each time.
    pub fn of(view: &View, rules: &Rules) -> Self {
        let stands = |b: &BmcView| match b.read {
            BmcRead::Silent { .. } | BmcRead::Unclear { .. } => true,
            BmcRead::Off { .. } | BmcRead::On | BmcRead::NotRead => b.age <= rules.bmc_silent,
        };
        let fresh: Vec<&BmcView> = view.bmc.iter().filter(|b| stands(b)).collect();
        let on = fresh.iter().any(|b| b.read == BmcRead::On);
        let off = fresh.iter().any(|b| matches!(b.read, BmcRead::Off { .. }));
        match (on, off) {
            (true, true) => Self::Unclear("some replicas read On, some read Off".to_owned()),
            (true, false) => Self::On,
            (false, true) if fresh.iter().any(|b| is_enough(b)) => Self::FoundOff,
            (false, true) => Self::OffSoon,
            (false, false) if view.bmc.is_empty() => Self::Unclear("no BMC is bound to it".to_owned()),
            (false, false) => no_power(&fresh, view.bmc.len(), rules),
        }
    }
}

/// How long nothing but Off has been read, by the replica that has read it longest.
pub(super) fn off_for(view: &View, rules: &Rules) -> Span {
    let over = |b: &BmcView| match b.read {
        BmcRead::Off { over, .. } if b.age <= rules.bmc_silent => Some(over),
        BmcRead::Off { .. }
        | BmcRead::On
        | BmcRead::Silent { .. }
        | BmcRead::Unclear { .. }
        | BmcRead::NotRead => None,
    };
    view.bmc.iter().filter_map(over).max().unwrap_or(Span::ZERO)
}

fn is_enough(bmc: &BmcView) -> bool {
    match bmc.read {
        BmcRead::Off { reads, over } => {
            let steady = bmc.steady || planted(Mutant::FoundOffUnsteady);
            reads >= READS_MIN && over >= if steady { STEADY_OVER } else { UNSTEADY_OVER }
        }
        BmcRead::On | BmcRead::Silent { .. } | BmcRead::Unclear { .. } | BmcRead::NotRead => false,
    }
}

/// Neither On nor Off from anybody.
fn no_power(fresh: &[&BmcView], readers: usize, rules: &Rules) -> Power {
    let silent_to = fresh
        .iter()
        .filter(|b| matches!(b.read, BmcRead::Silent { since } if since >= rules.bmc_silent))
        .count();
    if silent_to >= SILENT_TO.min(readers) {
        return Power::Silent;
    }
    let unclear = fresh.iter().find_map(|b| match &b.read {
        BmcRead::Unclear { what, since } if *since >= rules.bmc_silent => Some(what.clone()),
        BmcRead::Unclear { .. }
        | BmcRead::Off { .. }
        | BmcRead::On
        | BmcRead::Silent { .. }
        | BmcRead::NotRead => None,
    });
    unclear.map_or(Power::Unknown, Power::Unclear)
}
