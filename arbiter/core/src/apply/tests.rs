//! Tests of `apply`: a small world to speak to, then every edge, every refusal, and random logs.

mod edges;
mod facts;
mod golden;
mod lives;
mod random;
mod refusals;
pub(crate) mod views;
pub(crate) mod world;
