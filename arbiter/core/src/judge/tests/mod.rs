//! The desk at work, in a small cluster around it.

mod asks;
mod findings;
mod leases;
mod signs;
mod stories;
mod table;
pub(crate) mod world;
