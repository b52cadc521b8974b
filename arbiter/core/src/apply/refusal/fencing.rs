//! Refusals on the way from an intent to a return.

use coroner_shared::time::Span;

use super::{Refuses, Said, said};

/// Why a step of a fence, a release or a return is not committed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum FencingRefusal {
    /// The node is heard, or was during the readings.
    Heard,
    /// The kubelet's Lease changed after the proof or during the readings.
    LeaseMoved,
    /// Another boot has registered: this life is over.
    NewBootSeen,
    /// The intent permits reading only.
    ReadOnlyIntent,
    /// The machine was found off, and is on.
    FoundOn,
    /// On after being found off matters to that class only.
    NotFoundOff,
    /// The proof rests on an answer that the log does not hold.
    AnswerNotRecorded,
    /// Readings that are no proof.
    NoProof(String),
    /// The readings are older than 60 s.
    ProofTooOld(Span),
    /// The person's word is older than 15 minutes.
    ConfirmationExpired,
    /// A condition of an ending is not met yet.
    NotYet(String),
    /// Power-on is not asked for.
    NoPowerOn(&'static str),
}

impl Refuses for FencingRefusal {
    fn said(&self) -> Said {
        match self {
            Self::Heard => said(
                "Heard",
                "a proof of life came",
                "No power command is sent, nothing is released; it is judged by what it does next.",
                "If it should be off all the same, order it with `coroner fence`.",
            ),
            Self::LeaseMoved => said(
                "LeaseMoved",
                "its kubelet renewed its Lease after or during the readings",
                "Nothing is released; off is proven anew.",
                "Check whether another machine uses this Node's name.",
            ),
            Self::NewBootSeen => said(
                "NewBootSeen",
                "another boot of it has registered, so the life that was condemned is over",
                "No power command is sent; the incident ends when the kubelet reports the same boot.",
                "If it never does, look at the kubelet on that node.",
            ),
            Self::ReadOnlyIntent => said(
                "ReadOnlyIntent",
                "this intent permits reading only",
                "Off is proven by readings alone, over the longer span.",
                "If its BMC stopped answering, look at the machine and use `coroner confirm-off`.",
            ),
            Self::FoundOn => {
                let next = "No power command is sent; the intent closes and the node is judged again.";
                said("FoundOn", "it was found off, and now its BMC says On", next, "See who works on it.")
            }
            Self::NotFoundOff => said(
                "NotFoundOff",
                "it was not condemned as found off, or a command was sent since; On is what is to be changed",
                "The fence goes on.",
                "Follow it with `coroner explain`.",
            ),
            Self::AnswerNotRecorded => said(
                "AnswerNotRecorded",
                "the proof names an answer of the BMC that is not the recorded one",
                "Nothing is released; the fence goes on.",
                "Please report this: it should not happen.",
            ),
            Self::NoProof(gap) => said(
                "NoProof",
                &format!("the readings do not prove off: {gap}"),
                "Nothing is released; the fence goes on.",
                "If it does not end, look at the machine and use `coroner confirm-off`.",
            ),
            Self::ProofTooOld(age) => {
                let what = format!("its proof is {age} old, and only 60 s count");
                said(
                    "ProofTooOld",
                    &what,
                    "Off is read anew, then it is released.",
                    "Nothing needs to be done.",
                )
            }
            Self::ConfirmationExpired => {
                let advice = "Look at the machine once more and use `coroner confirm-off` again.";
                let what = "the confirmation is older than 15 minutes";
                said("ConfirmationExpired", what, "Nothing is released.", advice)
            }
            Self::NotYet(waits) => {
                let advice = "If it must not wait, see `coroner return`.";
                said("NotYet", &format!("it waits for {waits}"), "It goes on by itself after that.", advice)
            }
            Self::NoPowerOn(why) => {
                said("NoPowerOn", why, "The machine stays as it is.", "Power it on by hand if that is right.")
            }
        }
    }
}
