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
