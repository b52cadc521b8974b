//! The frozen log of level 1: every entry must still lead to the same outcome and the same state.
//!
//! **If this fails, do not change this test or its file.** A log that a group has applied under level 1 must lead every
//! build to the same state for ever, or replicas of mixed versions part ways. A changed rule is a new level: select it
//! by `state.level`, and add a golden log of its own. A new field of the state is written only where it differs from
//! its default.

use coroner_arbiter_core::apply::apply;
use coroner_arbiter_core::command::Entry;
use coroner_arbiter_core::snapshot;
use coroner_arbiter_core::state::State;
use serde::Deserialize;
use sha2::{Digest, Sha256};

/// One entry, and the first 16 hex digits of SHA-256 of what it led to.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Line {
    index: u64,
    entry: Entry,
    outcome: String,
    state: String,
}

fn short(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn the_log_of_level_1_leads_to_the_states_it_always_led_to() {
    let mut state = State::default();
    let mut lines = 0;
    for line in include_str!("golden_level_1.jsonl").lines() {
        let Line { index, entry, outcome: want_outcome, state: want_state } =
            serde_json::from_str(line).unwrap();
        let outcome = apply(&mut state, index, &entry);
        let shown = serde_json::to_string(&entry.command).unwrap();
        assert_eq!(
            short(&serde_json::to_vec(&outcome).unwrap()),
            want_outcome,
            "entry {index}: {outcome:?} of {shown}"
        );
        assert_eq!(
            snapshot::hash(&state).unwrap()[..16],
            want_state,
            "the state after entry {index}: {shown}"
        );
        lines += 1;
    }
    assert!(lines > 150, "only {lines} entries");
}

#[test]
fn entries_are_read_back_as_they_were_written() {
    for line in include_str!("golden_level_1.jsonl").lines() {
        let value: serde_json::Value = serde_json::from_str(line).unwrap();
        let entry: Entry = serde_json::from_value(value["entry"].clone()).unwrap();
        assert_eq!(serde_json::to_value(&entry).unwrap(), value["entry"]);
    }
}
