//! Copies the log's truth to our resources, and gives pages.

use std::sync::Arc;
use std::time::Duration;

use coroner_arbiter_core::command::Command;
use coroner_arbiter_core::policy::Pin;
use coroner_arbiter_core::status;
use coroner_shared::id::{IncidentId, NodeName};
use coroner_shared::time::{Mono, Span};

use super::Tools;
use crate::clock;
use crate::k8s::types::{
    Condition, FencingPolicyStatus, IdentityStatus, IncidentSpec, IncidentStatus, MachineBindingStatus,
    ProofStatus, TimelineEntry,
};
use crate::replica::Published;
use crate::shown::{log_age, power_word};
use crate::telemetry::Reason;

/// After a write that failed; also how long a copy that is right stays untouched.
const AGAIN: Duration = Duration::from_secs(2);

/// Copies one incident, then waits until the job is another one (its version is in the job).
pub(super) async fn incident(tools: &Tools, id: &IncidentId) {
    loop {
        let published = tools.proposer.published();
        let Some((spec, copy)) = incident_copy(&published, id) else { return };
        match tools.publisher.incident(id, &spec, &copy).await {
            Ok(()) => return std::future::pending().await,
            Err(error) => {
                tracing::debug!(incident = %id, error = %crate::transport::chain(&error), "the Incident is not copied yet");
                tokio::time::sleep(AGAIN).await;
            }
        }
    }
}

fn incident_copy(published: &Published, id: &IncidentId) -> Option<(IncidentSpec, IncidentStatus)> {
    let incident = published.state.incidents.get(id)?;
    let summary = status::incident(&published.state, id)?;
    let now = clock::now();
    let wall = |at: Mono| clock::wall(log_age(published, at, now));
    let life = &incident.incarnation;
    let spec = IncidentSpec {
        node_name: incident.node.to_string(),
        node_uid: life.node.to_string(),
        machine_id: life.machine.to_string(),
        boot_id: life.boot.to_string(),
    };
    let proof = incident.proven_by.as_ref().map(|by| {
        let (kind, person) =
            by.split_once(" by ").map_or((by.as_str(), None), |(kind, who)| (kind, Some(who.to_owned())));
        ProofStatus { kind: kind.to_owned(), person }
    });
    let copy = IncidentStatus {
        phase: summary.phase,
        class: summary.class,
        held_reason: summary.held,
        observed: summary.observed,
        waiting_for: summary.waiting_for,
        decided_at: incident.decided.map(wall),
        proven_at: incident.proven.map(wall),
        tainted_at: incident.tainted.map(wall),
        released_at: incident.tainted.map(wall),
        closed_at: incident.closed.as_ref().map(|(at, _)| wall(*at)),
        ended: incident.closed.as_ref().map(|(_, how)| how.clone()),
        proof,
        evidence_digest: summary.evidence,
        timeline: incident
            .timeline
            .iter()
            .map(|m| TimelineEntry { at: wall(m.at), what: m.what.clone(), detail: m.detail.clone() })
            .collect(),
    };
    Some((spec, copy))
}

/// Copies what is known of a binding, again every minute while the job stands: ages move on.
pub(super) async fn binding(tools: &Tools, node: &NodeName, ready: &Result<(), String>, pin: Option<&Pin>) {
    loop {
        let status = binding_copy(tools, node, ready, pin);
        let wait = match tools.publisher.binding(node, &status).await {
            Ok(()) => Duration::from_secs(60),
            Err(error) => {
                tracing::debug!(%node, error = %crate::transport::chain(&error), "the binding's status is not copied yet");
                AGAIN
            }
        };
        tokio::time::sleep(wait).await;
    }
}

fn binding_copy(
    tools: &Tools,
    node: &NodeName,
    ready: &Result<(), String>,
    pin: Option<&Pin>,
) -> MachineBindingStatus {
    let now = clock::now();
    let published = tools.proposer.published();
    let entry = tools.bmcs.entry(node);
    let seen = entry.as_ref().map(|e| e.seen()).unwrap_or_default();
    let steady = entry
        .as_ref()
        .and_then(|e| e.with_track(|t| t.steady(now).then(|| t.answers_since(now)).flatten()).flatten());
    let wall = |at: Mono| clock::wall(now.since(at));
    let member = published.state.nodes.get(node).and_then(|n| n.member.as_ref());
    let machine = member.and_then(|m| m.machine.as_ref().ok());
    let verdict = match (&pin, &seen.identity) {
        (None, _) => "NotEnrolled".to_owned(),
        (Some(_), Some((text, _))) => {
            text.split_whitespace().next().unwrap_or("Unknown").trim_end_matches(':').to_owned()
        }
        (Some(_), None) => "Match".to_owned(),
    };
    let condition = |type_: &str, good: &Result<(), String>, yes: &str, no: &str| {
        let status = if good.is_ok() { "True" } else { "False" };
        Condition {
            type_: type_.to_owned(),
            status: status.to_owned(),
            reason: if good.is_ok() { yes } else { no }.to_owned(),
            message: good.as_ref().err().cloned().unwrap_or_default(),
            last_transition_time: tools.publisher.since(
                &format!("MachineBinding/{node}/{type_}"),
                status,
                clock::wall(Span::ZERO),
            ),
            observed_generation: None,
        }
    };
    let verified = match published.state.bindings.get(node).and_then(|b| b.disabled.clone()) {
        Some(why) => Err(why),
        None if pin.is_none() => Err("not enrolled yet".to_owned()),
        None => Ok(()),
    };
    MachineBindingStatus {
        identity: Some(IdentityStatus {
            verdict,
            node_uuid: machine.map(ToString::to_string),
            bmc_uuid: seen.uuid,
            transform: pin.map(|p| p.transform.to_string()),
            member: pin.map(|p| p.member.clone()),
        }),
        power: seen.power.as_ref().map(|(power, _)| power_word(power)),
        steady_since: steady.map(wall),
        last_verified: seen.identity.as_ref().map(|(_, at)| wall(*at)),
        conditions: vec![
            condition("FenceReady", ready, "Ready", "NotReady"),
            condition("Verified", &verified, "Match", "NotVerified"),
        ],
        observed_generation: None,
    }
}

/// Shows on a policy whether it is in force.
pub(super) async fn policy(tools: &Tools, name: &str, conflicts: &[String]) {
    loop {
        let published = tools.proposer.published();
        let labels = published.state.nodes.values().filter_map(|n| n.facts.as_ref()).map(|f| &f.labels);
        let selects = |labels| {
            published
                .state
                .policies
                .get(name)
                .is_some_and(|p| coroner_arbiter_core::policy::select::selects(p, labels))
        };
        let nodes = u32::try_from(labels.filter(|l| selects(l)).count()).unwrap_or(u32::MAX);
        let unusable = published.state.policies.get(name).and_then(|p| p.unusable.as_deref());
        let (reason, message) = acceptance(unusable, conflicts);
        let accepted = reason == "Accepted";
        let condition = Condition {
            type_: "Accepted".to_owned(),
            status: if accepted { "True" } else { "False" }.to_owned(),
            reason: reason.to_owned(),
            message,
            last_transition_time: tools.publisher.since(
                &format!("FencingPolicy/{name}/Accepted"),
                if accepted { "True" } else { "False" },
                clock::wall(Span::ZERO),
            ),
            observed_generation: None,
        };
        let status = FencingPolicyStatus { nodes, conditions: vec![condition], observed_generation: None };
        let wait = match tools.publisher.policy(name, &status).await {
            Ok(()) => Duration::from_secs(60),
            Err(_) => AGAIN,
        };
        tokio::time::sleep(wait).await;
    }
}

/// Reason and message of a policy's condition `Accepted`.
fn acceptance(unusable: Option<&str>, conflicts: &[String]) -> (&'static str, String) {
    match unusable {
        Some(why) => ("WrongValue", format!("its nodes are only observed: {why}")),
        None if conflicts.is_empty() => ("Accepted", String::new()),
        None => (
            "Conflict",
            format!(
                "nodes of this policy are selected by {} too: they are only observed until one of them selects them no more",
                conflicts.join(", ")
            ),
        ),
    }
}

/// Gives a page, and tells the log, so that no later leader gives it again.
pub(super) async fn page(tools: &Tools, node: &NodeName, reason: &str, text: &str) {
    let state = Arc::clone(&tools.proposer.published().state);
    if tools.told.with(|told| told.tell(clock::now(), &state, node, reason)) {
        tracing::warn!(%node, reason, "{text}");
        tools.telemetry.pages.get_or_create(&Reason { reason: reason.to_owned() }).inc();
        let facts = state.nodes.get(node).and_then(|known| known.facts.as_ref());
        let uid = facts.map(|facts| facts.uid.to_string()).unwrap_or_default();
        // The metric and the log have it already; an event that cannot be written must not make it a flood of pages.
        if let Err(error) = tools.publisher.page(node, &uid, reason, text, &clock::wall(Span::ZERO)).await {
            tracing::warn!(%node, error = %crate::transport::chain(&error), "the kube event of a page was not written");
        }
    }
    let _ = tools.commit(Command::Paged { node: node.clone(), reason: reason.to_owned() }).await;
    tokio::time::sleep(AGAIN).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_policy_says_why_it_is_not_in_force_and_a_wrong_value_before_a_conflict() {
        let other = ["other".to_owned()];
        assert_eq!(acceptance(None, &[]), ("Accepted", String::new()));
        let (reason, message) = acceptance(None, &other);
        assert_eq!(reason, "Conflict");
        assert!(message.contains("selected by other too"), "{message}");
        let (reason, message) = acceptance(Some("brakes.floor is 0: must be 1 or more"), &other);
        assert_eq!(reason, "WrongValue");
        assert!(message.contains("only observed: brakes.floor is 0"), "{message}");
    }
}
