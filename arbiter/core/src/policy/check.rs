//! Refuses a policy or binding that cannot be meant: zero and absurd values, and times that contradict each other.
//! Checked as a set, each error naming the field, its value, and what would be right.

use std::fmt::Display;

use coroner_shared::slice::Timings;
use coroner_shared::time::Span;
use thiserror::Error;

use super::{Binding, Brakes, LifeTimings, Policy, Rules};
use crate::steady::GAP_MAX;

/// No duration of a policy is longer.
const DAY: Span = Span::from_mins(24 * 60);
/// No count of a policy is larger: the largest cluster that Kubernetes supports is smaller.
const COUNT_MAX: u32 = 100_000;
/// Kubernetes object names and label parts.
const NAME_MAX: usize = 253;

/// What is wrong with one field.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{field} is {value}: {right}")]
pub struct FieldError {
    /// As in the resource, with dots.
    pub field: &'static str,
    /// The value as given.
    pub value: String,
    /// What would be right, and why.
    pub right: String,
}

/// Collects what is wrong.
#[derive(Default)]
struct Wrong(Vec<FieldError>);

impl Wrong {
    fn unless(&mut self, good: bool, field: &'static str, value: impl Display, right: impl Display) {
        if !good {
            let value =
                Some(value.to_string()).filter(|v| !v.is_empty()).unwrap_or_else(|| "empty".to_owned());
            self.0.push(FieldError { field, value, right: right.to_string() });
        }
    }

    /// A duration within bounds, both included.
    fn span(&mut self, field: &'static str, value: Span, least: Span, most: Span) {
        let good = (least..=most).contains(&value);
        self.unless(good, field, value, format_args!("must be from {least} to {most}"));
    }

    /// A count from `least`.
    fn count(&mut self, field: &'static str, value: u32, least: u32, why: &str) {
        let good = (least..=COUNT_MAX).contains(&value);
        self.unless(good, field, value, format_args!("must be from {least} to {COUNT_MAX}; {why}"));
    }
}

impl Policy {
    /// Everything that is wrong with it; empty if it can be used.
    pub fn check(&self) -> Vec<FieldError> {
        let mut wrong = Wrong::default();
        let named = !self.name.is_empty() && self.name.len() <= NAME_MAX;
        wrong.unless(named, "metadata.name", &self.name, "must have 1 to 253 bytes");
        wrong.unless(!self.hash.is_empty(), "hash", &self.hash, "must be the SHA-256 of the spec");
        for (key, value) in &self.node_selector {
            let good = !key.is_empty() && key.len() + value.len() <= 2 * NAME_MAX;
            wrong.unless(
                good,
                "spec.nodeSelector",
                format_args!("{key}={value}"),
                "must be labels as Nodes carry them",
            );
        }
        check_beacons(&self.rules.beacons, &mut wrong);
        check_rules(&self.rules, &mut wrong);
        check_brakes(&self.brakes, &mut wrong);
        check_timings(&self.timings, &mut wrong);
        let polled =
            self.power_poll == Span::ZERO || (Span::from_secs(1)..=GAP_MAX).contains(&self.power_poll);
        wrong.unless(
            polled,
            "spec.powerPoll",
            self.power_poll,
            format_args!(
                "must be 0 (never in calm times) or from 1s to {GAP_MAX}, or no BMC would ever be steady"
            ),
        );
        wrong.0
    }
}

fn check_beacons(beacons: &Timings, wrong: &mut Wrong) {
    let Timings { beacon, status, suspect, path_probe, snapshot } = *beacons;
    wrong.span("spec.overrides.beacon", beacon, Span::from_ms(50), Span::from_secs(10));
    wrong.span("spec.overrides.status", status, Span::from_ms(100), Span::from_secs(10));
    wrong.unless(
        suspect >= beacon.times(4),
        "spec.overrides.suspect",
        suspect,
        format_args!(
            "must be at least 4 beacons ({}), so that single losses are no silence",
            beacon.times(4)
        ),
    );
    wrong.span("spec.overrides.suspect", suspect, Span::from_ms(200), Span::from_mins(1));
    wrong.span("spec.overrides.pathProbe", path_probe, Span::from_secs(1), Span::from_mins(5));
    wrong.span("spec.overrides.snapshot", snapshot, Span::from_secs(1), Span::from_mins(5));
}

fn check_rules(rules: &Rules, wrong: &mut Wrong) {
    let Rules {
        beacons,
        silent_bmc_on,
        correlated_hold,
        bmc_silent,
        heard,
        not_seen_yet,
        goodbye,
        agent_restart,
    } = *rules;
    let four = beacons.suspect.times(4);
    wrong.unless(
        silent_bmc_on >= four,
        "spec.overrides.silentBmcOn",
        silent_bmc_on,
        format_args!("must be at least 4 times the suspicion time ({four})"),
    );
    wrong.span("spec.overrides.silentBmcOn", silent_bmc_on, Span::from_secs(1), DAY);
    wrong.span("spec.overrides.correlatedHold", correlated_hold, Span::from_secs(1), DAY);
    wrong.span("spec.overrides.bmcSilent", bmc_silent, Span::from_secs(1), DAY);
    wrong.unless(
        heard >= beacons.suspect,
        "spec.overrides.heard",
        heard,
        format_args!("must be at least the suspicion time ({})", beacons.suspect),
    );
    wrong.span("spec.overrides.heard", heard, Span::from_secs(1), Span::from_mins(1));
    wrong.span("spec.overrides.notSeenYet", not_seen_yet, Span::from_secs(1), DAY);
    wrong.span("spec.overrides.goodbye", goodbye, Span::from_secs(1), DAY);
    wrong.span("spec.overrides.agentRestart", agent_restart, Span::from_secs(1), Span::from_mins(60));
}

fn check_brakes(brakes: &Brakes, wrong: &mut Wrong) {
    let Brakes {
        in_flight,
        per_domain,
        per_domain_10m,
        budget,
        budget_refill,
        floor,
        pace,
        storm_pace,
        storm_members,
        storm_domains,
        deaths_per_day,
    } = *brakes;
    let never = "to fence nothing, use mode: Observe";
    for (field, value) in [
        ("spec.brakes.inFlight", in_flight),
        ("spec.brakes.budget", budget),
        ("spec.brakes.floor", floor),
        ("spec.brakes.perDomain", Some(per_domain)),
    ] {
        if let Some(value) = value {
            wrong.count(field, value, 1, never);
        }
    }
    wrong.count("spec.brakes.perDomain10m", per_domain_10m, per_domain.max(1), "at least perDomain");
    wrong.span("spec.brakes.budgetRefill", budget_refill, Span::from_secs(1), DAY);
    wrong.span("spec.brakes.pace", pace, Span::from_ms(100), DAY);
    wrong.span("spec.brakes.stormPace", storm_pace, pace, DAY);
    if let Some(members) = storm_members {
        wrong.count("spec.brakes.stormMembers", members, 1, "one death is no storm");
    }
    wrong.count("spec.brakes.stormDomains", storm_domains, 1, "a storm is somewhere");
    wrong.count("spec.brakes.deathsPerDay", deaths_per_day, 2, "the first death is no repetition");
}

fn check_timings(timings: &LifeTimings, wrong: &mut Wrong) {
    let LifeTimings { stalled, averted, booting, return_ready, return_margin } = *timings;
    for (field, value) in [
        ("spec.timings.stalled", stalled),
        ("spec.timings.averted", averted),
        ("spec.timings.booting", booting),
        ("spec.timings.returnReady", return_ready),
        ("spec.timings.returnMargin", return_margin),
    ] {
        wrong.span(field, value, Span::from_secs(1), DAY);
    }
}

impl Binding {
    /// Everything that is wrong with it; empty if it can be used.
    pub fn check(&self) -> Vec<FieldError> {
        let mut wrong = Wrong::default();
        wrong.unless(!self.hash.is_empty(), "hash", &self.hash, "must be the SHA-256 of the spec");
        let named = self.network.len() <= NAME_MAX;
        wrong.unless(named, "spec.network", &self.network, "must have at most 253 bytes");
        let mut quirks = self.quirks.clone();
        quirks.sort_unstable();
        quirks.dedup();
        let once = quirks.len() == self.quirks.len();
        wrong.unless(once, "spec.quirks", format_args!("{:?}", self.quirks), "must name each quirk once");
        wrong.0
    }
}

#[cfg(test)]
mod tests;
