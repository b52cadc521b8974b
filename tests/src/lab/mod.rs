//! The lab: a real Kubernetes cluster on one machine, whose machines can lose power.

pub mod emulator;
pub mod writer;
