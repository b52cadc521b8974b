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
//! Modules: [`store`] (what a disk must do), [`memory`] (one that forgets), `mirror` (the log as raft-rs reads it),
//! [`replica`] (the turning).

pub mod memory;
mod mirror;
pub mod replica;
pub mod store;

pub use replica::{Applied, Bootstrap, Fatal, NotLeader, Replica, ReplicaConfig, Role, StepError, Turn};
pub use store::{Batch, Loaded, LogStore, StoreError};
