//! The health summary that a beacon carries. What each fault means and what follows is the arbiter's to say.

use serde::{Deserialize, Serialize};

/// One byte in every beacon: which parts of the node the agent knows to be ill.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct HealthSummary(u8);

impl HealthSummary {
    /// Nothing is known to be wrong.
    pub const GOOD: Self = Self(0);
    /// The kubelet's own health endpoint does not answer.
    pub const KUBELET_DEAD: Self = Self(1);

    /// Whether nothing is known to be wrong.
    pub const fn is_good(self) -> bool {
        self.0 == 0
    }

    /// Whether all faults of `other` are among these.
    pub const fn has(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Both sets of faults.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}
