//! Only what a committed key signed proves anything.

use coroner_shared::beacon::{Answer, Path, ProbeAnswer, ProbeOutcome};
use coroner_shared::keys::PublicKey;

use super::*;

fn key(seed: u8) -> SecretKey {
    SecretKey::from_seed(&[seed; 32])
}

/// The member n03 with key 1, and with `old` as its old key.
fn keyed(old: Option<u8>) -> State {
    let mut state = state();
    let member = state.nodes.get_mut(&name(3)).unwrap().member.as_mut().unwrap();
    member.key = key(1).public();
    member.old_key = old.map(|seed| key(seed).public());
    state
}

fn verify(beacon: &Beacon, seed: u8, state: &State) -> Result<Option<PublicKey>, NotProven> {
    let signed = SignedBeacon::sign(beacon, &key(seed), CLUSTER).unwrap();
    let member = state.nodes[&name(3)].member.as_ref().unwrap();
    Proven::verify(&signed, member, CLUSTER).map(|p| p.key())
}

#[test]
fn a_beacon_is_proven_by_the_committed_key_or_the_one_before() {
    let beacon = beacon_of(3, boot(3, 0), 1);
    assert_eq!(verify(&beacon, 1, &keyed(None)), Ok(Some(key(1).public())));
    assert_eq!(verify(&beacon, 2, &keyed(None)), Err(NotProven::Forged));
    assert_eq!(verify(&beacon, 2, &keyed(Some(2))), Ok(Some(key(2).public())));
    assert_eq!(verify(&beacon, 3, &keyed(Some(2))), Err(NotProven::Forged));
    assert_eq!(verify(&Beacon { node: uid(4), ..beacon }, 1, &keyed(None)), Err(NotProven::OtherNode));
    let other_machine = Beacon { machine: machine(4), ..beacon.clone() };
    assert_eq!(verify(&other_machine, 1, &keyed(None)), Err(NotProven::OtherMachine));
    let member = keyed(None).nodes[&name(3)].member.clone().unwrap();
    let signed = SignedBeacon::sign(&beacon, &key(1), ClusterId::from_bytes([8; 16])).unwrap();
    assert_eq!(
        Proven::verify(&signed, &member, CLUSTER).map(|_| ()),
        Err(NotProven::Forged),
        "another installation"
    );
    let rubbish = SignedBeacon { bytes: vec![255; 20], signature: [0; 64] };
    assert_eq!(Proven::verify(&rubbish, &member, CLUSTER).map(|_| ()), Err(NotProven::Forged));
}

#[test]
fn the_boot_need_not_be_registered() {
    assert!(verify(&beacon_of(3, boot(3, 9), 1), 1, &keyed(None)).is_ok());
}

#[test]
fn a_forged_beacon_in_a_batch_is_dropped_alone() {
    let state = keyed(None);
    let good = SignedBeacon::sign(&beacon_of(3, boot(3, 0), 1), &key(1), CLUSTER).unwrap();
    let bad = SignedBeacon { signature: [0; 64], ..good.clone() };
    let heard = |beacon: &SignedBeacon| Report {
        subject: uid(3),
        hearing: Hearing::Heard { beacon: beacon.clone(), ago: span(0) },
    };
    let mut batch = ReportBatch {
        boot: boot(0, 0),
        number: 1,
        snapshot: true,
        doubts: vec![SelfDoubt::Pressure],
        reports: vec![heard(&bad), Report { subject: uid(4), hearing: silence(4, 1500, 1) }, heard(&good)],
    };
    let checked = CheckedBatch::verify(&batch, &state, CLUSTER).unwrap();
    let subjects: Vec<_> = checked.reports.iter().map(|r| r.subject.clone()).collect();
    assert_eq!(subjects, [uid(4), uid(3)]);
    assert_eq!((checked.number, checked.snapshot, checked.doubts.len()), (1, true, 1));
    // Of nobody, and of somebody else.
    batch.reports =
        vec![Report { subject: uid(99), ..heard(&good) }, Report { subject: uid(4), ..heard(&good) }];
    assert!(CheckedBatch::verify(&batch, &state, CLUSTER).unwrap().reports.is_empty());
    batch.reports = vec![heard(&bad); 17];
    assert_eq!(CheckedBatch::verify(&batch, &state, CLUSTER), Err(NotProven::TooMany));
    batch.reports.truncate(16);
    assert!(CheckedBatch::verify(&batch, &state, CLUSTER).is_ok());
}

#[test]
fn an_answer_keeps_what_it_found_without_its_forged_beacon() {
    let state = keyed(None);
    let found =
        ProbeOutcome { path: Path::Ping, answer: Answer::Answered, asked_ago: span(1), worked_ago: None };
    let good = SignedBeacon::sign(&beacon_of(3, boot(3, 0), 1), &key(1), CLUSTER).unwrap();
    let bad = SignedBeacon { signature: [0; 64], ..good.clone() };
    for (beacon, proven) in [(Some(good), true), (Some(bad), false), (None, false)] {
        let mut answer = ProbeAnswer { number: 7, subject: uid(3), outcomes: vec![found], beacon };
        let checked = CheckedAnswer::verify(&answer, &state, CLUSTER).unwrap();
        assert_eq!((checked.number, checked.outcomes.len(), checked.beacon.is_some()), (7, 1, proven));
        answer.outcomes = vec![found; 13];
        assert_eq!(CheckedAnswer::verify(&answer, &state, CLUSTER), Err(NotProven::TooMany));
    }
}
