//! The desk at work, in a small cluster around it.

mod table;
mod world;
