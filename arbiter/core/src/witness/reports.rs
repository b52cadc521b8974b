//! What observers say of their subjects, as one replica holds it.
//!
//! ```text
//!   report batches, statuses --> Edge (observer, subject): silent since when, or heard; paths that work; probes
//! ```
//!
//! A statement stands until its observer says otherwise, or has not repeated it for [`STANDS_FOR`]: reports are sent on
//! change and in full every 30 s, so one that is not repeated comes from somebody who does not reach this replica any
//! more. Whether its author may accuse is not asked here (`trust`).

use coroner_shared::mutant::{Mutant, planted};

use std::collections::BTreeMap;

use coroner_shared::beacon::{Answer, Path, ProbeOutcome, SelfDoubt};
use coroner_shared::id::BootId;
use coroner_shared::time::{Mono, Span};

/// Two snapshots and some.
pub(crate) const STANDS_FOR: Span = Span::from_secs(70);

/// What an agent says of itself.
#[derive(Clone, Debug, Default)]
pub(super) struct Reporter {
    pub(super) boot: Option<BootId>,
    pub(super) doubts: Vec<SelfDoubt>,
    /// When it last said anything.
    pub(super) told: Mono,
}

/// What one observer says of one subject.
#[derive(Clone, Debug, Default)]
pub(super) struct Edge {
    /// Number of the newest batch that spoke of this subject.
    pub(super) number: u64,
    pub(super) silence: Option<Silence>,
    /// When it last took an accusation back; the other replicas may not know yet.
    pub(super) withdrawn: Option<Mono>,
    /// When it last claimed to hear it.
    pub(super) hears: Option<Mono>,
    pub(super) heard_once: bool,
    pub(super) paths: BTreeMap<Path, PathSeen>,
}

/// An accusation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Silence {
    /// Its last beacon; where it never had one, when it was assigned.
    pub(super) since: Mono,
    pub(super) last: Option<(BootId, u64)>,
    /// When this was said.
    pub(super) told: Mono,
}

/// What is known of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct PathSeen {
    /// When it last answered.
    pub(super) worked: Option<Mono>,
    /// The newest probe.
    pub(super) newest: Option<(Mono, Answer)>,
    /// The newest probe that was answered.
    pub(super) answered: Option<(Mono, Answer)>,
}

/// Whether an answer shows that somebody lives at the address. A refused port was refused by a living kernel (Ceph takes
/// it for a death).
pub(crate) fn is_life(answer: Answer) -> bool {
    match answer {
        Answer::Answered | Answer::Accepted => true,
        Answer::Reset => !planted(Mutant::ResetIsSilence),
        Answer::Nothing | Answer::NotSent => false,
    }
}

// === impl Edge ===

impl Edge {
    /// Takes a SILENT of this number. An older one, overtaken on the way, changes nothing.
    pub(super) fn silent(&mut self, number: u64, silence: Silence, probes: &[ProbeOutcome]) {
        self.heard_once |= silence.last.is_some();
        for outcome in probes {
            self.path(outcome.path).take(silence.told, outcome);
        }
        if number < self.number {
            return;
        }
        self.number = number;
        if silence.last.is_some() {
            let agent = self.path(Path::Agent);
            agent.worked = agent.worked.max(Some(silence.since));
        }
        self.silence = Some(silence);
    }

    /// Takes a HEARD of this number whose beacon dates from `at`.
    pub(super) fn heard(&mut self, number: u64, at: Mono, now: Mono) {
        self.heard_once = true;
        let agent = self.path(Path::Agent);
        agent.worked = agent.worked.max(Some(at));
        if number >= self.number {
            self.number = number;
            self.silence = None;
            self.withdrawn = Some(now);
            self.hears = self.hears.max(Some(at));
        }
    }

    /// A HEARD whose beacon is old news: the observer has been silent about this subject since then, whatever it says.
    pub(super) fn heard_old(&mut self, number: u64, at: Mono, now: Mono) {
        self.heard_once = true;
        if number >= self.number {
            self.number = number;
            self.silence = self.silence.map(|s| Silence { since: s.since.max(at), told: now, ..s });
        }
    }

    /// A full snapshot of this number names every silent subject, and not this one.
    pub(super) fn not_in_snapshot(&mut self, number: u64, now: Mono) {
        if number >= self.number && self.silence.take().is_some() {
            self.number = number;
            self.withdrawn = Some(now);
        }
    }

    /// Whether something is to be told of it: an accusation that stands, or one that was taken back lately.
    pub(super) fn matters(&self, age: impl Fn(Mono) -> Span) -> bool {
        let lately = |at: Mono| age(at) <= STANDS_FOR;
        self.silence.is_some_and(|s| lately(s.told)) || self.withdrawn.is_some_and(lately)
    }

    /// The bitmap of a status: a claim.
    pub(super) fn claims(&mut self, now: Mono, hears: bool) {
        if hears {
            self.hears = Some(now);
            self.heard_once = true;
            self.path(Path::Agent).worked = Some(now);
        }
    }

    pub(super) fn worked(&mut self, path: Path, at: Mono) {
        let seen = self.path(path);
        seen.worked = seen.worked.max(Some(at));
    }

    fn path(&mut self, path: Path) -> &mut PathSeen {
        self.paths.entry(path).or_default()
    }
}

impl PathSeen {
    /// Takes an outcome that was told at `told`.
    pub(super) fn take(&mut self, told: Mono, outcome: &ProbeOutcome) {
        let asked = told.back(outcome.asked_ago);
        self.worked = self.worked.max(outcome.worked_ago.map(|ago| told.back(ago)));
        if outcome.answer == Answer::NotSent {
            return;
        }
        if self.newest.is_none_or(|(at, _)| asked >= at) {
            self.newest = Some((asked, outcome.answer));
        }
        if is_life(outcome.answer) && self.answered.is_none_or(|(at, _)| asked >= at) {
            self.answered = Some((asked, outcome.answer));
            self.worked = self.worked.max(Some(asked));
        }
    }
}

/// Ages of a path, as they travel and stand in a view.
pub(super) fn outcomes(
    paths: &BTreeMap<Path, PathSeen>,
    age: impl Fn(Mono) -> Span,
) -> impl Iterator<Item = ProbeOutcome> {
    paths.iter().flat_map(move |(path, seen)| {
        let newest = seen.newest;
        let earlier = seen.answered.filter(|a| newest != Some(*a));
        let worked_ago = seen.worked.map(&age);
        let of = |(asked, answer): (Mono, Answer)| ProbeOutcome {
            path: *path,
            answer,
            asked_ago: age(asked),
            worked_ago,
        };
        [earlier.map(of), newest.map(of)].into_iter().flatten().collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: BootId = BootId::from_bytes([1; 16]);

    fn at(ms: u64) -> Mono {
        Mono::from_ms(ms)
    }

    fn silence(since: u64, told: u64) -> Silence {
        Silence { since: at(since), last: Some((BOOT, 1)), told: at(told) }
    }

    fn outcome(answer: Answer, asked_ago: u64, worked_ago: Option<u64>) -> ProbeOutcome {
        ProbeOutcome {
            path: Path::Kubelet,
            answer,
            asked_ago: Span::from_ms(asked_ago),
            worked_ago: worked_ago.map(Span::from_ms),
        }
    }

    #[test]
    fn an_overtaken_statement_changes_nothing() {
        let mut edge = Edge::default();
        edge.silent(5, silence(100, 1500), &[]);
        edge.heard(6, at(1600), at(1600));
        edge.silent(5, silence(100, 1700), &[]);
        assert_eq!(edge.silence, None, "5 was withdrawn by 6");
        edge.silent(6, silence(1650, 3000), &[]);
        assert_eq!(edge.silence, Some(silence(1650, 3000)), "another part of the same batch");
        edge.heard(5, at(3100), at(3100));
        assert!(edge.silence.is_some(), "an old withdrawal withdraws nothing");
        edge.not_in_snapshot(5, at(3200));
        assert!(edge.silence.is_some());
        edge.not_in_snapshot(7, at(3200));
        assert_eq!((edge.silence, edge.withdrawn), (None, Some(at(3200))));
        edge.not_in_snapshot(8, at(9000));
        assert_eq!(edge.withdrawn, Some(at(3200)), "nothing was taken back");
    }

    #[test]
    fn a_statement_matters_for_seventy_seconds() {
        let matters = |edge: &Edge, now: u64| edge.matters(|stamp| at(now).since(stamp));
        let mut edge = Edge::default();
        assert!(!matters(&edge, 0));
        edge.silent(5, silence(100, 1500), &[]);
        assert!(matters(&edge, 71_500) && !matters(&edge, 71_501));
        edge.heard(6, at(80_000), at(80_000));
        assert!(matters(&edge, 150_000) && !matters(&edge, 150_001));
    }

    #[test]
    fn a_withdrawal_with_an_old_beacon_withdraws_nothing() {
        let mut edge = Edge::default();
        edge.heard_old(1, at(500), at(600));
        assert_eq!(edge.silence, None, "nor does it accuse");
        edge.silent(2, silence(100, 1500), &[]);
        edge.heard_old(3, at(700), at(5000));
        assert_eq!(edge.silence.map(|s| (s.since, s.told)), Some((at(700), at(5000))));
        edge.heard_old(2, at(900), at(6000));
        assert_eq!(edge.silence.map(|s| s.since), Some(at(700)));
    }

    #[test]
    fn only_a_beacon_shows_that_a_subject_was_ever_heard() {
        let mut edge = Edge::default();
        edge.silent(1, Silence { last: None, ..silence(0, 2000) }, &[]);
        assert!(!edge.heard_once);
        assert_eq!(edge.paths.get(&Path::Agent).and_then(|p| p.worked), None);
        edge.claims(at(2500), false);
        assert!(!edge.heard_once);
        edge.claims(at(3000), true);
        assert!(edge.heard_once);
        assert_eq!(edge.hears, Some(at(3000)));
        assert_eq!(edge.paths.get(&Path::Agent).and_then(|p| p.worked), Some(at(3000)));
    }

    #[test]
    fn the_newest_probe_and_the_newest_answer_are_kept() {
        let mut seen = PathSeen::default();
        seen.take(at(10_000), &outcome(Answer::Reset, 1000, Some(1000)));
        seen.take(at(11_000), &outcome(Answer::Nothing, 500, Some(2000)));
        assert_eq!(seen.newest, Some((at(10_500), Answer::Nothing)));
        assert_eq!(seen.answered, Some((at(9000), Answer::Reset)));
        assert_eq!(seen.worked, Some(at(9000)));
        seen.take(at(12_000), &outcome(Answer::NotSent, 0, None));
        assert_eq!(
            seen.newest,
            Some((at(10_500), Answer::Nothing)),
            "a probe that did not leave says nothing"
        );
        seen.take(at(12_000), &outcome(Answer::Accepted, 9000, None));
        assert_eq!(seen.newest, Some((at(10_500), Answer::Nothing)), "an older one told late");
        assert_eq!(seen.answered, Some((at(9000), Answer::Reset)));
        let ages: Vec<_> = outcomes(&BTreeMap::from([(Path::Kubelet, seen)]), |m| at(12_000).since(m))
            .map(|o| (o.answer, o.asked_ago.as_ms(), o.worked_ago.map(Span::as_ms)))
            .collect();
        assert_eq!(ages, [(Answer::Reset, 3000, Some(3000)), (Answer::Nothing, 1500, Some(3000))]);
    }

    #[test]
    fn a_refused_port_is_a_sign_of_life() {
        for (answer, life) in [
            (Answer::Answered, true),
            (Answer::Accepted, true),
            (Answer::Reset, true),
            (Answer::Nothing, false),
            (Answer::NotSent, false),
        ] {
            assert_eq!(is_life(answer), life, "{answer:?}");
        }
    }
}
