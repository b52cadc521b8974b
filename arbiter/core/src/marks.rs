//! What is written on a Node at a release, and what of it is taken away again: one taint, one annotation, a cordon.
//!
//! ```text
//!   taints and annotation as read --release--> AddTaint, Cordon, Annotate
//!                                 --untaint--> RemoveTaint, RemoveAnnotation: ours alone
//! ```
//!
//! Others write taints too (autoscalers, the node controller, people). Theirs stay as they are and where they are: ours
//! is appended to the list, and only ours is ever removed. That the taint is ours is known from the log, which remembers
//! whether one stood there before, and not from the annotation, which anybody may take away: a taint that stays would
//! have storage torn from a node that works.

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
    // Kubernetes takes one taint of a key and an effect; one of another effect evicts nobody.
    if !node.taints.iter().any(Taint::evicts) {
        edits.push(Edit::AddTaint(Taint::ours()));
    }
    edits.push(Edit::Cordon);
    edits.push(Edit::Annotate(format!("{incident} {digest}")));
    edits
}

/// What a return takes away, in one patch. Empty: nothing of this incident stands there. `keep_taint`: an out-of-service
/// taint stood before us, and is not ours to take. `orphaned`: nobody knows the incident that the annotation names, since
/// all replicas were lost once; else another name there is a later release, of which nothing is touched.
pub fn untaint(node: &Marked<'_>, incident: &IncidentId, keep_taint: bool, orphaned: bool) -> Vec<Edit> {
    if !orphaned && node.annotation.is_some_and(|mark| !names(mark, incident)) {
        return Vec::new();
    }
    let mut edits = Vec::new();
    if let (false, Some(at)) = (keep_taint, node.taints.iter().position(Taint::is_ours)) {
        let alone = node.taints.len() == 1 || planted(Mutant::ForeignTaintDropped);
        edits.push(if alone { Edit::RemoveTaints } else { Edit::RemoveTaint { at } });
    }
    edits.extend(node.annotation.map(|mark| Edit::RemoveAnnotation(mark.to_owned())));
    edits
}

/// Whether an annotation is that of this incident.
fn names(mark: &str, incident: &IncidentId) -> bool {
    mark.split(' ').next() == Some(incident.to_string().as_str())
}

// === impl Marked ===

impl Marked<'_> {
    /// Whether the node is out of service by our hand: our annotation stands, and a taint that evicts.
    pub fn is_ours(&self) -> bool {
        self.annotation.is_some() && self.taints.iter().any(Taint::evicts)
    }

    /// Whether a taint that evicts stands there, and no mark of ours beside it.
    pub fn is_anothers(&self) -> bool {
        self.annotation.is_none() && self.taints.iter().any(Taint::evicts)
    }
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

    /// Whether it has pods evicted as from a node that is out of service, whoever wrote it.
    pub fn evicts(&self) -> bool {
        self.key == OUT_OF_SERVICE_TAINT && self.effect == OUT_OF_SERVICE_EFFECT
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
        // One of another effect evicts nobody: ours is needed beside it.
        let idle = Taint { effect: "NoSchedule".to_owned(), ..Taint::ours() };
        assert_eq!(release(&marked(&[idle], None), &incident(7), "abc").len(), 3);
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
            let edits = untaint(&marked(&taints, Some(&mark)), &incident(7), false, false);
            assert_eq!(edits, wanted.into_iter().chain([gone.clone()]).collect::<Vec<_>>(), "{taints:?}");
        }
    }

    #[test]
    fn what_another_incident_marked_stays_unless_nobody_remembers_that_one() {
        let taints = [Taint::ours()];
        for mark in [format!("{} abc", incident(8)), format!("{}0 abc", incident(7))] {
            let node = marked(&taints, Some(&mark));
            assert_eq!(untaint(&node, &incident(7), false, false), [], "{mark}");
            let all = [Edit::RemoveTaints, Edit::RemoveAnnotation(mark.clone())];
            assert_eq!(untaint(&node, &incident(7), false, true), all, "orphaned: {mark}");
        }
    }

    #[test]
    fn whose_a_taint_is_is_known_from_the_log_and_not_from_the_annotation() {
        let taints = [Taint::ours()];
        let stripped = marked(&taints, None);
        assert_eq!(untaint(&stripped, &incident(7), false, false), [Edit::RemoveTaints]);
        assert_eq!(untaint(&stripped, &incident(7), true, false), [], "it stood before us");
        assert!(stripped.is_anothers() && !stripped.is_ours());
        let mark = format!("{} abc", incident(7));
        let both = marked(&taints, Some(&mark));
        assert!(both.is_ours() && !both.is_anothers());
        assert_eq!(untaint(&both, &incident(7), true, false), [Edit::RemoveAnnotation(mark.clone())]);
    }
}
