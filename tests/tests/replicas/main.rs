//! Replicas as the arbiter runs them: their birth against an API server, and three of their threads in one process
//! with real disks and clocks. What raft itself must do is tested, without either, in `arbiter/replica/tests`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "clippy takes only functions marked as tests for tests"
)]

mod api;
mod birth;
mod group;
mod threads;
