//! One member of the Raft group, turned by hand: raft-rs decides about the log, `coroner-arbiter-core` about the state.
//!
//! ```text
//!    tick, step(message), propose(command), read_index
//!                     |
//!                     v
//!               +-----------+   persist (LogStore, synced)
//!               |  Replica  | ------------------------------> disk
//!               +-----------+
//!                     |  turn(): only what the disk already holds
//!                     v
//!    messages to send, applied entries with outcomes, read answers, change of role
//! ```
//!
//! The order is: input, core, save, send, publish. A failed save is [`Fatal`]: the process stops and does not send.
//! Nothing here reads a clock, spawns, sleeps or talks to a network; the simulator links this crate. raft-rs draws its
//! election time-outs from a random source of its own, which a caller tames with [`ReplicaConfig::election_ticks`]
//! one tick wide.
//!
//! Modules: [`said`] (what goes in and comes out), [`store`] (what a disk must do), [`memory`] (one that does as it is
//! told, for the simulator), `mirror` (the log as raft-rs reads it), `first` (the state as a snapshot of raft's),
//! `heard` (which members answer), `incoming` (what a peer may say), [`replica`] (the turning).

mod first;
mod heard;
mod incoming;
pub mod memory;
mod mirror;
pub mod replica;
pub mod said;
pub mod store;

pub use memory::{MemoryStore, PowerCut};
pub use replica::Replica;
pub use said::{
    Applied, Bootstrap, Fatal, NotLeader, ReplicaConfig, Role, StepError, Turn, Vote, is_snapshot, vote_in,
};
pub use store::{Batch, Loaded, LogStore, StoreError};
