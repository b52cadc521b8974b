//! What a run reached: every edge of a life, class, hold, brake, refusal and finding. A nightly run that misses one of
//! [`MUST`] proves less than it says, and is void.
//!
//! Not in it, and left to the tables of the cores (`arbiter/core/src/apply/tests`):
//!
//! | what | why no run need reach it |
//! |---|---|
//! | `ProvenOff -> Alive`, `Releasing -> Fencing` | the life that was proven off is heard, and nothing was sent: a BMC or a person was wrong |
//! | `Alive -> Returning` | a fresh group meets the Node in the same entry: `incident: Orphaned` stands for it |
//! | `Releasing -> Held` | another machine between the commit of a release and its taint, some 50 ms |
//! | hold `Brake(Pace)` | it only waits, unless a storm is on |
//! | refusal `CallUnderWay` | a person within the time of one answer of a BMC |
//! | refusals `AnswerNotRecorded`, `NoProof`, `ProofTooOld`, `NotPinned`, `BadBinding`, `NodeMismatch`, `KeyUnknown`, `OldKeyAlive` | the shell does not ask so; a log that does is made by `random` |
//! | refusals `BootLeft`, `ConfirmationExpired`, `FoundOn`, `LeaseMoved`, `NewBootSeen`, `NoPowerOn`, `NotListenedYet`, `PinDisagrees`, `ReturnContradicted`, `Unregistered` | who asks looks first: only what changes within the milliseconds of the way to the log is refused so, in a few of a thousand seeds or in none |
//! | findings `KubeletDead`, `KeyChanged`; page `OnButUnknown` | what an agent says of its host's health, and a key that was lost, are not drawn; who boots an image that nobody knows is a story |

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
pub const MUST: &[&str] = &[
    "edge: Alive -> Condemned",
    "edge: Alive -> Held",
    "edge: Condemned -> Alive",
    "edge: Condemned -> Fencing",
    "edge: Condemned -> Held",
    "edge: Condemned -> ProvenOff",
    "edge: Fencing -> Alive",
    "edge: Fencing -> Held",
    "edge: Fencing -> ProvenOff",
    "edge: Fencing -> Returning",
    "edge: Held -> Alive",
    "edge: Held -> Condemned",
    "edge: Held -> Held",
    "edge: Held -> ProvenOff",
    "edge: ProvenOff -> Fencing",
    "edge: ProvenOff -> Held",
    "edge: ProvenOff -> Releasing",
    "edge: ProvenOff -> Returning",
    "edge: Released -> Fencing",
    "edge: Released -> Returning",
    "edge: Releasing -> Released",
    "edge: Releasing -> Returning",
    "edge: Returning -> Alive",
    "edge: Returning -> Condemned",
    "edge: Returning -> Held",
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
    "hold: Brake(ArbiterHosts)",
    "hold: Brake(Budget)",
    "hold: Brake(ControlPlane)",
    "hold: Brake(Floor)",
    "hold: Brake(InFlight)",
    "hold: Brake(PerDomain)",
    "hold: Brake(PerDomain10m)",
    "hold: Brake(RepeatOffender)",
    "hold: Brake(Storm)",
    "hold: Disputed",
    "hold: DomainDown",
    "hold: Duplicate",
    "hold: Excluded",
    "hold: FoundOnAgain",
    "hold: HostAnswersOnly",
    "hold: Identity",
    "hold: KubeletAlive",
    "hold: MachineChanged",
    "hold: NetworkPartial",
    "hold: NotFenceable",
    "hold: NotSeenYet",
    "hold: Observe",
    "hold: Paused",
    "hold: PolicyConflict",
    "hold: SilentBeforeEnforce",
    "hold: TooFewObservers",
    "hold: TwoNodes",
    "incident: Attempt",
    "incident: Averted",
    "incident: Cleared",
    "incident: Condemned",
    "incident: HoldEnded",
    "incident: Intent",
    "incident: LastReadFailed",
    "incident: LastReadOn",
    "incident: LeaseMoved",
    "incident: NewBoot",
    "incident: NodeGone",
    "incident: Ordered",
    "incident: Orphaned",
    "incident: PersonConfirmed",
    "incident: PowerOn",
    "incident: Proven",
    "incident: ReFence",
    "incident: ReleaseBegun",
    "incident: Released",
    "incident: Reprieve",
    "incident: Returned",
    "incident: Returning",
    "incident: Stalled",
    "incident: TaintRemoved",
    "incident: WouldCondemn",
    "refusal: BadPolicy",
    "refusal: Floor",
    "refusal: Heard",
    "refusal: InFlight",
    "refusal: InIncident",
    "refusal: LevelBehind",
    "refusal: LevelUnknown",
    "refusal: NodeReplaced",
    "refusal: NotFoundOff",
    "refusal: NothingToClear",
    "refusal: NothingToConfirm",
    "refusal: NotReturning",
    "refusal: NotWell",
    "refusal: NotYet",
    "refusal: OtherIncident",
    "refusal: Pace",
    "refusal: Paused",
    "refusal: ReadOnlyIntent",
    "refusal: ShowsLife",
    "refusal: UnknownNode",
    "finding: AgentDown",
    "finding: ArbiterBlind",
    "finding: Duplicate",
    "finding: OffWhileHeard",
    "finding: Partial",
    "finding: ProbeBlind",
    "finding: TopologyWeak",
    "leader: a result of an earlier one comes late",
    "people: labels changed in mid-incident",
    "power: off by us",
    "power: on by us",
    "replica: elected",
    "replica: loses what its disk said was saved",
    "replica: power goes in a write",
    "replica: stops with its disk",
    "taint: written",
    "wire: a version that is not understood",
    "seed class: API server down",
    "seed class: BMC just restarted",
    "seed class: BMC network cut",
    "seed class: BMC refuses or fails",
    "seed class: BMC silent",
    "seed class: a BMC that takes seconds",
    "seed class: a chassis",
    "seed class: a replica cut from the others",
    "seed class: agent away",
    "seed class: agents of another wire version",
    "seed class: agents restarted without the arbiter",
    "seed class: arbiter cut from the workers",
    "seed class: back before the next attempt",
    "seed class: bad weather",
    "seed class: board replaced",
    "seed class: cables swapped in the middle",
    "seed class: clocks are set back",
    "seed class: clocks are set",
    "seed class: clocks at different rates",
    "seed class: clone with the same key",
    "seed class: cold start",
    "seed class: cord pulled",
    "seed class: crash kernel",
    "seed class: cuts that come and go",
    "seed class: deaf observers",
    "seed class: disk at fault",
    "seed class: disk loses what it said was saved",
    "seed class: executor paused between look and command",
    "seed class: hang",
    "seed class: host cut off",
    "seed class: kernel answers only",
    "seed class: kubelet away",
    "seed class: leader blind to the BMC network",
    "seed class: leaders come and go",
    "seed class: liars accuse the living",
    "seed class: liars deny a death",
    "seed class: lone death",
    "seed class: long datagrams are lost",
    "seed class: losses in bursts",
    "seed class: one death",
    "seed class: one replica alone hears it",
    "seed class: one-way cut",
    "seed class: only a refused port answers",
    "seed class: others' marks",
    "seed class: partial cut",
    "seed class: paused between attempts",
    "seed class: people try everything",
    "seed class: people",
    "seed class: planned reboot",
    "seed class: power cycled by somebody",
    "seed class: power goes in a write",
    "seed class: power on after the proof",
    "seed class: quick reboot while condemned",
    "seed class: rack and its BMCs cut",
    "seed class: rack cut off",
    "seed class: rack loses power",
    "seed class: rack's BMCs restart while its switch blips",
    "seed class: replayed beacons of an earlier boot",
    "seed class: replayed beacons",
    "seed class: replica killed",
    "seed class: replica of another level",
    "seed class: replica's disk restored from a copy",
    "seed class: same machine id twice",
    "seed class: script: a leader cut off is read",
    "seed class: script: a new boot before the release",
    "seed class: script: a repeat offender",
    "seed class: script: a second policy",
    "seed class: script: a storm",
    "seed class: script: all replicas lost",
    "seed class: script: clocks in small steps",
    "seed class: script: confirmed before the intent",
    "seed class: script: enforced with a node long dead",
    "seed class: script: hands of a deposed leader",
    "seed class: script: heard again at the last moment",
    "seed class: script: on, and no boot is known",
    "seed class: script: one rack dies slowly",
    "seed class: script: one rack keeps quiet",
    "seed class: script: one says that a machine found off answers",
    "seed class: script: only strangers reach it",
    "seed class: script: ordered off, one too many",
    "seed class: script: paused when it dies",
    "seed class: script: refused",
    "seed class: script: silent again while it returns",
    "seed class: script: some have never heard it",
    "seed class: script: some have not heard it for long",
    "seed class: script: stopped before the intent",
    "seed class: script: stopped while it is only read",
    "seed class: script: the budget is used up",
    "seed class: script: the floor",
    "seed class: script: the last read cannot be made",
    "seed class: script: two machines of one boot",
    "seed class: short freeze",
    "seed class: single flows are black holes",
    "seed class: stale collector of pods",
    "seed class: stale watch",
    "seed class: stopped at the last moment",
    "seed class: the arbiter is killed while it judges",
    "seed class: the arbiter's hosts pause together",
    "seed class: the leader's host dies",
    "seed class: two deaths",
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
        MUST.iter().copied().filter(|name| !self.counts.contains_key(*name)).collect()
    }

    pub(crate) fn fact(&mut self, fact: &Fact<'_>) {
        match fact {
            Fact::Committed { outcome, before, after, .. } => {
                if let Outcome::Refused(refusal) = outcome {
                    self.reach(format!("refusal: {}", refusal.reason));
                }
                for incident in after.incidents.values().filter(|i| i.version == after.applied) {
                    let lines = incident.timeline.iter().rev();
                    for line in lines.take_while(|line| line.index == after.applied) {
                        self.reach(format!("incident: {}", line.what));
                    }
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
            | Fact::Paged { .. }
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
        self.reach(format!("finding: {:?}", finding.kind()));
    }
}

fn hold(why: &HeldReason) -> String {
    if let HeldReason::Brake(brake) = why { format!("Brake({brake:?})") } else { why.word().to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::swarm::COLD;
    use crate::sim::{classes, scripts};

    #[test]
    fn every_class_of_seeds_must_be_played() {
        let drawn: Vec<&str> = classes::names().chain(scripts::names()).chain([COLD]).collect();
        for name in &drawn {
            assert!(MUST.contains(&format!("seed class: {name}").as_str()), "{name} need not be played");
        }
        let named = MUST.iter().filter_map(|mark| mark.strip_prefix("seed class: "));
        for name in named {
            assert!(drawn.contains(&name), "{name} is not drawn");
        }
    }

    #[test]
    fn no_mark_is_named_twice() {
        let mut sorted = MUST.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(sorted.len(), MUST.len());
    }
}
