//! The last read, row by row.

use coroner_shared::bmc::{CommandAnswer, Continuity};
use coroner_shared::id::{BootId, Incarnation, NodeUid};
use coroner_shared::machine_id::Transform;
use coroner_shared::time::Mono;

use super::*;

const P: &str = "00112233-4455-6677-8899-aabbccddeeff";
const OTHER: &str = "7a3c9e10-b2d4-11ee-8c4f-021122334455";
const MEMBER: &str = "/redfish/v1/Systems/1";

fn incarnation() -> Incarnation {
    let node = NodeUid::new("uid-1").unwrap();
    Incarnation { node, machine: P.parse().unwrap(), boot: BootId::from_bytes([7; 16]) }
}

fn pin() -> Pin {
    Pin {
        machine: P.parse().unwrap(),
        transform: Transform::Rfc,
        system_transform: Transform::Rfc,
        member: MEMBER.to_owned(),
        serial: None,
        manager: None,
        tls_key: None,
    }
}

fn reading(power: Power, session: u64) -> PowerReading {
    let continuity = Continuity { session: Some(session), ..Continuity::default() };
    PowerReading { power, uuid: Some(P.to_owned()), took: Span::from_ms(50), continuity }
}

fn readings() -> OffReadings {
    let off = |ms, session| (Span::from_ms(ms), reading(Power::Off, session));
    OffReadings {
        readings: vec![off(0, 1), off(2000, 1), off(60_000, 2)],
        closing: None,
        steady: false,
        command: Some(CommandAnswer::Accepted),
        member: MEMBER.to_owned(),
        transform: Transform::Rfc,
        identity_before: P.to_owned(),
        identity_after: P.to_owned(),
        last_over_new_session: true,
        cached: false,
    }
}

fn bmc_off() -> FenceProof {
    FenceProof::BmcOff { incarnation: incarnation(), readings: readings(), at: Mono::from_ms(1) }
}

fn person() -> FenceProof {
    FenceProof::PersonConfirmed {
        incarnation: incarnation(),
        who: "jo".to_owned(),
        why: "I pulled both cords".to_owned(),
        at: Mono::from_ms(1),
    }
}

/// One row: what differs from a good last read, and what it says.
struct Row {
    proof: FenceProof,
    again: Option<OffReadings>,
    age: Span,
    steady: bool,
    reading: Result<PowerReading, &'static str>,
    reading_age: Span,
    heard: bool,
    lease_moved: bool,
    bound: bool,
}

fn row(proof: FenceProof) -> Row {
    Row {
        proof,
        again: None,
        age: Span::from_secs(1),
        steady: true,
        reading: Ok(reading(Power::Off, 1)),
        reading_age: Span::from_ms(100),
        heard: false,
        lease_moved: false,
        bound: true,
    }
}

fn judged(row: &Row) -> &'static str {
    let pin = pin();
    let answer = CommandAnswer::Accepted;
    let needs = ProofNeeds { pin: &pin, machine: pin.machine, cached: false, answer: Some(&answer) };
    let last = LastRead {
        proof: &row.proof,
        again: row.again.as_ref(),
        age: row.age,
        needs: row.bound.then_some(needs),
        steady: row.steady,
        reading: row.reading.as_ref().map_err(|why| *why),
        reading_age: row.reading_age,
        heard: row.heard,
        lease_moved: row.lease_moved,
    };
    match judge(&last) {
        LastReadVerdict::Good => "Good",
        LastReadVerdict::On => "On",
        LastReadVerdict::Redo(_) => "Redo",
        LastReadVerdict::Failed(_) => "Failed",
    }
}

#[test]
fn a_proof_by_the_bmc_is_confirmed_by_one_off_while_young_and_steady() {
    let secs = Span::from_secs;
    let good = || row(bmc_off());
    let rows = [
        ("one Off", good(), "Good"),
        ("60 s old", Row { age: secs(60), ..good() }, "Good"),
        ("older", Row { age: Span::from_ms(60_001), ..good() }, "Redo"),
        ("not steady", Row { steady: false, ..good() }, "Redo"),
        (
            "steady again, but over a session that the proof never saw",
            Row { reading: Ok(reading(Power::Off, 3)), ..good() },
            "Redo",
        ),
        ("over the proof's new session", Row { reading: Ok(reading(Power::Off, 2)), ..good() }, "Good"),
        ("On", Row { reading: Ok(reading(Power::On, 1)), ..good() }, "On"),
        (
            "On, however old the proof",
            Row { age: secs(900), reading: Ok(reading(Power::On, 1)), ..good() },
            "On",
        ),
        ("rem B35: coming on", Row { reading: Ok(reading(Power::PoweringOn, 1)), ..good() }, "Failed"),
        ("null", Row { reading: Ok(reading(Power::Other("null".to_owned()), 1)), ..good() }, "Failed"),
        ("no answer", Row { reading: Err("time-out"), ..good() }, "Failed"),
        ("a reading 1 s old", Row { reading_age: secs(1), ..good() }, "Good"),
        ("an older reading", Row { reading_age: Span::from_ms(1001), ..good() }, "Failed"),
        ("heard", Row { heard: true, ..good() }, "Failed"),
        ("the Lease moved", Row { lease_moved: true, ..good() }, "Failed"),
        ("no binding any more", Row { bound: false, ..good() }, "Failed"),
    ];
    for (case, row, want) in rows {
        assert_eq!(judged(&row), want, "{case}");
    }
    let mut other = reading(Power::Off, 1);
    other.uuid = Some(OTHER.to_owned());
    assert_eq!(judged(&Row { reading: Ok(other), ..row(bmc_off()) }), "Failed", "another machine's Off");
}

#[test]
fn readings_made_again_stand_for_a_proof_that_is_old_or_not_steady() {
    let again = || Row { again: Some(readings()), steady: false, ..row(bmc_off()) };
    let mut short = readings();
    short.readings[2].0 = Span::from_ms(29_999);
    let rows = [
        ("just made", again(), "Good"),
        ("10 s ago", Row { age: Span::from_secs(10), ..again() }, "Good"),
        ("longer ago, not steady", Row { age: Span::from_ms(10_001), ..again() }, "Redo"),
        ("longer ago, steady since", Row { age: Span::from_secs(60), steady: true, ..again() }, "Good"),
        ("too short themselves", Row { again: Some(short), ..again() }, "Redo"),
        ("On by now", Row { reading: Ok(reading(Power::On, 1)), ..again() }, "On"),
    ];
    for (case, row, want) in rows {
        assert_eq!(judged(&row), want, "{case}");
    }
}

#[test]
fn a_persons_word_is_refused_by_on_and_by_life_only() {
    let good = || row(person());
    let rows = [
        ("the BMC says Off", good(), "Good"),
        ("rem B10: the BMC is dead with its host", Row { reading: Err("no route"), ..good() }, "Good"),
        ("no binding", Row { reading: Err("no binding"), bound: false, ..good() }, "Good"),
        ("not steady, old", Row { steady: false, age: Span::from_mins(14), ..good() }, "Good"),
        ("On", Row { reading: Ok(reading(Power::On, 1)), ..good() }, "On"),
        ("between two states", Row { reading: Ok(reading(Power::PoweringOff, 1)), ..good() }, "Failed"),
        ("rem B12: heard", Row { heard: true, ..good() }, "Failed"),
        ("heard, and no answer", Row { heard: true, reading: Err("no route"), ..good() }, "Failed"),
        ("the Lease moved", Row { lease_moved: true, ..good() }, "Failed"),
    ];
    for (case, row, want) in rows {
        assert_eq!(judged(&row), want, "{case}");
    }
}

// === what is at hand ===

fn release(proof: FenceProof) -> ReleaseJob {
    let life = Life { node: "n1".parse().unwrap(), incident: incident(), incarnation: incarnation() };
    ReleaseJob { life, proof, kept: None, pin: Some(pin()), cached: false }
}

fn incident() -> IncidentId {
    "n1-00000001".to_owned().into()
}

const fn at(ms: u64) -> Mono {
    Mono::from_ms(ms)
}

/// The proof was committed at 100 s; it is read at this time, over session 1.
fn at_hand(
    release: &ReleaseJob,
    now: Mono,
    again: Option<&(OffReadings, Mono)>,
    steady: bool,
    signs: Signs,
) -> LastReadVerdict {
    let off = reading(Power::Off, 1);
    judge(&LastRead::of(&AtHand {
        release,
        now,
        proven_ago: now.since(at(100_000)),
        again,
        asked: now.back(Span::from_ms(100)),
        reading: Ok(&off),
        steady,
        signs,
    }))
}

/// A release whose readings had to be made again begins by them, and its patch is written by them: neither pays for
/// half a minute of readings a second time.
#[test]
fn readings_made_again_once_serve_the_release_and_its_patch() {
    let job = release(bmc_off());
    let mut made = MadeAgain::default();
    let judged = |made: &MadeAgain, now: u64, steady| {
        at_hand(&job, at(now), made.of(&incident()), steady, Signs::default())
    };
    assert!(matches!(judged(&made, 200_000, true), LastReadVerdict::Redo(_)), "the proof is 100 s old");
    let mut again = readings();
    again.command = None;
    made.keep(&incident(), again, at(231_000));
    for (now, steady, good) in [
        (231_100, true, true),
        (231_100, false, true),
        (241_000, false, true),
        (241_001, false, false),
        (291_000, true, true),
        (291_001, true, false),
    ] {
        let verdict = judged(&made, now, steady);
        assert_eq!(verdict == LastReadVerdict::Good, good, "{now} {steady}: {verdict:?}");
    }
}

#[test]
fn what_is_not_good_spoils_what_was_read_before_it() {
    let verdicts = [
        (LastReadVerdict::Good, true),
        (LastReadVerdict::On, false),
        (LastReadVerdict::Redo("old".to_owned()), false),
        (LastReadVerdict::Failed("PoweringOn".to_owned()), false),
    ];
    for (verdict, kept) in verdicts {
        let mut made = MadeAgain::default();
        made.keep(&incident(), readings(), at(1));
        made.judged(&incident(), &verdict);
        assert_eq!(made.of(&incident()).is_some(), kept, "{verdict:?}");
    }
    let mut made = MadeAgain::default();
    made.keep(&incident(), readings(), at(1));
    made.keep(&"n2-00000002".to_owned().into(), readings(), at(61_000));
    assert_eq!(made.of(&incident()), None, "too old to be of use");
    assert_eq!(made.by.len(), 1);
}

#[test]
fn readings_made_again_before_the_proof_say_nothing_of_it() {
    let job = release(bmc_off());
    let mut again = readings();
    again.command = None;
    for (made, good) in [(99_000, false), (100_000, false), (100_001, true)] {
        let made = (again.clone(), at(made));
        let verdict = at_hand(&job, at(105_000), Some(&made), false, Signs::default());
        assert_eq!(verdict == LastReadVerdict::Good, good, "{:?}: {verdict:?}", made.1);
    }
}

#[test]
fn signs_of_life_speak_against_a_proof_only_where_they_came_after_it() {
    let job = release(bmc_off());
    let judged = |heard: Option<u64>, moved: Option<u64>| {
        let signs = Signs { heard: heard.map(at), lease_moved: moved.map(at) };
        at_hand(&job, at(110_000), None, true, signs) == LastReadVerdict::Good
    };
    assert!(judged(None, None));
    assert!(judged(Some(100_000), Some(100_000)), "the last breath");
    assert!(!judged(Some(100_001), None));
    assert!(!judged(None, Some(100_001)));
}

#[test]
fn a_proof_by_the_bmc_needs_a_pin_and_a_persons_word_does_not() {
    for (proof, good) in [(bmc_off(), false), (person(), true)] {
        let job = ReleaseJob { pin: None, ..release(proof) };
        let verdict = at_hand(&job, at(110_000), None, true, Signs::default());
        assert_eq!(verdict == LastReadVerdict::Good, good, "{verdict:?}");
    }
    assert!(answer_within(&person()) < answer_within(&bmc_off()), "a dead BMC is not waited for long");
}

#[test]
fn the_log_hears_of_each_verdict() {
    let life = release(bmc_off()).life;
    let (node, incident) = (life.node.clone(), life.incident.clone());
    let said = |verdict| command(verdict, &life, Released::default(), Some(Box::new(readings())));
    let begun = Command::ReleaseBegun {
        node: node.clone(),
        incident: incident.clone(),
        before: Released::default(),
        again: Some(Box::new(readings())),
    };
    assert_eq!(said(LastReadVerdict::Good), begun);
    let on = Command::LastReadOn { node: node.clone(), incident: incident.clone() };
    assert_eq!(said(LastReadVerdict::On), on);
    for verdict in [LastReadVerdict::Redo, LastReadVerdict::Failed] {
        let failed =
            Command::LastReadFailed { node: node.clone(), incident: incident.clone(), why: "x".to_owned() };
        assert_eq!(said(verdict("x".to_owned())), failed);
    }
    let closed = Ended::Closed { why: "401".to_owned() };
    assert_eq!(made_again(closed), Err(LastReadVerdict::Failed("401".to_owned())));
    assert_eq!(made_again(Ended::OnAgain), Err(LastReadVerdict::On));
    assert_eq!(made_again(Ended::OffAgain { readings: Box::new(readings()) }), Ok(readings()));
    assert!(made_again(Ended::Proven).is_err(), "readings made again propose nothing");
}
