//! What a person must be told now: standing conditions by name, each paged once while it stands. A page is a Warning
//! kube event, a metric and a line of the status.

use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use crate::apply::return_waits_for;
use crate::permit;
use crate::phase::{Attempt, Brake, HeldReason, Intent, Phase};
use crate::policy::LifeTimings;
use crate::state::{Incident, Member, Node, State};
use crate::words;

/// A hold that may end by itself pages after this.
pub const PATIENCE: Span = Span::from_secs(60);
/// Leftovers that stay for so long are paged.
pub const LEFTOVERS_PATIENCE: Span = Span::from_mins(10);

/// The way out where the machine of a released node was replaced.
const REPLACED_ADVICE: &str = "Its taint stays until the pinned machine boots. If that one was replaced on purpose and stays off, delete the \
                               Node object and restart its kubelet: the new Node begins with nothing.";

/// A condition that a person must know of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// A stable word.
    pub reason: String,
    /// What happened, and what can be done.
    pub text: String,
}

/// The conditions that stand for a node at this log time.
pub fn standing(state: &State, name: &NodeName, node: &Node) -> Vec<Page> {
    due(state, name, node).into_iter().filter(|(_, from)| *from <= state.now).map(|(page, _)| page).collect()
}

/// The conditions with the log time from which each is to be paged.
pub(crate) fn due(state: &State, name: &NodeName, node: &Node) -> Vec<(Page, Mono)> {
    let mut pages = Vec::new();
    let mut page = |reason: &str, text: String, from: Mono| {
        pages.push((Page { reason: reason.to_owned(), text }, from));
    };
    machine_of_another(state, name, node, &mut page);
    boot_of_nobody(node, &mut page);
    let Some((_, incident)) = state.open_incident(name) else { return pages };
    let timings = incident.terms.as_deref().map_or(LifeTimings::DEFAULT, |terms| terms.timings);
    let since = node.phase_since;
    match &node.phase {
        Phase::Alive => {}
        Phase::Held { why, .. } => {
            let text = format!("{}. {}", words::hold(why), words::hold_advice(why));
            page(&format!("Held{}", why.word()), text, since + patience(why));
        }
        Phase::Condemned { .. } => {
            let text = "it is condemned, and its fence has not begun. See `coroner explain`.".to_owned();
            page("CondemnedWaits", text, since + timings.stalled);
        }
        Phase::Fencing { intent, attempt, .. } => {
            if let Some(why) = without_progress(intent, attempt.as_ref(), timings.stalled) {
                let advice = words::bmc_advice(&why, words::STALLED_ADVICE);
                let text = format!("its fence makes no progress: {why}. {advice}");
                page("Stalled", text, since);
            }
        }
        Phase::ProvenOff { last_read_failed, .. } => {
            if let Some(failed) = last_read_failed {
                let advice = words::bmc_advice(&failed.why, words::LAST_READ_ADVICE);
                let text = format!("it is proven off and not released: {}. {advice}", failed.why);
                page("LastReadFailed", text, failed.since + PATIENCE);
            } else {
                // Nothing was refused: whatever is read before a release gives no answer at all.
                let text = format!(
                    "it is proven off, and its release has not begun for {}. Look at the API server.",
                    timings.stalled
                );
                page("ReleaseWaits", text, since + timings.stalled);
            }
        }
        Phase::Releasing { .. } => {
            let text =
                "its taint could not be written for a minute. Look at the API server, and at its BMC, which \
                        must say Off once more before that."
                    .to_owned();
            page("ReleaseWaits", text, since + PATIENCE);
        }
        Phase::Released { on_since, .. } => {
            released(incident, *on_since, since, &timings, &mut page);
            if node.facts.as_ref().is_some_and(|f| !f.tainted_by_us) {
                let text = "another controller took our taint away from it. Nothing is fought over; its workloads may \
                            be placed there while the machine is off."
                    .to_owned();
                page("TaintTakenAway", text, since + PATIENCE);
            }
        }
        Phase::Returning { .. } => returning(state, name, incident, since, &timings, &mut page),
    }
    pages
}

/// Why a fence makes no progress, if so. A further attempt takes the slot of a stalled fence again while it is under
/// way, and is no progress: without this, each retry would end the page and give it anew ten seconds later.
fn without_progress(intent: &Intent, attempt: Option<&Attempt>, stalled: Span) -> Option<String> {
    let retry = attempt.filter(|a| a.at >= intent.progress + stalled);
    intent.stalled.clone().or_else(|| retry.map(|a| format!("attempt {} is under way", a.number)))
}

/// Holds that wait for a person are paged at once, those that may pass after a minute.
fn patience(why: &HeldReason) -> Span {
    match why {
        HeldReason::BmcSilent
        | HeldReason::BmcNetworkSilent
        | HeldReason::BmcUnclear(_)
        | HeldReason::DomainDown
        | HeldReason::ArbiterBlind
        | HeldReason::SilentBeforeEnforce
        | HeldReason::NotFenceable(_)
        | HeldReason::Identity(_)
        | HeldReason::MachineChanged { .. }
        | HeldReason::Duplicate
        | HeldReason::TwoNodes
        | HeldReason::Brake(
            Brake::Storm | Brake::RepeatOffender | Brake::ControlPlane | Brake::ArbiterHosts | Brake::Floor,
        ) => Span::ZERO,
        HeldReason::TooFewObservers
        | HeldReason::HostAnswersOnly
        | HeldReason::NetworkPartial
        | HeldReason::ApiUnreadable
        | HeldReason::KubeletAlive
        | HeldReason::NotSeenYet
        | HeldReason::Paused { .. }
        | HeldReason::Observe
        | HeldReason::PolicyConflict(_)
        | HeldReason::Excluded
        | HeldReason::FoundOnAgain
        | HeldReason::Disputed
        | HeldReason::Brake(
            Brake::InFlight | Brake::PerDomain | Brake::PerDomain10m | Brake::Budget | Brake::Pace,
        ) => PATIENCE,
    }
}

/// Security events: another machine than the pinned one registers, or the kubelet speaks of another one, whatever the
/// phase; and a BMC that is not the pinned machine's any more, while there is time to look at it. None of them ever pins
/// anew.
fn machine_of_another(
    state: &State,
    name: &NodeName,
    node: &Node,
    page: &mut impl FnMut(&str, String, Mono),
) {
    if matches!(node.phase, Phase::Held { .. }) {
        return;
    }
    let Err(why) = permit::fenceable(state, name) else { return };
    // In an incident the fence says itself what its BMC refuses, and a binding that somebody just changed is verified.
    let watched = matches!(node.phase, Phase::Alive) && !permit::to_be_verified(state, name);
    let reason = if matches!(why, HeldReason::MachineChanged { .. }) {
        "MachineChanged"
    } else if permit::kubelet_disagrees(state, name) {
        "SystemUuidChanged"
    } else if matches!(why, HeldReason::Identity(_)) && watched {
        "BindingRefused"
    } else {
        return;
    };
    // A released node returns with a boot of the pinned machine only, and nothing is pinned anew before that.
    let replaced = reason == "MachineChanged" && node.phase.out_of_service();
    let advice = if replaced { REPLACED_ADVICE } else { words::hold_advice(&why) };
    let text = format!("{}: it cannot be fenced. {advice}", words::hold(&why));
    page(reason, text, Mono::default());
}

/// A boot of which its agent has said nothing for a minute. Should it die, nobody would notice.
fn boot_of_nobody(node: &Node, page: &mut impl FnMut(&str, String, Mono)) {
    let over = node.member.as_ref().is_some_and(Member::boot_is_over);
    if over && matches!(node.phase, Phase::Alive) {
        let what = words::boot_unregistered(node.unregistered_boot());
        let text = format!("{what}: if it dies, nobody notices. {}", words::BOOT_UNREGISTERED_ADVICE);
        page("BootUnregistered", text, node.phase_since + PATIENCE);
    }
}

fn released(
    incident: &Incident,
    on_since: Option<Mono>,
    since: Mono,
    timings: &LifeTimings,
    page: &mut impl FnMut(&str, String, Mono),
) {
    if let Some(on) = on_since {
        let text =
            "it was released, and its machine has been on for long without a boot that anybody knows. \
                    Look at its console; `coroner fence` powers it off."
                .to_owned();
        page("OnButUnknown", text, on + timings.booting);
    }
    if incident.powered_on && on_since.is_none() {
        let text = "it was to be powered on once its workloads were released, and its BMC does not say On. It is not \
                    tried again: look at it and power it on by hand."
            .to_owned();
        page("StaysOff", text, since + timings.booting);
    }
    if !incident.leftovers_gone {
        let text =
            "pods or attachments of the released node do not go away. See `coroner explain`.".to_owned();
        page("LeftoversStay", text, since + LEFTOVERS_PATIENCE);
    }
}

fn returning(
    state: &State,
    name: &NodeName,
    incident: &Incident,
    since: Mono,
    timings: &LifeTimings,
    page: &mut impl FnMut(&str, String, Mono),
) {
    if incident.orphaned {
        let text =
            "our taint stands on it, and nobody remembers why (the arbiter was made anew). Reboot it, or \
                    look at it and use `coroner return`."
                .to_owned();
        page("Orphaned", text, since);
    }
    let waits: Vec<String> = return_waits_for(state, name).into_iter().map(|w| w.what).collect();
    let text = format!("it is on its way back and waits for {}. See `coroner return`.", waits.join(", "));
    page("ReturnWaits", text, since + timings.booting);
}
