//! Whatever happens. Worlds drawn at random are judged step by step in `world`; then an executor that answers with
//! nonsense is fed to the fence directly.

use coroner_shared::bmc::{
    CommandAnswer, Continuity, IdentityFacts, Login, MemberFacts, MemberRead, Power, PowerReading,
};
use coroner_shared::time::{Mono, Span};
use proptest::prelude::*;
use proptest::sample::select;

use super::bmc::{MEMBER, OTHER, P, Says, Shows, Tells};
use super::world::{Fate, World, order, ordered, refused};
use crate::command::{Command, Outcome};
use crate::fence::{Ended, Fence, FenceEvent, FenceOrder, Identified, LOOK_AGE_MAX, Look, Note, Over, Step};
use crate::phase::EvidenceClass::{self, FoundOff, HostSilentBmcOn};
use crate::proof::{ProofNeeds, check_off_readings};

fn any_class() -> impl Strategy<Value = EvidenceClass> {
    select(vec![FoundOff, HostSilentBmcOn, ordered()])
}

fn any_fate() -> impl Strategy<Value = Fate> {
    prop_oneof![
        (0_u64..100_000, 0_u64..25_000).prop_map(|(down, lies)| Fate::BmcRestarts(down, lies)),
        select(vec![
            Fate::Swap,
            Fate::SessionsDie,
            Fate::PowersOn,
            Fate::PowersOff,
            Fate::Heard,
            Fate::LeaseMoves,
            Fate::Paused(true),
            Fate::Paused(false),
            Fate::Unwanted,
            Fate::SteadyAgain,
            Fate::ReadsFail(true),
            Fate::ReadsFail(false),
            Fate::Acts(true),
            Fate::Acts(false),
            Fate::SaysOther,
        ]),
    ]
}

fn any_fates() -> impl Strategy<Value = Vec<(u64, Fate)>> {
    let early = (0_u64..8000, any_fate());
    let late = (0_u64..200_000, any_fate());
    proptest::collection::vec(prop_oneof![early, late], 0..8)
}

#[derive(Clone, Debug)]
struct Draw {
    class: EvidenceClass,
    on: bool,
    steady: bool,
    cached: bool,
    paused: bool,
    re_fence: bool,
    again: bool,
    last_attempt: u32,
    shows: Shows,
    says: Says,
    single: bool,
    notes: bool,
    survive: bool,
    off_delay_ms: u64,
    latency_ms: u64,
    look_ms: u64,
    commit_ms: u64,
    refuses: Option<&'static str>,
    fates: Vec<(u64, Fate)>,
    after: Option<(u32, Fate)>,
}

prop_compose! {
    fn any_draw()(
        class in any_class(),
        (on, steady, cached, paused) in any::<(bool, bool, bool, bool)>(),
        (re_fence, again, single, notes) in (
            prop::bool::weighted(0.2), prop::bool::weighted(0.1), prop::bool::weighted(0.2), prop::bool::weighted(0.8),
        ),
        survive in prop::bool::weighted(0.3),
        last_attempt in 0_u32..3,
        shows in select(vec![Shows::Session, Shows::ResetTime, Shows::Nothing]),
        says in select(vec![Says::Accepted, Says::Refused, Says::Unknown, Says::NotSent]),
        off_delay_ms in 0_u64..40_000,
        latency_ms in select(vec![1_u64, 50, 500, 4000]),
        look_ms in select(vec![1_u64, 100, 499, 501]),
        commit_ms in select(vec![1_u64, 100, 700, 3000]),
        refuses in proptest::option::weighted(0.5, select(vec!["Attempt", "Answer", "FoundOnAgain", "Proven"])),
        fates in any_fates(),
        after in proptest::option::of((0_u32..40, any_fate())),
    ) -> Draw {
        Draw {
            class, on, steady, cached, paused: paused && on, re_fence, again, last_attempt, shows, says, single, notes,
            survive: survive && shows == Shows::ResetTime,
            off_delay_ms, latency_ms, look_ms, commit_ms, refuses, fates, after,
        }
    }
}

/// All lies of a draw together are shorter than what a BMC that is not steady must say Off for: one that shows nothing and
/// restarts again while it lies could lie for longer than any span, and nobody could tell.
fn in_all(mut draw: Draw) -> Draw {
    let fates =
        draw.fates.iter_mut().map(|(_, fate)| fate).chain(draw.after.iter_mut().map(|(_, fate)| fate));
    let lies: Vec<&mut u64> = fates
        .filter_map(|fate| if let Fate::BmcRestarts(_, lies) = fate { Some(lies) } else { None })
        .collect();
    let each = 25_000 / (lies.len() as u64).max(1);
    for lies in lies {
        *lies = (*lies).min(each);
    }
    draw
}

fn world(draw: Draw) -> World {
    let draw = in_all(draw);
    World::new(draw.class).with(|w| {
        w.bmc.machines[0].set(0, draw.on);
        w.order.steady = draw.steady;
        w.order.cached = draw.cached;
        w.order.paused = draw.paused;
        w.order.re_fence = draw.re_fence;
        w.order.again = draw.again;
        w.order.last_attempt = draw.last_attempt;
        w.order.intent_open = draw.last_attempt > 0;
        w.bmc.shows = draw.shows;
        w.bmc.says = draw.says;
        w.bmc.single_session = draw.single;
        w.bmc.sessions_survive = draw.survive;
        w.notes = draw.notes;
        w.bmc.off_delay_ms = draw.off_delay_ms;
        w.bmc.latency_ms = draw.latency_ms;
        // Only a BMC that is known to cache may do so.
        w.bmc.tells = if draw.cached { Tells::Old(50_000) } else { Tells::Truth };
        w.look_ms = draw.look_ms;
        w.commit_ms = draw.commit_ms;
        if let Some(name) = draw.refuses {
            w.outcomes = [(name, refused())].into();
        }
        w.fates = draw.fates;
        w.after_requests = draw.after;
        w.until_ms = 400_000;
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 250, ..ProptestConfig::default() })]

    #[test]
    fn no_world_makes_a_fence_break_a_rule(draw in any_draw()) {
        world(draw).run();
    }

    #[test]
    fn a_calm_world_with_an_honest_bmc_ends_in_a_proof(mut draw in any_draw(), until in 0_u64..60_000) {
        // Faults stop at some time; whatever happened before, the fence then gets there.
        draw.again = false;
        draw.paused = false;
        draw.refuses = None;
        draw.after = None;
        draw.look_ms = draw.look_ms.min(499);
        draw.says = if draw.says == Says::NotSent { Says::Accepted } else { draw.says };
        let ends = |fate: &Fate| matches!(
            fate,
            Fate::Swap | Fate::Unwanted | Fate::SaysOther | Fate::PowersOn | Fate::LeaseMoves
        );
        draw.fates.retain(|(_, fate)| !ends(fate));
        for (t, fate) in &mut draw.fates {
            *t = (*t).min(until);
            if let Fate::BmcRestarts(down, _) = fate {
                *down = (*down).min(30_000);
            }
        }
        draw.fates.extend([(until, Fate::ReadsFail(false)), (until, Fate::Acts(true)), (until, Fate::Paused(false))]);
        if draw.class == FoundOff {
            draw.on = false;
        }
        let life = draw.fates.iter().any(|(_, fate)| matches!(fate, Fate::Heard));
        // A sign of life before the first attempt is a reprieve, and then the state says what comes next.
        prop_assume!(!life || draw.last_attempt > 0);
        let latency = draw.latency_ms;
        let mut world = world(draw);
        // Longest: a back-off of minutes that was earned before, the settling, the command, the cache, the long row.
        world.until_ms = 60_000 + 700_000 + 40 * latency;
        let world = world.run();
        prop_assert_eq!(&world.ended, &Some(Ended::Proven), "{:?}", world.steps);
    }
}

// === nonsense ===

fn any_power() -> impl Strategy<Value = Power> {
    prop_oneof![
        30 => Just(Power::Off),
        2 => Just(Power::On),
        1 => Just(Power::PoweringOff),
        1 => Just(Power::Other("null".to_owned())),
    ]
}

fn any_continuity() -> impl Strategy<Value = Continuity> {
    let number = || proptest::option::of(0_u64..3);
    let calm = Continuity { session: Some(1), connection: None, reset_time: Some("a".to_owned()) };
    let odd = (number(), number(), proptest::option::of(select(vec!["a".to_owned(), "b".to_owned()])))
        .prop_map(|(session, connection, reset_time)| Continuity { session, connection, reset_time });
    prop_oneof![30 => Just(calm), 1 => odd]
}

/// One log-in for the first session and another for the second, now and then the wrong one.
fn any_login() -> impl Strategy<Value = Option<Login>> {
    let odd =
        select(vec![Login::Session("/s/1".to_owned()), Login::Session("/s/2".to_owned()), Login::Basic]);
    prop_oneof![30 => Just(None), 1 => odd.prop_map(Some)]
}

fn any_uuid() -> impl Strategy<Value = Option<String>> {
    prop_oneof![
        40 => Just(Some(P.to_owned())),
        1 => Just(Some(OTHER.to_owned())),
        1 => select(vec![None, Some(String::new())]),
    ]
}

fn any_outcome() -> impl Strategy<Value = Result<Outcome, String>> {
    let odd = select(vec![Ok(Outcome::Unchanged), Ok(refused()), Ok(Outcome::Stale), Err("lost".to_owned())]);
    prop_oneof![20 => Just(Ok(Outcome::Done)), 1 => odd]
}

/// What a step may be answered with: something that fits it, of whatever content; now and then anything at all.
#[derive(Clone, Debug)]
struct Reply {
    power: Power,
    uuid: Option<String>,
    continuity: Continuity,
    login: Option<Login>,
    fails: bool,
    outcome: Result<Outcome, String>,
    answer: CommandAnswer,
    not_sent: bool,
    too_late: bool,
    wanted: bool,
    paused: bool,
    /// How old a look is.
    look_age: u64,
    life: Option<u64>,
    passes: u64,
    misfit: bool,
    note: Option<u8>,
}

prop_compose! {
    fn any_reply()(
        power in any_power(),
        uuid in any_uuid(),
        continuity in any_continuity(),
        login in any_login(),
        fails in prop::bool::weighted(0.03),
        not_sent in prop::bool::weighted(0.1),
        too_late in prop::bool::weighted(0.15),
        misfit in prop::bool::weighted(0.01),
        outcome in any_outcome(),
        answer in select(vec![
            CommandAnswer::Accepted,
            CommandAnswer::Refused { why: String::new() },
            CommandAnswer::Unknown { why: String::new() },
        ]),
        (wanted, paused) in (prop::bool::weighted(0.99), prop::bool::weighted(0.03)),
        look_age in select(vec![0_u64, 0, 1, 1, 400, 500, 501, 9000]),
        life in proptest::option::weighted(0.03, 0_u64..10_000),
        passes in select(vec![0_u64, 1, 1, 50, 50, 50, 400, 2000, 31_000]),
        note in proptest::option::weighted(0.03, 0_u8..6),
    ) -> Reply {
        Reply {
            power, uuid, continuity, login, fails, outcome, answer, not_sent, too_late, wanted, paused, look_age, life, passes,
            misfit, note,
        }
    }
}

/// The conditions of a command, kept by somebody who does not trust the fence.
#[derive(Default)]
struct Book {
    identified: Option<Login>,
    committed: Option<u32>,
    sent: Vec<u32>,
    look: Option<Look>,
    answers: Vec<(u32, CommandAnswer)>,
    heard: Option<Mono>,
    /// The log-in under which identity matched over the second session.
    matched_new: Option<Login>,
    /// Whether the last reading is known to be the pinned machine's: by itself in that session, or by identity since.
    last_is_ours: bool,
    /// Offs read over the first session since a command was sent.
    offs: usize,
}

fn facts(reply: &Reply) -> IdentityFacts {
    let read = MemberRead::Read { uuid: reply.uuid.clone(), serial: None };
    let members = vec![MemberFacts { path: MEMBER.to_owned(), read }];
    IdentityFacts { members, manager_uuid: None, tls_key_sha256: None }
}

fn reading(reply: &Reply, over: Over) -> PowerReading {
    let second = |number: u64| if over == Over::New { number + 100 } else { number };
    let mut continuity = reply.continuity.clone();
    continuity.session = continuity.session.map(second);
    PowerReading {
        power: reply.power.clone(),
        uuid: reply.uuid.clone(),
        took: Span::from_ms(reply.passes.min(400)),
        continuity,
    }
}

/// The event that answers a step, and what the book keeps of it.
fn reply_to(step: &Step, reply: &Reply, now: Mono, book: &mut Book) -> FenceEvent {
    let failure = || "time-out".to_owned();
    let login = |over: &Over| {
        let usual = if *over == Over::First { "/s/1" } else { "/s/2" };
        reply.login.clone().unwrap_or(Login::Session(usual.to_owned()))
    };
    match step {
        Step::LastLook => {
            let heard = reply.life.map(|age| now.back(Span::from_ms(age)));
            book.heard = book.heard.max(heard);
            let at = now.back(Span::from_ms(reply.look_age));
            let look = Look { at, wanted: reply.wanted, paused: reply.paused, heard, lease_moved: None };
            book.look = Some(look.clone());
            FenceEvent::Looked(Ok(look))
        }
        Step::Identify(over) => {
            let login = login(over);
            if *over == Over::First {
                let good = !reply.fails && reply.uuid.as_deref() == Some(P);
                book.identified = good.then(|| login.clone());
            } else {
                let good = !reply.fails && reply.uuid.as_deref() == Some(P);
                book.matched_new = good.then(|| login.clone());
                book.last_is_ours = good;
            }
            let identified = Identified { facts: facts(reply), login };
            FenceEvent::Identity(if reply.fails { Err(failure()) } else { Ok(identified) })
        }
        Step::DeleteSession { .. } => FenceEvent::Deleted,
        Step::ReadPower(over) => {
            let login = login(over);
            let other_session = *over == Over::First && Some(&login) != book.identified.as_ref();
            let other_machine = reply.uuid.as_deref().is_some_and(|uuid| uuid != P);
            if reply.fails || other_session || other_machine {
                book.identified = None;
            }
            if *over == Over::New {
                let in_session = book.matched_new.as_ref() == Some(&login) && login != Login::Basic;
                book.last_is_ours = in_session && reply.uuid.as_deref() == Some(P);
            }
            book.offs += usize::from(*over == Over::First && reply.power == Power::Off);
            FenceEvent::Power(if reply.fails { Err(failure()) } else { Ok((reading(reply, *over), login)) })
        }
        Step::NewSession => {
            if reply.fails {
                book.identified = None;
            }
            (book.matched_new, book.last_is_ours) = (None, false);
            FenceEvent::Opened(if reply.fails { Err(failure()) } else { Ok(()) })
        }
        Step::Commit(command) => {
            if reply.outcome == Ok(Outcome::Done) {
                if let Command::Attempt { number, .. } = &**command {
                    book.committed = Some(*number);
                }
                if let Command::AttemptAnswered { number, answer, .. } = &**command {
                    book.answers.push((*number, answer.clone()));
                }
            }
            FenceEvent::Committed(reply.outcome.clone())
        }
        Step::SendForceOff { .. } if reply.not_sent => FenceEvent::NotSent { why: "no route".to_owned() },
        Step::SendForceOff { .. } if reply.too_late => FenceEvent::TooLate,
        Step::SendForceOff { number, .. } => {
            book.sent.push(*number);
            book.offs = 0;
            FenceEvent::Answered(reply.answer.clone())
        }
        Step::Wait { .. } | Step::Ended(_) => FenceEvent::Woke,
    }
}

fn judge(step: &Step, now: Mono, order: &FenceOrder, book: &Book) {
    match step {
        Step::SendForceOff { number, send_before, deadline } => {
            assert!(book.identified.is_some(), "no Match in this session");
            assert_eq!(book.committed, Some(*number), "no committed attempt");
            assert!(!book.sent.contains(number), "sent twice");
            let look = book.look.as_ref().unwrap();
            assert!(now.since(look.at) <= LOOK_AGE_MAX && look.wanted && !look.paused, "{look:?}");
            assert!(*send_before <= now + LOOK_AGE_MAX && *deadline > now);
            assert!(!order.paused || !look.paused);
            let despite_life = order.re_fence || matches!(order.class, EvidenceClass::Ordered { .. });
            let heard = book.heard.is_some_and(|at| now.since(at) < Span::from_secs(3));
            assert!(despite_life || !heard, "heard");
        }
        Step::Commit(command) => {
            if let Command::Proven { attempt, readings, .. } = &**command {
                let answer = book.answers.iter().rev().find(|(n, _)| n == attempt).map(|(_, answer)| answer);
                let machine = order.incarnation.machine;
                let needs = ProofNeeds { pin: &order.pin, machine, cached: order.cached, answer };
                check_off_readings(readings, &needs).unwrap();
                assert!(book.last_is_ours, "nobody knows whose the last Off is");
                let before_the_last = readings.readings.len() - 1;
                assert!(
                    readings.command.is_none() || before_the_last <= book.offs,
                    "read before the command"
                );
            }
        }
        Step::LastLook
        | Step::Identify(_)
        | Step::DeleteSession { .. }
        | Step::ReadPower(_)
        | Step::NewSession
        | Step::Wait { .. }
        | Step::Ended(_) => {}
    }
}

fn note_of(kind: u8, now: Mono, reply: &Reply) -> Note {
    match kind {
        0 => Note::Heard(now.back(Span::from_ms(reply.look_age))),
        1 => Note::LeaseMoved(now),
        2 => Note::Paused(true),
        3 => Note::Paused(false),
        4 => Note::Steady(None),
        _ => Note::Steady(Some(reply.continuity.clone())),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_answered_a_command_has_all_its_conditions(
        class in any_class(),
        (steady, re_fence, cached) in any::<(bool, bool, bool)>(),
        replies in proptest::collection::vec(any_reply(), 20..120),
    ) {
        let order = FenceOrder {
            steady,
            re_fence,
            cached,
            shown: replies.first().map(|r| r.continuity.clone()),
            ..order(class)
        };
        let mut fence = Fence::new(order.clone());
        let mut book = Book::default();
        let mut now = Mono::from_ms(1_000_000);
        let mut step = fence.next(now, FenceEvent::Start);
        for reply in &replies {
            judge(&step, now, &order, &book);
            now = now + Span::from_ms(reply.passes);
            if let Step::Wait { until } = &step {
                now = now.max(*until);
            }
            if let Some(kind) = reply.note {
                let note = note_of(kind, now, reply);
                if let Note::Heard(at) = &note {
                    book.heard = book.heard.max(Some(*at));
                }
                fence.note(now, note);
            }
            if reply.misfit && !matches!(step, Step::Ended(_)) {
                let misfit = match &step {
                    Step::Wait { .. } => FenceEvent::TooLate,
                    Step::SendForceOff { .. } => FenceEvent::Deleted,
                    Step::LastLook | Step::NewSession => FenceEvent::Answered(reply.answer.clone()),
                    Step::Commit(_) | Step::Identify(_) => FenceEvent::Opened(Ok(())),
                    Step::ReadPower(_) | Step::DeleteSession { .. } => FenceEvent::Committed(Ok(Outcome::Done)),
                    Step::Ended(_) => FenceEvent::Woke,
                };
                prop_assert!(matches!(fence.next(now, misfit), Step::Ended(_)));
                break;
            }
            let event = reply_to(&step, reply, now, &mut book);
            let was_over = matches!(step, Step::Ended(_));
            step = fence.next(now, event);
            prop_assert!(!was_over || matches!(step, Step::Ended(_)), "over is over");
            prop_assert!(!fence.waiting_for().is_empty());
        }
    }
}
