//! What happens to sites, told as scenarios: each does something to the machines, BMCs, networks or to Coroner itself,
//! says what must follow, and fails when it does not. Whether anything happened that must never be is not asked here:
//! that is the oracles' business, over everything at once.
//!
//! The demo plays some of them for people; the tests of the lab play all of them.

pub mod alive;
pub mod api_partition;
pub mod boots;
pub mod calm;
pub mod cord_pulled;
pub mod gate;
pub mod groups;
pub mod hang;
pub mod leaders;
pub mod play;
pub mod policies;
pub mod power_cut;
pub mod results;
pub mod returns;
pub mod settle;
pub mod story;
pub mod stubborn;
pub mod swapped_bmc;

use anyhow::Result;
use futures::future::LocalBoxFuture;

use self::returns::Return;
use crate::{lab::site::Site, oracles::stages::Stages};

/// A scenario.
#[derive(Clone, Copy)]
pub struct Case {
    /// Its name, in results and on the command line.
    pub name: &'static str,
    /// What happens and what must follow, in a line.
    pub about: &'static str,
    /// Whether every BMC must have been read long enough before it begins.
    pub steady: bool,
    /// Plays it.
    pub play: for<'a> fn(&'a Site) -> LocalBoxFuture<'a, Result<Told>>,
}

/// What a scenario that went as it should has to tell.
#[derive(Debug, Default)]
pub struct Told {
    /// What was seen.
    pub why: String,
    /// How long the stages of the death took, where there was one.
    pub ms: Stages,
    /// Nodes that are on their way back.
    pub returns: Vec<Return>,
}

/// What the demo plays, in this order; the first one needs no steady BMC and plays while the others become so.
pub const DEMO: [Case; 5] = [
    Case {
        name: "api-partition",
        about: "a node is cut off from the API server only: Kubernetes gives it up, Coroner hears it and does nothing",
        steady: false,
        play: |site| Box::pin(api_partition::play(site)),
    },
    Case {
        name: "power-cut",
        about: "a host loses power, its BMC has standby power: found off, proven, released",
        steady: true,
        play: |site| Box::pin(power_cut::play(site)),
    },
    Case {
        name: "hang",
        about: "a host hangs and its BMC says On: powered off, proven, released, powered on again",
        steady: true,
        play: |site| Box::pin(hang::play(site)),
    },
    Case {
        name: "swapped-bmc",
        about: "the BMC addresses of two nodes are exchanged, then one of them loses power: nothing is commanded",
        steady: true,
        play: |site| Box::pin(swapped_bmc::play(site)),
    },
    Case {
        name: "cord-pulled",
        about: "host and BMC lose power together: held by name, until a person confirms",
        steady: true,
        play: |site| Box::pin(cord_pulled::play(site)),
    },
];
