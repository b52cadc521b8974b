//! Kubernetes: everything that knows its types. Foreign types stop here; the rest of the arbiter sees the core's.

pub mod auth;
pub mod convert;
pub mod patches;
pub mod publish;
pub mod release;
pub mod types;
pub mod watch;
