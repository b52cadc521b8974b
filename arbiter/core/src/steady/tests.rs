//! Steadiness at every boundary, and what a verdict may look at.

use coroner_shared::machine_id::Transform;

use super::*;

const P: &str = "00112233-4455-6677-8899-aabbccddeeff";

fn track() -> BmcTrack {
    let mut track = BmcTrack::new(Pin {
        machine: P.parse().unwrap(),
        transform: Transform::Rfc,
        system_transform: Transform::Rfc,
        member: "/redfish/v1/Systems/1".to_owned(),
        serial: None,
        manager: None,
        tls_key: None,
    });
    track.identified(at(0), &matching());
    track
}

fn matching() -> IdentityVerdict {
    IdentityVerdict::Match {
        member: "/redfish/v1/Systems/1".to_owned(),
        transform: Transform::Rfc,
        given: P.to_owned(),
        notes: Vec::new(),
    }
}

fn at(ms: u64) -> Mono {
    Mono::from_ms(1_000_000 + ms)
}

fn session(number: u64) -> Continuity {
    Continuity { session: Some(number), ..Continuity::default() }
}

fn reset(text: &str) -> Continuity {
    Continuity { session: Some(1), reset_time: Some(text.to_owned()), ..Continuity::default() }
}

fn reading(power: Power, continuity: &Continuity) -> PowerReading {
    PowerReading { power, uuid: Some(P.to_owned()), took: Span::from_ms(50), continuity: continuity.clone() }
}

/// Something that happens to a track at a time in milliseconds.
enum Happens {
    Reads(Power, Continuity),
    Fails(ReadFailure),
}

use Happens::{Fails, Reads};

fn played(events: impl IntoIterator<Item = (u64, Happens)>) -> BmcTrack {
    let mut track = track();
    for (ms, event) in events {
        match event {
            Reads(power, shown) => track.read(at(ms), &reading(power, &shown)),
            Fails(failure) => track.failed(at(ms), Span::from_ms(50), failure),
        }
    }
    track
}

/// On over session 1 at these seconds.
fn on_at(secs: &[u64]) -> Vec<(u64, Happens)> {
    secs.iter().map(|s| (s * 1000, Reads(Power::On, session(1)))).collect()
}

#[test]
fn steady_begins_at_120_seconds_of_answers_and_not_before() {
    for (last_ms, want) in [(119_999, false), (120_000, true), (120_001, true)] {
        let mut events = on_at(&[0, 30, 60, 90]);
        events.push((last_ms, Reads(Power::On, session(1))));
        assert_eq!(played(events).steady(at(last_ms)), want, "{last_ms}");
    }
    // Time that passes without an answer does not count.
    assert!(!played(on_at(&[0, 30, 60, 90, 119])).steady(at(121_000)));
}

#[test]
fn a_gap_of_more_than_35_seconds_begins_anew() {
    for (gap_ms, want) in [(35_000, true), (35_001, false)] {
        let mut events = on_at(&[0, 30, 60, 90, 120]);
        events.push((120_000 + gap_ms, Reads(Power::On, session(1))));
        assert_eq!(played(events).steady(at(120_000 + gap_ms)), want, "{gap_ms}");
    }
    let track = played(on_at(&[0, 30, 60, 90, 120]));
    assert!(track.steady(at(155_000)));
    assert!(!track.steady(at(155_001)), "the next answer does not come");
    assert_eq!(track.answers_since(at(155_001)), None);
}

#[test]
fn anything_that_may_be_a_restart_begins_anew() {
    let shows = |c: Continuity| Reads(Power::On, c);
    let rows = [
        ("the session lives", session(1), shows(session(1)), true),
        ("another session", session(1), shows(session(2)), false),
        ("the session is gone", session(1), shows(Continuity::default()), false),
        (
            "another session, same reset time",
            reset("a"),
            shows(Continuity { session: Some(2), ..reset("a") }),
            true,
        ),
        ("the reset time moved, the session lives", reset("a"), shows(reset("b")), false),
        ("an older reset time", reset("b"), shows(reset("a")), false),
        ("no answer", session(1), Fails(ReadFailure::NoAnswer), false),
        ("503", session(1), Fails(ReadFailure::Unclear("HTTP 503".to_owned())), false),
        (
            "200 without a power state",
            session(1),
            Reads(Power::Other("missing".to_owned()), session(1)),
            false,
        ),
        ("a transition is an answer", session(1), Reads(Power::PoweringOff, session(1)), true),
    ];
    for (case, before, event, want) in rows {
        let mut events: Vec<_> =
            [0, 30, 60, 90, 120].map(|s| (s * 1000, Reads(Power::On, before.clone()))).into();
        let after = match &event {
            Reads(_, c) => c.clone(),
            Fails(_) => before.clone(),
        };
        events.push((130_000, event));
        events.push((131_000, Reads(Power::On, after)));
        assert_eq!(played(events).steady(at(131_000)), want, "{case}");
    }
}

#[test]
fn what_cannot_show_continuity_is_never_steady() {
    let nothing = Continuity::default();
    let fresh_connections = |s: u64| Continuity { connection: Some(s), ..Continuity::default() };
    for show in [&|_| nothing.clone(), &fresh_connections as &dyn Fn(u64) -> Continuity] {
        let track = played((0..100).map(|s| (s * 30_000, Reads(Power::On, show(s)))));
        assert!(!track.steady(at(99 * 30_000)));
    }
    let kept = Continuity { connection: Some(7), ..Continuity::default() };
    assert!(played((0..5).map(|s| (s * 30_000, Reads(Power::On, kept.clone())))).steady(at(120_000)));
}

#[test]
fn a_bmc_that_restarts_and_says_off_is_not_steady_and_its_offs_begin_anew() {
    // bmc B50: 110 s without an answer, then Off from defaults while the host runs.
    let mut events = on_at(&[0, 30, 60, 90, 120]);
    events.push((125_000, Reads(Power::Off, session(1))));
    events.push((130_000, Fails(ReadFailure::NoAnswer)));
    events.extend([240, 241, 242].map(|s| (s * 1000, Reads(Power::Off, session(2)))));
    let track = played(events);
    assert!(!track.steady(at(242_000)));
    let seen = track.view(replica(), at(242_000), at(0)).read;
    assert_eq!(seen, BmcRead::Off { reads: 3, over: Span::from_ms(1950) }, "the Off before does not count");
    // The same without a failed reading in between: the session tells.
    let mut events = on_at(&[0, 30, 60, 90, 120]);
    events
        .extend([(125_000, 1), (126_000, 2), (127_000, 2)].map(|(t, s)| (t, Reads(Power::Off, session(s)))));
    let seen = played(events).view(replica(), at(127_000), at(0)).read;
    assert_eq!(seen, BmcRead::Off { reads: 2, over: Span::from_ms(950) });
}

fn replica() -> ReplicaId {
    ReplicaId::new(1).unwrap()
}

#[test]
fn only_what_was_asked_for_after_the_failure_date_counts() {
    let offs = || [1000, 1500, 2000, 2500].map(|t| (t, Reads(Power::Off, session(1))));
    // The reading answered at 1500 was asked for at 1450.
    for (failure_ms, reads, over) in
        [(0, 4, 1450), (949, 4, 1450), (950, 3, 950), (1449, 3, 950), (1450, 2, 450), (1950, 1, 0)]
    {
        let seen = played(offs()).view(replica(), at(2500), at(failure_ms)).read;
        let over = Span::from_ms(over);
        // One reading alone spans nothing.
        let over = if reads == 1 { Span::ZERO } else { over };
        assert_eq!(seen, BmcRead::Off { reads, over }, "failure date {failure_ms}");
    }
    let view = played(offs()).view(replica(), at(3000), at(2450));
    assert_eq!((view.read, view.age), (BmcRead::NotRead, Span::from_ms(500)));
    assert_eq!(track().view(replica(), at(3000), at(0)).read, BmcRead::NotRead);
    let on_before = played(on_at(&[1])).view(replica(), at(2000), at(1000));
    assert_eq!(on_before.read, BmcRead::NotRead, "On from before the failure says nothing of now");
}

#[test]
fn off_that_was_said_of_the_living_proves_nothing_of_the_dead() {
    let offs = |from: u64| (0..20).map(move |n| (from + n * 500, Reads(Power::Off, session(1))));
    let read = |track: &BmcTrack, failed| track.view(replica(), at(10_500), at(failed)).read;
    // Answered at 1000; a sign of life may be on its way for 3 s.
    let track = played(offs(1000));
    assert!(matches!(read(&track, 3_999), BmcRead::Off { .. }));
    let BmcRead::Unclear { what, since } = read(&track, 4_000) else { panic!("{:?}", read(&track, 4_000)) };
    assert_eq!(
        (what.as_str(), since),
        ("it said Off already while the machine was heard", Span::from_ms(6_500))
    );
    // On in between: somebody turned it on, and it died later.
    let track = played(
        [(0, Reads(Power::Off, session(1))), (3_000, Reads(Power::On, session(1)))]
            .into_iter()
            .chain(offs(6_000)),
    );
    assert!(matches!(read(&track, 5_900), BmcRead::Off { reads: 20, .. }), "{:?}", read(&track, 5_900));
    // For whoever looks after bindings in calm times.
    assert!(track.says_off(at(15_500)) && track.says_off(at(15_500) + GAP_MAX));
    assert!(!track.says_off(at(15_500) + GAP_MAX + Span::from_ms(1)));
    assert!(!played(on_at(&[1])).says_off(at(2)) && !BmcTrack::new(track.pin).says_off(at(0)));
}

#[test]
fn anything_but_off_ends_a_run_of_offs() {
    let rows = [
        Reads(Power::On, session(1)),
        Reads(Power::PoweringOff, session(1)),
        Reads(Power::PoweringOn, session(1)),
        Reads(Power::Paused, session(1)),
        Reads(Power::Other("null".to_owned()), session(1)),
        Fails(ReadFailure::NoAnswer),
        Fails(ReadFailure::Unclear("HTTP 500".to_owned())),
    ];
    for (row, between) in rows.into_iter().enumerate() {
        let track = played([
            (1000, Reads(Power::Off, session(1))),
            (1500, Reads(Power::Off, session(1))),
            (2000, between),
            (2500, Reads(Power::Off, session(1))),
        ]);
        let seen = track.view(replica(), at(2500), at(0)).read;
        assert_eq!(seen, BmcRead::Off { reads: 1, over: Span::ZERO }, "row {row}");
        assert_eq!(track.off_for(at(2500)), Span::ZERO, "row {row}");
    }
}

#[test]
fn silence_and_unclear_answers_are_dated_from_their_first() {
    let silent = played([
        (1000, Reads(Power::On, session(1))),
        (2000, Fails(ReadFailure::NoAnswer)),
        (4000, Fails(ReadFailure::NoAnswer)),
    ]);
    let since = |failure_ms| silent.view(replica(), at(7000), at(failure_ms)).read;
    assert_eq!(
        since(0),
        BmcRead::Silent { since: Span::from_ms(5050) },
        "from when it was first asked in vain"
    );
    assert_eq!(since(3000), BmcRead::Silent { since: Span::from_secs(4) }, "but not from before the failure");
    let mixed = played([
        (1000, Fails(ReadFailure::Unclear("HTTP 401".to_owned()))),
        (3000, Fails(ReadFailure::NoAnswer)),
        (5000, Reads(Power::Other("null".to_owned()), session(1))),
    ]);
    let BmcRead::Unclear { what, since } = mixed.view(replica(), at(7000), at(0)).read else { panic!() };
    assert_eq!((what.as_str(), since), ("power state \"null\"", Span::from_ms(6050)));
    let back = played([
        (1000, Fails(ReadFailure::NoAnswer)),
        (2000, Reads(Power::On, session(1))),
        (3000, Fails(ReadFailure::NoAnswer)),
    ]);
    assert_eq!(back.view(replica(), at(4000), at(0)).read, BmcRead::Silent { since: Span::from_ms(1050) });
}

#[test]
fn readings_of_another_machine_are_unclear() {
    let mut wrong = reading(Power::Off, &session(1));
    wrong.uuid = Some("7a3c9e10-b2d4-11ee-8c4f-021122334455".to_owned());
    let mut track = track();
    for s in 0..10 {
        track.read(at(s * 30_000), &wrong);
    }
    assert!(!track.steady(at(270_000)));
    let BmcRead::Unclear { what, .. } = track.view(replica(), at(270_000), at(0)).read else { panic!() };
    assert!(what.contains("7a3c9e10") && what.contains(P), "{what}");
}

#[test]
fn readings_without_a_uuid_need_an_identity_read_in_the_same_session() {
    let without = |c: &Continuity| PowerReading { uuid: None, ..reading(Power::Off, c) };
    let is_off =
        |track: &BmcTrack, ms| matches!(track.view(replica(), at(ms), at(0)).read, BmcRead::Off { .. });
    let mut track = track();
    track.read(at(1000), &without(&session(1)));
    assert!(is_off(&track, 1000));
    track.read(at(2000), &without(&session(2)));
    assert!(!is_off(&track, 2000), "another session was not asked who it is");
    track.identified(at(2100), &matching());
    track.read(at(3000), &without(&session(2)));
    assert!(is_off(&track, 3000));
    let refusal = IdentityVerdict::NoIdentity { why: "starting".to_owned() };
    track.identified(at(3100), &refusal);
    track.read(at(4000), &reading(Power::Off, &session(2)));
    assert!(!is_off(&track, 4000), "a refusal stands until the next Match");
    let never = BmcTrack::new(track.pin.clone());
    let mut never = never;
    never.read(at(1000), &reading(Power::Off, &session(1)));
    assert!(!is_off(&never, 1000), "never identified");
}

#[test]
fn polls_are_due_each_half_second_for_a_suspect_else_as_the_policy_says() {
    let half_minute = Span::from_secs(30);
    let fresh = track();
    assert!(fresh.poll_due(at(0), true, half_minute) && fresh.poll_due(at(0), false, half_minute));
    assert!(!fresh.poll_due(at(0), false, Span::ZERO), "zero: never in calm times");
    // Asked at 9950, answered at 10000.
    let track = played([(10_000, Reads(Power::On, session(1)))]);
    for (ms, suspect, poll, want) in [
        (10_449, true, half_minute, false),
        (10_450, true, half_minute, true),
        (10_450, true, Span::ZERO, true),
        (39_949, false, half_minute, false),
        (39_950, false, half_minute, true),
        (999_950, false, Span::ZERO, false),
    ] {
        assert_eq!(track.poll_due(at(ms), suspect, poll), want, "{ms} {suspect} {poll}");
    }
}

#[test]
fn a_long_time_off_is_kept_in_little_room_and_never_exaggerated() {
    let track = played((0..10_000).map(|n| (n * 500, Reads(Power::Off, session(1)))));
    assert!(track.offs.len() <= KEPT_MAX);
    let now = at(9_999 * 500);
    let failure_date = at(0).back(Span::from_secs(1));
    let BmcRead::Off { reads, over } = track.view(replica(), now, failure_date).read else { panic!() };
    assert!((2..=10_000).contains(&reads), "{reads}");
    assert_eq!(over, Span::from_ms(9_999 * 500 - 50), "the first and the last are never forgotten");
    assert_eq!(track.off_for(now + GAP_MAX), Span::from_ms(9_999 * 500 - 50));
    assert_eq!(
        track.off_for(now + GAP_MAX + Span::from_ms(1)),
        Span::ZERO,
        "old readings say nothing of now"
    );
}

proptest::proptest! {
    #[test]
    fn steady_only_if_120_seconds_of_answers_show_it(
        steps in proptest::collection::vec((1_u64..40, 0_u8..8), 1..60),
    ) {
        // A model that keeps everything: the newest stretch of answers over one session, no gap over 35 s.
        let mut events = Vec::new();
        let (mut t, mut number) = (0_u64, 1_u64);
        let mut stretch: Vec<u64> = Vec::new();
        for (secs, what) in steps {
            t += secs * 1000;
            match what {
                0 => {
                    stretch.clear();
                    events.push((t, Fails(ReadFailure::NoAnswer)));
                }
                other => {
                    let gap = stretch.last().is_some_and(|last| t - last > 35_000);
                    if other == 1 {
                        number += 1;
                    }
                    if gap || other == 1 {
                        stretch.clear();
                    }
                    stretch.push(t);
                    events.push((t, Reads(Power::On, session(number))));
                }
            }
        }
        let want = stretch.first().is_some_and(|first| t - first >= 120_000);
        proptest::prop_assert_eq!(played(events).steady(at(t)), want);
    }
}
