//! Every field that is refused, by name and value; and that what ships is accepted.

use std::collections::BTreeMap;

use coroner_shared::slice::Timings;
use coroner_shared::time::Span;

use crate::policy::{
    AfterRelease, Binding, Brakes, LifeTimings, Mode, Policy, Quirk, ReleaseStrategy, Rules,
};

fn good() -> Policy {
    Policy {
        name: "p".to_owned(),
        hash: "h".to_owned(),
        node_selector: BTreeMap::new(),
        mode: Mode::Enforce,
        rules: Rules::BALANCED,
        brakes: Brakes::DEFAULT,
        timings: LifeTimings::DEFAULT,
        release: ReleaseStrategy::Expedite,
        after_release: AfterRelease::PowerOn,
        power_poll: Span::from_secs(30),
        paused: false,
        unusable: None,
    }
}

#[test]
fn the_profiles_and_defaults_that_ship_are_accepted() {
    for rules in [Rules::FAST, Rules::BALANCED, Rules::CONSERVATIVE] {
        assert_eq!(Policy { rules, ..good() }.check(), vec![]);
    }
    assert_eq!(Policy { power_poll: Span::ZERO, ..good() }.check(), vec![]);
    let explicit = Brakes {
        in_flight: Some(1),
        budget: Some(1),
        floor: Some(1),
        storm_members: Some(1),
        ..Brakes::DEFAULT
    };
    assert_eq!(Policy { brakes: explicit, ..good() }.check(), vec![]);
}

#[test]
fn each_value_that_cannot_be_meant_is_refused_by_its_field() {
    let beacons = |f: fn(&mut Timings)| {
        let mut policy = good();
        f(&mut policy.rules.beacons);
        policy
    };
    let rules = |f: fn(&mut Rules)| {
        let mut policy = good();
        f(&mut policy.rules);
        policy
    };
    let brakes = |f: fn(&mut Brakes)| {
        let mut policy = good();
        f(&mut policy.brakes);
        policy
    };
    let timings = |f: fn(&mut LifeTimings)| {
        let mut policy = good();
        f(&mut policy.timings);
        policy
    };
    let ms = Span::from_ms;
    let table: Vec<(&str, Policy)> = vec![
        ("metadata.name", Policy { name: String::new(), ..good() }),
        ("hash", Policy { hash: String::new(), ..good() }),
        (
            "spec.nodeSelector",
            Policy { node_selector: BTreeMap::from([(String::new(), "x".to_owned())]), ..good() },
        ),
        ("spec.overrides.beacon", beacons(|b| b.beacon = Span::ZERO)),
        ("spec.overrides.status", beacons(|b| b.status = Span::ZERO)),
        ("spec.overrides.suspect", beacons(|b| b.suspect = Span::from_ms(999))),
        ("spec.overrides.pathProbe", beacons(|b| b.path_probe = Span::from_mins(6))),
        ("spec.overrides.snapshot", beacons(|b| b.snapshot = Span::ZERO)),
        ("spec.overrides.silentBmcOn", rules(|r| r.silent_bmc_on = Span::from_ms(4999))),
        ("spec.overrides.correlatedHold", rules(|r| r.correlated_hold = Span::ZERO)),
        ("spec.overrides.bmcSilent", rules(|r| r.bmc_silent = Span::ZERO)),
        ("spec.overrides.heard", rules(|r| r.heard = Span::from_ms(1249))),
        ("spec.overrides.notSeenYet", rules(|r| r.not_seen_yet = Span::ZERO)),
        ("spec.overrides.goodbye", rules(|r| r.goodbye = Span::MAX)),
        ("spec.overrides.agentRestart", rules(|r| r.agent_restart = Span::ZERO)),
        ("spec.brakes.inFlight", brakes(|b| b.in_flight = Some(0))),
        ("spec.brakes.perDomain", brakes(|b| b.per_domain = 0)),
        ("spec.brakes.perDomain10m", brakes(|b| b.per_domain_10m = 0)),
        ("spec.brakes.budget", brakes(|b| b.budget = Some(0))),
        ("spec.brakes.budgetRefill", brakes(|b| b.budget_refill = Span::ZERO)),
        ("spec.brakes.floor", brakes(|b| b.floor = Some(u32::MAX))),
        ("spec.brakes.pace", brakes(|b| b.pace = Span::ZERO)),
        ("spec.brakes.stormPace", brakes(|b| b.storm_pace = Span::from_ms(999))),
        ("spec.brakes.stormMembers", brakes(|b| b.storm_members = Some(0))),
        ("spec.brakes.stormDomains", brakes(|b| b.storm_domains = 0)),
        ("spec.brakes.deathsPerDay", brakes(|b| b.deaths_per_day = 1)),
        ("spec.timings.stalled", timings(|t| t.stalled = Span::ZERO)),
        ("spec.timings.averted", timings(|t| t.averted = Span::ZERO)),
        ("spec.timings.booting", timings(|t| t.booting = Span::MAX)),
        ("spec.timings.returnReady", timings(|t| t.return_ready = Span::ZERO)),
        ("spec.timings.returnMargin", timings(|t| t.return_margin = Span::ZERO)),
        ("spec.powerPoll", Policy { power_poll: ms(500), ..good() }),
        ("spec.powerPoll", Policy { power_poll: Span::from_secs(36), ..good() }),
    ];
    for (field, policy) in table {
        let errors = policy.check();
        assert!(errors.iter().any(|e| e.field == field), "{field}: {errors:?}");
        for error in &errors {
            assert!(!error.value.is_empty() && error.right.contains("must"), "{error}");
        }
    }
}

#[test]
fn one_wrong_time_does_not_hide_another() {
    let mut policy = good();
    policy.rules.silent_bmc_on = Span::from_secs(1);
    policy.brakes.pace = Span::ZERO;
    let fields: Vec<_> = policy.check().into_iter().map(|e| e.field).collect();
    assert_eq!(fields, ["spec.overrides.silentBmcOn", "spec.brakes.pace"]);
}

#[test]
fn a_binding_names_its_version_and_each_quirk_once() {
    let binding = |hash: &str, quirks: Vec<Quirk>| Binding {
        hash: hash.to_owned(),
        network: "bmc".to_owned(),
        quirks,
        pin: None,
        disabled: None,
    };
    assert_eq!(binding("h", vec![Quirk::Cached, Quirk::FewSessions]).check(), vec![]);
    assert_eq!(binding("", vec![]).check().len(), 1);
    assert_eq!(binding("h", vec![Quirk::Cached, Quirk::Cached]).check().len(), 1);
}
