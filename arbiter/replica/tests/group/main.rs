//! Replicas in one process; the test is their network, their clock and their disks.
//!
//! `group.rs` is that network. Whatever a test does, `laws.rs` is held to: one leader in a term, one log for all, and
//! nothing is said that the disk does not hold. The stories are by subject; `chaos.rs` draws stories by seed, and shows
//! with disks that break their promise that the laws would notice.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "clippy takes only functions marked as tests for tests"
)]

mod chaos;
mod disk;
mod election;
mod group;
mod laws;
mod log;
mod lost_disk;
mod reads;
mod restart;
mod snapshots;
mod unreadable;
mod wire;
