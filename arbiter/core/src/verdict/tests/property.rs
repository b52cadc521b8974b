//! Over any view: an answer, and never Dead without what the rule asks for. The preconditions are spelt out anew here.

use coroner_shared::beacon::{Answer, GoodbyeKind, Path, ProbeOutcome, SelfDoubt};
use coroner_shared::time::Span;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::phase::EvidenceClass;
use crate::policy::Rules;
use crate::verdict::verdict;

fn span() -> impl Strategy<Value = Span> {
    prop_oneof![
        4 => (0..40_000_u64).prop_map(ms),
        4 => select(vec![0, 99, 100, 1249, 1250, 2999, 3000, 4999, 5000, 7999, 8000, 10_999, 11_000, 29_999, 30_000]).prop_map(ms),
        1 => (0..2_000_000_u64).prop_map(ms),
        1 => Just(Span::MAX),
    ]
}

fn outcomes() -> impl Strategy<Value = Vec<ProbeOutcome>> {
    let answer =
        select(vec![Answer::Answered, Answer::Accepted, Answer::Reset, Answer::Nothing, Answer::NotSent]);
    let path = select(vec![Path::Agent, Path::Kubelet, Path::Ping]);
    let one = (path, prop_oneof![Just(Answer::Nothing), answer], span(), prop::option::of(span())).prop_map(
        |(path, answer, asked_ago, worked_ago)| ProbeOutcome { path, answer, asked_ago, worked_ago },
    );
    prop::collection::vec(one, 0..3)
}

fn observers() -> impl Strategy<Value = Vec<ObserverView>> {
    let standing = select(vec![
        Standing::Eligible,
        Standing::Eligible,
        Standing::Eligible,
        Standing::Eligible,
        Standing::Unheard,
        Standing::Doubts(SelfDoubt::Pressure),
        Standing::NotAlive,
    ]);
    let said = prop_oneof![
        5 => span().prop_map(|silent| Said::Silent { silent }),
        1 => span().prop_map(|ago| Said::Hears { ago }),
        1 => Just(Said::Nothing),
    ];
    let one = (0..5_usize, standing, said, outcomes());
    prop::collection::vec(one, 0..9).prop_map(|all| {
        let of =
            |(i, (domain, standing, said, probes)): (usize, (usize, Standing, Said, Vec<ProbeOutcome>))| {
                ObserverView { standing, said, probes, ..observer(i, &format!("r{domain}")) }
            };
        all.into_iter().enumerate().map(of).collect()
    })
}

fn bmcs() -> impl Strategy<Value = Vec<BmcView>> {
    let read = prop_oneof![
        8 => (1..6_u32, span()).prop_map(|(reads, over)| BmcRead::Off { reads, over }),
        2 => Just(BmcRead::On),
        1 => span().prop_map(|since| BmcRead::Silent { since }),
        1 => span().prop_map(|since| BmcRead::Unclear { what: "?".into(), since }),
        1 => Just(BmcRead::NotRead),
    ]
    .boxed();
    let one = (read.clone(), any::<bool>(), span());
    let mixed = prop::collection::vec(one, 0..4);
    // Mostly the replicas agree.
    let agreed = (read, any::<bool>(), 0..6000_u64, 1..4_usize)
        .prop_map(|(read, steady, age, by)| vec![(read, steady, ms(age)); by]);
    prop_oneof![mixed, agreed].prop_map(|all| {
        let of = |(i, (read, steady, age)): (usize, (BmcRead, bool, Span))| BmcView {
            steady,
            age,
            ..bmc(i as u64 + 1, read)
        };
        all.into_iter().enumerate().map(of).collect()
    })
}

fn fleet() -> impl Strategy<Value = FleetView> {
    let counts = prop::array::uniform5(0..30_u32);
    (counts, prop::bool::weighted(0.9), prop::option::weighted(0.1, span()), 0..5_u32).prop_map(
        |(
            [others_alive, unexplained, partial, domain_members, domain_silent],
            quorum,
            correlated_for,
            calm,
        )| {
            let calm = if calm == 0 { 1 } else { 0 };
            FleetView {
                others_alive,
                unexplained: unexplained * calm,
                partial: partial * calm,
                quorum,
                domain_members,
                domain_silent: domain_silent * calm,
                correlated_for,
                storm_members: 0,
                storm_domains: 0,
            }
        },
    )
}

fn view() -> impl Strategy<Value = View> {
    let lease = (prop::bool::weighted(0.9), prop::option::of(span()), span(), span());
    let goodbye = prop::option::weighted(
        0.1,
        (select(vec![GoodbyeKind::AgentRestart, GoodbyeKind::Reboot, GoodbyeKind::Shutdown]), span())
            .prop_map(|(kind, ago)| Planned { kind, ago, seq: 1 }),
    );
    let probes = prop::collection::vec((span(), outcomes(), prop::bool::weighted(0.8)), 0..4);
    let who = (prop::bool::weighted(0.05), 0..25_u32, prop::option::weighted(0.9, span()), span());
    let parts = (
        sometimes(who),
        sometimes(observers()),
        sometimes(probes),
        sometimes(bmcs()),
        sometimes(lease),
        sometimes(fleet()),
        goodbye,
        prop::bool::weighted(0.05),
    );
    parts.prop_map(|(who, observers, probes, bmc, lease, fleet, goodbye, duplicate)| {
        let mut view = View { goodbye, duplicate, ..dead_host() };
        if let Some((own_host, members, sign, group_age)) = who {
            (view.own_host, view.members, view.group_age) = (own_host, members, group_age);
            view.last_sign = sign.map(|age| Sign { age, held_by: "r".into(), beacon: None });
        }
        let of = |(i, (asked_ago, outcomes, answered)): (usize, (Span, Vec<ProbeOutcome>, bool))| ProbeView {
            asked_ago,
            outcomes,
            answered,
            ..prober(i)
        };
        view.observers = observers.unwrap_or(view.observers);
        view.probes = probes.map_or(view.probes, |all| all.into_iter().enumerate().map(of).collect());
        view.bmc = bmc.unwrap_or(view.bmc);
        view.fleet = fleet.unwrap_or(view.fleet);
        if let Some((readable, changed_ago, watched_for, interval)) = lease {
            view.lease = LeaseView { readable, changed_ago, watched_for, interval };
        }
        view
    })
}

/// A part is changed in some views only, so that many are near to Dead.
fn sometimes<T: std::fmt::Debug>(part: impl Strategy<Value = T>) -> impl Strategy<Value = Option<T>> {
    prop::option::weighted(0.35, part)
}

/// What both classes need, whatever else.
fn common(view: &View, age: Span) -> Result<(), TestCaseError> {
    prop_assert!(!view.own_host && !view.duplicate && view.members >= 3 && view.fleet.quorum);
    prop_assert!(age >= ms(1250) || view.last_sign.is_none());
    let fleet = &view.fleet;
    prop_assert!(fleet.unexplained <= 1.max(fleet.others_alive / 10));
    // Nothing that was asked for lately and after the failure date answered.
    let of_observers = view.observers.iter().flat_map(|o| &o.probes);
    for outcome in view.probes.iter().flat_map(|p| &p.outcomes).chain(of_observers) {
        let life = !matches!(outcome.answer, Answer::Nothing | Answer::NotSent);
        prop_assert!(!(life && outcome.asked_ago < age && outcome.asked_ago <= secs(30)), "{outcome:?}");
    }
    prop_assert!(view.probes.iter().any(|p| p.asked_ago < age), "somebody was asked");
    // The kubelet did not renew after the failure date, or has missed a renewal since.
    let missed = |ago: Span| ago >= view.lease.interval + secs(1);
    prop_assert!(view.lease.changed_ago.is_none_or(|ago| ago >= age || missed(ago)));
    Ok(())
}

fn met_rule_1(view: &View) -> bool {
    let eligible: Vec<_> = view.observers.iter().filter(|o| o.standing == Standing::Eligible).collect();
    let silent: Vec<_> =
        eligible.iter().filter(|o| matches!(o.said, Said::Silent { silent } if silent >= ms(1250))).collect();
    let enough = silent.len() * 4 >= view.observers.len() * 3 && !silent.is_empty();
    let other = |o: &&&ObserverView| o.domain != view.domain;
    let available: std::collections::BTreeSet<_> = eligible.iter().filter(other).map(|o| &o.domain).collect();
    let from: std::collections::BTreeSet<_> =
        silent.iter().filter(|o| o.domain != view.domain).map(|o| &o.domain).collect();
    let spread = if available.is_empty() {
        silent.len() >= eligible.len().min(3)
    } else {
        from.len() >= available.len().min(3)
    };
    enough && spread
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1500))]

    #[test]
    fn every_view_has_an_answer_and_dead_has_its_preconditions(view in view()) {
        let rules = Rules::BALANCED;
        let answer = verdict(&view, &rules);
        prop_assert_eq!(&answer, &verdict(&view, &rules), "the same again");
        let age = view.last_sign.as_ref().map_or(view.group_age, |s| s.age);
        let fresh = |b: &&BmcView| b.age <= secs(5);
        let on = view.bmc.iter().filter(fresh).any(|b| b.read == BmcRead::On);
        let off = view.bmc.iter().filter(fresh).any(|b| matches!(b.read, BmcRead::Off { .. }));
        match answer {
            Verdict::Dead(EvidenceClass::FoundOff) => {
                common(&view, age)?;
                prop_assert!(off && !on);
                prop_assert!(met_rule_1(&view) || (age >= secs(3) && view.probes.iter().any(|p| p.answered)));
            }
            Verdict::Dead(EvidenceClass::HostSilentBmcOn) => {
                common(&view, age)?;
                prop_assert!(on && !off && met_rule_1(&view) && age >= secs(8) && view.lease.readable);
                prop_assert!(view.fleet.partial <= 2.max(view.fleet.others_alive / 10));
                prop_assert!(view.fleet.correlated_for.is_none());
                prop_assert!(view.fleet.domain_silent < view.fleet.domain_members.max(2));
            }
            Verdict::Dead(EvidenceClass::Ordered { .. }) => prop_assert!(false, "no view leads to an order"),
            Verdict::Held(_) => prop_assert!(age >= secs(8), "no hold before the deadline of E2"),
            Verdict::Pending(_) => {}
        }
    }

    #[test]
    fn a_veto_is_a_veto(mut view in view(), age in 0..1250_u64) {
        view.last_sign = Some(Sign { age: ms(age), held_by: "anybody".into(), beacon: None });
        let answer = verdict(&view, &Rules::BALANCED);
        prop_assert!(matches!(answer, Verdict::Pending(Pending::Heard | Pending::OwnHost)), "{answer:?}");
    }

    #[test]
    fn a_record_gives_the_same_verdict_after_it_was_written_and_read(view in view()) {
        let text = serde_json::to_string(&view).unwrap();
        let read: View = serde_json::from_str(&text).unwrap();
        prop_assert_eq!(verdict(&read, &Rules::BALANCED), verdict(&view, &Rules::BALANCED));
        prop_assert_eq!(read, view);
    }
}
#[test]
fn enough_of_these_views_are_dead_to_prove_something() {
    use proptest::strategy::ValueTree;
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let (mut found_off, mut silent, mut held, mut pending) = (0, 0, 0, 0);
    for _ in 0..1000 {
        match verdict(&view().new_tree(&mut runner).unwrap().current(), &Rules::BALANCED) {
            Verdict::Dead(EvidenceClass::FoundOff) => found_off += 1,
            Verdict::Dead(_) => silent += 1,
            Verdict::Held(_) => held += 1,
            Verdict::Pending(_) => pending += 1,
        }
    }
    let counts = (found_off, silent, held, pending);
    assert!(found_off >= 20 && silent >= 50 && held >= 100 && pending >= 100, "{counts:?}");
}
