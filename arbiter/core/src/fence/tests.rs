//! Fences driven to their end: one test per rule, then faults at every point, then nonsense.

mod bmc;
mod ending;
mod executor;
mod faults;
mod judge;
mod log;
mod property;
mod rules;
mod world;
