//! The proof table at every boundary, and what never passes.

use coroner_shared::bmc::Continuity;
use proptest::prelude::*;

use super::*;

const P: &str = "00112233-4455-6677-8899-aabbccddeeff";
const P_SWAPPED: &str = "33221100-5544-7766-8899-aabbccddeeff";
const MEMBER: &str = "/redfish/v1/Systems/1";

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

fn read(ms: u64, power: Power, session: u64) -> (Span, PowerReading) {
    let continuity = Continuity { session: Some(session), ..Continuity::default() };
    let reading = PowerReading { power, uuid: Some(P.to_owned()), took: Span::from_ms(50), continuity };
    (Span::from_ms(ms), reading)
}

/// Three Offs over so long, the last over session 2, closed over session 1.
fn offs(over_ms: u64) -> OffReadings {
    OffReadings {
        readings: vec![
            read(0, Power::Off, 1),
            read(over_ms / 2, Power::Off, 1),
            read(over_ms, Power::Off, 2),
        ],
        closing: Some(read(0, Power::Off, 1).1),
        steady: true,
        command: Some(CommandAnswer::Accepted),
        member: MEMBER.to_owned(),
        transform: Transform::Rfc,
        identity_before: P.to_owned(),
        identity_after: P.to_owned(),
        last_over_new_session: true,
        cached: false,
    }
}

fn checked(readings: &OffReadings) -> Result<(), ProofGap> {
    checked_as(readings, readings.command.as_ref(), false)
}

fn checked_as(readings: &OffReadings, answer: Option<&CommandAnswer>, cached: bool) -> Result<(), ProofGap> {
    let pin = pin();
    check_off_readings(readings, &ProofNeeds { pin: &pin, machine: pin.machine, cached, answer })
}

fn refused() -> CommandAnswer {
    CommandAnswer::Refused { why: "409".to_owned() }
}

fn unknown() -> CommandAnswer {
    CommandAnswer::Unknown { why: "time-out".to_owned() }
}

#[test]
fn every_row_of_the_table_passes_at_its_span_and_not_a_millisecond_before() {
    let rows: &[(bool, Option<CommandAnswer>, bool, u64)] = &[
        (true, Some(CommandAnswer::Accepted), false, 4),
        (true, Some(refused()), false, 10),
        (true, Some(unknown()), false, 10),
        (true, None, false, 30),
        (false, Some(CommandAnswer::Accepted), false, 30),
        (false, Some(refused()), false, 30),
        (false, Some(unknown()), false, 30),
        (false, None, false, 30),
        (true, Some(CommandAnswer::Accepted), true, 60),
        (true, Some(refused()), true, 60),
        (true, None, true, 60),
        (false, Some(CommandAnswer::Accepted), true, 60),
        (false, None, true, 60),
    ];
    for (steady, command, cached, secs) in rows {
        let needed = Span::from_secs(*secs);
        assert_eq!(required_span(*steady, command.as_ref(), *cached), needed);
        for (ms, want) in [(secs * 1000 - 1, false), (secs * 1000, true)] {
            let mut readings = offs(ms);
            readings.steady = *steady;
            readings.command.clone_from(command);
            readings.cached = *cached;
            let case = format!("steady {steady}, {command:?}, cached {cached}, {ms} ms");
            assert_eq!(checked(&readings).is_ok(), want, "{case}: {:?}", checked(&readings));
            // The binding's quirk counts, whatever the reader says.
            readings.cached = false;
            assert_eq!(checked_as(&readings, command.as_ref(), *cached).is_ok(), want, "{case}");
        }
    }
}

/// What differs from good readings, and the gap it must be.
type Spoilt = (&'static str, fn(&mut OffReadings), fn(&ProofGap) -> bool);

fn each_is_a_gap(rows: &[Spoilt]) {
    assert_eq!(checked(&offs(60_000)), Ok(()));
    for (case, spoil, is) in rows {
        let mut readings = offs(60_000);
        spoil(&mut readings);
        let gap = checked(&readings).unwrap_err();
        assert!(is(&gap), "{case}: {gap}");
    }
}

#[test]
fn anything_but_three_offs_of_the_pinned_machine_is_a_gap() {
    each_is_a_gap(&[
        ("two readings", |r| drop(r.readings.remove(0)), |g| matches!(g, ProofGap::TooFew { found: 2, .. })),
        ("none", |r| r.readings.clear(), |g| matches!(g, ProofGap::TooFew { found: 0, .. })),
        (
            "On last",
            |r| r.readings[2].1.power = Power::On,
            |g| matches!(g, ProofGap::TooFew { found: 0, .. }),
        ),
        (
            "bmc B04 rem: PoweringOff is not off",
            |r| r.readings[1].1.power = Power::PoweringOff,
            |g| matches!(g, ProofGap::TooFew { found: 1, .. }),
        ),
        (
            "bmc B07, B08: null is not off",
            |r| r.readings[0].1.power = Power::Other("null".to_owned()),
            |g| matches!(g, ProofGap::TooFew { found: 2, .. }),
        ),
        ("another member", |r| r.member.push('2'), |g| matches!(g, ProofGap::OtherMember { .. })),
        (
            "another byte order",
            |r| r.transform = Transform::Wire,
            |g| matches!(g, ProofGap::OtherTransform { .. }),
        ),
        (
            "identity before, in an order not pinned",
            |r| r.identity_before = P_SWAPPED.to_owned(),
            |g| matches!(g, ProofGap::Identity { when: "before", .. }),
        ),
        (
            "rem A19: identity after is another machine",
            |r| r.identity_after = "7a3c9e10-b2d4-11ee-8c4f-021122334455".to_owned(),
            |g| matches!(g, ProofGap::Identity { when: "after", .. }),
        ),
        ("no identity after", |r| r.identity_after.clear(), |g| matches!(g, ProofGap::Identity { .. })),
        (
            "a reading of another machine",
            |r| r.readings[1].1.uuid = Some(P_SWAPPED.to_owned()),
            |g| matches!(g, ProofGap::ReadingOfOther { .. }),
        ),
    ]);
}

#[test]
fn readings_that_may_hide_a_restart_are_a_gap() {
    each_is_a_gap(&[
        ("times go back", |r| r.readings[1].0 = Span::from_secs(70), |g| matches!(g, ProofGap::NotInOrder)),
        ("all in one session", |r| r.last_over_new_session = false, |g| matches!(g, ProofGap::SameSession)),
        (
            "called new, but the same",
            |r| r.readings[2].1.continuity.session = Some(1),
            |g| matches!(g, ProofGap::SameSession),
        ),
        (
            "bmc B50: the session changed on the way",
            |r| r.readings[0].1.continuity.session = Some(9),
            |g| matches!(g, ProofGap::Restarted),
        ),
        (
            "nothing shows that it did not restart at the end",
            |r| r.closing = None,
            |g| matches!(g, ProofGap::NotShownSteady),
        ),
        (
            "the closing reading came over another session",
            |r| r.closing.as_mut().unwrap().continuity.session = Some(3),
            |g| matches!(g, ProofGap::NotShownSteady),
        ),
        (
            "the closing reading is On",
            |r| r.closing.as_mut().unwrap().power = Power::On,
            |g| matches!(g, ProofGap::TooFew { .. }),
        ),
        (
            "the closing reading speaks of another machine",
            |r| r.closing.as_mut().unwrap().uuid = Some(P_SWAPPED.to_owned()),
            |g| matches!(g, ProofGap::ReadingOfOther { .. }),
        ),
        (
            "called steady with nothing to show for it",
            |r| {
                for (_, reading) in &mut r.readings {
                    reading.continuity = Continuity::default();
                }
            },
            |g| matches!(g, ProofGap::NotShownSteady),
        ),
    ]);
}

#[test]
fn accepted_counts_only_if_the_log_says_so() {
    let readings = offs(60_000);
    for answer in [None, Some(refused()), Some(unknown())] {
        assert_eq!(checked_as(&readings, answer.as_ref(), false), Err(ProofGap::NotAccepted));
    }
    let pin = pin();
    let other = "7a3c9e10-b2d4-11ee-8c4f-021122334455".parse().unwrap();
    let needs =
        ProofNeeds { pin: &pin, machine: other, cached: false, answer: Some(&CommandAnswer::Accepted) };
    assert!(matches!(check_off_readings(&readings, &needs), Err(ProofGap::OtherMachine { .. })));
}

#[test]
fn a_reset_time_shows_steadiness_by_itself_and_a_restart_whatever_the_sessions_say() {
    let with = |times: [&str; 3]| {
        let mut readings = offs(4000);
        readings.closing = None;
        for ((_, reading), time) in readings.readings.iter_mut().zip(times) {
            reading.continuity.reset_time = Some(time.to_owned());
        }
        readings
    };
    assert_eq!(checked(&with(["a", "a", "a"])), Ok(()));
    for times in [["a", "b", "b"], ["a", "a", "b"], ["b", "a", "a"]] {
        let mut readings = with(times);
        assert_eq!(checked(&readings), Err(ProofGap::Restarted), "{times:?}");
        readings.steady = false;
        readings.readings[2].0 = Span::from_mins(5);
        assert_eq!(checked(&readings), Err(ProofGap::Restarted), "{times:?}, not steady");
    }
}

#[test]
fn a_bmc_that_shows_nothing_is_proven_by_the_long_row() {
    // Basic log-in over connections of their own, or IPMI without a UUID in the body.
    let mut readings = offs(30_000);
    readings.steady = false;
    readings.closing = None;
    for (number, (_, reading)) in readings.readings.iter_mut().enumerate() {
        reading.uuid = None;
        reading.continuity = Continuity { connection: u64::try_from(number).ok(), ..Continuity::default() };
    }
    assert_eq!(checked(&readings), Ok(()));
    readings.readings[2].0 = Span::from_ms(29_999);
    assert!(matches!(checked(&readings), Err(ProofGap::TooShort { .. })));
}

#[test]
fn a_gap_longer_than_steadiness_allows_is_not_steady() {
    for (second, want) in [(35_000, true), (35_001, false)] {
        let mut readings = offs(50_000);
        readings.readings[1].0 = Span::from_ms(second);
        assert_eq!(checked(&readings).is_ok(), want, "{second}");
        readings.readings[1].0 = Span::from_ms(50_000 - second);
        assert_eq!(checked(&readings).is_ok(), want, "{second} at the end");
    }
}

fn any_power() -> impl Strategy<Value = Power> {
    prop_oneof![
        6 => Just(Power::Off),
        1 => Just(Power::On),
        1 => Just(Power::PoweringOn),
        1 => Just(Power::PoweringOff),
        1 => Just(Power::Paused),
        1 => "\\PC{0,8}".prop_map(Power::Other),
    ]
}

fn any_answer() -> impl Strategy<Value = Option<CommandAnswer>> {
    prop_oneof![Just(None), Just(Some(CommandAnswer::Accepted)), Just(Some(refused())), Just(Some(unknown()))]
}

proptest! {
    #[test]
    fn nothing_but_off_in_the_last_three_ever_passes(
        steps in proptest::collection::vec((any_power(), 0_u64..30_000), 0..8),
        steady: bool,
        cached: bool,
        command in any_answer(),
    ) {
        let mut readings = offs(0);
        let last = steps.len().saturating_sub(1);
        let mut t = 0;
        readings.readings = steps
            .into_iter()
            .enumerate()
            .map(|(n, (power, gap))| {
                t += if n == 0 { 0 } else { gap };
                read(t, power, if n == last { 2 } else { 1 })
            })
            .collect();
        readings.steady = steady;
        readings.cached = cached;
        readings.command = command;
        if checked(&readings).is_ok() {
            let all = &readings.readings;
            prop_assert!(all.len() >= 3);
            prop_assert!(all[all.len() - 3..].iter().all(|(_, r)| r.power == Power::Off));
            let first = all.iter().rposition(|(_, r)| r.power != Power::Off).map_or(0, |at| at + 1);
            let over = all[all.len() - 1].0.saturating_sub(all[first].0);
            prop_assert!(over >= required_span(steady, readings.command.as_ref(), cached));
        }
    }

    #[test]
    fn no_span_is_shorter_than_four_seconds_and_doubt_never_shortens_it(
        steady: bool,
        cached: bool,
        command in any_answer(),
    ) {
        let span = required_span(steady, command.as_ref(), cached);
        prop_assert!(span >= Span::from_secs(4));
        prop_assert!(span <= required_span(false, command.as_ref(), cached));
        prop_assert!(span <= required_span(steady, None, cached));
        prop_assert!(span <= required_span(steady, command.as_ref(), true));
    }
}
