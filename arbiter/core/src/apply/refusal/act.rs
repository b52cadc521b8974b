//! Refusals of what people and policies ask for.

use coroner_shared::id::IncidentId;
use coroner_shared::time::Span;

use super::{Refuses, Said, said};
use crate::phase::HeldReason;
use crate::words;

/// Why an act is not done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ActRefusal {
    /// No such Node.
    UnknownNode,
    /// The host never registered a key, or has no machine id.
    Unregistered,
    /// The Node has another uid than the one they looked at.
    NodeReplaced,
    /// An incident is open already.
    InIncident(&'static str),
    /// The node is not on its way back.
    NotReturning(&'static str),
    /// The kubelet still speaks of the boot that was proven off.
    ReturnContradicted,
    /// Nothing of what a person can clear stands.
    NothingToClear,
    /// There is no pin to forget.
    NotPinned,
}

/// Why a confirmation is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ConfirmRefusal {
    /// There is no silence to confirm.
    NothingToConfirm(&'static str),
    /// The confirmation speaks of another incident, Node or boot.
    OtherIncident(Option<IncidentId>),
    /// A power command is on its way.
    CallUnderWay,
    /// It is heard.
    Heard,
    /// Whoever leads has only just been elected: ask again in so many seconds.
    NotListenedYet(Span),
    /// Nobody hears its agent, and something else says that the machine runs.
    ShowsLife(HeldReason),
}

impl Refuses for ActRefusal {
    fn said(&self) -> Said {
        match self {
            Self::UnknownNode => said(
                "UnknownNode",
                "no such Node is known",
                "Nothing is done.",
                "Check the name with `coroner nodes`.",
            ),
            Self::Unregistered => said(
                "Unregistered",
                "its host never registered, or has no machine id, so it is not known which machine it is",
                "Nothing is done.",
                "Check that the agent runs there, reads its SMBIOS UUID and reaches the arbiter.",
            ),
            Self::NodeReplaced => said(
                "NodeReplaced",
                "the Node was re-created since: its uid is another one",
                "Nothing is done to the new Node.",
                "Look at it again with `coroner nodes`, and repeat the act if it is still meant.",
            ),
            Self::InIncident(phase) => said(
                "InIncident",
                &format!("it is {phase} already"),
                "That incident goes on.",
                "Follow it with `coroner explain`.",
            ),
            Self::NotReturning(phase) => said(
                "NotReturning",
                &format!("it is {phase}, not on its way back"),
                "Nothing is changed on the Node.",
                "A return begins when the kubelet reports a new boot.",
            ),
            Self::ReturnContradicted => said(
                "ReturnContradicted",
                "the kubelet still reports the boot that ended",
                "The taint stays.",
                "Reboot the machine, or wait until its kubelet reports the new boot id.",
            ),
            Self::NothingToClear => said(
                "NothingToClear",
                "neither RepeatOffender nor SilentBeforeEnforce stands",
                "Nothing is changed.",
                "See why it is held with `coroner explain`.",
            ),
            Self::NotPinned => said(
                "NotPinned",
                "no machine is pinned for it",
                "The next good verification of its MachineBinding pins one.",
                "`coroner nodes` shows when its BMC is ready.",
            ),
        }
    }
}

impl Refuses for ConfirmRefusal {
    fn said(&self) -> Said {
        match self {
            Self::NothingToConfirm(phase) => said(
                "NothingToConfirm",
                &format!("it is {phase}, which no confirmation changes"),
                "Nothing is released.",
                "Confirm only a node that is held, that waits for its fence, or whose last read failed.",
            ),
            Self::OtherIncident(open) => said(
                "OtherIncident",
                &open.as_ref().map_or_else(
                    || "no incident is open".to_owned(),
                    |id| format!("the open incident is {id}, and not what was confirmed"),
                ),
                "Nothing is released.",
                "Look at the node again with `coroner explain`, and confirm what stands there.",
            ),
            Self::CallUnderWay => said(
                "CallUnderWay",
                "a power command is on its way to its BMC",
                "Its answer or its deadline of 10 s is awaited.",
                "Confirm again after that.",
            ),
            Self::Heard => said(
                "Heard",
                "somebody hears it, so it is not off",
                "Nothing is released.",
                "Check which machine was looked at; this one lives.",
            ),
            Self::NotListenedYet(ask_again) => Said {
                word: "NotListenedYet",
                what: "nobody has been heard to say that it lives, but the replica that leads has only just been \
                       elected and has not listened for long enough to know"
                    .to_owned(),
                next: "Nothing is released, and the confirmation is not kept.",
                advice: format!("Ask again in {} s.", ask_again.as_ms() / 1000).into(),
            },
            Self::ShowsLife(why) => said(
                "ShowsLife",
                &format!("it is not off: {}", words::hold(why)),
                "Nothing is released.",
                "Check which machine was looked at. If this one is off, confirm again in a quarter of a minute.",
            ),
        }
    }
}
