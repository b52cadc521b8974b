//! Keeps wrong passwords from locking accounts: every driver is wrapped so that a refused log-in is noted, and a Secret
//! that was refused is not sent again to that BMC before it changes or five minutes are over, and to no BMC at all
//! once three of them refused it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use coroner_bmc::{Answer, Bmc, BmcError, CredentialBreaker, MayLeave, Renewal, SeenCertificate};
use coroner_shared::bmc::{CommandAnswer, IdentityFacts, Login, PowerReading};
use coroner_shared::id::NodeName;
use coroner_shared::time::{Mono, Span};

use crate::clock;

/// A BMC that refused a Secret is asked with the same one again after this.
const AGAIN: Span = Span::from_mins(5);

/// What is known of one Secret.
#[derive(Default)]
struct Record {
    /// `resourceVersion` that was used.
    version: String,
    breaker: CredentialBreaker,
    refused: BTreeMap<NodeName, Mono>,
}

/// All Secrets.
#[derive(Clone, Default)]
pub struct Guard {
    records: Arc<Mutex<BTreeMap<String, Record>>>,
}

/// A driver whose refusals are noted.
pub struct Guarded {
    inner: Box<dyn Bmc>,
    guard: Guard,
    secret: String,
    node: NodeName,
}

// === impl Guard ===

impl Guard {
    /// Whether this version of the Secret may be sent to this node's BMC.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn permit(&self, secret: &str, version: &str, node: &NodeName, now: Mono) -> Result<(), String> {
        let mut records = self.records();
        let record = records.entry(secret.to_owned()).or_default();
        if record.version != version {
            *record = Record { version: version.to_owned(), ..Record::default() };
        }
        if let Some((_, bmcs)) = record.breaker.opened() {
            return Err(format!(
                "the log-in of Secret {secret} was refused by {}; it is not used again before the Secret changes",
                bmcs.join(", ")
            ));
        }
        match record.refused.get(node) {
            Some(at) if now.since(*at) < AGAIN => Err(format!(
                "the BMC refused the log-in of Secret {secret} {} ago; it is tried again when the Secret changes, or after {AGAIN}",
                now.since(*at)
            )),
            Some(_) | None => Ok(()),
        }
    }

    /// Wraps a driver.
    pub fn wrap(&self, inner: Box<dyn Bmc>, secret: &str, node: &NodeName) -> Guarded {
        Guarded { inner, guard: self.clone(), secret: secret.to_owned(), node: node.clone() }
    }

    fn note(&self, secret: &str, node: &NodeName, accepted: bool) {
        let now = clock::now();
        let mut records = self.records();
        let record = records.entry(secret.to_owned()).or_default();
        if accepted {
            record.breaker.auth_accepted(node.as_str());
            record.refused.remove(node);
        } else {
            record.breaker.auth_failed(node.as_str(), now);
            record.refused.insert(node.clone(), now);
        }
    }

    fn records(&self) -> MutexGuard<'_, BTreeMap<String, Record>> {
        self.records.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Guarded ===

/// Notes what a result says of the log-in, and hands it on.
fn noted<T>(
    guard: &Guard,
    secret: &str,
    node: &NodeName,
    result: Result<T, BmcError>,
) -> Result<T, BmcError> {
    match &result {
        Ok(_) => guard.note(secret, node, true),
        Err(BmcError::AuthRejected { .. }) => guard.note(secret, node, false),
        Err(_) => {}
    }
    result
}

impl Bmc for Guarded {
    fn identify(&mut self) -> Answer<'_, IdentityFacts> {
        Box::pin(async { noted(&self.guard, &self.secret, &self.node, self.inner.identify().await) })
    }

    fn power_state<'a>(&'a mut self, member: &'a str) -> Answer<'a, PowerReading> {
        Box::pin(async { noted(&self.guard, &self.secret, &self.node, self.inner.power_state(member).await) })
    }

    fn force_off<'a>(
        &'a mut self,
        member: &'a str,
        may_leave: MayLeave<'a>,
        deadline: Span,
    ) -> Answer<'a, CommandAnswer> {
        self.inner.force_off(member, may_leave, deadline)
    }

    fn power_on<'a>(&'a mut self, member: &'a str, deadline: Span) -> Answer<'a, CommandAnswer> {
        self.inner.power_on(member, deadline)
    }

    fn reset_types<'a>(&'a mut self, member: &'a str) -> Answer<'a, Option<Vec<String>>> {
        self.inner.reset_types(member)
    }

    fn login(&self) -> Option<Login> {
        self.inner.login()
    }

    fn delete_session<'a>(&'a mut self, uri: &'a str) -> Answer<'a, ()> {
        self.inner.delete_session(uri)
    }

    fn fresh_session(&mut self) -> Answer<'_, Renewal> {
        Box::pin(async { noted(&self.guard, &self.secret, &self.node, self.inner.fresh_session().await) })
    }

    fn close(&mut self) -> Answer<'_, ()> {
        self.inner.close()
    }

    fn certificate(&self) -> Option<&SeenCertificate> {
        self.inner.certificate()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refused_secret_is_not_sent_again_before_it_changes_or_five_minutes_are_over() {
        let guard = Guard::default();
        let node = NodeName::new("n1").unwrap();
        let now = clock::now();
        assert!(guard.permit("s", "1", &node, now).is_ok());
        guard.note("s", &node, false);
        assert!(guard.permit("s", "1", &node, now).is_err());
        assert!(
            guard.permit("s", "1", &NodeName::new("n2").unwrap(), now).is_ok(),
            "another BMC may take it"
        );
        assert!(guard.permit("s", "1", &node, now + AGAIN + Span::from_secs(1)).is_ok());
        assert!(guard.permit("s", "2", &node, now).is_ok(), "the Secret changed");
    }

    #[test]
    fn a_secret_that_three_bmcs_refuse_is_used_nowhere() {
        let guard = Guard::default();
        let now = clock::now();
        let node = |n: &str| NodeName::new(n).unwrap();
        assert!(guard.permit("s", "1", &node("n1"), now).is_ok());
        for n in ["n1", "n2", "n3"] {
            guard.note("s", &node(n), false);
        }
        assert!(guard.permit("s", "1", &node("n4"), now).unwrap_err().contains("n1, n2, n3"));
        assert!(guard.permit("s", "2", &node("n4"), now).is_ok());
    }
}
