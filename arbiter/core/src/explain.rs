//! A recorded view as sentences, for somebody who was woken at three in the morning.
//!
//! ```text
//!   View, Verdict, Rules --> verdict again --> sentences: what was decided, who was silent, what answered, what the BMC
//!                                              and the kubelet said, what was counted, and that the record agrees
//! ```
//!
//! Every number that the rule looked at stands in some sentence with the number it was compared with. "Before" means
//! before the view was taken.

mod parts;
#[cfg(test)]
mod tests;

use coroner_shared::api::NodeSummary;
use coroner_shared::time::Span;

use crate::phase::EvidenceClass;
use crate::policy::Rules;
use crate::verdict::verdict;
use crate::view::{Pending, Verdict, View};
use crate::words;

/// The chain of evidence, in plain English. `decided` is what was concluded from the view when it was taken.
pub fn explain(view: &View, decided: &Verdict, rules: &Rules) -> Vec<String> {
    let mut said = vec![conclusion(view, decided)];
    said.push(parts::silence(view, rules));
    said.extend(parts::observers(view, rules));
    said.extend(parts::probes(view));
    said.extend(parts::power(view, rules));
    said.push(parts::kubelet(view));
    said.extend(parts::fleet(view));
    said.extend(parts::goodbye(view, rules));
    said.push(again(view, decided, rules));
    said
}

/// Of a node that nobody suspects: whether that is because it is heard, or because it cannot be told. `heard_ago`: the
/// latest sign of life that any replica holds, which the leader alone knows.
pub fn unsuspected(summary: &NodeSummary, leads: bool) -> Vec<String> {
    let node = &summary.node;
    let mut said: Vec<String> = Vec::new();
    if let Some(reason) = &summary.reason {
        said.push(format!("{node} is {}: {reason}. {}", summary.phase, summary.next));
    }
    said.extend(summary.advice.clone());
    said.push(match summary.heard_ago {
        _ if !leads => "This replica does not lead; who was heard when is known on the leader.".to_owned(),
        Some(ago) if summary.boot.is_none() => {
            format!("The last sign of life of any boot of it came {ago} ago.")
        }
        Some(ago) => format!("Nothing speaks against it: the last sign of life of it came {ago} ago."),
        None => "Nobody has heard it since this leader began.".to_owned(),
    });
    said
}

/// One sentence: the verdict and what it means.
fn conclusion(view: &View, decided: &Verdict) -> String {
    let node = &view.node;
    match decided {
        Verdict::Dead(EvidenceClass::FoundOff) => {
            format!("{node} counts as dead: its machine is off (class FoundOff).")
        }
        Verdict::Dead(EvidenceClass::HostSilentBmcOn) => format!(
            "{node} counts as dead: it is silent to everybody and its BMC says that it is on (class HostSilentBmcOn). It \
             must be powered off before its workloads may start elsewhere."
        ),
        Verdict::Dead(EvidenceClass::Ordered { who, why }) => {
            format!("{node} was ordered off by {who}: {why}.")
        }
        Verdict::Held(why) => {
            format!("{node} is silent and nothing is done: {}. {}", words::hold(why), words::hold_advice(why))
        }
        Verdict::Pending(why) => format!("{node} is not decided: {}", pending(why)),
    }
}

fn pending(why: &Pending) -> String {
    match why {
        Pending::Heard => "it is heard.".into(),
        Pending::OwnHost => "a leader does not judge the host it runs on.".into(),
        Pending::Deadline { left } => format!("its deadline is {left} away."),
        Pending::Renewal { left } => {
            format!("its kubelet has not missed a renewal of its Lease yet; that is {left} away.")
        }
        Pending::Probes => "probes that were asked for have not come back.".into(),
        Pending::Bmc => "its BMC has not been read long enough.".into(),
        Pending::Goodbye { left } => format!("it announced a planned silence, of which {left} is left."),
    }
}

fn again(view: &View, decided: &Verdict, rules: &Rules) -> String {
    let now = verdict(view, rules);
    if now == *decided {
        "Judged again on this record, the verdict is the same.".into()
    } else {
        format!(
            "Judged again on this record, the verdict is ANOTHER one: {now:?} instead of {decided:?}. Record or rules were \
             changed."
        )
    }
}

/// "1 observer", "3 observers".
fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}

fn before(age: Span) -> String {
    format!("{age} before")
}
