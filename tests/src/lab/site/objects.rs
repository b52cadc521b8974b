//! What an operator writes for a site: the BMCs' log-in, a MachineBinding for each machine, and the lab's policy.

use std::net::Ipv4Addr;

use serde_json::{Value, json};

use crate::{
    lab::{Plan, plan::MachinePlan},
    oracles::record::Limits,
};

/// The Secret with the log-in of all BMCs.
const SECRET: &str = "bmc";
/// The log-in.
pub const USERNAME: &str = "coroner";
/// As above. No secret: the BMCs are the lab's own.
pub const PASSWORD: &str = "lab-Pw-2f8c1d";

/// The Secret and the bindings.
#[must_use]
pub fn bindings(plan: &Plan, ca: &str) -> Vec<Value> {
    let secret = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": SECRET, "namespace": "coroner" },
        "stringData": { "username": USERNAME, "password": PASSWORD },
    });
    std::iter::once(secret)
        .chain(plan.machines.iter().map(|machine| binding(machine, machine.bmc_address, ca)))
        .collect()
}

/// The binding of a machine to the BMC at that address; the certificate is expected to bear the machine's own name,
/// unless another machine's is given.
#[must_use]
pub fn binding(machine: &MachinePlan, address: Ipv4Addr, ca: &str) -> Value {
    json!({
        "apiVersion": "coroner.dev/v1alpha1",
        "kind": "MachineBinding",
        "metadata": { "name": machine.name },
        "spec": {
            "redfish": { "address": address.to_string() },
            "credentials": { "secretName": SECRET },
            "tls": { "caBundle": ca, "serverName": machine.bmc_name },
            "network": "lab",
        },
    })
}

/// The policy of the lab: deaths follow each other faster than in a year of a real cluster, so the counts that would
/// stop a test are wider and the waits that only make a test longer are shorter. No span that safety rests on is here.
#[must_use]
pub fn policy() -> Value {
    json!({
        "apiVersion": "coroner.dev/v1alpha1",
        "kind": "FencingPolicy",
        "metadata": { "name": "lab" },
        "spec": {
            "mode": "Enforce",
            "brakes": { "budget": 50, "budgetRefill": "10s", "perDomain10m": 50, "deathsPerDay": 100 },
            "timings": { "stalled": "20s", "averted": "15s", "booting": "3m", "returnReady": "5s", "returnMargin": "3s" },
        },
    })
}

/// What [`policy`] differs in from the defaults, for people.
#[must_use]
pub fn policy_said() -> [&'static str; 2] {
    [
        "wider than the default: budget 50 (2), refilled each 10s (1m); 50 per rack in 10m (2); 50 deaths a day and more (3)",
        "shorter than the default: stalled 20s (3m), averted 15s (1m), booting 3m (20m), returnReady 5s (30s), returnMargin 3s (10s)",
    ]
}

/// What the policy allows, as an oracle sees it: the brakes that the lab leaves at their defaults.
#[must_use]
pub fn limits(machines: usize) -> Limits {
    Limits { floor: machines.saturating_sub(1) / 2, in_flight: 1, per_domain: 1 }
}

/// An operator, as RBAC knows them.
#[must_use]
pub fn operator(name: &str) -> Vec<Value> {
    vec![
        json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": { "name": name, "namespace": "default" },
        }),
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": { "name": format!("lab-{name}") },
            "roleRef": {
                "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "coroner-operator",
            },
            "subjects": [{ "kind": "ServiceAccount", "name": name, "namespace": "default" }],
        }),
    ]
}
