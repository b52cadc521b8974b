//! The arbiter's decisions, as pure functions. No IO, no clock, no randomness, no raft: the simulator links exactly
//! this crate.
//!
//! ```text
//!   beacons, reports, probes,      +---------+   View   +---------+  Verdict
//!   BMC reads, Lease changes  ---> | witness | -------> | verdict | ----------+
//!                                  +---------+          +---------+           v
//!                                                            ^          Command::Judge
//!                                                            | again          |
//!   log entry (Command) ------------------------------> +---------+ <---------+
//!                                                       |  apply  | ---> State ---> jobs(&State)
//!                                                       +---------+        |
//!                                                                          v
//!                                                     the executor runs fence, release, return
//! ```
//!
//! Modules in reading order: [`phase`] (the life of a node), [`policy`] (what operators allow), [`view`] and
//! [`verdict`] (the decision rule), [`observers`] (who hears whom), [`witness`] (what a replica has heard),
//! [`judge`] (what a leader proposes), [`command`] and [`state`] (the log and what it makes), [`apply`] (the only
//! door into a decision), [`brake`] (limits), [`jobs`] (the only source of work), [`identity`] (whose BMC is it),
//! [`fence`] (one fencing as a state machine), [`marks`] (what is written on a Node), [`explain`] (a record as sentences).

pub mod apply;
pub mod brake;
pub mod command;
pub mod control_plane;
pub mod domain;
pub mod evidence;
pub mod explain;
pub mod facts;
pub mod fence;
pub mod hears;
pub mod identity;
pub mod jobs;
pub mod judge;
pub mod last_read;
pub mod leases;
pub mod marks;
pub mod observers;
pub mod pages;
pub mod permit;
pub mod phase;
pub mod policy;
pub mod proof;
pub mod rounds;
pub mod snapshot;
pub mod state;
pub mod status;
pub mod steady;
pub mod told;
pub mod verdict;
pub mod view;
pub mod witness;
pub mod words;
