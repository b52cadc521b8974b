//! Refusals of facts: policies, bindings, registrations, levels.

use super::{Refuses, Said, said};

/// Why a fact is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FactRefusal {
    /// A policy that cannot be meant.
    BadPolicy(String),
    /// A binding that cannot be meant.
    BadBinding(String),
    /// Not every replica knows the level.
    LevelUnknown(u32, String),
    /// A level is never lowered.
    LevelBehind(u32),
    /// A boot id that was left before.
    BootLeft,
    /// A third key while the second one still speaks.
    OldKeyAlive,
    /// Only a reviewed token introduces a key.
    KeyUnknown,
    /// The token names another Node object than the one that stands.
    NodeMismatch,
    /// A pin is made while the node is well.
    NotWell(&'static str),
    /// The pin would be another machine's.
    PinDisagrees(String),
}

impl Refuses for FactRefusal {
    fn said(&self) -> Said {
        match self {
            Self::BadPolicy(errors) => said(
                "BadPolicy",
                &format!("this policy cannot be meant: {errors}"),
                "The last good version stays in force.",
                "Correct the fields named.",
            ),
            Self::BadBinding(errors) => said(
                "BadBinding",
                &format!("this binding cannot be meant: {errors}"),
                "The last good version stays in force.",
                "Correct the fields named.",
            ),
            Self::LevelUnknown(level, who) => said(
                "LevelUnknown",
                &format!("level {level} is not known to {who}"),
                "The level in force stays.",
                "Finish the rollout of the arbiter first.",
            ),
            Self::LevelBehind(level) => said(
                "LevelBehind",
                &format!("level {level} is in force, and a level is never lowered"),
                "The level in force stays.",
                "Nothing needs to be done.",
            ),
            Self::BootLeft => said(
                "BootLeft",
                "this boot id was left before, and a boot never comes back",
                "The registration in force stays.",
                "Look for a cloned or restored machine and take it away, then reboot the right one. Machines that resume from a \
                 memory image belong in Observe.",
            ),
            Self::OldKeyAlive => said(
                "OldKeyAlive",
                "two keys of this boot are valid already, and the older one still speaks",
                "A third one is taken once the oldest was silent for 60 s.",
                "Check whether two agents run on that node.",
            ),
            Self::KeyUnknown => said(
                "KeyUnknown",
                "the key is not its committed one, and no token was reviewed",
                "The registration in force stays.",
                "The agent registers with its token by itself.",
            ),
            Self::NodeMismatch => said(
                "NodeMismatch",
                "the token names another uid than the Node that stands",
                "The agent tries again; the watch or the token may be behind.",
                "If it persists, check whether the Node was re-created under the agent.",
            ),
            Self::NotWell(why) => said(
                "NotWell",
                why,
                "The machine is pinned once the node is well.",
                "See `coroner explain` for what is missing.",
            ),
            Self::PinDisagrees(why) => said(
                "PinDisagrees",
                &format!("the BMC's machine is not this node's: {why}"),
                "The node is not fenceable.",
                "Check the address in its MachineBinding.",
            ),
        }
    }
}
