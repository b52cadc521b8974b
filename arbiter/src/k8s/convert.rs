//! From the resources as operators write them to the checked values of the core. Every wrong value is named with its
//! field, what was given and what would be right. A resource with one is not used, and does not vanish either: a policy
//! stands as Observe, so that its nodes are not left to another policy, and a binding keeps its pin and is disabled.

use std::collections::BTreeMap;

use coroner_arbiter_core::command::NodeFacts;
use coroner_arbiter_core::policy::{
    AfterRelease, Binding, Brakes, LifeTimings, Mode, Policy, Quirk, ReleaseStrategy, Rules,
};
use coroner_shared::id::{NodeName, NodeUid};
use coroner_shared::names::{DOMAIN_LABELS, EXCLUDE_LABEL};
use coroner_shared::time::Span;
use k8s_openapi::api::core::v1::Node;
use sha2::{Digest, Sha256};

use super::patches::{boot_of, tainted_by_us};
use super::types::{
    AfterReleaseName, FencingPolicy, FencingPolicySpec, MachineBinding, MachineBindingSpec, ModeName,
    ProfileName, QuirkName, ReleaseName,
};

/// One wrong value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Path of the field below `spec`.
    pub field: String,
    /// What was given and what would be right.
    pub why: String,
}

impl std::fmt::Display for Wrong {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "spec.{}: {}", self.field, self.why)
    }
}

/// Reads a policy.
///
/// # Errors
/// All wrong values at once.
pub fn policy(resource: &FencingPolicy) -> Result<Policy, Vec<Wrong>> {
    let spec = &resource.spec;
    let mut wrong = Vec::new();
    let profile = match spec.profile {
        ProfileName::Fast => Rules::FAST,
        ProfileName::Balanced => Rules::BALANCED,
        ProfileName::Conservative => Rules::CONSERVATIVE,
    };
    let rules = Rules {
        silent_bmc_on: span(
            &mut wrong,
            "overrides.silentBmcOn",
            spec.overrides.silent_bmc_on.as_deref(),
            profile.silent_bmc_on,
        ),
        goodbye: span(&mut wrong, "overrides.goodbye", spec.overrides.goodbye.as_deref(), profile.goodbye),
        ..profile
    };
    let policy = Policy {
        name: resource.metadata.name.clone().unwrap_or_default(),
        hash: hash(spec),
        node_selector: spec.node_selector.clone(),
        mode: match spec.mode {
            ModeName::Observe => Mode::Observe,
            ModeName::Enforce => Mode::Enforce,
        },
        rules,
        brakes: brakes(&mut wrong, spec),
        timings: timings(&mut wrong, spec),
        release: match spec.release {
            ReleaseName::Expedite => ReleaseStrategy::Expedite,
            ReleaseName::Taint => ReleaseStrategy::Taint,
        },
        after_release: match spec.after_release {
            AfterReleaseName::PowerOn => AfterRelease::PowerOn,
            AfterReleaseName::StayOff => AfterRelease::StayOff,
        },
        power_poll: span(&mut wrong, "powerPoll", spec.power_poll.as_deref(), Span::from_secs(30)),
        paused: spec.paused,
        unusable: None,
    };
    // What only shows when all values stand together; those that could not be read at all are named already.
    if wrong.is_empty() {
        wrong.extend(policy.check().into_iter().map(|error| Wrong {
            field: error.field.strip_prefix("spec.").unwrap_or(error.field).to_owned(),
            why: format!("is {}: {}", error.value, error.right),
        }));
    }
    if wrong.is_empty() { Ok(policy) } else { Err(wrong) }
}

/// What a policy with wrong values stands for: its nodes are observed, and no other policy speaks for them.
pub fn unusable(resource: &FencingPolicy, wrong: &[Wrong]) -> Policy {
    Policy {
        name: resource.metadata.name.clone().unwrap_or_default(),
        hash: hash(&resource.spec),
        node_selector: resource.spec.node_selector.clone(),
        mode: Mode::Observe,
        rules: Rules::BALANCED,
        brakes: Brakes::DEFAULT,
        timings: LifeTimings::DEFAULT,
        release: ReleaseStrategy::default(),
        after_release: AfterRelease::StayOff,
        power_poll: Span::from_secs(30),
        paused: true,
        unusable: Some(all(wrong)),
    }
}

/// All wrong values in one line.
pub fn all(wrong: &[Wrong]) -> String {
    wrong.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

fn brakes(wrong: &mut Vec<Wrong>, spec: &FencingPolicySpec) -> Brakes {
    let given = &spec.brakes;
    let default = Brakes::DEFAULT;
    Brakes {
        in_flight: given.in_flight,
        per_domain: given.per_domain.unwrap_or(default.per_domain),
        per_domain_10m: given.per_domain_10m.unwrap_or(default.per_domain_10m),
        budget: given.budget,
        budget_refill: span(
            wrong,
            "brakes.budgetRefill",
            given.budget_refill.as_deref(),
            default.budget_refill,
        ),
        floor: given.floor,
        pace: span(wrong, "brakes.pace", given.pace.as_deref(), default.pace),
        storm_pace: span(wrong, "brakes.stormPace", given.storm_pace.as_deref(), default.storm_pace),
        storm_members: given.storm_members,
        storm_domains: given.storm_domains.unwrap_or(default.storm_domains),
        deaths_per_day: given.deaths_per_day.unwrap_or(default.deaths_per_day),
    }
}

fn timings(wrong: &mut Vec<Wrong>, spec: &FencingPolicySpec) -> LifeTimings {
    let given = &spec.timings;
    let default = LifeTimings::DEFAULT;
    LifeTimings {
        stalled: span(wrong, "timings.stalled", given.stalled.as_deref(), default.stalled),
        averted: span(wrong, "timings.averted", given.averted.as_deref(), default.averted),
        booting: span(wrong, "timings.booting", given.booting.as_deref(), default.booting),
        return_ready: span(wrong, "timings.returnReady", given.return_ready.as_deref(), default.return_ready),
        return_margin: span(
            wrong,
            "timings.returnMargin",
            given.return_margin.as_deref(),
            default.return_margin,
        ),
    }
}

/// Reads a time such as `250ms`, `8s` or `2m`.
fn span(wrong: &mut Vec<Wrong>, field: &str, text: Option<&str>, default: Span) -> Span {
    let Some(text) = text else { return default };
    let parsed = humantime::parse_duration(text).ok().and_then(|d| u64::try_from(d.as_millis()).ok());
    match parsed {
        Some(ms) if ms <= 7 * 24 * 3_600_000 => Span::from_ms(ms),
        Some(_) | None => {
            wrong.push(Wrong {
                field: field.to_owned(),
                why: format!("{text:?} is no time of at most 7 days such as 250ms, 8s or 2m"),
            });
            default
        }
    }
}

/// Reads a binding; its pin is the log's, not the resource's. Wrong values besides are named: the log is told of the
/// binding all the same, and whoever opens it refuses, so that it is disabled and its pin is not forgotten.
///
/// # Errors
/// Its name is no node's: there is nothing to be disabled.
pub fn binding(resource: &MachineBinding) -> Result<(NodeName, Binding, Vec<Wrong>), Vec<Wrong>> {
    let spec = &resource.spec;
    let mut wrong = tls_wrong(spec);
    let name = resource.metadata.name.clone().unwrap_or_default();
    let node = match NodeName::new(name) {
        Ok(node) => node,
        Err(error) => {
            wrong.push(Wrong { field: "metadata.name".to_owned(), why: error.to_string() });
            return Err(wrong);
        }
    };
    if spec.redfish.address.starts_with("http://") {
        wrong.push(Wrong {
            field: "redfish.address".to_owned(),
            why: format!("{:?} is not encrypted; only https is spoken", spec.redfish.address),
        });
    }
    let mut binding = Binding {
        hash: hash(spec),
        network: spec.network.clone(),
        quirks: spec
            .quirks
            .iter()
            .filter_map(|quirk| match quirk {
                QuirkName::Cached => Some(Quirk::Cached),
                QuirkName::FewSessions => Some(Quirk::FewSessions),
                // The driver's own.
                QuirkName::BasicOnly
                | QuirkName::NoBasic
                | QuirkName::Tls12Only
                | QuirkName::SessionsSurviveRestart => None,
            })
            .collect(),
        pin: None,
        disabled: None,
    };
    // One that is named twice is meant once.
    binding.quirks.sort_unstable();
    binding.quirks.dedup();
    Ok((node, binding, wrong))
}

fn tls_wrong(spec: &MachineBindingSpec) -> Vec<Wrong> {
    let tls = &spec.tls;
    let mut wrong = Vec::new();
    let mut say =
        |field: &str, why: &str| wrong.push(Wrong { field: format!("tls.{field}"), why: why.to_owned() });
    match (&tls.ca_bundle, &tls.sha256_pin) {
        (None, None) => {
            say("caBundle", "give a CA bundle, or sha256Pin with `of`; a BMC is never talked to unverified");
        }
        (Some(_), Some(_)) => say("sha256Pin", "give a CA bundle or a pin, not both"),
        (None, Some(_)) if tls.of.is_none() => {
            say("of", "say whether sha256Pin is of the `certificate` or of its `key`");
        }
        (None, Some(_)) | (Some(_), None) => {}
    }
    wrong
}

/// What the core needs to know of a Node; `None` for one whose name or uid cannot be.
pub fn facts(node: &Node) -> Option<NodeFacts> {
    let name = NodeName::new(node.metadata.name.clone()?).ok()?;
    let uid = NodeUid::new(node.metadata.uid.clone()?).ok()?;
    let labels = node.metadata.labels.clone().unwrap_or_default();
    let status = node.status.as_ref();
    let info = status.and_then(|s| s.node_info.as_ref());
    let ready = status
        .and_then(|s| s.conditions.as_ref())
        .is_some_and(|c| c.iter().any(|c| c.type_ == "Ready" && c.status == "True"));
    // Nothing may depend on a distribution's labels; these two are Kubernetes' own.
    let control_plane = ["node-role.kubernetes.io/control-plane", "node-role.kubernetes.io/master"]
        .iter()
        .any(|l| labels.contains_key(*l));
    Some(NodeFacts {
        node: name,
        uid,
        system_uuid: info.map(|i| i.system_uuid.clone()).unwrap_or_default(),
        boot: boot_of(node).parse().ok(),
        ready,
        labels: bounded(labels),
        control_plane,
        etcd_voter: control_plane,
        tainted_by_us: tainted_by_us(node),
    })
}

/// Labels that may select or place a node, cut at 32 KiB so that an entry of the log stays small. The opt-out and the
/// failure domains are never cut off: without them more could be done than is allowed.
fn bounded(labels: BTreeMap<String, String>) -> BTreeMap<String, String> {
    let must = |key: &str| key == EXCLUDE_LABEL || DOMAIN_LABELS.contains(&key);
    let (first, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
        labels.into_iter().partition(|(key, _)| must(key));
    let mut room = 32 * 1024_usize;
    let fitting = others.into_iter().filter(|(key, value)| {
        let bytes = key.len() + value.len();
        let fits = bytes <= room;
        room -= if fits { bytes } else { 0 };
        fits
    });
    first.into_iter().chain(fitting).collect()
}

/// SHA-256 of a spec, hex.
pub fn hash(spec: &impl serde::Serialize) -> String {
    let text = serde_json::to_vec(spec).unwrap_or_default();
    coroner_shared::hex::Hex(&Sha256::digest(text)).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn policy_of(spec: &serde_json::Value) -> Result<Policy, Vec<Wrong>> {
        let resource = json!({"apiVersion": "coroner.dev/v1alpha1", "kind": "FencingPolicy", "metadata": {"name": "p"}, "spec": spec});
        policy(&serde_json::from_value(resource).unwrap())
    }

    fn wrong_of(spec: &serde_json::Value) -> Vec<Wrong> {
        let resource = json!({"apiVersion": "coroner.dev/v1alpha1", "kind": "MachineBinding", "metadata": {"name": "n1"}, "spec": spec});
        let (node, binding, wrong) = binding(&serde_json::from_value(resource).unwrap()).unwrap();
        assert_eq!((node.as_str(), binding.check()), ("n1", vec![]), "it stands all the same");
        wrong
    }

    #[test]
    fn the_opt_out_is_seen_however_many_labels_there_are() {
        let mut labels: BTreeMap<String, String> =
            (0..2000).map(|n| (format!("a{n:05}"), "x".repeat(60))).collect();
        labels.insert(EXCLUDE_LABEL.to_owned(), "true".to_owned());
        labels.insert("topology.kubernetes.io/zone".to_owned(), "z".to_owned());
        let kept = bounded(labels);
        assert!(kept.contains_key(EXCLUDE_LABEL) && kept.contains_key("topology.kubernetes.io/zone"));
        let bytes: usize = kept.iter().map(|(key, value)| key.len() + value.len()).sum();
        assert!(bytes < 33 * 1024, "{bytes}");
    }

    #[test]
    fn an_empty_policy_observes_with_the_defaults() {
        let policy = policy_of(&json!({})).unwrap();
        assert_eq!(policy.mode, Mode::Observe);
        assert_eq!(
            (policy.rules, policy.brakes, policy.timings),
            (Rules::BALANCED, Brakes::DEFAULT, LifeTimings::DEFAULT)
        );
        assert_eq!(policy.power_poll, Span::from_secs(30));
    }

    #[test]
    fn every_wrong_time_is_named() {
        let wrong = policy_of(
            &json!({"powerPoll": "soon", "overrides": {"silentBmcOn": "-3s"}, "brakes": {"pace": "400d"}}),
        )
        .unwrap_err();
        let fields: Vec<&str> = wrong.iter().map(|w| w.field.as_str()).collect();
        assert_eq!(fields, ["overrides.silentBmcOn", "brakes.pace", "powerPoll"]);
        assert!(wrong[0].to_string().contains("-3s"));
    }

    #[test]
    fn a_binding_trusts_a_bundle_or_a_pin_and_never_nothing() {
        let with = |tls: serde_json::Value| {
            wrong_of(
                &json!({"redfish": {"address": "10.0.0.1"}, "credentials": {"secretName": "s"}, "tls": tls, "quirks": ["cached", "cached"]}),
            )
        };
        assert_eq!(with(json!({"caBundle": "x"})), []);
        assert_eq!(with(json!({"sha256Pin": "x", "of": "key"})), []);
        assert_eq!(with(json!({}))[0].field, "tls.caBundle");
        assert_eq!(with(json!({"sha256Pin": "x"}))[0].field, "tls.of");
        assert_eq!(with(json!({"sha256Pin": "x", "of": "key", "caBundle": "y"}))[0].field, "tls.sha256Pin");
        let plain = wrong_of(
            &json!({"redfish": {"address": "http://b"}, "credentials": {"secretName": "s"}, "tls": {"caBundle": "x"}}),
        );
        assert_eq!(plain[0].field, "redfish.address");
    }

    #[test]
    fn a_policy_with_values_that_cannot_be_meant_observes_its_nodes_and_says_why() {
        let spec = json!({
            "nodeSelector": {"a": "b"}, "mode": "Enforce",
            // Each can be read; together they cannot be meant.
            "overrides": {"silentBmcOn": "1s"}, "powerPoll": "2m",
        });
        let resource = json!({"apiVersion": "coroner.dev/v1alpha1", "kind": "FencingPolicy", "metadata": {"name": "p"}, "spec": spec});
        let resource: FencingPolicy = serde_json::from_value(resource).unwrap();
        let wrong = policy(&resource).unwrap_err();
        let fields: Vec<&str> = wrong.iter().map(|w| w.field.as_str()).collect();
        assert_eq!(fields, ["overrides.silentBmcOn", "powerPoll"]);
        let stands = unusable(&resource, &wrong);
        assert_eq!(stands.check(), vec![], "the log takes it");
        assert_eq!((stands.mode, stands.paused), (Mode::Observe, true));
        assert_eq!(stands.node_selector, resource.spec.node_selector);
        assert!(stands.unusable.unwrap().contains("spec.powerPoll: is "));
    }

    #[test]
    fn a_spec_that_differs_has_another_hash() {
        let one = policy_of(&json!({})).unwrap().hash;
        assert_eq!(one, policy_of(&json!({})).unwrap().hash);
        assert_ne!(one, policy_of(&json!({"paused": true})).unwrap().hash);
    }
}
