//! One contract for every place that may keep the log of a replica: plain memory, sled, redb.
//!
//! What holds for all is in `common.rs`; what rot does to a disk, and what a loss of power leaves of it, can only be
//! shown on disks (`damage.rs`, `power_cut.rs`).

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes only functions marked as tests for tests"
)]

mod bench;
mod common;
mod damage;
mod power_cut;

/// One test for each store.
macro_rules! on_every_store {
    ($($name:ident,)*) => {
        mod memory {
            $(#[test]
            fn $name() {
                crate::common::$name(crate::bench::Bench::memory());
            })*
        }
        mod sled {
            $(#[test]
            fn $name() {
                crate::common::$name(crate::bench::Bench::folder(coroner_arbiter::store::StoreKind::Sled));
            })*
        }
        mod redb {
            $(#[test]
            fn $name() {
                crate::common::$name(crate::bench::Bench::folder(coroner_arbiter::store::StoreKind::Redb));
            })*
        }
    };
}

on_every_store! {
    an_empty_disk_holds_nothing_also_after_it_was_opened_before,
    what_is_written_is_there_after_the_next_opening,
    new_entries_replace_everything_from_their_first_index_on,
    a_snapshot_of_our_own_drops_the_entries_up_to_its_base,
    a_snapshot_from_the_leader_replaces_everything,
    a_snapshot_larger_than_a_piece_is_kept_whole_and_replaced_whole,
    a_log_from_which_raft_cannot_start_is_an_error,
    an_entry_that_is_too_large_is_refused_and_nothing_of_its_batch_is_written,
    any_sequence_of_batches_leaves_what_the_model_says,
    a_replica_finds_its_state_again,
}
