//! What proves Coroner: the lab (a real cluster on one machine) and what is told to it.
//!
//! Sees every crate, seen by none. Nothing here ships.

pub mod bench;
pub mod lab;
pub mod oracles;
pub mod scenarios;
