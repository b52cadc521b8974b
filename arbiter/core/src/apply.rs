//! The only door into a decision: one entry of the log, applied to the state. Pure, total and the same on every
//! replica; no flag, clock or watch changes what it does.
//!
//! ```text
//!   (State, index, Entry) --> log time + span --> the command's edge --> settle --> Outcome
//!                                                        |                  |
//!                                    facts register judge order acts     what follows by itself: stops of a policy,
//!                                    fencing release returning           new boots, times that are over, pruning
//! ```
//!
//! An edge between phases that is not in the table of `tests/edges.rs` does not exist.
//!
//! Deliberately absent: any failure. What is not permitted is a [`Refusal`](crate::command::Refusal) with a name, what
//! comes too late is [`Outcome::Stale`].

mod acts;
mod attempt;
mod bindings;
mod boot;
mod confirm;
mod facts;
mod fencing;
mod judge;
mod ledger;
mod order;
#[cfg(coroner_mutants)]
pub(crate) mod planted;
mod proven;
mod refusal;
mod register;
mod release;
mod returning;
mod settle;
mod signs;
#[cfg(test)]
pub(crate) mod tests;

use coroner_shared::time::Span;

use crate::command::{Command, Entry, Outcome};
use crate::observers;
use crate::state::{Replica, State};

pub use judge::{Decision, decide};
pub use release::{booting, may_power_on};
pub use returning::{Waits, end_waits_for, waits_for as return_waits_for};
pub use settle::confirmation_is_over;

/// The highest level of rules that this build knows. A replica whose state says more must stop before it applies
/// anything: it would decide by rules that are not in force.
pub const LEVEL: u32 = 1;
/// The longest span that one entry may add to log time. A leader that was away longer knows nothing of what happened
/// meanwhile, so its absence ages nothing.
pub const SPAN_MAX: Span = Span::from_secs(60);
/// Keys of operators' acts that are remembered; an act is repeated within seconds, not within hundreds of others.
const ACTS_MAX: usize = 256;

/// Where in the log we are, and what is said there.
#[derive(Clone, Copy)]
pub(crate) struct At<'a> {
    /// Index of the entry.
    pub(crate) index: u64,
    /// The entry.
    pub(crate) entry: &'a Entry,
}

/// Applies one entry. `index` is its place in the log and rises; an entry at or below `state.applied` is in the state
/// already (replay after a snapshot) and changes nothing.
pub fn apply(state: &mut State, index: u64, entry: &Entry) -> Outcome {
    if index <= state.applied {
        return Outcome::Stale;
    }
    state.applied = index;
    state.now = state.now + entry.span.min(SPAN_MAX);
    let at = At { index, entry };
    let act = is_act(&entry.command);
    if act && state.acts.contains(&entry.key) {
        return Outcome::Unchanged;
    }
    let membership = state.membership;
    let outcome = command(state, at);
    if act && outcome == Outcome::Done {
        state.acts.push_back(entry.key.clone());
        if state.acts.len() > ACTS_MAX {
            state.acts.pop_front();
        }
    }
    settle::settle(state, at);
    // Timings of detection come from the policies.
    let timings = matches!(entry.command, Command::PolicySet(_) | Command::PolicyGone { .. });
    if timings {
        observers::reseat(state);
    } else if state.membership != membership || !state.moved.is_empty() {
        observers::reseat_moved(state);
    }
    outcome
}

/// Whether an entry is what an operator asked for: done once however often it is sent.
fn is_act(command: &Command) -> bool {
    matches!(
        command,
        Command::Order { .. }
            | Command::ConfirmOff { .. }
            | Command::Pause { .. }
            | Command::Resume { .. }
            | Command::Return { .. }
            | Command::ClearHeld { .. }
            | Command::Repin { .. }
    )
}

/// One arm per command; each edge is in the file of its subject.
fn command(state: &mut State, at: At<'_>) -> Outcome {
    use Command as C;
    match &at.entry.command {
        C::Tick => Outcome::Done,
        C::SetLevel(level) => facts::set_level(state, *level),
        C::ReplicaKnows { replica, host, address, key, level } => {
            let replica =
                (*replica, Replica { host: host.clone(), address: *address, key: *key, level: *level });
            facts::replica_knows(state, replica)
        }
        C::ReplicaGone { replica } => facts::replica_gone(state, *replica),
        C::NodeFacts(facts) => facts::node_facts(state, at, facts),
        C::NodeGone { node, uid } => facts::node_gone(state, at, node, uid),
        C::PolicySet(policy) => facts::policy_set(state, policy),
        C::PolicyGone { name } => facts::policy_gone(state, name),
        C::BindingSet { node, binding } => bindings::set(state, node, binding),
        C::BindingGone { node } => bindings::gone(state, node),
        C::BindingVerified { node, hash, result } => bindings::verified(state, at, node, hash, result),
        C::Repin { node, who, why } => bindings::repin(state, node, who, why),
        C::Register { .. } => register::register(state, at),
        C::OldKeySilent { node, key } => register::old_key_silent(state, node, key),
        C::Goodbye { node, boot, kind, seq } => register::goodbye(state, node, *boot, (*kind, *seq)),
        C::Heard { node, boot, seq } => signs::heard(state, at, node, (*boot, Some(*seq))),
        C::SilentAgain { node } => signs::silent_again(state, at, node),
        C::LeaseMoved { node } => signs::lease_moved(state, at, node),
        C::Judge(view) => judge::judge(state, at, view),
        C::Order { node, uid, who, why } => order::order(state, at, node, uid, who, why),
        C::ConfirmOff { node, confirmation, heard } => {
            confirm::confirm_off(state, at, node, confirmation, *heard)
        }
        C::Pause { node, who, why } => acts::pause(state, node.as_ref(), who, why),
        C::Resume { node, .. } => acts::resume(state, node.as_ref()),
        C::ClearHeld { node, who, why } => acts::clear_held(state, at, node, who, why),
        C::Paged { node, reason } => acts::paged(state, node, reason),
        C::Intent { node, incident, read_only } => fencing::intent(state, at, node, incident, *read_only),
        C::Attempt { .. } => attempt::attempt(state, at),
        C::AttemptAnswered { node, incident, number, answer } => {
            attempt::answered(state, at, node, incident, *number, answer)
        }
        C::Stalled { .. } => fencing::stalled(state, at),
        C::FoundOnAgain { node, incident } => fencing::found_on_again(state, at, node, incident),
        C::StillOn { node, incident, read } => fencing::still_on(state, at, node, incident, *read),
        C::Proven { .. } => proven::proven(state, at),
        C::LastReadFailed { node, incident, why } => {
            release::last_read_failed(state, at, node, incident, why)
        }
        C::LastReadOn { node, incident } => release::last_read_on(state, at, node, incident),
        C::ReleaseBegun { .. } => release::begun(state, at),
        C::TaintSeen { node, incident } => release::taint_seen(state, at, node, incident),
        C::LeftoversGone { node, incident } => release::leftovers_gone(state, at, node, incident),
        C::PowerAfterRelease { node, incident, on } => release::power(state, at, node, incident, *on),
        C::PowerOn { node, incident } => release::power_on(state, at, node, incident),
        C::TaintRemoved { node, incident } => returning::taint_removed(state, at, node, incident),
        C::Returned { node, incident } => returning::returned(state, at, node, incident),
        C::Return { node, who, why } => returning::waive(state, at, node, who, why),
    }
}
