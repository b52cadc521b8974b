//! Rules hold: a condemnation's record meets every rule of the decision page, counted anew from the page and not by
//! the core: domains, a blind arbiter, a torn network, a rack, a storm, the kubelet's renewal, an unsteady BMC, Off in a
//! goodbye, a new leader's grace.

use std::collections::BTreeSet;

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::phase::{EvidenceClass, Phase};
use coroner_arbiter_core::policy::select::rules_for;
use coroner_arbiter_core::state::State;
use coroner_arbiter_core::view::{BmcRead, FleetView, Said, Standing, View};
use coroner_shared::beacon::GoodbyeKind;
use coroner_shared::time::Span;

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

/// The renewal of a Lease may be so late (rule 7).
const RENEWAL_SLACK: Span = Span::from_secs(1);
/// A new leader listens for so long, also one that has heard of everybody; clocks differ by a thousandth.
const GRACE: Span = Span::from_ms(990);
/// And one of a group that comes back from nothing.
const FROM_NOTHING: Span = Span::from_ms(9_900);
/// A BMC that is not steady must say Off for so long.
const UNSTEADY: Span = Span::from_secs(30);
/// Firmware shows Off for a moment in a planned reboot; whoever said that it shuts down is off for good (E0).
const OFF_IN_REBOOT: Span = Span::from_secs(120);
const OFF_IN_SHUTDOWN: Span = Span::from_secs(30);
/// A view is older than the log's time by so much at most, so a goodbye may have been over in it.
const SLACK: Span = Span::from_secs(1);

pub(super) struct Rules;

impl Invariant for Rules {
    fn name(&self) -> &'static str {
        "rules hold"
    }

    fn see(&mut self, world: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Committed { entry, before, after, .. } = fact else { return None };
        let Command::Judge(view) = &entry.command else { return None };
        let was = before.nodes.get(&view.node)?.phase.name();
        let Phase::Condemned { class, .. } = &after.nodes.get(&view.node)?.phase else { return None };
        if was == "Condemned" {
            return None;
        }
        let broken = match class {
            EvidenceClass::FoundOff => blind(view).or_else(|| found_off(view, planned_off(before, view))),
            EvidenceClass::HostSilentBmcOn => {
                domains(view).or_else(|| blind(view)).or_else(|| fleet(view)).or_else(|| renewal(view))
            }
            EvidenceClass::Ordered { .. } => None,
        };
        broken
            .or_else(|| grace(world, entry.term))
            .or_else(|| {
                (view.leader != entry.leader || view.term != entry.term)
                    .then(|| "it is another leader's".into())
            })
            .map(|why| format!("{} is condemned ({}), but {why}", view.node, class.word()))
    }
}

/// Rule 1: the silent ones come from D of the other domains; where nobody of another domain may accuse, hosts count.
fn domains(view: &View) -> Option<String> {
    let eligible = || view.observers.iter().filter(|o| o.standing == Standing::Eligible);
    let silent = || eligible().filter(|o| matches!(o.said, Said::Silent { .. }));
    let others = |domains: BTreeSet<&str>| domains.into_iter().filter(|d| *d != view.domain).count();
    let available = others(eligible().map(|o| o.domain.as_str()).collect());
    let (found, wanted) = match available {
        0 => (silent().count(), eligible().count().min(3)),
        _ => (others(silent().map(|o| o.domain.as_str()).collect()), available.min(3)),
    };
    (found < wanted).then(|| format!("its accusers come from {found} other domains, {wanted} are needed"))
}

/// Rule 5: an arbiter that lost its quorum, or does not hear more than one and a tenth of the others, may itself be the one
/// that is cut off. It condemns nobody.
fn blind(view: &View) -> Option<String> {
    let FleetView { others_alive, unexplained, quorum, .. } = view.fleet;
    if !quorum {
        return Some("its leader has no quorum".to_owned());
    }
    (unexplained > 1 && unexplained * 10 > others_alive)
        .then(|| format!("{unexplained} of {others_alive} others are unheard, and nobody says why"))
}

/// Rule 6, the class Correlated, and the storm brake.
fn fleet(view: &View) -> Option<String> {
    let FleetView {
        others_alive, partial, domain_members, domain_silent, storm_members, storm_domains, ..
    } = view.fleet;
    if partial > 2 && partial * 10 > others_alive {
        return Some(format!("{partial} of {others_alive} members are heard by some and not by others"));
    }
    if domain_members >= 2 && domain_silent >= domain_members {
        return Some(format!("all {domain_members} nodes of {} fell silent together", view.domain));
    }
    let storm = (view.members / 50).max(3);
    (view.members >= 8 && storm_members > storm && storm_domains >= 2)
        .then(|| format!("{storm_members} members of {storm_domains} domains fell silent within 10 s"))
}

/// Rule 7: nothing since the failure date, and one expected renewal missed.
fn renewal(view: &View) -> Option<String> {
    let quiet = view.lease.changed_ago.unwrap_or(view.lease.watched_for);
    let expected = view.lease.interval + RENEWAL_SLACK;
    (quiet < expected)
        .then(|| format!("its kubelet renewed its Lease, or may have, {quiet} ago; expected is {expected}"))
}

/// A new leader listens before it judges; so does a group whose memory is gone.
fn grace(world: &World, term: u64) -> Option<String> {
    if world.truth.is_over(term) {
        return None;
    }
    let led = world.now.since(world.truth.elected(term)?);
    if led < GRACE {
        return Some(format!("its leader was elected {led} ago"));
    }
    let started = world.replicas.iter().filter_map(|r| r.process.as_ref().map(|p| p.began)).min()?;
    let group = world.now.since(started);
    (group < FROM_NOTHING).then(|| format!("no replica has been running for longer than {group}"))
}

/// For how long Off must have been read in the goodbye that its agent said, if that still stands.
fn planned_off(before: &State, view: &View) -> Option<Span> {
    let goodbye = before.nodes.get(&view.node)?.goodbye.as_ref()?;
    let last = view.last_sign.as_ref().and_then(|sign| sign.beacon);
    let ended = last.is_some_and(|(boot, number)| boot == view.incarnation.boot && number > goodbye.seq);
    if ended || before.now.since(goodbye.at) + SLACK >= rules_for(before, &view.node).planned(goodbye.kind) {
        return None;
    }
    match goodbye.kind {
        GoodbyeKind::Reboot => Some(OFF_IN_REBOOT),
        GoodbyeKind::Shutdown => Some(OFF_IN_SHUTDOWN),
        GoodbyeKind::AgentRestart => None,
    }
}

/// Off, read for long enough by one replica.
fn found_off(view: &View, planned: Option<Span>) -> Option<String> {
    let read_for = |least: Span, steady_enough: bool| {
        view.bmc.iter().any(|bmc| match bmc.read {
            BmcRead::Off { reads, over } => reads >= 2 && ((steady_enough && bmc.steady) || over >= least),
            BmcRead::On | BmcRead::Silent { .. } | BmcRead::Unclear { .. } | BmcRead::NotRead => false,
        })
    };
    if !read_for(UNSTEADY, true) {
        return Some("no replica knows its BMC as steady or has read Off for 30 s".to_owned());
    }
    let least = planned?;
    (!read_for(least, false)).then(|| format!("in its goodbye nobody has read Off for {least}"))
}
