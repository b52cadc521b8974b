//! What is written on a Node at a release, and what of it is taken away again: one taint, one annotation, a cordon.
//!
//! ```text
//!   taints and annotation as read --release--> AddTaint, Cordon, Annotate
//!                                 --untaint--> RemoveTaint, RemoveAnnotation: ours alone, told by the incident
//! ```
//!
//! Others write taints too (autoscalers, the node controller, people). Theirs stay as they are and where they are: ours
//! is appended to the list, and only ours is ever removed.

use coroner_shared::id::IncidentId;
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::names::{OUT_OF_SERVICE_TAINT, OUT_OF_SERVICE_VALUE};

/// The effect of our taint: pods that do not tolerate it are evicted.
pub const OUT_OF_SERVICE_EFFECT: &str = "NoExecute";

/// A taint of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Taint {
    /// Its key.
    pub key: String,
    /// Its value; empty where there is none.
    pub value: String,
    /// Its effect.
    pub effect: String,
}

/// A Node as far as our marks go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked<'a> {
    /// All of its taints, in order.
    pub taints: &'a [Taint],
    /// Our annotation, if it stands.
    pub annotation: Option<&'a str>,
}

/// One change of a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// Append this taint.
    AddTaint(Taint),
    /// Take away the taint at this place, which is ours.
    RemoveTaint {
        /// From the beginning of the list, from 0.
        at: usize,
    },
    /// Take away the whole list: an empty one would be a trace of ours on a Node that had none.
    RemoveTaints,
    /// Mark it unschedulable.
    Cordon,
    /// Write our annotation.
    Annotate(String),
    /// Take away our annotation, as it was read.
    RemoveAnnotation(String),
}

/// What a release writes, in one patch. `digest` is that of the evidence; the annotation names both.
pub fn release(node: &Marked<'_>, incident: &IncidentId, digest: &str) -> Vec<Edit> {
    let mut edits = Vec::new();
    if node.taints.iter().all(|taint| taint.key != OUT_OF_SERVICE_TAINT) {
        edits.push(Edit::AddTaint(Taint::ours()));
    }
    edits.push(Edit::Cordon);
    edits.push(Edit::Annotate(format!("{incident} {digest}")));
    edits
}

/// What a return takes away, in one patch. Empty: nothing of this incident stands there.
pub fn untaint(node: &Marked<'_>, incident: &IncidentId) -> Vec<Edit> {
    let Some(mark) = node.annotation.filter(|mark| names(mark, incident)) else { return Vec::new() };
    let mut edits = Vec::new();
    if let Some(at) = node.taints.iter().position(Taint::is_ours) {
        let alone = node.taints.len() == 1 || planted(Mutant::ForeignTaintDropped);
        edits.push(if alone { Edit::RemoveTaints } else { Edit::RemoveTaint { at } });
    }
    edits.push(Edit::RemoveAnnotation(mark.to_owned()));
    edits
}

/// Whether an annotation is that of this incident.
fn names(mark: &str, incident: &IncidentId) -> bool {
    mark.split(' ').next() == Some(incident.to_string().as_str())
}

// === impl Taint ===

impl Taint {
    /// Ours.
    pub fn ours() -> Self {
        Self {
            key: OUT_OF_SERVICE_TAINT.to_owned(),
            value: OUT_OF_SERVICE_VALUE.to_owned(),
            effect: OUT_OF_SERVICE_EFFECT.to_owned(),
        }
    }

    /// Ours, or one that looks like it.
    pub fn is_ours(&self) -> bool {
        *self == Self::ours()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn other(key: &str) -> Taint {
        Taint { key: key.to_owned(), value: String::new(), effect: "NoSchedule".to_owned() }
    }

    fn incident(index: u64) -> IncidentId {
        IncidentId::of(&"n1".parse().unwrap(), index)
    }

    fn marked<'a>(taints: &'a [Taint], annotation: Option<&'a str>) -> Marked<'a> {
        Marked { taints, annotation }
    }

    #[test]
    fn ours_is_appended_once_and_the_others_are_left_alone() {
        let others = [other("a"), other("b")];
        let written = release(&marked(&others, None), &incident(7), "abc");
        let annotation = Edit::Annotate(format!("{} abc", incident(7)));
        assert_eq!(written, [Edit::AddTaint(Taint::ours()), Edit::Cordon, annotation.clone()]);
        let again = [other("a"), Taint::ours()];
        assert_eq!(release(&marked(&again, None), &incident(7), "abc"), [Edit::Cordon, annotation]);
        // Somebody else's taint of the same key cannot stand beside ours with the same effect.
        let theirs = Taint { value: "maintenance".to_owned(), ..Taint::ours() };
        assert_eq!(release(&marked(&[theirs], None), &incident(7), "abc").len(), 2);
    }

    #[test]
    fn only_ours_is_taken_away_and_the_list_only_with_the_last() {
        let mark = format!("{} abc", incident(7));
        let gone = Edit::RemoveAnnotation(mark.clone());
        for (taints, wanted) in [
            (vec![Taint::ours()], Some(Edit::RemoveTaints)),
            (vec![other("a"), Taint::ours(), other("b")], Some(Edit::RemoveTaint { at: 1 })),
            (vec![Taint::ours(), other("b")], Some(Edit::RemoveTaint { at: 0 })),
            (vec![other("a")], None),
            (vec![Taint { value: "maintenance".to_owned(), ..Taint::ours() }], None),
            (vec![Taint { effect: "NoSchedule".to_owned(), ..Taint::ours() }], None),
        ] {
            let edits = untaint(&marked(&taints, Some(&mark)), &incident(7));
            assert_eq!(edits, wanted.into_iter().chain([gone.clone()]).collect::<Vec<_>>(), "{taints:?}");
        }
    }

    #[test]
    fn what_another_incident_or_nobody_marked_stays() {
        let taints = [Taint::ours()];
        for annotation in [None, Some(format!("{} abc", incident(8))), Some(format!("{}0 abc", incident(7)))]
        {
            let node = marked(&taints, annotation.as_deref());
            assert_eq!(untaint(&node, &incident(7)), [], "{annotation:?}");
        }
    }
}
