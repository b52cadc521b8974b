//! Who somebody is and what they may: TokenReview and SubjectAccessReview, so that RBAC is the only place where rights
//! are managed.

use std::net::IpAddr;
use std::time::Duration;

use coroner_shared::id::{NodeName, NodeUid};
use coroner_shared::names::{AGENT_AUDIENCE, GROUP};
use coroner_shared::time::Span;
use k8s_openapi::api::authentication::v1::{TokenReview, TokenReviewSpec, UserInfo};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::api::PostParams;
use kube::{Api, Client};
use thiserror::Error;

use crate::clock;
use crate::reviews::{self, Reviews};

/// A review takes no longer: whoever asks waits for it, and may ask another replica.
const WITHIN: Duration = Duration::from_secs(5);
/// Extra claims of a ServiceAccount token that is bound to a pod (Kubernetes, "ServiceAccount token volume projection").
const NODE_NAME: &str = "authentication.kubernetes.io/node-name";
const NODE_UID: &str = "authentication.kubernetes.io/node-uid";

/// Why somebody is not let in. Tokens are never shown.
#[derive(Debug, Error)]
pub enum AuthError {
    /// The API server does not know the token.
    #[error("the token is not valid: {0}")]
    Unauthenticated(String),
    /// Known, but not somebody who may do this.
    #[error("{who} may not {what}: {why}")]
    Forbidden {
        /// User name.
        who: String,
        /// The act.
        what: String,
        /// What would be right.
        why: String,
    },
    /// This address has had too many tokens reviewed.
    #[error("too many tokens come from this address; ask again in {} s", wait.as_ms().div_ceil(1000))]
    TooMany {
        /// How long to wait.
        wait: Span,
    },
    /// The API server took too long.
    #[error("the API server did not answer within {} s; on a replica's host, root can use the socket", WITHIN.as_secs())]
    Slow,
    /// The API server cannot be asked.
    #[error("the API server cannot review tokens now; on a replica's host, root can use the socket")]
    Api(#[source] Box<kube::Error>),
}

/// The host that an agent's token speaks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentHost {
    /// The node its pod runs on.
    pub node: NodeName,
    /// The uid of that Node.
    pub uid: NodeUid,
}

/// Asks the API server.
#[derive(Clone)]
pub struct Reviewer {
    client: Client,
    agents: Reviews,
    people: Reviews,
    /// `system:serviceaccount:<namespace>:<agent>`.
    agent_user: String,
}

// === impl Reviewer ===

impl Reviewer {
    /// A reviewer that takes this ServiceAccount for the agents'.
    pub fn new(client: Client, namespace: &str, agent_service_account: &str) -> Self {
        Self {
            client,
            agents: Reviews::new(reviews::AGENTS),
            people: Reviews::new(reviews::PEOPLE),
            agent_user: format!("system:serviceaccount:{namespace}:{agent_service_account}"),
        }
    }

    /// Which host an agent's projected token speaks for: audience, ServiceAccount, pod and node are all in the token.
    /// `from`: the address it came from; `known`: a registered host has that address.
    ///
    /// # Errors
    /// Not such a token, or too many of that address.
    pub async fn agent(&self, token: &str, from: IpAddr, known: bool) -> Result<AgentHost, AuthError> {
        self.agents.take(clock::now(), from, known).map_err(|wait| AuthError::TooMany { wait })?;
        let user = self.review(token, Some(AGENT_AUDIENCE)).await?;
        let who = user.username.clone().unwrap_or_default();
        let forbidden =
            |why: String| AuthError::Forbidden { who: who.clone(), what: "register a host".to_owned(), why };
        if who != self.agent_user {
            return Err(forbidden(format!("only {} may", self.agent_user)));
        }
        let extra = |key: &str| user.extra.as_ref().and_then(|e| e.get(key)).and_then(|v| v.first()).cloned();
        let (Some(node), Some(uid)) = (extra(NODE_NAME), extra(NODE_UID)) else {
            return Err(forbidden(
                "the token is not bound to a pod on a node (Kubernetes >= 1.32 puts the node into it)"
                    .to_owned(),
            ));
        };
        let node = NodeName::new(node).map_err(|e| forbidden(e.to_string()))?;
        let uid = NodeUid::new(uid).map_err(|e| forbidden(e.to_string()))?;
        Ok(AgentHost { node, uid })
    }

    /// Who a person is, and from where they ask.
    ///
    /// # Errors
    /// The token is not valid, or too many of that address.
    pub async fn person(&self, token: &str, from: IpAddr) -> Result<UserInfo, AuthError> {
        self.people.take(clock::now(), from, false).map_err(|wait| AuthError::TooMany { wait })?;
        self.review(token, None).await
    }

    /// Whether this user may use `verb` on nodes of our group, or on one of them.
    ///
    /// # Errors
    /// [`AuthError::Forbidden`], with the rule that is missing.
    pub async fn may(&self, user: &UserInfo, verb: &str, node: Option<&NodeName>) -> Result<(), AuthError> {
        let attributes = ResourceAttributes {
            group: Some(GROUP.to_owned()),
            resource: Some("nodes".to_owned()),
            verb: Some(verb.to_owned()),
            name: node.map(ToString::to_string),
            ..ResourceAttributes::default()
        };
        let spec = SubjectAccessReviewSpec { resource_attributes: Some(attributes), ..subject(user) };
        let why = format!("a (Cluster)Role must allow verb {verb} on resource nodes of group {GROUP}");
        self.access(spec, user, verb, &why).await
    }

    /// Whether this user may read a path such as `/metrics`.
    ///
    /// # Errors
    /// [`AuthError::Forbidden`], with the rule that is missing.
    pub async fn may_read_path(&self, user: &UserInfo, path: &str) -> Result<(), AuthError> {
        let attributes = NonResourceAttributes { path: Some(path.to_owned()), verb: Some("get".to_owned()) };
        let spec = SubjectAccessReviewSpec { non_resource_attributes: Some(attributes), ..subject(user) };
        let why = format!("a ClusterRole must allow get on nonResourceURL {path}");
        self.access(spec, user, &format!("read {path}"), &why).await
    }

    async fn review(&self, token: &str, audience: Option<&str>) -> Result<UserInfo, AuthError> {
        let spec = TokenReviewSpec {
            token: Some(token.to_owned()),
            audiences: audience.map(|a| vec![a.to_owned()]),
        };
        let review = TokenReview { spec, ..TokenReview::default() };
        let reviews: Api<TokenReview> = Api::all(self.client.clone());
        let review = within(reviews.create(&PostParams::default(), &review)).await?;
        let status = review.status.unwrap_or_default();
        let in_audience = audience.is_none_or(|a| status.audiences.iter().flatten().any(|given| given == a));
        match (status.authenticated, status.user) {
            (Some(true), Some(user)) if in_audience => Ok(user),
            _ => Err(AuthError::Unauthenticated(
                status.error.unwrap_or_else(|| "the API server does not accept it".to_owned()),
            )),
        }
    }

    async fn access(
        &self,
        spec: SubjectAccessReviewSpec,
        user: &UserInfo,
        what: &str,
        why: &str,
    ) -> Result<(), AuthError> {
        let reviews: Api<SubjectAccessReview> = Api::all(self.client.clone());
        let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
        let review = within(reviews.create(&PostParams::default(), &review)).await?;
        if review.status.is_some_and(|s| s.allowed) {
            return Ok(());
        }
        Err(AuthError::Forbidden {
            who: user.username.clone().unwrap_or_default(),
            what: what.to_owned(),
            why: why.to_owned(),
        })
    }
}

async fn within<T>(asking: impl Future<Output = kube::Result<T>>) -> Result<T, AuthError> {
    match tokio::time::timeout(WITHIN, asking).await {
        Ok(answer) => answer.map_err(|e| AuthError::Api(Box::new(e))),
        Err(_) => Err(AuthError::Slow),
    }
}

fn subject(user: &UserInfo) -> SubjectAccessReviewSpec {
    SubjectAccessReviewSpec {
        user: user.username.clone(),
        groups: user.groups.clone(),
        uid: user.uid.clone(),
        extra: user.extra.clone(),
        ..SubjectAccessReviewSpec::default()
    }
}
