//! The chain is whole: what the log decides or proves is on the evidence chain by the entry that did so, each record hashed
//! anew from what it says, and nothing else is on it.

use coroner_arbiter_core::brake;
use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::evidence::{Decided, Evidence, LookedAt, chained};
use coroner_arbiter_core::phase::Phase;
use coroner_arbiter_core::state::{Incident, State};

use super::Invariant;
use crate::sim::truth::Fact;
use crate::sim::world::World;

pub(super) struct Chain;

impl Invariant for Chain {
    fn name(&self) -> &'static str {
        "the chain is whole"
    }

    fn see(&mut self, _: &World, fact: &Fact<'_>) -> Option<String> {
        let Fact::Committed { entry, before, after, .. } = fact else { return None };
        let mut records: Vec<String> =
            touched(after).flat_map(|incident| records_of(incident, after)).collect();
        if before.evidence_chain != after.evidence_chain {
            records.extend(read_again(&entry.command, after));
        }
        if records.is_empty()
            && let Some((name, phase)) = decided(before, after)
        {
            return Some(format!("{name} is {phase}, and nothing came onto the evidence chain"));
        }
        let wanted =
            records.iter().fold(before.evidence_chain.clone(), |chain, digest| chained(&chain, digest));
        (wanted != after.evidence_chain).then(|| {
            format!("with {} records it is {}, by their hashes {wanted}", records.len(), after.evidence_chain)
        })
    }
}

fn touched(state: &State) -> impl Iterator<Item = &Incident> {
    state.incidents.values().filter(|incident| incident.version == state.applied)
}

/// What this entry put on the chain of one incident: a decision is kept whole, of a proof the timeline has the digest.
fn records_of(incident: &Incident, state: &State) -> Vec<String> {
    let decision = incident.record.as_deref().filter(|record| record.index == state.applied);
    let lines = incident.timeline.iter().rev().take_while(|line| line.index == state.applied);
    let proof = lines.filter_map(|line| line.detail.strip_suffix(')')?.rsplit_once("(evidence "));
    decision.map(Evidence::digest).into_iter().chain(proof.map(|(_, digest)| digest.to_owned())).collect()
}

/// The readings that a release rests on, where they were made anew: only the chain knows them.
fn read_again(command: &Command, state: &State) -> Option<String> {
    let Command::ReleaseBegun { incident: id, again: Some(again), .. } = command else { return None };
    let incident = state.incidents.get(id)?;
    let brakes = brake::counts(state);
    let evidence = Evidence {
        index: state.applied,
        at: state.now,
        level: state.level,
        node: incident.node.clone(),
        looked_at: LookedAt::Readings(again.clone()),
        decided: Decided::ProvenOff,
        policy: incident.policy.clone(),
        brakes_before: brakes,
        brakes_after: brakes,
    };
    Some(evidence.digest())
}

/// A node that this entry condemned or called proven.
fn decided<'a>(before: &State, after: &'a State) -> Option<(&'a str, &'static str)> {
    after.nodes.iter().find_map(|(name, node)| {
        let was = before.nodes.get(name).map_or("", |n| n.phase.name());
        let is = node.phase.name();
        let decides = matches!(node.phase, Phase::Condemned { .. } | Phase::ProvenOff { .. });
        (decides && was != is).then(|| (name.as_str(), is))
    })
}
