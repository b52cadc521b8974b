//! What people are shown: pure projections of the state into the JSON of the people's port. Reason, age, what Coroner
//! does next, and what the operator can do, each in a sentence.
//!
//! What only a replica knows (who was heard when, what a BMC said last, findings) is left empty for it to fill in.

use std::collections::BTreeMap;

use coroner_shared::api::{IncidentSummary, NodeSummary, PauseSummary};
use coroner_shared::id::{BootId, IncidentId, NodeName};

use crate::apply::{booting, end_waits_for, may_power_on, return_waits_for};
use crate::brake;
use crate::pages;
use crate::permit;
use crate::phase::{EvidenceClass, FenceProof, HeldReason, Phase};
use crate::policy::Mode;
use crate::policy::select::{Selected, policy_for};
use crate::state::{Incident, Node, State};
use crate::words;

/// What stands of a node: reason, what comes next, what the operator can do.
struct Said {
    reason: Option<String>,
    next: String,
    advice: Option<String>,
}

/// One node, if it is known.
pub fn node(state: &State, name: &NodeName) -> Option<NodeSummary> {
    let node = state.nodes.get(name)?;
    let Said { reason, next, advice } = said(state, name, node);
    let registered = node.member.is_some();
    let (mode, policy) = mode(state, name);
    Some(NodeSummary {
        node: name.clone(),
        phase: phase_word(state, node).to_owned(),
        reason,
        age: state.now.since(node.phase_since),
        next,
        advice,
        incident: node.phase.incident().cloned(),
        uid: node
            .facts
            .as_ref()
            .map(|f| f.uid.clone())
            .or_else(|| node.member.as_ref().map(|m| m.uid.clone())),
        boot: boot(state, name, node),
        machine: registered
            .then(|| {
                node.member.as_ref().map(|m| match &m.machine {
                    Ok(machine) => machine.to_string(),
                    Err(why) => format!("none: {why}"),
                })
            })
            .flatten(),
        domain: node.domain.clone(),
        mode,
        policy,
        heard_ago: None,
        bmc: None,
        findings: Vec::new(),
    })
}

/// The boot that has registered, or the unregistered one that the open incident is about.
fn boot(state: &State, name: &NodeName, node: &Node) -> Option<BootId> {
    let registered = node.member.as_ref().filter(|m| !m.boot_is_over()).map(|m| m.boot);
    let ordered = || {
        let (_, incident) = state.open_incident(name)?;
        node.unregistered_boot().filter(|boot| *boot == incident.incarnation.boot)
    };
    registered.or_else(ordered)
}

/// The nodes that are not plainly alive and well, worst first.
pub fn attention(state: &State) -> Vec<NodeSummary> {
    let mut worst: Vec<(u8, &NodeName)> =
        state.nodes.iter().filter_map(|(name, node)| Some((urgency(state, name, node)?, name))).collect();
    worst.sort_by(|(a, name_a), (b, name_b)| b.cmp(a).then_with(|| name_a.cmp(name_b)));
    worst.into_iter().filter_map(|(_, name)| node(state, name)).collect()
}

/// How badly a node wants to be looked at; `None`: not at all.
fn urgency(state: &State, name: &NodeName, node: &Node) -> Option<u8> {
    let paging = !node.alarms.is_empty() || !pages::standing(state, name, node).is_empty();
    let by_phase = match &node.phase {
        Phase::Alive if !node.is_registered() => Some(1),
        Phase::Alive => None,
        Phase::Returning { .. } => Some(2),
        Phase::Released { .. } => Some(3),
        Phase::Releasing { .. } | Phase::ProvenOff { .. } => Some(4),
        Phase::Condemned { .. } => Some(5),
        Phase::Fencing { .. } => Some(6),
        Phase::Held { .. } => Some(7),
    };
    if paging { Some(10 + by_phase.unwrap_or(0)) } else { by_phase }
}

/// One incident, if it is known.
pub fn incident(state: &State, id: &IncidentId) -> Option<IncidentSummary> {
    let record = state.incidents.get(id)?;
    let node = state.nodes.get(&record.node).filter(|n| n.phase.incident() == Some(id));
    let ago = |at| state.now.since(at);
    Some(IncidentSummary {
        incident: id.clone(),
        node: record.node.clone(),
        phase: node.map_or("Closed", |n| phase_word(state, n)).to_owned(),
        class: record.class.as_ref().map(class_text),
        held: record.held.as_ref().map(|why| format!("{}: {}", why.word(), words::hold(why))),
        observed: record.observed,
        opened_ago: ago(record.opened),
        closed: record.closed.as_ref().map(|(at, how)| (ago(*at), how.clone())),
        waiting_for: node.map(|n| said(state, &record.node, n).next),
        evidence: record.evidence.clone(),
        timeline: record
            .timeline
            .iter()
            .map(|moment| (ago(moment.at), moment.what.clone(), moment.detail.clone()))
            .collect(),
    })
}

fn class_text(class: &EvidenceClass) -> String {
    match class {
        EvidenceClass::Ordered { who, why } => format!("Ordered by {who}: {why}"),
        EvidenceClass::FoundOff | EvidenceClass::HostSilentBmcOn => class.word().to_owned(),
    }
}

/// Nodes by phase, without the finer words of [`phase_word`] but `Unregistered`.
pub fn phases(state: &State) -> BTreeMap<String, u32> {
    let mut phases = BTreeMap::new();
    for node in state.nodes.values() {
        let alive = matches!(node.phase, Phase::Alive);
        let phase = if alive { phase_word(state, node) } else { node.phase.name() };
        *phases.entry(phase.to_owned()).or_insert(0) += 1;
    }
    phases
}

/// A pause of everything.
pub fn pause(state: &State) -> Option<PauseSummary> {
    state.pause.as_ref().map(|pause| PauseSummary {
        who: pause.who.clone(),
        why: pause.why.clone(),
        age: state.now.since(pause.at),
    })
}

/// The cluster in one line.
pub fn verdict_line(state: &State) -> String {
    let all = state.nodes.len();
    let count = |word: &str| state.nodes.values().filter(|n| phase_word(state, n) == word).count();
    let words =
        ["Held", "Condemned", "Fencing", "ReFencing", "ProvenOff", "Releasing", "Released", "Booting"];
    let mut parts: Vec<String> = words
        .iter()
        .chain(&["OnButUnknown", "Returning", "Unregistered"])
        .map(|word| (*word, count(word)))
        .filter(|(_, n)| *n > 0)
        .map(|(word, n)| format!("{n} {word}"))
        .collect();
    if brake::storm_on(state) {
        parts.push("a storm is on: only machines found off are acted on".to_owned());
    }
    if let Some(pause) = &state.pause {
        parts.push(format!("power commands are paused by {}", pause.who));
    }
    if parts.is_empty() {
        format!("All {all} nodes are alive.")
    } else {
        format!("{all} nodes: {}.", parts.join(", "))
    }
}

/// What would stop us tonight, in sentences.
pub fn problems(state: &State) -> Vec<String> {
    let mut problems = Vec::new();
    let members = state.members();
    if members < 3 {
        problems
            .push(format!("{members} members: with fewer than three nothing is ever decided by silence."));
    }
    for policy in state.policies.values().filter(|p| p.paused) {
        problems.push(format!("FencingPolicy {} is paused.", policy.name));
    }
    let mut blocked: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for name in state.nodes.keys() {
        let why = permit::observes(state, name).or_else(|| permit::fenceable(state, name).err());
        if let Some(why) = why {
            blocked.entry(words::hold(&why)).or_default().push(name.as_str());
        }
    }
    for (why, nodes) in blocked {
        let shown = nodes.iter().take(5).copied().collect::<Vec<_>>().join(", ");
        let more = nodes.len().saturating_sub(5);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        problems.push(format!("{shown}{more}: {why}."));
    }
    problems
}

/// The phase as shown: with the finer words that page and commands use.
pub fn phase_word(state: &State, node: &Node) -> &'static str {
    match &node.phase {
        Phase::Alive if !node.is_registered() => "Unregistered",
        Phase::Fencing { released: Some(_), .. } => "ReFencing",
        Phase::Released { incident, on_since: Some(since), .. } => {
            if state.now.since(*since) >= booting(state, incident) { "OnButUnknown" } else { "Booting" }
        }
        Phase::Alive
        | Phase::Held { .. }
        | Phase::Condemned { .. }
        | Phase::Fencing { .. }
        | Phase::ProvenOff { .. }
        | Phase::Releasing { .. }
        | Phase::Released { .. }
        | Phase::Returning { .. } => node.phase.name(),
    }
}

fn mode(state: &State, name: &NodeName) -> (String, Option<String>) {
    match policy_for(state, name) {
        Selected::None => ("Observe".to_owned(), None),
        Selected::One(policy) => {
            let mode = match policy.mode {
                Mode::Observe => "Observe",
                Mode::Enforce => "Enforce",
            };
            (mode.to_owned(), Some(policy.name.clone()))
        }
        Selected::Conflict(names) => (format!("Observe (conflict: {})", names.join(", ")), None),
    }
}

/// Sentences for every phase.
fn said(state: &State, name: &NodeName, node: &Node) -> Said {
    let record = state.open_incident(name).map(|(_, record)| record);
    let barred = permit::commands_barred(state, name);
    match &node.phase {
        Phase::Alive => alive(state, name, node),
        Phase::Held { why, .. } => Said {
            reason: Some(format!("{}: {}", why.word(), words::hold(why))),
            next: "It is judged again on every change; nothing is released meanwhile.".to_owned(),
            advice: Some(words::hold_advice(why).to_owned()),
        },
        Phase::Condemned { class, .. } => Said {
            reason: Some(class_text(class)),
            next: barred
                .as_ref()
                .map_or_else(|| "Its machine is identified and powered off.".to_owned(), reads_only),
            advice: barred.as_ref().map(|why| words::hold_advice(why).to_owned()),
        },
        Phase::Fencing { intent, attempt, released, .. } => {
            let sent = match attempt {
                Some(attempt) => format!("attempt {} was sent", attempt.number),
                None => "nothing was sent yet".to_owned(),
            };
            Said {
                reason: Some(match (&intent.stalled, released) {
                    (Some(why), _) => format!("Stalled: {why}; {sent}"),
                    (None, Some(_)) => format!("the same boot id was heard after its release; {sent}"),
                    (None, None) => sent,
                }),
                next: barred.as_ref().map_or_else(
                    || {
                        "Off is read until it is proven; commands are repeated with growing pauses."
                            .to_owned()
                    },
                    reads_only,
                ),
                advice: match (&barred, &intent.stalled) {
                    (Some(why), _) => Some(words::hold_advice(why).to_owned()),
                    (None, Some(why)) => Some(words::bmc_advice(why, words::STALLED_ADVICE).to_owned()),
                    (None, None) => None,
                },
            }
        }
        Phase::ProvenOff { proof, last_read_failed, .. } => Said {
            reason: Some(proof_text(proof)),
            next: match last_read_failed {
                Some(failed) => format!("The release waits for a last read: {}.", failed.why),
                None => "A last read, then the release.".to_owned(),
            },
            advice: last_read_failed
                .as_ref()
                .map(|failed| words::bmc_advice(&failed.why, words::LAST_READ_ADVICE).to_owned()),
        },
        Phase::Releasing { proof, .. } => Said {
            reason: Some(proof_text(proof)),
            next: "The out-of-service taint is written.".to_owned(),
            advice: None,
        },
        Phase::Released { .. } => released(state, name, node, record),
        Phase::Returning { .. } => returning(state, name, node),
    }
}

/// What a fence does while no command may be sent.
fn reads_only(why: &HeldReason) -> String {
    format!("No power command is sent: {}; off is proven by reading alone.", words::hold(why))
}

fn proof_text(proof: &FenceProof) -> String {
    match proof {
        FenceProof::BmcOff { .. } => "its BMC proved it off".to_owned(),
        FenceProof::PersonConfirmed { who, .. } => format!("{who} confirmed it off"),
    }
}

fn alive(state: &State, name: &NodeName, node: &Node) -> Said {
    if node.member.is_none() {
        return Said {
            reason: Some("its agent never registered".to_owned()),
            next: "It is not watched.".to_owned(),
            advice: Some("Check that the agent runs there and reaches the arbiter.".to_owned()),
        };
    }
    if !node.is_registered() {
        return Said {
            reason: Some(words::boot_unregistered(node.unregistered_boot())),
            next: "It cannot be missed before it was heard: it is not judged until its agent registers."
                .to_owned(),
            advice: Some(words::BOOT_UNREGISTERED_ADVICE.to_owned()),
        };
    }
    let why = permit::observes(state, name).or_else(|| permit::fenceable(state, name).err());
    Said {
        reason: why.as_ref().map(words::hold),
        next: match why {
            Some(_) => "It is watched; if it dies, nothing is done by itself.".to_owned(),
            None => "It is watched.".to_owned(),
        },
        advice: why.as_ref().map(|why| words::hold_advice(why).to_owned()),
    }
}

fn released(state: &State, name: &NodeName, node: &Node, record: Option<&Incident>) -> Said {
    let left = record.is_some_and(|r| !r.leftovers_gone);
    let power_on = node.phase.incident().map(|id| may_power_on(state, name, id));
    let (next, advice) = match phase_word(state, node) {
        "OnButUnknown" => (
            "Its machine has been on for long without a boot that anybody knows.".to_owned(),
            Some("Look at its console; `coroner fence` powers it off.".to_owned()),
        ),
        "Booting" => ("Its BMC says On; a new boot is awaited.".to_owned(), None),
        _ if left => ("Pods and attachments of the old life are going.".to_owned(), None),
        _ => match power_on {
            Some(Ok(())) => ("It is powered on once.".to_owned(), None),
            Some(Err(why)) => (
                format!("A new boot is awaited; we leave it off: {why}."),
                Some("Power it on when it is fit.".to_owned()),
            ),
            None => ("A new boot is awaited.".to_owned(), None),
        },
    };
    Said { reason: Some("its workloads are released".to_owned()), next, advice }
}

fn returning(state: &State, name: &NodeName, node: &Node) -> Said {
    let removed = matches!(node.phase, Phase::Returning { taint_removed: Some(_), .. });
    let waits = if removed { end_waits_for(state, name) } else { return_waits_for(state, name) };
    let what: Vec<&str> = waits.iter().map(|w| w.what.as_str()).collect();
    Said {
        reason: Some("it booted anew".to_owned()),
        next: if what.is_empty() {
            "What we put on the Node is taken away.".to_owned()
        } else {
            format!("It waits for {}.", what.join(", "))
        },
        advice: (!what.is_empty() && !removed).then(|| "`coroner return` ends the waiting.".to_owned()),
    }
}

#[cfg(test)]
mod tests;
