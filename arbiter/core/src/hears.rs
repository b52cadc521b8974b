//! What the leader hears of one node at the moment when it proposes a person's word about it.
//!
//! ```text
//!   heard within S, Lease renewed, listened for long enough? --> Hears::of --> Command::ConfirmOff --> apply
//! ```
//!
//! Why not one yes or no: a leader that was elected a second ago has heard nobody yet. That is no sign of life, and
//! whoever stands before the dark machine must not be told that it lives.

use coroner_shared::time::Span;
use serde::{Deserialize, Serialize};

/// What speaks for a node, or for asking again. In the log `false` is silence and `true` a sign of life, as ever.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Written", into = "Written")]
pub enum Hears {
    /// Nobody hears it, and whoever leads has listened for long enough to say so.
    Silence,
    /// Somebody heard it within S.
    Node,
    /// Its kubelet renewed its Lease after the last sign of life, and its next renewal is not overdue.
    Kubelet,
    /// Whoever leads has listened for too short a time: its silence means nothing.
    NotYet {
        /// In whole seconds, at least one: after that it will have, unless another leader is elected.
        ask_again: Span,
    },
}

/// How it stands in the log: field and values of level 1 are kept.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written {
    Heard(bool),
    Else(Else),
}

/// What is neither yes nor no.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", rename_all_fields = "camelCase")]
enum Else {
    LeaseRenewed,
    NotYet { ask_again: Span },
}

// === impl Hears ===

impl Hears {
    /// Sums up. `settles_in`: how long the leader still listens before its silence means something, `None` once it does.
    /// A sign of life counts however short it has listened.
    pub fn of(settles_in: Option<Span>, heard: bool, renews: bool) -> Self {
        match (heard, renews, settles_in) {
            (true, _, _) => Self::Node,
            (false, true, _) => Self::Kubelet,
            (false, false, Some(left)) => {
                Self::NotYet { ask_again: Span::from_secs(left.as_ms().div_ceil(1000).max(1)) }
            }
            (false, false, None) => Self::Silence,
        }
    }
}

// === impl Written ===

impl From<Hears> for Written {
    fn from(hears: Hears) -> Self {
        match hears {
            Hears::Silence => Self::Heard(false),
            Hears::Node => Self::Heard(true),
            Hears::Kubelet => Self::Else(Else::LeaseRenewed),
            Hears::NotYet { ask_again } => Self::Else(Else::NotYet { ask_again }),
        }
    }
}

impl From<Written> for Hears {
    fn from(written: Written) -> Self {
        match written {
            Written::Heard(false) => Self::Silence,
            Written::Heard(true) => Self::Node,
            Written::Else(Else::LeaseRenewed) => Self::Kubelet,
            Written::Else(Else::NotYet { ask_again }) => Self::NotYet { ask_again },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn not_yet(seconds: u64) -> Hears {
        Hears::NotYet { ask_again: Span::from_secs(seconds) }
    }

    #[test]
    fn a_sign_of_life_counts_always_and_silence_only_once_the_leader_has_listened() {
        let left = Some(Span::from_ms(3_050));
        let table = [
            (None, false, false, Hears::Silence),
            (None, true, false, Hears::Node),
            (None, false, true, Hears::Kubelet),
            (None, true, true, Hears::Node),
            (left, false, false, not_yet(4)),
            (left, true, false, Hears::Node),
            (left, false, true, Hears::Kubelet),
            (left, true, true, Hears::Node),
            // Never "ask again at once": whoever does is told the same.
            (Some(Span::ZERO), false, false, not_yet(1)),
        ];
        for (left, heard, renews, want) in table {
            assert_eq!(Hears::of(left, heard, renews), want, "{left:?} {heard} {renews}");
        }
    }

    #[test]
    fn in_the_log_yes_and_no_are_what_they_always_were() {
        let table = [
            (Hears::Silence, "false"),
            (Hears::Node, "true"),
            (Hears::Kubelet, r#""leaseRenewed""#),
            (not_yet(4), r#"{"notYet":{"askAgain":4000}}"#),
        ];
        for (hears, written) in table {
            assert_eq!(serde_json::to_string(&hears).unwrap(), written);
            assert_eq!(serde_json::from_str::<Hears>(written).unwrap(), hears);
        }
    }
}
