//! What proves Coroner: the simulator (the shipped cores under every fault), the lab (a real cluster on one machine)
//! and what is told to both.
//!
//! Sees every crate, seen by none. Nothing here ships.

#[cfg(feature = "lab")]
pub mod bench;
pub mod invariants;
#[cfg(feature = "lab")]
pub mod lab;
#[cfg(feature = "lab")]
pub mod oracles;
#[cfg(feature = "lab")]
pub mod scenarios;
pub mod sim;
