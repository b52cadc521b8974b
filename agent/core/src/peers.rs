//! The hosts that this agent listens to: when each was last heard, and who is silent.
//!
//! ```text
//!   beacons, probe answers, ticks --> Subjects --> probes to send, who fell silent, who is heard again
//!
//!   Heard --(no beacon for S)--> Doubted --(two probes 100 ms apart, 200 ms in all)--> Silent
//!     ^-------------------------------- a newer beacon ----------------------------------'
//! ```
//!
//! Silence is an observation, never a verdict: nothing here says that a host is dead.

use std::collections::BTreeMap;
use std::net::IpAddr;

use coroner_shared::beacon::{Answer, Beacon, Hearing, Path, SignedBeacon};
use coroner_shared::id::NodeUid;
use coroner_shared::slice::{Peer, Timings};
use coroner_shared::time::{Mono, Span};
use coroner_shared::wire::SUBJECTS_MAX;

use crate::chance::Chance;
use crate::lineage::{Claim, Lineage};
use crate::output::{Change, ProbeNumber};
use crate::paths::{Detail, PATHS, PROBE_GAP, PROBE_WAIT, Paths};

/// A left boot that seems to go on is asked about at most this often.
const CHALLENGE_EVERY: Span = Span::from_secs(1);
/// New paths are tried within this time, so that a death soon after an assignment finds paths that worked.
const FIRST_TRY_WITHIN: Span = Span::from_secs(1);

/// All subjects of the slice.
#[derive(Debug, Default)]
pub(crate) struct Subjects {
    all: BTreeMap<NodeUid, Subject>,
    /// When the last round was void: silence is counted from here at the earliest.
    voided: Mono,
}

/// One of them.
#[derive(Debug)]
pub(crate) struct Subject {
    pub(crate) peer: Peer,
    assigned: Mono,
    last: Option<Last>,
    lineage: Lineage,
    state: State,
    pub(crate) paths: Paths,
    challenged: Option<Mono>,
}

/// Its newest beacon.
#[derive(Debug)]
pub(crate) struct Last {
    pub(crate) seq: u64,
    pub(crate) at: Mono,
    beacon: SignedBeacon,
}

/// Whether it is heard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// As far as is known.
    Heard,
    /// No beacon for S; it is being asked directly.
    Doubted { since: Mono, second_sent: bool },
    /// Reported.
    Silent,
}

/// What a tick wants.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// Ask a host on a path.
    Probe { path: Path, number: ProbeNumber, address: IpAddr },
    /// Tell the replicas that this subject is silent.
    FellSilent { subject: NodeUid, change: Change },
}

/// What a beacon was.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    /// Old, or of nobody we listen to.
    Ignored,
    /// Newer than any before.
    Newer {
        /// Whether the subject was reported silent: tell the replicas.
        was_silent: bool,
        /// For the log.
        changes: Vec<Change>,
    },
    /// A boot thought to be over seems to go on: ask.
    Challenge { address: IpAddr, number: ProbeNumber },
}

// === impl Subjects ===

impl Subjects {
    /// Takes the subjects of a new slice; those that stay keep what is known of them. Gives those that left.
    pub(crate) fn assign(&mut self, now: Mono, peers: Vec<Peer>, chance: &mut Chance) -> Vec<NodeUid> {
        let mut before = std::mem::take(&mut self.all);
        for peer in peers.into_iter().take(SUBJECTS_MAX) {
            let subject = match before.remove(&peer.node) {
                // What was learnt on the way to another address says nothing of the new one.
                Some(known) if known.peer.address == peer.address => Subject { peer, ..known },
                Some(known) => Subject { peer, paths: new_paths(now, chance), ..known },
                None => Subject::new(now, peer, chance),
            };
            self.all.insert(subject.peer.node.clone(), subject);
        }
        before.into_keys().collect()
    }

    /// A beacon that its subject's key signed. `asked`: it came in an answer to a number of ours.
    pub(crate) fn beacon(
        &mut self,
        now: Mono,
        beacon: &Beacon,
        signed: SignedBeacon,
        asked: bool,
        chance: &mut Chance,
    ) -> Heard {
        let Some(subject) = self.all.get_mut(&beacon.node) else { return Heard::Ignored };
        let name = || subject.peer.name.clone();
        let mut changes = Vec::new();
        match subject.lineage.judge(beacon.boot, beacon.seq) {
            Claim::Newer => {}
            Claim::NewBoot if subject.last.is_none() => {}
            Claim::NewBoot => changes.push(Change::Rebooted { subject: name(), boot: beacon.boot }),
            Claim::LeftGoesOn if asked => {
                changes.push(Change::BootProven { subject: name(), boot: beacon.boot });
            }
            Claim::LeftGoesOn => return subject.challenge(now, chance),
            Claim::Old => return Heard::Ignored,
        }
        let was_silent = subject.state == State::Silent;
        if was_silent {
            changes.push(Change::HeardAgain { subject: name(), silent: now.since(subject.last_life()) });
        }
        subject.lineage.take(beacon.boot, beacon.seq);
        subject.last = Some(Last { seq: beacon.seq, at: now, beacon: signed });
        subject.state = State::Heard;
        subject.paths.beacon(now);
        Heard::Newer { was_silent, changes }
    }

    /// A probe's answer. Gives the subject if it is reported silent and this is news for the replicas.
    pub(crate) fn answered(&mut self, now: Mono, number: ProbeNumber, answer: Answer) -> Option<NodeUid> {
        let subject =
            self.all.values_mut().find_map(|s| s.paths.answered(number, answer, now).then_some(s))?;
        (subject.state == State::Silent).then(|| subject.peer.node.clone())
    }

    /// Something unsigned came from an address. As [`Subjects::answered`].
    pub(crate) fn unsigned(&mut self, now: Mono, from: IpAddr) -> Option<NodeUid> {
        let at_address = self.all.values_mut().filter(|s| s.peer.address == from);
        let subject = at_address.filter_map(|s| s.paths.unsigned(now).then_some(s)).last()?;
        (subject.state == State::Silent).then(|| subject.peer.node.clone())
    }

    /// Acts on what is due. In a void round nobody falls silent, and all get S anew: the beacons that would clear
    /// them may have been lost with the time that this process lost.
    pub(crate) fn tick(&mut self, now: Mono, void: bool, timings: &Timings, chance: &mut Chance) -> Vec<Act> {
        let mut acts = Vec::new();
        if void {
            self.voided = now;
        }
        for subject in self.all.values_mut() {
            subject.probe_calmly(now, timings.path_probe, chance, &mut acts);
            subject.silence(now, self.voided, timings.suspect, chance, &mut acts);
        }
        acts
    }

    /// When [`Subjects::tick`] has something to do.
    pub(crate) fn due(&self, timings: &Timings) -> Option<Mono> {
        self.all.values().map(|s| s.due(self.voided, timings.suspect)).min()
    }

    pub(crate) fn get(&self, node: &NodeUid) -> Option<&Subject> {
        self.all.get(node)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Subject> {
        self.all.values()
    }
}

// === impl Subject ===

impl Subject {
    fn new(now: Mono, peer: Peer, chance: &mut Chance) -> Self {
        Self {
            peer,
            assigned: now,
            last: None,
            lineage: Lineage::default(),
            state: State::Heard,
            paths: new_paths(now, chance),
            challenged: None,
        }
    }

    /// Its newest beacon.
    pub(crate) const fn last(&self) -> Option<&Last> {
        self.last.as_ref()
    }

    /// Whether a beacon came within `suspect`.
    pub(crate) fn hears(&self, now: Mono, suspect: Span) -> bool {
        self.last.as_ref().is_some_and(|last| now.since(last.at) <= suspect)
    }

    /// Whether it is reported silent.
    pub(crate) fn is_silent(&self) -> bool {
        self.state == State::Silent
    }

    /// The statement about it as of `now`; `None` if it is neither silent nor was ever heard.
    pub(crate) fn hearing(&self, now: Mono, detail: Detail) -> Option<Hearing> {
        match (self.state, &self.last) {
            (State::Silent, _) => Some(Hearing::Silent {
                silent: now.since(self.last_life()),
                last: self.lineage.newest(),
                probes: self.paths.outcomes(self.last_life(), now, detail),
            }),
            (State::Heard | State::Doubted { .. }, Some(last)) => {
                Some(Hearing::Heard { beacon: last.beacon.clone(), ago: now.since(last.at) })
            }
            (State::Heard | State::Doubted { .. }, None) => None,
        }
    }

    /// The last beacon, or since when one could have come.
    fn last_life(&self) -> Mono {
        self.last.as_ref().map_or(self.assigned, |last| last.at)
    }

    /// Asks the subject itself whether a boot thought to be over goes on.
    fn challenge(&mut self, now: Mono, chance: &mut Chance) -> Heard {
        if self.challenged.is_some_and(|at| now.since(at) < CHALLENGE_EVERY) {
            return Heard::Ignored;
        }
        self.challenged = Some(now);
        let number = ProbeNumber(chance.draw());
        self.paths.asked(Path::Agent, number, now);
        Heard::Challenge { address: self.peer.address, number }
    }

    fn probe(&mut self, now: Mono, path: Path, chance: &mut Chance, acts: &mut Vec<Act>) {
        let number = ProbeNumber(chance.draw());
        self.paths.asked(path, number, now);
        acts.push(Act::Probe { path, number, address: self.peer.address });
    }

    /// Tries each path once a minute, so that it is known which of them would answer.
    fn probe_calmly(&mut self, now: Mono, every: Span, chance: &mut Chance, acts: &mut Vec<Act>) {
        for path in PATHS {
            if now >= self.paths.log(path).next {
                self.paths.log_mut(path).next = now + chance.jitter(every);
                self.probe(now, path, chance, acts);
            }
        }
    }

    /// Moves towards Silent.
    fn silence(&mut self, now: Mono, voided: Mono, suspect: Span, chance: &mut Chance, acts: &mut Vec<Act>) {
        match self.state {
            State::Heard if now.since(self.last_life().max(voided)) > suspect => {
                self.state = State::Doubted { since: now, second_sent: false };
                self.probe_directly(now, chance, acts);
            }
            // A round that was void after the doubt began takes it back.
            State::Doubted { since, .. } if voided > since => self.state = State::Heard,
            State::Doubted { since, second_sent: false } if now >= since + PROBE_GAP => {
                self.state = State::Doubted { since, second_sent: true };
                self.probe_directly(now, chance, acts);
            }
            State::Doubted { since, second_sent: true } if now >= since + PROBE_GAP + PROBE_WAIT => {
                self.state = State::Silent;
                let change =
                    Change::Silent { subject: self.peer.name.clone(), silent: now.since(self.last_life()) };
                acts.push(Act::FellSilent { subject: self.peer.node.clone(), change });
            }
            State::Heard | State::Doubted { .. } | State::Silent => {}
        }
    }

    fn probe_directly(&mut self, now: Mono, chance: &mut Chance, acts: &mut Vec<Act>) {
        for path in self.paths.to_try(now) {
            self.probe(now, path, chance, acts);
        }
    }

    fn due(&self, voided: Mono, suspect: Span) -> Mono {
        let calm = PATHS.map(|p| self.paths.log(p).next).into_iter().min().unwrap_or_default();
        match self.state {
            State::Heard => calm.min(self.last_life().max(voided) + suspect + Span::from_ms(1)),
            State::Doubted { since, second_sent: false } => calm.min(since + PROBE_GAP),
            State::Doubted { since, second_sent: true } => calm.min(since + PROBE_GAP + PROBE_WAIT),
            State::Silent => calm,
        }
    }
}

// === helpers ===

fn new_paths(now: Mono, chance: &mut Chance) -> Paths {
    Paths::new(|| now + chance.up_to(FIRST_TRY_WITHIN))
}
