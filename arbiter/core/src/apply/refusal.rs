//! Every refusal of `apply`, spelt once: a stable word, what happened to which node, what Coroner does next, and what
//! the operator can do. One enum per subject; what a hold would say of a verdict also refuses an order.

mod act;
mod fact;
mod fencing;
mod held;

use std::borrow::Cow;

use coroner_shared::id::NodeName;

use crate::command::{Outcome, Refusal};

pub(crate) use act::{ActRefusal, ConfirmRefusal};
pub(crate) use fact::FactRefusal;
pub(crate) use fencing::FencingRefusal;
pub(crate) use held::HoldRefusal;

/// What a refusal says.
pub(crate) struct Said {
    /// A stable word.
    pub(crate) word: &'static str,
    /// What happened, as a clause about the node.
    pub(crate) what: String,
    /// What Coroner does next.
    pub(crate) next: &'static str,
    /// What the operator can do.
    pub(crate) advice: Cow<'static, str>,
}

/// A refusal whose words are all fixed but one clause.
fn said(word: &'static str, what: &str, next: &'static str, advice: &'static str) -> Said {
    Said { word, what: what.to_owned(), next, advice: advice.into() }
}

/// Something that refuses.
pub(crate) trait Refuses {
    /// What it says.
    fn said(&self) -> Said;

    /// The refusal about a node, or about whatever else the entry names.
    fn about(&self, subject: &str) -> Refusal {
        let Said { word, what, next, advice } = self.said();
        Refusal { reason: word.to_owned(), message: format!("{subject}: {what}. {next} {advice}") }
    }

    /// The outcome for a node.
    fn refuse(&self, node: &NodeName) -> Outcome {
        Outcome::Refused(self.about(node.as_str()))
    }
}
