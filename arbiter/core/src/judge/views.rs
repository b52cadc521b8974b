//! Builds the view of one suspect: everything that its verdict looks at, as ages.

use coroner_shared::id::{Incarnation, NodeName};
use coroner_shared::time::Span;

use super::LeaseSeen;
use super::desk::Desk;
use super::fleet::Fleet;
use super::scene::Scene;
use crate::view::{BmcRead, BmcView, LeaseView, Planned, View};

/// A kubelet renews its Lease this often unless it was seen to do otherwise (Kubernetes: `nodeLeaseDurationSeconds` 40 s,
/// renewed at a quarter of it).
const RENEWAL: Span = Span::from_secs(10);

/// The view of a suspect; `None` if it is no member with an identity.
pub(super) fn of(scene: &Scene<'_>, fleet: &Fleet<'_>, desk: &mut Desk, name: &NodeName) -> Option<View> {
    let sight = scene.sight;
    let seat = sight.state.observers.seat(name)?;
    let node = scene.node(name)?;
    let member = node.member.as_ref()?;
    let last_sign = scene.pooled.last_sign(name);
    let silence = last_sign.as_ref().map_or(sight.group_age, |s| s.age);
    let correlated_for = desk.correlated.map(|since| scene.age(since));
    let bmc = sight.bmc.get(name).map(Vec::as_slice).unwrap_or_default();
    Some(View {
        node: name.clone(),
        incarnation: Incarnation {
            node: seat.peer.node.clone(),
            machine: seat.peer.machine,
            boot: member.boot,
        },
        leader: sight.me,
        term: sight.term,
        own_host: sight.state.replicas.get(&sight.me).is_some_and(|r| r.host == *name),
        members: sight.state.members(),
        last_sign,
        untold: scene.pooled.untold(),
        group_age: sight.group_age,
        observers: scene.observers(name, silence),
        domain: seat.domain.clone(),
        probes: desk.probe_views(&scene.pooled.probes(name), |stamp| scene.age(stamp)),
        bmc: bmc.iter().map(|b| since_failure(b, silence)).collect(),
        sibling_answers: sight.siblings.get(name).copied(),
        lease: lease(scene, name),
        fleet: fleet.view_of(name, &seat.domain, correlated_for),
        goodbye: goodbye(scene, name),
        duplicate: scene.pooled.is_duplicate(name),
    })
}

/// Only what was read after the failure date counts. Replicas read with a date of their own, which may be older.
fn since_failure(bmc: &BmcView, silence: Span) -> BmcView {
    if bmc.age >= silence {
        return BmcView { read: BmcRead::NotRead, ..bmc.clone() };
    }
    let most = silence.saturating_sub(bmc.age);
    let read = match &bmc.read {
        BmcRead::Off { reads, over } => BmcRead::Off { reads: *reads, over: (*over).min(most) },
        BmcRead::Silent { since } => BmcRead::Silent { since: (*since).min(silence) },
        BmcRead::Unclear { what, since } => {
            BmcRead::Unclear { what: what.clone(), since: (*since).min(silence) }
        }
        BmcRead::On => BmcRead::On,
        BmcRead::NotRead => BmcRead::NotRead,
    };
    BmcView { read, ..bmc.clone() }
}

fn lease(scene: &Scene<'_>, name: &NodeName) -> LeaseView {
    let book = scene.sight.leases;
    let seen = book.leases.get(name).copied().unwrap_or(LeaseSeen { changed: None, interval: RENEWAL });
    LeaseView {
        readable: book.readable,
        changed_ago: seen.changed.map(|at| scene.age(at)),
        watched_for: book.watched_since.map_or(Span::ZERO, |at| scene.age(at)),
        interval: seen.interval,
    }
}

/// A standing goodbye of the current boot.
pub(super) fn goodbye(scene: &Scene<'_>, name: &NodeName) -> Option<Planned> {
    let node = scene.node(name)?;
    let goodbye = node.goodbye.as_ref().filter(|g| node.member.as_ref().is_some_and(|m| m.boot == g.boot))?;
    Some(Planned { kind: goodbye.kind, ago: scene.state().now.since(goodbye.at), seq: goodbye.seq })
}
