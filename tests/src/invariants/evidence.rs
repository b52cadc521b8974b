//! Evidence holds: the record of a condemnation gives the same verdict again, names enough silent eligible observers,
//! and no answer of the host.

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::phase::{EvidenceClass, Phase};
use coroner_arbiter_core::policy::select::rules_for;
use coroner_arbiter_core::verdict::verdict;
use coroner_arbiter_core::view::{Said, Standing, Verdict, View};
use coroner_shared::beacon::{Answer, ProbeOutcome};
use coroner_shared::time::Span;

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct Evidence;

impl Invariant for Evidence {
    fn name(&self) -> &'static str {
        "evidence holds"
    }

    fn see(&mut self, _: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Committed { entry, before, after, .. } = fact else { return None };
        let Command::Judge(view) = &entry.command else { return None };
        let is = &after.nodes.get(&view.node)?.phase;
        let was = before.nodes.get(&view.node)?.phase.name();
        let (Phase::Condemned { class, .. }, false) = (is, was == "Condemned") else { return None };
        let again = verdict(view, &rules_for(before, &view.node));
        if again != Verdict::Dead(class.clone()) {
            return Some(format!(
                "{} is condemned ({}) on a view that gives {again:?}",
                view.node,
                class.word()
            ));
        }
        if *class == EvidenceClass::HostSilentBmcOn { too_little(view) } else { None }
    }
}

fn too_little(view: &View) -> Option<String> {
    let k = view.observers.len();
    let silent = view
        .observers
        .iter()
        .filter(|o| o.standing == Standing::Eligible && matches!(o.said, Said::Silent { .. }))
        .count();
    // H = ceil(0.75 k), k = min(8, N - 1).
    let members = usize::try_from(view.members).unwrap_or(0);
    let needed = (3 * members.saturating_sub(1).min(8)).div_ceil(4);
    if silent < needed {
        return Some(format!("{}: {silent} of {k} observers are silent, {needed} are needed", view.node));
    }
    // An answer stands for 30 s; later ones may be taken back by those who asked again in vain.
    let age = view.silence().min(Span::from_secs(30));
    let answers = |o: &ProbeOutcome| {
        matches!(o.answer, Answer::Answered | Answer::Accepted | Answer::Reset) && o.asked_ago < age
    };
    let asked = view.probes.iter().flat_map(|p| &p.outcomes);
    let told = view.observers.iter().flat_map(|o| &o.probes);
    let answered = asked.chain(told).any(answers);
    answered.then(|| format!("{} answered a probe asked after its failure date", view.node))
}
