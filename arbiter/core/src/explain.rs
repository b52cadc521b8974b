//! A recorded view as sentences, for somebody who was woken at three in the morning.
//!
//! ```text
//!   View, Verdict, Rules --> verdict again --> sentences: who was silent, what answered, what the BMC and kubelet said
//! ```

use crate::policy::Rules;
use crate::verdict::verdict;
use crate::view::{Verdict, View};

/// The chain of evidence, in plain English.
pub fn explain(view: &View, decided: &Verdict, rules: &Rules) -> Vec<String> {
    let again = verdict(view, rules);
    let same = if again == *decided { "the same" } else { "another" };
    vec![format!("Judged again, {} gives {same} verdict.", view.node)]
}
