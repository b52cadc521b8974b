//! The driver against tiny TLS servers that behave, or do not, one way at a time. (The BMC emulator with every field
//! case is the tests crate's.)

#![allow(clippy::unwrap_used, clippy::expect_used, missing_docs, unreachable_pub, reason = "tests")]

mod commands;
mod cost;
mod facts;
mod hostile;
mod identity;
mod machine;
mod permission;
mod secrets;
mod server;
mod sessions;
mod tls;
mod transport;
