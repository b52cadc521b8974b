//! What people are shown: the core's projections of the state, filled in with what only this replica's process knows
//! (readings of BMCs, what was heard, findings, ages).

use std::collections::BTreeMap;

use coroner_arbiter_core::state::State;
use coroner_arbiter_core::{evidence::LookedAt, explain, status, verdict};
use coroner_arbiter_replica::Role;
use coroner_shared::api::{
    BmcSummary, Explanation, IncidentSummary, NodeSummary, PauseSummary, ReplicaSummary, Status,
};
use coroner_shared::bmc::Power;
use coroner_shared::id::{ClusterId, NodeName};
use coroner_shared::time::{Mono, Span};

use crate::bmc_pool::BmcPool;
use crate::clock;
use crate::hearing::Hearing;
use crate::replica::{Published, ReplicaHandle};

/// Makes answers.
pub struct Shown {
    cluster: ClusterId,
    host: NodeName,
    handle: ReplicaHandle,
    hearing: Hearing,
    bmcs: BmcPool,
}

impl Shown {
    /// Over these parts.
    pub fn new(
        cluster: ClusterId,
        host: NodeName,
        handle: ReplicaHandle,
        hearing: Hearing,
        bmcs: BmcPool,
    ) -> Self {
        Self { cluster, host, handle, hearing, bmcs }
    }

    /// The node this replica runs on.
    pub fn host(&self) -> &NodeName {
        &self.host
    }

    /// The newest snapshot.
    pub fn published(&self) -> Published {
        self.handle.published()
    }

    /// Whether this replica knows a leader and has applied what is committed.
    ///
    /// # Errors
    /// What is missing.
    pub fn ready(&self) -> Result<(), String> {
        let published = self.published();
        if published.role == (Role::Follower { leader: None }) {
            return Err("no leader is known".to_owned());
        }
        if published.applied < published.committed {
            return Err(format!("{} entries behind", published.committed - published.applied));
        }
        Ok(())
    }

    /// Nodes by phase.
    pub fn phases(&self) -> BTreeMap<String, u32> {
        status::phases(&self.published().state)
    }

    /// The cluster.
    pub fn status(&self) -> Status {
        let published = self.published();
        let state = &published.state;
        let now = clock::now();
        let leader = match published.role {
            Role::Leader => Some(self.handle.id()),
            Role::Follower { leader } => leader,
        };
        let mut problems = status::problems(state);
        problems.extend(self.hearing.all_findings().iter().map(ToString::to_string));
        if leader.is_none() {
            problems
                .insert(0, "no leader: nothing can be decided; see which replicas are missing".to_owned());
        }
        let attention =
            status::attention(state).into_iter().map(|n| self.filled(n, &published, now)).collect();
        Status {
            cluster: self.cluster,
            verdict: status::verdict_line(state),
            answered_by: self.handle.id(),
            age: self.handle.age(),
            leader,
            term: published.term,
            applied: published.applied,
            level: state.level,
            paused: state.pause.as_ref().map(|p| PauseSummary {
                who: p.who.clone(),
                why: p.why.clone(),
                age: state.now.since(p.at) + now.since(published.at),
            }),
            storm: coroner_arbiter_core::brake::storm_on(state),
            phases: self.phases(),
            attention,
            replicas: replicas(state, leader, &published),
            problems,
        }
    }

    /// Every node.
    pub fn nodes(&self) -> Vec<NodeSummary> {
        let published = self.published();
        let now = clock::now();
        let all = published.state.nodes.keys().filter_map(|name| status::node(&published.state, name));
        all.map(|n| self.filled(n, &published, now)).collect()
    }

    /// One node.
    pub fn node(&self, name: &NodeName) -> Option<NodeSummary> {
        let published = self.published();
        status::node(&published.state, name).map(|n| self.filled(n, &published, clock::now()))
    }

    /// Why a node is what it is: from the committed record where there is one, else from how it was judged last.
    pub fn explain(&self, name: &NodeName) -> Option<Explanation> {
        let published = self.published();
        let summary = self.node(name)?;
        let state = &published.state;
        let record = state.open_incident(name).and_then(|(_, incident)| incident.record.as_deref());
        let (sentences, verdict) = match record.map(|r| &r.looked_at) {
            Some(LookedAt::View { view, rules, .. }) => {
                let again = verdict::verdict(view, rules);
                (explain::explain(view, &again, rules), Some(format!("{again:?}")))
            }
            Some(LookedAt::Order { who, why }) => (vec![format!("{who} ordered it: {why}")], None),
            Some(LookedAt::Confirmation(c)) => {
                (vec![format!("{} confirmed that the machine is off: {}", c.who, c.why)], None)
            }
            Some(LookedAt::Readings(_)) | None => match self.hearing.judged(name) {
                Some((view, verdict)) => {
                    let rules = coroner_arbiter_core::policy::select::rules_for(state, name);
                    (explain::explain(&view, &verdict, &rules), Some(format!("{verdict:?}")))
                }
                None => (explain::unsuspected(&summary, published.role == Role::Leader), None),
            },
        };
        Some(Explanation { summary, sentences, verdict })
    }

    /// Incidents, newest first.
    pub fn incidents(&self) -> Vec<IncidentSummary> {
        let published = self.published();
        let since = clock::now().since(published.at);
        let mut all: Vec<IncidentSummary> = published
            .state
            .incidents
            .keys()
            .filter_map(|id| status::incident(&published.state, id))
            .collect();
        for incident in &mut all {
            incident.opened_ago += since;
            for (ago, _, _) in &mut incident.timeline {
                *ago += since;
            }
        }
        all.sort_by_key(|i| i.opened_ago);
        all
    }

    fn filled(&self, mut node: NodeSummary, published: &Published, now: Mono) -> NodeSummary {
        node.age += now.since(published.at);
        node.heard_ago = self.hearing.last_sign(&node.node).map(|(at, _)| now.since(at));
        node.findings = self.hearing.findings(&node.node);
        node.bmc = self.bmc(&published.state, &node.node, now);
        node
    }

    fn bmc(&self, state: &State, name: &NodeName, now: Mono) -> Option<BmcSummary> {
        state.bindings.get(name)?;
        let ready = coroner_arbiter_core::permit::fenceable(state, name)
            .map_err(|why| coroner_arbiter_core::words::hold(&why));
        let Some(entry) = self.bmcs.entry(name) else {
            return Some(BmcSummary {
                power: "not read".to_owned(),
                power_age: None,
                steady_for: None,
                identity: "not read".to_owned(),
                verified_ago: None,
                fence_ready: ready,
            });
        };
        let seen = entry.seen();
        let failed = seen.error.filter(|(_, bad)| seen.power.as_ref().is_none_or(|(_, good)| bad > good));
        let (power, at) = match (failed, seen.power) {
            (Some((error, at)), _) => (error, Some(at)),
            (None, Some((power, at))) => (power_word(&power), Some(at)),
            (None, None) => ("not read yet".to_owned(), None),
        };
        let steady = entry.with_track(|t| t.steady(now).then(|| t.answers_since(now)).flatten()).flatten();
        let (identity, verified) =
            seen.identity.map_or(("not read yet".to_owned(), None), |(text, at)| (text, Some(at)));
        Some(BmcSummary {
            power,
            power_age: at.map(|at| now.since(at)),
            steady_for: steady.map(|since| now.since(since)),
            identity,
            verified_ago: verified.map(|at| now.since(at)),
            fence_ready: ready,
        })
    }
}

/// A power state for people.
pub fn power_word(power: &Power) -> String {
    match power {
        Power::On => "On".to_owned(),
        Power::Off => "Off".to_owned(),
        Power::PoweringOn => "PoweringOn".to_owned(),
        Power::PoweringOff => "PoweringOff".to_owned(),
        Power::Paused => "Paused".to_owned(),
        Power::Other(text) => format!("unknown ({text})"),
    }
}

fn replicas(
    state: &State,
    leader: Option<coroner_shared::id::ReplicaId>,
    published: &Published,
) -> Vec<ReplicaSummary> {
    let all = state.replicas.iter().map(|(id, replica)| ReplicaSummary {
        id: *id,
        host: Some(replica.host.clone()),
        leader: leader == Some(*id),
        lag: published.lag.get(id).copied(),
    });
    all.collect()
}

/// Time since the log's `at`, seen from our clock.
pub fn log_age(published: &Published, at: Mono, now: Mono) -> Span {
    published.state.now.since(at) + now.since(published.at)
}
