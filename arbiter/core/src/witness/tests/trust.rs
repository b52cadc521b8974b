//! Whose silence counts.

use super::super::pool::{Pool, Pooled};
use super::*;
use crate::phase::{HeldReason, Phase};
use crate::view::Standing;

/// One replica that all agents reach. n05 is the subject, n03 the observer.
struct Case {
    heard: Heard,
    pool: Pool,
    seq: u64,
}

impl Case {
    /// All were heard at 10 s; n03 heard n05 and called it silent at 11.5 s.
    fn new() -> Self {
        let mut case = Self { heard: Heard::new(), pool: Pool::new(replica(1)), seq: 1 };
        case.all_speak(10_000, &[0, 1, 2, 3, 4, 5]);
        case.heard.silent(11_500, 3, 1, 5, 1500, 1);
        case
    }

    fn all_speak(&mut self, now: u64, who: &[usize]) {
        self.seq += 1;
        for i in who {
            self.heard.status(now, *i, self.seq, &[], &[]);
        }
    }

    fn pooled(&mut self, now: u64) -> Pooled<'_> {
        let summary = self.heard.summary(now);
        self.pool.absorb(at(now), summary);
        self.pool.at(at(now), &self.heard.state)
    }

    /// What is said of n03's accusation of n05 at this time; `suspect`: n03 is suspect itself.
    fn standing(&mut self, now: u64, suspect: bool) -> Standing {
        let pooled = self.pooled(now);
        let (observer, subject) = (name(3), name(5));
        match pooled.trusted(&observer) {
            Err(why) => why,
            Ok(()) => pooled.standing(&observer, &subject, span(now - 10_000), suspect),
        }
    }
}

#[test]
fn an_observer_that_lives_and_has_heard_it_is_eligible() {
    assert_eq!(Case::new().standing(11_600, false), Standing::Eligible);
}

#[test]
fn it_must_have_been_heard_within_3_s_and_within_1_5_s_if_it_is_suspect() {
    let mut case = Case::new();
    assert_eq!(case.standing(13_000, false), Standing::Eligible);
    assert_eq!(case.standing(13_001, false), Standing::Unheard);
    assert_eq!(case.standing(11_500, true), Standing::Eligible);
    assert_eq!(case.standing(11_501, true), Standing::Unheard);
    case.all_speak(14_000, &[3]);
    assert_eq!(case.standing(14_100, true), Standing::Eligible);
}

#[test]
fn a_pause_of_the_replica_that_heard_it_makes_no_dead_observer_live() {
    let mut case = Case::new();
    case.heard.witness.tick(at(11_600));
    case.heard.witness.tick(at(31_600));
    assert_eq!(case.standing(31_700, false), Standing::Unheard);
    assert_eq!(case.standing(31_700, true), Standing::Unheard);
    case.all_speak(31_700, &[3]);
    assert_eq!(case.standing(31_700, false), Standing::Eligible);
}

#[test]
fn it_must_be_alive() {
    let mut case = Case::new();
    let node = case.heard.state.nodes.get_mut(&name(3)).unwrap();
    let incident = coroner_shared::id::IncidentId::from("i".to_owned());
    node.phase = Phase::Held { incident, why: HeldReason::BmcSilent };
    assert_eq!(case.standing(11_600, false), Standing::NotAlive);
    case.heard.state.nodes.remove(&name(3));
    assert_eq!(case.standing(11_600, false), Standing::NotAlive);
}

#[test]
fn it_must_not_doubt_itself() {
    let mut case = Case::new();
    case.heard.status(11_550, 3, 99, &[], &[SelfDoubt::LateTick, SelfDoubt::Pressure]);
    assert_eq!(case.standing(11_600, false), Standing::Doubts(SelfDoubt::LateTick));
    case.heard.status(12_000, 3, 100, &[], &[]);
    assert_eq!(case.standing(12_100, false), Standing::Eligible);
}

#[test]
fn a_boot_that_is_not_registered_may_veto_and_not_accuse() {
    let mut case = Case::new();
    case.heard.state.nodes.get_mut(&name(3)).unwrap().member.as_mut().unwrap().boot = boot(3, 1);
    assert_eq!(case.standing(11_600, false), Standing::UnregisteredBoot);
}

#[test]
fn it_must_have_heard_the_subject_since_it_was_assigned() {
    let mut case = Case::new();
    let never = Hearing::Silent { silent: span(1500), last: None, probes: Vec::new() };
    case.heard.batch(11_550, 4, 1, false, vec![(5, never)]);
    let pooled = case.pooled(11_600);
    assert_eq!(pooled.trusted(&name(4)), Ok(()));
    assert_eq!(pooled.standing(&name(4), &name(5), span(1600), false), Standing::NeverHeardIt);
}

#[test]
fn a_path_must_have_worked_in_the_ten_minutes_before_the_failure_date() {
    // n03 last had a beacon at 10 s; the subject failed later and later, by what others say.
    let mut case = Case::new();
    for (failed_at, want) in [(610_000, Standing::Eligible), (610_001, Standing::NoWorkingPath)] {
        let now = failed_at + 2000;
        case.all_speak(now, &[3]);
        let pooled = case.pooled(now);
        assert_eq!(pooled.standing(&name(3), &name(5), span(2000), false), want);
    }
}

/// n03 calls the first `accused` of its subjects silent since 10 s; of those the first `heard` speak again at `again`.
fn outvoted(accused: usize, heard: usize, again: u64) -> bool {
    let subjects = [0, 1, 2, 4, 5];
    let mut case = Case { heard: Heard::new(), pool: Pool::new(replica(1)), seq: 1 };
    case.all_speak(10_000, &[0, 1, 2, 3, 4, 5]);
    for (i, subject) in subjects.iter().take(accused).enumerate() {
        case.heard.silent(11_500, 3, i as u64 + 1, *subject, 1500, 1);
    }
    case.all_speak(again, &subjects[..heard]);
    case.all_speak(12_500, &[3]);
    case.pooled(12_500).trusted(&name(3)) == Err(Standing::OutvotedBySubjects)
}

#[test]
fn an_observer_that_others_contradict_on_half_of_its_subjects_may_be_deaf() {
    // It has five subjects: three are half of them, rounded up; S after its own last beacon.
    assert!(outvoted(3, 3, 11_250));
    assert!(!outvoted(3, 3, 11_249));
    assert!(!outvoted(2, 2, 12_000), "two of five are not half");
    assert!(!outvoted(5, 2, 12_000), "nobody hears the others either: no fault of its own");
    assert!(outvoted(5, 3, 12_000));
}

#[test]
fn at_least_two_subjects_must_contradict_it() {
    // Three nodes: each has two subjects, and one is half of them.
    let state = World::racks(3, 3).state;
    let check = |heard: &[usize]| {
        let mut case = Case { heard: Heard::new(), pool: Pool::new(replica(3)), seq: 1 };
        case.heard.state = state.clone();
        case.heard.witness = Witness::new(replica(3), 1, at(0));
        case.heard.witness.sync(at(0), &case.heard.state);
        case.all_speak(10_000, &[0, 1, 2]);
        for (i, subject) in heard.iter().enumerate() {
            case.heard.silent(11_500, 2, i as u64 + 1, *subject, 1500, 1);
        }
        case.all_speak(12_000, &[0, 1, 2]);
        case.pooled(12_100).trusted(&name(2))
    };
    assert_eq!(check(&[0]), Ok(()));
    assert_eq!(check(&[0, 1]), Err(Standing::OutvotedBySubjects));
}

#[test]
fn its_own_word_does_not_contradict_it() {
    let mut case = Case { heard: Heard::new(), pool: Pool::new(replica(1)), seq: 1 };
    case.all_speak(10_000, &[0, 1, 2, 3, 4, 5]);
    for (i, subject) in [2, 4, 5].into_iter().enumerate() {
        // It brought a beacon at 12 s, and calls the subject silent since 10 s all the same.
        let number = 2 * i as u64 + 1;
        case.heard.heard(12_000, 3, number, subject, 99, 0);
        case.heard.silent(12_000, 3, number + 1, subject, 2000, 1);
    }
    case.all_speak(12_500, &[3]);
    assert_eq!(case.pooled(12_600).trusted(&name(3)), Ok(()));
}
