//! "Probe this host for me": a replica's questions about hosts that may be no peers of this agent.
//!
//! ```text
//!   AskProbe --> probes on every path, twice, 100 ms apart --> ProbeAnswer after at most 300 ms
//! ```
//!
//! Only a verified replica can ask, and only it gets the answer. What the answer means is its to say.

use std::net::{IpAddr, SocketAddr};

use coroner_shared::beacon::{Answer, AskProbe, Path, ProbeAnswer, ProbeOutcome, SignedBeacon};
use coroner_shared::id::{NodeUid, ReplicaId};
use coroner_shared::time::{Mono, Span};

use crate::Known;
use crate::chance::Chance;
use crate::output::ProbeNumber;
use crate::paths::{Detail, PATHS, PROBE_GAP, Paths, is_life};
use crate::peers::{Act, Subjects};

/// Questions worked on at a time; the replica asks again each second, so one too many is not lost for good. A storm
/// of 16 suspects at one prober is far beyond what the brakes let happen.
const ASKS_MAX: usize = 16;
/// An answer leaves at the latest this long after the question: two probes, the second with 200 ms to answer.
const ANSWER_AFTER: Span = Span::from_ms(300);

/// Questions being worked on.
#[derive(Debug, Default)]
pub(crate) struct Asks {
    open: Vec<Ask>,
}

#[derive(Debug)]
struct Ask {
    replica: ReplicaId,
    to: SocketAddr,
    ask: AskProbe,
    since: Mono,
    rounds: u8,
    paths: Paths,
    /// When the answer leaves: sooner once no path has more to say.
    ready: Mono,
    beacon: Option<SignedBeacon>,
}

// === impl Asks ===

impl Asks {
    /// A replica asks. The same question twice is one.
    pub(crate) fn ask(&mut self, now: Mono, replica: ReplicaId, to: SocketAddr, ask: AskProbe) {
        let known = self.open.iter().any(|a| a.replica == replica && a.ask.number == ask.number);
        if !known && self.open.len() < ASKS_MAX {
            let (paths, ready) = (Paths::default(), now + ANSWER_AFTER);
            self.open.push(Ask { replica, to, ask, since: now, rounds: 0, paths, ready, beacon: None });
        }
    }

    /// A probe's answer.
    pub(crate) fn answered(&mut self, now: Mono, number: ProbeNumber, answer: Answer) {
        for ask in &mut self.open {
            ask.paths.answered(number, answer, now);
            ask.settle(now);
        }
    }

    /// A reply of the asked host's agent to one of our numbers.
    pub(crate) fn replied(&mut self, now: Mono, from: &NodeUid, number: ProbeNumber, beacon: &SignedBeacon) {
        for ask in self.open.iter_mut().filter(|a| a.ask.subject == *from) {
            if ask.paths.knows(number) {
                ask.paths.answered(number, Answer::Answered, now);
                ask.beacon = Some(beacon.clone());
                ask.settle(now);
            }
        }
    }

    /// Something unsigned came from an address.
    pub(crate) fn unsigned(&mut self, now: Mono, from: IpAddr) {
        for ask in self.open.iter_mut().filter(|a| a.ask.address == from) {
            ask.paths.unsigned(now);
            ask.settle(now);
        }
    }

    /// Key and address of a host being asked about.
    pub(crate) fn known(&self, node: &NodeUid) -> Option<Known> {
        let ask = &self.open.iter().find(|a| a.ask.subject == *node)?.ask;
        Some(Known { key: ask.key, address: ask.address })
    }

    /// Probes to send, and answers that are ready.
    pub(crate) fn tick(
        &mut self,
        now: Mono,
        subjects: &Subjects,
        chance: &mut Chance,
    ) -> (Vec<Act>, Vec<(SocketAddr, ProbeAnswer)>) {
        let mut acts = Vec::new();
        let mut answers = Vec::new();
        for ask in &mut self.open {
            ask.probe(now, chance, &mut acts);
        }
        self.open.retain(|ask| {
            let ready = now >= ask.ready;
            if ready {
                answers.push((ask.to, ask.answer(now, subjects)));
            }
            !ready
        });
        (acts, answers)
    }

    /// When [`Asks::tick`] has something to do.
    pub(crate) fn due(&self) -> Option<Mono> {
        self.open.iter().map(Ask::due).min()
    }
}

// === impl Ask ===

impl Ask {
    /// Two rounds over all paths: the asked host may be no subject, so none is known to work.
    fn probe(&mut self, now: Mono, chance: &mut Chance, acts: &mut Vec<Act>) {
        if self.rounds >= 2 || now < self.round_due() {
            return;
        }
        self.rounds += 1;
        for path in PATHS {
            if self.settled(now, path) {
                continue;
            }
            let number = ProbeNumber(chance.draw());
            self.paths.asked(path, number, now);
            acts.push(Act::Probe { path, number, address: self.ask.address });
        }
    }

    fn round_due(&self) -> Mono {
        if self.rounds == 0 { self.since } else { self.since + PROBE_GAP }
    }

    /// Whether this path answered since the question, or cannot be asked.
    fn settled(&self, now: Mono, path: Path) -> bool {
        let settles = |answer| is_life(answer) || answer == Answer::NotSent;
        self.outcomes(now).iter().any(|o| o.path == path && settles(o.answer))
    }

    /// Answers early where no path has more to say.
    fn settle(&mut self, now: Mono) {
        if PATHS.into_iter().all(|path| self.settled(now, path)) {
            self.ready = self.ready.min(now);
        }
    }

    fn due(&self) -> Mono {
        if self.rounds < 2 { self.round_due().min(self.ready) } else { self.ready }
    }

    fn outcomes(&self, now: Mono) -> Vec<ProbeOutcome> {
        self.paths.outcomes(self.since, now, Detail::All)
    }

    /// The answer. If the host is a subject of ours, its paths' history is better than what this question saw.
    fn answer(&self, now: Mono, subjects: &Subjects) -> ProbeAnswer {
        let mut outcomes = self.outcomes(now);
        if let Some(subject) = subjects.get(&self.ask.subject) {
            for outcome in &mut outcomes {
                let known = subject.paths.log(outcome.path).worked_ago(now);
                outcome.worked_ago = [outcome.worked_ago, known].into_iter().flatten().min();
            }
        }
        let (number, subject) = (self.ask.number, self.ask.subject.clone());
        ProbeAnswer { number, subject, outcomes, beacon: self.beacon.clone() }
    }
}
