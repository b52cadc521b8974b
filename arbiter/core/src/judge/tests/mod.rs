//! The desk at work, in a small cluster around it.

mod asks;
mod findings;
mod leaders;
mod leases;
mod signs;
mod stories;
mod table;
pub(crate) mod world;
