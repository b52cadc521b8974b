//! Three ways to one host: which of them answered lately, and what the newest probes saw.
//!
//! ```text
//!   asked, answered, beacon --> Paths --> which work, when to try next, outcomes for a report
//! ```
//!
//! A path that never answered says nothing by its silence (a firewall looks like death), so each is tried once a
//! minute in calm times, and the age of its last answer travels with every outcome. It does not judge: whether a path
//! answered within the 10 minutes before the failure date is for the arbiter to say.

use coroner_shared::beacon::{Answer, Path, ProbeOutcome};
use coroner_shared::mutant::{Mutant, planted};
use coroner_shared::time::{Mono, Span};

use crate::output::ProbeNumber;

/// A path works if it answered within this time (design: "within the 10 minutes before the failure date").
pub(crate) const WORKS_FOR: Span = Span::from_mins(10);
/// A direct probe without an answer for this long is told as "nothing". An answer that comes later still counts.
pub(crate) const PROBE_WAIT: Span = Span::from_ms(100);
/// Between the two probes of a round.
pub(crate) const PROBE_GAP: Span = Span::from_ms(100);
/// Probes remembered per path: the two of a round.
const REMEMBERED: usize = 2;

/// In the order in which reports name them.
pub(crate) const PATHS: [Path; 3] = [Path::Agent, Path::Kubelet, Path::Ping];

/// What is known of the ways to one host.
#[derive(Clone, Debug, Default)]
pub(crate) struct Paths {
    agent: PathLog,
    kubelet: PathLog,
    ping: PathLog,
}

/// One way.
#[derive(Clone, Debug, Default)]
pub(crate) struct PathLog {
    /// When it last answered.
    worked: Option<Mono>,
    /// When it is tried next in calm times.
    pub(crate) next: Mono,
    /// The newest probes, newest last.
    asked: Vec<Asked>,
}

/// One probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    number: ProbeNumber,
    at: Mono,
    answer: Option<Answer>,
}

/// How much of a path's probes goes into a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// All that are remembered.
    All,
    /// The newest of each path, where a datagram has no room for more.
    Newest,
}

/// Whether an answer shows that somebody lives at the address.
pub(crate) fn is_life(answer: Answer) -> bool {
    match answer {
        Answer::Answered | Answer::Accepted => true,
        // A refused port was refused by a living kernel.
        Answer::Reset => !planted(Mutant::ResetIsSilence),
        Answer::Nothing | Answer::NotSent => false,
    }
}

// === impl Paths ===

impl Paths {
    /// Nothing known; each path is tried for the first time as `first` says.
    pub(crate) fn new(mut first: impl FnMut() -> Mono) -> Self {
        let mut log = || PathLog { next: first(), ..PathLog::default() };
        Self { agent: log(), kubelet: log(), ping: log() }
    }

    pub(crate) const fn log(&self, path: Path) -> &PathLog {
        match path {
            Path::Agent => &self.agent,
            Path::Kubelet => &self.kubelet,
            Path::Ping => &self.ping,
        }
    }

    pub(crate) const fn log_mut(&mut self, path: Path) -> &mut PathLog {
        match path {
            Path::Agent => &mut self.agent,
            Path::Kubelet => &mut self.kubelet,
            Path::Ping => &mut self.ping,
        }
    }

    /// Paths worth asking about a silent host: those that work, or all of them where none is known to.
    pub(crate) fn to_try(&self, now: Mono) -> Vec<Path> {
        let working: Vec<Path> = PATHS.into_iter().filter(|p| self.log(*p).works(now)).collect();
        if working.is_empty() { PATHS.to_vec() } else { working }
    }

    /// A probe went out.
    pub(crate) fn asked(&mut self, path: Path, number: ProbeNumber, now: Mono) {
        let log = self.log_mut(path);
        if log.asked.len() >= REMEMBERED {
            log.asked.remove(0);
        }
        log.asked.push(Asked { number, at: now, answer: None });
    }

    /// A probe's answer came. `true` if it is one of these paths' probes and tells something new.
    pub(crate) fn answered(&mut self, number: ProbeNumber, answer: Answer, now: Mono) -> bool {
        for path in PATHS {
            let log = self.log_mut(path);
            let Some(asked) = log.asked.iter_mut().find(|a| a.number == number) else { continue };
            let known = asked.answer;
            // Life seen once is not unseen by a later timeout of the same probe.
            if known.is_some_and(is_life) {
                return false;
            }
            asked.answer = Some(answer);
            if is_life(answer) {
                log.worked = Some(now);
            }
            return known != Some(answer) && answer != Answer::Nothing;
        }
        false
    }

    /// Whether this is one of these paths' newest probes.
    pub(crate) fn knows(&self, number: ProbeNumber) -> bool {
        PATHS.into_iter().any(|path| self.log(path).asked.iter().any(|a| a.number == number))
    }

    /// A beacon came: an answer of the agent path.
    pub(crate) const fn beacon(&mut self, now: Mono) {
        self.agent.worked = Some(now);
    }

    /// Something unsigned came from the host's address: an answer to the newest open question of the agent path, if
    /// there is one. `true` if that tells something new.
    pub(crate) fn unsigned(&mut self, now: Mono) -> bool {
        let open =
            self.agent.asked.last().filter(|a| a.answer.is_none() && now.since(a.at) <= Span::from_secs(1));
        match open.map(|a| a.number) {
            Some(number) => self.answered(number, Answer::Answered, now),
            None => false,
        }
    }

    /// What the probes sent after `since` saw, for a statement made `now`. Those still waiting are left out.
    pub(crate) fn outcomes(&self, since: Mono, now: Mono, detail: Detail) -> Vec<ProbeOutcome> {
        let mut outcomes = Vec::new();
        for path in PATHS {
            let log = self.log(path);
            let skip = match detail {
                Detail::All => 0,
                Detail::Newest => log.asked.len().saturating_sub(1),
            };
            for asked in log.asked.iter().skip(skip).filter(|a| a.at >= since) {
                let waited = now.since(asked.at);
                let answer = match asked.answer {
                    Some(answer) => answer,
                    None if waited >= PROBE_WAIT => Answer::Nothing,
                    None => continue,
                };
                let worked_ago = log.worked_ago(now);
                outcomes.push(ProbeOutcome { path, answer, asked_ago: waited, worked_ago });
            }
        }
        outcomes
    }
}

// === impl PathLog ===

impl PathLog {
    fn works(&self, now: Mono) -> bool {
        self.worked_ago(now).is_some_and(|ago| ago <= WORKS_FOR)
    }

    /// How long ago it last answered.
    pub(crate) fn worked_ago(&self, now: Mono) -> Option<Span> {
        self.worked.map(|at| now.since(at))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Mono {
        Mono::from_ms(ms)
    }

    #[track_caller]
    fn check(answers: &[(u64, Answer)], expected: &[(Answer, Option<u64>)]) {
        let mut paths = Paths::default();
        paths.asked(Path::Kubelet, ProbeNumber(1), at(1000));
        paths.asked(Path::Kubelet, ProbeNumber(2), at(1100));
        for (number, answer) in answers {
            paths.answered(ProbeNumber(*number), *answer, at(1150));
        }
        let seen: Vec<_> = paths
            .outcomes(at(1000), at(1200), Detail::All)
            .into_iter()
            .map(|o| (o.answer, o.worked_ago.map(Span::as_ms)))
            .collect();
        assert_eq!(seen, expected);
    }

    #[test]
    fn what_counts_as_an_answer() {
        use Answer::{Accepted, Answered, NotSent, Nothing, Reset};
        check(&[], &[(Nothing, None), (Nothing, None)]);
        check(&[(1, Accepted)], &[(Accepted, Some(50)), (Nothing, Some(50))]);
        check(&[(2, Reset)], &[(Nothing, Some(50)), (Reset, Some(50))]);
        check(&[(1, Answered), (1, Nothing)], &[(Answered, Some(50)), (Nothing, Some(50))]);
        check(&[(1, Nothing), (1, Answered)], &[(Answered, Some(50)), (Nothing, Some(50))]);
        check(&[(1, NotSent), (2, Nothing)], &[(NotSent, None), (Nothing, None)]);
        check(&[(9, Answered)], &[(Nothing, None), (Nothing, None)]);
    }

    #[test]
    fn a_probe_still_waiting_is_not_yet_nothing() {
        let mut paths = Paths::default();
        paths.asked(Path::Ping, ProbeNumber(1), at(1000));
        assert!(paths.outcomes(at(0), at(1099), Detail::All).is_empty());
        assert_eq!(paths.outcomes(at(0), at(1100), Detail::All).len(), 1);
    }

    #[test]
    fn probes_from_before_the_silence_are_not_told() {
        let mut paths = Paths::default();
        paths.asked(Path::Ping, ProbeNumber(1), at(1000));
        paths.answered(ProbeNumber(1), Answer::Answered, at(1001));
        assert!(paths.outcomes(at(1001), at(2000), Detail::All).is_empty());
    }

    #[test]
    fn a_path_works_for_ten_minutes_after_an_answer() {
        let mut paths = Paths::default();
        assert_eq!(paths.to_try(at(0)), PATHS, "none is known to work: try all");
        paths.asked(Path::Ping, ProbeNumber(1), at(0));
        paths.answered(ProbeNumber(1), Answer::Answered, at(10));
        paths.beacon(at(10));
        assert_eq!(paths.to_try(at(600_010)), [Path::Agent, Path::Ping]);
        assert_eq!(paths.to_try(at(600_011)), PATHS);
    }

    #[test]
    fn an_unsigned_datagram_answers_only_an_open_question() {
        let mut paths = Paths::default();
        assert!(!paths.unsigned(at(5)));
        paths.asked(Path::Agent, ProbeNumber(1), at(1000));
        assert!(paths.unsigned(at(1010)));
        assert!(!paths.unsigned(at(1020)), "it is answered already");
        paths.asked(Path::Agent, ProbeNumber(2), at(2000));
        assert!(!paths.unsigned(at(3001)), "that is no answer to a question of a second ago");
    }

    #[test]
    fn short_of_room_the_newest_probe_of_each_path_is_told() {
        let mut paths = Paths::default();
        for (n, path) in [Path::Kubelet, Path::Kubelet, Path::Kubelet, Path::Ping].into_iter().enumerate() {
            paths.asked(path, ProbeNumber(n as u64), at(n as u64 * 10));
        }
        assert_eq!(paths.outcomes(at(0), at(500), Detail::All).len(), 3);
        assert_eq!(paths.outcomes(at(0), at(500), Detail::Newest).len(), 2);
    }
}
