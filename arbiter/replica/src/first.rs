//! The state as a snapshot of raft's, and the log with which a group starts.

use coroner_arbiter_core::state::State;
use coroner_arbiter_core::{apply, snapshot};
use coroner_shared::id::ReplicaId;
use raft::prelude::{ConfState, HardState, Snapshot};

use crate::said::{Bootstrap, Fatal};
use crate::store::{Base, Loaded};

/// The same synthetic snapshot on every first replica: index 1, term 1, all members.
pub(crate) fn first_log(id: ReplicaId, bootstrap: &Bootstrap) -> Result<Loaded, Fatal> {
    let voters = bootstrap.members.iter().map(|id| id.get()).collect();
    let conf_state = ConfState { voters, ..ConfState::default() };
    let snapshot = encode(id, &bootstrap.state, Base { index: 1, term: 1 }, &conf_state)?;
    let hard_state = HardState { term: 1, commit: 1, ..HardState::default() };
    Ok(Loaded { hard_state, snapshot, base: Base { index: 1, term: 1 }, entries: Vec::new() })
}

/// The state as it is after the entry `at`.
pub(crate) fn encode(id: ReplicaId, state: &State, at: Base, members: &ConfState) -> Result<Snapshot, Fatal> {
    let mut made = Snapshot::default();
    let meta = made.mut_metadata();
    meta.index = at.index;
    meta.term = at.term;
    meta.set_conf_state(members.clone());
    made.data = snapshot::to_bytes(state).map_err(|e| unreadable(id, "its own state", &e))?.into();
    Ok(made)
}

/// The state in a snapshot, if this build may go on from it.
pub(crate) fn decode(id: ReplicaId, from: &Snapshot) -> Result<State, Fatal> {
    let state = snapshot::from_bytes(&from.data).map_err(|e| unreadable(id, "a snapshot", &e))?;
    knows_rules(id, &state)?;
    Ok(state)
}

/// A build that does not know the rules in force would decide otherwise than the rest of the group.
pub(crate) fn knows_rules(id: ReplicaId, state: &State) -> Result<(), Fatal> {
    if state.level <= apply::LEVEL {
        return Ok(());
    }
    let why = format!("this build knows level {} and those before", apply::LEVEL);
    Err(Fatal::Unreadable { id, what: format!("level {} of the rules", state.level), why })
}

/// The error with its causes: a person is to find out which build they need.
pub(crate) fn unreadable(id: ReplicaId, what: impl Into<String>, error: &dyn std::error::Error) -> Fatal {
    let mut why = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        why = format!("{why}: {next}");
        cause = next.source();
    }
    Fatal::Unreadable { id, what: what.into(), why }
}
