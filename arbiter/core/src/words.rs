//! Reasons as clauses about a node, and what the operator can do: said alike by refusals, pages, status and resources.

use coroner_shared::id::BootId;
use coroner_shared::machine_id::MachineId;

use crate::phase::{Brake, HeldReason};

const CONFIRM: &str = "Look at the machine; if it is off, say so with `coroner confirm-off`.";
const WAIT: &str = "Nothing needs to be done; it is decided as soon as enough is known.";
const BINDING: &str = "Correct its MachineBinding; `coroner nodes` shows when its BMC is ready.";
const OF_ANOTHER: &str = "That BMC is another machine's: what it says is not about this one. Correct the address in its \
                          MachineBinding, or use `coroner repin` if its board was changed. Only who stands before the \
                          machine and sees it off may use `coroner confirm-off`.";

/// Why a binding is disabled whose BMC contradicts the node itself.
pub const OFF_WHILE_HEARD: &str =
    "its BMC says Off while the node's beacons arrive: the binding names another machine's BMC";

/// What the operator can do about a fence that makes no progress.
pub const STALLED_ADVICE: &str = "Look at its BMC; if the machine is off, `coroner confirm-off`.";
/// What the operator can do about a last read that failed.
pub const LAST_READ_ADVICE: &str = "If the machine is off, `coroner confirm-off`.";

/// How the two texts begin that say that a BMC belongs to another machine than the pinned one: a reading that names
/// another one ([`answers_for`]) and a refused identity ([`MISMATCH`]). The record keeps both as texts for people.
const ANSWERS_FOR: &str = "answers for ";
/// How [`crate::identity::IdentityVerdict::Mismatch`] begins.
pub const MISMATCH: &str = "Mismatch: ";

/// What the operator can do about a boot that has not registered.
pub const BOOT_UNREGISTERED_ADVICE: &str = "Check that its agent runs and reaches the arbiter; if the machine is dead, \
                                            `coroner fence` powers it off, proves it and releases its workloads.";

/// A reading that names another machine than the pinned one, as a predicate of the BMC.
pub fn answers_for(given: &str, pinned: MachineId) -> String {
    format!("{ANSWERS_FOR}{given:?}, pinned is {pinned}")
}

/// Whether what is said of a BMC is that it belongs to another machine. Nobody may look at a machine through that one.
fn is_of_another(what: &str) -> bool {
    let what = what.strip_prefix("the BMC ").unwrap_or(what);
    what.starts_with(ANSWERS_FOR) || what.starts_with(MISMATCH)
}

/// What the operator can do about a BMC that says `what`, if `usual` is what is advised of the pinned machine's own.
pub fn bmc_advice(what: &str, usual: &'static str) -> &'static str {
    if is_of_another(what) { OF_ANOTHER } else { usual }
}

/// What a BMC gave that was neither On nor Off, as a clause.
pub fn bmc_unclear(what: &str) -> String {
    if is_of_another(what) {
        format!("its BMC is another machine's ({what})")
    } else {
        format!("its BMC gives no power state that could be used: {what}")
    }
}

/// A boot that its kubelet speaks of and its agent has not registered, as a clause; `None`: one that nobody names.
pub fn boot_unregistered(boot: Option<BootId>) -> String {
    let boot = boot.map_or("another boot".to_owned(), |boot| format!("boot {boot}"));
    format!("its kubelet runs in {boot}, which its agent has not registered")
}

/// A brake, as a clause.
pub fn brake(brake: Brake) -> &'static str {
    match brake {
        Brake::InFlight => "as many nodes as allowed are being fenced already",
        Brake::PerDomain => "another node of its failure domain is being fenced",
        Brake::PerDomain10m => "its failure domain lost as many nodes within 10 minutes as may be acted on",
        Brake::Budget => "the rolling budget of fences is used up",
        Brake::Floor => "as many machines as allowed are down by our hand",
        Brake::Pace => "the last decision was just now",
        Brake::Storm => "many nodes fell silent at once, and only machines found off are acted on",
        Brake::ControlPlane => {
            "its loss, or a second one of the control plane in flight, could cost etcd its quorum"
        }
        Brake::ArbiterHosts => {
            "it hosts a replica, and without it and those that are down the arbiter could lose its quorum"
        }
        Brake::RepeatOffender => "it died too often within 24 hours",
    }
}

/// What the operator can do about a brake.
pub fn brake_advice(brake: Brake) -> &'static str {
    match brake {
        Brake::InFlight => "Wait, or raise `brakes.inFlight` of every FencingPolicy in Enforce.",
        Brake::PerDomain | Brake::PerDomain10m => "Check what the domain has in common (power, switch).",
        Brake::Budget => "Wait for its refill, or find out why so many nodes die.",
        Brake::Floor => "Bring fenced machines back, or raise `brakes.floor`.",
        Brake::Pace => "Nothing needs to be done.",
        Brake::Storm => "Look at the network; order single nodes with `coroner fence` once it has calmed.",
        Brake::ControlPlane => "Repair the other voters first.",
        Brake::ArbiterHosts => {
            "Bring other hosts of replicas back first. While those are silent and not off, a person may order this one with `coroner fence`."
        }
        Brake::RepeatOffender => "Find out why, then clear it with `coroner clear-held`.",
    }
}

/// A reason to hold, as a clause about the node.
pub fn hold(why: &HeldReason) -> String {
    let clause = match why {
        HeldReason::TooFewObservers => "too few observers can tell whether it is silent",
        HeldReason::HostAnswersOnly => "its kernel answers, but neither agent nor kubelet does",
        HeldReason::NetworkPartial => "the network is torn: many nodes are heard by some and not by others",
        HeldReason::DomainDown => "a large part of its failure domain fell silent together",
        HeldReason::BmcSilent => "neither it nor its BMC answers, while a BMC beside it does",
        HeldReason::BmcNetworkSilent => "neither it nor any BMC of its network answers",
        HeldReason::BmcUnclear(what) => return bmc_unclear(what),
        HeldReason::ApiUnreadable => "the API server cannot be read, so its kubelet cannot speak",
        HeldReason::KubeletAlive => {
            "its kubelet renewed its Lease after the last beacon, and has missed no renewal since"
        }
        HeldReason::ArbiterBlind => "the silence of many nodes is unexplained: the arbiter may be cut off",
        HeldReason::NotSeenYet => "it was not heard since the arbiter started",
        HeldReason::TwoNodes => "two nodes can never judge each other",
        HeldReason::Paused { who } => return format!("power commands are paused by {who}"),
        HeldReason::Brake(which) => brake(*which),
        HeldReason::SilentBeforeEnforce => "it was silent already when its policy became Enforce",
        HeldReason::Observe => "no FencingPolicy in Enforce speaks for it, so nothing may be done",
        HeldReason::PolicyConflict(names) => {
            return format!("more than one FencingPolicy selects it ({})", names.join(", "));
        }
        HeldReason::Excluded => "it carries the label coroner.dev/exclude=true",
        HeldReason::NotFenceable(what) | HeldReason::Identity(what) => what,
        HeldReason::FoundOnAgain => "it was found off, then its BMC said On",
        HeldReason::MachineChanged { pinned, found } => {
            return format!("machine {found} runs under its name, {pinned} is pinned");
        }
        HeldReason::Duplicate => "two machines use its identity at once",
        HeldReason::Disputed => "an answer of it is disputed by its probers",
    };
    clause.to_owned()
}

/// What the operator can do about a hold.
pub fn hold_advice(why: &HeldReason) -> &'static str {
    match why {
        HeldReason::TooFewObservers
        | HeldReason::ApiUnreadable
        | HeldReason::FoundOnAgain
        | HeldReason::Disputed => WAIT,
        HeldReason::HostAnswersOnly => "Look at its console; `coroner fence` powers it off.",
        HeldReason::NetworkPartial => "Repair the network.",
        HeldReason::DomainDown => {
            "Look at the domain's power and switch; machines found off are still released."
        }
        HeldReason::BmcSilent
        | HeldReason::BmcNetworkSilent
        | HeldReason::NotSeenYet
        | HeldReason::TwoNodes => CONFIRM,
        HeldReason::BmcUnclear(what) => bmc_advice(what, CONFIRM),
        HeldReason::KubeletAlive => {
            "Wait until a renewal is missed, `coroner explain` says when. If one comes, look at the agent there. If its \
             registration is refused as BootLeft, a clone spoke for it: take the clone away and reboot the node."
        }
        HeldReason::ArbiterBlind => "Look at the arbiter's network.",
        HeldReason::Paused { .. } => "End the pause with `coroner resume`.",
        HeldReason::Brake(which) => brake_advice(*which),
        HeldReason::SilentBeforeEnforce => "Look at it, then `coroner clear-held` or `coroner fence`.",
        HeldReason::Observe => "Set `mode: Enforce` on the FencingPolicy that is to select it.",
        HeldReason::PolicyConflict(_) => "Make the selectors of the policies disjoint.",
        HeldReason::Excluded => "Remove the label if the machine may be powered off.",
        HeldReason::Identity(what) => bmc_advice(what, BINDING),
        HeldReason::NotFenceable(_) => BINDING,
        HeldReason::MachineChanged { .. } => {
            "Find out where the pinned machine is; `coroner repin` if the board was changed on purpose."
        }
        HeldReason::Duplicate => "Find the clone and take it off the network.",
    }
}

#[cfg(test)]
mod tests;
