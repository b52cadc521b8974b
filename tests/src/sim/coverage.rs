//! What a run reached: every edge of a life, class, hold, brake, refusal and finding. A nightly run that misses one of
//! [`MUST`] proves less than it says, and is void.

use std::collections::BTreeMap;

use coroner_arbiter_core::command::Outcome;
use coroner_arbiter_core::judge::Finding;
use coroner_arbiter_core::phase::{FenceProof, HeldReason, Phase};
use coroner_arbiter_core::view::Verdict;

use super::life::By;
use super::truth::Fact;

/// How often each was reached, by name.
#[derive(Clone, Debug, Default)]
pub struct Coverage {
    counts: BTreeMap<String, u64>,
}

/// What a nightly run must reach.
pub const MUST: [&str; 50] = [
    "edge: Alive -> Condemned",
    "edge: Alive -> Held",
    "edge: Condemned -> Alive",
    "edge: Condemned -> Fencing",
    "edge: Condemned -> Held",
    "edge: Fencing -> Alive",
    "edge: Fencing -> Held",
    "edge: Fencing -> ProvenOff",
    "edge: Fencing -> Returning",
    "edge: Held -> Alive",
    "edge: Held -> Condemned",
    "edge: Held -> Held",
    "edge: Held -> ProvenOff",
    "edge: ProvenOff -> Fencing",
    "edge: ProvenOff -> Releasing",
    "edge: ProvenOff -> Returning",
    "edge: Released -> Fencing",
    "edge: Released -> Returning",
    "edge: Releasing -> Released",
    "edge: Releasing -> Returning",
    "edge: Returning -> Alive",
    "class: FoundOff",
    "class: HostSilentBmcOn",
    "class: Ordered",
    "proof: BmcOff",
    "proof: PersonConfirmed",
    "hold: ApiUnreadable",
    "hold: ArbiterBlind",
    "hold: BmcNetworkSilent",
    "hold: BmcSilent",
    "hold: BmcUnclear",
    "hold: Brake(Floor)",
    "hold: Brake(InFlight)",
    "hold: Brake(PerDomain)",
    "hold: Brake(RepeatOffender)",
    "hold: Brake(Storm)",
    "hold: DomainDown",
    "hold: Excluded",
    "hold: FoundOnAgain",
    "hold: HostAnswersOnly",
    "hold: KubeletAlive",
    "hold: NetworkPartial",
    "hold: NotSeenYet",
    "hold: Paused",
    "hold: SilentBeforeEnforce",
    "hold: TooFewObservers",
    "power: off by us",
    "power: on by us",
    "replica: elected",
    "taint: written",
];

// === impl Coverage ===

impl Coverage {
    /// Reached.
    pub fn reach(&mut self, name: impl Into<String>) {
        *self.counts.entry(name.into()).or_default() += 1;
    }

    /// Counts of all that was reached.
    pub fn counts(&self) -> &BTreeMap<String, u64> {
        &self.counts
    }

    /// Adds another run's.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            *self.counts.entry(name.clone()).or_default() += count;
        }
    }

    /// Which of [`MUST`] were not reached.
    pub fn missing(&self) -> Vec<&'static str> {
        MUST.into_iter().filter(|name| !self.counts.contains_key(*name)).collect()
    }

    pub(crate) fn fact(&mut self, fact: &Fact<'_>) {
        match fact {
            Fact::Committed { outcome, before, after, .. } => {
                if let Outcome::Refused(refusal) = outcome {
                    self.reach(format!("refusal: {}", refusal.reason));
                }
                for (name, node) in &after.nodes {
                    let Some(was) = before.nodes.get(name).map(|n| &n.phase) else { continue };
                    if *was != node.phase {
                        self.edge(was, &node.phase);
                    }
                }
            }
            Fact::TurnedOff { by: By::Us, .. } => self.reach("power: off by us"),
            Fact::TurnedOn { by: By::Us, .. } => self.reach("power: on by us"),
            Fact::Tainted { .. } => self.reach("taint: written"),
            Fact::Command { off: true, .. } => self.reach("power: ForceOff"),
            Fact::TurnedOff { .. }
            | Fact::TurnedOn { .. }
            | Fact::Command { .. }
            | Fact::Started { .. }
            | Fact::Due { .. }
            | Fact::End => {}
        }
    }

    fn edge(&mut self, was: &Phase, is: &Phase) {
        let stays = was.name() == is.name();
        if !stays || matches!(is, Phase::Held { .. }) {
            self.reach(format!("edge: {} -> {}", was.name(), is.name()));
        }
        match is {
            Phase::Held { why, .. } => self.reach(format!("hold: {}", hold(why))),
            Phase::Condemned { class, .. } => self.reach(format!("class: {}", class.word())),
            Phase::ProvenOff { proof: FenceProof::BmcOff { .. }, .. } if !stays => {
                self.reach("proof: BmcOff");
            }
            Phase::ProvenOff { proof: FenceProof::PersonConfirmed { .. }, .. } if !stays => {
                self.reach("proof: PersonConfirmed");
            }
            Phase::ProvenOff { .. }
            | Phase::Alive
            | Phase::Fencing { .. }
            | Phase::Releasing { .. }
            | Phase::Released { .. }
            | Phase::Returning { .. } => {}
        }
    }

    pub(crate) fn verdict(&mut self, verdict: &Verdict) {
        match verdict {
            Verdict::Pending(_) | Verdict::Dead(_) => {}
            Verdict::Held(why) => self.reach(format!("verdict: {}", hold(why))),
        }
    }

    pub(crate) fn finding(&mut self, finding: &Finding) {
        let word: String = finding.to_string().chars().take_while(char::is_ascii_alphanumeric).collect();
        self.reach(format!("finding: {word}"));
    }
}

fn hold(why: &HeldReason) -> String {
    if let HeldReason::Brake(brake) = why { format!("Brake({brake:?})") } else { why.word().to_owned() }
}
