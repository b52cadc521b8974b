//! Rule 7: what the kubelet's Lease says. The stored Ready does not matter: it says True for 50 s after a death, and a
//! kubelet that renews while not Ready is alive.
//!
//! ```text
//!   LeaseView, failure date --> is_alive, until_missed
//! ```
//!
//! A renewal after the failure date shows a living kubelet until the next one is missed: the last one of a dying host
//! may well be younger than its last beacon.

use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::Span;

use crate::view::View;

/// A renewal may be this late.
pub(crate) const RENEWAL_SLACK: Span = Span::from_secs(1);
/// A kubelet with the usual renewal interval (10 s, a quarter of `nodeLeaseDurationSeconds`) is overdue after this.
pub(crate) const LEASE_RENEWAL: Span = Span::from_secs(11);

/// Whether the kubelet renewed its Lease after the failure date, and its next renewal is not yet overdue.
pub(super) fn is_alive(view: &View) -> bool {
    view.lease.changed_ago.is_some_and(|ago| ago < view.silence()) && until_missed(view).is_some()
}

/// What is left until one expected renewal has been missed; `None` once it has. A Lease that was not watched for so
/// long may have been renewed unseen.
pub(crate) fn until_missed(view: &View) -> Option<Span> {
    let lease = &view.lease;
    if planted(Mutant::LeaseIgnored) {
        return None;
    }
    let quiet_for = lease.changed_ago.unwrap_or(lease.watched_for);
    let left = (lease.interval + RENEWAL_SLACK).saturating_sub(quiet_for);
    (left > Span::ZERO).then_some(left)
}
